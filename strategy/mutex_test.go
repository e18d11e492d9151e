package strategy

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/model"
)

// fakeTable is a database for naive. It counts the calls.
type fakeTable struct {
	Database
	err           error
	looks, writes int
}

func (d *fakeTable) ReadStock(context.Context, model.Attempt) (model.StockView, error) {
	d.looks++
	return model.StockView{}, d.err
}

func (d *fakeTable) WriteStock(_ context.Context, a model.Attempt, _ model.StockView) (model.Outcome, error) {
	d.writes++
	return model.Outcome{Verdict: model.Accepted, Order: &model.Order{ID: a.ID, UserID: a.UserID}}, nil
}

// TestMutexCallersWhoLeave while they wait for the lock buy nothing, and the next one gets the lock.
func TestMutexCallersWhoLeave(t *testing.T) {
	for name, tc := range departures {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := &fakeTable{}
				n, _ := fakeNeeds(noGate, db)
				m := NewMutex(n)
				n.Lock <- struct{}{} // held by other code
				ctx, cancel := tc.leave(t.Context())
				defer cancel()
				leaver, next := call(ctx, m, fakeAttempt("sale", "leaves", "1")), call(t.Context(), m, fakeAttempt("sale", "stays", "2"))
				start := time.Now()
				if r := <-leaver; !errors.Is(r.err, tc.want) || r.got != (model.Outcome{}) || time.Since(start) != time.Second {
					t.Errorf("the caller who left got %+v, %v after %s, want %v", r.got, r.err, time.Since(start), tc.want)
				}
				synctest.Wait()
				if db.looks != 0 || db.writes != 0 {
					t.Errorf("%d reads and %d writes while other code held the lock", db.looks, db.writes)
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

func TestMutexReleasesItsLockAfterAnError(t *testing.T) {
	n, _ := fakeNeeds(noGate, &fakeTable{err: errNoReply})
	m := NewMutex(n)
	for range 2 {
		got, err := m.Deduct(t.Context(), fakeAttempt("sale", "u", "1"))
		if !errors.Is(err, errNoReply) || got != (model.Outcome{}) || len(n.Lock) != 0 {
			t.Errorf("%+v, %v, %d locks held", got, err, len(n.Lock))
		}
	}
}
