package strategy

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/model"
	"flashsale/service"
)

// TestMutexIsExactInOneProcess: never are two between read and write, so nothing is sold twice.
func TestMutexIsExactInOneProcess(t *testing.T) {
	eachPair(t, func(s *stores) {
		e := s.engine("mutex")
		const quota, buyers = 10, 30
		o := e.sale(quota, 1)
		var between, accepted atomic.Int64
		e.strategy.(*Mutex).naive.between = func() {
			defer between.Add(-1)
			if n := between.Add(1); n != 1 {
				e.Errorf("%d are between read and write", n)
			}
			e.readOnce() // time enough for another
		}
		crowd(buyers, func(i int) {
			switch got, err := e.strategy.Deduct(e.Context(), e.attempt(o, fmt.Sprint("u-", i), 1)); {
			case err == nil && got.Verdict == model.Accepted:
				accepted.Add(1)
			case err != nil || got.Verdict != model.SoldOut:
				e.Errorf("%+v, %v", got, err)
			}
		})
		if books := e.books(o.ID); accepted.Load() != quota || books.Orders[model.OrderPending] != quota || books.Stock.Available != 0 {
			e.Errorf("%d heard yes; the orders are %v, the stock %+v", accepted.Load(), books.Orders, books.Stock)
		}
	})
}

// readOnce asks the database for something, as others may do at any time.
func (s *stores) readOnce() {
	if _, err := s.db.Now(s.Context()); err != nil {
		s.Error(err)
	}
}

// TestMutexOversellsWithTwoInstances: the lock of one keeps nobody of the other from coming in between.
func TestMutexOversellsWithTwoInstances(t *testing.T) {
	eachPair(t, func(s *stores) {
		here, there := s.engine("mutex"), s.engine("mutex")
		o := here.sale(1, 1)
		var second model.Outcome
		here.strategy.(*Mutex).naive.between = func() { second = there.deduct(attempt(o, "second", 1, "key")) }
		first := here.deduct(attempt(o, "first", 1, "key"))
		for user, got := range map[string]model.Outcome{"first": first, "second": second} {
			wantOrder(s.T, user, outcomeOf{got: got})
		}
		s.wantSoldTwice(o)
	})
}

// TestMutexWithCancels: buyers who come and go. What else writes stock rows waits for the same lock, so that no unit
// that comes back is written over.
func TestMutexWithCancels(t *testing.T) {
	eachPair(t, func(s *stores) {
		e := s.engine("mutex")
		e.strategy.(*Mutex).naive.between = e.readOnce // time enough for a cancel
		const quota, buyers = 6, 40
		o := e.sale(quota, 1)
		var kept atomic.Int64
		crowd(buyers, func(i int) {
			a := e.attempt(o, fmt.Sprint("u-", i), 1)
			switch got, err := e.strategy.Deduct(e.Context(), a); {
			case err != nil:
				e.Error(err)
			case got.Verdict != model.Accepted:
			case i%4 == 0:
				kept.Add(1)
			default:
				e.cancel(a)
			}
		})
		books := e.books(o.ID)
		if books.Orders[model.OrderPending] != kept.Load() || books.Stock.Available != quota-kept.Load() {
			e.Errorf("%d were kept; the orders are %v, the stock %+v", kept.Load(), books.Orders, books.Stock)
		}
	})
}

// TestMutexNeedsTheOthersInItsLine: a cancel that does not wait for the lock loses the unit that it gives back.
func TestMutexNeedsTheOthersInItsLine(t *testing.T) {
	eachPair(t, func(s *stores) {
		e := s.engine("mutex")
		e.orders = &service.Orders{Desk: s.db, Ledger: s.db, IDs: orderIDs, Catalog: e.catalog, Gate: e.gate, Gates: e.gates}
		o := e.sale(2, 1)
		owned := e.buy(o, "owner", 1)
		e.strategy.(*Mutex).naive.between = func() { e.cancel(owned) }
		e.buy(o, "buyer", 1)
		if books, violations := e.violations(o); books.Stock.Available != 0 || len(violations) == 0 {
			e.Errorf("the stock is %+v, the books show %q", books.Stock, violations)
		}
	})
}

// fakeTable is a database that naive can read and write, and counts how often it does.
type fakeTable struct {
	Database
	looks, writes int
}

func (d *fakeTable) Look(context.Context, model.Attempt) (model.Look, error) {
	d.looks++
	return model.Look{}, nil
}

func (d *fakeTable) Overwrite(_ context.Context, a model.Attempt, _ model.Look) (model.Outcome, error) {
	d.writes++
	return model.Outcome{Verdict: model.Accepted, Order: &model.Order{ID: a.ID, UserID: a.UserID}}, nil
}

// TestWhoLeavesTheLineOfMutex gets its context's error and takes nothing, and the next one gets its turn.
func TestWhoLeavesTheLineOfMutex(t *testing.T) {
	for name, tc := range map[string]struct {
		leave func(ctx context.Context) (context.Context, context.CancelFunc)
		want  error
	}{
		"its time is over": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Second)
		}, context.DeadlineExceeded},
		"its client left": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second, cancel)
			return ctx, cancel
		}, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := &fakeTable{}
				n, _, _ := fakeNeeds(noGate, db)
				n.Lock = make(chan struct{}, 1)
				m := NewMutex(n)
				n.Lock <- struct{}{} // somebody holds it

				ctx, cancel := tc.leave(t.Context())
				defer cancel()
				leaver := call(ctx, m, fakeAttempt("sale", "leaves", "1"))
				next := call(t.Context(), m, fakeAttempt("sale", "stays", "2"))
				start := time.Now()
				if r := <-leaver; !errors.Is(r.err, tc.want) || r.got != (model.Outcome{}) || time.Since(start) != time.Second {
					t.Errorf("who left got %+v, %v after %s, want %v", r.got, r.err, time.Since(start), tc.want)
				}
				synctest.Wait()
				if db.looks != 0 || db.writes != 0 {
					t.Errorf("%d reads and %d writes while somebody else had the lock", db.looks, db.writes)
				}
				<-n.Lock
				wantOrder(t, "stays", <-next)
				if db.looks != 1 || db.writes != 1 || len(n.Lock) != 0 {
					t.Errorf("%d reads, %d writes, %d locks held; want 1, 1, 0", db.looks, db.writes, len(n.Lock))
				}
			})
		})
	}
}

// TestMutexGivesItsLockBack, also when the database fails.
func TestMutexGivesItsLockBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _, _ := fakeNeeds(noGate, brokenTable{})
		n.Lock = make(chan struct{}, 1)
		m := NewMutex(n)
		for range 2 {
			if got, err := m.Deduct(t.Context(), fakeAttempt("sale", "u", "1")); !errors.Is(err, errNoReply) || got != (model.Outcome{}) {
				t.Errorf("%+v, %v", got, err)
			}
		}
	})
}

// brokenTable can't be read.
type brokenTable struct{ Database }

func (brokenTable) Look(context.Context, model.Attempt) (model.Look, error) {
	return model.Look{}, errNoReply
}
