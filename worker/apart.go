package worker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"flashsale/internal/pause"
	"flashsale/model"
)

// apart works on things, such as the overdue orders of a sale, each in a goroutine of its own, so that one that takes long or
// fails hardly delays the others. A thing has one work at a time, and rests after a failure.
type apart struct {
	patience       time.Duration                                      // how long the method do waits for the work
	rest, restMost time.Duration                                      // after a failure; doubled at each further one, up to restMost
	fails, works   string                                             // log texts for failures and for the next success
	broken         func(ctx context.Context, thing string, err error) // called at the first model.ErrBroken in a row; may be nil
	log            *slog.Logger

	taken    sync.Map // things that are worked on or rest
	failures sync.Map // by thing that fails, its failures
	running  sync.WaitGroup
}

// failures are a thing's failures in a row.
type failures struct {
	times  int
	broken bool // one of them was model.ErrBroken
}

// errRest is returned by work that can't be done now: the thing rests, but no failure is counted.
var errRest = errors.New("not now")

// do works on a thing, unless the thing is worked on already, or rests. finished is true if the work has ended within patience,
// with or without an error.
func (a *apart) do(ctx context.Context, thing string, work func() error) (finished bool) {
	if _, taken := a.taken.LoadOrStore(thing, true); taken {
		return false
	}
	done := make(chan struct{})
	a.running.Go(func() {
		err := work()
		if err == nil {
			a.well(thing)
			a.taken.Delete(thing)
			close(done)
			return
		}
		close(done)
		rest := a.rest
		if !errors.Is(err, errRest) {
			rest = a.failed(ctx, thing, err)
		}
		pause.For(ctx, rest)
		a.taken.Delete(thing)
	})
	select {
	case <-done:
		return true
	case <-time.After(a.patience):
		return false
	}
}

// wait waits until no thing is worked on or rests. No thing rests after the end of the context that do got.
func (a *apart) wait() { a.running.Wait() }

// busy lists the things that are worked on or rest.
func (a *apart) busy() (things []string) {
	for thing := range a.taken.Range {
		things = append(things, thing.(string))
	}
	slices.Sort(things)
	return things
}

// failed counts a failure, and returns how long the thing rests. Unless ctx has ended, it logs the first failure and the first
// model.ErrBroken in a row, and calls a.broken at the latter.
func (a *apart) failed(ctx context.Context, thing string, err error) time.Duration {
	stored, _ := a.failures.Load(thing) // no other work of the thing runs
	before, _ := stored.(failures)
	breaks := ctx.Err() == nil && !before.broken && errors.Is(err, model.ErrBroken)
	a.failures.Store(thing, failures{before.times + 1, before.broken || breaks})
	if ctx.Err() == nil && (before.times == 0 || breaks) {
		a.log.Error(a.fails, "sale", thing, "error", err)
	}
	if breaks && a.broken != nil {
		a.broken(ctx, thing, err)
	}
	return min(a.rest<<min(before.times, 10), a.restMost)
}

// well forgets a thing's failures. If there were any, it logs that the thing works again.
func (a *apart) well(thing string) {
	if _, failed := a.failures.LoadAndDelete(thing); failed {
		a.log.Info(a.works, "sale", thing)
	}
}

func (a *apart) allWell() {
	for thing := range a.failures.Range {
		a.well(thing.(string))
	}
}
