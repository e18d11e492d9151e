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

// progressPeriod is fast enough to look alive and too slow to cost anything.
const progressPeriod = 100 * time.Millisecond

// buyersInOrder numbers the buyers from 0 and shuffles them: the same for every strategy, and for every run with
// this seed.
func buyersInOrder(p Plan) []int {
	return rand.New(rand.NewPCG(p.Seed, 0)).Perm(p.Buyers) //nolint:gosec // it must come again, so it can't be secret
}

// load is the buyers of one round on their way.
type load struct {
	plan  Plan
	round Round
	now   func() time.Time

	order    []int
	outcomes []outcome // by place in the order; each is written only by the goroutine that took the place
	next     atomic.Int64
	done     atomic.Int64
	accepted atomic.Int64
	killed   atomic.Bool
	released time.Time
}

// outcome is what a buyer got, and when.
type outcome struct {
	verdict model.Verdict
	err     error
	took    time.Duration
	ended   time.Time
}

func newLoad(p Plan, round Round, order []int, now func() time.Time) *load {
	return &load{plan: p, round: round, now: now, order: order, outcomes: make([]outcome, len(order))}
}

// run releases all goroutines at one instant and shows how far they are until the last has ended: when no buyer is
// left, or ctx ends.
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

// work takes the next buyer until none is left.
func (l *load) work(ctx context.Context) {
	for ctx.Err() == nil {
		place := int(l.next.Add(1)) - 1
		if place >= len(l.order) {
			return
		}
		began := l.now()
		verdict, err := l.attempt(ctx, l.order[place])
		ended := l.now()
		l.outcomes[place] = outcome{verdict: verdict, err: err, took: ended.Sub(began), ended: ended}
		l.done.Add(1)
		// The count passes the half once, so one goroutine kills, and once.
		if err == nil && verdict == model.Accepted && l.accepted.Add(1) == l.half() && l.plan.Kill {
			l.killed.Store(true) // first, so that every error that the death causes is known for what it is
			l.round.Kill(l.last())
		}
	}
}

// attempt is one buyer's. Like a load balancer, it sends elsewhere whom the dead instance failed, or would fail.
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

// made are the outcomes of the buyers who set out; call it after run.
func (l *load) made() []outcome { return l.outcomes[:l.done.Load()] }

// half is rounded up, so that a stock of one has one.
func (l *load) half() int64 { return int64(l.plan.Stock+1) / 2 }

// last is the instance that a Kill is for.
func (l *load) last() int { return l.plan.Instances - 1 }
