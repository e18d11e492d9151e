package strategy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/service"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
)

// traits are the differences between strategies that buyers or operators can see.
type traits struct {
	gate         bool // takes units at the gate, which also counts requests; the settler writes the orders
	withoutRedis bool // sells while Redis is away
	remembers    bool // refuses from memory, and offers released units a little later
	oversells    bool // if two attempts come at once
	alone        bool // oversells if another instance uses the same database
}

var traitsOf = map[string]traits{
	"naive":       {withoutRedis: true, oversells: true, alone: true},
	"mutex":       {withoutRedis: true, alone: true},
	"pessimistic": {withoutRedis: true},
	"optimistic":  {withoutRedis: true},
	"redis":       {gate: true},
	"local":       {gate: true, remembers: true},
	"hybrid":      {gate: true, withoutRedis: true},
}

// eachStrategy runs a test with every strategy on every pair of stores. Strategies that use gates also run with gates in
// six shards.
func eachStrategy(t *testing.T, run func(e *engine, has traits)) {
	t.Helper()
	strategies := func(s *stores) {
		for _, name := range Names() {
			if has := traitsOf[name]; s.shards == 1 || has.gate {
				s.Run(name, func(t *testing.T) { run(s.with(t).engine(name), has) })
			}
		}
	}
	eachPair(t, strategies)
	t.Run("gates in six shards", func(t *testing.T) {
		t.Parallel()
		s := open(t, kit.Stores{Database: kit.SQLite(t), Redis: kit.Redis(t).URL()})
		s.shards = 6
		strategies(s)
	})
}

// eachSafe leaves out the strategies that oversell when two attempts come at once.
func eachSafe(t *testing.T, run func(e *engine, has traits)) {
	t.Helper()
	eachStrategy(t, func(e *engine, has traits) {
		if !has.oversells {
			run(e, has)
		}
	})
}

// condition is a reason to refuse one unit to the user "buyer" on a sale of 4 units, 2 for each user.
type condition struct {
	name string
	want model.Verdict
	open bool // can only be made while the sale is open
	make func(e *engine, o model.Offer)
}

// conditions returns them in the order in which every strategy must judge them.
func conditions() []condition {
	window := func(start, end time.Duration) func(*engine, model.Offer) {
		return func(e *engine, o model.Offer) {
			from, to := time.Now().Add(start), time.Now().Add(end)
			_, verdict, invalid, err := e.sales.Patch(e.Context(), o.ID, service.SalePatch{CampaignPatch: service.CampaignPatch{StartsAt: &from, EndsAt: &to}}, "tester")
			if verdict != model.Accepted || err != nil {
				e.Fatalf("move the window: %s %+v %v", verdict, invalid, err)
			}
		}
	}
	status := func(s model.SaleStatus) func(*engine, model.Offer) {
		return func(e *engine, o model.Offer) { e.setStatus(o, s) }
	}
	return []condition{
		{"closed", model.Ended, false, status(model.SaleClosed)},
		{"not started", model.NotStarted, false, window(time.Hour, 2*time.Hour)},
		{"ended", model.Ended, false, window(-2*time.Hour, -time.Hour)},
		{"paused", model.Paused, false, status(model.SalePaused)},
		{"limit reached", model.LimitReached, true, func(e *engine, o model.Offer) { e.buy(o, "buyer", 2) }},
		{"sold out", model.SoldOut, true, func(e *engine, o model.Offer) {
			for i := 0; e.books(o).Stock.Available > 0; i++ {
				e.buy(o, number(i), 2)
			}
		}},
	}
}

// TestRefusalOrder checks every pair of conditions: the earlier one decides, and nothing changes.
func TestRefusalOrder(t *testing.T) {
	exclusive := map[string]string{"ended": "not started", "paused": "closed"}
	eachStrategy(t, func(e *engine, _ traits) {
		list := conditions()
		for i, first := range list {
			for j, second := range list[i:] {
				if exclusive[second.name] == first.name {
					continue
				}
				e.Run(first.name+" and "+second.name, func(t *testing.T) {
					o := e.sale(4, 2)
					if j > 0 && first.open {
						first.make(e, o)
					}
					second.make(e, o)
					if j > 0 && !first.open {
						first.make(e, o)
					}
					books, state := e.books(o), e.peek(o)
					check.Same(t, "outcome", e.deduct(attempt(o, "buyer", 1)), model.Outcome{Verdict: first.want})
					e.drain()
					check.Same(t, "books", e.books(o), books)
					check.Same(t, "gate", e.peek(o), state)
				})
			}
		}
	})
}

// TestRepeats: an attempt whose id was accepted or queued gets this answer again, whatever has become a reason to refuse.
func TestRepeats(t *testing.T) {
	eachStrategy(t, func(e *engine, has traits) {
		o := e.sale(4, 2)
		a := attempt(o, "buyer", 2)
		other := a
		other.Quantity = 1
		if first := e.deduct(a); first.Verdict != model.Accepted || first.Repeated || queued(first) != has.gate {
			e.Fatalf("the first: %+v", first)
		}
		again := func(stage string) {
			e.Helper()
			got := e.deduct(a)
			if got.Verdict != model.Accepted || !got.Repeated || queued(got) != has.gate {
				e.Errorf("%s, again: %+v", stage, got)
			}
			if !queued(got) && (got.Order.ID != a.ID || got.Order.Quantity != 2) {
				e.Errorf("%s, again: order %+v", stage, got.Order)
			}
			mismatch := model.Outcome{Verdict: model.IdempotencyMismatch, Repeated: true}
			check.Same(e, stage+", another request under the key", e.deduct(other), mismatch)
		}
		again("at once") // the limit is reached now
		e.drain()
		again("settled")
		for _, c := range slices.Backward(conditions()) {
			if c.name != "limit reached" {
				c.make(e, o)
				again(c.name)
			}
		}
		e.drain()
		e.wantOrders(o, 2, 0, 4)
	})
}

// TestQuantities: a quantity that does not fit is refused as a whole; one that fits exactly is sold.
func TestQuantities(t *testing.T) {
	eachStrategy(t, func(e *engine, _ traits) {
		o := e.sale(5, 3)
		first := e.buy(o, "u-1", 3)
		for _, tc := range []struct {
			user string
			n    int
			want model.Verdict
		}{
			{"u-2", 3, model.SoldOut}, // 2 are left
			{"u-1", 1, model.LimitReached},
			{"u-2", 1, model.Accepted},
			{"u-3", 2, model.SoldOut}, // 1 is left
			{"u-2", 1, model.Accepted},
			{"u-3", 1, model.SoldOut}, // none is left
		} {
			check.Same(e, fmt.Sprint(tc.user, " wants ", tc.n), e.deduct(attempt(o, tc.user, tc.n)).Verdict, tc.want)
			e.drain()
		}
		e.agree(o)
		e.wantOrders(o, 3, 0, 5)
		e.cancel(first)
		e.buy(o, "u-1", 2)
		e.agree(o)
		e.wantOrders(o, 3, 0, 4)
	})
}

// TestRush: 200 purchases come at once for 20 units, four from each of 50 users who may have one unit.
func TestRush(t *testing.T) {
	eachSafe(t, func(e *engine, _ traits) {
		e.run()
		const quota, users = 20, 50
		o := e.sale(quota, 1)
		outcomes := e.atOnce(4*users, func(i int) (model.Outcome, error) { return e.insist(o, number(i%users), fmt.Sprint("key-", i)) })
		e.wantSold(o, quota, 0)
		got, buyers := count(outcomes), map[string]bool{}
		if got[model.Accepted] != quota || got[model.Accepted]+got[model.LimitReached]+got[model.SoldOut] != 4*users {
			e.Errorf("the verdicts are %v", got)
		}
		for _, outcome := range outcomes {
			if outcome.Verdict != model.Accepted {
				continue
			}
			order, found, err := e.db.Order(e.Context(), outcome.Order.ID)
			if !found || err != nil || order.Status != model.OrderPending || order.UserID != outcome.Order.UserID || buyers[order.UserID] {
				e.Errorf("the confirmed order %+v is %+v, %v; the user has another: %t", outcome.Order, order, err, buyers[order.UserID])
			}
			buyers[order.UserID] = true
		}
	})
}

// TestHole01_ExactlyNOfNPlusOne is the smallest rush, with one unit too few.
func TestHole01_ExactlyNOfNPlusOne(t *testing.T) {
	eachSafe(t, func(e *engine, _ traits) {
		o := e.sale(5, 1)
		e.wantVerdicts(rush(o, 6, e), verdicts{model.Accepted: 5, model.SoldOut: 1})
		e.wantSold(o, 5, 0)
	})
}

// TestSeveralInstances: 60 users come at once to three instances for 20 units. Exactly 20 are sold.
func TestSeveralInstances(t *testing.T) {
	eachSafe(t, func(e *engine, has traits) {
		if has.alone {
			return
		}
		const quota = 20
		o := e.sale(quota, 1)
		instances := []*engine{e.run(), e.engine(e.kind.Name).run(), e.engine(e.kind.Name).run()}
		e.wantVerdicts(e.atOnce(3*quota, func(i int) (model.Outcome, error) {
			return instances[i%len(instances)].insist(o, number(i), "key")
		}), verdicts{model.Accepted: quota, model.SoldOut: 2 * quota})
		e.wantSold(o, quota, 0)
	})
}

// TestOneUserAtOnce: ten attempts come at once from a user who may have one unit.
func TestOneUserAtOnce(t *testing.T) {
	eachStrategy(t, func(e *engine, _ traits) {
		o := e.sale(5, 1)
		e.wantVerdicts(e.atOnce(10, func(int) (model.Outcome, error) { return e.try(attempt(o, "buyer", 1)) }),
			verdicts{model.Accepted: 1, model.LimitReached: 9})
		e.wantSold(o, 1, 0)
	})
}

// TestOneRequestAtOnce: a client that sends one request ten times at once gets the same order ten times.
func TestOneRequestAtOnce(t *testing.T) {
	eachStrategy(t, func(e *engine, _ traits) {
		e.run()
		o := e.sale(5, 3)
		r := service.Request{UserID: "buyer", SaleID: o.ID, Quantity: 2, Key: "one key"}
		id := orderIDs.Derive(r.UserID, r.SaleID, r.Key)
		for _, got := range e.atOnce(10, func(int) (model.Outcome, error) { return e.purchases.Purchase(e.Context(), r) }) {
			if got.Verdict != model.Accepted || got.Order == nil || got.Order.ID != id || got.Order.Status != model.OrderPending {
				e.Errorf("%+v", got)
			}
		}
		e.agree(o)
		e.wantOrders(o, 1, 0, 2)
	})
}

// Strategies that admit at the gate count each user's requests. For the others, the middleware counts.
func TestRequestsAreCounted(t *testing.T) {
	eachStrategy(t, func(e *engine, has traits) {
		o := e.sale(5, 5)
		for i := range 3 {
			a, want := attempt(o, "buyer", 1), model.Accepted
			a.Frequency = model.Frequency{Limit: 2, Window: time.Minute}
			if has.gate && i == 2 {
				want = model.TooFrequent
			}
			check.Same(e, fmt.Sprint("request ", i), e.deduct(a).Verdict, want)
		}
	})
}

// TestWithoutRedis: while Redis is away, a strategy sells on, or it returns ErrUnavailable.
func TestWithoutRedis(t *testing.T) {
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			eachPair(t, func(s *stores) {
				e, has := s.engine(name), traitsOf[name]
				o := e.sale(3, 1)
				s.KillRedis()
				if !has.withoutRedis {
					s.wantVerdicts(rush(o, 8, e), verdicts{model.Unavailable: 8})
					s.wantOrders(o, 0, 0, 0)
					return
				}
				var outcomes []model.Outcome
				if has.oversells { // so one comes after the other
					for i := range 8 {
						outcomes = append(outcomes, e.deduct(attempt(o, number(i), 1)))
					}
				} else {
					outcomes = e.atOnce(8, func(i int) (model.Outcome, error) { return e.try(attempt(o, number(i), 1)) })
				}
				for i, got := range outcomes {
					if got.Verdict == model.Accepted && (got.Order == nil || got.Order.Source != model.FromDatabase) {
						s.Errorf("%+v", got)
					}
					if has.gate && got.Verdict == model.Unavailable { // for all that the strategy knows, Redis has admitted it
						outcomes[i].Verdict = model.SoldOut
					}
				}
				s.wantVerdicts(outcomes, verdicts{model.Accepted: 3, model.SoldOut: 5})
				s.wantOrders(o, 3, 0, 3)
			})
		})
	}
}

func TestRegistry(t *testing.T) {
	check.Same(t, "strategies with traits", slices.Sorted(maps.Keys(traitsOf)), slices.Sorted(slices.Values(Names())))
	for _, k := range Kinds() {
		has := traitsOf[k.Name]
		check.Same(t, k.Name+" uses a gate", k.UsesGate, has.gate)
		check.Same(t, k.Name+" needs Redis", k.NeedsRedis, !has.withoutRedis)
		check.Same(t, k.Name+" oversells with two buyers", k.Oversells == WithTwoBuyers, has.oversells)
		check.Same(t, k.Name+" oversells", k.Oversells != Never, has.alone)
		first, _, _ := strings.Cut(k.Lesson.How, " ")
		check.Same(t, "first word of its lesson", strings.ToLower(first), k.Name)
		for _, text := range []string{k.Lesson.How, k.Lesson.Right, k.Lesson.Breaks, k.Lesson.Costs} {
			if text != strings.TrimSpace(text) || !strings.HasSuffix(text, ".") || strings.Contains(text, "  ") {
				t.Errorf("%s: the lesson is incomplete: %q", k.Name, text)
			}
		}
	}
	if k, ok := Of("naïve"); ok {
		t.Errorf("an unknown name gives %+v", k)
	}
}
