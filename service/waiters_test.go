package service

import (
	"testing"
	"testing/synctest"
	"time"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// waiting is a buyer in a bubble, and what it was told.
type waiting struct {
	*model.Waiter
	outcome model.Outcome
	err     error
	after   time.Duration // 0: it was told nothing yet
}

func wait(w *Waiters, orderID string, wait, limit time.Duration) *waiting {
	b := &waiting{Waiter: w.Waiter(nil, orderID, wait, limit)}
	began := time.Now()
	go func() {
		b.outcome, b.err = b.Told()
		b.after = time.Since(began)
	}()
	return b
}

func entryOf(b *waiting, orderID string) model.Entry {
	return model.Entry{Attempt: model.Attempt{ID: orderID, Waiter: b.Waiter}}
}

// A wait ends after its time from the admission on, and at its limit in any case.
func TestWaitsEnd(t *testing.T) {
	const ms, never = time.Millisecond, time.Duration(-1)
	type test struct {
		wait, admitted, settled, closed time.Duration
		after                           time.Duration
		want                            model.Verdict // empty: an error
	}
	check.EachInBubble(t, map[string]test{
		"never admitted":                   {wait: 800 * ms, admitted: never, settled: never, closed: never, after: 2000 * ms},
		"never admitted, queued is enough": {admitted: never, settled: never, closed: never, after: 2000 * ms},
		"never settled":                    {wait: 800 * ms, admitted: 5 * ms, settled: never, closed: never, after: 810 * ms, want: model.Queued},
		"admitted late":                    {wait: 800 * ms, admitted: 1000 * ms, settled: never, closed: never, after: 1800 * ms, want: model.Queued},
		"admitted later":                   {wait: 800 * ms, admitted: 1500 * ms, settled: never, closed: never, after: 2000 * ms, want: model.Queued},
		"settled":                          {wait: 800 * ms, admitted: 5 * ms, settled: 700 * ms, closed: never, after: 700 * ms, want: model.Accepted},
		"settled late":                     {wait: 800 * ms, admitted: 5 * ms, settled: 811 * ms, closed: never, after: 810 * ms, want: model.Queued},
		"queued is enough":                 {admitted: 5 * ms, settled: 7 * ms, closed: never, after: 5 * ms, want: model.Queued},
		"closed, admitted":                 {wait: 800 * ms, admitted: 5 * ms, settled: never, closed: 100 * ms, after: 100 * ms, want: model.Queued},
		"closed, then admitted":            {wait: 800 * ms, admitted: 150 * ms, settled: never, closed: 100 * ms, after: 150 * ms, want: model.Queued},
		"closed, never admitted":           {wait: 800 * ms, admitted: never, settled: never, closed: 100 * ms, after: 2000 * ms},
	}, func(t *testing.T, tc test) {
		w := NewWaiters(time.Now)
		b := wait(w, "order", tc.wait, 2000*ms)
		for _, step := range []struct {
			at time.Duration
			do func()
		}{
			{tc.admitted, func() { b.Admit(time.Now()) }},
			{tc.settled, func() { b.Tell(model.Outcome{Verdict: model.Accepted}, nil) }},
			{tc.closed, w.Close},
		} {
			if step.at != never {
				time.AfterFunc(step.at, step.do)
			}
		}
		time.Sleep(3 * time.Second)
		synctest.Wait() // so that what was told may be read
		check.Same(t, "after", b.after, tc.after)
		check.Same(t, "verdict", b.outcome.Verdict, tc.want)
		check.Same(t, "error", b.err != nil, tc.want == "")
		check.Same(t, "somebody to look at", len(w.due), 0)
	})
}

// Buyers whose entries this instance does not settle from its memory are woken by their orders' ids, and forgotten when their
// waits end.
func TestWaitersApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWaiters(time.Now)
		buyers := map[string]*waiting{}
		var entries []model.Entry
		for _, id := range []string{"settled", "elsewhere", "lost", "told before"} {
			buyers[id] = wait(w, id, time.Second, time.Second)
			buyers[id].Admit(time.Now())
			if id == "told before" {
				buyers[id].Tell(model.Outcome{Verdict: model.SoldOut}, nil)
			}
			entries = append(entries, entryOf(buyers[id], id))
		}
		w.Apart(append(entries, model.Entry{}))
		time.Sleep(100 * time.Millisecond)
		w.Wake(map[string]model.Outcome{"settled": {Verdict: model.Accepted}, "told before": {Verdict: model.Accepted}, "nobody's": {}})
		w.Look([]string{"elsewhere", "nobody's"})
		time.Sleep(2 * time.Second)
		synctest.Wait() // so that what was told may be read
		for id, want := range map[string]model.Verdict{
			"settled": model.Accepted, "elsewhere": model.Queued, "lost": model.Queued, "told before": model.SoldOut,
		} {
			check.Same(t, id, buyers[id].outcome.Verdict, want)
			check.Same(t, id+": at once", buyers[id].after < time.Second, id != "lost")
		}
		w.Apart(entries) // too late: nobody would forget them
		check.Same(t, "buyers who are remembered", len(w.apart)+len(w.due), 0)
	})
}

// A buyer repeats an attempt that was not admitted at first. The end of the first wait leaves the second alone.
func TestRepeatOutlivesTheFirstWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWaiters(time.Now)
		wait(w, "order", time.Second, time.Second)
		time.Sleep(time.Second / 2)
		again := wait(w, "order", time.Second, time.Second)
		again.Admit(time.Now())
		w.Apart([]model.Entry{entryOf(again, "order")})
		time.Sleep(time.Second * 3 / 4)
		w.Wake(map[string]model.Outcome{"order": {Verdict: model.Accepted}})
		synctest.Wait()
		check.Same(t, "the repeat is woken", again.outcome.Verdict, model.Accepted)
	})
}

// After the close, the admission is every buyer's answer.
func TestWaitAfterTheClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWaiters(time.Now)
		w.Close()
		b := wait(w, "order", time.Second, 2*time.Second)
		time.Sleep(time.Millisecond)
		b.Admit(time.Now())
		time.Sleep(3 * time.Second)
		synctest.Wait() // so that what was told may be read
		check.Same(t, "told", []any{b.outcome.Verdict, b.err, b.after}, []any{model.Queued, nil, time.Millisecond})
	})
}

// A buyer gets one answer, whoever is first.
func TestWaitersAtOnce(t *testing.T) {
	w := NewWaiters(time.Now)
	check.Together(400, func(i int) {
		gone := make(chan struct{})
		b := w.Waiter(gone, "order", time.Minute, time.Minute)
		go b.Admit(time.Now())
		go b.Tell(model.Outcome{Verdict: model.Accepted}, nil)
		go b.GiveUp(model.ErrUnavailable)
		if i%2 == 0 {
			close(gone)
		}
		if outcome, err := b.Told(); err == nil && outcome.Verdict != model.Accepted && outcome.Verdict != model.Queued {
			t.Errorf("%+v", outcome)
		}
	})
}
