package repository

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit/check"
)

func TestEachWayWritesTheOrder(t *testing.T) {
	onEach(t, allWays, func(t *testing.T, d *testDB, by way) {
		sale := d.newSale(t, 10, limit(3))
		d.nextEpoch(t, sale.ID, 1)
		version := d.stock(t, sale.ID).Version
		before, a := d.now(t), attempt(sale.ID, "alice", "k", 2)
		got := d.take(t, by, a)[0]
		after := d.now(t)
		if got.Verdict != model.Accepted || got.Repeated || got.Order == nil {
			t.Fatalf("alice got %+v", got)
		}
		made := got.Order.CreatedAt
		if made.Before(before) || made.After(after) {
			t.Errorf("the order was made at %s, not from %s to %s", made, before, after)
		}
		want := model.Order{
			ID: a.ID, SaleID: sale.ID, UserID: "alice", Quantity: 2, AmountCents: 3980, Currency: "CNY",
			Status: model.OrderPending, Source: model.FromDatabase, Epoch: 2, IdempotencyKey: "k",
			CreatedAt: made, ExpiresAt: made.Add(900 * time.Second),
		}
		if by.name == "settle" {
			want.Source, want.Epoch = model.FromStream, 1 // the epoch of the entry
		}
		check.Same(t, "the outcome's order", *got.Order, want)
		check.Same(t, "the stored order", d.order(t, a.ID), want)
		d.wantUnits(t, sale.ID, units{available: 8, held: 2})
		check.Same(t, "version of the stock", d.stock(t, sale.ID).Version, version+1)
		check.Same(t, "alice's units", d.live(t, sale.ID, "alice"), 2)
	})
}

// Each row says whether the buyer is told of the limit or of the stock. A refusal changes nothing and is not stored, so the
// same key is judged again. TestRefusalOrder of the package strategy has the order of all reasons.
func TestEachWayRefuses(t *testing.T) {
	const full, out = model.LimitReached, model.SoldOut
	type row struct {
		quota        int64
		mine, others int // units sold before, at a limit of 2
		asked        int
		want         model.Verdict
	}
	tests := map[string]row{
		"more than the limit at once":                   {9, 0, 0, 3, full},
		"at the limit":                                  {9, 2, 0, 1, full},
		"over the limit with the held units":            {9, 1, 0, 2, full},
		"at the limit of a sale without units":          {4, 2, 2, 1, full},
		"over the limit, and more than is left":         {4, 1, 2, 2, full},
		"more than the limit, and nothing is left":      {2, 0, 2, 3, full},
		"nothing is left":                               {2, 0, 2, 1, out},
		"nothing is left, and the limit allows a unit":  {3, 1, 2, 1, out},
		"fewer are left than asked for":                 {3, 0, 2, 2, out},
		"fewer are left, and the limit just allows all": {4, 0, 3, 2, out},
		"units and limit suffice":                       {3, 1, 1, 1, model.Accepted},
		"the last units, up to the limit, all at once":  {4, 0, 2, 2, model.Accepted},
	}
	onEach(t, fromDatabase, func(t *testing.T, d *testDB, by way) {
		check.Each(t, tests, func(t *testing.T, tc row) {
			sale := d.newSale(t, tc.quota, limit(2))
			if tc.mine > 0 {
				d.buy(t, sale.ID, "me", tc.mine)
			}
			for i := range tc.others {
				d.buy(t, sale.ID, fmt.Sprint("other-", i), 1)
			}
			before, a := d.stock(t, sale.ID), attempt(sale.ID, "me", "k", tc.asked)
			first, again := d.take(t, by, a)[0], d.take(t, by, a)[0]
			if tc.want == model.Accepted {
				wantVerdicts(t, []model.Outcome{first, again}, tc.want, tc.want)
				wantRepeated(t, []model.Outcome{first, again}, false, true)
				return
			}
			check.Same(t, "the first outcome", first, model.Outcome{Verdict: tc.want})
			check.Same(t, "the second outcome", again, model.Outcome{Verdict: tc.want})
			check.Same(t, "the stock after it", d.stock(t, sale.ID), before)
			d.noOrder(t, a)
			check.Same(t, "the user's units", d.live(t, sale.ID, "me"), tc.mine)
			check.Same(t, "rows of the user", d.buyers(t, a), int64(min(tc.mine, 1)))
		})
		id := model.NewSaleID()
		got := d.take(t, by, attempt(id, "me", "k", 1), attempt(id, "me", "k", 1), attempt(id, "you", "k", 9))
		wantVerdicts(t, got, model.NotFound, model.NotFound, model.NotFound)
	})
}

// buyers counts the rows of the user of an attempt.
func (d *testDB) buyers(t *testing.T, a model.Attempt) int64 {
	t.Helper()
	return d.count(t, "SELECT COUNT(*) FROM buyers WHERE sale_id = ? AND user_id = ?", a.SaleID, a.UserID)
}

type verdictList = []model.Verdict

// batchCase is a batch of attempts on a sale of which some units are sold.
type batchCase struct {
	sold, left int64
	limit      int
	asks       []ask
	want       verdictList
}

type ask struct {
	user, key string
	quantity  int
}

// testBatches decides each batch by each way. Refused attempts keep nothing: once units are available again, the users who
// were told that all are sold buy up to the limit.
func testBatches(t *testing.T, tests map[string]batchCase) {
	t.Helper()
	onEach(t, inBatches, func(t *testing.T, d *testDB, by way) {
		check.Each(t, tests, func(t *testing.T, tc batchCase) {
			sale := d.newSale(t, tc.sold+tc.left, limit(tc.limit))
			for i := range tc.sold {
				d.buy(t, sale.ID, fmt.Sprint("other-", i), 1)
			}
			list := make([]model.Attempt, len(tc.asks))
			for i, a := range tc.asks {
				list[i] = attempt(sale.ID, a.user, a.key, a.quantity)
			}
			got := d.take(t, by, list...)
			wantVerdicts(t, got, tc.want...)
			live, held, seen := map[string]int{}, 0, map[string]bool{}
			for i, a := range list {
				check.Same(t, fmt.Sprintf("repeated of attempt %d", i), got[i].Repeated, seen[a.ID])
				switch {
				case tc.want[i] == model.Accepted:
					check.Same(t, "the outcome's order", *got[i].Order, d.order(t, a.ID))
					if !seen[a.ID] {
						live[a.UserID], held = live[a.UserID]+a.Quantity, held+a.Quantity
					}
				case tc.want[i] == model.IdempotencyMismatch:
				case by.name == "deduct":
					d.noOrder(t, a)
				default: // the refusals of a settle are durable
					o := d.order(t, a.ID)
					if o.Status != model.OrderRejected || o.Reason != tc.want[i] || o.Quantity != a.Quantity ||
						o.CreatedAt.Before(sale.StartsAt) {
						t.Errorf("attempt %d has the refusal %+v, want the reason %s", i, o, tc.want[i])
					}
				}
				seen[a.ID] = true
			}
			d.wantUnits(t, sale.ID, units{available: tc.left - int64(held), held: tc.sold + int64(held)})
			if by.name == "settle" {
				before := d.stock(t, sale.ID)
				wantVerdicts(t, d.settle(t, list...), tc.want...)
				check.Same(t, "the stock after a second delivery", d.stock(t, sale.ID), before)
			}
			d.change(t, sale.ID, 20)
			for i, a := range list {
				check.Same(t, "units of "+a.UserID, d.live(t, sale.ID, a.UserID), live[a.UserID])
				if room := tc.limit - live[a.UserID]; tc.want[i] == model.SoldOut && room > 0 {
					wantVerdicts(t, d.take(t, by, attempt(sale.ID, a.UserID, "again", room)), model.Accepted)
					live[a.UserID] = tc.limit
				}
			}
		})
	})
}

// The attempts of a batch get units in the order of their arrival.
func TestBatchesAreDecidedInOrder(t *testing.T) {
	const yes, full, out = model.Accepted, model.LimitReached, model.SoldOut
	a1, b1, c1, d1 := ask{"a", "1", 1}, ask{"b", "1", 1}, ask{"c", "1", 1}, ask{"d", "1", 1}
	a2, b2, a3 := ask{"a", "2", 1}, ask{"b", "2", 2}, ask{"a", "3", 1}
	double, twice := ask{"a", "1", 2}, ask{"a", "2", 2}
	testBatches(t, map[string]batchCase{
		"all fit":                                   {0, 3, 1, []ask{a1, b1, c1}, verdictList{yes, yes, yes}},
		"the first attempts get the units":          {0, 2, 1, []ask{a1, b1, c1, d1}, verdictList{yes, yes, out, out}},
		"the first attempts, by descending users":   {0, 2, 1, []ask{c1, b1, a1}, verdictList{yes, yes, out}},
		"a user twice at limit 1":                   {0, 5, 1, []ask{a1, b1, a2}, verdictList{yes, yes, full}},
		"a smaller quantity is within the limit":    {0, 9, 3, []ask{double, twice, a3}, verdictList{yes, full, yes}},
		"a smaller quantity takes the last unit":    {0, 3, 2, []ask{double, b2, c1}, verdictList{yes, out, yes}},
		"a refused attempt leaves its unit":         {0, 2, 1, []ask{a1, a2, b1}, verdictList{yes, full, yes}},
		"a sold-out attempt uses no limit":          {0, 1, 2, []ask{double, a2}, verdictList{out, yes}},
		"a quantity above the limit comes first":    {0, 2, 2, []ask{{"a", "1", 3}, twice}, verdictList{full, yes}},
		"nothing fits":                              {0, 1, 2, []ask{double, b2, {"c", "1", 3}}, verdictList{out, out, full}},
		"over both, each user is told of the limit": {0, 1, 1, []ask{a1, a2, b1, b2}, verdictList{yes, full, out, full}},
	})
}

func TestTheSameIDTwiceInABatch(t *testing.T) {
	const yes, full, out, other = model.Accepted, model.LimitReached, model.SoldOut, model.IdempotencyMismatch
	one, two, three := ask{"me", "k", 1}, ask{"me", "k", 2}, ask{"me", "k", 3}
	testBatches(t, map[string]batchCase{
		"accepted":                          {0, 5, 2, []ask{one, one, one}, verdictList{yes, yes, yes}},
		"with another quantity":             {0, 5, 2, []ask{one, two}, verdictList{yes, other}},
		"over the limit":                    {0, 5, 2, []ask{three, three}, verdictList{full, full}},
		"more than is left":                 {0, 1, 2, []ask{two, two}, verdictList{out, out}},
		"nothing is left":                   {1, 0, 2, []ask{one, one}, verdictList{out, out}},
		"over the limit, and none are left": {1, 0, 2, []ask{three, three}, verdictList{full, full}},
	})
}

// A known id gets its earlier answer, before any refusal that would apply now, and moves nothing.
func TestEachWayReplaysAKnownID(t *testing.T) {
	onEach(t, allWays, func(t *testing.T, d *testDB, by way) {
		changes := map[string]func(t *testing.T, order model.Order){
			"as it was":           func(*testing.T, model.Order) {},
			"sold out meanwhile":  func(t *testing.T, o model.Order) { d.buy(t, o.SaleID, "you", 1) },
			"paused meanwhile":    func(t *testing.T, o model.Order) { d.change(t, o.SaleID, 0, status(model.SalePaused)) },
			"ended meanwhile":     func(t *testing.T, o model.Order) { d.change(t, o.SaleID, 0, shift(-2*time.Hour)) },
			"cancelled meanwhile": func(t *testing.T, o model.Order) { d.cancel(t, o) },
			"paid meanwhile":      func(t *testing.T, o model.Order) { d.payFor(t, o) },
		}
		check.Each(t, changes, func(t *testing.T, change func(t *testing.T, order model.Order)) {
			sale := d.newSale(t, 2)
			a := attempt(sale.ID, "me", "k", 1)
			change(t, *d.take(t, by, a)[0].Order)
			stock, order := d.stock(t, sale.ID), d.order(t, a.ID)
			check.Same(t, "the repeat", d.take(t, by, a)[0], model.Outcome{Verdict: model.Accepted, Order: &order, Repeated: true})
			other := a
			other.Quantity = 7
			mismatch := model.Outcome{Verdict: model.IdempotencyMismatch, Repeated: true}
			check.Same(t, "another request under the same key", d.take(t, by, other)[0], mismatch)
			check.Same(t, "the stock after the repeats", d.stock(t, sale.ID), stock)
		})
	})
}

// A durable refusal is repeated, although units are available again.
func TestEachWayReplaysADurableRefusal(t *testing.T) {
	onEach(t, allWays, func(t *testing.T, d *testDB, by way) {
		sale := d.newSale(t, 1)
		list := attempts(sale.ID, "u", 2)
		wantVerdicts(t, d.settle(t, list...), model.Accepted, model.SoldOut)
		d.change(t, sale.ID, 5)
		got := d.take(t, by, list[1], attempt(sale.ID, "new", "k", 1), list[0])
		wantVerdicts(t, got, model.SoldOut, model.Accepted, model.Accepted)
		wantRepeated(t, got, true, false, true)
		o := got[0].Order
		if o == nil || o.Status != model.OrderRejected || o.Reason != model.SoldOut || o.UserID != list[1].UserID {
			t.Errorf("the durable refusal has the order %+v", o)
		}
		d.wantUnits(t, sale.ID, units{available: 4, held: 2})
	})
}

// meanwhile is what another writer changes after an attempt for 2 units has read, and before its transaction. The
// limit per user is 2.
type meanwhile struct {
	quota   int64 // another user holds one unit of it
	do      func(t *testing.T, s scene)
	want    model.Verdict // of the attempt, judged after that
	decided bool          // the other writer has decided the attempt
}

type scene struct {
	other *testDB
	sale  string
	mine  model.Attempt
	held  model.Order // of another user
}

// meanwhiles matter to all attempts in the same way.
var meanwhiles = map[string]meanwhile{
	"another buyer":          {5, func(t *testing.T, s scene) { s.other.buy(t, s.sale, "rival", 1) }, model.Accepted, false},
	"all but these are sold": {5, func(t *testing.T, s scene) { s.other.buy(t, s.sale, "rival", 2) }, model.Accepted, false},
	"all but one are sold": {5, func(t *testing.T, s scene) {
		s.other.buy(t, s.sale, "rival", 2)
		s.other.buy(t, s.sale, "rival2", 1)
	}, model.SoldOut, false},
	"a settled batch takes all units": {5, func(t *testing.T, s scene) {
		s.other.settle(t, attempts(s.sale, "u", 4)...)
	}, model.SoldOut, false},
	"units are sold, and one is released": {5, func(t *testing.T, s scene) {
		s.other.buy(t, s.sale, "rival", 2)
		s.other.buy(t, s.sale, "rival2", 1)
		s.other.cancel(t, s.held)
	}, model.Accepted, false},
	"a release":                {5, func(t *testing.T, s scene) { s.other.cancel(t, s.held) }, model.Accepted, false},
	"this attempt is settled":  {5, func(t *testing.T, s scene) { s.other.settle(t, s.mine) }, model.Accepted, true},
	"this attempt is deducted": {5, func(t *testing.T, s scene) { s.other.deduct(t, s.mine) }, model.Accepted, true},
	"this attempt is refused as sold out": {5, func(t *testing.T, s scene) {
		s.other.settle(t, append(attempts(s.sale, "u", 4), s.mine)...)
	}, model.SoldOut, true},
	"this attempt is refused as failed": {5, func(t *testing.T, s scene) {
		s.other.refuse(t, s.mine, model.ReasonFailed)
	}, model.ReasonFailed, true},
}

// arrange makes a sale and lets the other writer act before the next transaction of d. It returns the stock and the
// number of the buyer's rows that the other writer leaves.
func (d *testDB) arrange(t *testing.T, m meanwhile) (s scene, stock *model.Stock, buyers *int64) {
	t.Helper()
	sale := d.newSale(t, m.quota, limit(2))
	s = scene{other: d.another(t), sale: sale.ID, mine: attempt(sale.ID, "me", "k", 2), held: d.buy(t, sale.ID, "holder", 1)}
	stock, buyers = new(model.Stock), new(int64)
	d.between(func() {
		m.do(t, s)
		*stock, *buyers = s.other.stock(t, s.sale), s.other.buyers(t, s.mine)
	})
	return s, stock, buyers
}

// A Deduct that loses the race writes nothing, and the next one sees the change. If the other writer has decided this
// attempt, its outcome is told at once.
func TestDeductLosesTheRace(t *testing.T) {
	rows := maps.Clone(meanwhiles)
	rows["the operator pauses"] = meanwhile{5, func(t *testing.T, s scene) {
		s.other.change(t, s.sale, 0, status(model.SalePaused))
	}, model.Paused, false}
	rows["the operator lowers the limit"] = meanwhile{5, func(t *testing.T, s scene) {
		s.other.change(t, s.sale, 0, limit(1))
	}, model.LimitReached, false}
	onBoth(t, func(t *testing.T, d *testDB) {
		check.Each(t, rows, func(t *testing.T, row meanwhile) {
			s, left, _ := d.arrange(t, row)
			got, err := deducting.try(t.Context(), d, s.mine)
			switch {
			case !row.decided && !errors.Is(err, model.ErrLostRace):
				t.Errorf("got %+v, %v, want a lost race", got, err)
			case row.decided && (err != nil || got[0].Verdict != row.want || !got[0].Repeated):
				t.Errorf("got %+v, %v, want %s, repeated", got, err, row.want)
			}
			check.Same(t, "the stock", d.stock(t, s.sale), *left)
			next := d.deduct(t, s.mine)
			wantVerdicts(t, next, row.want)
			wantRepeated(t, next, row.decided)
		})
	})
}

// DeductLocked decides by the units in the locked row. If the sale was changed since it was read, it is read again.
func TestLockedDecidesByTheLockedRow(t *testing.T) {
	rows := maps.Clone(meanwhiles)
	rows["the operator pauses"] = meanwhile{5, func(t *testing.T, s scene) {
		s.other.change(t, s.sale, 0, status(model.SalePaused))
	}, model.Paused, false}
	rows["too few are left, and the operator adds one"] = meanwhile{2, func(t *testing.T, s scene) {
		s.other.change(t, s.sale, 1)
	}, model.Accepted, false}
	rows["the user buys elsewhere"] = meanwhile{5, func(t *testing.T, s scene) {
		s.other.buy(t, s.sale, "me", 1)
	}, model.LimitReached, false}
	onBoth(t, func(t *testing.T, d *testDB) {
		check.Each(t, rows, func(t *testing.T, row meanwhile) {
			s, left, buyers := d.arrange(t, row)
			got := d.take(t, locking, s.mine)
			wantVerdicts(t, got, row.want)
			wantRepeated(t, got, row.decided)
			want := *left
			if row.want == model.Accepted && !row.decided {
				want.Available, want.Held, want.Version = want.Available-2, want.Held+2, want.Version+1
				want.GateVersion = want.Version
			} else {
				check.Same(t, "rows of the buyer", d.buyers(t, s.mine), *buyers)
			}
			check.Same(t, "the stock", d.stock(t, s.sale), want)
		})
	})
}

// Refusals and repeats, the most frequent answers of a rush, need no transaction: they write nothing and wait for no
// writer.
func TestRefusalsAndRepeatsNeedNoTransaction(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		open, soldOut, paused := d.newSale(t, 5), d.newSale(t, 1), d.newSale(t, 1)
		known, last := attempt(open.ID, "me", "k", 1), attempt(soldOut.ID, "first", "k", 1)
		d.deduct(t, known)
		d.deduct(t, last)
		d.change(t, paused.ID, 0, status(model.SalePaused))
		began := false
		d.between(func() { began = true })
		for name, tc := range map[string]struct {
			attempt  model.Attempt
			want     model.Verdict
			repeated bool
		}{
			"an unknown sale":        {attempt(model.NewSaleID(), "me", "k", 1), model.NotFound, false},
			"a paused sale":          {attempt(paused.ID, "me", "k", 1), model.Paused, false},
			"sold out":               {attempt(soldOut.ID, "you", "k", 1), model.SoldOut, false},
			"at the limit, sold out": {attempt(soldOut.ID, "first", "k2", 1), model.LimitReached, false},
			"a repeat":               {known, model.Accepted, true},
			"a repeat, sold out":     {last, model.Accepted, true},
		} {
			for _, by := range fromDatabase {
				if by.name == "deduct" && name == "a repeat" {
					continue // while units are left, Deduct first assumes that all attempts are new
				}
				got := d.take(t, by, tc.attempt)[0]
				if got.Verdict != tc.want || got.Repeated != tc.repeated || began {
					t.Errorf("%s, %s: got %+v; a transaction began: %t", by.name, name, got, began)
				}
			}
		}
		wantVerdicts(t, d.deduct(t, attempts(soldOut.ID, "u", 2)...), model.SoldOut, model.SoldOut)
		if got, err := d.Deduct(t.Context(), open.ID, nil); len(got) > 0 || err != nil || began {
			t.Errorf("no attempts got %+v, %v; a transaction began: %t", got, err, began)
		}
		wantVerdicts(t, d.retry(t, deducting, attempts(open.ID, "u", 1)...), model.Accepted)
		if !began {
			t.Error("an order was written without a transaction")
		}
	})
}

// Crowds decide batches at the same time, on two instances. Exactly the quota is sold. All outcomes of an attempt agree,
// and one of them says that it made the order.
func TestCrowds(t *testing.T) {
	type counts = map[model.Verdict]int
	type batches = func(saleID string, i int) (by way, list []model.Attempt)
	const yes, full, out = model.Accepted, model.LimitReached, model.SoldOut
	// own gives each goroutine n attempts of users of its own.
	own := func(n, quantity int, ways ...way) batches {
		return func(saleID string, i int) (by way, list []model.Attempt) {
			for j := range n {
				list = append(list, attempt(saleID, fmt.Sprint("u", i, "-", j), "k", quantity))
			}
			return ways[i%len(ways)], list
		}
	}
	// same gives all goroutines the same attempts, for one unit each.
	same := func(users, keys int, ways ...way) batches {
		return func(saleID string, i int) (by way, list []model.Attempt) {
			for key := range keys {
				for user := range users {
					list = append(list, attempt(saleID, fmt.Sprint("u", user), fmt.Sprint("k", key), 1))
				}
			}
			return ways[i%len(ways)], list
		}
	}
	keyEach := func(saleID string, i int) (by way, list []model.Attempt) {
		return deducting, []model.Attempt{attempt(saleID, "me", fmt.Sprint("k", i), 1)}
	}
	type row struct {
		rounds  int
		quota   int64
		limit   int
		crowd   int
		batches batches
		want    counts
	}
	tests := map[string]row{
		"one at a time":                     {1, 20, 3, 40, own(1, 1, deducting), counts{yes: 20, out: 20}},
		"in batches":                        {1, 65, 3, 12, own(7, 1, deducting), counts{yes: 65, out: 19}},
		"pairs of an odd quota":             {1, 31, 3, 20, own(1, 2, deducting), counts{yes: 15, out: 5}},
		"fewer buyers than units":           {1, 50, 3, 10, own(2, 2, deducting), counts{yes: 20}},
		"a single unit":                     {1, 1, 3, 50, own(1, 1, deducting), counts{yes: 1, out: 49}},
		"deducted and settled":              {1, 77, 1, 12, own(10, 1, deducting, settling, settling), counts{yes: 77, out: 43}},
		"one user, a key each":              {1, 100, 1, 20, keyEach, counts{yes: 1, full: 19}},
		"one user, one key":                 {1, 100, 1, 20, same(1, 1, deducting), counts{yes: 20}},
		"the same, both ways":               {12, 48, 1, 3, same(4, 1, deducting, deducting, settling), counts{yes: 12}},
		"the same, both ways, below limit":  {12, 48, 2, 3, same(4, 1, deducting, deducting, settling), counts{yes: 12}},
		"the same batch":                    {4, 20, 1, 5, same(20, 1, settling), counts{yes: 5 * 20}},
		"the same batch, below the limit":   {4, 20, 3, 5, same(20, 1, settling), counts{yes: 5 * 20}},
		"the same batch, above the stock":   {4, 15, 1, 5, same(20, 1, settling), counts{yes: 5 * 15, out: 5 * 5}},
		"the same batch, above the limit":   {4, 50, 1, 5, same(10, 2, settling), counts{yes: 5 * 10, full: 5 * 10}},
		"the same batch, above both":        {4, 15, 2, 5, same(10, 3, settling), counts{yes: 5 * 15, full: 5 * 5, out: 5 * 10}},
		"the same batch, for a single unit": {4, 1, 3, 5, same(4, 1, settling), counts{yes: 5, out: 5 * 3}},
	}
	onBoth(t, func(t *testing.T, d *testDB) {
		stores := d.pair(t)
		check.Each(t, tests, func(t *testing.T, tc row) {
			for range tc.rounds {
				sale := d.newSale(t, tc.quota, limit(tc.limit))
				outcomes := check.Collect(tc.crowd, func(i int) []model.Outcome {
					by, list := tc.batches(sale.ID, i)
					return stores[i%2].retry(t, by, list...)
				})
				check.Same(t, "outcomes", tally(slices.Concat(outcomes...)), tc.want)
				verdicts, made, held := map[string]model.Verdict{}, map[string]int{}, int64(0)
				for i := range outcomes {
					_, list := tc.batches(sale.ID, i)
					for j, o := range outcomes[i] {
						a := list[j]
						check.Same(t, "an outcome and an earlier one", o.Verdict, cmp.Or(verdicts[a.ID], o.Verdict))
						verdicts[a.ID] = o.Verdict
						if o.Verdict == yes {
							check.Same(t, "the order", o.Order.ID, a.ID)
						}
						if o.Verdict == yes && !o.Repeated {
							made[a.ID]++
							held += int64(a.Quantity)
						}
					}
				}
				for id, verdict := range verdicts {
					check.Same(t, "how often an order was made", made[id], map[bool]int{true: 1}[verdict == yes])
				}
				d.wantUnits(t, sale.ID, units{available: tc.quota - held, held: held})
			}
		})
	})
}

// As in Redis, identifiers that differ only in case belong to different users and requests.
func TestIdentifiersCompareByteByByte(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 9, limit(2))
		lower := attempt(sale.ID, "alice", "key", 2)
		got := d.deduct(t, lower, attempt(sale.ID, "Alice", "key", 1), attempt(sale.ID, "Alice", "KEY", 1))
		wantVerdicts(t, got, model.Accepted, model.Accepted, model.Accepted)
		for user, want := range map[string]int{"alice": 2, "Alice": 2, "ALICE": 0} {
			check.Same(t, "units of "+user, d.live(t, sale.ID, user), want)
			list, _, err := d.Orders(t.Context(), model.OrderFilter{UserID: user, Limit: 10})
			check.NoError(t, err)
			for _, o := range list {
				check.Same(t, "the owner of an order of "+user, o.UserID, user)
			}
		}
	})
}
