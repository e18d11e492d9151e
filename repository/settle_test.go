package repository

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// A gate may be replaced while entries wait, so each entry has an epoch of its own.
func TestSettleKeepsTheEpochOfEachEntry(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 10)
		list := entries(attempts(sale.ID, "u", 4)...)
		for i := range list {
			list[i].Epoch = int64(3 + i)
		}
		for _, batch := range [][]model.Entry{list[:2], list[1:]} { // all entries are new; one entry is known
			_, err := d.Settle(t.Context(), sale.ID, batch)
			check.NoError(t, err)
		}
		for i, e := range list {
			check.Same(t, fmt.Sprint("epoch of order ", i), d.order(t, e.ID).Epoch, e.Epoch)
		}
	})
}

// What was admitted in time is settled, although the sale has ended meanwhile.
func TestSettleAfterTheEnd(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 2)
		d.change(t, sale.ID, 0, shift(-2*time.Hour), status(model.SaleClosed))
		wantVerdicts(t, d.settle(t, attempts(sale.ID, "u", 2)...), model.Accepted, model.Accepted)
	})
}

func TestSettleOfAnUnknownSaleIsRefusedForGood(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		before, a := d.now(t), attempt(model.NewSaleID(), "me", "k", 1)
		for range 2 {
			wantVerdicts(t, d.settle(t, a, a), model.NotFound, model.NotFound)
		}
		if o := d.order(t, a.ID); o.Status != model.OrderRejected || o.Reason != model.NotFound || o.CreatedAt.Before(before) {
			t.Errorf("the refusal is %+v", o)
		}
	})
}

// A refusal is durable, and changes no earlier outcome.
func TestRefuse(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 5)
		fresh, ordered, refused := attempt(sale.ID, "me", "k", 1), attempt(sale.ID, "owner", "k", 1), attempt(sale.ID, "greedy", "k", 2)
		wantVerdicts(t, d.settle(t, ordered, refused), model.Accepted, model.LimitReached)
		before := d.stock(t, sale.ID)
		for want, a := range map[model.Verdict]model.Attempt{
			model.ReasonFailed: fresh, model.Accepted: ordered, model.LimitReached: refused,
		} {
			for range 2 {
				check.Same(t, "the verdict of refuse", d.refuse(t, a, model.ReasonFailed).Verdict, want)
			}
			wantVerdicts(t, d.settle(t, a), want)
			if o := d.order(t, a.ID); want != model.Accepted && (o.Status != model.OrderRejected || o.Reason != want) {
				t.Errorf("the order is %s, %q", o.Status, o.Reason)
			}
		}
		check.Same(t, "the stock", d.stock(t, sale.ID), before)
		check.Same(t, "units of the refused user", d.live(t, sale.ID, "me"), 0)
	})
}

// One settler gives an attempt up while another one settles it. Both tell of the same outcome.
func TestRefuseAgainstSettle(t *testing.T) {
	const rounds, each = 10, 6
	onBoth(t, func(t *testing.T, d *testDB) {
		stores, sale := d.pair(t), d.newSale(t, rounds*each)
		for round := range rounds {
			list := attempts(sale.ID, fmt.Sprint("r", round), each)
			told := check.Collect(2*each, func(i int) model.Verdict {
				if i%2 == 0 {
					return stores[0].refuse(t, list[i/2], model.ReasonFailed).Verdict
				}
				return stores[1].retry(t, settling, list[i/2])[0].Verdict
			})
			for i := range list {
				check.Same(t, "the verdicts of refuse and settle", told[2*i], told[2*i+1])
			}
		}
	})
}

// Batches that take SQLite many statements, by users with and without a row. The last entry of a batch is unlike the
// others.
func TestSettleManyStatements(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		const n = sqliteParameters/3 + 15 // a row of a buyer has three values
		sale := d.newSale(t, 5*n, limit(2))
		batch := func(key string, last model.Attempt) []model.Attempt {
			list := make([]model.Attempt, 0, n)
			for i := range n - 1 {
				list = append(list, attempt(sale.ID, fmt.Sprint("u-", key[:1], (i*7919)%n), key, 1))
			}
			return append(list, last)
		}
		known := attempt(sale.ID, "zz", "k1", 2)
		refused := batch("b1", attempt(sale.ID, "zz", "k2", 1))
		accepted := make([]model.Verdict, n-1)
		for i := range accepted {
			accepted[i] = model.Accepted
		}
		for _, step := range []struct {
			name     string
			list     []model.Attempt
			last     model.Verdict
			repeated int // the number of outcomes, at the end of the batch
		}{
			{"all users are new", batch("a1", known), model.Accepted, 0},
			{"nearly all users have a row", batch("a2", attempt(sale.ID, "y", "k1", 2)), model.Accepted, 0},
			{"the last user is at the limit", refused, model.LimitReached, 0},
			{"the refusal is durable", refused, model.LimitReached, n},
			{"new users beside a refusal", batch("c1", attempt(sale.ID, "x", "k1", 1)), model.Accepted, 0},
			{"the last attempt is known", batch("d1", known), model.Accepted, 1},
		} {
			got := d.settle(t, step.list...)
			wantVerdicts(t, got, append(slices.Clone(accepted), step.last)...)
			for i, o := range got {
				if o.Repeated != (i >= n-step.repeated) {
					t.Fatalf("%s: repeated of entry %d is %t", step.name, i, o.Repeated)
				}
			}
		}
		held := int64(5*(n-1)) + 2 + 2 + 1
		d.wantUnits(t, sale.ID, units{available: 5*n - held, held: held})
		check.Same(t, "orders", d.count(t, "SELECT COUNT(*) FROM orders WHERE sale_id = ?", sale.ID), 5*(n-1)+3)
	})
}
