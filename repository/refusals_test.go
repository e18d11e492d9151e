package repository

import (
	"context"
	"database/sql/driver"
	"slices"
	"strings"
	"testing"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// lease asks for a lease of refusals.
func (d *testDB) lease(t *testing.T, saleID string) (lease model.RefusalLease, leased bool) {
	t.Helper()
	leases, err := d.LeaseRefusals(t.Context(), []string{saleID, "another"})
	check.NoError(t, err)
	lease, leased = leases[saleID]
	return lease, leased
}

// Only a sold-out sale gets a lease, and only while no return of its units is being committed.
func TestLeaseRefusals(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 2)
		first := d.buy(t, sale.ID, "ann", 1)
		_, early := d.lease(t, sale.ID)
		d.buy(t, sale.ID, "ben", 1)
		one, leased := d.lease(t, sale.ID)
		d.payFor(t, first)
		two, again := d.lease(t, sale.ID)
		check.Same(t, "leases", []bool{early, leased, again}, []bool{false, true, true})
		check.Same(t, "a lease after a payment", two, one)
		if !d.sqlite { // SQLite has one writer
			tx := d.write.Begin()
			check.NoError(t, tx.Exec("UPDATE stock SET quota = quota WHERE sale_id = ?", sale.ID).Error)
			_, locked := d.lease(t, sale.ID)
			check.NoError(t, tx.Rollback().Error)
			check.Same(t, "a lease of a locked row", locked, false)
		}
		d.refuse(t, attempt(sale.ID, "cid", "k", 1), model.ReasonFailed)
		if three, _ := d.lease(t, sale.ID); three == one {
			t.Error("the lease is the same after a durable refusal")
		}
	})
}

// A transaction that is tried again gives no lease of the try that was rolled back.
func TestLeaseOfATryThatWasRolledBack(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale, other := d.newSale(t, 1), d.another(t)
		d.buy(t, sale.ID, "ann", 1)
		tries := 0
		d.breaksOff(func(statement string) error {
			if !strings.Contains(statement, "SET refusing_until_ms") {
				return nil
			}
			tries++
			d.between(func() { other.change(t, sale.ID, 1) })
			return driver.ErrBadConn // the connection was lost, and nothing done
		})
		_, leased := d.lease(t, sale.ID)
		check.Same(t, "tries that were rolled back", tries, 1)
		check.Same(t, "a lease of a sale that has a unit again", leased, false)
	})
}

// No unit comes back while a lease holds. An operator and a buyer wait for its end; the expirer tries again later. From
// the announcement on, there is no further lease. A lease after the return differs from the one before. What ends after
// seconds is renewed just before the transaction that meets it, so that it does not end while this process stands still.
func TestHole61_ReturnsWaitForLeases(t *testing.T) {
	type test struct {
		returnUnit func(ctx context.Context, d *testDB, o model.Order) error
		waits      bool
	}
	onBoth(t, func(t *testing.T, d *testDB) {
		for name, tc := range map[string]test{
			"cancel": {func(ctx context.Context, d *testDB, o model.Order) error {
				_, _, err := d.Cancel(ctx, o.UserID, o.ID)
				return err
			}, true},
			"add quota": {func(ctx context.Context, d *testDB, o model.Order) error {
				change := model.SaleChange{SaleID: o.SaleID, AddQuota: 1, Edit: func(*model.Sale) model.Verdict { return model.Accepted }}
				_, _, err := d.ChangeSale(ctx, change)
				return err
			}, true},
			"expire": {func(ctx context.Context, d *testDB, o model.Order) error {
				_, err := d.Expire(ctx, o.SaleID, []string{o.ID})
				return err
			}, false},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				sale := d.newSale(t, 1)
				order := d.buy(t, sale.ID, "ann", 1)
				before, _ := d.lease(t, sale.ID)
				if !tc.waits {
					own := d.another(t) // the subtests share the hooks of d
					own.between(func() {
						d.exec(t, "UPDATE stock SET refusing_until_ms = "+d.nowMillis()+" + ? WHERE sale_id = ?", returnNotice.Milliseconds(), sale.ID)
					})
					check.NoError(t, tc.returnUnit(t.Context(), own, order))
					check.Same(t, "units while the lease holds", d.stock(t, sale.ID).Available, 0)
					d.exec(t, "UPDATE stock SET refusing_until_ms = 0 WHERE sale_id = ?", sale.ID)
					own.between(func() {
						d.exec(t, "UPDATE stock SET returning_at_ms = "+d.nowMillis()+" WHERE sale_id = ? AND returning_at_ms > 0", sale.ID)
					})
					_, leased := own.lease(t, sale.ID)
					check.Same(t, "a lease after the announcement", leased, false)
				}
				check.NoError(t, tc.returnUnit(t.Context(), d, order))
				check.Same(t, "units", d.stock(t, sale.ID).Available, 1)
				check.Same(t, "the lease holds", d.count(t, "SELECT COUNT(*) FROM stock WHERE sale_id = ? AND refusing_until_ms >= "+d.nowMillis(), sale.ID), 0)
				d.buy(t, sale.ID, "ben", 1)
				d.exec(t, "UPDATE stock SET returning_at_ms = 0 WHERE sale_id = ?", sale.ID)
				if after, leased := d.lease(t, sale.ID); !leased || after == before {
					t.Errorf("the lease after the return is %+v, before %+v", after, before)
				}
			})
		}
	})
}

func TestKnownIDs(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale, other := d.newSale(t, 5), d.newSale(t, 5)
		d.buy(t, other.ID, "ann", 1)
		cancelled := d.cancel(t, d.buy(t, sale.ID, "ann", 1))
		refused := attempt(sale.ID, "cid", "k", 1)
		d.refuse(t, refused, model.ReasonFailed)
		lost := attempt(sale.ID, "dan", "k", 1)
		lost.Quantity = 0
		d.refuse(t, lost, model.ReasonFailed)
		var got []string
		for ids, err := range d.KnownIDs(t.Context(), sale.ID) {
			check.NoError(t, err)
			got = append(got, ids...)
		}
		want := []string{cancelled.ID, refused.ID, lost.ID}
		slices.Sort(got)
		slices.Sort(want)
		check.Same(t, "ids", got, want)
	})
}
