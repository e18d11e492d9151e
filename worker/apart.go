package worker

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"flashsale/internal/pause"
)

// apart works on things, each by itself, so that one whose work takes long or fails does not delay the others. A thing is worked
// on once at a time, and left alone for a while after a failure.
type apart struct {
	patience       time.Duration // for which do waits for the work
	rest, restMost time.Duration // after a failure; it doubles with each failure in a row, from rest up to restMost
	fails, works   string        // for the log: what a thing does that fails for the first time in a row, or works again
	log            *slog.Logger

	mu       sync.Mutex
	taken    map[string]bool // things that are worked on, or rest
	failures map[string]int  // in a row
	running  sync.WaitGroup
}

var (
	// errRest is returned by work that can't go on now, and has not failed: the thing rests.
	errRest = errors.New("not now")
	// errLogged is wrapped by an error that the work has logged itself.
	errLogged = errors.New("it was logged")
)

// do works on a thing, unless it is taken. It waits for the work, at most for patience: then finished is false, and the work
// goes on in the background.
func (a *apart) do(ctx context.Context, thing string, work func() error) (finished bool) {
	if !a.take(thing) {
		return false
	}
	done := make(chan struct{})
	a.running.Go(func() {
		err := work()
		if err == nil {
			a.well(thing)
			a.free(thing)
			close(done)
			return
		}
		close(done)
		rest := a.rest
		if !errors.Is(err, errRest) {
			rest = a.failed(ctx, thing, err)
		}
		pause.For(ctx, rest)
		a.free(thing)
	})
	timer := time.NewTimer(a.patience)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// wait waits for the work in the background.
func (a *apart) wait() { a.running.Wait() }

func (a *apart) take(thing string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.taken[thing] {
		return false
	}
	if a.taken == nil {
		a.taken, a.failures = map[string]bool{}, map[string]int{}
	}
	a.taken[thing] = true
	return true
}

func (a *apart) free(thing string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.taken, thing)
}

// busy lists the things that are taken.
func (a *apart) busy() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(maps.Keys(a.taken))
}

// failed counts a failure, logs the first one in a row, and returns how long the thing rests.
func (a *apart) failed(ctx context.Context, thing string, err error) time.Duration {
	a.mu.Lock()
	a.failures[thing]++
	times := a.failures[thing]
	a.mu.Unlock()
	if ctx.Err() == nil && times == 1 && !errors.Is(err, errLogged) {
		a.log.Error(a.fails, "sale", thing, "error", err)
	}
	return min(a.rest<<min(times-1, 10), a.restMost)
}

// well ends the failures in a row of a thing.
func (a *apart) well(thing string) {
	a.mu.Lock()
	times := a.failures[thing]
	delete(a.failures, thing)
	a.mu.Unlock()
	if times > 0 {
		a.log.Info(a.works, "sale", thing)
	}
}

// allWell calls well for all things that fail.
func (a *apart) allWell() {
	a.mu.Lock()
	failing := slices.Sorted(maps.Keys(a.failures))
	a.mu.Unlock()
	for _, thing := range failing {
		a.well(thing)
	}
}
