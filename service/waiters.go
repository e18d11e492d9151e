package service

import (
	"hash/maphash"
	"sync"

	"flashsale/model"
)

// waiterShards keep those who wait for different orders from waiting for one lock.
const waiterShards = 64

// Waiters are the buyers of this instance who wait until their queued attempts are settled.
type Waiters struct {
	seed   maphash.Seed
	shards [waiterShards]waiterShard
}

type waiterShard struct {
	mu   sync.Mutex
	byID map[string][]chan model.Outcome
}

// NewWaiters makes an empty set.
func NewWaiters() *Waiters {
	w := &Waiters{seed: maphash.MakeSeed()}
	for i := range w.shards {
		w.shards[i].byID = map[string][]chan model.Outcome{}
	}
	return w
}

func (w *Waiters) shard(orderID string) *waiterShard {
	return &w.shards[maphash.String(w.seed, orderID)%waiterShards]
}

// Wait gives a channel that receives what becomes of an order's id, or the zero outcome if the database has to say, and a function that ends the waiting.
// It must be called before the attempt is admitted, or the outcome could come first.
func (w *Waiters) Wait(orderID string) (outcome <-chan model.Outcome, done func()) {
	c, s := make(chan model.Outcome, 1), w.shard(orderID)
	s.mu.Lock()
	s.byID[orderID] = append(s.byID[orderID], c)
	s.mu.Unlock()
	return c, func() { s.remove(orderID, c) }
}

func (s *waiterShard) remove(orderID string, c chan model.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.byID[orderID]
	for i, other := range list {
		if other == c {
			list = append(list[:i:i], list[i+1:]...)
			break
		}
	}
	if len(list) == 0 {
		delete(s.byID, orderID)
		return
	}
	s.byID[orderID] = list
}

// Wake tells those who wait for an order's id what became of it.
func (w *Waiters) Wake(orderID string, outcome model.Outcome) {
	s := w.shard(orderID)
	s.mu.Lock()
	list := s.byID[orderID]
	delete(s.byID, orderID)
	s.mu.Unlock()
	for _, c := range list {
		c <- outcome // has room for one, and is off the list
	}
}

// WakeAll tells what became of many.
func (w *Waiters) WakeAll(outcomes map[string]model.Outcome) {
	for id, o := range outcomes {
		w.Wake(id, o)
	}
}

// Look has those who wait for these orders' ids look in the database: another instance says that they are settled.
func (w *Waiters) Look(orderIDs []string) {
	for _, id := range orderIDs {
		w.Wake(id, model.Outcome{})
	}
}
