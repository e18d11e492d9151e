package service

import (
	"fmt"
	"testing"

	"flashsale/model"
	"flashsale/test/kit/check"
)

func TestWaiters(t *testing.T) {
	accepted := model.Outcome{Verdict: model.Accepted, Order: &model.Order{ID: "a"}}
	w := NewWaiters()
	first, doneFirst := w.Wait("a")
	second, doneSecond := w.Wait("a") // the same request on a second connection
	other, doneOther := w.Wait("b")
	left, doneLeft := w.Wait("a")
	doneLeft()
	doneLeft() // a second call does nothing
	w.WakeAll(map[string]model.Outcome{"a": accepted, "without a waiter": {Verdict: model.SoldOut}})
	nothing := model.Outcome{Verdict: "nothing"}
	received := func(outcome <-chan model.Outcome) model.Outcome {
		select {
		case o := <-outcome:
			return o
		default:
			return nothing
		}
	}
	check.Same(t, "first waiter", received(first), accepted)
	check.Same(t, "second waiter", received(second), accepted)
	check.Same(t, "waiter for another id", received(other), nothing)
	check.Same(t, "waiter that has left", received(left), nothing)
	w.Wake("a", accepted) // must not block although nobody waits
	check.Same(t, "first waiter, again", received(first), nothing)
	doneFirst()
	doneSecond()
	check.Same(t, "ids with waiters", w.waited(), 1)
	doneOther()
	check.Same(t, "ids with waiters at the end", w.waited(), 0)
}

// A waiter receives the outcome of its own wake-up, or of its neighbour's earlier one.
func TestWaitersAtOnce(t *testing.T) {
	w := NewWaiters()
	check.Together(400, func(i int) {
		id := fmt.Sprint("order-", i%20)
		outcome, leave := w.Wait(id)
		defer leave()
		if i < 200 { // the others leave at once
			w.Wake(id, model.Outcome{Verdict: model.Accepted})
			check.Same(t, "outcome", (<-outcome).Verdict, model.Accepted)
		}
	})
	check.Same(t, "ids with waiters", w.waited(), 0)
}

// waited returns the number of ids that somebody waits for.
func (w *Waiters) waited() (n int) {
	for i := range w.shards {
		s := &w.shards[i]
		s.mu.Lock()
		n += len(s.byID)
		s.mu.Unlock()
	}
	return n
}
