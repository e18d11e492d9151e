package strategy

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"sync"
	"testing"
	"time"

	"flashsale/gate"
	"flashsale/model"
	"flashsale/service"
)

// admitting are the strategies that take units at the gate, each over every pair of stores.
func admitting(t *testing.T, run func(e *engine)) {
	t.Helper()
	eachPair(t, func(s *stores) {
		for _, name := range []string{"redis", "local", "hybrid"} {
			s.Run(name, func(t *testing.T) {
				one := *s
				one.T = t
				run(one.engine(name))
			})
		}
	})
}

// offered tries to sell to n fresh users and gives how many were accepted.
func (e *engine) offered(o model.Offer, n int) (accepted int) {
	e.Helper()
	for range n {
		a := e.attempt(o, "fresh", 1)
		a.UserID = "fresh-" + a.RequestKey
		a.ID = orderIDs.Derive(a.UserID, a.SaleID, a.RequestKey)
		got, err := e.strategy.Deduct(e.Context(), a)
		switch {
		case err != nil && !errors.Is(err, model.ErrUnavailable):
			e.Error(err)
		case err == nil && got.Verdict == model.Accepted:
			accepted++
		case err == nil && got.Verdict != model.SoldOut:
			e.Errorf("a fresh user heard %+v", got)
		}
	}
	return accepted
}

// sold checks how the sale stands in the end, with nothing on its way.
func (e *engine) sold(o model.Offer, orders, refused int64) {
	e.Helper()
	e.drain()
	books := e.books(o.ID)
	if books.Orders[model.OrderPending] != orders || books.Stock.Held != orders || books.Orders[model.OrderRejected] != refused {
		e.Errorf("the orders are %v, the stock %+v; want %d orders and %d refused", books.Orders, books.Stock, orders, refused)
	}
}

// TestHole09_GateLostBeforeTheQueueDrained: three of five units are in the queue when the sale's stock in Redis
// is lost. The database, which doesn't know of them yet, must not give them to the new gate.
func TestHole09_GateLostBeforeTheQueueDrained(t *testing.T) {
	admitting(t, func(e *engine) {
		o := e.sale(5, 1)
		if n := e.offered(o, 3); n != 3 {
			e.Fatalf("%d of 3 admitted", n)
		}
		if err := e.client.Del(e.Context(), "fs:{"+o.ID+"}:gate").Err(); err != nil {
			e.Fatal(err)
		}
		e.forgetRebuild(o.ID)
		if err := e.gates.Ensure(e.Context()); err != nil {
			e.Fatal(err)
		}
		if state := e.peek(o); state.Left != 2 || state.Inflight != 3 || state.Stream != 3 {
			e.Errorf("the new gate is %+v", state)
		}
		if n := e.offered(o, 10); n != 2 {
			e.Errorf("%d more admitted, want 2", n)
		}
		e.sold(o, 5, 0)
		e.agree(o)
	})
}

// TestHole09_FallbackBeforeTheQueueDrained: meanwhile the database sells to others. Nobody hears yes and then no.
func TestHole09_FallbackBeforeTheQueueDrained(t *testing.T) {
	eachPair(t, func(s *stores) {
		e := s.engine("hybrid")
		o := e.sale(5, 1)
		queued := make([]model.Attempt, 3)
		for i := range queued {
			queued[i] = e.attempt(o, fmt.Sprint("queued-", i), 1)
			if got := e.deduct(queued[i]); !got.Queued() {
				e.Fatalf("%+v", got)
			}
		}
		if err := e.client.Del(e.Context(), "fs:{"+o.ID+"}:gate").Err(); err != nil {
			e.Fatal(err)
		}
		if n := e.offered(o, 4); n != 4 { // by the database
			e.Errorf("the database sold %d, want 4", n)
		}
		e.sold(o, 5, 2)
		for i, a := range queued {
			got, _, err := e.orders.Order(e.Context(), a.UserID, a.ID)
			want := model.OrderPending
			if i > 0 {
				want = model.OrderRejected
			}
			if err != nil || got.Status != want {
				e.Errorf("queued attempt %d is %s %s, %v; want %s", i, got.Status, got.Reason, err, want)
			}
		}
		e.replaceGate(o)
		e.agree(o)
	})
}

// TestHole09_EverythingInRedisIsLost, the queue as well: what was only queued is told as lost, for good, and sold again.
func TestHole09_EverythingInRedisIsLost(t *testing.T) {
	admitting(t, func(e *engine) {
		o := e.sale(5, 1)
		e.buy(o, "owner", 1)
		a := e.attempt(o, "queued", 1)
		if got := e.deduct(a); !got.Queued() {
			e.Fatalf("%+v", got)
		}
		if err := e.client.FlushAll(e.Context()).Err(); err != nil {
			e.Fatal(err)
		}
		e.forgetRebuild(o.ID)
		if err := e.gates.Ensure(e.Context()); err != nil {
			e.Fatal(err)
		}
		got, verdict, err := e.orders.Order(e.Context(), a.UserID, a.ID)
		if err != nil || verdict != model.Accepted || got.Status != model.OrderRejected || got.Reason != model.ReasonLost {
			e.Errorf("the queued order is %+v, %s, %v", got, verdict, err)
		}
		e.deduct(a) // the same key again
		e.drain()
		if again, _, err := e.orders.Order(e.Context(), a.UserID, a.ID); err != nil || again != got {
			e.Errorf("the order is %+v, %v, and was told to be %+v", again, err, got)
		}
		if n := e.offered(o, 10); n != 4 {
			e.Errorf("%d more admitted, want 4", n)
		}
		e.sold(o, 5, 1)
		e.agree(o)
	})
}

// TestHole10_StopStartAndRestart: the sale is paused and resumed and an instance takes the place of another,
// with one order made and one queued. Neither is forgotten.
func TestHole10_StopStartAndRestart(t *testing.T) {
	steps := map[string]func(e *engine, o model.Offer) *engine{
		"pause and resume": func(e *engine, o model.Offer) *engine {
			for _, status := range []model.SaleStatus{model.SalePaused, model.SaleLive} {
				if _, verdict, err := e.sales.SetStatus(e.Context(), o.ID, status, "test", "tester"); verdict != model.Accepted || err != nil {
					e.Fatalf("%s: %s %v", status, verdict, err)
				}
			}
			return e
		},
		"another instance": func(e *engine, _ model.Offer) *engine { return e.engine(e.name) },
		"another instance, and Redis came back empty but for the queue": func(e *engine, o model.Offer) *engine {
			for _, key := range []string{"gate", "units", "ids", "done"} {
				if err := e.client.Del(e.Context(), "fs:{"+o.ID+"}:"+key).Err(); err != nil {
					e.Fatal(err)
				}
			}
			e.forgetRebuild(o.ID)
			return e.engine(e.name)
		},
	}
	admitting(t, func(e *engine) {
		for name, step := range steps {
			o := e.sale(5, 1)
			e.buy(o, "owner", 1)
			if got := e.deduct(e.attempt(o, "queued", 1)); !got.Queued() {
				e.Fatalf("%+v", got)
			}
			after := step(e, o)
			if state := after.peek(o); state.Left != 3 || state.Inflight != 1 {
				e.Errorf("%s: the gate is %+v", name, state)
			}
			for _, user := range []string{"owner", "queued"} {
				if got := after.deduct(after.attempt(o, user, 1)); got.Verdict != model.LimitReached && !got.Repeated {
					e.Errorf("%s: %s again: %+v", name, user, got)
				}
			}
			if n := after.offered(o, 10); n != 3 {
				e.Errorf("%s: %d more admitted, want 3", name, n)
			}
			after.sold(o, 5, 0)
			after.agree(o)
		}
	})
}

// movingGate settles what is queued at an awkward moment of a rebuild.
type movingGate struct {
	*gate.Gate
	afterMeasured, beforeInstall, whileStaging func()
}

func (g *movingGate) StreamLengths(ctx context.Context, saleID string) ([]int64, error) {
	lengths, err := g.Gate.StreamLengths(ctx, saleID)
	g.afterMeasured()
	return lengths, err
}

func (g *movingGate) Install(ctx context.Context, epoch int64, lengths []int64, c model.GateContents) ([]string, error) {
	g.beforeInstall()
	return g.Gate.Install(ctx, epoch, lengths, movingContents{c, g.whileStaging})
}

// movingContents call half when the buyers are staged and the known attempts are not.
type movingContents struct {
	model.GateContents
	half func()
}

func (c movingContents) Known(ctx context.Context) iter.Seq2[[]model.Known, error] {
	c.half()
	return c.GateContents.Known(ctx)
}

// TestHole11_RebuildBetweenDeductionAndPersistence: two attempts are deducted at the gate, and the gate is
// brought in line with the database before, while and after they reach it. Their deductions survive.
func TestHole11_RebuildBetweenDeductionAndPersistence(t *testing.T) {
	stages := []string{"before they are settled", "after the queue was measured", "after the database was read", "while the gate is staged", "after they are settled"}
	admitting(t, func(e *engine) {
		for i, stage := range stages {
			o := e.sale(5, 1)
			if n := e.offered(o, 2); n != 2 {
				e.Fatalf("%s: %d of 2 admitted", stage, n)
			}
			once := sync.OnceFunc(e.drain)
			at := func(n int) func() {
				return func() {
					if n == i {
						once()
					}
				}
			}
			moving := &movingGate{Gate: e.gate, afterMeasured: at(1), beforeInstall: at(2), whileStaging: at(3)}
			gates := service.NewGates(e.db, moving, e.catalog, discard)
			at(4)()
			e.forgetRebuild(o.ID)
			if err := gates.Serve(e.Context(), service.GateRequest{SaleID: o.ID, Reason: stage, Epoch: e.peek(o).Epoch}); err != nil {
				e.Fatalf("%s: %v", stage, err)
			}
			state := e.peek(o)
			if !state.Open || state.Left != 3 || state.Epoch < 2 {
				e.Errorf("%s: the new gate is %+v", stage, state)
			}
			if n := e.offered(o, 10); n != 3 {
				e.Errorf("%s: %d more admitted, want 3", stage, n)
			}
			e.sold(o, 5, 0)
			e.agree(o)
		}
	})
}

// TestHole12_UnitComesBackAfterSoldOut: 90 attempts past the end, then one order is cancelled: exactly one can be
// sold, although this instance and another one had noted that nothing is left.
func TestHole12_UnitComesBackAfterSoldOut(t *testing.T) {
	eachStrategy(t, func(e *engine, has traits) {
		e.run()
		other := e.engine(e.name).run()
		o := e.sale(2, 1)
		purchase := func(e *engine, user string) model.Outcome {
			e.Helper()
			got, err := e.purchases.Purchase(e.Context(), service.Request{UserID: user, SaleID: o.ID, Quantity: 1})
			if err != nil {
				e.Fatal(err)
			}
			return got
		}
		var last model.Outcome
		for i := range 2 {
			if last = purchase(e, fmt.Sprint("owner-", i)); last.Verdict != model.Accepted {
				e.Fatalf("%+v", last)
			}
		}
		for i := range 90 {
			if got := purchase([]*engine{e, other}[i%2], fmt.Sprint("late-", i)); got.Verdict != model.SoldOut {
				e.Errorf("late attempt %d: %+v", i, got)
			}
		}
		for _, instance := range []*engine{e, other} {
			if !instance.catalog.Latched(o.ID) {
				e.Error("nothing is left, and an instance has not noted it")
			}
		}
		if _, verdict, err := e.orders.Cancel(e.Context(), "owner-1", last.Order.ID); verdict != model.Accepted || err != nil {
			e.Fatalf("cancel: %s %v", verdict, err)
		}
		if e.catalog.Latched(o.ID) {
			e.Error("this instance still thinks that nothing is left")
		}
		eventually(e.T, "the other instance knows, too", func() bool { return !other.catalog.Latched(o.ID) })
		sold := 0
		if has.remembers {
			eventually(e.T, "the unit is offered again", func() bool { return purchase(e, "patient").Verdict == model.Accepted })
			sold++
		}
		for i := range 10 {
			if purchase([]*engine{other, e}[i%2], fmt.Sprint("again-", i)).Verdict == model.Accepted {
				sold++
			}
		}
		if sold != 1 {
			e.Errorf("%d sold of the one unit that came back", sold)
		}
		books := e.books(o.ID)
		if books.Orders[model.OrderPending] != 2 || books.Orders[model.OrderCancelled] != 1 || books.Stock.Available != 0 {
			e.Errorf("the orders are %v, the stock %+v", books.Orders, books.Stock)
		}
		if has.gate {
			eventually(e.T, "all is acknowledged", func() bool { return e.peek(o).Stream == 0 })
			e.agree(o)
		}
	})
}

// TestHole13_FailedAttemptGivesItsUnitBackOnce: the gate admits a user who has bought through the database
// meanwhile, the settle refuses it, and the same request comes again and again.
func TestHole13_FailedAttemptGivesItsUnitBackOnce(t *testing.T) {
	eachPair(t, func(s *stores) {
		e := s.engine("redis")
		o := e.sale(5, 1)
		behind := attempt(o, "buyer", 1, "through the database")
		if got, err := e.db.Deduct(e.Context(), o.ID, []model.Attempt{behind}); err != nil || got[0].Verdict != model.Accepted {
			e.Fatalf("%+v, %v", got, err)
		}
		a := attempt(o, "buyer", 1, "through the gate")
		if got := e.deduct(a); !got.Queued() || got.Repeated {
			e.Fatalf("%+v", got)
		}
		want := e.peek(o).Left + 1
		for range 5 {
			e.drain()
			if state := e.peek(o); state.Left != want || state.Inflight != 0 || state.Stream != 0 {
				e.Errorf("the gate is %+v, want %d left", state, want)
			}
			got, err := e.purchases.Purchase(e.Context(), service.Request{UserID: "buyer", SaleID: o.ID, Quantity: 1, Key: a.RequestKey})
			if err != nil || got.Verdict != model.LimitReached || !got.Repeated || got.Order.Status != model.OrderRejected {
				e.Errorf("again: %+v, %v", got, err)
			}
		}
		e.sold(o, 1, 1)
	})
}

// TestHole21_TheSameAttemptTwiceInTheQueue: a redelivery under a new id of the stream must not deduct again.
func TestHole21_TheSameAttemptTwiceInTheQueue(t *testing.T) {
	for _, together := range []bool{true, false} {
		t.Run("in one batch: "+strconv.FormatBool(together), func(t *testing.T) {
			eachPair(t, func(s *stores) {
				e := s.engine("redis")
				o := e.sale(5, 2)
				if got := e.deduct(e.attempt(o, "buyer", 2)); !got.Queued() {
					e.Fatalf("%+v", got)
				}
				stream := "fs:{" + o.ID + "}:stream"
				entries, err := e.client.XRange(e.Context(), stream, "-", "+").Result()
				if err != nil || len(entries) != 1 {
					e.Fatalf("%v, %v", entries, err)
				}
				if !together {
					e.drain()
				}
				if err := e.client.Do(e.Context(), append([]any{"XADD", stream, "*"}, pairs(entries[0].Values)...)...).Err(); err != nil {
					e.Fatal(err)
				}
				if e.drain(); e.books(o.ID).Orders[model.OrderPending] != 1 || e.books(o.ID).Stock.Held != 2 {
					e.Errorf("the books are %+v", e.books(o.ID))
				}
			})
		})
	}
}

func pairs(m map[string]any) (list []any) {
	for k, v := range m {
		list = append(list, k, v)
	}
	return list
}

// TestHole25_PurchasesGoOnAfterAScriptFlush, and after a loss of all that Redis had, without a new start.
func TestHole25_PurchasesGoOnAfterAScriptFlush(t *testing.T) {
	admitting(t, func(e *engine) {
		e.run()
		o := e.sale(1000, 1)
		i := 0
		purchase := func() (model.Outcome, error) {
			i++
			return e.purchases.Purchase(e.Context(), service.Request{UserID: fmt.Sprint("u-", i), SaleID: o.ID, Quantity: 1})
		}
		for range 3 {
			if err := e.client.ScriptFlush(e.Context()).Err(); err != nil {
				e.Fatal(err)
			}
			if got, err := purchase(); err != nil || got.Order == nil || got.Order.Status != model.OrderPending {
				e.Errorf("after SCRIPT FLUSH: %+v, %v", got, err)
			}
		}
		if err := e.client.FlushAll(e.Context()).Err(); err != nil {
			e.Fatal(err)
		}
		eventually(e.T, "the gate is there again", func() bool {
			got, err := purchase()
			if err != nil && !errors.Is(err, model.ErrUnavailable) {
				e.Fatal(err)
			}
			return err == nil && got.Order.Source == model.FromStream && e.peek(o).Open
		})
	})
}

// TestHole40_OptimisticSellsExactlyWhatThereIs: 300 at once on 100 units.
func TestHole40_OptimisticSellsExactlyWhatThereIs(t *testing.T) {
	eachPair(t, func(s *stores) {
		e := s.engine("optimistic")
		const quota, buyers = 100, 300
		o := e.sale(quota, 1)
		var mu sync.Mutex
		verdicts := map[model.Verdict]int64{}
		unavailable := 0
		start := time.Now()
		crowd(buyers, func(i int) {
			got, err := e.strategy.Deduct(e.Context(), attempt(o, fmt.Sprint("u-", i), 1, "key"))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, model.ErrUnavailable):
				unavailable++
			case err != nil:
				e.Error(err)
			default:
				verdicts[got.Verdict]++
			}
		})
		e.Logf("%v and %d unavailable in %s", verdicts, unavailable, time.Since(start).Round(time.Millisecond))
		books := e.books(o.ID)
		if verdicts[model.Accepted] != quota || books.Orders[model.OrderPending] != quota || books.Stock.Available != 0 {
			e.Errorf("the verdicts are %v, the orders %v, the stock %+v", verdicts, books.Orders, books.Stock)
		}
		if verdicts[model.Accepted]+verdicts[model.SoldOut]+int64(unavailable) != buyers {
			e.Errorf("somebody heard something else: %v", verdicts)
		}
	})
}
