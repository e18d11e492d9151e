package repository

import (
	"context"
	"strings"
	"sync"
	"testing"

	"gorm.io/gorm"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// noticed is a context that reports when a caller begins to wait for its end, as each call in a batch does.
type noticed struct {
	context.Context
	waits func()
}

func (c noticed) Done() <-chan struct{} {
	c.waits()
	return c.Context.Done()
}

// Calls that arrive while others are under way share a statement, and each gets the order with its own id. The tests of
// internal/batch have large crowds, failed batches, and callers that leave.
func TestLookUpsShareAStatement(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale, other := d.newSale(t, 10), d.newSale(t, 10)
		bought, elsewhere := attempt(sale.ID, "ann", "k", 1), attempt(other.ID, "ann", "k", 1)
		refused := attempt(sale.ID, "ben", "k", 1)
		d.deduct(t, bought)
		d.settle(t, elsewhere)
		d.refuse(t, refused, model.ReasonFailed)
		want := map[string]model.Order{"": {}, "' OR 1=1 --": {}}
		for _, a := range []model.Attempt{bought, elsewhere, refused} {
			want[a.ID] = d.order(t, a.ID)
		}
		for _, a := range []model.Attempt{attempt(sale.ID, "carol", "k", 1), attempt(other.ID, "ben", "k", 1)} {
			want[a.ID] = model.Order{}
		}
		check.Same(t, "reason of the refusal", want[refused.ID].Reason, model.ReasonFailed)

		let, sizes, mu := make(chan struct{}), []int{}, sync.Mutex{}
		check.NoError(t, d.read.Callback().Row().Before("gorm:row").Register("suite:lookups", func(tx *gorm.DB) {
			if strings.Contains(tx.Statement.SQL.String(), "FROM refusals WHERE order_id IN") {
				mu.Lock()
				sizes = append(sizes, (len(tx.Statement.Vars)-1)/2) // each id twice, and a status
				mu.Unlock()
				<-let
			}
		}))
		var calls sync.WaitGroup
		ask := func(id string) {
			waits := make(chan struct{})
			ctx := noticed{t.Context(), sync.OnceFunc(func() { close(waits) })}
			calls.Go(func() {
				if order, ok, err := d.Order(ctx, id); err != nil || order != want[id] || ok != (order.ID != "") {
					t.Errorf("the order %q is %+v, %t, %v, want %+v", id, order, ok, err, want[id])
				}
			})
			<-waits
		}
		for range 4 {
			for id := range want {
				ask(id)
			}
		}
		close(let)
		calls.Wait()
		sum := 0
		for _, size := range sizes {
			sum += size
		}
		// The first calls have statements of their own; the others share the next one.
		if sum != 4*len(want) || len(sizes) > lookUpLimits.Calls+1 {
			t.Errorf("%d calls became statements for %v ids", 4*len(want), sizes)
		}
	})
}

// A statement that fails is an error, rather than no order.
func TestLookUpsThatFail(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		order := d.buy(t, d.newSale(t, 10).ID, "ann", 1)
		d.exec(t, "ALTER TABLE refusals RENAME TO elsewhere")
		if got, ok, err := d.Order(t.Context(), order.ID); err == nil || ok {
			t.Errorf("got %+v, %t, %v", got, ok, err)
		}
		d.exec(t, "ALTER TABLE elsewhere RENAME TO refusals")
		check.Same(t, "the order afterwards", d.order(t, order.ID), order)
	})
}
