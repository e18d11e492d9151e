package service

import (
	"hash/maphash"
	"sync"

	"flashsale/model"
)

// waiterShards is the number of locks, so that waiters for different orders rarely wait for the same lock.
const waiterShards = 64

// Waiters are the requests on this instance that wait until their queued attempts are settled.
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

// Wait returns a channel that receives the outcome of an order's id, and a function that ends the waiting. A zero
// outcome means that the waiter has to look in the database. Wait must be called before the attempt is admitted;
// otherwise the outcome could arrive before the waiter is registered.
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

// Wake sends the outcome of an order's id to its waiters.
func (w *Waiters) Wake(orderID string, outcome model.Outcome) {
	s := w.shard(orderID)
	s.mu.Lock()
	list := s.byID[orderID]
	delete(s.byID, orderID)
	s.mu.Unlock()
	for _, c := range list {
		c <- outcome // does not block: the channel has room for one outcome and is no longer in the list
	}
}

// WakeAll sends the outcomes of many orders' ids to their waiters.
func (w *Waiters) WakeAll(outcomes map[string]model.Outcome) {
	for id, o := range outcomes {
		w.Wake(id, o)
	}
}

// Look makes the waiters of these orders' ids look in the database, after another instance has reported that their
// attempts are settled.
func (w *Waiters) Look(orderIDs []string) {
	for _, id := range orderIDs {
		w.Wake(id, model.Outcome{})
	}
}
