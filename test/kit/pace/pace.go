// Package pace lets tests have limits of real time on a machine that may stand still or have other work. A Trial is one
// attempt of a test. A clock runs beside it and notices when the machine did not keep time. A limit that was exceeded
// meanwhile says nothing about the engine, so the test is tried again; any other failure counts however slow the machine
// is. The package imports the standard library only, so the tests of every package can use it.
package pace

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	// Tries is how often a test may be tried. The last try is judged however late the machine was.
	Tries = 3
	// Late is in the output of a test that failed although none of its tries exceeded more than limits of time, on a machine
	// that was late in each. The suite runs it again when nothing else runs.
	Late = "the machine was late in every try"
	// tick is the length of the sleeps of the clock.
	tick = 10 * time.Millisecond
	// tolerance is by how much the clock may wake late while the machine counts as keeping time. On an idle machine it
	// wakes late by less than a millisecond.
	tolerance = 50 * time.Millisecond
	// mostPressure is the share of the time in which some thread may have waited for a processor while the machine counts
	// as keeping time. A thread of the engine may wait that long although the clock wakes in time.
	mostPressure = 0.5
)

// clock measures whether the machine keeps time, from its start to stop.
type clock struct {
	began   time.Time
	waited  time.Duration // in which some thread waited for a processor, counted since the machine's start
	latest  atomic.Int64  // the latest wake-up, in nanoseconds behind its time
	end     chan struct{}
	stopped sync.WaitGroup
}

func startClock() *clock {
	c := &clock{began: time.Now(), waited: pressure(), end: make(chan struct{})}
	c.stopped.Go(func() {
		timer := time.NewTimer(tick)
		defer timer.Stop()
		for asleep := c.began; ; asleep = time.Now() {
			timer.Reset(tick)
			select {
			case <-timer.C:
			case <-c.end:
			}
			if late := int64(time.Since(asleep) - tick); late > c.latest.Load() {
				c.latest.Store(late)
			}
			select {
			case <-c.end:
				return
			default:
			}
		}
	})
	return c
}

// stop ends the clock and returns by how much the machine was late since its start, or 0 if it kept time. A sleep that
// should have ended by now counts, too.
func (c *clock) stop() (late time.Duration) {
	close(c.end)
	c.stopped.Wait()
	return lateness(time.Duration(c.latest.Load()), pressure()-c.waited, time.Since(c.began))
}

// lateness returns by how much a machine was late whose clock woke that late, and on which some thread waited for a
// processor for a part of the time that passed. It returns 0 if the machine kept time.
func lateness(latest, waited, passed time.Duration) time.Duration {
	switch {
	case latest > tolerance:
		return latest
	case waited.Seconds() > mostPressure*passed.Seconds():
		return waited
	}
	return 0
}

// pressure returns the time in which some thread of the machine waited for a processor, since the machine's start. It
// returns 0 where the kernel does not count it.
func pressure() time.Duration {
	text, _ := os.ReadFile("/proc/pressure/cpu") // most systems have none
	return total(string(text))
}

// total reads the first total of a file of pressures, which is that of "some".
func total(pressures string) time.Duration {
	_, text, _ := strings.Cut(pressures, "total=")
	var microseconds int64
	_, _ = fmt.Sscan(text, &microseconds) // 0 if there is none
	return time.Duration(microseconds) * time.Microsecond
}

// Trial is one attempt of a test, with its own cleanups and context. A failure of Slowf or FatalSlowf is one of time; any
// other is one of substance. The methods may be called as those of testing.T.
type Trial struct {
	testing.TB

	// Before says by how much the machine was late in the tries before this one; it is empty in the first.
	Before string

	ctx    context.Context
	cancel context.CancelFunc

	mu       sync.Mutex
	cleanups []func()
	failed   bool // in substance
	slow     bool
}

// Try runs a test that has limits of real time. If a try exceeds only such limits, and the machine did not keep time in it,
// the test is tried again, at most Tries times in all.
func Try(t *testing.T, test func(t *Trial)) {
	t.Helper()
	try(t, func(*Trial) func() time.Duration { return startClock().stop }, test)
}

// try is Try with another clock: watch starts it for a try, and the function that watch returns stops it and returns by
// how much the machine was late.
func try(t *testing.T, watch func(*Trial) (stop func() time.Duration), test func(t *Trial)) {
	t.Helper()
	var before []string
	for try := 1; ; try++ {
		trial := newTrial(t, strings.Join(before, "; "))
		stop := watch(trial)
		trial.run(test)
		late := stop()
		switch {
		case !trial.Failed():
			return
		case trial.failed || late == 0 || try == Tries:
			if !trial.failed && late > 0 {
				t.Log(Late)
			}
			t.Fail()
			return
		}
		before = append(before, fmt.Sprintf("the machine was late by %d ms", late.Milliseconds()))
		t.Logf("%s, so the limits above do not count: try %d of %d follows", before[len(before)-1], try+1, Tries)
	}
}

func newTrial(t testing.TB, before string) *Trial {
	trial := &Trial{TB: t, Before: before}
	trial.ctx, trial.cancel = context.WithCancel(t.Context())
	return trial
}

// run runs the test and its cleanups, each in a goroutine of its own that FailNow can end.
func (t *Trial) run(test func(t *Trial)) {
	t.Helper()
	inGoroutine(func() { test(t) })
	t.cancel()
	for {
		t.mu.Lock()
		last := len(t.cleanups) - 1
		if last < 0 {
			t.mu.Unlock()
			return
		}
		cleanup := t.cleanups[last]
		t.cleanups = t.cleanups[:last]
		t.mu.Unlock()
		inGoroutine(cleanup)
	}
}

func inGoroutine(do func()) {
	var running sync.WaitGroup
	running.Go(do)
	running.Wait()
}

// Cleanup runs a function at the end of the try, the last one first.
func (t *Trial) Cleanup(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanups = append(t.cleanups, f)
}

// Context ends before the cleanups of the try.
func (t *Trial) Context() context.Context { return t.ctx }

// Failed reports whether the try has failed, in substance or time.
func (t *Trial) Failed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed || t.slow
}

// Fail marks the try as failed in substance.
func (t *Trial) Fail() { t.mark(&t.failed) }

func (t *Trial) mark(as *bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	*as = true
}

// FailNow marks the try as failed in substance and ends it.
func (t *Trial) FailNow() {
	t.Fail()
	runtime.Goexit()
}

// Error is Log followed by Fail.
func (t *Trial) Error(args ...any) {
	t.Helper()
	t.Log(args...)
	t.Fail()
}

// Errorf is Logf followed by Fail.
func (t *Trial) Errorf(format string, args ...any) {
	t.Helper()
	t.Logf(format, args...)
	t.Fail()
}

// Fatal is Log followed by FailNow.
func (t *Trial) Fatal(args ...any) {
	t.Helper()
	t.Log(args...)
	t.FailNow()
}

// Fatalf is Logf followed by FailNow.
func (t *Trial) Fatalf(format string, args ...any) {
	t.Helper()
	t.Logf(format, args...)
	t.FailNow()
}

// Slowf says that a limit of time was exceeded. The test goes on.
func (t *Trial) Slowf(format string, args ...any) {
	t.Helper()
	t.Logf(format, args...)
	t.mark(&t.slow)
}

// FatalSlowf is Slowf and ends the try.
func (t *Trial) FatalSlowf(format string, args ...any) {
	t.Helper()
	t.Slowf(format, args...)
	runtime.Goexit()
}

// Errorf says that a limit of time was exceeded: a try is told by Slowf, any other test by Errorf.
func Errorf(t testing.TB, format string, args ...any) {
	t.Helper()
	if trial, ok := t.(interface{ Slowf(string, ...any) }); ok {
		trial.Slowf(format, args...)
		return
	}
	t.Errorf(format, args...)
}

// Fatalf is Errorf and ends the test.
func Fatalf(t testing.TB, format string, args ...any) {
	t.Helper()
	if trial, ok := t.(interface{ FatalSlowf(string, ...any) }); ok {
		trial.FatalSlowf(format, args...)
	}
	t.Fatalf(format, args...)
}
