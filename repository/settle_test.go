package repository

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"flashsale/model"
)

func TestSettleWritesTheOrder(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 10, limit(3))
		list := entries(attempt(sale.ID, "alice", "k", 2), attempt(sale.ID, "bob", "k", 1))
		list[0].Epoch, list[1].Epoch = 3, 4 // a gate was replaced between them
		before := d.now(t)
		outcomes, err := d.Settle(t.Context(), sale.ID, list)
		if err != nil {
			t.Fatal(err)
		}
		after := d.now(t)
		wantVerdicts(t, outcomes, model.Accepted, model.Accepted)
		for i, e := range list {
			made := outcomes[i].Order.CreatedAt
			if made.Before(before) || made.After(after) {
				t.Errorf("made at %s, not from %s to %s", made, before, after)
			}
			want := model.Order{
				ID: e.ID, SaleID: sale.ID, UserID: e.UserID, Quantity: e.Quantity, AmountCents: int64(e.Quantity) * 1990,
				Currency: "CNY", Status: model.OrderPending, Source: model.FromStream, Epoch: e.Epoch, RequestKey: "k",
				RequestHash: e.RequestHash, CreatedAt: made, ExpiresAt: made.Add(900 * time.Second),
			}
			if *outcomes[i].Order != want {
				t.Errorf("the outcome's order is\n%+v, want\n%+v", *outcomes[i].Order, want)
			}
			if stored := d.order(t, e.ID); stored != want {
				t.Errorf("the stored order is\n%+v, want\n%+v", stored, want)
			}
		}
		d.wantUnits(t, sale.ID, units{available: 7, held: 3})
	})
}

// The gate may have admitted too much: the database has the last word, and its no lasts.
func TestSettleDecides(t *testing.T) {
	type ask struct {
		user     string
		quantity int
	}
	const yes, full, out = model.Accepted, model.LimitReached, model.SoldOut
	onBoth(t, func(t *testing.T, d *testDB) {
		for name, tc := range map[string]struct {
			quota int64
			limit int
			asks  []ask
			want  []model.Verdict
		}{
			"all fit":                            {3, 1, []ask{{"a", 1}, {"b", 1}, {"c", 1}}, []model.Verdict{yes, yes, yes}},
			"more than the stock":                {2, 1, []ask{{"c", 1}, {"a", 1}, {"b", 1}, {"d", 1}}, []model.Verdict{yes, yes, out, out}},
			"a smaller wish takes the last unit": {3, 2, []ask{{"a", 2}, {"b", 2}, {"c", 1}}, []model.Verdict{yes, out, yes}},
			"a user twice at limit 1":            {5, 1, []ask{{"a", 1}, {"b", 1}, {"a", 1}}, []model.Verdict{yes, yes, full}},
			"a smaller wish within the limit":    {9, 3, []ask{{"a", 2}, {"a", 2}, {"a", 1}}, []model.Verdict{yes, full, yes}},
			"over both: the limit is told":       {1, 1, []ask{{"a", 1}, {"a", 1}, {"b", 1}, {"b", 2}}, []model.Verdict{yes, full, out, full}},
			"what was sold out is not held":      {1, 2, []ask{{"a", 2}, {"a", 1}}, []model.Verdict{out, yes}},
			"nothing fits":                       {1, 2, []ask{{"a", 2}, {"b", 2}, {"c", 3}}, []model.Verdict{out, out, full}},
		} {
			t.Run(name, func(t *testing.T) {
				sale := d.newSale(t, tc.quota, limit(tc.limit))
				list := make([]model.Attempt, len(tc.asks))
				for i, a := range tc.asks {
					list[i] = attempt(sale.ID, a.user, fmt.Sprint("k", i), a.quantity)
				}
				wantVerdicts(t, d.settle(t, sale.ID, list...), tc.want...)
				held := int64(0)
				for i, want := range tc.want {
					o := d.order(t, list[i].ID)
					if want == model.Accepted {
						held += int64(list[i].Quantity)
						if o.Status != model.OrderPending {
							t.Errorf("place %d is %s", i, o.Status)
						}
					} else if o.Status != model.OrderRejected || o.Reason != want || o.Quantity != list[i].Quantity || o.CreatedAt.Before(sale.StartsAt) {
						t.Errorf("place %d left the refusal %+v, want the reason %s", i, o, want)
					}
				}
				d.wantUnits(t, sale.ID, units{available: tc.quota - held, held: held})
				before := d.stock(t, sale.ID)
				wantVerdicts(t, d.settle(t, sale.ID, list...), tc.want...)
				if after := d.stock(t, sale.ID); after != before {
					t.Errorf("a second delivery moved the stock from %+v to %+v", before, after)
				}
			})
		}
	})
}

// A buyer's window closed after the gate had let the buyer in: what was admitted is settled.
func TestSettleAfterTheEnd(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 2)
		d.change(t, sale.ID, 0, func(s *model.Sale) { s.EndsAt, s.Status = s.StartsAt.Add(time.Second), model.SaleClosed })
		wantVerdicts(t, d.settle(t, sale.ID, attempts(sale.ID, "u", 2)...), model.Accepted, model.Accepted)
	})
}

func TestSettleOfAnUnknownSaleIsRefusedForGood(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		id, before := model.NewSaleID(), d.now(t)
		a := attempt(id, "me", "k", 1)
		for range 2 {
			wantVerdicts(t, d.settle(t, id, a, a), model.NotFound, model.NotFound)
		}
		if o := d.order(t, a.ID); o.Status != model.OrderRejected || o.Reason != model.NotFound || o.CreatedAt.Before(before) {
			t.Errorf("the refusal is %+v", o)
		}
	})
}

// Entries come again whole, in part, and mixed with new ones; each id is decided once.
func TestSettleRedelivery(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 4)
		list := attempts(sale.ID, "u", 6)
		first := d.settle(t, sale.ID, list[:5]...)
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
				for _, i := range places {
					again = append(again, list[i])
				}
				got := d.settle(t, sale.ID, again...)
				for at, i := range places {
					if i == 5 { // was new in one of the subtests
						if got[at].Verdict != model.SoldOut {
							t.Errorf("the new one got %s", got[at].Verdict)
						}
						continue
					}
					if got[at].Verdict != first[i].Verdict || !got[at].Repeated {
						t.Errorf("place %d got %+v, first %+v", i, got[at], first[i])
					}
					if first[i].Order != nil && *got[at].Order != *first[i].Order {
						t.Errorf("place %d has the order %+v, first %+v", i, *got[at].Order, *first[i].Order)
					}
				}
				if after := d.stock(t, sale.ID); after != before {
					t.Errorf("the stock moved from %+v to %+v", before, after)
				}
			})
		}
		d.wantUnits(t, sale.ID, units{held: 4})
	})
}

// One batch is with several settlers at once, as after a claim from a consumer that was only slow.
func TestSettleOfOneBatchBySeveralAtOnce(t *testing.T) {
	const settlers, rounds = 5, 4
	onBoth(t, func(t *testing.T, d *testDB) {
		for name, tc := range map[string]struct {
			quota       int64
			limit       int
			users, each int // attempts of one unit
			want        map[model.Verdict]int
		}{
			"all fit":                {20, 1, 20, 1, map[model.Verdict]int{model.Accepted: 20}},
			"all fit, below limit":   {20, 3, 20, 1, map[model.Verdict]int{model.Accepted: 20}},
			"more than the stock":    {15, 1, 20, 1, map[model.Verdict]int{model.Accepted: 15, model.SoldOut: 5}},
			"more than the limit":    {50, 1, 10, 2, map[model.Verdict]int{model.Accepted: 10, model.LimitReached: 10}},
			"more than both":         {15, 2, 10, 3, map[model.Verdict]int{model.Accepted: 15, model.LimitReached: 5, model.SoldOut: 10}},
			"a single unit, limit 3": {1, 3, 4, 1, map[model.Verdict]int{model.Accepted: 1, model.SoldOut: 3}},
		} {
			t.Run(name, func(t *testing.T) {
				stores := []*testDB{d, d.peer(t)}
				for range rounds {
					sale := d.newSale(t, tc.quota, limit(tc.limit))
					var list []model.Attempt
					for key := range tc.each {
						for user := range tc.users {
							list = append(list, attempt(sale.ID, fmt.Sprint("u", user), fmt.Sprint("k", key), 1))
						}
					}
					got := make([][]model.Outcome, settlers)
					together(settlers, func(i int) {
						var err error
						if got[i], err = stores[i%2].Settle(t.Context(), sale.ID, entries(list...)); err != nil {
							t.Errorf("settle: %v", err)
						}
					})
					if counts := tally(got[0]); !maps.Equal(counts, tc.want) {
						t.Errorf("settled as %v, want %v", counts, tc.want)
					}
					for i := range got {
						if !slices.Equal(verdicts(got[i]), verdicts(got[0])) {
							t.Errorf("settler %d says %v, settler 0 %v", i, tally(got[i]), tally(got[0]))
						}
					}
					held := int64(tc.want[model.Accepted])
					d.wantUnits(t, sale.ID, units{available: tc.quota - held, held: held})
				}
			})
		}
	})
}

// Settlers of several streams and fallbacks draw on the same stock: exactly the quota is sold.
func TestSettleAndDeductSellExactlyTheQuota(t *testing.T) {
	const writers, each, quota = 12, 10, 77
	onBoth(t, func(t *testing.T, d *testDB) {
		sale, stores := d.newSale(t, quota), []*testDB{d, d.peer(t)}
		outcomes := make([][]model.Outcome, writers)
		together(writers, func(i int) {
			list := attempts(sale.ID, fmt.Sprint("w", i), each)
			if i%3 == 0 {
				outcomes[i] = stores[i%2].race(t, sale.ID, list...)
				return
			}
			var err error
			if outcomes[i], err = stores[i%2].Settle(t.Context(), sale.ID, entries(list...)); err != nil {
				t.Errorf("settle: %v", err)
			}
		})
		want := map[model.Verdict]int{model.Accepted: quota, model.SoldOut: writers*each - quota}
		if got := tally(slices.Concat(outcomes...)); !maps.Equal(got, want) {
			t.Errorf("sold %v, want %v", got, want)
		}
		d.wantUnits(t, sale.ID, units{held: quota})
	})
}

// After an ambiguous reply of the gate the same attempt is in the stream and with the fallback: both ways
// meet at one order, and both say so.
func TestSettleAndDeductOfTheSameAttempt(t *testing.T) {
	const rounds, each = 12, 4
	for _, max := range []int{1, 2} {
		t.Run(fmt.Sprint("limit ", max), func(t *testing.T) {
			onBoth(t, func(t *testing.T, d *testDB) {
				other := d.peer(t)
				sale := d.newSale(t, rounds*each, limit(max))
				for round := range rounds {
					list := attempts(sale.ID, fmt.Sprint("r", round), each)
					got := make([][]model.Outcome, 3)
					together(3, func(i int) {
						switch i {
						case 0:
							var err error
							if got[i], err = other.Settle(t.Context(), sale.ID, entries(list...)); err != nil {
								t.Errorf("settle: %v", err)
							}
						default:
							got[i] = d.race(t, sale.ID, list...)
						}
					})
					for i, outcomes := range got {
						for place, o := range outcomes {
							if o.Verdict != model.Accepted || o.Order == nil || o.Order.ID != list[place].ID {
								t.Errorf("way %d tells attempt %d: %+v", i, place, o)
							}
						}
					}
				}
				d.wantUnits(t, sale.ID, units{held: rounds * each})
			})
		})
	}
}

func TestRefuse(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 5)
		ordered := d.buy(t, sale.ID, "owner", 1)
		owner := model.Attempt{ID: ordered.ID, SaleID: sale.ID, UserID: "owner", Quantity: 1, RequestKey: ordered.RequestKey, RequestHash: ordered.RequestHash}
		soldOut := attempt(sale.ID, "greedy", "k", 1)
		wantVerdicts(t, d.settle(t, sale.ID, attempt(sale.ID, "greedy", "k0", 1), soldOut), model.Accepted, model.LimitReached)
		for _, tc := range []struct {
			name    string
			attempt model.Attempt
			want    model.Verdict
			status  model.OrderStatus
		}{
			{"an attempt that can't be settled", attempt(sale.ID, "me", "k", 1), model.ReasonFailed, model.OrderRejected},
			{"an attempt with an order", owner, model.Accepted, model.OrderPending},
			{"an attempt that was refused before", soldOut, model.LimitReached, model.OrderRejected},
		} {
			t.Run(tc.name, func(t *testing.T) {
				before := d.stock(t, sale.ID)
				for range 2 {
					got, err := d.Refuse(t.Context(), entries(tc.attempt)[0], model.ReasonFailed)
					if err != nil || got.Verdict != tc.want {
						t.Errorf("got %+v, %v, want %s", got, err, tc.want)
					}
				}
				wantVerdicts(t, d.settle(t, sale.ID, tc.attempt), tc.want)
				if o := d.order(t, tc.attempt.ID); o.Status != tc.status || o.Status == model.OrderRejected && o.Reason != tc.want {
					t.Errorf("it is %s, %q", o.Status, o.Reason)
				}
				if after := d.stock(t, sale.ID); after != before {
					t.Errorf("the stock moved from %+v to %+v", before, after)
				}
			})
		}
		if n := d.live(t, sale.ID, "me"); n != 0 {
			t.Errorf("the refused user has %d units", n)
		}
	})
}

// A settler gives up on an attempt while another one gets it through: one of the two is true, for everybody.
func TestRefuseAgainstSettle(t *testing.T) {
	const rounds, each = 10, 6
	onBoth(t, func(t *testing.T, d *testDB) {
		other, sale := d.peer(t), d.newSale(t, rounds*each)
		for round := range rounds {
			list := attempts(sale.ID, fmt.Sprint("r", round), each)
			told := make([]model.Verdict, 2*each)
			together(2*each, func(i int) {
				e := entries(list[i/2])
				if i%2 == 0 {
					o, err := d.Refuse(t.Context(), e[0], model.ReasonFailed)
					if err != nil {
						t.Errorf("refuse: %v", err)
					}
					told[i] = o.Verdict
					return
				}
				o, err := other.Settle(t.Context(), sale.ID, e)
				if err != nil {
					t.Errorf("settle: %v", err)
					return
				}
				told[i] = o[0].Verdict
			})
			for i := range list {
				if told[2*i] != told[2*i+1] {
					t.Errorf("one was told %q, the other %q", told[2*i], told[2*i+1])
				}
			}
		}
	})
}

// TestSettleManyStatements settles batches that take SQLite many statements, by users who are new and who are not; the
// one entry that is not as the others stands in the last statement.
func TestSettleManyStatements(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		const n = sqliteParameters/3 + 15 // a row of a buyer has three values
		sale := d.newSale(t, 5*n, limit(2))
		batch := func(key string, odd model.Attempt) []model.Attempt {
			list := make([]model.Attempt, 0, n)
			for i := range n - 1 {
				list = append(list, attempt(sale.ID, fmt.Sprint("u-", key[:1], (i*7919)%n), key, 1))
			}
			return append(list, odd)
		}
		accepted := make([]model.Verdict, n)
		for i := range accepted {
			accepted[i] = model.Accepted
		}
		settles := func(list []model.Attempt, last model.Verdict, repeated bool) {
			t.Helper()
			got := d.settle(t, sale.ID, list...)
			wantVerdicts(t, got, append(slices.Clone(accepted[:n-1]), last)...)
			for i, o := range got {
				if o.Repeated != repeated {
					t.Fatalf("entry %d: repeated is %t", i, o.Repeated)
				}
			}
		}
		bought := attempt(sale.ID, "zz", "k1", 2)
		settles(batch("a1", bought), model.Accepted, false)                         // all are new
		settles(batch("a2", attempt(sale.ID, "y", "k1", 2)), model.Accepted, false) // nearly all have a row, and room
		refused := batch("b1", attempt(sale.ID, "zz", "k2", 1))                     // the last has its limit
		settles(refused, model.LimitReached, false)                                 // and is refused
		settles(refused, model.LimitReached, true)                                  // for good
		settles(batch("c1", attempt(sale.ID, "x", "k1", 1)), model.Accepted, false) // new ones beside a refusal
		got := d.settle(t, sale.ID, batch("d1", bought)...)                         // one is an order
		wantVerdicts(t, got, accepted...)
		if last := got[n-1]; !last.Repeated || last.Order.ID != bought.ID {
			t.Errorf("the known one got %+v", last)
		}
		held := int64(5*(n-1)) + 2 + 2 + 1
		d.wantUnits(t, sale.ID, units{available: 5*n - held, held: held})
		if orders := d.count(t, "SELECT COUNT(*) FROM orders WHERE sale_id = ?", sale.ID); orders != 5*(n-1)+3 {
			t.Errorf("%d orders", orders)
		}
	})
}
