package worker

import "sync"

// dueSales are the sales whose streams are to be read. A sale may be with several writers: while one waits for its
// commit, another gathers the next batch. A sale that no writer is busy with comes first.
type dueSales struct {
	mu      sync.Mutex
	due     map[string]bool // true: also for entries that other consumers have left
	writers map[string]int  // busy with a sale
	signal  chan struct{}
}

func newDueSales() *dueSales {
	return &dueSales{due: map[string]bool{}, writers: map[string]int{}, signal: make(chan struct{}, settleWriters)}
}

func (d *dueSales) add(saleID string, claim bool) {
	d.mu.Lock()
	d.due[saleID] = d.due[saleID] || claim
	d.mu.Unlock()
	select {
	case d.signal <- struct{}{}:
	default: // every writer has a signal waiting
	}
}

// take gives the due sale that the fewest writers are busy with.
func (d *dueSales) take() (saleID string, claim, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id := range d.due {
		if !ok || d.writers[id] < d.writers[saleID] {
			saleID, ok = id, true
		}
	}
	if ok {
		claim = d.due[saleID]
		delete(d.due, saleID)
		d.writers[saleID]++
	}
	return saleID, claim, ok
}

// waiting reports whether a due sale has no writer.
func (d *dueSales) waiting() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id := range d.due {
		if d.writers[id] == 0 {
			return true
		}
	}
	return false
}

func (d *dueSales) finish(saleID string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.writers[saleID]--; d.writers[saleID] == 0 {
		delete(d.writers, saleID)
	}
}
