package service

import (
	"fmt"
	"sync"
	"testing"

	"flashsale/model"
)

func TestWaiters(t *testing.T) {
	yes := model.Outcome{Verdict: model.Accepted, Order: &model.Order{ID: "a"}}
	w := NewWaiters()
	first, doneFirst := w.Wait("a")
	second, doneSecond := w.Wait("a") // the same request on a second connection
	other, doneOther := w.Wait("b")
	gone, doneGone := w.Wait("a")
	doneGone()
	doneGone() // twice is once

	w.WakeAll(map[string]model.Outcome{"a": yes, "nobody waits": {Verdict: model.SoldOut}})
	for name, c := range map[string]<-chan model.Outcome{"first": first, "second": second} {
		select {
		case got := <-c:
			if got != yes {
				t.Errorf("the %s heard %+v", name, got)
			}
		default:
			t.Errorf("the %s heard nothing", name)
		}
	}
	for name, c := range map[string]<-chan model.Outcome{"who left": gone, "who waits for another": other, "who has heard": first} {
		select {
		case got := <-c:
			t.Errorf("%s heard %+v", name, got)
		default:
		}
	}
	w.Wake("a", yes) // nobody is left: it must not block
	doneFirst()
	doneSecond()
	if w.waited() != 1 {
		t.Errorf("%d ids are waited for, want 1", w.waited())
	}
	doneOther()
	if w.waited() != 0 {
		t.Errorf("%d ids are left behind", w.waited())
	}
}

// TestWaitersAtOnce: whoever waits and is woken hears exactly one word, whoever leaves in time none.
func TestWaitersAtOnce(t *testing.T) {
	w := NewWaiters()
	var all sync.WaitGroup
	for i := range 200 {
		id := fmt.Sprint("order-", i%20)
		all.Go(func() {
			outcome, done := w.Wait(id)
			defer done()
			w.Wake(id, model.Outcome{Verdict: model.Accepted})
			if got := <-outcome; got.Verdict != model.Accepted { // its own wake-up, or an earlier one of a neighbour's
				t.Errorf("heard %+v", got)
			}
		})
		all.Go(func() {
			_, done := w.Wait(id)
			done()
		})
	}
	all.Wait()
	if w.waited() != 0 {
		t.Errorf("%d ids are left behind", w.waited())
	}
}

// waited counts the ids that somebody waits for.
func (w *Waiters) waited() (n int) {
	for i := range w.shards {
		s := &w.shards[i]
		s.mu.Lock()
		n += len(s.byID)
		s.mu.Unlock()
	}
	return n
}
