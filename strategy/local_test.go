package strategy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/model"
)

// countedGate is an open gate with units, and counts how often it is asked.
type countedGate struct {
	fakeGate // its lines

	admit func(a model.Attempt) (model.Outcome, error) // what it answers instead, if anything
	peek  func(ctx context.Context) error              // may block, may fail

	mu            sync.Mutex
	left          int64
	closed        bool
	admits, peeks int
}

func (g *countedGate) Admit(ctx context.Context, _ string, attempts []model.Attempt, _ int64) (outcomes []model.Outcome, err error) {
	for _, a := range attempts {
		outcome, err := g.admitOne(ctx, a)
		if err != nil {
			return nil, err
		}
		outcomes = append(outcomes, outcome)
	}
	return outcomes, nil
}

func (g *countedGate) admitOne(ctx context.Context, a model.Attempt) (model.Outcome, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.admits++
	n := int64(a.Quantity)
	switch {
	case ctx.Err() != nil:
		return model.Outcome{}, ctx.Err()
	case g.closed:
		return model.Outcome{Verdict: model.NoGate}, nil
	case g.admit != nil:
		return g.admit(a)
	case g.left < n:
		return model.Outcome{Verdict: model.SoldOut}, nil
	}
	g.left -= n
	return model.Outcome{Verdict: model.Accepted}, nil
}

func (g *countedGate) Peek(ctx context.Context, saleIDs ...string) ([]model.GateState, error) {
	g.mu.Lock()
	g.peeks++
	g.mu.Unlock()
	if g.peek != nil {
		if err := g.peek(ctx); err != nil {
			return nil, err
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Repeat([]model.GateState{{Exists: true, Open: !g.closed, Left: g.left}}, len(saleIDs)), nil
}

func (g *countedGate) set(left int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left = left
}

// judge is a control that knows whether the sale sells.
type judge struct {
	*fakeControl
	verdict model.Verdict
}

func (j judge) Judge(string) model.Verdict { return j.verdict }

// localBench is an instance of local before a counted gate.
type localBench struct {
	*testing.T
	gate    *countedGate
	control *fakeControl
	local   *Local
	keys    int
}

// newLocalBench has a share of everything and no buffer, unless change says otherwise.
func newLocalBench(t *testing.T, left int64, change ...func(*Needs)) *localBench {
	t.Helper()
	b := &localBench{T: t, gate: &countedGate{left: left}}
	n, control, _ := fakeNeeds(nil, nil)
	n.Gate, n.Now, n.LocalShare = b.gate, time.Now, 1
	for _, f := range change {
		f(&n)
	}
	b.control, b.local = control, NewLocal(n)
	return b
}

func shareOf(part float64, buffer int64) func(*Needs) {
	return func(n *Needs) { n.LocalShare, n.LocalBuffer = part, buffer }
}

// attempt is a wish without a key, for which memory may answer.
func (b *localBench) attempt(n int) model.Attempt {
	b.keys++
	a := attempt(model.Offer{Sale: model.Sale{ID: "sale"}}, "u", n, fmt.Sprint("key-", b.keys))
	a.Keyless = true
	return a
}

// want sends an attempt that has to end so.
func (b *localBench) want(n int, want model.Verdict) {
	b.Helper()
	if got, err := b.local.Deduct(b.Context(), b.attempt(n)); err != nil || got != (model.Outcome{Verdict: want}) {
		b.Errorf("%d asked for: %+v, %v, want %s", n, got, err, want)
	}
}

// asked checks how often the gate was asked, all in all.
func (b *localBench) asked(stage string, peeks, admits int) {
	b.Helper()
	if b.gate.peeks != peeks || b.gate.admits != admits {
		b.Errorf("%s: the gate was looked at %d times and asked %d times, want %d and %d", stage, b.gate.peeks, b.gate.admits, peeks, admits)
	}
}

// TestLocalShares: how many attempts pass between one look at the gate and the next, and that the gate is sold empty
// all the same.
func TestLocalShares(t *testing.T) {
	tests := map[string]struct {
		left   int64
		share  float64
		buffer int64
		want   int // attempts until the next look
	}{
		"a half and a few":             {100, 0.5, 4, 54},
		"a half of an odd number":      {3, 0.5, 0, 2},
		"a half and more than is left": {6, 0.5, 4, 6},
		"all":                          {10, 1, 0, 10},
		"all and more":                 {10, 1, 4, 10},
		"a tenth":                      {10, 0.1, 0, 1},
		"a tenth and one":              {10, 0.1, 1, 2},
		"less than one":                {10, 0.01, 0, 1},
		"the last":                     {1, 0.5, 0, 1},
		"the last, with a buffer":      {1, 0.5, 4, 1},
		"the buffer alone":             {10, 0, 3, 3},
		"nothing left":                 {0, 0.5, 4, 0},
		"the gate is in debt":          {-2, 0.5, 4, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newLocalBench(t, tc.left, shareOf(tc.share, tc.buffer))
				for i := range tc.want {
					b.want(1, model.Accepted)
					b.asked(fmt.Sprint("number ", i), 1, i+1)
				}
				for i := tc.want; i < int(tc.left); i++ {
					b.want(1, model.Accepted)
					if i == tc.want && b.gate.peeks != 2 {
						t.Errorf("looked %d times after %d", b.gate.peeks, tc.want)
					}
				}
				for range 3 {
					b.want(1, model.SoldOut)
				}
				if sold := max(tc.left, 0); b.gate.admits != int(sold) || b.gate.left != tc.left-sold {
					t.Errorf("%d asked at the gate, %d left there, want all %d sold and nobody sent in vain", b.gate.admits, b.gate.left, sold)
				}
			})
		})
	}
}

// TestHole04_BothMustSayYes: what the gate did not sell is given back here, so that another buyer may ask for it without a
// new look, and an error is never told as sold out.
func TestHole04_BothMustSayYes(t *testing.T) {
	tests := map[string]struct {
		outcome model.Outcome
		err     error
	}{
		"limit reached": {outcome: model.Outcome{Verdict: model.LimitReached}},
		"too frequent":  {outcome: model.Outcome{Verdict: model.TooFrequent, RetryAfter: time.Second}},
		"paused":        {outcome: model.Outcome{Verdict: model.Paused}},
		"known":         {outcome: model.Outcome{Verdict: model.Accepted, Repeated: true}},
		"mismatch":      {outcome: model.Outcome{Verdict: model.IdempotencyMismatch, Repeated: true}},
		"no reply":      {err: errNoReply},
		"no gate":       {err: model.ErrNoGate},
		"left":          {err: context.Canceled},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newLocalBench(t, 2)
				b.gate.admit = func(model.Attempt) (model.Outcome, error) {
					if errors.Is(tc.err, model.ErrNoGate) {
						return model.Outcome{Verdict: model.NoGate}, nil
					}
					return tc.outcome, tc.err
				}
				for range 3 {
					got, err := b.local.Deduct(t.Context(), b.attempt(2))
					if got != tc.outcome || !errors.Is(err, tc.err) || errors.Is(err, model.ErrUnavailable) != (tc.err != nil) {
						t.Errorf("%+v, %v, want %+v, %v", got, err, tc.outcome, tc.err)
					}
				}
				b.asked("refused", 1, 3)
				b.gate.admit = nil
				b.want(1, model.Accepted)
				b.want(1, model.Accepted)
				b.asked("sold", 1, 5)
				b.want(1, model.SoldOut)
				b.asked("sold out", 2, 5)
			})
		})
	}
}

// TestLocalHearsOfSoldOut from the gate, where other instances sell too, and then answers by itself.
func TestLocalHearsOfSoldOut(t *testing.T) {
	tests := map[string]struct {
		asked int
		left  int64 // at the gate, of the ten that this instance knows of
		then  model.Verdict
	}{
		"one of none":  {1, 0, model.SoldOut},
		"two of none":  {2, 0, model.SoldOut}, // by the gate: memory knows that fewer than two are left
		"two of one":   {2, 1, model.Accepted},
		"three of two": {3, 2, model.Accepted},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newLocalBench(t, 10)
				b.want(1, model.Accepted)
				b.gate.set(tc.left)
				b.want(tc.asked, model.SoldOut)
				b.asked("the gate says it", 1, 2)
				b.want(tc.asked, model.SoldOut)
				b.asked("memory says it", 1, 2)
				b.want(1, tc.then)
			})
		})
	}
}

// TestLocalIsExhausted for a quarter of a second, in which it costs the gate nothing; then it looks again, and offers
// what came back.
func TestLocalIsExhausted(t *testing.T) {
	const quarter = 250 * time.Millisecond
	tests := map[string]func(b *localBench){
		"sold out at a look": func(b *localBench) { b.want(1, model.SoldOut) },
		"sold the last":      func(b *localBench) { b.gate.set(1); b.want(1, model.Accepted); b.want(1, model.SoldOut) },
		"sold out at an attempt, long after the look": func(b *localBench) {
			b.gate.set(9)
			b.want(1, model.Accepted)
			b.gate.set(0)
			time.Sleep(time.Second) // of the bubble's clock, as below
			b.want(1, model.SoldOut)
		},
	}
	for name, exhaust := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newLocalBench(t, 0)
				exhaust(b)
				peeks, admits := b.gate.peeks, b.gate.admits
				for range 100 {
					b.want(1, model.SoldOut)
				}
				b.asked("at once", peeks, admits)
				time.Sleep(quarter - 1)
				b.want(1, model.SoldOut)
				b.asked("just before", peeks, admits)
				time.Sleep(time.Nanosecond)
				b.want(1, model.SoldOut)
				b.asked("after a quarter of a second", peeks+1, admits)

				b.gate.set(2)
				time.Sleep(quarter - 1)
				b.want(1, model.SoldOut)
				b.asked("two came back, not seen yet", peeks+1, admits)
				time.Sleep(time.Nanosecond)
				b.want(1, model.Accepted)
				b.want(1, model.Accepted)
				b.asked("seen", peeks+2, admits+2)
				b.want(1, model.SoldOut)
			})
		})
	}
}

// TestLocalTwoOfOne: too few for one buyer are enough for the next. One look is enough to know both.
func TestLocalTwoOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLocalBench(t, 1)
		b.want(2, model.SoldOut)
		b.want(2, model.SoldOut)
		b.asked("two of one", 1, 0)
		b.want(1, model.Accepted)
		b.asked("one of one", 1, 1)
		b.want(1, model.SoldOut)
	})
}

// TestLocalWishBeyondTheShare: the share is smaller than the wish, and the gate has enough.
func TestLocalWishBeyondTheShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLocalBench(t, 6, shareOf(0.1, 0))
		for range 2 {
			b.want(3, model.Accepted)
		}
		b.want(3, model.SoldOut)
		if b.gate.left != 0 {
			t.Errorf("%d left", b.gate.left)
		}
	})
}

// TestLocalAsksTheGate although nothing is left, where memory can't know the answer.
func TestLocalAsksTheGate(t *testing.T) {
	known := model.Outcome{Verdict: model.Accepted, Repeated: true}
	tests := map[string]struct {
		keyed  bool
		judged model.Verdict
		answer model.Outcome
	}{
		"the buyer's own key":   {true, model.Accepted, known},
		"its own key, not sold": {true, model.Accepted, model.Outcome{Verdict: model.SoldOut}},
		"not started":           {false, model.NotStarted, model.Outcome{Verdict: model.NotStarted}},
		"ended":                 {false, model.Ended, model.Outcome{Verdict: model.Ended}},
		"paused":                {false, model.Paused, model.Outcome{Verdict: model.Paused}},
		"not watched":           {false, model.NotFound, model.Outcome{Verdict: model.LimitReached}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newLocalBench(t, 0, func(n *Needs) { n.Control = judge{&fakeControl{}, tc.judged} })
				b.gate.admit = func(model.Attempt) (model.Outcome, error) { return tc.answer, nil }
				for i := range 3 {
					a := b.attempt(1)
					a.Keyless = !tc.keyed
					if got, err := b.local.Deduct(t.Context(), a); err != nil || got != tc.answer {
						t.Errorf("%+v, %v, want the gate's %+v", got, err, tc.answer)
					}
					b.asked(fmt.Sprint("number ", i), 1, i+1)
				}
			})
		})
	}
}

// TestLocalWithoutALook: a gate that can't be looked at has the last word, and one that is missing is asked for.
func TestLocalWithoutALook(t *testing.T) {
	t.Run("no answer to the look", func(t *testing.T) {
		b := newLocalBench(t, 1)
		b.gate.peek = func(context.Context) error { return errNoReply }
		b.want(1, model.Accepted)
		b.want(1, model.SoldOut) // says the gate
		b.asked("a look each", 2, 2)
	})
	t.Run("no answer at all", func(t *testing.T) {
		b := newLocalBench(t, 1)
		b.gate.peek = func(context.Context) error { return errNoReply }
		b.gate.admit = func(model.Attempt) (model.Outcome, error) { return model.Outcome{}, errNoReply }
		for range 3 {
			if got, err := b.local.Deduct(t.Context(), b.attempt(1)); !errors.Is(err, model.ErrUnavailable) || got != (model.Outcome{}) {
				t.Errorf("%+v, %v, want ErrUnavailable", got, err)
			}
		}
		if len(b.control.need) != 0 {
			t.Errorf("gates asked for: %v", b.control.need)
		}
	})
	t.Run("a closed gate", func(t *testing.T) {
		b := newLocalBench(t, 0) // a gate that is missing has no units, either
		b.gate.closed = true
		if got, err := b.local.Deduct(t.Context(), b.attempt(1)); !errors.Is(err, model.ErrUnavailable) || got != (model.Outcome{}) {
			t.Errorf("%+v, %v, want ErrUnavailable", got, err)
		}
		if !slices.Equal(b.control.need, []string{"sale"}) {
			t.Errorf("gates asked for: %v", b.control.need)
		}
		b.gate.closed = false
		b.gate.set(1)
		b.want(1, model.Accepted)
	})
	t.Run("closed when its units were taken here", func(t *testing.T) {
		b := newLocalBench(t, 2)
		b.want(1, model.Accepted)
		b.gate.closed = true
		if got, err := b.local.Deduct(t.Context(), b.attempt(1)); !errors.Is(err, model.ErrUnavailable) || got != (model.Outcome{}) {
			t.Errorf("%+v, %v, want ErrUnavailable", got, err)
		}
		if !slices.Equal(b.control.need, []string{"sale"}) {
			t.Errorf("gates asked for: %v", b.control.need)
		}
		b.gate.closed = false
		b.want(1, model.Accepted)
		b.asked("given back", 1, 3)
	})
}

// TestLocalLooksOnceForAll who come while it looks.
func TestLocalLooksOnceForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers, left = 50, 30
		b := newLocalBench(t, left)
		release := make(chan struct{})
		b.gate.peek = func(context.Context) error { <-release; return nil }
		var calls []<-chan outcomeOf
		for range callers {
			calls = append(calls, call(t.Context(), b.local, b.attempt(1)))
		}
		synctest.Wait()
		b.asked("while it looks", 1, 0)
		close(release)
		verdicts := map[model.Verdict]int{}
		for _, c := range calls {
			r := <-c
			if r.err != nil {
				t.Error(r.err)
			}
			verdicts[r.got.Verdict]++
		}
		if verdicts[model.Accepted] != left || verdicts[model.SoldOut] != callers-left {
			t.Errorf("the verdicts are %v", verdicts)
		}
	})
}

// TestHole04_LocalLookFails while many wait for it: an error is no empty gate, and the gate has the last word.
func TestHole04_LocalLookFails(t *testing.T) {
	tests := map[string]struct {
		left int64
		err  error // of an attempt
		want model.Verdict
	}{
		"the gate sells":                   {100, nil, model.Accepted},
		"the gate is sold out":             {0, nil, model.SoldOut},
		"the gate does not answer, either": {100, errNoReply, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newLocalBench(t, tc.left)
				b.gate.peek = func(context.Context) error {
					time.Sleep(time.Millisecond) // of the bubble's clock: the others come meanwhile
					return errNoReply
				}
				if tc.err != nil {
					b.gate.admit = func(model.Attempt) (model.Outcome, error) { return model.Outcome{}, tc.err }
				}
				var calls []<-chan outcomeOf
				for range 20 {
					calls = append(calls, call(t.Context(), b.local, b.attempt(1)))
				}
				others := map[string]int{}
				for _, c := range calls {
					r := <-c
					if r.got != (model.Outcome{Verdict: tc.want}) || !errors.Is(r.err, tc.err) || errors.Is(r.err, model.ErrUnavailable) != (tc.err != nil) {
						others[fmt.Sprint(r.got.Verdict, ", ", r.err)]++
					}
				}
				if len(others) > 0 {
					t.Errorf("of %d callers, who should hear %q, %v, some heard %v", len(calls), tc.want, tc.err, others)
				}
			})
		})
	}
}

// TestLocalCallersWhoLeave: one who waits for the look gets its own error; one who looks leaves it to the others.
func TestLocalCallersWhoLeave(t *testing.T) {
	for name, leaver := range map[string]int{"who looks": 0, "who waits": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newLocalBench(t, 5)
				release := make(chan struct{})
				b.gate.peek = func(ctx context.Context) error {
					select {
					case <-release:
						return nil
					case <-ctx.Done():
						return ctx.Err()
					}
				}
				ctx, leave := context.WithCancel(t.Context())
				var calls []<-chan outcomeOf
				for i := range 3 {
					of := t.Context()
					if i == leaver {
						of = ctx
					}
					calls = append(calls, call(of, b.local, b.attempt(1)))
					synctest.Wait()
				}
				leave()
				if r := <-calls[leaver]; !errors.Is(r.err, context.Canceled) || r.got != (model.Outcome{}) {
					t.Errorf("who left got %+v, %v", r.got, r.err)
				}
				synctest.Wait()
				close(release)
				for i, c := range calls {
					if i == leaver {
						continue
					}
					if r := <-c; r.err != nil || r.got.Verdict != model.Accepted {
						t.Errorf("who stayed got %+v, %v", r.got, r.err)
					}
				}
				if b.gate.left != 3 {
					t.Errorf("%d left of 5", b.gate.left)
				}
			})
		})
	}
}

// TestLocalSales keep to themselves.
func TestLocalSales(t *testing.T) {
	b := newLocalBench(t, 1)
	for _, sale := range []string{"one", "other"} {
		b.gate.set(1)
		a := b.attempt(1)
		a.SaleID = sale
		if got, err := b.local.Deduct(t.Context(), a); err != nil || got.Verdict != model.Accepted {
			t.Errorf("%s: %+v, %v", sale, got, err)
		}
	}
	b.asked("both", 2, 2)
}

// keyless is a wish under a key that the engine made.
func (e *engine) keyless(o model.Offer, user string) model.Attempt {
	a := e.attempt(o, user, 1)
	a.Keyless = true
	return a
}

// TestHole39_LocalSellsAll: three instances with a share each, of which one may take its share along: the others sell
// what is left all the same.
func TestHole39_LocalSellsAll(t *testing.T) {
	const quota, buyers = 20, 60
	tests := map[string]struct {
		share  float64
		before func(third *engine, o model.Offer) // may sell
		buy    int                                // instances that the crowd comes to
	}{
		"all sell":                         {0.5, func(*engine, model.Offer) {}, 3},
		"all sell, each takes everything":  {1, func(*engine, model.Offer) {}, 3},
		"one is never used":                {0.5, func(*engine, model.Offer) {}, 2},
		"one is gone with its share":       {0.5, func(e *engine, o model.Offer) { e.sellOne(o) }, 2},
		"one is gone with all of it":       {1, func(e *engine, o model.Offer) { e.sellOne(o) }, 2},
		"two are gone, one has everything": {1, func(e *engine, o model.Offer) { e.sellOne(o) }, 1},
	}
	eachPair(t, func(s *stores) {
		for name, tc := range tests {
			s.Run(name, func(t *testing.T) {
				one := *s
				one.T = t
				share := func(n *Needs) { n.LocalShare = tc.share }
				instances := []*engine{one.engine("local", share), one.engine("local", share), one.engine("local", share)}
				first, third := instances[0], instances[2]
				o := first.sale(quota, 1)
				for _, e := range instances[1:] {
					if err := e.catalog.Refresh(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				tc.before(third, o)
				sold := int(first.peek(o).Inflight)
				var accepted atomic.Int64
				crowd(buyers, func(i int) {
					e := instances[i%tc.buy]
					switch got, err := e.strategy.Deduct(t.Context(), e.keyless(o, fmt.Sprint("u-", i))); {
					case err == nil && got.Verdict == model.Accepted:
						accepted.Add(1)
					case err != nil || got.Verdict != model.SoldOut:
						t.Errorf("%+v, %v", got, err)
					}
				})
				if n := int(accepted.Load()); n != quota-sold {
					t.Errorf("%d of %d heard yes", n, quota-sold)
				}
				first.sold(o, quota, 0)
				first.agree(o)
			})
		}
	})
}

// sellOne sells one unit, and so takes a share.
func (e *engine) sellOne(o model.Offer) {
	e.Helper()
	if got := e.deduct(e.keyless(o, "early")); !got.Queued() {
		e.Fatalf("%+v", got)
	}
}

// askedGate counts the calls that reach Redis.
type askedGate struct {
	Gate
	times atomic.Int64
}

func (g *askedGate) Admit(ctx context.Context, saleID string, attempts []model.Attempt, epoch int64) ([]model.Outcome, error) {
	g.times.Add(1)
	return g.Gate.Admit(ctx, saleID, attempts, epoch)
}

func (g *askedGate) Peek(ctx context.Context, saleIDs ...string) ([]model.GateState, error) {
	g.times.Add(1)
	return g.Gate.Peek(ctx, saleIDs...)
}

// TestLocalAnswersAlone: those who come too late cost Redis nothing, and a unit that comes back is offered a quarter
// of a second later.
func TestLocalAnswersAlone(t *testing.T) {
	eachPair(t, func(s *stores) {
		var counted *askedGate
		now := time.Now()
		e := s.engine("local", func(n *Needs) {
			counted = &askedGate{Gate: n.Gate}
			n.Gate, n.Now = counted, func() time.Time { return now } // it stands still, however slow the machine is
		})
		o := e.sale(1, 1)
		bought := e.keyless(o, "buyer")
		if got := e.deduct(bought); !got.Queued() {
			e.Fatalf("%+v", got)
		}
		e.drain()
		late := func() model.Verdict { return e.deduct(e.keyless(o, "late")).Verdict }
		if got := late(); got != model.SoldOut {
			e.Errorf("the first who came late heard %s", got)
		}
		before := counted.times.Load()
		crowd(100, func(i int) {
			got, err := e.strategy.Deduct(e.Context(), e.keyless(o, fmt.Sprint("late-", i)))
			if err != nil || got != (model.Outcome{Verdict: model.SoldOut}) {
				e.Errorf("%+v, %v", got, err)
			}
		})
		e.cancel(bought)
		now = now.Add(shareAge - 1)
		if got := late(); got != model.SoldOut {
			e.Errorf("before the next look: %s", got)
		}
		if after := counted.times.Load(); after != before {
			e.Errorf("Redis was asked %d times for those who came late", after-before)
		}
		now = now.Add(1)
		if got := late(); got != model.Accepted {
			e.Errorf("of the unit that came back: %s", got)
		}
	})
}
