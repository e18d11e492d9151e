package repository

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"gorm.io/gorm"

	"flashsale/model"
)

// lookUps are those that the suite holds up: each statement that looks for orders waits for letGo, and is counted.
type lookUps struct {
	db    *testDB
	held  chan struct{}
	mu    sync.Mutex
	began []int // how many ids each statement looks for
	calls sync.WaitGroup
}

func (d *testDB) holdLookUps(t *testing.T) *lookUps {
	t.Helper()
	l := &lookUps{db: d, held: make(chan struct{})}
	err := d.read.Callback().Row().Before("gorm:row").Register("suite:lookups", func(tx *gorm.DB) {
		if !strings.Contains(tx.Statement.SQL.String(), "FROM refusals WHERE order_id IN") {
			return
		}
		l.mu.Lock()
		l.began = append(l.began, (len(tx.Statement.Vars)-1)/2) // each id twice, and a status
		l.mu.Unlock()
		<-l.held
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *lookUps) letGo() { close(l.held) }

// found is what a look-up gave.
type found struct {
	order model.Order
	ok    bool
	err   error
}

// noticed is a context that says when somebody begins to wait for its end, as a caller does who is in a batch.
type noticed struct {
	context.Context
	waits func()
}

func (c noticed) Done() <-chan struct{} {
	c.waits()
	return c.Context.Done()
}

// ask looks an order up beside the test, and returns when the call waits for its batch.
func (l *lookUps) ask(ctx context.Context, id string) *found {
	f := &found{}
	inside := make(chan struct{})
	asking := noticed{ctx, sync.OnceFunc(func() { close(inside) })}
	l.calls.Go(func() { f.order, f.ok, f.err = l.db.Order(asking, id) }) //nolint:contextcheck // it is ctx, and tells when somebody waits for its end
	<-inside
	return f
}

// Look-ups that come while others are under way share a statement, and each gets what stands under its own id.
func TestLookUpsShareAStatement(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale, other := d.newSale(t, 10), d.newSale(t, 10)
		bought, elsewhere := attempt(sale.ID, "ann", "k", 1), attempt(other.ID, "ann", "k", 1)
		d.deduct(t, sale.ID, bought)
		d.settle(t, other.ID, elsewhere)
		refused := entries(attempt(sale.ID, "ben", "k", 1))[0]
		if _, err := d.Refuse(t.Context(), refused, model.ReasonFailed); err != nil {
			t.Fatal(err)
		}
		want := map[string]model.OrderStatus{
			bought.ID: model.OrderPending, elsewhere.ID: model.OrderPending, refused.ID: model.OrderRejected,
			attempt(sale.ID, "carol", "k", 1).ID:   "", // the same key of another user
			attempt(sale.ID, "ann", "other", 1).ID: "", attempt(other.ID, "ben", "k", 1).ID: "", "no id at all": "",
		}
		l := d.holdLookUps(t)
		asked := map[string][]*found{}
		for range 4 {
			for id := range want {
				asked[id] = append(asked[id], l.ask(t.Context(), id))
			}
		}
		l.letGo()
		l.calls.Wait()
		for id, answers := range asked {
			for _, f := range answers {
				if f.err != nil || f.ok != (want[id] != "") || f.order.Status != want[id] || f.ok && f.order.ID != id {
					t.Errorf("%s is %+v, want %q", id, *f, want[id])
				}
			}
		}
		if f := asked[refused.ID][0]; f.order.Reason != model.ReasonFailed || f.order.UserID != "ben" {
			t.Errorf("the refusal is %+v", f.order)
		}
		// The first came alone; what came while it was under way is the next.
		calls, ids := 4*len(want), 0
		for _, n := range l.began {
			ids += n
		}
		if ids != calls || len(l.began) > lookUpLimits.Calls+1 {
			t.Errorf("%d calls became statements for %v ids", calls, l.began)
		}
	})
}

// A statement has no more ids than may be: a crowd becomes several.
func TestLookUpsOfACrowd(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		l := d.holdLookUps(t)
		crowd := 2*lookUpLimits.Batch + lookUpLimits.Calls
		for i := range crowd {
			l.ask(t.Context(), fmt.Sprint("nobody's ", i))
		}
		l.letGo()
		l.calls.Wait()
		ids := 0
		for _, n := range l.began {
			if ids += n; n > lookUpLimits.Batch {
				t.Errorf("a statement looks for %d", n)
			}
		}
		if ids != crowd {
			t.Errorf("%d of %d were looked for", ids, crowd)
		}
	})
}

// Who leaves takes nobody along.
func TestLookUpWhoseCallerLeaves(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		order := d.buy(t, d.newSale(t, 10).ID, "ann", 1)
		l := d.holdLookUps(t)
		ctx, leave := context.WithCancel(t.Context())
		var leavers []*found
		for range lookUpLimits.Calls + 1 { // the first in the statements under way, the last in the next, with who stays
			leavers = append(leavers, l.ask(ctx, order.ID))
		}
		stayer := l.ask(t.Context(), order.ID)
		leave()
		l.letGo()
		l.calls.Wait()
		if stayer.err != nil || !stayer.ok || stayer.order.ID != order.ID {
			t.Errorf("who stayed got %+v", *stayer)
		}
		for _, f := range leavers {
			if f.err != nil && !errors.Is(f.err, context.Canceled) { // or the answer was there first
				t.Errorf("who left got %+v", *f)
			}
		}
	})
}

// What breaks a statement is told to all who wait for it, and nobody is told that there is no order.
func TestLookUpsThatFail(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		order := d.buy(t, d.newSale(t, 10).ID, "ann", 1)
		l := d.holdLookUps(t)
		var asked []*found
		for range 10 {
			asked = append(asked, l.ask(t.Context(), order.ID))
		}
		d.exec(t, "ALTER TABLE refusals RENAME TO elsewhere")
		l.letGo()
		l.calls.Wait()
		d.exec(t, "ALTER TABLE elsewhere RENAME TO refusals")
		for _, f := range asked {
			if f.err == nil || f.ok {
				t.Errorf("a statement that can't be answered gave %+v", *f)
			}
		}
		if got := d.order(t, order.ID); got.ID != order.ID {
			t.Errorf("afterwards it is %+v", got)
		}
	})
}

// After the end nothing is looked up, and nobody is told that there is no order.
func TestLookUpAfterClose(t *testing.T) {
	d := openStore(t, sqliteAddress(t), suiteConns)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := d.Order(t.Context(), "any"); ok || !errors.Is(err, model.ErrUnavailable) {
		t.Errorf("%t, %v", ok, err)
	}
}
