package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/model"
	"flashsale/test/kit/check"
)

func TestEveryBuyerAttemptsOnceAtTheRightInstance(t *testing.T) {
	round := exactly(30)
	runOne(t, round, model.LabPlan{Buyers: 100, Stock: 30, Concurrency: 8, Instances: 3, Seed: 1})
	want := make([]call, 100)
	for i := range want {
		want[i] = call{instance: i % 3, buyer: fmt.Sprintf("b%d", i+1)}
	}
	byNumber := func(a, b call) int { return cmp.Or(len(a.buyer)-len(b.buyer), strings.Compare(a.buyer, b.buyer)) }
	check.Same(t, "calls", slices.SortedFunc(slices.Values(round.calls), byNumber), want)
}

// The seed determines the order of the buyers, which is the same for every strategy.
func TestSeedOrdersTheBuyers(t *testing.T) {
	orders := func(seed uint64) (a, b []call) {
		bench := fakeBench{"a": exactly(5), "b": exactly(5)}
		p := model.LabPlan{Strategies: []string{"a", "b"}, Buyers: 50, Stock: 5, Concurrency: 1, Instances: 2, Seed: seed}
		check.Must(Run(t.Context(), bench, p, Setting{}, time.Now, silent))
		return bench["a"].calls, bench["b"].calls
	}
	first, second := orders(7)
	again, _ := orders(7)
	other, _ := orders(8)
	if !slices.Equal(first, second) || !slices.Equal(first, again) || slices.Equal(first, other) {
		t.Errorf("seed 7: %v, the second strategy %v, again %v; seed 8: %v", first, second, again, other)
	}
}

// Each attempt waits until so many are under way at once, so the run ends only if the concurrency is reached.
func TestConcurrencyIsReachedAndNotExceeded(t *testing.T) {
	const concurrency, buyers = 16, 64
	var underWay, most atomic.Int64
	var mu sync.Mutex
	gathered, full := 0, make(chan struct{})
	round := exactly(buyers)
	round.buy = func(context.Context, int, string) (model.Verdict, error) {
		n := underWay.Add(1)
		defer underWay.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		mu.Lock()
		wait := full
		if gathered++; gathered == concurrency {
			gathered, full = 0, make(chan struct{})
			close(wait)
		}
		mu.Unlock()
		<-wait
		return model.SoldOut, nil
	}
	runOne(t, round, model.LabPlan{Buyers: buyers, Stock: 1, Concurrency: concurrency, Instances: 1})
	check.Same(t, "attempts under way at once", most.Load(), concurrency)
}

func TestAllAreReleasedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		round := exactly(10)
		round.buy = func(context.Context, int, string) (model.Verdict, error) {
			check.Same(t, "delay of an attempt", time.Since(begin), 0)
			return model.SoldOut, nil
		}
		runOne(t, round, model.LabPlan{Buyers: 50, Stock: 10, Concurrency: 50, Instances: 1})
	})
}

func TestFiguresFollowTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Ten at once: 40 acceptances in 4 turns of 20 ms, then 160 refusals in 16 turns of 10 ms.
		plan := model.LabPlan{Buyers: 200, Stock: 40, Concurrency: 10, Instances: 1}
		r := runOne(t, slowed(40, 20*time.Millisecond, 10*time.Millisecond), plan)
		for name, figure := range map[string]struct{ got, want float64 }{
			"seconds":     {r.Seconds, 0.24},
			"requests/s":  {r.RequestsPerSecond, 200 / 0.24},
			"persisted/s": {r.PersistedPerSecond, 40 / 0.08},
			"p50":         {r.P50MS, 10},
			"p99":         {r.P99MS, 20},
		} {
			if figure.got < figure.want*0.998 || figure.got > figure.want*1.002 {
				t.Errorf("%s is %v, want %v", name, figure.got, figure.want)
			}
		}
		check.Same(t, "histogram", r.Histogram, []Bucket{{UpToMS: 10, Count: 160}, {UpToMS: 20, Count: 40}})
	})
}

// Each round of 450 ms is reported at its start, at four ticks, and with its result.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen, want []Progress
		p := model.LabPlan{Strategies: []string{"a", "b"}, Buyers: 50, Stock: 5, Concurrency: 1, Instances: 1}
		slow := func() *fakeRound { return slowed(5, 9*time.Millisecond, 9*time.Millisecond) }
		show := func(p Progress) { seen = append(seen, p) }
		report := check.Must(Run(t.Context(), fakeBench{"a": slow(), "b": slow()}, p, Setting{}, time.Now, show))
		for i, strategy := range p.Strategies {
			for _, done := range []int{0, 11, 22, 33, 44, 50} {
				want = append(want, Progress{Strategy: strategy, Index: i + 1, Of: 2, Done: done})
			}
			want[len(want)-1].Result = report.Strategies[i]
		}
		check.Same(t, "progress", seen, want)
	})
}

func TestKill(t *testing.T) {
	type test struct {
		instances, stock int
		sold             int64
		killed           bool
	}
	check.Each(t, map[string]test{
		"of two":          {2, 40, 40, true},
		"of three":        {3, 40, 40, true},
		"an odd stock":    {2, 1, 1, true},
		"never half sold": {2, 1000, 200, false},
	}, func(t *testing.T, tc test) {
		var dead atomic.Bool
		round, last := exactly(tc.stock), tc.instances-1
		sell := round.buy
		round.kill = func() { dead.Store(true) }
		round.buy = func(ctx context.Context, instance int, buyer string) (model.Verdict, error) {
			if instance == last && dead.Load() {
				return "", errBroken
			}
			verdict, err := sell(ctx, instance, buyer)
			if instance == last && dead.Load() {
				return "", errBroken // the order stands without an answer
			}
			return verdict, err
		}
		r := runOne(t, round, model.LabPlan{Buyers: 200, Stock: tc.stock, Concurrency: 16, Instances: tc.instances, Kill: true})
		var want []int
		if tc.killed {
			want = []int{last}
		}
		check.Same(t, "killed instances", round.kills, want)
		check.Same(t, "killed, as reported", r.Killed, tc.killed)
		check.Same(t, "requests, errors, units sold", []int64{int64(r.Requests), r.Errors, r.Sold}, []int64{200, 0, tc.sold})
		check.Same(t, "verdict", r.Verdict, Exact)
	})
}

// An attempt that the dying instance answers with an error is repeated at another instance, under the same name.
func TestKillSendsWhoWasUnderWayElsewhere(t *testing.T) {
	arrived, dead := make(chan struct{}), make(chan struct{})
	round := exactly(2)
	sell := round.buy
	round.kill = func() { close(dead) }
	var once sync.Once
	round.buy = func(ctx context.Context, instance int, buyer string) (model.Verdict, error) {
		if instance == 1 {
			once.Do(func() { close(arrived) })
			<-dead
			return "", errBroken
		}
		<-arrived
		return sell(ctx, instance, buyer)
	}
	r := runOne(t, round, model.LabPlan{Buyers: 2, Stock: 2, Concurrency: 2, Instances: 2, Kill: true})
	others := func(c call) bool { return c.buyer != "b2" }
	check.Same(t, "calls of b2", slices.DeleteFunc(round.calls, others), []call{{1, "b2"}, {0, "b2"}})
	check.Same(t, "requests, accepted, errors", []int64{int64(r.Requests), r.Accepted, r.Errors}, []int64{2, 2, 0})
}

func TestErrorsOfALivingInstanceCount(t *testing.T) {
	round := exactly(10)
	round.buy = func(_ context.Context, instance int, _ string) (model.Verdict, error) {
		if instance == 0 {
			return "", errBroken
		}
		return model.SoldOut, nil
	}
	r := runOne(t, round, model.LabPlan{Buyers: 10, Stock: 10, Concurrency: 2, Instances: 2, Kill: true})
	check.Same(t, "errors and calls", []int64{r.Errors, int64(len(round.calls))}, []int64{5, 10})
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	second := exactly(50)
	sell, finish := second.buy, second.finish
	second.buy = func(ctx context.Context, instance int, buyer string) (model.Verdict, error) {
		if len(second.calls) == 20 { // the concurrency is 1
			cancel()
			return "", ctx.Err()
		}
		return sell(ctx, instance, buyer)
	}
	second.finish = func(ctx context.Context) (Tally, error) {
		if _, bounded := ctx.Deadline(); ctx.Err() != nil || !bounded {
			t.Errorf("Finish got a context that has ended (%v) or has no deadline", ctx.Err())
		}
		return finish(ctx)
	}
	bench := fakeBench{"a": exactly(50), "b": second, "c": exactly(50)}
	p := model.LabPlan{Strategies: []string{"a", "b", "c"}, Buyers: 100, Stock: 50, Concurrency: 1, Instances: 1}
	var last Progress
	report := check.Must(Run(ctx, bench, p, Setting{}, time.Now, func(p Progress) { last = p }))
	if !report.Interrupted || len(report.Strategies) != 2 || bench["c"].started != 0 || second.finished != 1 {
		t.Fatalf("interrupted %v with %d results, c started %d times, b finished %d times; want true, 2, 0, 1",
			report.Interrupted, len(report.Strategies), bench["c"].started, second.finished)
	}
	a, b := report.Strategies[0], report.Strategies[1]
	check.Same(t, "verdicts", []Finding{a.Verdict, b.Verdict}, []Finding{Exact, Incomplete})
	check.Same(t, "requests, units sold and errors of b", []int64{int64(b.Requests), b.Sold, b.Errors}, []int64{20, 19, 1})
	check.Same(t, "last result in the progress", last.Result, b)
}

// startFunc is a bench whose Start is the function.
type startFunc func(ctx context.Context, strategy string) (Round, error)

func (f startFunc) Start(ctx context.Context, strategy string, _ model.LabPlan) (Round, error) {
	return f(ctx, strategy)
}

// A run that is interrupted, or fails, while no buyer is served returns the results that it has.
func TestRunEndsEarly(t *testing.T) {
	unfinished := func(context.Context) (Tally, error) { return Tally{}, errBroken }
	type test struct {
		cancelAt    string // the strategy whose start cancels the run
		start       error  // of the strategy b
		finish      func(context.Context) (Tally, error)
		want        error
		says        string
		interrupted bool
	}
	check.Each(t, map[string]test{
		"cancelled at a start":           {"b", context.Canceled, nil, nil, "", true},
		"cancelled, and the start fails": {"b", errBroken, nil, errBroken, "start b: ", true},
		"a start fails":                  {"", errBroken, nil, errBroken, "start b: ", false},
		"a finish fails":                 {"", nil, unfinished, errBroken, "finish b: ", false},
	}, func(t *testing.T, tc test) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		bench := startFunc(func(_ context.Context, strategy string) (Round, error) {
			round := exactly(5)
			if strategy == tc.cancelAt {
				cancel()
			}
			if strategy == "b" && tc.start != nil {
				return nil, tc.start
			}
			if strategy == "b" {
				round.finish = tc.finish
			}
			return round, nil
		})
		p := model.LabPlan{Strategies: []string{"a", "b", "c"}, Buyers: 10, Stock: 5, Concurrency: 2, Instances: 1}
		report, err := Run(ctx, bench, p, Setting{}, time.Now, silent)
		if !errors.Is(err, tc.want) || err != nil && !strings.HasPrefix(err.Error(), tc.says) {
			t.Errorf("error %v, want %q and %v", err, tc.says, tc.want)
		}
		if report.Interrupted != tc.interrupted || len(report.Strategies) != 1 || report.Strategies[0].Strategy != "a" {
			t.Errorf("interrupted %t with %d results, want %t with that of a", report.Interrupted, len(report.Strategies), tc.interrupted)
		}
	})
}

func TestInterruptedBeforeTheFirstRound(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	report, err := Run(ctx, fakeBench{}, model.LabPlan{Strategies: []string{"a"}, Buyers: 1}, Setting{}, time.Now, silent)
	if err != nil || !report.Interrupted || len(report.Strategies) != 0 {
		t.Errorf("error %v, interrupted %v, %d results; want nil, true, 0", err, report.Interrupted, len(report.Strategies))
	}
}
