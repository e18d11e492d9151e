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

	"flashsale/model"
	"flashsale/test/kit/check"
)

// TestWaysOfAnAttempt: if the gate can't judge an attempt, hybrid asks the database, and redis returns ErrUnavailable.
func TestWaysOfAnAttempt(t *testing.T) {
	type test struct {
		gate     fakeGate
		fallback bool
		needs    bool // a gate is demanded
	}
	check.Each(t, map[string]test{
		"queued":   {gate: gateThat(model.Accepted, nil)},
		"sold out": {gate: gateThat(model.SoldOut, nil)},
		"paused":   {gate: gateThat(model.Paused, nil)},
		"no gate":  {gate: noGate, fallback: true, needs: true},
		"unsure":   {gate: gateThat(model.Unsure, nil), fallback: true},
		"no reply": {gate: gateThat("", errNoReply), fallback: true},
		"repeated": {gate: fakeGate{admit: func() (model.Outcome, error) {
			return model.Outcome{Verdict: model.Accepted, Repeated: true}, nil
		}}},
		"too frequent": {gate: fakeGate{admit: func() (model.Outcome, error) {
			return model.Outcome{Verdict: model.TooFrequent, RetryAfter: time.Second}, nil
		}}},
	}, func(t *testing.T, tc test) {
		db := &fakeDatabase{}
		n, control := fakeNeeds(tc.gate, db)
		for _, s := range []Strategy{NewHybrid(n), NewRedis(n)} {
			_, isHybrid := s.(*Hybrid)
			control.need = nil
			r := <-call(t.Context(), s, fakeAttempt("sale", "u", "1"))
			switch {
			case tc.fallback && isHybrid:
				wantOrder(t, "u", r)
			case tc.fallback:
				wantFailed(t, r, model.ErrUnavailable)
			default:
				want, _ := tc.gate.admit()
				if want.Verdict == model.Accepted {
					want.Verdict = model.Queued
				}
				check.Same(t, "result", r, result{got: want})
			}
			check.Same(t, "a gate is demanded", len(control.need) > 0, tc.needs)
			check.Error(t, "health after one call", s.Healthy(), nil)
			s.Close()
		}
		check.Same(t, "the database is asked", len(db.of("sale")) != 0, tc.fallback)
	})
}

// TestRefusalsOfTheDatabase: hybrid passes on a refusal only if no gate can have admitted the attempt or an earlier try
// of its key, or if the sale is over.
func TestRefusalsOfTheDatabase(t *testing.T) {
	open := gateThat("", gobreaker.ErrOpenState) // Redis is not asked
	for _, tc := range []struct {
		name    string
		gate    fakeGate
		keyless bool
		refusal model.Verdict
		passed  bool
	}{
		{"no reply", gateThat("", errNoReply), false, model.SoldOut, false},
		{"no reply, without a key", gateThat("", errNoReply), true, model.SoldOut, false},
		{"no reply, another request", gateThat("", errNoReply), false, model.IdempotencyMismatch, true},
		{"the circuit is open", open, false, model.SoldOut, false},
		{"the circuit is open, without a key", open, true, model.SoldOut, true},
		{"no gate", noGate, false, model.SoldOut, false},
		{"no gate, limit", noGate, false, model.LimitReached, false},
		{"no gate, the sale is over", noGate, false, model.Ended, true},
		{"no gate, without a key", noGate, true, model.SoldOut, true},
		{"not all shards answer", gateThat(model.Unsure, nil), false, model.SoldOut, true},
	} {
		n, _ := fakeNeeds(tc.gate, &fakeDatabase{verdict: tc.refusal})
		h := NewHybrid(n)
		a := fakeAttempt("sale", "u", "1")
		a.Keyless = tc.keyless
		got, err := h.Deduct(t.Context(), a)
		if tc.passed && (err != nil || got.Verdict != tc.refusal) || !tc.passed && !errors.Is(err, model.ErrUnavailable) {
			t.Errorf("%s: %+v, %v; %s is passed on: %t", tc.name, got, err, tc.refusal, tc.passed)
		}
		h.Close()
	}
}

// TestBreaker: the circuit opens after failures in a row, rests, and closes after one successful call.
func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, answer := 0, errNoReply
		n, _ := fakeNeeds(fakeGate{admit: func() (model.Outcome, error) {
			asked++
			return model.Outcome{Verdict: model.Accepted}, answer
		}}, &fakeDatabase{})
		h := NewHybrid(n)
		try := func(stage string, times int, queued bool) {
			t.Helper()
			for range times {
				got, err := h.Deduct(t.Context(), attempt(model.Offer{Sale: model.Sale{ID: "sale"}}, "u", 1))
				if err != nil || (got.Verdict == model.Queued) != queued {
					t.Fatalf("%s: %+v, %v", stage, got, err)
				}
			}
		}
		want := func(stage string, calls int, healthy bool) {
			t.Helper()
			if asked != calls || (h.Healthy() == nil) != healthy {
				t.Errorf("%s: the gate was asked %d times, want %d; health: %v", stage, asked, calls, h.Healthy())
			}
		}
		try("a few failures", breakerTrips-1, false)
		answer = nil
		try("a success", 1, true)
		answer = errNoReply
		try("as many failures again", breakerTrips-1, false)
		want("never enough failures in a row", 2*breakerTrips-1, true)
		try("one more failure", 1, false)
		want("enough failures in a row", 2*breakerTrips, false)
		try("the circuit is open", 10, false)
		want("the circuit is open", 2*breakerTrips, false)
		time.Sleep(breakerRest + 1) // of synctest's clock
		try("after the rest", 1, false)
		want("one call has failed again", 2*breakerTrips+1, false)
		time.Sleep(breakerRest + 1)
		answer = nil
		try("Redis is back", 1, true)
		want("one call has succeeded", 2*breakerTrips+2, true)
		try("the circuit is closed", 1, true)
		h.Close()
	})
}

// TestBreakerIgnores answers that are not a failure of Redis.
func TestBreakerIgnores(t *testing.T) {
	for name, gate := range map[string]fakeGate{"a missing gate": noGate, "a cancelled call": gateThat("", context.Canceled)} {
		n, _ := fakeNeeds(gate, &fakeDatabase{})
		h := NewHybrid(n)
		for i := range 3 * breakerTrips {
			wantOrder(t, "u", <-call(t.Context(), h, fakeAttempt("sale", "u", fmt.Sprint(i))))
		}
		check.Error(t, name, h.Healthy(), nil)
		h.Close()
	}
}

// nodeGate is a gate in two shards on two nodes. The first letter of a user's name is the shard of the user.
type nodeGate struct {
	fakeGate
	down  string
	calls map[string]int // by node
}

func (g nodeGate) Batch(ctx context.Context, a model.Attempt) string { return g.Node(ctx, a) }

func (nodeGate) Node(_ context.Context, a model.Attempt) string { return a.SaleID + "." + a.UserID[:1] }

func (g nodeGate) Admit(ctx context.Context, attempts []model.Attempt) []model.Admission {
	node, answer := g.Node(ctx, attempts[0]), model.Admission{Outcome: model.Outcome{Verdict: model.Accepted}}
	g.calls[node]++
	if node == g.down {
		answer = model.Admission{Err: errNoReply}
	}
	return slices.Repeat([]model.Admission{answer}, len(attempts))
}

// TestOneNodeFails: the database takes the attempts of the failed node's shard, and the other node is asked as before.
func TestOneNodeFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the circuit must not close again meanwhile
		g := nodeGate{down: "sale.a", calls: map[string]int{}}
		n, _ := fakeNeeds(g, &fakeDatabase{})
		h := NewHybrid(n)
		t.Cleanup(h.Close)
		for i := range 2 * breakerTrips {
			for user, queued := range map[string]bool{"a": false, "b": true} {
				got, err := h.Deduct(t.Context(), fakeAttempt("sale", user, fmt.Sprint(i)))
				if err != nil || (got.Verdict == model.Queued) != queued {
					t.Errorf("%s: %+v, %v", user, got, err)
				}
			}
		}
		check.Same(t, "calls", g.calls, map[string]int{"sale.a": breakerTrips, "sale.b": 2 * breakerTrips})
		check.Same(t, "an open circuit is reported", h.Healthy() != nil, true)
	})
}

// Attempts that gather while two calls are under way share the next call, whatever their sales. A sale that fails does not
// open the circuit for the others.
func TestSalesShareACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &heldGate{release: make(chan struct{})}
		n, _ := fakeNeeds(g, &fakeDatabase{})
		h := NewHybrid(n)
		var all sync.WaitGroup
		for round := range breakerTrips + 1 {
			for i := range 6 {
				a := fakeAttempt([]string{"sale", "other", "damaged"}[i%3], "u", fmt.Sprint(round, i))
				all.Go(func() {
					_, err := h.Deduct(t.Context(), a)
					check.Error(t, a.SaleID, err, nil)
				})
				synctest.Wait()
			}
			close(g.release)
			all.Wait()
			g.release = make(chan struct{})
		}
		check.Same(t, "attempts by call", g.calls, slices.Repeat([]int{1, 1, 4}, breakerTrips+1))
		check.Error(t, "the circuit", h.Healthy(), nil)
		h.Close()
	})
}

// While a settle is under way, a call of the gate waits a moment for more attempts, unless its first buyer waits for the gate only.
func TestAttemptsGather(t *testing.T) {
	for _, tc := range []struct{ busy, hurried, gathers bool }{{false, false, false}, {true, true, false}, {true, false, true}} {
		synctest.Test(t, func(t *testing.T) {
			g := &heldGate{release: make(chan struct{})}
			close(g.release)
			n, _ := fakeNeeds(g, &fakeDatabase{})
			n.Settler = settlerOf{n.Settler, tc.busy}
			h, began := NewHybrid(n), time.Now()
			var all sync.WaitGroup
			for i := range 6 {
				a := fakeAttempt("sale", "u", fmt.Sprint(i))
				a.Waiter = model.NewWaiter(nil)
				if tc.hurried {
					a.Waiter.Hurry()
				}
				all.Go(func() { check.Must(h.Deduct(t.Context(), a)) })
				synctest.Wait()
			}
			all.Wait()
			took, calls := time.Duration(0), 6
			if tc.gathers {
				took, calls = gatherTime, 1
			}
			check.Same(t, "the time", time.Since(began), took)
			check.Same(t, "the calls", len(g.calls), calls)
			h.Close()
		})
	}
}

// settlerOf is a settler that is busy or not.
type settlerOf struct {
	Settler
	busy bool
}

func (s settlerOf) Busy() bool { return s.busy }

// heldGate admits the attempts of a call when the call is released, and fails those on the sale "damaged".
type heldGate struct {
	fakeGate
	release chan struct{}
	calls   []int // attempts of each call
}

func (g *heldGate) Admit(_ context.Context, attempts []model.Attempt) []model.Admission {
	g.calls = append(g.calls, len(attempts))
	<-g.release
	answers := make([]model.Admission, len(attempts))
	for i, a := range attempts {
		answers[i].Verdict = model.Accepted
		if a.SaleID == "damaged" {
			answers[i] = model.Admission{Err: errNoReply}
		}
	}
	return answers
}

// TestBuyerWhoLeftBuysNothing: the database is not asked for a buyer who no longer waits.
func TestBuyerWhoLeftBuysNothing(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	db := &fakeDatabase{}
	n, _ := fakeNeeds(fakeGate{admit: func() (model.Outcome, error) {
		leave()
		return model.Outcome{}, ctx.Err()
	}}, db)
	h := NewHybrid(n)
	_, err := h.Deduct(ctx, fakeAttempt("sale", "u", "1"))
	check.Error(t, "deduct", err, context.Canceled)
	h.Close()
	check.Same(t, "batches of the database", len(db.of("sale")), 0)
}

// Without Redis the instance counts each user's requests itself, but only those that the gate did not count.
func TestRequestsAreCountedWithoutRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := func(gate fakeGate) (try func(sale, user string, limit int) (model.Outcome, error), end func()) {
			n, _ := fakeNeeds(gate, &fakeDatabase{})
			h := NewHybrid(n)
			return func(sale, user string, limit int) (model.Outcome, error) {
				a := attempt(model.Offer{Sale: model.Sale{ID: sale}}, user, 1)
				a.Frequency = model.Frequency{Limit: limit, Window: time.Second}
				return h.Deduct(t.Context(), a)
			}, h.Close
		}
		try, end := start(gateThat("", gobreaker.ErrOpenState)) // Redis is not asked
		want := func(sale, user string, limit int, want model.Outcome) {
			t.Helper()
			got, err := try(sale, user, limit)
			got.Order = nil
			if err != nil || got != want {
				t.Errorf("%s on %s, limit %d: %+v, %v, want %+v", user, sale, limit, got, err, want)
			}
		}
		yes := model.Outcome{Verdict: model.Accepted}
		no := model.Outcome{Verdict: model.TooFrequent, RetryAfter: time.Second / 2}
		want("sale", "u-1", 2, yes)
		want("sale", "u-1", 2, yes)
		want("sale", "u-1", 2, no)
		want("sale", "u-2", 2, yes)
		want("other", "u-1", 2, yes)
		want("sale", "u-1", 0, yes)   // no limit
		time.Sleep(no.RetryAfter - 1) // of synctest's clock
		want("sale", "u-1", 2, no)
		time.Sleep(time.Nanosecond)
		want("sale", "u-1", 2, yes)
		want("sale", "u-1", 2, no)
		end()

		try, end = start(noGate) // whose script has counted
		for range 3 {
			want("sale", "u-1", 2, yes)
		}
		end()

		try, end = start(gateThat("", errNoReply)) // who may have admitted the attempts
		want("sale", "u-1", 2, yes)
		want("sale", "u-1", 2, yes)
		_, err := try("sale", "u-1", 2)
		check.Error(t, "over the limit, and perhaps admitted", err, model.ErrUnavailable)
		end()
	})
}

// TestHole08_TwoWaysAtOnce: users who may have one unit buy at once through the gate of one instance, and through the
// database on another instance that has lost Redis.
func TestHole08_TwoWaysAtOnce(t *testing.T) {
	eachPair(t, func(s *stores) {
		here := s.engine("hybrid").run()
		there := s.engine("hybrid", func(n *Needs) { n.Gate = gateThat("", errNoReply) })
		o := here.sale(50, 1)
		there.refresh()
		bought := map[string]int{}
		for i, got := range s.atOnce(40, func(i int) (model.Outcome, error) {
			return []*engine{here, there}[i%2].insist(o, number(i/4), fmt.Sprint("key-", i))
		}) {
			if got.Verdict == model.Accepted {
				bought[number(i/4)]++
			}
		}
		for i := range 10 {
			check.Same(s, number(i)+": confirmed purchases", bought[number(i)], 1)
		}
		books := s.books(o)
		check.Same(s, "units held, units of buyers", []int64{books.Stock.Held, books.BuyersUnits}, []int64{10, 10})
	})
}

// TestHole48_NoIsNotTakenBack: an attempt is in the stream. Its user repeats it on an instance that cannot ask the gate,
// and there the last unit was sold to another buyer, or to the same user under another key. Both units come back, and the
// entry is settled as an order. So the repeated key must not be refused. A request without a key repeats no attempt.
func TestHole48_NoIsNotTakenBack(t *testing.T) {
	open := gateThat("", gobreaker.ErrOpenState)
	for name, away := range map[string]fakeGate{"the circuit is open": open, "the gate is closed": noGate} {
		for refusal, other := range map[model.Verdict]string{model.SoldOut: "another", model.LimitReached: "buyer"} {
			t.Run(fmt.Sprint(name, ", ", refusal), func(t *testing.T) {
				eachPair(t, func(s *stores) {
					here := s.engine("hybrid")
					there := s.engine("hybrid", func(n *Needs) { n.Gate = away })
					o := here.sale(1, 1)
					there.refresh()
					admitted := attemptUnder(o, "buyer", 1, "key")
					if got := here.deduct(admitted); !queued(got) {
						s.Fatalf("%+v", got)
					}
					last, err := there.purchase(o, other, "other key")
					if err != nil || last.Order == nil || last.Order.Status != model.OrderPending {
						s.Fatalf("%+v, %v", last, err)
					}
					// Two copies of the request may be decided in one transaction.
					s.wantVerdicts(s.atOnce(2, func(int) (model.Outcome, error) { return there.purchase(o, "buyer", "key") }),
						verdicts{model.Unavailable: 2})
					if got, err := there.purchase(o, other, ""); err != nil || got.Verdict != model.LimitReached {
						s.Errorf("without a key: %+v, %v", got, err)
					}
					if again, err := there.purchase(o, other, "other key"); err != nil || again.Order == nil || again.Order.ID != last.Order.ID {
						s.Errorf("the known order: %+v, %v", again, err)
					}
					there.cancel(model.Attempt{UserID: other, ID: last.Order.ID})
					here.drain()
					if order, found, err := s.db.Order(s.Context(), admitted.ID); err != nil || !found || order.Status != model.OrderPending {
						s.Errorf("the queued order is %+v, %t, %v", order, found, err)
					}
				})
			})
		}
	}
}
