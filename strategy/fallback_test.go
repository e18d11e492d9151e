package strategy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/model"
	"flashsale/test/kit/check"
)

var errNoReply = errors.New("the reply was lost")

// fakeDatabase gives every attempt the same verdict, and records the batches that it gets.
type fakeDatabase struct {
	Database // the methods that the fallback does not call
	before   func(ctx context.Context) error
	verdict  model.Verdict // empty: accepted

	mu      sync.Mutex
	batches map[string][][]string // idempotency keys by sale
}

func (d *fakeDatabase) Deduct(ctx context.Context, saleID string, attempts []model.Attempt) ([]model.Outcome, error) {
	keys, outcomes := make([]string, len(attempts)), make([]model.Outcome, len(attempts))
	for i, a := range attempts {
		keys[i], outcomes[i] = a.IdempotencyKey, model.Outcome{Verdict: d.verdict}
		if d.verdict == "" {
			order := &model.Order{ID: a.ID, UserID: a.UserID, Status: model.OrderPending}
			outcomes[i] = model.Outcome{Verdict: model.Accepted, Order: order}
		}
	}
	d.mu.Lock()
	if d.batches == nil {
		d.batches = map[string][][]string{}
	}
	d.batches[saleID] = append(d.batches[saleID], keys)
	d.mu.Unlock()
	if d.before != nil {
		if err := d.before(ctx); err != nil {
			return nil, err
		}
	}
	return outcomes, nil
}

func (d *fakeDatabase) of(saleID string) [][]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.batches[saleID])
}

// fakeGate answers as the test says.
type fakeGate struct {
	admit func() (model.Outcome, error)
}

func (g fakeGate) Admit(_ context.Context, attempts []model.Attempt) []model.Admission {
	answers := make([]model.Admission, len(attempts))
	for i := range attempts {
		answers[i].Outcome, answers[i].Err = g.admit()
	}
	return answers
}

func (fakeGate) Peek(_ context.Context, gates ...model.GateRef) ([]model.GateState, error) {
	return slices.Repeat([]model.GateState{{Exists: true, Open: true, Left: 100}}, len(gates)), nil
}

func (fakeGate) Batch(context.Context, model.Attempt) string { return "" }

func (fakeGate) Node(context.Context, model.Attempt) string { return "" }

// gateThat returns a gate that gives every attempt the same answer.
func gateThat(v model.Verdict, err error) fakeGate {
	return fakeGate{admit: func() (model.Outcome, error) { return model.Outcome{Verdict: v}, err }}
}

var noGate = gateThat(model.NoGate, nil)

// fakeControl records for which sales a gate was demanded.
type fakeControl struct {
	mu      sync.Mutex
	need    []string
	verdict model.Verdict
}

func (c *fakeControl) Judge(string) model.Verdict { return c.verdict }

func (c *fakeControl) NeedGate(saleID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.need = append(c.need, saleID)
}

func fakeNeeds(gate Gate, db Database) (Needs, *fakeControl) {
	control := &fakeControl{verdict: model.Accepted}
	return Needs{
		Gate: gate, Database: db, Control: control, Log: discard, Now: time.Now,
		Settler: settlerOf{}, Lock: make(chan struct{}, 1),
	}, control
}

// fakeAttempt returns a purchase of one unit of a fake sale.
func fakeAttempt(sale, user, key string) model.Attempt {
	return attemptUnder(model.Offer{Sale: model.Sale{ID: sale}}, user, 1, key)
}

// result is what Deduct returned.
type result struct {
	got model.Outcome
	err error
}

// call runs Deduct in another goroutine.
func call(ctx context.Context, s Strategy, a model.Attempt) <-chan result {
	done := make(chan result, 1)
	go func() {
		got, err := s.Deduct(ctx, a)
		done <- result{got, err}
	}()
	return done
}

func wantOrder(t *testing.T, user string, r result) {
	t.Helper()
	if r.err != nil || r.got.Verdict != model.Accepted || r.got.Order == nil || r.got.Order.UserID != user {
		t.Errorf("%s got %+v, %v", user, r.got, r.err)
	}
}

func wantFailed(t *testing.T, r result, want error) {
	t.Helper()
	if !errors.Is(r.err, want) || r.got != (model.Outcome{}) {
		t.Errorf("%+v, %v, want the error %v", r.got, r.err, want)
	}
}

// departure is a way in which a caller leaves after a second, with the error that it gets. It needs synctest.
type departure struct {
	leave func(ctx context.Context) (context.Context, context.CancelFunc)
	want  error
}

var departures = map[string]departure{
	"the deadline passes": {func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, time.Second)
	}, context.DeadlineExceeded},
	"the client leaves": {func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(time.Second, cancel)
		return ctx, cancel
	}, context.Canceled},
}

// The tests of internal/batch show how calls become batches. The tests here show that the fallback uses its limits.

// TestFallbackGathers: attempts on a sale that come while a transaction runs are in the next one, in their order. At most
// fallbackLimits.Queue wait, and another sale does not wait for them.
func TestFallbackGathers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		db := &fakeDatabase{before: func(context.Context) error { <-release; return nil }}
		n, _ := fakeNeeds(noGate, db)
		h := NewHybrid(n)
		var calls []<-chan result
		var keys []string
		for i := range 1 + fallbackLimits.Queue { // one is in the database, the others wait
			keys = append(keys, fmt.Sprint("key-", i))
			calls = append(calls, call(t.Context(), h, fakeAttempt("full", "u", keys[i])))
			synctest.Wait()
		}
		wantFailed(t, <-call(t.Context(), h, fakeAttempt("full", "u", "one too many")), model.ErrUnavailable)
		calls = append(calls, call(t.Context(), h, fakeAttempt("other", "u", "elsewhere")))
		synctest.Wait()
		check.Same(t, "batches of another sale, which do not wait", len(db.of("other")), 1)
		close(release)
		for _, c := range calls {
			wantOrder(t, "u", <-c)
		}
		wantOrder(t, "u", <-call(t.Context(), h, fakeAttempt("full", "u", "again")))
		h.Close()
		want := slices.Concat([][]string{keys[:1]}, slices.Collect(slices.Chunk(keys[1:], fallbackLimits.Batch)), [][]string{{"again"}})
		check.Same(t, "batches", db.of("full"), want)
	})
}

// TestCloseCancels the transactions that take longer than closeGrace, and no more attempts are taken.
func TestCloseCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _ := fakeNeeds(noGate, &fakeDatabase{before: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }})
		h := NewHybrid(n)
		first := call(t.Context(), h, fakeAttempt("sale", "u", "1"))
		synctest.Wait()
		second := call(t.Context(), h, fakeAttempt("sale", "u", "2"))
		synctest.Wait()
		start := time.Now()
		h.Close()
		check.Same(t, "duration of the close", time.Since(start), closeGrace)
		for _, c := range []<-chan result{first, second, call(t.Context(), h, fakeAttempt("sale", "u", "late"))} {
			wantFailed(t, <-c, model.ErrUnavailable)
		}
		h.Close() // once more changes nothing
	})
}

// TestTries shows how often a transaction is tried. An error of the last try makes the attempt unavailable.
func TestTries(t *testing.T) {
	fallback, optimistic := func(n Needs) Strategy { return NewHybrid(n) }, func(n Needs) Strategy { return &Optimistic{needs: n} }
	times := func(failures int, err error) func(context.Context, int) error {
		return func(_ context.Context, try int) error {
			if try <= failures {
				return fmt.Errorf("wrapped: %w", err)
			}
			return nil
		}
	}
	lost := func(races int) func(context.Context, int) error { return times(races, model.ErrLostRace) }
	silent := func(ctx context.Context, try int) error {
		if try == 1 {
			<-ctx.Done()
		}
		return ctx.Err()
	}
	type test struct {
		strategy func(Needs) Strategy
		fail     func(ctx context.Context, try int) error
		tries    int
		sold     bool
		takes    time.Duration // 0: a bounded time
	}
	check.EachInBubble(t, map[string]test{
		"fallback, the last race is won":         {fallback, lost(batchTries - 1), batchTries, true, 0},
		"fallback, every race is lost":           {fallback, lost(batchTries), batchTries, false, 0},
		"fallback, an error":                     {fallback, times(1, errNoReply), 1, false, 0},
		"fallback, a broken connection":          {fallback, times(1, model.ErrUnavailable), 2, true, 0},
		"fallback, two broken connections":       {fallback, times(2, model.ErrUnavailable), 2, false, 0},
		"fallback, the database does not answer": {fallback, silent, 1, false, fallbackLimits.Time},
		"optimistic, no race is lost":            {optimistic, lost(0), 1, true, 0},
		"optimistic, the last race is won":       {optimistic, lost(optimisticTries - 1), optimisticTries, true, 0},
		"optimistic, every race is lost":         {optimistic, lost(optimisticTries), optimisticTries, false, 0},
	}, func(t *testing.T, tc test) {
		tries, db := 0, &fakeDatabase{}
		db.before = func(ctx context.Context) error {
			tries++
			return tc.fail(ctx, tries)
		}
		n, _ := fakeNeeds(noGate, db)
		s := tc.strategy(n)
		start := time.Now()
		r := <-call(t.Context(), s, fakeAttempt("sale", "u", "1"))
		if tc.sold {
			wantOrder(t, "u", r)
		} else {
			wantFailed(t, r, model.ErrUnavailable)
		}
		check.Same(t, "tries", tries, tc.tries)
		most := max(tc.takes, time.Duration(tc.tries)*2*optimisticMaxPause)
		if took := time.Since(start); took < tc.takes || took > most {
			t.Errorf("it took %s, want %s to %s", took, tc.takes, most)
		}
		wantOrder(t, "u", <-call(t.Context(), s, fakeAttempt("sale", "u", "2"))) // the failures are over
		s.Close()
	})
}

func TestRaceEndsWithItsCaller(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	db := &fakeDatabase{before: func(context.Context) error {
		leave()
		return model.ErrLostRace
	}}
	n, _ := fakeNeeds(noGate, db)
	_, err := (&Optimistic{needs: n}).Deduct(ctx, fakeAttempt("sale", "u", "1"))
	check.Error(t, "deduct", err, context.Canceled)
	check.Same(t, "tries", len(db.of("sale")), 1)
}
