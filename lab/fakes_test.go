package lab

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// fakeBench has a round ready for each strategy.
type fakeBench map[string]*fakeRound

func (b fakeBench) Start(_ context.Context, strategy string, _ model.LabPlan) (Round, error) {
	r, ok := b[strategy]
	if !ok {
		return nil, errBroken
	}
	r.started++
	return r, nil
}

var errBroken = errors.New("broken")

// call is one Buy as the round saw it.
type call struct {
	instance int
	buyer    string
}

// fakeRound sells by the function buy, and records the calls.
type fakeRound struct {
	buy    func(ctx context.Context, instance int, buyer string) (model.Verdict, error)
	kill   func()
	finish func(ctx context.Context) (Tally, error)

	mu       sync.Mutex
	calls    []call
	kills    []int
	started  int
	finished int
}

func (r *fakeRound) Buy(ctx context.Context, instance int, buyer string) (model.Verdict, error) {
	r.mu.Lock()
	r.calls = append(r.calls, call{instance, buyer})
	r.mu.Unlock()
	return r.buy(ctx, instance, buyer)
}

func (r *fakeRound) Kill(instance int) {
	r.mu.Lock()
	r.kills = append(r.kills, instance)
	r.mu.Unlock()
	if r.kill != nil {
		r.kill()
	}
}

func (r *fakeRound) Finish(ctx context.Context) (Tally, error) {
	r.finished++
	return r.finish(ctx)
}

// shelf is a stock that sells each unit once, and one unit to each buyer.
type shelf struct {
	mu     sync.Mutex
	left   int64
	orders map[string]bool
}

// exactly returns a round that sells n units without a fault.
func exactly(n int) *fakeRound {
	s := &shelf{left: int64(n), orders: map[string]bool{}}
	return &fakeRound{
		buy:    func(_ context.Context, _ int, buyer string) (model.Verdict, error) { return s.take(buyer), nil },
		finish: s.tally,
	}
}

func (s *shelf) take(buyer string) model.Verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.orders[buyer]:
		return model.Accepted
	case s.left == 0:
		return model.SoldOut
	}
	s.left--
	s.orders[buyer] = true
	return model.Accepted
}

func (s *shelf) tally(context.Context) (Tally, error) {
	return Tally{Sold: int64(len(s.orders)), Left: s.left}, nil
}

// slowed returns a round that sells n units. An order takes yes, a refusal no, by the clock of the test's synctest bubble.
func slowed(n int, yes, no time.Duration) *fakeRound {
	round := exactly(n)
	sell := round.buy
	round.buy = func(ctx context.Context, instance int, buyer string) (model.Verdict, error) {
		verdict, err := sell(ctx, instance, buyer)
		if verdict == model.Accepted {
			time.Sleep(yes)
		} else {
			time.Sleep(no)
		}
		return verdict, err
	}
	return round
}

// naively returns a round in which all readers see the same stock before one of them writes.
func naively(stock, readers int) *fakeRound {
	var mu sync.Mutex
	left, sold := int64(stock), int64(0)
	var reading sync.WaitGroup
	reading.Add(readers)
	return &fakeRound{
		buy: func(context.Context, int, string) (model.Verdict, error) {
			mu.Lock()
			seen := left
			mu.Unlock()
			reading.Done()
			reading.Wait()
			if seen == 0 {
				return model.SoldOut, nil
			}
			mu.Lock()
			defer mu.Unlock()
			left = seen - 1
			sold++
			return model.Accepted, nil
		},
		finish: func(context.Context) (Tally, error) { return Tally{Sold: sold, Left: left}, nil },
	}
}

// answering returns a round that gives these answers in turn, an error for an empty verdict, and whose books have a tally.
// It is for a concurrency of 1.
func answering(tally Tally, answers []model.Verdict) *fakeRound {
	turn := 0
	return &fakeRound{
		buy: func(context.Context, int, string) (v model.Verdict, err error) {
			if v = answers[turn]; v == "" {
				err = errBroken
			}
			turn++
			return v, err
		},
		finish: func(context.Context) (Tally, error) { return tally, nil },
	}
}

func times(n int, v model.Verdict) []model.Verdict { return slices.Repeat([]model.Verdict{v}, n) }

func silent(Progress) {}

// runOne runs a plan on one round and returns its result.
func runOne(t *testing.T, round *fakeRound, p model.LabPlan) *Result {
	t.Helper()
	p.Strategies = []string{"one"}
	s := Setting{Lessons: map[string]model.Lesson{"one": {Breaks: "when two come at once. And so on."}}}
	report := check.Must(Run(t.Context(), fakeBench{"one": round}, p, s, time.Now, silent))
	if len(report.Strategies) != 1 || report.Interrupted {
		t.Fatalf("%d results, interrupted %v; want 1, false", len(report.Strategies), report.Interrupted)
	}
	check.Same(t, "starts and ends", []int{round.started, round.finished}, []int{1, 1})
	return report.Strategies[0]
}
