package repository

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"gorm.io/gorm"

	"flashsale/model"
	"flashsale/test/kit"
)

// lookUps are calls of Order. Each of their statements is counted and waits for letGo.
type lookUps struct {
	db    *testDB
	held  chan struct{}
	mu    sync.Mutex
	began []int // the number of ids in each statement
	calls sync.WaitGroup
}

func (d *testDB) holdLookUps(t *testing.T) *lookUps {
	t.Helper()
	l := &lookUps{db: d, held: make(chan struct{})}
	noError(t, d.read.Callback().Row().Before("gorm:row").Register("suite:lookups", func(tx *gorm.DB) {
		if !strings.Contains(tx.Statement.SQL.String(), "FROM refusals WHERE order_id IN") {
			return
		}
		l.mu.Lock()
		l.began = append(l.began, (len(tx.Statement.Vars)-1)/2) // each id twice, and a status
		l.mu.Unlock()
		<-l.held
	}))
	return l
}

// letGo lets all statements run and waits for the calls.
func (l *lookUps) letGo() {
	close(l.held)
	l.calls.Wait()
}

// ids returns the number of ids in all statements.
func (l *lookUps) ids() (sum int) {
	for _, n := range l.began {
		sum += n
	}
	return sum
}

// found is the result of a call.
type found struct {
	order model.Order
	ok    bool
	err   error
}

// noticed is a context that reports when a caller begins to wait for its end, as each call in a batch does.
type noticed struct {
	context.Context
	waits func()
}

func (c noticed) Done() <-chan struct{} {
	c.waits()
	return c.Context.Done()
}

// ask starts a call of Order and returns when the call waits for its batch.
func (l *lookUps) ask(ctx context.Context, id string) *found {
	f := &found{}
	inside := make(chan struct{})
	asking := noticed{ctx, sync.OnceFunc(func() { close(inside) })}
	l.calls.Go(func() { f.order, f.ok, f.err = l.db.Order(asking, id) }) //nolint:contextcheck // asking wraps ctx
	<-inside
	return f
}

// Calls that arrive while others are under way share a statement, and each gets the order with its own id.
func TestLookUpsShareAStatement(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale, other := d.newSale(t, 10), d.newSale(t, 10)
		bought, elsewhere := attempt(sale.ID, "ann", "k", 1), attempt(other.ID, "ann", "k", 1)
		refused := attempt(sale.ID, "ben", "k", 1)
		d.deduct(t, bought)
		d.settle(t, elsewhere)
		d.refuse(t, refused, model.ReasonFailed)
		want := map[string]model.OrderStatus{
			bought.ID: model.OrderPending, elsewhere.ID: model.OrderPending, refused.ID: model.OrderRejected,
			attempt(sale.ID, "carol", "k", 1).ID: "", attempt(sale.ID, "ann", "other", 1).ID: "",
			attempt(other.ID, "ben", "k", 1).ID: "", "not an id": "",
		}
		l := d.holdLookUps(t)
		asked := map[string][]*found{}
		for range 4 {
			for id := range want {
				asked[id] = append(asked[id], l.ask(t.Context(), id))
			}
		}
		l.letGo()
		for id, answers := range asked {
			for _, f := range answers {
				if f.err != nil || f.ok != (want[id] != "") || f.order.Status != want[id] || f.ok && f.order.ID != id {
					t.Errorf("the order %s is %+v, want %q", id, *f, want[id])
				}
			}
		}
		if f := asked[refused.ID][0]; f.order.Reason != model.ReasonFailed || f.order.UserID != "ben" {
			t.Errorf("the refusal is %+v", f.order)
		}
		// The first calls have statements of their own; the others share the next one.
		if l.ids() != 4*len(want) || len(l.began) > lookUpLimits.Calls+1 {
			t.Errorf("%d calls became statements for %v ids", 4*len(want), l.began)
		}
	})
}

// The calls of a crowd become several statements, each with a limited number of ids.
func TestLookUpsOfACrowd(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		l := d.holdLookUps(t)
		crowd := 2*lookUpLimits.Batch + lookUpLimits.Calls
		for i := range crowd {
			l.ask(t.Context(), fmt.Sprint("unknown ", i))
		}
		l.letGo()
		equal(t, "ids in all statements", l.ids(), crowd)
		if most := slices.Max(l.began); most > lookUpLimits.Batch {
			t.Errorf("a statement has %d ids", most)
		}
	})
}

// A caller that leaves does not cancel the calls of others.
func TestLookUpWhoseCallerLeaves(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		order := d.buy(t, d.newSale(t, 10).ID, "ann", 1)
		l := d.holdLookUps(t)
		ctx, leave := context.WithCancel(t.Context())
		var leavers []*found
		for range lookUpLimits.Calls + 1 { // the last one waits for the same batch as the stayer
			leavers = append(leavers, l.ask(ctx, order.ID))
		}
		stayer := l.ask(t.Context(), order.ID)
		leave()
		l.letGo()
		equal(t, "the result of the stayer", *stayer, found{order: order, ok: true})
		for _, f := range leavers {
			if f.err != nil && !errors.Is(f.err, context.Canceled) { // a leaver may get its answer first
				t.Errorf("a leaver got %+v", *f)
			}
		}
	})
}

// All calls of a failed statement get its error, and none is told that the order does not exist.
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
		d.exec(t, "ALTER TABLE elsewhere RENAME TO refusals")
		for _, f := range asked {
			if f.err == nil || f.ok {
				t.Errorf("a failed statement gave %+v", *f)
			}
		}
		equal(t, "the order afterwards", d.order(t, order.ID), order)
	})
}

// A closed store returns an error rather than no order.
func TestLookUpAfterClose(t *testing.T) {
	d := openStore(t, kit.SQLite(t), suiteConns)
	noError(t, d.Close())
	if _, ok, err := d.Order(t.Context(), "any"); ok || !errors.Is(err, model.ErrUnavailable) {
		t.Errorf("got %t, %v", ok, err)
	}
}
