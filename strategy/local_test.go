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

	"flashsale/model"
	"flashsale/test/kit/check"
)

// countedGate is an open gate that sells its units and counts its calls.
type countedGate struct {
	fakeGate                                      // lines, and answers instead of a sale, if admit is set
	peek          func(ctx context.Context) error // may block or fail
	mu            sync.Mutex
	left          int64
	closed        bool
	admits, peeks int
}

func (g *countedGate) Admit(ctx context.Context, attempts []model.Attempt) []model.Admission {
	g.mu.Lock()
	defer g.mu.Unlock()
	answers := make([]model.Admission, len(attempts))
	for i, a := range attempts {
		g.admits++
		n := int64(a.Quantity)
		switch {
		case ctx.Err() != nil:
			answers[i].Err = ctx.Err()
		case g.closed:
			answers[i].Verdict = model.NoGate
		case g.admit != nil:
			answers[i].Outcome, answers[i].Err = g.admit()
		case g.left < n:
			answers[i].Verdict = model.SoldOut
		default:
			g.left -= n
			answers[i].Verdict = model.Accepted
		}
	}
	return answers
}

func (g *countedGate) Peek(ctx context.Context, saleIDs ...model.GateRef) ([]model.GateState, error) {
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

// localBench is an instance of the strategy local with a counted gate.
type localBench struct {
	*testing.T
	gate    *countedGate
	control *fakeControl
	local   *Local
}

// newLocalBench returns an instance whose share is all of the gate's units, unless change says otherwise.
func newLocalBench(t *testing.T, left int64, change ...func(*Needs)) *localBench {
	t.Helper()
	b := &localBench{T: t, gate: &countedGate{left: left}}
	n, control := fakeNeeds(b.gate, nil)
	n.LocalShare = 1
	for _, f := range change {
		f(&n)
	}
	b.control, b.local = control, NewLocal(n)
	return b
}

func shareOf(part float64, buffer int64) func(*Needs) {
	return func(n *Needs) { n.LocalShare, n.LocalBuffer = part, buffer }
}

// wish returns an attempt without a key of the buyer, so that memory may answer it.
func wish(n int) model.Attempt {
	a := attempt(model.Offer{Sale: model.Sale{ID: "sale"}}, "u", n)
	a.Keyless = true
	return a
}

// want sends attempts of n units with this verdict.
func (b *localBench) want(n int, want ...model.Verdict) {
	b.Helper()
	for i, want := range want {
		if got, err := b.local.Deduct(b.Context(), wish(n)); err != nil || got != (model.Outcome{Verdict: want}) {
			b.Errorf("attempt %d, %d units: %+v, %v, want %s", i, n, got, err, want)
		}
	}
}

// callAll sends attempts of one unit at once.
func (b *localBench) callAll(n int) (calls []<-chan result) {
	for range n {
		calls = append(calls, call(b.Context(), b.local, wish(1)))
	}
	return calls
}

// asked checks how often the gate was asked since the start.
func (b *localBench) asked(stage string, peeks, admits int) {
	b.Helper()
	check.Same(b, stage+": looks at the gate, attempts", []int{b.gate.peeks, b.gate.admits}, []int{peeks, admits})
}

// TestLocalShares: a share is that many attempts until the next look at the gate, and all units are sold.
func TestLocalShares(t *testing.T) {
	type shares struct {
		left   int64
		share  float64
		buffer int64
		want   int // attempts until the next look
	}
	check.EachInBubble(t, map[string]shares{
		"a half and a buffer":          {100, 0.5, 4, 54},
		"a half of an odd number":      {3, 0.5, 0, 2},
		"a half and more than is left": {6, 0.5, 4, 6},
		"all":                          {10, 1, 0, 10},
		"all and a buffer":             {10, 1, 4, 10},
		"a tenth":                      {10, 0.1, 0, 1},
		"a tenth and a buffer":         {10, 0.1, 1, 2},
		"less than one":                {10, 0.01, 0, 1},
		"the last":                     {1, 0.5, 0, 1},
		"the last and a buffer":        {1, 0.5, 4, 1},
		"only a buffer":                {10, 0, 3, 3},
		"nothing left":                 {0, 0.5, 4, 0},
		"less than nothing left":       {-2, 0.5, 4, 0},
	}, func(t *testing.T, tc shares) {
		b := newLocalBench(t, tc.left, shareOf(tc.share, tc.buffer))
		for i := range tc.want {
			b.want(1, model.Queued)
			b.asked(fmt.Sprint("attempt ", i), 1, i+1)
		}
		for i := tc.want; i < int(tc.left); i++ {
			b.want(1, model.Queued)
			if i == tc.want {
				check.Same(t, "looks", b.gate.peeks, 2)
			}
		}
		b.want(1, model.SoldOut, model.SoldOut, model.SoldOut)
		sold := max(tc.left, 0)
		check.Same(t, "attempts at the gate, units left", []int64{int64(b.gate.admits), b.gate.left}, []int64{sold, tc.left - sold})
	})
}

// TestHole02_EachShareIsSoldToItsLastUnit: an instance that compares with its share by `<` leaves one unit of each share
// unsold. The wishes meet the shares exactly, or are larger than they are.
func TestHole02_EachShareIsSoldToItsLastUnit(t *testing.T) {
	check.EachInBubble(t, map[string]func(*Needs){
		"all": shareOf(1, 0), "a half": shareOf(0.5, 0), "a tenth": shareOf(0.1, 0), "the buffer": shareOf(0, 10),
	}, func(t *testing.T, share func(*Needs)) {
		for _, n := range []int{1, 2, 5} {
			b := newLocalBench(t, 10, share)
			b.want(n, slices.Repeat([]model.Verdict{model.Queued}, 10/n)...)
			b.want(n, model.SoldOut)
			check.Same(t, fmt.Sprint("units left when each takes ", n), b.gate.left, 0)
		}
	})
}

// TestHole04_BothMustSayYes: units that the gate did not sell return to the share, so that another attempt may use them
// without a new look, and an error is never reported as sold out.
func TestHole04_BothMustSayYes(t *testing.T) {
	check.EachInBubble(t, map[string]result{
		"limit reached": {got: model.Outcome{Verdict: model.LimitReached}},
		"too frequent":  {got: model.Outcome{Verdict: model.TooFrequent, RetryAfter: time.Second}},
		"paused":        {got: model.Outcome{Verdict: model.Paused}},
		"known":         {got: model.Outcome{Verdict: model.Queued, Repeated: true}},
		"mismatch":      {got: model.Outcome{Verdict: model.IdempotencyMismatch, Repeated: true}},
		"no reply":      {err: errNoReply},
		"no gate":       {err: model.ErrUnavailable},
		"cancelled":     {err: context.Canceled},
	}, func(t *testing.T, want result) {
		b := newLocalBench(t, 2)
		b.gate.admit = func() (model.Outcome, error) {
			if errors.Is(want.err, model.ErrUnavailable) {
				return model.Outcome{Verdict: model.NoGate}, nil
			}
			return want.got, want.err
		}
		for range 3 {
			got, err := b.local.Deduct(t.Context(), wish(2))
			if got != want.got || !errors.Is(err, want.err) || errors.Is(err, model.ErrUnavailable) != (want.err != nil) {
				t.Errorf("%+v, %v, want %+v, %v", got, err, want.got, want.err)
			}
		}
		b.asked("not sold", 1, 3)
		b.gate.admit = nil
		b.want(1, model.Queued, model.Queued)
		b.asked("sold", 1, 5)
		b.want(1, model.SoldOut)
		b.asked("sold out", 2, 5)
	})
}

// TestLocalLearnsOfSoldOut: other instances have sold most of the ten units that this instance has read at the gate. The
// first refusal is the gate's, the next one is from memory, and a smaller wish asks the gate again.
func TestLocalLearnsOfSoldOut(t *testing.T) {
	type refusal struct {
		wish int
		left int64
		then model.Verdict // to one unit
	}
	check.EachInBubble(t, map[string]refusal{
		"one of none":  {1, 0, model.SoldOut},
		"two of none":  {2, 0, model.SoldOut},
		"two of one":   {2, 1, model.Queued},
		"three of two": {3, 2, model.Queued},
	}, func(t *testing.T, tc refusal) {
		b := newLocalBench(t, 10)
		b.want(1, model.Queued)
		b.gate.left = tc.left
		b.want(tc.wish, model.SoldOut)
		b.asked("the gate refuses", 1, 2)
		b.want(tc.wish, model.SoldOut)
		b.asked("memory refuses", 1, 2)
		b.want(1, tc.then)
	})
}

// TestLocalRefusesForAQuarterOfASecond: meanwhile the gate is not asked. Then the instance looks again, and offers the
// units that came back.
func TestLocalRefusesForAQuarterOfASecond(t *testing.T) {
	const quarter = 250 * time.Millisecond
	check.EachInBubble(t, map[string]func(b *localBench){
		"sold out at a look": func(b *localBench) { b.want(1, model.SoldOut) },
		"the last was sold": func(b *localBench) {
			b.gate.left = 1
			b.want(1, model.Queued, model.SoldOut)
		},
		"sold out at an attempt, long after the look": func(b *localBench) {
			b.gate.left = 9
			b.want(1, model.Queued)
			b.gate.left = 0
			time.Sleep(time.Second) // of synctest's clock, as below
			b.want(1, model.SoldOut)
		},
	}, func(t *testing.T, exhaust func(b *localBench)) {
		b := newLocalBench(t, 0)
		exhaust(b)
		peeks, admits := b.gate.peeks, b.gate.admits
		b.want(1, slices.Repeat([]model.Verdict{model.SoldOut}, 100)...)
		b.asked("at once", peeks, admits)
		time.Sleep(quarter - 1)
		b.want(1, model.SoldOut)
		b.asked("just before", peeks, admits)
		time.Sleep(time.Nanosecond)
		b.want(1, model.SoldOut)
		b.asked("after a quarter of a second", peeks+1, admits)

		b.gate.left = 2
		time.Sleep(quarter - 1)
		b.want(1, model.SoldOut)
		b.asked("just before two are seen", peeks+1, admits)
		time.Sleep(time.Nanosecond)
		b.want(1, model.Queued, model.Queued)
		b.asked("two were sold", peeks+2, admits+2)
		b.want(1, model.SoldOut)
	})
}

// TestLocalWishes: units that are too few for one wish are enough for another.
func TestLocalWishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLocalBench(t, 1)
		b.want(2, model.SoldOut, model.SoldOut)
		b.asked("two of one", 1, 0)
		b.want(1, model.Queued)
		b.asked("one of one", 1, 1)
		b.want(1, model.SoldOut)
	})
}

// TestLocalAsksTheGate although no unit is left, if memory cannot know the answer.
func TestLocalAsksTheGate(t *testing.T) {
	type question struct {
		keyed  bool // the buyer's own key: the attempt may repeat one that was accepted
		judged model.Verdict
		answer model.Outcome
	}
	check.EachInBubble(t, map[string]question{
		"a known key":  {true, model.Accepted, model.Outcome{Verdict: model.Queued, Repeated: true}},
		"a new key":    {true, model.Accepted, model.Outcome{Verdict: model.SoldOut}},
		"not started":  {false, model.NotStarted, model.Outcome{Verdict: model.NotStarted}},
		"ended":        {false, model.Ended, model.Outcome{Verdict: model.Ended}},
		"paused":       {false, model.Paused, model.Outcome{Verdict: model.Paused}},
		"unknown here": {false, model.NotFound, model.Outcome{Verdict: model.LimitReached}},
	}, func(t *testing.T, tc question) {
		b := newLocalBench(t, 0)
		b.control.verdict = tc.judged
		b.gate.admit = func() (model.Outcome, error) { return tc.answer, nil }
		for i := range 3 {
			a := wish(1)
			a.Keyless = !tc.keyed
			check.Same(t, "outcome", check.Must(b.local.Deduct(t.Context(), a)), tc.answer)
			b.asked(fmt.Sprint("attempt ", i), 1, i+1)
		}
	})
}

// TestLocalWithoutALook: if the gate cannot be looked at, it judges the attempts; if it is closed, a new one is demanded.
func TestLocalWithoutALook(t *testing.T) {
	fails := func(context.Context) error { return errNoReply }
	t.Run("no answer to the look", func(t *testing.T) {
		b := newLocalBench(t, 1)
		b.gate.peek = fails
		b.want(1, model.Queued, model.SoldOut)
		b.asked("a look each", 2, 2)
	})
	t.Run("no answer at all", func(t *testing.T) {
		b := newLocalBench(t, 1)
		b.gate.peek, b.gate.admit = fails, gateThat("", errNoReply).admit
		for range 3 {
			wantFailed(t, <-call(t.Context(), b.local, wish(1)), model.ErrUnavailable)
		}
		check.Same(t, "demanded gates", len(b.control.need), 0)
	})
	for name, sold := range map[string]int{"a closed gate": 0, "a gate that closes after a sale": 1} {
		t.Run(name, func(t *testing.T) {
			b := newLocalBench(t, 2)
			b.want(1, slices.Repeat([]model.Verdict{model.Queued}, sold)...)
			b.gate.closed = true
			wantFailed(t, <-call(t.Context(), b.local, wish(1)), model.ErrUnavailable)
			check.Same(t, "demanded gates", b.control.need, []string{"sale"})
			b.gate.closed = false
			b.want(1, model.Queued)
			b.asked("open again", 2-sold, 2+sold)
		})
	}
	t.Run("a missing gate", func(t *testing.T) {
		b := newLocalBench(t, 0) // it has no units either
		b.gate.closed = true
		wantFailed(t, <-call(t.Context(), b.local, wish(1)), model.ErrUnavailable)
	})
}

// TestLocalLooksOnce: one look at the gate serves all attempts that come while it is under way.
func TestLocalLooksOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers, left = 50, 30
		b := newLocalBench(t, left)
		release := make(chan struct{})
		b.gate.peek = func(context.Context) error { <-release; return nil }
		calls := b.callAll(callers)
		synctest.Wait()
		b.asked("while it looks", 1, 0)
		close(release)
		got := verdicts{}
		for _, c := range calls {
			r := <-c
			got[check.Must(r.got, r.err).Verdict]++
		}
		check.Same(t, "verdicts", got, verdicts{model.Queued: left, model.SoldOut: callers - left})
	})
}

// TestHole04_LocalLookFails while other attempts wait for it: the gate judges them all, and an error is not sold out.
func TestHole04_LocalLookFails(t *testing.T) {
	type gate struct {
		left int64
		want result
	}
	check.EachInBubble(t, map[string]gate{
		"the gate sells":           {100, result{got: model.Outcome{Verdict: model.Queued}}},
		"the gate is sold out":     {0, result{got: model.Outcome{Verdict: model.SoldOut}}},
		"the gate does not answer": {100, result{err: errNoReply}},
	}, func(t *testing.T, tc gate) {
		b := newLocalBench(t, tc.left)
		b.gate.peek = func(context.Context) error {
			time.Sleep(time.Millisecond) // of synctest's clock: the other attempts come meanwhile
			return errNoReply
		}
		if tc.want.err != nil {
			b.gate.admit = gateThat("", tc.want.err).admit
		}
		for i, c := range b.callAll(20) {
			r := <-c
			if r.got != tc.want.got || !errors.Is(r.err, tc.want.err) || errors.Is(r.err, model.ErrUnavailable) != (tc.want.err != nil) {
				t.Errorf("caller %d: %+v, %v, want %+v, %v", i, r.got, r.err, tc.want.got, tc.want.err)
			}
		}
	})
}

// TestLocalCallersWhoLeave get the error of their contexts, even the one who looks; the others are served.
func TestLocalCallersWhoLeave(t *testing.T) {
	check.EachInBubble(t, map[string]int{"who looks": 0, "who waits": 1}, func(t *testing.T, leaver int) {
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
		leaving, leave := context.WithCancel(t.Context())
		var calls []<-chan result
		for i := range 3 {
			ctx := t.Context()
			if i == leaver {
				ctx = leaving
			}
			calls = append(calls, call(ctx, b.local, wish(1)))
			synctest.Wait()
		}
		leave()
		wantFailed(t, <-calls[leaver], context.Canceled)
		synctest.Wait()
		close(release)
		for _, c := range slices.Delete(calls, leaver, leaver+1) {
			check.Same(t, "a caller who stayed", <-c, result{got: model.Outcome{Verdict: model.Queued}})
		}
		check.Same(t, "units left of 5", b.gate.left, 3)
	})
}

// TestLocalSales: each sale has a share of its own.
func TestLocalSales(t *testing.T) {
	b := newLocalBench(t, 1)
	for _, sale := range []string{"one", "other"} {
		b.gate.left = 1
		a := wish(1)
		a.SaleID = sale
		check.Same(t, sale, check.Must(b.local.Deduct(t.Context(), a)).Verdict, model.Queued)
	}
	b.asked("both", 2, 2)
}

// locals makes instances of local, which have these shares, and a sale.
func (s *stores) locals(quota int64, shares ...float64) ([]*engine, model.Offer) {
	s.Helper()
	var engines []*engine
	for _, share := range shares {
		engines = append(engines, s.engine("local", shareOf(share, 0)))
	}
	o := engines[0].sale(quota, 1)
	for _, e := range engines {
		e.refresh()
	}
	return engines, o
}

// TestHole39_LocalSellsAll: some of three instances die with their shares, or are never used. The others sell all units.
func TestHole39_LocalSellsAll(t *testing.T) {
	const quota = 20
	eachPair(t, func(s *stores) {
		for _, tc := range []struct {
			name  string
			share float64
			early int // units that the third instance sells before it dies
			used  int // instances to which the buyers come
		}{
			{"all sell", 0.5, 0, 3},
			{"all sell, and each share is all units", 1, 0, 3},
			{"one is never used", 0.5, 0, 2},
			{"one dies with its share", 0.5, 1, 2},
			{"one dies with all units", 1, 1, 2},
			{"one dies with all units, and one is never used", 1, 1, 1},
		} {
			s.Run(tc.name, func(t *testing.T) {
				engines, o := s.with(t).locals(quota, tc.share, tc.share, tc.share)
				for i := range tc.early {
					engines[2].queue(o, fmt.Sprint("early-", i))
				}
				engines[0].wantVerdicts(rush(o, 3*quota, engines[:tc.used]...),
					verdicts{model.Accepted: quota - tc.early, model.SoldOut: 2*quota + tc.early})
				engines[0].wantSold(o, quota, 0)
			})
		}
	})
}

// TestHole02_InstancesSellAllOfIt: as many buyers as units come to three instances at once, and none is refused.
func TestHole02_InstancesSellAllOfIt(t *testing.T) {
	const quota = 12
	eachPair(t, func(s *stores) {
		engines, o := s.locals(quota, 1.0/3, 1.0/2, 1)
		s.wantVerdicts(rush(o, quota, engines...), verdicts{model.Accepted: quota})
		engines[0].wantSold(o, quota, 0)
	})
}
