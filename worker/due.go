package worker

import (
	"slices"
	"sync"
)

// dueSales are the sales whose streams are to be read, in the order in which they became due.
type dueSales struct {
	mu     sync.Mutex
	order  []string
	claim  map[string]bool // the due sales; true: also claim entries that other consumers have left
	late   lateSales       // take skips these sales, also if they are due
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
	d.poke()
}

// again makes a sale due whose late batch has ended.
func (d *dueSales) again(saleID string) {
	d.add(saleID, true)
	d.poke() // add sends no signal if the sale was due already, and take may have skipped it
}

func (d *dueSales) poke() {
	select {
	case d.signal <- struct{}{}:
	default: // every writer has a signal waiting
	}
}

// take removes and returns the sale that has been due for longest, of those that are not late. ok is false if there is
// none.
func (d *dueSales) take() (saleID string, claim, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := slices.IndexFunc(d.order, func(id string) bool { return !d.late.has(id) })
	if at < 0 {
		return "", false, false
	}
	saleID = d.order[at]
	claim = d.claim[saleID]
	d.order = slices.Delete(d.order, at, at+1)
	delete(d.claim, saleID)
	return saleID, claim, true
}

// lateSales counts, by sale, the batches under way that already take long.
type lateSales struct {
	mu      sync.Mutex
	batches map[string]int
	under   sync.WaitGroup // all batches under way, late or not
}

func (l *lateSales) begin(saleID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.batches == nil {
		l.batches = map[string]int{}
	}
	l.batches[saleID]++
}

func (l *lateSales) end(saleID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.batches[saleID]--; l.batches[saleID] == 0 {
		delete(l.batches, saleID)
	}
}

func (l *lateSales) has(saleID string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.batches[saleID] > 0
}
