package worker

import (
	"slices"
	"sync"
)

// dueSales are the sales whose streams are to be read, in the order in which they became due. A sale that becomes due
// while a writer is busy with it is taken again after that; it is never with two writers.
type dueSales struct {
	mu     sync.Mutex
	order  []string
	claim  map[string]bool // the due sales; true: also for entries that other consumers have left
	busy   map[string]bool
	signal chan struct{}
}

func newDueSales() *dueSales {
	return &dueSales{claim: map[string]bool{}, busy: map[string]bool{}, signal: make(chan struct{}, settleWriters)}
}

func (d *dueSales) add(saleID string, claim bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before, due := d.claim[saleID]
	d.claim[saleID] = before || claim
	if !due {
		d.order = append(d.order, saleID)
	}
	if !d.busy[saleID] {
		d.poke()
	}
}

// take gives the sale that has been due for longest among those that no writer is busy with.
func (d *dueSales) take() (saleID string, claim, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := slices.IndexFunc(d.order, func(id string) bool { return !d.busy[id] })
	if at < 0 {
		return "", false, false
	}
	saleID = d.order[at]
	claim = d.claim[saleID]
	d.order = slices.Delete(d.order, at, at+1)
	delete(d.claim, saleID)
	d.busy[saleID] = true
	return saleID, claim, true
}

func (d *dueSales) finish(saleID string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.busy, saleID)
	if _, again := d.claim[saleID]; again {
		d.poke()
	}
}

func (d *dueSales) poke() {
	select {
	case d.signal <- struct{}{}:
	default: // every writer has a signal waiting
	}
}
