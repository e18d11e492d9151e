package worker

import "sync"

// dueSales are the sales whose streams are to be read. A sale that becomes due while a writer is busy with it
// is taken again after that; it is never with two writers.
type dueSales struct {
	mu     sync.Mutex
	due    map[string]bool // true: also for entries that other consumers have left
	busy   map[string]bool
	signal chan struct{}
}

func newDueSales() *dueSales {
	return &dueSales{due: map[string]bool{}, busy: map[string]bool{}, signal: make(chan struct{}, settleWriters)}
}

func (d *dueSales) add(saleID string, claim bool) {
	d.mu.Lock()
	d.due[saleID] = d.due[saleID] || claim
	d.mu.Unlock()
	d.poke()
}

// take gives a due sale that no writer is busy with.
func (d *dueSales) take() (saleID string, claim, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, claim := range d.due {
		if !d.busy[id] {
			delete(d.due, id)
			d.busy[id] = true
			return id, claim, true
		}
	}
	return "", false, false
}

// waiting reports whether a due sale has no writer.
func (d *dueSales) waiting() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id := range d.due {
		if !d.busy[id] {
			return true
		}
	}
	return false
}

func (d *dueSales) finish(saleID string) {
	d.mu.Lock()
	delete(d.busy, saleID)
	_, again := d.due[saleID]
	d.mu.Unlock()
	if again {
		d.poke()
	}
}

func (d *dueSales) poke() {
	select {
	case d.signal <- struct{}{}:
	default: // every writer has a signal waiting
	}
}
