package pace

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// asChild makes this binary, run again as a child, try a test of the table below.
const asChild = "PACE_AS_CHILD"

// tries are tests that fail in one way or another, on a machine that is late in so many of their tries.
var tries = map[string]struct {
	test   func(t *Trial)
	late   int
	passes bool
	ran    int // times
}{
	"nothing":                        {func(*Trial) {}, Tries, true, 1},
	"a limit while time was kept":    {func(t *Trial) { t.Slowf("slow") }, 0, false, 1},
	"a limit on a late machine":      {func(t *Trial) { t.Slowf("slow") }, Tries, false, Tries},
	"a limit, time was kept at last": {func(t *Trial) { t.Slowf("slow") }, 1, false, 2},
	"a limit, in the first try only": {func(t *Trial) { first(t, func() { t.FatalSlowf("slow") }) }, 1, true, 2},
	"a loss on a late machine":       {func(t *Trial) { t.Errorf("lost") }, Tries, false, 1},
	"a loss and a limit":             {func(t *Trial) { t.Slowf("slow"); t.Fatal("lost") }, Tries, false, 1},
	"a loss while cleaning up":       {func(t *Trial) { t.Cleanup(func() { t.Error("lost") }) }, Tries, false, 1},
	"a limit, said by a helper":      {func(t *Trial) { first(t, func() { Fatalf(t, "slow") }) }, 1, true, 2},
	"a limit, of an embedding type":  {func(t *Trial) { first(t, func() { Errorf(struct{ *Trial }{t}, "slow") }) }, 1, true, 2},
}

// first calls do in the first try.
func first(t *Trial, do func()) {
	if t.Before == "" {
		do()
	}
}

// TestTry runs each test of the table in a child process, because a failure of a child fails its parents too.
func TestTry(t *testing.T) {
	for name, want := range tries {
		t.Run(name, func(t *testing.T) {
			child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAsChild$", "-test.v")
			child.Env = append(os.Environ(), asChild+"="+name)
			out, err := child.CombinedOutput()
			if (err == nil) != want.passes {
				t.Errorf("passes: %t, want %t\n%s", err == nil, want.passes, out)
			}
			if ran := strings.Count(string(out), "a try begins"); ran != want.ran {
				t.Errorf("ran %d times, want %d\n%s", ran, want.ran, out)
			}
			if said := strings.Count(string(out), "the machine was late by "); said != want.ran-1 {
				t.Errorf("the output says %d times that the machine was late, want %d\n%s", said, want.ran-1, out)
			}
		})
	}
}

// TestAsChild is run by TestTry. Otherwise it does nothing.
func TestAsChild(t *testing.T) {
	if name := os.Getenv(asChild); name != "" {
		late := time.Duration(tries[name].late) * time.Second
		try(t, func(t *Trial) func() time.Duration {
			t.Log("a try begins")
			return func() time.Duration {
				defer func() { late = max(0, late-time.Second) }()
				return late
			}
		}, tries[name].test)
	}
}

// A try ends its context before its cleanups, runs them in reverse order, and goes on with the next after one that ends
// itself.
func TestTrialCleansUp(t *testing.T) {
	var order []string
	trial := newTrial(t, "")
	trial.run(func(t *Trial) {
		t.Cleanup(func() { order = append(order, "first") })
		t.Cleanup(func() { t.Cleanup(func() { order = append(order, "added") }); runtime.Goexit() })
		t.Cleanup(func() { order = append(order, t.Context().Err().Error()) })
		t.FatalSlowf("an expected line")
	})
	if want := []string{"context canceled", "added", "first"}; !slices.Equal(order, want) || !trial.Failed() {
		t.Errorf("%q, failed %t; want %q", order, trial.Failed(), want)
	}
}

func TestLateness(t *testing.T) {
	const minute = time.Minute
	for name, tc := range map[string]struct{ latest, waited, passed, want time.Duration }{
		"idle":                              {time.Millisecond, time.Second, minute, 0},
		"late":                              {time.Second, 0, minute, time.Second},
		"busy, but the clock woke in time":  {0, 40 * time.Second, minute, 40 * time.Second},
		"nothing is known of the pressure":  {0, 0, minute, 0},
		"late, and busy":                    {time.Second, 40 * time.Second, minute, time.Second},
		"busy for as long as is tolerated":  {0, minute / 2, minute, 0},
		"late by as much as is tolerated":   {tolerance, 0, minute, 0},
		"late by a little more than that":   {tolerance + 1, 0, minute, tolerance + 1},
		"a try that ends as soon as begun":  {0, 0, 0, 0},
		"the waits of several, in no time ": {0, time.Millisecond, 0, time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			if got := lateness(tc.latest, tc.waited, tc.passed); got != tc.want {
				t.Errorf("late by %s, want %s", got, tc.want)
			}
		})
	}
}

func TestTotal(t *testing.T) {
	const file = "some avg10=0.00 avg60=0.54 avg300=0.45 total=2245676\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"
	if got := total(file); got != 2245676*time.Microsecond {
		t.Errorf("%s", got)
	}
	if got := total(""); got != 0 {
		t.Errorf("%s of no file", got)
	}
}

// The clock notices that its process stood still.
func TestClock(t *testing.T) {
	const stands = 300 * time.Millisecond
	c := startClock()
	keeper := exec.CommandContext(t.Context(), "sh", "-c", `kill -STOP "$1"; sleep 0.3; kill -CONT "$1"`, "sh", strconv.Itoa(os.Getpid()))
	if err := keeper.Run(); err != nil {
		t.Fatal(err)
	}
	if late := c.stop(); late < stands/2 {
		t.Errorf("late by %s, after a stop of %s", late, stands)
	}
}
