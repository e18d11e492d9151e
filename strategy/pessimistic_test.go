package strategy

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
)

// lockRow begins a transaction of another client that locks a sale's stock row.
func (s *stores) lockRow(o model.Offer) *sql.Tx {
	s.Helper()
	tx := check.Must(s.raw.BeginTx(s.Context(), nil))
	s.Cleanup(func() { _ = tx.Rollback() })
	var left int64
	check.Done(tx.QueryRowContext(s.Context(), "SELECT available FROM stock WHERE sale_id = ? FOR UPDATE", o.ID).Scan(&left))
	return tx
}

// awaitWaiter returns when a connection waits for the lock of a stock row.
func (s *stores) awaitWaiter() {
	s.Helper()
	check.Eventually(s, "a connection waits for the row", func() (waits bool) {
		check.Done(s.raw.QueryRowContext(s.Context(), `SELECT COUNT(*) > 0 FROM information_schema.processlist
			WHERE db = DATABASE() AND info LIKE 'SELECT terms, available%FROM stock%FOR UPDATE'`).Scan(&waits))
		return waits
	})
}

// The strategy waits for the locked stock row, and judges by the stock that it then reads.
func TestPessimisticWaitsForTheRow(t *testing.T) {
	e := open(t, kit.ServerStores(t)).engine("pessimistic")
	for name, tc := range map[string]struct {
		meanwhile string // of the stock row
		want      model.Verdict
	}{
		"unchanged":             {"available = available", model.Accepted},
		"the last unit is gone": {"available = 0, quota = 0", model.SoldOut},
		"a unit came":           {"available = 2, quota = 2", model.Accepted},
	} {
		t.Run(name, func(t *testing.T) {
			o := e.sale(1, 1)
			tx := e.lockRow(o)
			waiting := call(t.Context(), e.strategy, attempt(o, "buyer", 1))
			e.awaitWaiter()
			check.Must(tx.ExecContext(t.Context(), "UPDATE stock SET "+tc.meanwhile+" WHERE sale_id = ?", o.ID))
			check.Same(t, "answers before the commit", len(waiting), 0)
			check.Done(tx.Commit())
			r := <-waiting
			check.Same(t, "verdict", check.Must(r.got, r.err).Verdict, tc.want)
			sold := int64(0)
			if tc.want == model.Accepted {
				sold = 1
			}
			e.wantOrders(o, sold, 0, sold)
		})
	}
	t.Run("the caller leaves", func(t *testing.T) {
		o := e.sale(1, 1)
		tx := e.lockRow(o)
		ctx, leave := context.WithCancel(t.Context())
		a := attempt(o, "buyer", 1)
		waiting := call(ctx, e.strategy, a)
		e.awaitWaiter()
		leave()
		wantFailed(t, <-waiting, context.Canceled)
		check.Done(tx.Rollback())
		e.wantOrders(o, 0, 0, 0)
		wantOrder(t, "buyer", <-call(t.Context(), e.strategy, a))
	})
}

// lockedRow is a database whose DeductLocked the test writes.
type lockedRow struct {
	Database
	answer func(ctx context.Context) error
}

func (d lockedRow) DeductLocked(ctx context.Context, _ model.Attempt) (model.Outcome, error) {
	return model.Outcome{}, d.answer(ctx)
}

// TestPessimisticTimesOut: an attempt that waits longer than pessimisticTimeout may be tried again. A caller that leaves
// gets the error of its context.
func TestPessimisticTimesOut(t *testing.T) {
	never := func(ctx context.Context) error {
		<-ctx.Done()
		return fmt.Errorf("deduct: %w", ctx.Err())
	}
	patient := func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, 2*pessimisticTimeout)
	}
	type test struct {
		answer      func(ctx context.Context) error
		context     func(context.Context) (context.Context, context.CancelFunc)
		want        error
		unavailable bool
		after       time.Duration
	}
	check.EachInBubble(t, map[string]test{
		"no deadline":         {never, context.WithCancel, context.DeadlineExceeded, true, pessimisticTimeout},
		"a later deadline":    {never, patient, context.DeadlineExceeded, true, pessimisticTimeout},
		"an earlier deadline": {never, departures["the deadline passes"].leave, context.DeadlineExceeded, false, time.Second},
		"a caller who leaves": {never, departures["the client leaves"].leave, context.Canceled, false, time.Second},
		"another error":       {func(context.Context) error { return errNoReply }, context.WithCancel, errNoReply, false, 0},
	}, func(t *testing.T, tc test) {
		n, _ := fakeNeeds(noGate, lockedRow{answer: tc.answer})
		ctx, cancel := tc.context(t.Context())
		defer cancel()
		start := time.Now()
		got, err := (&Pessimistic{needs: n}).Deduct(ctx, fakeAttempt("sale", "u", "1"))
		if !errors.Is(err, tc.want) || errors.Is(err, model.ErrUnavailable) != tc.unavailable || got != (model.Outcome{}) {
			t.Errorf("%+v, %v; want %v, unavailable: %t", got, err, tc.want, tc.unavailable)
		}
		check.Same(t, "duration", time.Since(start), tc.after)
	})
}
