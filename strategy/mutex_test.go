package strategy

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/model"
	"flashsale/test/kit/check"
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
	check.EachInBubble(t, departures, func(t *testing.T, tc departure) {
		db := &fakeTable{}
		n, _ := fakeNeeds(noGate, db)
		m := &Mutex{Naive{needs: n}}
		n.Lock <- struct{}{} // held by other code
		ctx, cancel := tc.leave(t.Context())
		defer cancel()
		leaver, next := call(ctx, m, fakeAttempt("sale", "leaves", "1")), call(t.Context(), m, fakeAttempt("sale", "stays", "2"))
		start := time.Now()
		wantFailed(t, <-leaver, tc.want)
		check.Same(t, "time until the caller has left", time.Since(start), time.Second)
		synctest.Wait()
		check.Same(t, "reads and writes while other code holds the lock", []int{db.looks, db.writes}, []int{0, 0})
		<-n.Lock
		wantOrder(t, "stays", <-next)
		check.Same(t, "reads, writes, locks held", []int{db.looks, db.writes, len(n.Lock)}, []int{1, 1, 0})
	})
}

func TestMutexReleasesItsLockAfterAnError(t *testing.T) {
	n, _ := fakeNeeds(noGate, &fakeTable{err: errNoReply})
	m := &Mutex{Naive{needs: n}}
	for range 2 {
		wantFailed(t, <-call(t.Context(), m, fakeAttempt("sale", "u", "1")), errNoReply)
		check.Same(t, "locks held", len(n.Lock), 0)
	}
}
