package worker

import (
	"context"
	"sync"

	"flashsale/model"
)

// pending holds the entries that this instance is to settle, by sale and in the order in which they came.
type pending struct {
	mu      sync.Mutex
	sales   []model.GateRef // with waiting entries, in the order in which they are served
	waiting map[model.GateRef][]model.Entry
	held    map[string]bool // the ids of all orders that wait or are being settled
	empty   chan struct{}   // closed when held becomes empty, if somebody waits for it
	late    lateSales       // take leaves out these sales
	signal  chan struct{}
}

func newPending() *pending {
	return &pending{
		waiting: map[model.GateRef][]model.Entry{}, held: map[string]bool{}, signal: make(chan struct{}, settleWriters),
	}
}

// add appends entries that are not held yet, up to mostHeld in all, and returns how many. The others stay in their
// streams.
func (p *pending) add(entries []model.Entry) (added int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range entries {
		if p.held[e.ID] || len(p.held) >= mostHeld {
			continue
		}
		gate := e.GateRef()
		if len(p.waiting[gate]) == 0 {
			p.sales = append(p.sales, gate)
		}
		p.held[e.ID] = true
		p.waiting[gate] = append(p.waiting[gate], e)
		added++
	}
	p.poke()
	return added
}

// saleBatch is entries of one sale.
type saleBatch struct {
	gate    model.GateRef
	entries []model.Entry
}

// take removes and returns at most count entries, of one sale or of several. The sales are served in turn; those that are
// late are left out.
func (p *pending) take(count int) (batches []saleBatch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var kept []model.GateRef
	for at, gate := range p.sales {
		if count == 0 {
			kept = append(kept, p.sales[at:]...)
			break
		}
		if p.late.has(gate) {
			kept = append(kept, gate)
			continue
		}
		all := p.waiting[gate]
		n := min(len(all), count)
		count -= n
		batches = append(batches, saleBatch{gate, all[:n:n]})
		if n == len(all) {
			delete(p.waiting, gate)
			continue
		}
		p.waiting[gate] = all[n:]
		kept = append(append(kept, p.sales[at+1:]...), gate) // the others are served first
		break
	}
	if p.sales = kept; len(kept) > 0 && len(batches) > 0 {
		p.poke()
	}
	return batches
}

// done forgets entries that are settled, or that are left to the stream.
func (p *pending) done(entries []model.Entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range entries {
		delete(p.held, e.ID)
	}
	if len(p.held) == 0 && p.empty != nil {
		close(p.empty)
		p.empty = nil
	}
}

// drained waits until no entry is held, or until ctx ends.
func (p *pending) drained(ctx context.Context) error {
	p.mu.Lock()
	if len(p.held) == 0 {
		p.mu.Unlock()
		return ctx.Err()
	}
	if p.empty == nil {
		p.empty = make(chan struct{})
	}
	empty := p.empty
	p.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// poke wakes a writer.
func (p *pending) poke() {
	select {
	case p.signal <- struct{}{}:
	default: // every writer has a signal waiting
	}
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
