package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/internal/observe"
	"flashsale/model"
	"flashsale/test/kit/check"
)

// errTaken means that another instance has locked the orders, which is no error of the store.
var errTaken = errors.New("taken")

// fakeExpiry is a database with overdue orders, and records what its expirer does.
type fakeExpiry struct {
	due      map[string]int            // by sale
	err      error                     // of each look
	before   func(saleID string) error // of an expiry: may block, may fail
	ahead    time.Duration             // how far the database's clock is ahead of the expirer's
	wake     chan struct{}
	looks    int
	tries    map[string]int
	grace    time.Duration
	step     model.ClockStep
	logged   []string
	released map[string]int // units by sale
	emptied  int
	violated int
}

func (f *fakeExpiry) Now(context.Context) (time.Time, error) {
	defer locked()()
	return time.Now().Add(f.ahead), f.err
}

func (f *fakeExpiry) Overdue(
	_ context.Context, grace time.Duration, step model.ClockStep, limit int, except []string,
) (map[string][]string, error) {
	defer locked()()
	f.looks++
	f.grace, f.step = grace, step
	bySale := map[string][]string{}
	for _, sale := range slices.Sorted(maps.Keys(f.due)) {
		if n := min(limit, f.due[sale]); n > 0 && !slices.Contains(except, sale) {
			bySale[sale] = make([]string, n)
			limit -= n
		}
	}
	return bySale, f.err
}

func (f *fakeExpiry) Expire(_ context.Context, saleID string, orderIDs []string) ([]model.Release, error) {
	with(func() { f.tries[saleID]++ })
	if f.before != nil {
		if err := f.before(saleID); errors.Is(err, errTaken) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
	}
	with(func() { f.due[saleID] -= len(orderIDs) })
	return make([]model.Release, len(orderIDs)), nil
}

func (f *fakeExpiry) Log(_ context.Context, actor, action, subject, _ string) error {
	defer locked()()
	f.logged = append(f.logged, actor+" "+action+" "+subject)
	return nil
}

func (f *fakeExpiry) hear(_ context.Context, saleID string, list []model.Release) {
	defer locked()()
	f.released[saleID] += len(list)
}

// testExpirer runs a test beside the expirer of a database.
func testExpirer(t *testing.T, f *fakeExpiry, test func(t *testing.T, log *check.Log)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		log := &check.Log{}
		f.tries, f.released, f.wake = map[string]int{}, map[string]int{}, make(chan struct{})
		e := &Expirer{
			Store: f, Grace: time.Minute, Wake: f.wake, Now: time.Now, Log: slog.New(log), Released: f.hear,
			Observe: observe.All{
				noted{observe.NothingOverdue, func(observe.Event) { with(func() { f.emptied++ }) }},
				noted{observe.Violated, func(observe.Event) { with(func() { f.violated++ }) }},
			},
		}
		during(t, e.Run, func() { test(t, log) })
	})
}

// The expirer looks again as long as it finds full batches.
func TestExpirer(t *testing.T) {
	two := map[string]int{saleA: expireBatch, saleB: 1}
	three := map[string]int{saleA: 100, saleB: expireBatch - 100, saleC: 1}
	type row struct {
		due   map[string]int
		looks int
	}
	check.Each(t, map[string]row{
		"nothing due":               {map[string]int{}, 1},
		"some due":                  {map[string]int{saleA: 3}, 1},
		"a full batch":              {two, 2},
		"a full batch of two sales": {three, 2},
	}, func(t *testing.T, tc row) {
		f := &fakeExpiry{due: maps.Clone(tc.due)}
		testExpirer(t, f, func(t *testing.T, log *check.Log) {
			check.Same(t, "the released units", f.released, tc.due)
			check.Same(t, "the looks", f.looks, tc.looks)
			check.Same(t, "the grace", f.grace, time.Minute)
			check.Same(t, "how often no order was left", f.emptied, 1)
			check.Same(t, "the lines about a failure", log.Count("expirer fails"), 0)
		})
	})
}

// The expirer goes on after a failure, and can be woken between its periods.
func TestExpirerIsWoken(t *testing.T) {
	f := &fakeExpiry{due: map[string]int{saleA: 2}, err: errAway}
	testExpirer(t, f, func(t *testing.T, log *check.Log) {
		pass(2 * expirePeriod)
		check.Same(t, "the lines about the failure", log.Count("expirer fails"), 1)
		check.Same(t, "how often no order was left", f.emptied, 0)
		with(func() { f.err = nil })
		pass(expirePeriod)
		check.Same(t, "the released units", f.released[saleA], 2)
		pass(expirePeriod / 2)
		with(func() { f.due[saleA] = 1 })
		f.wake <- struct{}{}
		synctest.Wait()
		check.Same(t, "the released units after the wake-up", f.released[saleA], 3)
	})
}

// Orders made before a step forward of the database's clock keep their time to pay. A step back only gives them more.
func TestHole52_ClockStepsForward(t *testing.T) {
	f := &fakeExpiry{}
	testExpirer(t, f, func(t *testing.T, _ *check.Log) {
		for _, tc := range []struct{ ahead, by time.Duration }{
			{0, 0},
			{clockStep, 0},
			{clockStep + time.Hour, time.Hour},
			{time.Minute, time.Hour},
			{2 * time.Minute, time.Hour + time.Minute},
		} {
			with(func() { f.ahead = tc.ahead })
			before := time.Now()
			pass(3 * expirePeriod)
			check.Same(t, fmt.Sprint("the step when the clock is ahead by ", tc.ahead), f.step.By, tc.by)
			if tc.ahead > time.Hour && (f.step.At.Before(before) || f.step.At.After(before.Add(tc.ahead))) {
				t.Errorf("orders until %s were made before the step at %s", f.step.At, before)
			}
		}
	})
}

// A sale whose orders can't expire, and has more of them than a batch, does not delay other sales. The failure is logged
// once, and the orders expire as soon as they can.
func TestHole50_SaleThatCantExpireLeavesRoom(t *testing.T) {
	tries, looks := 0, 0
	type row struct {
		fails    func() error
		logged   int
		violated int
	}
	check.Each(t, map[string]row{
		"its books are wrong, and another instance tries as well": {func() error {
			if tries++; tries == 2 {
				return errTaken
			}
			return model.ErrBroken
		}, 1, 1},
		"another instance has locked its orders": {func() error { return errTaken }, 0, 0},
		"its row is locked":                      {func() error { time.Sleep(expireTimeout); return errAway }, 1, 0}, // of the bubble's clock
		"its books are wrong":                    {func() error { return fmt.Errorf("wrapped: %w", model.ErrBroken) }, 1, 1},
		"its transactions fail for now":          {func() error { return errAway }, 1, 0},
		"the database is away, then its books are wrong": {func() error {
			if looks++; looks == 1 {
				return errAway
			}
			return model.ErrBroken
		}, 2, 1},
	}, func(t *testing.T, tc row) {
		var free atomic.Bool
		f := &fakeExpiry{due: map[string]int{saleA: 2 * expireBatch}}
		f.before = func(saleID string) error {
			if saleID == saleA && !free.Load() {
				return tc.fails()
			}
			return nil
		}
		testExpirer(t, f, func(t *testing.T, log *check.Log) {
			for i := range 20 {
				with(func() { f.due[saleB]++ })
				pass(2 * expirePeriod)
				check.Same(t, "the released units of the other sale", f.released[saleB], i+1)
			}
			check.Same(t, "the lines about the failure", log.Count("the orders of a sale can't expire"), tc.logged)
			check.Same(t, "how often no order was left", f.emptied, 0)
			check.Same(t, "the violations", f.violated, tc.violated)
			check.Same(t, "the violations in the database's log", len(f.logged), tc.violated)
			if n := f.tries[saleA]; n < 3 || tc.logged > 0 && n > 8 {
				t.Errorf("tried %d times in 20 s", n)
			}
			free.Store(true)
			pass(expireTimeout + expireRestMost + expirePeriod)
			check.Same(t, "the released units of the sale", f.released[saleA], 2*expireBatch)
			check.Same(t, "the lines about the end of the failure", log.Count("expire again"), min(tc.logged, 1))
			if f.emptied == 0 {
				t.Error("orders are left")
			}
		})
	})
}

// If another instance expires the orders that failed here, the failure has ended, and the next one is told again.
func TestAnotherInstanceExpires(t *testing.T) {
	f := &fakeExpiry{due: map[string]int{saleA: 1}, before: func(string) error { return errAway }}
	testExpirer(t, f, func(t *testing.T, log *check.Log) {
		for times := 1; times <= 2; times++ {
			pass(expireRestMost + 2*expirePeriod)
			check.Same(t, "the lines about a failure", log.Count("the orders of a sale can't expire"), times)
			with(func() { f.due[saleA] = 0 })
			pass(expireRestMost + 2*expirePeriod)
			check.Same(t, "the lines about its end", log.Count("expire again"), times)
			with(func() { f.due[saleA] = 1 })
		}
	})
}
