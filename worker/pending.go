package worker

import (
	"context"
	"sync"

	"flashsale/model"
)

// pending holds the entries that this instance is to settle. Those that wait are kept by sale, in the order in which they came.
type pending struct {
	mu      sync.Mutex
	sales   []model.GateRef // with waiting entries, the next one first
	waiting map[model.GateRef][]model.Entry
	length  int             // of the lists in waiting
	most    int             // the bound of held
	more    bool            // the streams may have more entries for this instance
	room    chan struct{}   // has a value when there may be more entries, and room for them
	held    map[string]bool // by order's id, the entries between add and done
	empty   chan struct{}   // closed when held becomes empty; nil: nobody waits
	late    *lateSales      // sales that take leaves out
	signal  chan struct{}   // has a value when entries may wait
}

func newPending() *pending {
	return &pending{
		waiting: map[model.GateRef][]model.Entry{}, held: map[string]bool{}, most: mostHeld,
		signal: make(chan struct{}, 1), room: make(chan struct{}, 1), late: newLateSales(),
	}
}

// add appends entries that are not held yet, as long as there is room, and returns how many it has appended.
func (p *pending) add(entries []model.Entry) (added int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range entries {
		if p.held[e.ID] {
			continue
		}
		if len(p.held) >= p.most {
			p.more = true
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
	p.length += added
	p.poke()
	return added
}

type saleBatch struct {
	gate    model.GateRef
	entries []model.Entry
}

// take returns at most "count" waiting entries, without those of late sales. They are still held.
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
		p.length -= n
		batches = append(batches, saleBatch{gate, all[:n:n]})
		if n == len(all) {
			delete(p.waiting, gate)
			continue
		}
		p.waiting[gate] = all[n:]
		kept = append(append(kept, p.sales[at+1:]...), gate) // the other sales come first
		break
	}
	if p.sales = kept; len(kept) > 0 && len(batches) > 0 {
		p.poke()
	}
	return batches
}

// expect notes whether the streams may have more entries for this instance.
func (p *pending) expect(more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.more = more
}

func (p *pending) backlog(count int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.length > count
}

// done forgets entries that are deleted from their streams, or that this instance leaves there. If the streams may have more
// entries and there is room, it wakes the sweep.
func (p *pending) done(entries []model.Entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range entries {
		delete(p.held, e.ID)
	}
	if p.more && len(p.held) < p.most/2 && p.length < sweepMost/4 {
		notify(p.room)
	}
	if len(p.held) == 0 && p.empty != nil {
		close(p.empty)
		p.empty = nil
	}
}

// drained waits until no entry is held. If ctx ends before, it returns the error of ctx.
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
	return ended(ctx, empty)
}

func (p *pending) poke() { notify(p.signal) }

func notify(signal chan struct{}) {
	select {
	case signal <- struct{}{}:
	default: // a signal waits already
	}
}

// lateSales counts, by sale, the batches under way that take long.
type lateSales struct {
	mu      sync.Mutex
	batches map[model.GateRef]int
	under   sync.WaitGroup // all batches under way, late or not
}

func newLateSales() *lateSales { return &lateSales{batches: map[model.GateRef]int{}} }

func (l *lateSales) add(gate model.GateRef, batches int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.batches[gate] += batches; l.batches[gate] == 0 {
		delete(l.batches, gate)
	}
}

func (l *lateSales) has(gate model.GateRef) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.batches[gate] > 0
}
