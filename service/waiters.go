package service

import (
	"cmp"
	"context"
	"sync"
	"time"

	"flashsale/model"
)

const (
	tick = 10 * time.Millisecond // the precision with which waits end
	// hurriedLook is how soon the alarm looks at a buyer who does not wait for the settler.
	hurriedLook = time.Second
)

// Waiters ends the waits of this instance's buyers that last too long, and wakes the buyers that Apart keeps. One alarm serves
// all buyers, which costs less than a timer for each.
type Waiters struct {
	now   func() time.Time
	began time.Time

	mu     sync.Mutex
	due    map[int64][]waiter       // by the tick at which the alarm looks at them
	looked int64                    // the tick at which the alarm last looked
	alarm  bool                     // the alarm is set
	apart  map[string]*model.Waiter // the buyers that Apart keeps, by order's id

	closed  bool          // by Close
	closing chan struct{} // closed by Close
}

type waiter struct {
	*model.Waiter
	orderID string
	wait    time.Duration // for the settler, from the admission on; 0: the admission is the answer
	until   time.Time     // the end of the wait, whether the attempt was admitted or not
}

// NewWaiters makes an empty set. "now" is this process's clock.
func NewWaiters(now func() time.Time) *Waiters {
	return &Waiters{now: now, began: now(), due: map[int64][]waiter{}, apart: map[string]*model.Waiter{}, closing: make(chan struct{})}
}

// Waiter makes the Waiter of an attempt's buyer, who leaves when "gone" is closed. The wait ends about "wait" after the
// admission, or about "limit" from now if that is earlier. If "wait" is 0, the admission is the answer.
func (w *Waiters) Waiter(gone <-chan struct{}, orderID string, wait, limit time.Duration) *model.Waiter {
	now := w.now()
	b := waiter{model.NewWaiter(gone), orderID, wait, now.Add(limit)}
	w.mu.Lock()
	defer w.mu.Unlock()
	if wait == 0 || w.closed {
		b.Hurry()
	}
	w.await(b, now)
	return b.Waiter
}

// await ends a buyer's wait if its time is over, else makes the alarm look at the buyer later. The caller holds mu.
func (w *Waiters) await(b waiter, now time.Time) {
	at := now.Add(cmp.Or(b.wait, hurriedLook))
	if admitted, ok := b.AdmittedAt(); ok {
		at = admitted.Add(b.wait)
	}
	if at.After(b.until) {
		at = b.until
	}
	if !at.After(now) {
		b.GiveUp(context.DeadlineExceeded)
		if w.apart[b.orderID] == b.Waiter { // a repeat of the attempt may be kept instead
			delete(w.apart, b.orderID)
		}
		return
	}
	due := int64((at.Sub(w.began) + tick - 1) / tick)
	w.due[due] = append(w.due[due], b)
	if !w.alarm {
		w.looked = int64(now.Sub(w.began) / tick)
		w.set(now)
	}
}

// set sets the alarm to the next tick, if there is anybody to look at. The caller holds mu.
func (w *Waiters) set(now time.Time) {
	if w.alarm = len(w.due) > 0; w.alarm {
		time.AfterFunc(tick-now.Sub(w.began)%tick, w.ring)
	}
}

func (w *Waiters) ring() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	for last := int64(now.Sub(w.began) / tick); w.looked < last; {
		w.looked++
		due := w.due[w.looked]
		delete(w.due, w.looked)
		for _, b := range due {
			w.await(b, now)
		}
	}
	w.set(now)
}

// Close makes the admission the answer for all buyers, also those who come later. Call it once.
func (w *Waiters) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	close(w.closing)
	for _, due := range w.due {
		for _, b := range due {
			b.Hurry()
		}
	}
}

// Apart keeps the buyers of these entries, so that Wake and Look find them by their orders' ids. It is for entries that the
// settler may not settle from its memory.
func (w *Waiters) Apart(entries []model.Entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range entries {
		if e.Waiter != nil && !e.Waiter.Answered() { // the alarm deletes this buyer from apart when the time is over
			w.apart[e.ID] = e.Waiter
		}
	}
}

// Wake tells outcomes, by orders' ids, to the buyers who are kept apart.
func (w *Waiters) Wake(outcomes map[string]model.Outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, o := range outcomes {
		if b := w.apart[id]; b != nil {
			delete(w.apart, id)
			b.Tell(o, nil)
		}
	}
}

// Look tells Queued to those buyers of these orders who are kept apart, so that they look in the database.
func (w *Waiters) Look(orderIDs []string) {
	outcomes := make(map[string]model.Outcome, len(orderIDs))
	for _, id := range orderIDs {
		outcomes[id] = model.Outcome{Verdict: model.Queued}
	}
	w.Wake(outcomes)
}
