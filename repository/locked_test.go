package repository

import (
	"context"
	"errors"
	"testing"

	"flashsale/model"
	"flashsale/test/kit/check"
)

func (d *testDB) look(t *testing.T, a model.Attempt) model.StockView {
	t.Helper()
	look, err := d.ReadStock(t.Context(), a)
	check.NoError(t, err)
	return look
}

func (d *testDB) overwrite(t *testing.T, a model.Attempt, look model.StockView) model.Outcome {
	t.Helper()
	got, err := d.WriteStock(t.Context(), a, look)
	check.NoError(t, err)
	return got
}

// A look returns the offer with its stock and the database's time. TestRefusalsAndRepeatsNeedNoTransaction tests what a
// look decides.
func TestLook(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 5)
		d.buy(t, sale.ID, "me", 1)
		began := false
		d.between(func() { began = true })
		for name, user := range map[string]string{"an order to write": "you", "more than the limit, which is judged later": "me"} {
			before := d.now(t)
			look := d.look(t, attempt(sale.ID, user, "k2", 1))
			if look.Now.Before(before) || look.Now.After(d.now(t)) || look.Decided != nil || began {
				t.Errorf("%s: time %s, not before %s; decided %+v; a transaction began: %t", name, look.Now, before, look.Decided, began)
			}
			check.Same(t, name, look.Offer, d.offer(t, sale.ID))
		}
	})
}

// If two attempts looked at the same row, the later one takes the units of the earlier one again.
func TestOverwriteLosesUpdates(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 3, limit(2), shadow)
		first, second := attempt(sale.ID, "first", "k", 1), attempt(sale.ID, "second", "k", 2)
		looks := []model.StockView{d.look(t, first), d.look(t, second)}
		got := []model.Outcome{d.overwrite(t, first, looks[0]), d.overwrite(t, second, looks[1])}
		wantVerdicts(t, got, model.Accepted, model.Accepted)
		d.wantUnits(t, sale.ID, units{available: 1, held: 2})
		check.Same(t, "version of the stock", d.stock(t, sale.ID).Version, looks[0].Offer.Stock.Version+2)
		books, _, err := d.Books(t.Context(), sale.ID)
		if err != nil || books.Orders[model.OrderPending] != 2 || books.Units[model.OrderPending] != 3 || len(books.Violations()) != 1 {
			t.Errorf("the books are %+v, %v", books, err)
		}
		check.NoError(t, d.EraseSale(t.Context(), sale.ID)) // the other books must balance
	})
}

// However old its look is, an attempt cannot break what the schema and the buyer's row guarantee.
func TestOverwriteStopsAtTheSchema(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		t.Run("units are paid", func(t *testing.T) {
			sale := d.newSale(t, 4, limit(3))
			a := attempt(sale.ID, "me", "k", 1)
			look := d.look(t, a)
			d.payFor(t, d.buy(t, sale.ID, "rival", 3))
			got, err := d.WriteStock(t.Context(), a, look)
			if err == nil || got != (model.Outcome{}) || errors.Is(err, model.ErrUnavailable) {
				t.Errorf("got %+v, %v", got, err)
			}
			d.wantUnits(t, sale.ID, units{available: 1, paid: 3})
			d.noOrder(t, a)
			check.Same(t, "rows of the buyer", d.buyers(t, a), 0)
		})
		t.Run("a buyer's limit", func(t *testing.T) {
			sale := d.newSale(t, 5)
			first, second := attempt(sale.ID, "me", "k1", 1), attempt(sale.ID, "me", "k2", 1)
			looks := []model.StockView{d.look(t, first), d.look(t, second)}
			got := []model.Outcome{d.overwrite(t, first, looks[0]), d.overwrite(t, second, looks[1])}
			wantVerdicts(t, got, model.Accepted, model.LimitReached)
			d.wantUnits(t, sale.ID, units{available: 4, held: 1})
		})
		t.Run("the same attempt", func(t *testing.T) {
			sale := d.newSale(t, 5)
			a := attempt(sale.ID, "me", "k", 1)
			looks := []model.StockView{d.look(t, a), d.look(t, a)}
			first, again := d.overwrite(t, a, looks[0]), d.overwrite(t, a, looks[1])
			check.Same(t, "the first outcome", first.Repeated, false)
			check.Same(t, "the second outcome", again, model.Outcome{Verdict: model.Accepted, Order: first.Order, Repeated: true})
			d.wantUnits(t, sale.ID, units{available: 4, held: 1})
		})
	})
}

// Through an exclusive store, whatever writes stock rows holds the lock while it writes, and returns it.
func TestExclusive(t *testing.T) {
	// The writers that do not act on an order.
	writers := map[string]func(t *testing.T, x *testDB, sale model.Sale){
		"create a sale": func(t *testing.T, x *testDB, _ model.Sale) { x.newSale(t, 1) },
		"change a sale": func(t *testing.T, x *testDB, sale model.Sale) { x.change(t, sale.ID, 1) },
		"erase a sale":  func(t *testing.T, x *testDB, sale model.Sale) { check.NoError(t, x.EraseSale(t.Context(), sale.ID)) },
		"a failed deduction": func(t *testing.T, x *testDB, sale model.Sale) {
			if got, err := x.DeductLocked(t.Context(), attempt(sale.ID, "me", "k", 0)); err == nil {
				t.Errorf("got %+v", got)
			}
		},
	}
	onBoth(t, func(t *testing.T, d *testDB) {
		holdsLock := func(t *testing.T, write func(x *testDB)) {
			t.Helper()
			lock := make(chan struct{}, 1)
			exclusive := &testDB{Store: d.Exclusive(lock), address: d.address}
			began := false
			d.between(func() {
				if began = true; len(lock) != 1 {
					t.Error("the transaction begins without the lock")
				}
			})
			write(exclusive)
			if !began || len(lock) != 0 {
				t.Errorf("a transaction began: %t; the lock is held: %t", began, len(lock) == 1)
			}
		}
		check.Each(t, writers, func(t *testing.T, write func(t *testing.T, x *testDB, sale model.Sale)) {
			sale := d.newSale(t, 5, shadow) // no other can be erased
			holdsLock(t, func(x *testDB) { write(t, x, sale) })
		})
		check.Each(t, acts, func(t *testing.T, act act) {
			a, p := d.orderIn(t, d.newSale(t, 2), act.from)
			holdsLock(t, func(x *testDB) { check.NoError(t, act.do(t.Context(), x, a, p)) })
			check.Same(t, "status", d.order(t, a.ID).Status, act.to)
		})
	})
}

// A caller that leaves while it waits for the lock writes nothing and does not return the lock of another caller.
func TestExclusiveAfterTheCallerLeaves(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		lock := make(chan struct{}, 1)
		exclusive := d.Exclusive(lock)
		sale := d.newSale(t, 2)
		d.between(func() {
			check.Same(t, "locks that the original store takes", len(lock), 0)
		})
		order := d.buy(t, sale.ID, "holder", 1)
		began := false
		d.between(func() { began = true })
		lock <- struct{}{}
		ctx, leave := context.WithCancel(t.Context())
		leave()
		if _, verdict, err := exclusive.Cancel(ctx, order.UserID, order.ID); !errors.Is(err, context.Canceled) || began {
			t.Errorf("got %s, %v; a transaction began: %t", verdict, err, began)
		}
		check.Same(t, "locks that the other caller holds", len(lock), 1)
		<-lock
		_, verdict, err := exclusive.Cancel(t.Context(), order.UserID, order.ID)
		accepted(t, verdict, err)
		d.wantUnits(t, sale.ID, units{available: 2})
	})
}
