package strategy

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/service"
)

// traits are how strategies differ where their answers don't.
type traits struct {
	gate         bool // takes units at the gate, which also counts requests, and the settler makes the order
	withoutRedis bool // sells also while there is no Redis
	remembers    bool // says no from memory, and hears of units that come back a little later
	oversells    bool // when two come at once
	alone        bool // oversells when another instance serves the same database
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

// eachStrategy runs a test on every strategy over every pair of stores, and on those that use gates with gates in parts.
func eachStrategy(t *testing.T, run func(e *engine, has traits)) {
	t.Helper()
	strategies := func(s *stores) {
		for _, name := range Names() {
			has, ok := traitsOf[name]
			if !ok {
				t.Fatalf("the suite does not know the traits of %s", name)
			}
			if s.parts > 1 && !has.gate {
				continue
			}
			s.Run(name, func(t *testing.T) {
				one := *s
				one.T = t
				run(one.engine(name), has)
			})
		}
	}
	eachPair(t, strategies)
	t.Run("gates in six parts", func(t *testing.T) {
		t.Parallel()
		s := withServer(t, sqlite(t))
		s.parts = 6
		strategies(s)
	})
}

// eachSafe leaves out the strategies that oversell when two come at once.
func eachSafe(t *testing.T, run func(e *engine, has traits)) {
	t.Helper()
	eachStrategy(t, func(e *engine, has traits) {
		if !has.oversells {
			run(e, has)
		}
	})
}

// condition is a reason to refuse a purchase of one unit by the user "buyer" on a sale of 4 units, 2 for each user.
type condition struct {
	name   string
	want   model.Verdict
	before func(e *engine, o model.Offer) // while the sale is open
	after  func(e *engine, o model.Offer)
}

// conditions stand in the order in which every strategy must judge them.
func conditions() []condition {
	window := func(start, end time.Duration) func(*engine, model.Offer) {
		return func(e *engine, o model.Offer) {
			from, to := time.Now().Add(start), time.Now().Add(end)
			_, verdict, invalid, err := e.sales.Patch(e.Context(), o.ID, service.SalePatch{StartsAt: &from, EndsAt: &to}, "tester")
			if verdict != model.Accepted || err != nil {
				e.Fatalf("move the window: %s %+v %v", verdict, invalid, err)
			}
		}
	}
	status := func(s model.SaleStatus) func(*engine, model.Offer) {
		return func(e *engine, o model.Offer) {
			if _, verdict, err := e.sales.SetStatus(e.Context(), o.ID, s, "test", "tester"); verdict != model.Accepted || err != nil {
				e.Fatalf("make it %s: %s %v", s, verdict, err)
			}
		}
	}
	return []condition{
		{name: "closed", want: model.Ended, after: status(model.SaleClosed)},
		{name: "not started", want: model.NotStarted, after: window(time.Hour, 2*time.Hour)},
		{name: "ended", want: model.Ended, after: window(-2*time.Hour, -time.Hour)},
		{name: "paused", want: model.Paused, after: status(model.SalePaused)},
		{name: "limit reached", want: model.LimitReached, before: func(e *engine, o model.Offer) { e.buy(o, "buyer", 2) }},
		{name: "sold out", want: model.SoldOut, before: func(e *engine, o model.Offer) {
			for i := 0; e.books(o.ID).Stock.Available > 0; i++ {
				e.buy(o, fmt.Sprint("other-", i), 2)
			}
		}},
	}
}

// exclusive are conditions that can't hold together.
func exclusive(a, b string) bool {
	pair := []string{a, b}
	return slices.Equal(pair, []string{"not started", "ended"}) || slices.Equal(pair, []string{"closed", "paused"})
}

// TestRefusalOrder pins which refusal wins, for each pair that can hold together, and that a refusal changes nothing.
func TestRefusalOrder(t *testing.T) {
	eachStrategy(t, func(e *engine, _ traits) {
		list := conditions()
		for i, first := range list {
			for _, second := range list[i:] {
				if exclusive(first.name, second.name) {
					continue
				}
				both := []condition{first, second}
				if first.name == second.name {
					both = both[:1]
				}
				e.Run(first.name+" and "+second.name, func(t *testing.T) {
					o := e.sale(4, 2)
					for _, c := range both {
						if c.before != nil {
							c.before(e, o)
						}
					}
					for _, c := range both {
						if c.after != nil {
							c.after(e, o)
						}
					}
					books, state := e.books(o.ID), e.peek(o)
					if got := e.deduct(e.attempt(o, "buyer", 1)); got != (model.Outcome{Verdict: first.want}) {
						t.Errorf("got %+v, want %s", got, first.want)
					}
					e.drain()
					if after := e.books(o.ID); after.Stock != books.Stock || after.BuyersUnits != books.BuyersUnits {
						t.Errorf("the stock was %+v and is %+v", books.Stock, after.Stock)
					}
					if after := e.peek(o); after != state {
						t.Errorf("the gate was %+v and is %+v", state, after)
					}
				})
			}
		}
	})
}

// TestUnknownSale is judged before any strategy, so that they all say the same.
func TestUnknownSale(t *testing.T) {
	eachStrategy(t, func(e *engine, _ traits) {
		r := service.Request{UserID: "buyer", SaleID: model.NewSaleID(), Quantity: 1}
		if got, err := e.purchases.Purchase(e.Context(), r); err != nil || got != (model.Outcome{Verdict: model.NotFound}) {
			e.Errorf("%+v, %v", got, err)
		}
	})
}

// TestRepeats: an attempt whose id was accepted or queued gets that answer before any refusal, at every stage.
func TestRepeats(t *testing.T) {
	eachStrategy(t, func(e *engine, has traits) {
		o := e.sale(4, 2)
		a := e.attempt(o, "buyer", 2)
		first := e.deduct(a)
		if first.Verdict != model.Accepted || first.Repeated || first.Queued() != has.gate {
			e.Fatalf("the first: %+v", first)
		}
		again := func(stage string) {
			e.Helper()
			got := e.deduct(a)
			if got.Verdict != model.Accepted || !got.Repeated || got.Queued() != has.gate {
				e.Errorf("%s, again: %+v", stage, got)
			}
			if !got.Queued() && (got.Order.ID != a.ID || got.Order.Quantity != 2) {
				e.Errorf("%s, again: order %+v", stage, got.Order)
			}
			other := a
			other.Quantity, other.RequestHash = 1, model.HashRequest(1)
			if got := e.deduct(other); got != (model.Outcome{Verdict: model.IdempotencyMismatch, Repeated: true}) {
				e.Errorf("%s, another request under the key: %+v", stage, got)
			}
		}
		again("at once") // also over the limit by now
		e.drain()
		again("settled")
		for _, c := range conditions() {
			if c.name == "sold out" {
				c.before(e, o)
				again(c.name)
			}
		}
		for _, name := range []string{"paused", "ended", "not started", "closed"} {
			for _, c := range conditions() {
				if c.name == name {
					c.after(e, o)
					again(name)
				}
			}
		}
		e.drain()
		if books := e.books(o.ID); books.Orders[model.OrderPending] != 2 || books.Units[model.OrderPending] != 4 {
			e.Errorf("the orders are %v of %v units", books.Orders, books.Units)
		}
	})
}

// TestQuantities: what doesn't fit is refused whole, and what fits exactly is sold.
func TestQuantities(t *testing.T) {
	eachStrategy(t, func(e *engine, has traits) {
		o := e.sale(5, 3)
		e.buy(o, "u-1", 3)
		for _, tc := range []struct {
			name, user string
			n          int
			want       model.Verdict
		}{
			{"more than left", "u-2", 3, model.SoldOut},
			{"more than the user may", "u-1", 1, model.LimitReached},
			{"one of two", "u-2", 1, model.Accepted},
			{"two of one", "u-3", 2, model.SoldOut},
			{"the last", "u-2", 1, model.Accepted},
			{"nothing left", "u-3", 1, model.SoldOut},
		} {
			if got := e.deduct(e.attempt(o, tc.user, tc.n)); got.Verdict != tc.want {
				e.Errorf("%s: %+v, want %s", tc.name, got, tc.want)
			}
			e.drain()
		}
		if books := e.books(o.ID); books.Stock.Held != 5 {
			e.Errorf("%d held", books.Stock.Held)
		}
		if has.gate {
			e.agree(o)
		}
	})
}

// TestRush: 200 come at once for 20 units, four times each of 50 users who may have one.
func TestRush(t *testing.T) {
	eachSafe(t, func(e *engine, has traits) {
		e.run()
		const quota, users, calls = 20, 50, 200
		o := e.sale(quota, 1)
		var mu sync.Mutex
		confirmed := map[string]string{} // user by order
		verdicts := map[model.Verdict]int{}
		crowd(calls, func(i int) {
			r := service.Request{UserID: fmt.Sprint("u-", i%users), SaleID: o.ID, Quantity: 1}
			got, err := e.purchases.Purchase(e.Context(), r)
			for try := 1; errors.Is(err, errUnsure) && try < 10; try++ { // a part answered too late; nothing was admitted
				got, err = e.purchases.Purchase(e.Context(), r)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				e.Errorf("%s: %v", r.UserID, err)
				return
			}
			verdicts[got.Verdict]++
			if got.Verdict == model.Accepted && got.Order.Status == model.OrderPending {
				confirmed[got.Order.ID] = got.Order.UserID
			}
		})
		for verdict := range verdicts {
			if verdict != model.Accepted && verdict != model.LimitReached && verdict != model.SoldOut {
				e.Errorf("somebody heard %q", verdict)
			}
		}
		if len(confirmed) != quota || verdicts[model.Accepted] != quota {
			e.Errorf("%d orders were confirmed of %v", len(confirmed), verdicts)
		}
		books := e.books(o.ID)
		if books.Orders[model.OrderPending] != quota || books.Stock.Available != 0 {
			e.Errorf("the orders are %v, the stock %+v", books.Orders, books.Stock)
		}
		buyers := map[string]int{}
		for id, user := range confirmed {
			buyers[user]++
			if order, ok, err := e.db.Order(e.Context(), id); !ok || err != nil || order.UserID != user || order.Status != model.OrderPending {
				e.Errorf("a confirmed order is %+v, %t, %v", order, ok, err)
			}
		}
		for user, n := range buyers {
			if n > 1 {
				e.Errorf("%s has %d units of 1", user, n)
			}
		}
		if has.gate {
			eventually(e.T, "everything is acknowledged", func() bool { return e.peek(o).Stream == 0 })
			e.agree(o)
		}
	})
}

// TestHole01_ExactlyNOfNPlusOne is the smallest rush: one unit too few.
func TestHole01_ExactlyNOfNPlusOne(t *testing.T) {
	eachSafe(t, func(e *engine, _ traits) {
		const quota = 5
		o := e.sale(quota, 1)
		var mu sync.Mutex
		verdicts := map[model.Verdict]int{}
		crowd(quota+1, func(i int) {
			got, err := e.strategy.Deduct(e.Context(), e.attempt(o, fmt.Sprint("u-", i), 1))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				e.Error(err)
			}
			verdicts[got.Verdict]++
		})
		e.drain()
		if verdicts[model.Accepted] != quota || verdicts[model.SoldOut] != 1 {
			e.Errorf("the verdicts are %v", verdicts)
		}
		if books := e.books(o.ID); books.Orders[model.OrderPending] != quota || books.Orders[model.OrderRejected] != 0 {
			e.Errorf("the orders are %v", books.Orders)
		}
	})
}

// TestSeveralInstances: 60 come at once to three instances for 20 units. Those strategies that are safe together
// sell exactly the stock, whoever the buyers came to.
func TestSeveralInstances(t *testing.T) {
	eachSafe(t, func(e *engine, has traits) {
		if has.alone {
			return
		}
		const quota = 20
		o := e.sale(quota, 1)
		instances := []*engine{e.run(), e.engine(e.name).run(), e.engine(e.name).run()}
		var accepted atomic.Int64
		crowd(3*quota, func(i int) {
			at := instances[i%len(instances)]
			r := service.Request{UserID: fmt.Sprint("u-", i), SaleID: o.ID, Quantity: 1, Key: "key"}
			got, err := at.purchases.Purchase(e.Context(), r)
			for try := 1; errors.Is(err, model.ErrUnavailable) && try < 20; try++ { // a busy machine; the buyer asks again
				got, err = at.purchases.Purchase(e.Context(), r)
			}
			switch {
			case err != nil || got.Verdict != model.Accepted && got.Verdict != model.SoldOut:
				e.Errorf("%+v, %v", got, err)
			case got.Verdict == model.Accepted:
				accepted.Add(1)
			}
		})
		if books := e.books(o.ID); accepted.Load() != quota || books.Orders[model.OrderPending] != quota || books.Stock.Available != 0 {
			e.Errorf("%d heard yes; the orders are %v, the stock %+v", accepted.Load(), books.Orders, books.Stock)
		}
	})
}

// TestOneUserAtOnce: ten attempts of one user who may have one unit, each under a key of its own.
func TestOneUserAtOnce(t *testing.T) {
	eachStrategy(t, func(e *engine, has traits) {
		o := e.sale(5, 1)
		var mu sync.Mutex
		verdicts := map[model.Verdict]int{}
		crowd(10, func(int) {
			got, err := e.strategy.Deduct(e.Context(), e.attempt(o, "buyer", 1))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				e.Error(err)
			}
			verdicts[got.Verdict]++
		})
		e.drain()
		if verdicts[model.Accepted] != 1 || verdicts[model.LimitReached] != 9 {
			e.Errorf("the verdicts are %v", verdicts)
		}
		if books := e.books(o.ID); books.Orders[model.OrderPending] != 1 || books.BuyersUnits != 1 {
			e.Errorf("the orders are %v, the buyers' units %d", books.Orders, books.BuyersUnits)
		}
		if has.gate {
			e.agree(o)
		}
	})
}

// TestOneRequestAtOnce: a client that sends one request ten times at once has one order, and always the same.
func TestOneRequestAtOnce(t *testing.T) {
	eachStrategy(t, func(e *engine, has traits) {
		e.run()
		o := e.sale(5, 3)
		r := service.Request{UserID: "buyer", SaleID: o.ID, Quantity: 2, Key: "one key"}
		id := orderIDs.Derive(r.UserID, r.SaleID, r.Key)
		crowd(10, func(int) {
			got, err := e.purchases.Purchase(e.Context(), r)
			if err != nil || got.Verdict != model.Accepted || got.Order == nil || got.Order.ID != id || got.Order.Status != model.OrderPending {
				e.Errorf("%+v, %v", got, err)
			}
		})
		if books := e.books(o.ID); books.Orders[model.OrderPending] != 1 || books.Stock.Held != 2 {
			e.Errorf("the orders are %v, the stock %+v", books.Orders, books.Stock)
		}
		if has.gate {
			eventually(e.T, "everything is acknowledged", func() bool { return e.peek(o).Stream == 0 })
			e.agree(o)
		}
	})
}

// TestRequestsAreCounted where attempts are admitted; other strategies leave it to the front door.
func TestRequestsAreCounted(t *testing.T) {
	eachStrategy(t, func(e *engine, has traits) {
		if e.strategy.UsesGate() != has.gate {
			e.Errorf("it says %t", e.strategy.UsesGate())
		}
		o := e.sale(5, 5)
		var verdicts []model.Verdict
		for range 3 {
			a := e.attempt(o, "buyer", 1)
			a.Frequency = model.Frequency{Limit: 2, Window: time.Minute}
			verdicts = append(verdicts, e.deduct(a).Verdict)
		}
		want := []model.Verdict{model.Accepted, model.Accepted, model.Accepted}
		if has.gate {
			want[2] = model.TooFrequent
		}
		if !slices.Equal(verdicts, want) {
			e.Errorf("the verdicts are %v, want %v", verdicts, want)
		}
	})
}

// TestGatesRetire: an instance whose strategy uses no gates closes those that another strategy has left open.
func TestGatesRetire(t *testing.T) {
	eachPair(t, func(s *stores) {
		before := s.engine("redis")
		o := before.sale(5, 1)
		s.forgetRebuild(o.ID)
		after := s.engine("optimistic")
		if state := after.peek(o); state.Open {
			s.Errorf("the gate is %+v", state)
		}
		if got, err := before.strategy.Deduct(s.Context(), before.attempt(o, "buyer", 1)); !errors.Is(err, model.ErrUnavailable) {
			s.Errorf("an instance that still uses it: %+v, %v", got, err)
		}
		fresh := after.sale(5, 1)
		if state := after.peek(fresh); state.Exists {
			s.Errorf("a gate was installed: %+v", state)
		}
	})
}

// TestWithoutRedis: a strategy sells on without Redis or says that it can't; no other answer is true.
func TestWithoutRedis(t *testing.T) {
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			eachPair(t, func(s *stores) {
				e := s.engine(name)
				o := e.sale(3, 1)
				s.killRedis()
				if !traitsOf[name].withoutRedis {
					if got, err := e.strategy.Deduct(e.Context(), e.attempt(o, "buyer", 1)); !errors.Is(err, model.ErrUnavailable) {
						e.Errorf("%+v, %v, want ErrUnavailable", got, err)
					}
					if books := e.books(o.ID); books.Stock.Available != 3 {
						e.Errorf("the stock is %+v", books.Stock)
					}
					return
				}
				if traitsOf[name].oversells {
					for i := range 3 {
						if got := e.deduct(e.attempt(o, fmt.Sprint("u-", i), 1)); got.Verdict != model.Accepted {
							e.Errorf("number %d: %+v", i, got)
						}
					}
					if got := e.deduct(e.attempt(o, "u-3", 1)); got.Verdict != model.SoldOut {
						e.Errorf("the fourth of 3: %+v", got)
					}
					return
				}
				var mu sync.Mutex
				verdicts := map[model.Verdict]int{}
				crowd(8, func(i int) {
					got, err := e.strategy.Deduct(e.Context(), e.attempt(o, fmt.Sprint("u-", i), 1))
					mu.Lock()
					defer mu.Unlock()
					if traitsOf[name].gate && errors.Is(err, model.ErrUnavailable) {
						verdicts[model.SoldOut]++ // refused, but it asked Redis before, and would not swear that it got no unit
						return
					}
					verdicts[got.Verdict]++
					if err != nil || got.Verdict == model.Accepted && (got.Order == nil || got.Order.Source != model.FromDatabase) {
						e.Errorf("%+v, %v", got, err)
					}
				})
				if books := e.books(o.ID); verdicts[model.Accepted] != 3 || verdicts[model.SoldOut] != 5 || books.Stock.Held != 3 {
					e.Errorf("the verdicts are %v, the stock is %+v", verdicts, books.Stock)
				}
			})
		})
	}
}

// TestTwinsAreRefusedAlike: one request came twice and both copies are in one transaction, whose answer is no.
func TestTwinsAreRefusedAlike(t *testing.T) {
	eachPair(t, func(s *stores) {
		e := s.engine("optimistic")
		tests := map[string]struct {
			user string
			n    int
			want model.Verdict
		}{
			"over the limit": {"u-1", 1, model.LimitReached},
			"more than left": {"u-2", 2, model.SoldOut},
			"accepted":       {"u-2", 1, model.Accepted},
		}
		for name, tc := range tests {
			o := e.sale(3, 2)
			e.buy(o, "u-1", 2)
			a := e.attempt(o, tc.user, tc.n)
			outcomes, err := e.db.Deduct(e.Context(), o.ID, []model.Attempt{a, a})
			if err != nil || len(outcomes) != 2 {
				e.Fatalf("%s: %+v, %v", name, outcomes, err)
			}
			if outcomes[0].Verdict != tc.want || outcomes[1].Verdict != tc.want || !outcomes[1].Repeated {
				e.Errorf("%s: %+v, want twice %s", name, outcomes, tc.want)
			}
			if !slices.Contains([]int64{2, 3}, e.books(o.ID).Stock.Held) {
				e.Errorf("%s: the stock is %+v", name, e.books(o.ID).Stock)
			}
		}
	})
}

func TestRegistry(t *testing.T) {
	for _, name := range Names() {
		if s, err := New(name, Needs{}); err != nil || s == nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, ok := traitsOf[name]; !ok {
			t.Errorf("%s has no traits in the suite", name)
		}
	}
	if len(traitsOf) != len(Names()) {
		t.Errorf("the suite knows %d strategies of %d", len(traitsOf), len(Names()))
	}
	if s, err := New("naïve", Needs{}); err == nil {
		t.Errorf("an unknown name gives %v", s)
	}
}
