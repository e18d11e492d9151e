package strategy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sony/gobreaker/v2"

	"flashsale/gate"
	"flashsale/model"
	"flashsale/service"
)

var errNoReply = errors.New("the reply was lost")

// TestHybridPicksItsWay shows for each answer of the gate what becomes of an attempt.
func TestHybridPicksItsWay(t *testing.T) {
	tests := map[string]struct {
		outcome  model.Outcome
		err      error
		fallback bool
		needs    bool // asks for a gate
	}{
		"queued":        {outcome: model.Outcome{Verdict: model.Accepted}},
		"repeated":      {outcome: model.Outcome{Verdict: model.Accepted, Repeated: true}},
		"sold out":      {outcome: model.Outcome{Verdict: model.SoldOut}},
		"paused":        {outcome: model.Outcome{Verdict: model.Paused}},
		"too frequent":  {outcome: model.Outcome{Verdict: model.TooFrequent, RetryAfter: time.Second}},
		"no gate":       {outcome: model.Outcome{Verdict: model.NoGate}, fallback: true, needs: true},
		"no reply":      {err: errNoReply, fallback: true},
		"out of memory": {err: errors.New("OOM command not allowed"), fallback: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			sale, db := model.NewSaleID(), newFakeDatabase()
			n, control, _ := fakeNeeds(func(_ model.Attempt, epoch int64) (model.Outcome, error) {
				if epoch != 7 {
					t.Errorf("the gate was asked for epoch %d, the newest is 7", epoch)
				}
				return tc.outcome, tc.err
			}, db)
			h := NewHybrid(n)
			got := <-call(t.Context(), h, fakeAttempt(sale, "u", "1"))
			if tc.fallback {
				wantOrder(t, "u", got)
			} else if got.err != nil || got.got != tc.outcome {
				t.Errorf("%+v, %v, want %+v", got.got, got.err, tc.outcome)
			}
			if asked := len(db.of(sale)); asked != 0 != tc.fallback {
				t.Errorf("the database was asked %d times", asked)
			}
			if asked := slices.Contains(control.need, sale); asked != tc.needs {
				t.Errorf("a gate was asked for: %t", asked)
			}
			if err := h.Healthy(); err != nil {
				t.Errorf("after one call: %v", err)
			}
			h.Close()
		})
	}
}

// TestRedisPicksItsWay: the strategy redis has no other way.
func TestRedisPicksItsWay(t *testing.T) {
	tests := map[string]struct {
		outcome     model.Outcome
		err         error
		unavailable bool
		needs       bool
	}{
		"queued":   {outcome: model.Outcome{Verdict: model.Accepted}},
		"sold out": {outcome: model.Outcome{Verdict: model.SoldOut}},
		"no gate":  {outcome: model.Outcome{Verdict: model.NoGate}, unavailable: true, needs: true},
		"no reply": {err: errNoReply, unavailable: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			sale := model.NewSaleID()
			n, control, _ := fakeNeeds(func(model.Attempt, int64) (model.Outcome, error) { return tc.outcome, tc.err }, nil)
			r := NewRedis(n)
			got, err := r.Deduct(t.Context(), fakeAttempt(sale, "u", "1"))
			want := tc.outcome
			if tc.unavailable {
				want = model.Outcome{}
			}
			if got != want || errors.Is(err, model.ErrUnavailable) != tc.unavailable || tc.err != nil && !errors.Is(err, tc.err) {
				t.Errorf("%+v, %v", got, err)
			}
			if asked := slices.Contains(control.need, sale); asked != tc.needs {
				t.Errorf("a gate was asked for: %t", asked)
			}
			if err := r.Healthy(); err != nil {
				t.Error(err)
			}
			r.Close()
		})
	}
}

// TestBreaker opens after failures in a row, leaves Redis alone, and closes after one attempt that got through.
func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sale, db := model.NewSaleID(), newFakeDatabase()
		asked, answer := 0, errNoReply
		n, _, _ := fakeNeeds(func(model.Attempt, int64) (model.Outcome, error) {
			asked++
			return model.Outcome{Verdict: model.Accepted}, answer
		}, db)
		h := NewHybrid(n)
		try := func() model.Outcome {
			t.Helper()
			got, err := h.Deduct(t.Context(), fakeAttempt(sale, "u", fmt.Sprint(asked)))
			if err != nil || got.Verdict != model.Accepted {
				t.Fatalf("%+v, %v", got, err)
			}
			return got
		}
		want := func(stage string, calls int, healthy bool) {
			t.Helper()
			if asked != calls || (h.Healthy() == nil) != healthy {
				t.Errorf("%s: the gate was asked %d times, want %d; health: %v", stage, asked, calls, h.Healthy())
			}
		}
		for range breakerTrips - 1 {
			try()
		}
		answer = nil
		try()
		answer = errNoReply
		for range breakerTrips - 1 {
			try()
		}
		want("never enough failures in a row", 2*breakerTrips-1, true)
		try()
		want("enough of them", 2*breakerTrips, false)
		for range 10 {
			if try().Queued() {
				t.Error("queued although the circuit is open")
			}
		}
		want("left alone", 2*breakerTrips, false)

		time.Sleep(breakerRest + 1) // of the bubble's clock
		try()
		want("one tried it in vain", 2*breakerTrips+1, false)
		time.Sleep(breakerRest + 1)
		answer = nil
		if !try().Queued() {
			t.Error("Redis is back, and the attempt was not queued")
		}
		want("back", 2*breakerTrips+2, true)
		if !try().Queued() {
			t.Error("the next one was not queued")
		}
		h.Close()
	})
}

// TestBreakerIgnores what says nothing against Redis.
func TestBreakerIgnores(t *testing.T) {
	for name, gate := range map[string]fakeGate{
		"a missing gate":          noGate,
		"a call that was cut off": func(model.Attempt, int64) (model.Outcome, error) { return model.Outcome{}, context.Canceled },
	} {
		t.Run(name, func(t *testing.T) {
			n, _, _ := fakeNeeds(gate, newFakeDatabase())
			h := NewHybrid(n)
			for i := range 3 * breakerTrips {
				if _, err := h.Deduct(t.Context(), fakeAttempt(model.NewSaleID(), "u", fmt.Sprint(i))); err != nil {
					t.Error(err)
				}
			}
			if err := h.Healthy(); err != nil {
				t.Error(err)
			}
			h.Close()
		})
	}
}

// TestBuyerWhoLeftBuysNothing: nobody would hear of what the database sold.
func TestBuyerWhoLeftBuysNothing(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	sale, db := model.NewSaleID(), newFakeDatabase()
	n, _, _ := fakeNeeds(func(model.Attempt, int64) (model.Outcome, error) {
		leave()
		return model.Outcome{}, ctx.Err()
	}, db)
	h := NewHybrid(n)
	if got, err := h.Deduct(ctx, fakeAttempt(sale, "u", "1")); !errors.Is(err, context.Canceled) {
		t.Errorf("%+v, %v", got, err)
	}
	h.Close()
	if len(db.of(sale)) != 0 {
		t.Error("the database was asked")
	}
}

// TestRequestsAreCountedWithoutRedis, by this instance, and only while the gate doesn't count.
func TestRequestsAreCountedWithoutRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := gobreaker.ErrOpenState // nobody asks Redis
		n, _, _ := fakeNeeds(func(model.Attempt, int64) (model.Outcome, error) { return model.Outcome{}, away }, newFakeDatabase())
		h := NewHybrid(n)
		sale, other := model.NewSaleID(), model.NewSaleID()
		i := 0
		try := func(sale, user string, limit int) model.Outcome {
			t.Helper()
			i++
			a := fakeAttempt(sale, user, fmt.Sprint(i))
			a.Frequency = model.Frequency{Limit: limit, Window: time.Second}
			got, err := h.Deduct(t.Context(), a)
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		for range 2 {
			if got := try(sale, "u-1", 2); got.Verdict != model.Accepted {
				t.Errorf("within the limit: %+v", got)
			}
		}
		got := try(sale, "u-1", 2)
		if got.Verdict != model.TooFrequent || got.RetryAfter <= 0 || got.RetryAfter > time.Second {
			t.Fatalf("beyond the limit: %+v", got)
		}
		for name, tc := range map[string]struct {
			sale, user string
			limit      int
		}{
			"another user": {sale, "u-2", 2}, "another sale": {other, "u-1", 2}, "no limit": {sale, "u-1", 0},
		} {
			if got := try(tc.sale, tc.user, tc.limit); got.Verdict != model.Accepted {
				t.Errorf("%s: %+v", name, got)
			}
		}
		time.Sleep(got.RetryAfter) // of the bubble's clock
		if got := try(sale, "u-1", 2); got.Verdict != model.Accepted {
			t.Errorf("after the time that was told: %+v", got)
		}
		if got := try(sale, "u-1", 2); got.Verdict != model.TooFrequent {
			t.Errorf("at once again: %+v", got)
		}
		h.Close()

		away = errNoReply // Redis was asked, and may have admitted them
		h = NewHybrid(n)
		for range 2 {
			try(sale, "u-1", 2)
		}
		a := fakeAttempt(sale, "u-1", "asked")
		a.Frequency = model.Frequency{Limit: 2, Window: time.Second}
		if got, err := h.Deduct(t.Context(), a); !errors.Is(err, model.ErrUnavailable) {
			t.Errorf("beyond the limit, and perhaps admitted: %+v, %v", got, err)
		}
		h.Close()

		n.Gate = fakeGate(noGate) // whose script has counted before it found no gate
		h = NewHybrid(n)
		for range 3 {
			if got := try(sale, "u-1", 2); got.Verdict != model.Accepted {
				t.Errorf("counted twice: %+v", got)
			}
		}
		h.Close()
	})
}

// TestRedisDiesAndComesBack: the database sells on, the circuit opens; then Redis is there again, empty, a new
// gate is installed from the database, and the circuit closes.
func TestRedisDiesAndComesBack(t *testing.T) {
	for name, address := range map[string]func(*testing.T) string{"SQLite": sqlite, "MariaDB": mariadb} {
		t.Run(name, func(t *testing.T) {
			s := withServer(t, address(t))
			e := s.engine("hybrid").run()
			const quota = 10_000
			o := e.sale(quota, 1)
			sold := 0
			buy := func() model.Outcome {
				e.Helper()
				got, err := e.strategy.Deduct(e.Context(), e.attempt(o, fmt.Sprint("u-", sold), 1))
				if err != nil || got.Verdict != model.Accepted {
					e.Fatalf("%+v, %v", got, err)
				}
				sold++
				if got.Queued() {
					e.settler.Notify(o.ID)
				}
				return got
			}
			if !buy().Queued() {
				e.Error("not by the gate at first")
			}
			eventually(t, "the first is settled", func() bool { return e.peek(o).Stream == 0 }) // else it is lost
			s.killRedis()
			for e.strategy.Healthy() == nil {
				if buy().Queued() {
					e.Fatal("queued in a Redis that is gone")
				}
				if sold > 3*breakerTrips {
					e.Fatal("the circuit does not open")
				}
			}
			if buy().Queued() {
				e.Error("queued although the circuit is open")
			}
			s.restartRedis()
			eventually(t, "the gate sells again", func() bool { return buy().Queued() })
			if err := e.strategy.Healthy(); err != nil {
				e.Error(err)
			}
			eventually(t, "all is settled", func() bool { return e.peek(o).Stream == 0 })
			// What the database sold while the gate was being installed, the gate may not have heard of: then the
			// auditor sees it drift and asks for a new one. Here that is done at once.
			e.replaceGate(o)
			e.agree(o)
			if books := e.books(o.ID); books.Orders[model.OrderPending] != int64(sold) || books.Orders[model.OrderRejected] != 0 {
				e.Errorf("%d sold, the orders are %v", sold, books.Orders)
			}
		})
	}
}

// lossyGate admits for real and loses the reply.
type lossyGate struct{ *gate.Gate }

func (g lossyGate) Admit(ctx context.Context, saleID string, attempts []model.Attempt, epoch int64) ([]model.Outcome, error) {
	if _, err := g.Gate.Admit(ctx, saleID, attempts, epoch); err != nil {
		return nil, err
	}
	return nil, errNoReply
}

// TestAmbiguousReply: Redis took the attempt and its answer was lost, so the database takes it as well. Both
// meet at one order, and the gate has nothing to correct.
func TestAmbiguousReply(t *testing.T) {
	eachPair(t, func(s *stores) {
		e := s.engine("hybrid", func(n *Needs) { n.Gate = lossyGate{n.Gate.(*gate.Gate)} })
		o := e.sale(5, 2)
		// Redis is asked by all but the last call, before which the circuit opens.
		for i := range 2 {
			r := service.Request{UserID: fmt.Sprint("u-", i), SaleID: o.ID, Quantity: 1, Key: "key"}
			first, err := e.purchases.Purchase(e.Context(), r)
			if err != nil || first.Order == nil || first.Order.Status != model.OrderPending {
				e.Fatalf("%+v, %v", first, err)
			}
			if i == 0 {
				e.drain() // between the two ways of one attempt, or after all of them
			}
			again, err := e.purchases.Purchase(e.Context(), service.Request{UserID: r.UserID, SaleID: o.ID, Quantity: 2, Key: "key"})
			if err != nil || again.Verdict != model.IdempotencyMismatch {
				e.Errorf("another request under the key: %+v, %v", again, err)
			}
		}
		if state := e.peek(o); state.Left != 3 {
			e.Errorf("the gate is %+v", state)
		}
		e.drain()
		if books := e.books(o.ID); books.Orders[model.OrderPending] != 2 || books.Stock.Held != 2 || books.Orders[model.OrderRejected] != 0 {
			e.Errorf("the orders are %v, the stock %+v", books.Orders, books.Stock)
		}
		e.agree(o)
	})
}

// TestAmbiguousRush: the same with a crowd, until nothing is left.
func TestAmbiguousRush(t *testing.T) {
	eachPair(t, func(s *stores) {
		e := s.engine("hybrid", func(n *Needs) { n.Gate = lossyGate{n.Gate.(*gate.Gate)} }).run()
		const quota = 5
		o := e.sale(quota, 1)
		var mu sync.Mutex
		confirmed := map[string]bool{}
		crowd(40, func(i int) {
			got, err := e.purchases.Purchase(e.Context(), service.Request{UserID: fmt.Sprint("u-", i%20), SaleID: o.ID, Quantity: 1, Key: "key"})
			if errors.Is(err, model.ErrUnavailable) {
				return // refused by the database, and perhaps admitted at the gate
			}
			if err != nil {
				e.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if got.Verdict == model.Accepted && got.Order.Status == model.OrderPending {
				confirmed[got.Order.ID] = true
			}
		})
		eventually(e.T, "all is settled", func() bool { return e.peek(o).Stream == 0 })
		books := e.books(o.ID)
		if books.Orders[model.OrderPending] != quota || len(confirmed) > quota {
			e.Errorf("%d were confirmed, the orders are %v", len(confirmed), books.Orders)
		}
		for id := range confirmed {
			if order, ok, err := e.db.Order(e.Context(), id); !ok || err != nil || order.Status != model.OrderPending {
				e.Errorf("a confirmed order is %+v, %t, %v", order, ok, err)
			}
		}
	})
}

// TestHole08_TwoWaysAtOnce: one user at limit 1 buys through Redis on one instance and, at the same instant,
// through the database on another that has lost Redis.
func TestHole08_TwoWaysAtOnce(t *testing.T) {
	eachPair(t, func(s *stores) {
		here := s.engine("hybrid").run()
		there := s.engine("hybrid", func(n *Needs) {
			n.Gate = fakeGate(func(model.Attempt, int64) (model.Outcome, error) { return model.Outcome{}, errNoReply })
		})
		o := here.sale(50, 1)
		if err := there.catalog.Refresh(s.Context()); err != nil {
			s.Fatal(err)
		}
		var mu sync.Mutex
		confirmed := map[string]int{}
		crowd(40, func(i int) {
			e := []*engine{here, there}[i%2]
			user := fmt.Sprint("u-", i/4)
			got, err := e.purchases.Purchase(s.Context(), service.Request{UserID: user, SaleID: o.ID, Quantity: 1})
			if errors.Is(err, model.ErrUnavailable) {
				return // refused by the database, and perhaps admitted at the gate
			}
			if err != nil {
				s.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if got.Verdict == model.Accepted {
				confirmed[user]++
			}
		})
		if len(confirmed) != 10 {
			s.Errorf("%d users of 10 got one", len(confirmed))
		}
		for user, n := range confirmed {
			if n != 1 {
				s.Errorf("%s got %d", user, n)
			}
		}
		if books := s.books(o.ID); books.Stock.Held != 10 || books.BuyersUnits != 10 {
			s.Errorf("the stock is %+v", books.Stock)
		}
	})
}

// TestHole48_NoIsNotTakenBack: an attempt is in the stream; its user repeats it on an instance that can't ask the gate,
// where the last unit was sold to another buyer, or the user has bought under another key. Both units come back, and the
// entry is settled. So the repeated key was not to hear a no. Who comes without a key repeats nothing.
func TestHole48_NoIsNotTakenBack(t *testing.T) {
	for name, away := range map[string]fakeGate{
		"the circuit is open": func(model.Attempt, int64) (model.Outcome, error) { return model.Outcome{}, gobreaker.ErrOpenState },
		"the gate is closed":  noGate,
	} {
		for refusal, other := range map[model.Verdict]string{model.SoldOut: "another", model.LimitReached: "buyer"} {
			t.Run(fmt.Sprint(name, ", ", refusal), func(t *testing.T) {
				eachPair(t, func(s *stores) {
					here := s.engine("hybrid")
					there := s.engine("hybrid", func(n *Needs) { n.Gate = away })
					o := here.sale(1, 1)
					if err := there.catalog.Refresh(s.Context()); err != nil {
						s.Fatal(err)
					}
					ask := func(e *engine, user, key string) (model.Outcome, error) {
						return e.purchases.Purchase(s.Context(), service.Request{
							UserID: user, SaleID: o.ID, Quantity: 1, Key: key, Prefer: service.Preference{Async: true},
						})
					}
					queued, err := ask(here, "buyer", "key")
					if err != nil || queued.Order == nil || queued.Order.Status != model.OrderQueued {
						s.Fatalf("%+v, %v", queued, err)
					}
					last, err := ask(there, other, "other key")
					if err != nil || last.Order == nil || last.Order.Status != model.OrderPending {
						s.Fatalf("%+v, %v", last, err)
					}
					twins := make([]error, 2) // which may be decided in one transaction
					crowd(2, func(i int) { _, twins[i] = ask(there, "buyer", "key") })
					for _, err := range twins {
						if !errors.Is(err, model.ErrUnavailable) {
							s.Errorf("the repeated key was refused: %v", err)
						}
					}
					if got, err := ask(there, other, ""); err != nil || got.Verdict != model.LimitReached {
						s.Errorf("without a key: %+v, %v", got, err)
					}
					if again, err := ask(there, other, "other key"); err != nil || again.Order == nil || again.Order.ID != last.Order.ID {
						s.Errorf("what the database knows: %+v, %v", again, err)
					}
					if _, verdict, err := there.orders.Cancel(s.Context(), other, last.Order.ID); err != nil || verdict != model.Accepted {
						s.Fatal(verdict, err)
					}
					here.drain()
					if order, ok, err := s.db.Order(s.Context(), queued.Order.ID); err != nil || !ok || order.Status != model.OrderPending {
						s.Errorf("the queued one is %+v, %t, %v", order, ok, err)
					}
				})
			})
		}
	}
}
