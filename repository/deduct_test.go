package repository

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"flashsale/model"
)

func TestDeductWritesTheOrder(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 10, limit(3))
		if _, won, err := d.NextEpoch(t.Context(), sale.ID, 1, 1, 0); err != nil || !won {
			t.Fatalf("no new epoch: %v", err)
		}
		before, a := d.now(t), attempt(sale.ID, "alice", "k", 2)
		got := d.deduct(t, sale.ID, a)[0]
		after := d.now(t)
		if got.Verdict != model.Accepted || got.Repeated || got.Order == nil {
			t.Fatalf("alice got %+v", got)
		}
		made := got.Order.CreatedAt
		if made.Before(before) || made.After(after) {
			t.Errorf("made at %s, not from %s to %s", made, before, after)
		}
		want := model.Order{
			ID: a.ID, SaleID: sale.ID, UserID: "alice", Quantity: 2, AmountCents: 3980, Currency: "CNY",
			Status: model.OrderPending, Source: model.FromDatabase, Epoch: 2, RequestKey: "k", RequestHash: a.RequestHash,
			CreatedAt: made, ExpiresAt: made.Add(900 * time.Second),
		}
		if *got.Order != want {
			t.Errorf("the outcome's order is\n%+v, want\n%+v", *got.Order, want)
		}
		if stored := d.order(t, a.ID); stored != want {
			t.Errorf("the stored order is\n%+v, want\n%+v", stored, want)
		}
		d.wantUnits(t, sale.ID, units{available: 8, held: 2})
		if n := d.live(t, sale.ID, "alice"); n != 2 {
			t.Errorf("alice has %d units", n)
		}
	})
}

// Each row says which of several reasons to refuse is told, and so in which order they are judged.
func TestDeductRefuses(t *testing.T) {
	upcoming := func(s *model.Sale) { s.StartsAt, s.EndsAt = s.StartsAt.Add(2*time.Hour), s.EndsAt.Add(2*time.Hour) }
	over := func(s *model.Sale) { s.StartsAt, s.EndsAt = s.StartsAt.Add(-2*time.Hour), s.EndsAt.Add(-2*time.Hour) }
	paused := func(s *model.Sale) { s.Status = model.SalePaused }
	closed := func(s *model.Sale) { s.Status = model.SaleClosed }
	onBoth(t, func(t *testing.T, d *testDB) {
		for name, tc := range map[string]struct {
			quota        int64
			mine, others int // units sold before, at a limit of 2
			asked        int
			edits        []func(*model.Sale)
			want         model.Verdict
		}{
			"before the start":                             {9, 0, 0, 1, []func(*model.Sale){upcoming}, model.NotStarted},
			"before the start of a paused sale":            {9, 0, 0, 1, []func(*model.Sale){upcoming, paused}, model.NotStarted},
			"before the start, at the limit":               {9, 2, 0, 1, []func(*model.Sale){upcoming}, model.NotStarted},
			"before the start of a sale without units":     {2, 0, 2, 1, []func(*model.Sale){upcoming}, model.NotStarted},
			"before the start of a closed sale":            {9, 0, 0, 1, []func(*model.Sale){upcoming, closed}, model.Ended},
			"after the end":                                {9, 0, 0, 1, []func(*model.Sale){over}, model.Ended},
			"after the end of a paused sale":               {9, 0, 0, 1, []func(*model.Sale){over, paused}, model.Ended},
			"after the end, at the limit":                  {9, 2, 0, 1, []func(*model.Sale){over}, model.Ended},
			"after the end, sold out":                      {2, 0, 2, 1, []func(*model.Sale){over}, model.Ended},
			"closed":                                       {9, 0, 0, 1, []func(*model.Sale){closed}, model.Ended},
			"closed, at the limit":                         {9, 2, 0, 1, []func(*model.Sale){closed}, model.Ended},
			"paused":                                       {9, 0, 0, 1, []func(*model.Sale){paused}, model.Paused},
			"paused, at the limit":                         {9, 2, 0, 1, []func(*model.Sale){paused}, model.Paused},
			"paused and sold out":                          {2, 0, 2, 1, []func(*model.Sale){paused}, model.Paused},
			"more than the limit at once":                  {9, 0, 0, 3, nil, model.LimitReached},
			"at the limit":                                 {9, 2, 0, 1, nil, model.LimitReached},
			"over the limit with what is held":             {9, 1, 0, 2, nil, model.LimitReached},
			"at the limit of a sale without units":         {4, 2, 2, 1, nil, model.LimitReached},
			"over the limit, and more than is left":        {4, 1, 2, 2, nil, model.LimitReached},
			"more than the limit, and nothing is left":     {2, 0, 2, 3, nil, model.LimitReached},
			"nothing is left":                              {2, 0, 2, 1, nil, model.SoldOut},
			"nothing is left, and the user has room":       {3, 1, 2, 1, nil, model.SoldOut},
			"fewer are left than asked for":                {3, 0, 2, 2, nil, model.SoldOut},
			"fewer are left, and the user just has room":   {4, 0, 3, 2, nil, model.SoldOut},
			"all is well":                                  {3, 1, 1, 1, nil, model.Accepted},
			"the last units, up to the limit, all at once": {4, 0, 2, 2, nil, model.Accepted},
		} {
			t.Run(name, func(t *testing.T) {
				sale := d.newSale(t, tc.quota, limit(2))
				if tc.mine > 0 {
					d.buy(t, sale.ID, "me", tc.mine)
				}
				for i := range tc.others {
					d.buy(t, sale.ID, fmt.Sprint("other-", i), 1)
				}
				for _, edit := range tc.edits {
					d.change(t, sale.ID, 0, edit)
				}
				before := d.stock(t, sale.ID)
				a := attempt(sale.ID, "me", "k", tc.asked)
				for i, place := range []string{"first", "again"} {
					got := d.deduct(t, sale.ID, a)[0]
					if got.Verdict != tc.want {
						t.Fatalf("%s: got %s, want %s", place, got.Verdict, tc.want)
					}
					if tc.want == model.Accepted {
						if got.Repeated != (i > 0) {
							t.Errorf("%s: repeated is %t", place, got.Repeated)
						}
						continue
					}
					if got != (model.Outcome{Verdict: tc.want}) {
						t.Errorf("%s: a refusal at the door carries more than its verdict: %+v", place, got)
					}
				}
				if tc.want == model.Accepted {
					return
				}
				if after := d.stock(t, sale.ID); after != before {
					t.Errorf("the stock was %+v and is %+v", before, after)
				}
				if _, ok, err := d.Order(t.Context(), a.ID); ok || err != nil {
					t.Errorf("a refusal at the door left something: %t, %v", ok, err)
				}
				if n := d.live(t, sale.ID, "me"); n != tc.mine {
					t.Errorf("the user has %d units against the limit, not %d", n, tc.mine)
				}
			})
		}
	})
}

func TestDeductOnAnUnknownSale(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		id := model.NewSaleID()
		got := d.deduct(t, id, attempt(id, "me", "k", 1), attempt(id, "me", "k", 1), attempt(id, "you", "k", 9))
		wantVerdicts(t, got, model.NotFound, model.NotFound, model.NotFound)
	})
}

// A refusal at the door isn't remembered: the same key is judged anew.
func TestDeductJudgesARefusedKeyAnew(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 1)
		taken := d.buy(t, sale.ID, "first", 1)
		a := attempt(sale.ID, "second", "k", 1)
		wantVerdicts(t, d.deduct(t, sale.ID, a), model.SoldOut)
		if _, verdict, err := d.Cancel(t.Context(), "first", taken.ID); err != nil || verdict != model.Accepted {
			t.Fatalf("cancel: %s, %v", verdict, err)
		}
		got := d.deduct(t, sale.ID, a)[0]
		if got.Verdict != model.Accepted || got.Repeated {
			t.Errorf("the second try got %+v", got)
		}
	})
}

func TestDeductDecidesInOrderOfArrival(t *testing.T) {
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
			"the first come":                       {2, 1, []ask{{"a", 1}, {"b", 1}, {"c", 1}}, []model.Verdict{yes, yes, out}},
			"the other way round":                  {2, 1, []ask{{"c", 1}, {"b", 1}, {"a", 1}}, []model.Verdict{yes, yes, out}},
			"a user twice at limit 1":              {5, 1, []ask{{"a", 1}, {"b", 1}, {"a", 1}}, []model.Verdict{yes, yes, full}},
			"a user's smaller wish still fits":     {9, 3, []ask{{"a", 2}, {"a", 2}, {"a", 1}}, []model.Verdict{yes, full, yes}},
			"a smaller wish takes the last unit":   {3, 2, []ask{{"a", 2}, {"b", 2}, {"c", 1}}, []model.Verdict{yes, out, yes}},
			"a unit refused leaves room":           {2, 1, []ask{{"a", 1}, {"a", 1}, {"b", 1}}, []model.Verdict{yes, full, yes}},
			"what was sold out is not held":        {1, 2, []ask{{"a", 2}, {"a", 1}}, []model.Verdict{out, yes}},
			"a wish above the limit comes first":   {2, 2, []ask{{"a", 3}, {"a", 2}}, []model.Verdict{full, yes}},
			"all refused":                          {1, 2, []ask{{"a", 2}, {"b", 2}, {"c", 3}}, []model.Verdict{out, out, full}},
			"limit before sold out, for each user": {1, 1, []ask{{"a", 1}, {"a", 1}, {"b", 1}, {"b", 2}}, []model.Verdict{yes, full, out, full}},
		} {
			t.Run(name, func(t *testing.T) {
				sale := d.newSale(t, tc.quota, limit(tc.limit))
				list := make([]model.Attempt, len(tc.asks))
				for i, a := range tc.asks {
					list[i] = attempt(sale.ID, a.user, fmt.Sprint("k", i), a.quantity)
				}
				got := d.deduct(t, sale.ID, list...)
				wantVerdicts(t, got, tc.want...)
				held := int64(0)
				for i, o := range got {
					if o.Verdict != model.Accepted {
						continue
					}
					held += int64(list[i].Quantity)
					if o.Order == nil || o.Order.ID != list[i].ID {
						t.Errorf("place %d has the order %+v", i, o.Order)
					}
				}
				d.wantUnits(t, sale.ID, units{available: tc.quota - held, held: held})
			})
		}
	})
}

func TestDeductTheSameIDTwiceInABatch(t *testing.T) {
	const yes, full, out, other = model.Accepted, model.LimitReached, model.SoldOut, model.IdempotencyMismatch
	onBoth(t, func(t *testing.T, d *testDB) {
		for name, tc := range map[string]struct {
			quota      int64
			quantities []int // of one key; the limit is 2
			want       []model.Verdict
			live       int
		}{
			"accepted":                   {5, []int{1, 1, 1}, []model.Verdict{yes, yes, yes}, 1},
			"with another wish":          {5, []int{1, 2}, []model.Verdict{yes, other}, 1},
			"over the limit":             {5, []int{3, 3}, []model.Verdict{full, full}, 0},
			"more than is left":          {1, []int{2, 2}, []model.Verdict{out, out}, 0},
			"nothing is left":            {0, []int{1, 1}, []model.Verdict{out, out}, 0},
			"over it where none is left": {0, []int{3, 3}, []model.Verdict{full, full}, 0},
		} {
			t.Run(name, func(t *testing.T) {
				sale := d.newSale(t, max(tc.quota, 1), limit(2))
				if tc.quota == 0 {
					d.buy(t, sale.ID, "first", 1)
				}
				list := make([]model.Attempt, len(tc.quantities))
				for i, n := range tc.quantities {
					list[i] = attempt(sale.ID, "me", "k", n)
				}
				got := d.deduct(t, sale.ID, list...)
				wantVerdicts(t, got, tc.want...)
				for i, o := range got {
					if o.Repeated != (i > 0) {
						t.Errorf("place %d: repeated is %t", i, o.Repeated)
					}
				}
				if n := d.live(t, sale.ID, "me"); n != tc.live {
					t.Errorf("the user has %d units, want %d", n, tc.live)
				}
			})
		}
	})
}

// A known id gets its earlier answer, before any refusal that would now apply.
func TestDeductReplaysAKnownID(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		for name, change := range map[string]func(t *testing.T, sale model.Sale, order model.Order){
			"as it was": func(*testing.T, model.Sale, model.Order) {},
			"sold out meanwhile": func(t *testing.T, sale model.Sale, _ model.Order) {
				d.buy(t, sale.ID, "you", 1)
			},
			"paused meanwhile": func(t *testing.T, sale model.Sale, _ model.Order) {
				d.change(t, sale.ID, 0, func(s *model.Sale) { s.Status = model.SalePaused })
			},
			"ended meanwhile": func(t *testing.T, sale model.Sale, _ model.Order) {
				d.change(t, sale.ID, 0, func(s *model.Sale) { s.EndsAt = s.StartsAt.Add(time.Second) })
			},
			"cancelled meanwhile": func(t *testing.T, _ model.Sale, order model.Order) {
				if _, verdict, err := d.Cancel(t.Context(), "me", order.ID); err != nil || verdict != model.Accepted {
					t.Fatalf("cancel: %s, %v", verdict, err)
				}
			},
			"paid meanwhile": func(t *testing.T, _ model.Sale, order model.Order) {
				d.pay(t, d.startPayment(t, order), "txn "+order.ID[:20])
			},
		} {
			t.Run(name, func(t *testing.T) {
				sale := d.newSale(t, 2)
				a := attempt(sale.ID, "me", "k", 1)
				first := d.deduct(t, sale.ID, a)[0]
				change(t, sale, *first.Order)
				stock, order := d.stock(t, sale.ID), d.order(t, a.ID)
				again := d.deduct(t, sale.ID, a)[0]
				if again.Verdict != model.Accepted || !again.Repeated || again.Order == nil || *again.Order != order {
					t.Errorf("again: %+v, of the order %+v", again, order)
				}
				other := a
				other.Quantity, other.RequestHash = 7, model.HashRequest(7)
				if got := d.deduct(t, sale.ID, other)[0]; got != (model.Outcome{Verdict: model.IdempotencyMismatch, Repeated: true}) {
					t.Errorf("another wish under the same key got %+v", got)
				}
				if now := d.stock(t, sale.ID); now != stock {
					t.Errorf("repeats moved the stock from %+v to %+v", stock, now)
				}
			})
		}
	})
}

// A durable refusal is known too, and is told again although units have come back.
func TestDeductReplaysADurableRefusal(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 1)
		list := attempts(sale.ID, "u", 2)
		wantVerdicts(t, d.settle(t, sale.ID, list...), model.Accepted, model.SoldOut)
		d.change(t, sale.ID, 5, nil)
		fresh := attempt(sale.ID, "new", "k", 1)
		got := d.deduct(t, sale.ID, list[1], fresh, list[0])
		wantVerdicts(t, got, model.SoldOut, model.Accepted, model.Accepted)
		for i, repeated := range []bool{true, false, true} {
			if got[i].Repeated != repeated {
				t.Errorf("place %d: repeated is %t", i, got[i].Repeated)
			}
		}
		if o := got[0].Order; o == nil || o.Status != model.OrderRejected || o.Reason != model.SoldOut || o.UserID != list[1].UserID {
			t.Errorf("the durable refusal carries %+v", o)
		}
		d.wantUnits(t, sale.ID, units{available: 4, held: 2})
	})
}

// Whatever another writer did after the read, the transaction writes nothing, and the next one sees it. If it was
// this very attempt that the other one decided, there is no race to repeat: its outcome is told at once.
func TestDeductLosesTheRace(t *testing.T) {
	type scene struct {
		d, other *testDB
		sale     model.Sale
		mine     model.Attempt
		held     model.Order // of somebody else
	}
	onBoth(t, func(t *testing.T, d *testDB) {
		for name, tc := range map[string]struct {
			meanwhile func(t *testing.T, s scene)
			want      model.Verdict // of the next try
			decided   bool          // by the other writer
		}{
			"another buyer": {func(t *testing.T, s scene) { s.other.buy(t, s.sale.ID, "rival", 1) }, model.Accepted, false},
			"the last units are sold": {func(t *testing.T, s scene) {
				s.other.buy(t, s.sale.ID, "rival", 2)
				s.other.buy(t, s.sale.ID, "rival2", 2)
			}, model.SoldOut, false},
			"a settled batch": {func(t *testing.T, s scene) {
				s.other.settle(t, s.sale.ID, attempts(s.sale.ID, "u", 4)...)
			}, model.SoldOut, false},
			"a release": {func(t *testing.T, s scene) {
				if _, verdict, err := s.other.Cancel(t.Context(), s.held.UserID, s.held.ID); err != nil || verdict != model.Accepted {
					t.Errorf("cancel: %s, %v", verdict, err)
				}
			}, model.Accepted, false},
			"a payment": {func(t *testing.T, s scene) {
				s.other.pay(t, s.other.startPayment(t, s.held), "txn")
			}, model.Accepted, false},
			"the operator pauses": {func(t *testing.T, s scene) {
				s.other.change(t, s.sale.ID, 0, func(s *model.Sale) { s.Status = model.SalePaused })
			}, model.Paused, false},
			"the operator lowers the limit": {func(t *testing.T, s scene) {
				s.other.change(t, s.sale.ID, 0, limit(1))
			}, model.LimitReached, false},
			"the operator adds units": {func(t *testing.T, s scene) { s.other.change(t, s.sale.ID, 3, nil) }, model.Accepted, false},
			"this attempt is settled": {func(t *testing.T, s scene) {
				s.other.settle(t, s.sale.ID, s.mine)
			}, model.Accepted, true},
			"this attempt is taken by another fallback": {func(t *testing.T, s scene) {
				s.other.deduct(t, s.sale.ID, s.mine)
			}, model.Accepted, true},
			"this attempt is refused as sold out": {func(t *testing.T, s scene) {
				s.other.settle(t, s.sale.ID, append(attempts(s.sale.ID, "u", 4), s.mine)...)
			}, model.SoldOut, true},
			"this attempt is refused as failed": {func(t *testing.T, s scene) {
				if _, err := s.other.Refuse(t.Context(), entries(s.mine)[0], model.ReasonFailed); err != nil {
					t.Errorf("refuse: %v", err)
				}
			}, model.ReasonFailed, true},
		} {
			t.Run(name, func(t *testing.T) {
				sale := d.newSale(t, 5, limit(2))
				s := scene{d: d, other: d.another(t), sale: sale, mine: attempt(sale.ID, "me", "k", 2)}
				s.held = d.buy(t, sale.ID, "holder", 1)
				var between model.Stock
				d.between(t, func() {
					tc.meanwhile(t, s)
					between = s.other.stock(t, sale.ID)
				})
				got, err := d.Deduct(t.Context(), sale.ID, []model.Attempt{s.mine})
				switch {
				case !tc.decided && !errors.Is(err, model.ErrLostRace):
					t.Errorf("got %+v, %v, want a lost race", got, err)
				case tc.decided && (err != nil || got[0].Verdict != tc.want || !got[0].Repeated):
					t.Errorf("got %+v, %v, want %s, repeated", got, err, tc.want)
				}
				if after := d.stock(t, sale.ID); after != between {
					t.Errorf("the loser moved the stock from %+v to %+v", between, after)
				}
				then := d.deduct(t, sale.ID, s.mine)[0]
				if then.Verdict != tc.want || then.Repeated != tc.decided {
					t.Errorf("then got %s, repeated %t, want %s, %t", then.Verdict, then.Repeated, tc.want, tc.decided)
				}
			})
		}
	})
}

// The commonest answers of a rush, refusals and repeats, need no transaction: they write nothing and wait for no
// writer.
func TestDeductAnswersWithoutATransaction(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		soldOut, paused, open := d.newSale(t, 1), d.newSale(t, 1), d.newSale(t, 1)
		known := attempt(soldOut.ID, "first", "k", 1)
		d.deduct(t, soldOut.ID, known)
		d.change(t, paused.ID, 0, func(s *model.Sale) { s.Status = model.SalePaused })
		began := false
		d.between(t, func() { began = true })
		for _, tc := range []struct {
			name   string
			saleID string
			list   []model.Attempt
			want   []model.Verdict
		}{
			{"an unknown sale", known.ID[16:32], []model.Attempt{attempt(known.ID[16:32], "me", "k", 1)}, []model.Verdict{model.NotFound}},
			{"a paused sale", paused.ID, []model.Attempt{attempt(paused.ID, "me", "k", 1)}, []model.Verdict{model.Paused}},
			{"sold out", soldOut.ID, attempts(soldOut.ID, "u", 2), []model.Verdict{model.SoldOut, model.SoldOut}},
			{"at the limit, sold out", soldOut.ID, []model.Attempt{attempt(soldOut.ID, "first", "k2", 1)}, []model.Verdict{model.LimitReached}},
			{"a repeat", soldOut.ID, []model.Attempt{known}, []model.Verdict{model.Accepted}},
			{"nobody", soldOut.ID, nil, []model.Verdict{}},
		} {
			t.Run(tc.name, func(t *testing.T) {
				wantVerdicts(t, d.deduct(t, tc.saleID, tc.list...), tc.want...)
				if began {
					t.Error("it began a transaction")
				}
			})
		}
		if began = false; d.race(t, open.ID, attempts(open.ID, "u", 1)...)[0].Verdict != model.Accepted || !began {
			t.Errorf("it sells no more, or without a transaction: %t", began)
		}
	})
}

// The units of a rush are sold to the last one and no further, however its attempts are batched.
func TestDeductSellsExactlyTheQuota(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		for name, tc := range map[string]struct {
			quota    int64
			crowd    int
			batch    int // attempts that one goroutine deducts at once
			quantity int
		}{
			"one at a time":            {quota: 20, crowd: 40, batch: 1, quantity: 1},
			"in batches":               {quota: 65, crowd: 12, batch: 7, quantity: 1},
			"pairs of an odd quota":    {quota: 31, crowd: 20, batch: 1, quantity: 2},
			"fewer buyers than units":  {quota: 50, crowd: 10, batch: 2, quantity: 2},
			"a single unit, all at it": {quota: 1, crowd: 50, batch: 1, quantity: 1},
		} {
			t.Run(name, func(t *testing.T) {
				sale, stores := d.newSale(t, tc.quota, limit(3)), []*testDB{d, d.peer(t)}
				outcomes := make([][]model.Outcome, tc.crowd)
				together(tc.crowd, func(i int) {
					list := attempts(sale.ID, fmt.Sprint("crowd-", i), tc.batch)
					for j := range list {
						list[j] = attempt(sale.ID, list[j].UserID, "k", tc.quantity)
					}
					outcomes[i] = stores[i%2].race(t, sale.ID, list...)
				})
				counts := tally(slices.Concat(outcomes...))
				wishes := tc.crowd * tc.batch
				want := min(wishes, int(tc.quota)/tc.quantity)
				if counts[model.Accepted] != want || counts[model.SoldOut] != wishes-want {
					t.Errorf("%d wishes for %d of %d units ended as %v", wishes, tc.quantity, tc.quota, counts)
				}
				held := int64(want * tc.quantity)
				d.wantUnits(t, sale.ID, units{available: tc.quota - held, held: held})
			})
		}
	})
}

// One user's parallel requests: under other keys only the limit is bought, under one key all meet at one order.
func TestDeductOneUserInParallel(t *testing.T) {
	const requests = 20
	onBoth(t, func(t *testing.T, d *testDB) {
		for name, tc := range map[string]struct {
			key  func(i int) string
			want map[model.Verdict]int
		}{
			"under a key each": {func(i int) string { return fmt.Sprint("k", i) }, map[model.Verdict]int{model.Accepted: 1, model.LimitReached: requests - 1}},
			"under one key":    {func(int) string { return "k" }, map[model.Verdict]int{model.Accepted: requests}},
		} {
			t.Run(name, func(t *testing.T) {
				sale, stores := d.newSale(t, 100), []*testDB{d, d.peer(t)}
				outcomes := make([]model.Outcome, requests)
				together(requests, func(i int) {
					outcomes[i] = stores[i%2].race(t, sale.ID, attempt(sale.ID, "me", tc.key(i), 1))[0]
				})
				if got := tally(outcomes); fmt.Sprint(got) != fmt.Sprint(tc.want) {
					t.Errorf("got %v, want %v", got, tc.want)
				}
				first := 0
				for _, o := range outcomes {
					if o.Verdict == model.Accepted && !o.Repeated {
						first++
					}
				}
				if first != 1 {
					t.Errorf("%d answers say that they made the order", first)
				}
				d.wantUnits(t, sale.ID, units{available: 99, held: 1})
			})
		}
	})
}

// Identifiers that differ in their case only belong to two users and two requests, as they do in Redis.
func TestIdentifiersCompareByteByByte(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 9, limit(2))
		got := d.deduct(t, sale.ID, attempt(sale.ID, "alice", "key", 2), attempt(sale.ID, "Alice", "key", 1), attempt(sale.ID, "Alice", "KEY", 1))
		wantVerdicts(t, got, model.Accepted, model.Accepted, model.Accepted)
		for user, want := range map[string]int{"alice": 2, "Alice": 2, "ALICE": 0} {
			if n := d.live(t, sale.ID, user); n != want {
				t.Errorf("%s has %d units, want %d", user, n, want)
			}
			list, _, err := d.Orders(t.Context(), model.OrderFilter{UserID: user, Limit: 10})
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range list {
				if o.UserID != user {
					t.Errorf("%s sees an order of %s", user, o.UserID)
				}
			}
		}
	})
}

// What slips past the front door stops at the schema.
func TestDeductOfNoUnitsChangesNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		for _, quantity := range []int{0, -1, -5} {
			t.Run(fmt.Sprint(quantity), func(t *testing.T) {
				sale := d.newSale(t, 5)
				d.buy(t, sale.ID, "you", 1)
				before := d.stock(t, sale.ID)
				if got, err := d.Deduct(t.Context(), sale.ID, []model.Attempt{attempt(sale.ID, "me", "k", quantity)}); err == nil {
					t.Errorf("got %+v", got)
				}
				if after := d.stock(t, sale.ID); after != before {
					t.Errorf("the stock was %+v and is %+v", before, after)
				}
			})
		}
	})
}
