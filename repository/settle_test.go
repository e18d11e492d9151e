package repository

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"flashsale/model"
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
			noError(t, err)
		}
		for i, e := range list {
			equal(t, fmt.Sprint("epoch of order ", i), d.order(t, e.ID).Epoch, e.Epoch)
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

// However entries are delivered again, each id keeps its outcome.
func TestSettleRedelivery(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 4)
		list := attempts(sale.ID, "u", 6)
		first := d.settle(t, list[:5]...)
		wantVerdicts(t, first, model.Accepted, model.Accepted, model.Accepted, model.Accepted, model.SoldOut)
		before := d.stock(t, sale.ID)
		for name, places := range map[string][]int{
			"whole":            {0, 1, 2, 3, 4},
			"one":              {2},
			"the refused one":  {4},
			"in another order": {4, 3, 0},
			"with a new one":   {5, 0, 4},
			"twice in a batch": {1, 4, 1, 4},
		} {
			t.Run(name, func(t *testing.T) {
				var again []model.Attempt
				for _, place := range places {
					again = append(again, list[place])
				}
				for i, got := range d.settle(t, again...) {
					if places[i] == 5 {
						equal(t, "the new one", got, model.Outcome{Verdict: model.SoldOut})
						continue
					}
					want := first[places[i]]
					if got.Verdict != want.Verdict || !got.Repeated {
						t.Errorf("place %d got %+v, first %+v", places[i], got, want)
					}
					if want.Order != nil {
						equal(t, "the order", got.Order, want.Order)
					}
				}
				equal(t, "the stock", d.stock(t, sale.ID), before)
			})
		}
	})
}

// Several settlers have the same batch, as after a claim from a consumer that was only slow.
func TestSettleOfOneBatchBySeveralAtOnce(t *testing.T) {
	const settlers, rounds = 5, 4
	type counts = map[model.Verdict]int
	onBoth(t, func(t *testing.T, d *testDB) {
		stores := d.pair(t)
		for name, tc := range map[string]struct {
			quota       int64
			limit       int
			users, each int // attempts for one unit
			want        counts
		}{
			"all fit":                {20, 1, 20, 1, counts{model.Accepted: 20}},
			"all fit, below limit":   {20, 3, 20, 1, counts{model.Accepted: 20}},
			"more than the stock":    {15, 1, 20, 1, counts{model.Accepted: 15, model.SoldOut: 5}},
			"more than the limit":    {50, 1, 10, 2, counts{model.Accepted: 10, model.LimitReached: 10}},
			"more than both":         {15, 2, 10, 3, counts{model.Accepted: 15, model.LimitReached: 5, model.SoldOut: 10}},
			"a single unit, limit 3": {1, 3, 4, 1, counts{model.Accepted: 1, model.SoldOut: 3}},
		} {
			t.Run(name, func(t *testing.T) {
				for range rounds {
					sale := d.newSale(t, tc.quota, limit(tc.limit))
					var list []model.Attempt
					for key := range tc.each {
						for user := range tc.users {
							list = append(list, attempt(sale.ID, fmt.Sprint("u", user), fmt.Sprint("k", key), 1))
						}
					}
					got := collect(settlers, func(i int) []model.Outcome { return stores[i%2].retry(t, settling, list...) })
					equal(t, "outcomes", tally(got[0]), tc.want)
					for i := range got {
						equal(t, fmt.Sprintf("verdicts of settler %d and settler 0", i), verdicts(got[i]), verdicts(got[0]))
					}
					held := int64(tc.want[model.Accepted])
					d.wantUnits(t, sale.ID, units{available: tc.quota - held, held: held})
				}
			})
		}
	})
}

// Settlers and fallbacks take units of the same stock, and sell exactly the quota.
func TestSettleAndDeductSellExactlyTheQuota(t *testing.T) {
	const writers, each, quota = 12, 10, 77
	onBoth(t, func(t *testing.T, d *testDB) {
		sale, stores := d.newSale(t, quota), d.pair(t)
		outcomes := collect(writers, func(i int) []model.Outcome {
			by := settling
			if i%3 == 0 {
				by = deducting
			}
			return stores[i%2].retry(t, by, attempts(sale.ID, fmt.Sprint("w", i), each)...)
		})
		want := map[model.Verdict]int{model.Accepted: quota, model.SoldOut: writers*each - quota}
		equal(t, "outcomes", tally(slices.Concat(outcomes...)), want)
		d.wantUnits(t, sale.ID, units{held: quota})
	})
}

// After an ambiguous reply of the gate, the same attempt is in the stream and with the fallback. Both ways tell of the
// same order.
func TestSettleAndDeductOfTheSameAttempt(t *testing.T) {
	const rounds, each = 12, 4
	onBoth(t, func(t *testing.T, d *testDB) {
		stores := d.pair(t)
		for _, most := range []int{1, 2} {
			sale := d.newSale(t, rounds*each, limit(most))
			for round := range rounds {
				list := attempts(sale.ID, fmt.Sprint("r", round), each)
				got := collect(3, func(i int) []model.Outcome {
					if i == 0 {
						return stores[1].retry(t, settling, list...)
					}
					return stores[0].retry(t, deducting, list...)
				})
				for i, outcomes := range got {
					for place, o := range outcomes {
						if o.Verdict != model.Accepted || o.Order == nil || o.Order.ID != list[place].ID {
							t.Errorf("limit %d: way %d tells attempt %d: %+v", most, i, place, o)
						}
					}
				}
			}
			d.wantUnits(t, sale.ID, units{held: rounds * each})
		}
	})
}

func TestRefuse(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 5)
		ordered, fresh := attempt(sale.ID, "owner", "k", 1), attempt(sale.ID, "me", "k", 1)
		refused := attempt(sale.ID, "greedy", "k", 2)
		wantVerdicts(t, d.settle(t, ordered, refused), model.Accepted, model.LimitReached)
		for name, tc := range map[string]struct {
			attempt model.Attempt
			want    model.Verdict
			status  model.OrderStatus
		}{
			"an attempt without an outcome":       {fresh, model.ReasonFailed, model.OrderRejected},
			"an attempt with an order":            {ordered, model.Accepted, model.OrderPending},
			"an attempt that was refused earlier": {refused, model.LimitReached, model.OrderRejected},
		} {
			t.Run(name, func(t *testing.T) {
				before := d.stock(t, sale.ID)
				for range 2 {
					equal(t, "the verdict", d.refuse(t, tc.attempt, model.ReasonFailed).Verdict, tc.want)
				}
				wantVerdicts(t, d.settle(t, tc.attempt), tc.want)
				o := d.order(t, tc.attempt.ID)
				if o.Status != tc.status || o.Status == model.OrderRejected && o.Reason != tc.want {
					t.Errorf("the order is %s, %q", o.Status, o.Reason)
				}
				equal(t, "the stock", d.stock(t, sale.ID), before)
			})
		}
		equal(t, "units of the refused user", d.live(t, sale.ID, "me"), 0)
	})
}

// One settler gives an attempt up while another one settles it. Both tell of the same outcome.
func TestRefuseAgainstSettle(t *testing.T) {
	const rounds, each = 10, 6
	onBoth(t, func(t *testing.T, d *testDB) {
		stores, sale := d.pair(t), d.newSale(t, rounds*each)
		for round := range rounds {
			list := attempts(sale.ID, fmt.Sprint("r", round), each)
			told := collect(2*each, func(i int) model.Verdict {
				if i%2 == 0 {
					return stores[0].refuse(t, list[i/2], model.ReasonFailed).Verdict
				}
				return stores[1].retry(t, settling, list[i/2])[0].Verdict
			})
			for i := range list {
				equal(t, "the verdicts of refuse and settle", told[2*i], told[2*i+1])
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
			repeated bool
		}{
			{"all users are new", batch("a1", known), model.Accepted, false},
			{"nearly all users have a row", batch("a2", attempt(sale.ID, "y", "k1", 2)), model.Accepted, false},
			{"the last user is at the limit", refused, model.LimitReached, false},
			{"the refusal is durable", refused, model.LimitReached, true},
			{"new users beside a refusal", batch("c1", attempt(sale.ID, "x", "k1", 1)), model.Accepted, false},
		} {
			got := d.settle(t, step.list...)
			wantVerdicts(t, got, append(slices.Clone(accepted), step.last)...)
			if slices.ContainsFunc(got, func(o model.Outcome) bool { return o.Repeated != step.repeated }) {
				t.Errorf("%s: want repeated %t: %+v", step.name, step.repeated, got)
			}
		}
		got := d.settle(t, batch("d1", known)...)
		wantVerdicts(t, got, append(slices.Clone(accepted), model.Accepted)...)
		if last := got[n-1]; !last.Repeated || last.Order.ID != known.ID {
			t.Errorf("the known attempt got %+v", last)
		}
		held := int64(5*(n-1)) + 2 + 2 + 1
		d.wantUnits(t, sale.ID, units{available: 5*n - held, held: held})
		equal(t, "orders", d.count(t, "SELECT COUNT(*) FROM orders WHERE sale_id = ?", sale.ID), 5*(n-1)+3)
	})
}
