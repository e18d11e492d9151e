package worker

import (
	"slices"
	"sync"

	"flashsale/model"
)

// dueSales are the sales whose streams are to be read, in the order in which they became due.
type dueSales struct {
	mu     sync.Mutex
	order  []model.GateRef
	claim  map[model.GateRef]bool // the due sales; true: also claim entries that other consumers have left
	late   lateSales              // take skips these sales even if they are due
	signal chan struct{}
}

func newDueSales() *dueSales {
	return &dueSales{claim: map[model.GateRef]bool{}, signal: make(chan struct{}, settleWriters)}
}

func (d *dueSales) add(gate model.GateRef, claim bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before, due := d.claim[gate]
	d.claim[gate] = before || claim
	if due {
		return
	}
	d.order = append(d.order, gate)
	d.poke()
}

// again makes a sale due whose late batch has ended.
func (d *dueSales) again(gate model.GateRef) {
	d.add(gate, true)
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
func (d *dueSales) take() (gate model.GateRef, claim, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := slices.IndexFunc(d.order, func(gate model.GateRef) bool { return !d.late.has(gate) })
	if at < 0 {
		return gate, false, false
	}
	gate = d.order[at]
	claim = d.claim[gate]
	d.order = slices.Delete(d.order, at, at+1)
	delete(d.claim, gate)
	return gate, claim, true
}

// lateSales counts, by sale, the batches under way that already take long.
type lateSales struct {
	mu      sync.Mutex
	batches map[model.GateRef]int
	under   sync.WaitGroup // all batches under way, late or not
}

func (l *lateSales) begin(gate model.GateRef) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.batches == nil {
		l.batches = map[model.GateRef]int{}
	}
	l.batches[gate]++
}

func (l *lateSales) end(gate model.GateRef) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.batches[gate]--; l.batches[gate] == 0 {
		delete(l.batches, gate)
	}
}

func (l *lateSales) has(gate model.GateRef) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.batches[gate] > 0
}
