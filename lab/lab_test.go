package lab

import (
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
)

func TestEveryBuyerAttemptsOnceAtTheRightInstance(t *testing.T) {
	round := exactly(30)
	runOne(t, round, Plan{Buyers: 100, Stock: 30, Concurrency: 8, Instances: 3, Seed: 1})
	seen := map[string]int{}
	for _, c := range round.calls {
		seen[c.buyer] = c.instance
	}
	if len(round.calls) != 100 || len(seen) != 100 {
		t.Fatalf("%d calls by %d buyers, want 100 by 100", len(round.calls), len(seen))
	}
	for i := range 100 {
		name := fmt.Sprintf("b%d", i+1)
		if instance, ok := seen[name]; !ok || instance != i%3 {
			t.Errorf("buyer %s was at instance %d (%v), want %d", name, instance, ok, i%3)
		}
	}
}

func TestSeedOrdersTheBuyers(t *testing.T) {
	order := func(seed uint64) []call {
		round := exactly(30)
		runOne(t, round, Plan{Buyers: 100, Stock: 30, Concurrency: 1, Instances: 1, Seed: seed})
		return round.calls
	}
	first := order(7)
	if !slices.Equal(first, order(7)) {
		t.Error("the same seed gave another order")
	}
	if slices.Equal(first, order(8)) {
		t.Error("another seed gave the same order")
	}
}

func TestEveryStrategyMeetsTheSameOrder(t *testing.T) {
	bench := fakeBench{"a": exactly(5), "b": exactly(5)}
	p := Plan{Strategies: []string{"a", "b"}, Buyers: 50, Stock: 5, Concurrency: 1, Instances: 2, Seed: 3}
	if _, err := Run(t.Context(), bench, p, Setting{}, time.Now, silent); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(bench["a"].calls, bench["b"].calls) {
		t.Error("the second strategy met another order than the first")
	}
}

// Each attempt waits until all places are taken, so the run ends only if that many are under way at once.
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
	runOne(t, round, Plan{Buyers: buyers, Stock: 1, Concurrency: concurrency, Instances: 1})
	if most.Load() != concurrency {
		t.Errorf("at most %d attempts were under way, want %d", most.Load(), concurrency)
	}
}

func TestFewerBuyersThanConcurrency(t *testing.T) {
	r := runOne(t, exactly(10), Plan{Buyers: 3, Stock: 10, Concurrency: 100, Instances: 1})
	if r.Requests != 3 || r.Sold != 3 || r.Verdict != Exact {
		t.Errorf("%d requests, %d sold, %s; want 3, 3, exact", r.Requests, r.Sold, r.Verdict)
	}
}

func TestAllAreReleasedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		round := exactly(10)
		round.buy = func(context.Context, int, string) (model.Verdict, error) {
			if !time.Now().Equal(begin) {
				t.Errorf("an attempt began %s late", time.Since(begin))
			}
			return model.SoldOut, nil
		}
		runOne(t, round, Plan{Buyers: 50, Stock: 10, Concurrency: 50, Instances: 1})
	})
}

func TestFiguresFollowTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		round := exactly(40)
		sell := round.buy
		round.buy = func(ctx context.Context, instance int, buyer string) (model.Verdict, error) {
			verdict, err := sell(ctx, instance, buyer)
			if verdict == model.Accepted {
				time.Sleep(20 * time.Millisecond) // of the bubble's clock: a no costs half of a yes
				return verdict, err
			}
			time.Sleep(10 * time.Millisecond) // of the bubble's clock
			return verdict, err
		}
		// Ten at once: 40 yeses in 4 turns of 20 ms, then 160 noes in 16 turns of 10 ms.
		r := runOne(t, round, Plan{Buyers: 200, Stock: 40, Concurrency: 10, Instances: 1})
		for _, f := range []struct {
			name      string
			got, want float64
		}{
			{"seconds", r.Seconds, 0.24},
			{"requests/s", r.RequestsPerSecond, 200 / 0.24},
			{"persisted/s", r.PersistedPerSecond, 40 / 0.08},
			{"p50", r.P50MS, 10},
			{"p99", r.P99MS, 20},
		} {
			if f.got < f.want*0.998 || f.got > f.want*1.002 {
				t.Errorf("%s is %v, want %v", f.name, f.got, f.want)
			}
		}
		if want := []Bucket{{UpToMS: 10, Count: 160}, {UpToMS: 20, Count: 40}}; !slices.Equal(r.Histogram, want) {
			t.Errorf("the histogram is %v, want %v", r.Histogram, want)
		}
	})
}

func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func() *fakeRound {
			round := exactly(5)
			sell := round.buy
			round.buy = func(ctx context.Context, instance int, buyer string) (model.Verdict, error) {
				time.Sleep(9 * time.Millisecond) // of the bubble's clock
				return sell(ctx, instance, buyer)
			}
			return round
		}
		var seen []Progress
		p := Plan{Strategies: []string{"a", "b"}, Buyers: 50, Stock: 5, Concurrency: 1, Instances: 1}
		_, err := Run(t.Context(), fakeBench{"a": slow(), "b": slow()}, p, Setting{}, time.Now, func(p Progress) { seen = append(seen, p) })
		if err != nil {
			t.Fatal(err)
		}
		// 450 ms each: one call at the start, four ticks, one with the result.
		if len(seen) != 12 {
			t.Fatalf("%d calls, want 12: %v", len(seen), seen)
		}
		for i, p := range seen {
			last := i%6 == 5
			if p.Strategy != []string{"a", "b"}[i/6] || p.Index != i/6 || p.Of != 2 || p.Buyers != 50 || (p.Result != nil) != last {
				t.Errorf("call %d is %+v", i, p)
			}
			if want := []int{0, 11, 22, 33, 44, 50}[i%6]; p.Done != want {
				t.Errorf("call %d says %d done, want %d", i, p.Done, want)
			}
		}
	})
}

func TestKill(t *testing.T) {
	tests := []struct {
		name      string
		instances int
		stock     int
		sold      int64
		killed    bool
	}{
		{"of two", 2, 40, 40, true},
		{"of three", 3, 40, 40, true},
		{"an odd stock", 2, 1, 1, true},
		{"never half sold", 2, 1000, 200, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var dead atomic.Bool
			round := exactly(test.stock)
			sell := round.buy
			round.kill = func() { dead.Store(true) }
			round.buy = func(ctx context.Context, instance int, buyer string) (model.Verdict, error) {
				if instance == test.instances-1 && dead.Load() {
					return "", errBroken
				}
				verdict, err := sell(ctx, instance, buyer)
				if instance == test.instances-1 && dead.Load() {
					return "", errBroken // the order stands, and nobody heard of it
				}
				return verdict, err
			}
			r := runOne(t, round, Plan{Buyers: 200, Stock: test.stock, Concurrency: 16, Instances: test.instances, Kill: true})
			want := []int{test.instances - 1}
			if !test.killed {
				want = nil
			}
			if !slices.Equal(round.kills, want) || r.Killed != test.killed {
				t.Errorf("killed %v, reported %v; want %v, %v", round.kills, r.Killed, want, test.killed)
			}
			if r.Requests != 200 || r.Errors != 0 || r.Sold != test.sold || r.Verdict != Exact {
				t.Errorf("%d requests, %d errors, %d sold, %s; want 200, 0, %d, exact", r.Requests, r.Errors, r.Sold, r.Verdict, test.sold)
			}
		})
	}
}

// The dying instance answers one attempt with an error after the kill, and the attempt comes again elsewhere under
// the same name.
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
	r := runOne(t, round, Plan{Buyers: 2, Stock: 2, Concurrency: 2, Instances: 2, Kill: true})
	if got := slices.DeleteFunc(round.calls, func(c call) bool { return c.buyer != "b2" }); !slices.Equal(got, []call{{1, "b2"}, {0, "b2"}}) {
		t.Errorf("buyer b2 was at %v, want instance 1, then 0", got)
	}
	if r.Requests != 2 || r.Accepted != 2 || r.Errors != 0 {
		t.Errorf("%d requests, %d accepted, %d errors; want 2, 2, 0", r.Requests, r.Accepted, r.Errors)
	}
}

func TestErrorsOfALivingInstanceCount(t *testing.T) {
	round := exactly(10)
	round.buy = func(_ context.Context, instance int, _ string) (model.Verdict, error) {
		if instance == 0 {
			return "", errBroken
		}
		return model.SoldOut, nil
	}
	r := runOne(t, round, Plan{Buyers: 10, Stock: 10, Concurrency: 2, Instances: 2, Kill: true})
	if r.Errors != 5 || len(round.calls) != 10 {
		t.Errorf("%d errors in %d calls, want 5 in 10", r.Errors, len(round.calls))
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	second := exactly(50)
	sell, finish := second.buy, second.finish
	second.buy = func(ctx context.Context, instance int, buyer string) (model.Verdict, error) {
		second.mu.Lock()
		calls := len(second.calls)
		second.mu.Unlock()
		if calls == 20 {
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
	p := Plan{Strategies: []string{"a", "b", "c"}, Buyers: 100, Stock: 50, Concurrency: 1, Instances: 1}
	var last Progress
	report, err := Run(ctx, bench, p, Setting{}, time.Now, func(p Progress) { last = p })
	if err != nil {
		t.Fatal(err)
	}
	if !report.Interrupted || len(report.Strategies) != 2 || bench["c"].started != 0 || second.finished != 1 {
		t.Fatalf("interrupted %v with %d results, c started %d times, b finished %d times; want true, 2, 0, 1",
			report.Interrupted, len(report.Strategies), bench["c"].started, second.finished)
	}
	if a, b := report.Strategies[0], report.Strategies[1]; a.Verdict != Exact || b.Verdict != Incomplete || b.Requests != 20 || b.Sold != 19 || b.Errors != 1 {
		t.Errorf("a is %s; b is %s with %d requests, %d sold, %d errors; want exact; incomplete, 20, 19, 1", a.Verdict, b.Verdict, b.Requests, b.Sold, b.Errors)
	}
	if last.Result != report.Strategies[1] {
		t.Error("the incomplete result was not shown")
	}
}

// startFunc is a bench whose Start is the function.
type startFunc func(ctx context.Context, strategy string) (Round, error)

func (f startFunc) Start(ctx context.Context, strategy string, _ Plan) (Round, error) {
	return f(ctx, strategy)
}

func TestInterruptedBetweenTwoRounds(t *testing.T) {
	tests := []struct {
		name  string
		start error // of the second round, which ends the context
		want  error
	}{
		{"start gives up", context.Canceled, nil},
		{"start breaks", errBroken, errBroken},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			bench := startFunc(func(_ context.Context, strategy string) (Round, error) {
				if strategy == "b" {
					cancel()
					return nil, test.start
				}
				return exactly(5), nil
			})
			p := Plan{Strategies: []string{"a", "b", "c"}, Buyers: 10, Stock: 5, Concurrency: 1, Instances: 1}
			report, err := Run(ctx, bench, p, Setting{}, time.Now, silent)
			if !errors.Is(err, test.want) || !report.Interrupted || len(report.Strategies) != 1 {
				t.Errorf("error %v, interrupted %v, %d results; want %v, true, 1", err, report.Interrupted, len(report.Strategies), test.want)
			}
		})
	}
}

func TestInterruptedBeforeTheFirstRound(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	report, err := Run(ctx, fakeBench{}, Plan{Strategies: []string{"a"}, Buyers: 1}, Setting{}, time.Now, silent)
	if err != nil || !report.Interrupted || len(report.Strategies) != 0 {
		t.Errorf("error %v, interrupted %v, %d results; want nil, true, 0", err, report.Interrupted, len(report.Strategies))
	}
}

func TestFailuresNameTheStrategy(t *testing.T) {
	unfinished := exactly(5)
	unfinished.finish = func(context.Context) (Tally, error) { return Tally{}, errBroken }
	tests := []struct {
		name  string
		bench fakeBench
		want  string
	}{
		{"start", fakeBench{"good": exactly(5)}, "start bad: "},
		{"finish", fakeBench{"good": exactly(5), "bad": unfinished}, "finish bad: "},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := Plan{Strategies: []string{"good", "bad", "good"}, Buyers: 10, Stock: 5, Concurrency: 2, Instances: 1}
			report, err := Run(t.Context(), test.bench, p, Setting{}, time.Now, silent)
			if !errors.Is(err, errBroken) || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("error %v, want one that starts with %q", err, test.want)
			}
			if len(report.Strategies) != 1 || report.Strategies[0].Strategy != "good" || report.Interrupted {
				t.Errorf("%d results, interrupted %v; want the one before the failure, false", len(report.Strategies), report.Interrupted)
			}
		})
	}
}
