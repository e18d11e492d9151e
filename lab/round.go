package lab

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"flashsale/model"
)

// progressPeriod is the time between two reports of progress while buyers are under way.
const progressPeriod = 100 * time.Millisecond

// load sends the buyers of one round and records their outcomes.
type load struct {
	plan  model.LabPlan
	round Round
	now   func() time.Time

	order    []int     // the numbers of the buyers, from 0
	outcomes []outcome // by place in the order; each is written only by the goroutine that took the place
	next     atomic.Int64
	done     atomic.Int64
	accepted atomic.Int64
	killed   atomic.Bool
	released time.Time
}

// outcome is how a buyer's attempt ended.
type outcome struct {
	verdict model.Verdict
	err     error
	took    time.Duration
	ended   time.Duration // since the release of the buyers
}

// newLoad puts the buyers in a random order. The order depends only on the seed and the number of buyers.
func newLoad(p model.LabPlan, round Round, now func() time.Time) *load {
	order := rand.New(rand.NewPCG(p.Seed, 0)).Perm(p.Buyers) //nolint:gosec // the order must be repeatable
	return &load{plan: p, round: round, now: now, order: order, outcomes: make([]outcome, len(order))}
}

// run makes the attempts from several goroutines, which it releases together. It returns when all of them have ended.
func (l *load) run(ctx context.Context, show func(done int)) {
	var ready, working sync.WaitGroup
	start := make(chan struct{})
	workers := min(l.plan.Concurrency, len(l.order))
	ready.Add(workers)
	for range workers {
		working.Go(func() {
			ready.Done()
			<-start
			l.work(ctx)
		})
	}
	ready.Wait()
	l.released = l.now()
	close(start)

	over := make(chan struct{})
	go func() {
		working.Wait()
		close(over)
	}()
	ticker := time.NewTicker(progressPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			show(int(l.done.Load()))
		case <-over:
			return
		}
	}
}

// work makes the attempts of buyers, in their order, until no buyer is left or ctx ends.
func (l *load) work(ctx context.Context) {
	for ctx.Err() == nil {
		place := int(l.next.Add(1)) - 1
		if place >= len(l.order) {
			return
		}
		began := l.now()
		verdict, err := l.attempt(ctx, l.order[place])
		ended := l.now()
		l.outcomes[place] = outcome{verdict: verdict, err: err, took: ended.Sub(began), ended: ended.Sub(l.released)}
		l.done.Add(1)
		// Only one goroutine sees the count reach half of the stock, rounded up.
		if err == nil && verdict == model.Accepted && l.accepted.Add(1) == int64(l.plan.Stock+1)/2 && l.plan.Kill {
			l.killed.Store(true) // before Kill, so that errors caused by the death are recognized
			l.round.Kill(l.last())
		}
	}
}

// attempt makes a buyer's attempt. If the buyer's instance was killed before it answered, another one gets the attempt.
func (l *load) attempt(ctx context.Context, buyer int) (model.Verdict, error) {
	name := "b" + strconv.Itoa(buyer+1)
	instance := buyer % l.plan.Instances
	if instance != l.last() || !l.killed.Load() {
		verdict, err := l.round.Buy(ctx, instance, name)
		if err == nil || instance != l.last() || !l.killed.Load() {
			return verdict, err
		}
	}
	return l.round.Buy(ctx, buyer%l.last(), name)
}

// made returns the outcomes of the attempts that were made. It may only be called after run.
func (l *load) made() []outcome { return l.outcomes[:l.done.Load()] }

// last is the index of the instance to kill, if the plan says so.
func (l *load) last() int { return l.plan.Instances - 1 }
