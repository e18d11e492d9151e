package worker

import "sync"

// dueSales are the sales whose streams are to be read, in the order in which they became due.
type dueSales struct {
	mu     sync.Mutex
	order  []string
	claim  map[string]bool // the due sales; true: also for entries that other consumers have left
	signal chan struct{}
}

func newDueSales() *dueSales {
	return &dueSales{claim: map[string]bool{}, signal: make(chan struct{}, settleWriters)}
}

func (d *dueSales) add(saleID string, claim bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before, due := d.claim[saleID]
	d.claim[saleID] = before || claim
	if due {
		return
	}
	d.order = append(d.order, saleID)
	select {
	case d.signal <- struct{}{}:
	default: // every writer has a signal waiting
	}
}

// take gives the sale that has been due for longest.
func (d *dueSales) take() (saleID string, claim, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.order) == 0 {
		return "", false, false
	}
	saleID = d.order[0]
	claim = d.claim[saleID]
	d.order = d.order[1:]
	delete(d.claim, saleID)
	return saleID, claim, true
}
