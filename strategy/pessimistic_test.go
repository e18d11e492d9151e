package strategy

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/model"
)

// holdRow begins another transaction that holds a sale's stock row, as an operator's console might.
func (s *stores) holdRow(o model.Offer) *sql.Tx {
	s.Helper()
	tx, err := s.raw.BeginTx(s.Context(), nil)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = tx.Rollback() })
	var left int64
	if err := tx.QueryRowContext(s.Context(), "SELECT available FROM stock WHERE sale_id = ? FOR UPDATE", o.ID).Scan(&left); err != nil {
		s.Fatal(err)
	}
	return tx
}

// waitsForRow reports whether a connection stands before a stock row.
func (s *stores) waitsForRow() (waits bool) {
	s.Helper()
	err := s.raw.QueryRowContext(s.Context(), `SELECT COUNT(*) > 0 FROM information_schema.processlist
		WHERE db = DATABASE() AND info LIKE 'SELECT available FROM stock%FOR UPDATE'`).Scan(&waits)
	if err != nil {
		s.Fatal(err)
	}
	return waits
}

// TestPessimisticWaitsForTheRow, and judges by what it finds there when its turn comes.
func TestPessimisticWaitsForTheRow(t *testing.T) {
	s := withServer(t, mariadb(t))
	e := s.engine("pessimistic")
	for name, tc := range map[string]struct {
		meanwhile string // of the stock row
		want      model.Verdict
	}{
		"as it was":             {"available = available", model.Accepted},
		"the last unit is gone": {"available = 0, quota = 0", model.SoldOut},
		"a unit came":           {"available = 2, quota = 2", model.Accepted},
	} {
		t.Run(name, func(t *testing.T) {
			o := e.sale(1, 1)
			tx := e.holdRow(o)
			waiting := call(t.Context(), e.strategy, e.attempt(o, "buyer", 1))
			eventually(t, "it waits", e.waitsForRow)
			if _, err := tx.ExecContext(t.Context(), "UPDATE stock SET "+tc.meanwhile+" WHERE sale_id = ?", o.ID); err != nil {
				t.Fatal(err)
			}
			select {
			case r := <-waiting:
				t.Fatalf("it did not wait: %+v, %v", r.got, r.err)
			default:
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			r := <-waiting
			if tc.want == model.Accepted {
				wantOrder(t, "buyer", r)
			} else if r.err != nil || r.got != (model.Outcome{Verdict: tc.want}) {
				t.Errorf("%+v, %v, want %s", r.got, r.err, tc.want)
			}
			if books := e.books(o.ID); books.BuyersUnits != books.Stock.Held || books.Stock.Held != books.Orders[model.OrderPending] {
				t.Errorf("the books are %+v", books)
			}
		})
	}
}

// TestPessimisticWaitsNoLongerThanItsCaller: the row is not released in time.
func TestPessimisticWaitsNoLongerThanItsCaller(t *testing.T) {
	s := withServer(t, mariadb(t))
	e := s.engine("pessimistic")
	const patient = 300 * time.Millisecond
	for name, tc := range map[string]struct {
		context func(ctx context.Context) (context.Context, context.CancelFunc)
		leaves  bool // when it is seen waiting
		want    error
	}{
		"its deadline": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, patient)
		}, false, context.DeadlineExceeded},
		"its client left": {context.WithCancel, true, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			o := e.sale(1, 1)
			tx := e.holdRow(o)
			ctx, leave := tc.context(t.Context())
			defer leave()
			a := e.attempt(o, "buyer", 1)
			waiting := call(ctx, e.strategy, a)
			if tc.leaves {
				eventually(t, "it waits", e.waitsForRow)
				leave()
			}
			if r := <-waiting; !errors.Is(r.err, tc.want) || r.got != (model.Outcome{}) {
				t.Errorf("%+v, %v, want %v", r.got, r.err, tc.want)
			}
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			if books := e.books(o.ID); books.Stock.Available != 1 || books.BuyersUnits != 0 || books.Orders[model.OrderPending] != 0 {
				t.Errorf("the books are %+v", books)
			}
			wantOrder(t, "buyer", <-call(t.Context(), e.strategy, a)) // it may try again
		})
	}
}

// lockedRow is a database whose answer to DeductLocked is up to the test.
type lockedRow struct {
	Database
	answer func(ctx context.Context) (model.Outcome, error)
}

func (d lockedRow) DeductLocked(ctx context.Context, _ model.Attempt) (model.Outcome, error) {
	return d.answer(ctx)
}

// TestPessimisticTimesOut: who waits for its turn too long may try again, which is another thing than having left.
func TestPessimisticTimesOut(t *testing.T) {
	never := func(ctx context.Context) (model.Outcome, error) {
		<-ctx.Done()
		return model.Outcome{}, fmt.Errorf("deduct on sale: %w", ctx.Err())
	}
	const longer = 2 * pessimisticTimeout
	patient := func(d time.Duration) func(context.Context) (context.Context, context.CancelFunc) {
		return func(ctx context.Context) (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, d) }
	}
	leaves := func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(time.Second, cancel)
		return ctx, cancel
	}
	for name, tc := range map[string]struct {
		answer      func(ctx context.Context) (model.Outcome, error)
		context     func(context.Context) (context.Context, context.CancelFunc)
		want        error
		unavailable bool
		after       time.Duration
	}{
		"nobody leaves":           {never, context.WithCancel, context.DeadlineExceeded, true, pessimisticTimeout},
		"a caller who has longer": {never, patient(longer), context.DeadlineExceeded, true, pessimisticTimeout},
		"a caller who has less":   {never, patient(time.Second), context.DeadlineExceeded, false, time.Second},
		"a caller who leaves":     {never, leaves, context.Canceled, false, time.Second},
		"another error": {func(context.Context) (model.Outcome, error) {
			return model.Outcome{}, errNoReply
		}, context.WithCancel, errNoReply, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, _, _ := fakeNeeds(noGate, lockedRow{answer: tc.answer})
				ctx, cancel := tc.context(t.Context())
				defer cancel()
				start := time.Now()
				got, err := NewPessimistic(n).Deduct(ctx, fakeAttempt("sale", "u", "1"))
				if !errors.Is(err, tc.want) || errors.Is(err, model.ErrUnavailable) != tc.unavailable || got != (model.Outcome{}) {
					t.Errorf("%+v, %v; want %v, unavailable: %t", got, err, tc.want, tc.unavailable)
				}
				if after := time.Since(start); after != tc.after {
					t.Errorf("after %s, want %s", after, tc.after)
				}
			})
		})
	}
}

// TestPessimisticRefusalChangesNothing: the transaction had written the order and the buyer before it found too few.
func TestPessimisticRefusalChangesNothing(t *testing.T) {
	eachPair(t, func(s *stores) {
		e := s.engine("pessimistic")
		o := e.sale(3, 3)
		e.buy(o, "first", 2)
		before := e.books(o.ID)
		a := e.attempt(o, "buyer", 2)
		for range 2 {
			if got := e.deduct(a); got != (model.Outcome{Verdict: model.SoldOut}) {
				e.Errorf("two of one: %+v", got)
			}
		}
		if after := e.books(o.ID); fmt.Sprint(after) != fmt.Sprint(before) {
			e.Errorf("the books were %+v and are %+v", before, after)
		}
		var rows int
		err := e.raw.QueryRowContext(e.Context(), "SELECT COUNT(*) FROM buyers WHERE sale_id = ? AND user_id = 'buyer'", o.ID).Scan(&rows)
		if err != nil || rows != 0 {
			e.Errorf("%d rows of a buyer who got nothing, %v", rows, err)
		}
		if got := e.deduct(e.attempt(o, "buyer", 1)); got.Verdict != model.Accepted {
			e.Errorf("one of one: %+v", got)
		}
	})
}

// TestPessimisticIsExactWithTwoInstances, which have nothing in common but the row.
func TestPessimisticIsExactWithTwoInstances(t *testing.T) {
	address := mariadb(t)
	e := withServer(t, address).engine("pessimistic")
	other, _, _ := fakeNeeds(noGate, newStores(t, address).db)
	instances := []Strategy{e.strategy, NewPessimistic(other)}
	const quota, buyers = 20, 60
	o := e.sale(quota, 1)
	var accepted [2]atomic.Int64
	crowd(buyers, func(i int) {
		switch got, err := instances[i%2].Deduct(t.Context(), e.attempt(o, fmt.Sprint("u-", i), 1)); {
		case err == nil && got.Verdict == model.Accepted:
			accepted[i%2].Add(1)
		case err != nil || got.Verdict != model.SoldOut:
			t.Errorf("%+v, %v", got, err)
		}
	})
	books, sold := e.books(o.ID), accepted[0].Load()+accepted[1].Load()
	if sold != quota || books.Orders[model.OrderPending] != quota || books.Stock.Available != 0 {
		t.Errorf("%d heard yes; the orders are %v, the stock %+v", sold, books.Orders, books.Stock)
	}
	t.Logf("%d from one, %d from the other", accepted[0].Load(), accepted[1].Load())
}
