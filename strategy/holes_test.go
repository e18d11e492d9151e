package strategy

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"testing"

	"flashsale/gate"
	"flashsale/model"
	"flashsale/service"
	"flashsale/test/kit/check"
)

// eachAdmitting runs a test with the strategies that take units at the gate, on every pair of stores.
func eachAdmitting(t *testing.T, run func(e *engine)) {
	t.Helper()
	eachPair(t, func(s *stores) {
		for _, name := range []string{"redis", "local", "hybrid"} {
			s.Run(name, func(t *testing.T) { run(s.with(t).engine(name)) })
		}
	})
}

// offer tries to sell one unit to each of n new users, of whom want have to be accepted and the others refused.
func (e *engine) offer(o model.Offer, n, want int) {
	e.Helper()
	accepted := 0
	for range n {
		switch got, err := e.try(attempt(o, fmt.Sprint("new-", keys.Add(1)), 1)); {
		case err == nil && got.Verdict == model.Accepted:
			accepted++
		case err != nil && !errors.Is(err, model.ErrUnavailable), err == nil && got.Verdict != model.SoldOut:
			e.Errorf("a new user got %+v, %v", got, err)
		}
	}
	check.Same(e, fmt.Sprint("accepted of ", n, " new users"), accepted, want)
}

// wantGate checks units left and in flight of an open gate.
func (e *engine) wantGate(when string, o model.Offer, left, inflight int64) {
	e.Helper()
	if s := e.peek(o); !s.Open || s.Left != left || s.Inflight != inflight {
		e.Errorf("%s the gate is %+v, want %d left and %d in flight", when, s, left, inflight)
	}
}

// TestHole09_GateLostBeforeTheQueueDrained: three of five units are queued when the gate is lost. The database does not
// know of them yet, and must not give them to the new gate.
func TestHole09_GateLostBeforeTheQueueDrained(t *testing.T) {
	eachAdmitting(t, func(e *engine) {
		o := e.sale(5, 1)
		e.offer(o, 3, 3)
		e.loseGate(o, "gate")
		check.Done(e.gates.Ensure(e.Context()))
		e.wantGate("after the rebuild", o, 2, 3)
		e.offer(o, 10, 2)
		e.wantSold(o, 5, 0)
	})
}

// TestHole09_FallbackBeforeTheQueueDrained: meanwhile the database sells to others. No confirmed order is taken back.
func TestHole09_FallbackBeforeTheQueueDrained(t *testing.T) {
	eachPair(t, func(s *stores) {
		e := s.engine("hybrid")
		o := e.sale(5, 1)
		queued := []model.Attempt{e.queue(o, "queued-0"), e.queue(o, "queued-1"), e.queue(o, "queued-2")}
		e.loseGate(o, "gate")
		e.offer(o, 4, 4) // sold by the database
		e.drain()
		for i, want := range []model.OrderStatus{model.OrderPending, model.OrderRejected, model.OrderRejected} {
			if got, _, err := e.orders.Order(e.Context(), queued[i].UserID, queued[i].ID); err != nil || got.Status != want {
				e.Errorf("queued attempt %d is %s %s, %v; want %s", i, got.Status, got.Reason, err, want)
			}
		}
		e.replaceGate(o)
		e.wantSold(o, 5, 2)
	})
}

// TestHole09_EverythingInRedisIsLost: a queued attempt is reported as lost, for good, and its unit is sold again.
func TestHole09_EverythingInRedisIsLost(t *testing.T) {
	eachAdmitting(t, func(e *engine) {
		o := e.sale(5, 1)
		e.buy(o, "owner", 1)
		a := e.queue(o, "queued")
		check.Done(e.client.FlushAll(e.Context()).Err())
		e.allowRebuild(o)
		check.Done(e.gates.Ensure(e.Context()))
		told, verdict, err := e.orders.Order(e.Context(), a.UserID, a.ID)
		if err != nil || verdict != model.Accepted || told.Status != model.OrderRejected || told.Reason != model.ReasonLost {
			e.Errorf("the queued order is %+v, %s, %v", told, verdict, err)
		}
		e.deduct(a) // the same key again
		e.drain()
		if again, _, err := e.orders.Order(e.Context(), a.UserID, a.ID); err != nil || again != told {
			e.Errorf("the order is %+v, %v, and was reported as %+v", again, err, told)
		}
		e.offer(o, 10, 4)
		e.wantSold(o, 5, 1)
	})
}

// TestHole10_StopStartAndRestart: the sale is paused and resumed, or another instance takes over. Neither the settled
// order nor the queued one is forgotten.
func TestHole10_StopStartAndRestart(t *testing.T) {
	steps := map[string]func(e *engine, o model.Offer) *engine{
		"pause and resume": func(e *engine, o model.Offer) *engine {
			e.setStatus(o, model.SalePaused)
			e.setStatus(o, model.SaleLive)
			return e
		},
		"another instance": func(e *engine, _ model.Offer) *engine { return e.engine(e.kind.Name) },
		"another instance, and Redis has lost all but the stream": func(e *engine, o model.Offer) *engine {
			e.loseGate(o, "gate", "units")
			return e.engine(e.kind.Name)
		},
	}
	eachAdmitting(t, func(e *engine) {
		for name, step := range steps {
			o := e.sale(5, 1)
			e.buy(o, "owner", 1)
			e.queue(o, "queued")
			after := step(e, o)
			after.wantGate(name, o, 3, 1)
			for _, user := range []string{"owner", "queued"} {
				check.Same(e, name+": a second unit for "+user, after.deduct(attempt(o, user, 1)).Verdict, model.LimitReached)
			}
			after.offer(o, 10, 3)
			after.wantSold(o, 5, 0)
		}
	})
}

// movingGate calls its functions at moments of a rebuild.
type movingGate struct {
	*gate.Gate
	afterMeasured, beforeInstall, whileStaging func()
}

func (g *movingGate) StreamLengths(ctx context.Context, gate model.GateRef) ([]int64, error) {
	lengths, err := g.Gate.StreamLengths(ctx, gate)
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

// TestHole11_RebuildBetweenDeductionAndPersistence: two attempts are deducted at the gate and settled at some moment of a
// rebuild. Their deductions survive.
func TestHole11_RebuildBetweenDeductionAndPersistence(t *testing.T) {
	moments := []string{
		"never", "after the stream was measured", "after the database was read", "while the gate is staged", "before the rebuild",
	}
	eachAdmitting(t, func(e *engine) {
		for i, moment := range moments {
			o := e.sale(5, 1)
			e.offer(o, 2, 2)
			once := sync.OnceFunc(e.drain)
			at := func(n int) func() {
				return func() {
					if n == i {
						once()
					}
				}
			}
			moving := &movingGate{Gate: e.gate, afterMeasured: at(1), beforeInstall: at(2), whileStaging: at(3)}
			gates := service.NewGates(e.db, moving, e.catalog, false, discard)
			at(4)()
			e.allowRebuild(o)
			request := service.GateRequest{SaleID: o.ID, Reason: model.RebuildReason(moment), Epoch: e.peek(o).Epoch}
			check.Done(gates.Serve(e.Context(), request))
			if state := e.peek(o); !state.Open || state.Left != 3 || state.Epoch < 2 {
				e.Errorf("settled %s: the new gate is %+v", moment, state)
			}
			e.offer(o, 10, 3)
			e.wantSold(o, 5, 0)
		}
	})
}

// TestHole12_UnitComesBackAfterSoldOut: two instances have noted that the sale is sold out, and have refused 90 purchases.
// Then one order is cancelled, and exactly one unit is sold.
func TestHole12_UnitComesBackAfterSoldOut(t *testing.T) {
	eachStrategy(t, func(e *engine, has traits) {
		e.run()
		other := e.engine(e.kind.Name).run()
		o := e.sale(2, 1)
		buys := func(i int, user string) bool {
			e.Helper()
			got, err := []*engine{e, other}[i%2].insist(o, user, "")
			bought := got.Verdict == model.Accepted || got.Verdict == model.LimitReached // by a try that was unavailable all the same
			if err != nil || !bought && got.Verdict != model.SoldOut {
				e.Fatalf("%+v, %v", got, err)
			}
			return bought
		}
		last := attemptUnder(o, "owner", 1, "key")
		check.Same(e, "first unit", check.Must(e.insist(o, "owner", "key")).Verdict, model.Accepted)
		check.Same(e, "the second unit is sold", buys(0, "second-owner"), true)
		for i := range 90 {
			check.Same(e, fmt.Sprint("late purchase ", i, " is accepted"), buys(i, fmt.Sprint("late-", i)), false)
		}
		check.Same(e, "latched", []bool{e.catalog.Latched(o.ID), other.catalog.Latched(o.ID)}, []bool{true, true})
		e.cancel(last)
		check.Same(e, "latched at the instance that cancelled", e.catalog.Latched(o.ID), false)
		check.Eventually(e, "the other instance asks again", func() bool { return !other.catalog.Latched(o.ID) })
		sold := 0
		if has.remembers {
			check.Eventually(e, "the unit is offered again", func() bool { return buys(0, "patient") })
			sold++
		}
		for i := range 10 {
			if buys(i+1, fmt.Sprint("again-", i)) {
				sold++
			}
		}
		check.Same(e, "sold of one released unit", sold, 1)
		e.wantSold(o, 2, 0)
		check.Same(e, "cancelled orders", e.books(o).Orders[model.OrderCancelled], 1)
	})
}

// TestHole13_FailedAttemptGivesItsUnitBackOnce: the gate admits a user who has bought through the database. The settle
// refuses the attempt, and the same request comes again and again.
func TestHole13_FailedAttemptGivesItsUnitBackOnce(t *testing.T) {
	eachPair(t, func(s *stores) {
		e := s.engine("redis")
		o := e.sale(5, 1)
		direct := attempt(o, "buyer", 1)
		check.Same(e, "bought directly", check.Must(e.db.Deduct(e.Context(), o.ID, []model.Attempt{direct}))[0].Verdict, model.Accepted)
		a := e.queue(o, "buyer")
		left := e.peek(o).Left + 1
		for range 5 {
			e.drain()
			e.wantGate("after the settle", o, left, 0)
			got, err := e.purchase(o, "buyer", a.IdempotencyKey)
			if err != nil || got.Verdict != model.LimitReached || !got.Repeated || got.Order.Status != model.OrderRejected {
				e.Errorf("again: %+v, %v", got, err)
			}
		}
		e.wantOrders(o, 1, 1, 1)
	})
}

// TestHole21_TheSameAttemptTwiceInTheQueue: an entry is delivered again under a new stream id, before or after the first
// one is settled. It deducts nothing.
func TestHole21_TheSameAttemptTwiceInTheQueue(t *testing.T) {
	eachPair(t, func(s *stores) {
		e := s.engine("redis")
		for _, settled := range []bool{false, true} {
			o := e.sale(5, 1)
			e.queue(o, "buyer")
			stream := "fs:{" + o.ID + "}:stream"
			entries := check.Must(e.client.XRange(e.Context(), stream, "-", "+").Result())
			check.Same(e, "entries", len(entries), 1)
			if settled {
				e.drain()
			}
			check.Done(e.client.Do(e.Context(), "XADD", stream, "*", "attempt", entries[0].Values["attempt"]).Err())
			e.drain()
			e.wantOrders(o, 1, 0, 1)
		}
	})
}

// Purchases go on without a restart after a flush of the scripts, and after a loss of all data of Redis.
func TestHole25_PurchasesGoOnAfterAScriptFlush(t *testing.T) {
	eachAdmitting(t, func(e *engine) {
		e.run()
		o := e.sale(1000, 1)
		users := 0
		purchase := func() (model.Outcome, error) {
			users++
			return e.insist(o, number(users), "")
		}
		for range 3 {
			check.Done(e.client.ScriptFlush(e.Context()).Err())
			if got, err := purchase(); err != nil || got.Order == nil || got.Order.Status != model.OrderPending {
				e.Errorf("after SCRIPT FLUSH: %+v, %v", got, err)
			}
		}
		check.Done(e.client.FlushAll(e.Context()).Err())
		check.Eventually(e, "the gate sells again", func() bool {
			got, err := purchase()
			if err != nil && !errors.Is(err, model.ErrUnavailable) {
				e.Fatal(err)
			}
			return err == nil && got.Order.Source == model.FromStream && e.peek(o).Open
		})
	})
}

// TestHole40_OptimisticSellsExactlyWhatThereIs: 300 attempts come at once on 100 units. Those that lose too many races
// are told to try again.
func TestHole40_OptimisticSellsExactlyWhatThereIs(t *testing.T) {
	eachPair(t, func(s *stores) {
		e := s.engine("optimistic")
		o := e.sale(100, 1)
		got := count(rush(o, 300, e))
		if got[model.Accepted] != 100 || got[model.Accepted]+got[model.SoldOut]+got[model.Unavailable] != 300 {
			s.Errorf("the verdicts are %v", got)
		}
		e.wantSold(o, 100, 0)
	})
}
