package service

import (
	"sync"

	"flashsale/model"
)

// Waiters are the buyers of this instance who wait until their queued attempts are settled.
type Waiters struct {
	mu   sync.Mutex
	byID map[string][]chan model.Outcome
}

// NewWaiters makes an empty set.
func NewWaiters() *Waiters { return &Waiters{byID: map[string][]chan model.Outcome{}} }

// Wait gives a channel that receives what becomes of an order's id, and a function that ends the waiting.
// It must be called before the attempt is admitted, or the outcome could come first.
func (w *Waiters) Wait(orderID string) (outcome <-chan model.Outcome, done func()) {
	c := make(chan model.Outcome, 1)
	w.mu.Lock()
	w.byID[orderID] = append(w.byID[orderID], c)
	w.mu.Unlock()
	return c, func() { w.remove(orderID, c) }
}

func (w *Waiters) remove(orderID string, c chan model.Outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.byID[orderID]
	for i, other := range list {
		if other == c {
			list = append(list[:i:i], list[i+1:]...)
			break
		}
	}
	if len(list) == 0 {
		delete(w.byID, orderID)
		return
	}
	w.byID[orderID] = list
}

// Wake tells those who wait for an order's id what became of it.
func (w *Waiters) Wake(orderID string, outcome model.Outcome) {
	w.mu.Lock()
	list := w.byID[orderID]
	delete(w.byID, orderID)
	w.mu.Unlock()
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
