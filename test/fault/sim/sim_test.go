// Package sim runs the engine in simulated worlds. A seed makes every choice that is random elsewhere: which call to a
// store is next, and whether it happens, fails, happens without an answer, hangs, or happens after its caller has gone;
// when an instance is killed, Redis is emptied or restored to an older state, or a store can't be reached. The real
// purchases, gates, strategy and workers run over the real SQL on SQLite and the real scripts, in a bubble of
// testing/synctest whose clock runs as fast as the machine allows. A seed that fails always fails again.
package sim

import (
	"database/sql/driver"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gosqlite "github.com/glebarez/go-sqlite"

	"flashsale/test/kit"
)

// seeds is how many worlds `go test` runs, in a quarter of a minute. SEEDS=n runs n worlds. SEED=n runs only the world
// n and prints its trace.
const seeds = 150

func TestMain(m *testing.M) {
	// SQLite reads the machine's clock; in a bubble it has to read the bubble's clock.
	gosqlite.MustRegisterScalarFunction("unixepoch", 1, func(*gosqlite.FunctionContext, []driver.Value) (driver.Value, error) {
		return float64(time.Now().UnixMicro()) / 1e6, nil
	})
	debug.SetGCPercent(400)                                  // a world is small and makes much garbage: this saves a fifth of the time
	folder, err := os.MkdirTemp("/dev/shm", "flashsale-sim") // so that no world waits for a disk
	if err == nil {
		err = os.Setenv("TMPDIR", folder)
	}
	if err != nil {
		panic(err)
	}
	kit.Main(m, func() { _ = os.RemoveAll(folder) })
}

// number reads a number from the environment.
func number(t *testing.T, name string) (n uint64, set bool) {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n, true
}

// TestSeeds runs the worlds of many seeds, several at once. In some of them attempts gather at the gate while a settle is under way
// that succeeds, fails, loses its answer or hangs.
func TestSeeds(t *testing.T) {
	if seed, one := number(t, "SEED"); one {
		trace, err := simulate(t, seed, sound)
		fmt.Fprintln(os.Stdout, strings.Join(trace, "\n"))
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		return
	}
	last, set := number(t, "SEEDS")
	if !set {
		last = seeds
	}
	var next atomic.Uint64
	gathered := map[fate]*atomic.Int64{happens: {}, fails: {}, loses: {}, hangs: {}}
	t.Cleanup(func() { // after the lines below
		for f, n := range gathered {
			t.Logf("%s%s: %d settles", f, whileGathering, n.Load())
			if n.Load() == 0 && last >= seeds {
				t.Errorf("no settle %s%s", f, whileGathering)
			}
		}
	})
	for n := range runtime.GOMAXPROCS(0) {
		t.Run(fmt.Sprint("line ", n), func(t *testing.T) {
			t.Parallel()
			for seed := next.Add(1); seed <= last; seed = next.Add(1) {
				trace, err := simulate(t, seed, sound)
				for f, n := range gathered {
					n.Add(int64(strings.Count(strings.Join(trace, "\n")+"\n", ": "+string(f)+whileGathering+"\n")))
				}
				if err != nil {
					t.Errorf("seed %d: %v\nagain, with all that happened: SEED=%d go test -C test/fault -run TestSeeds ./sim", seed, err, seed)
				}
			}
		})
	}
}

// TestOneSeedTwice checks that a seed decides everything.
func TestOneSeedTwice(t *testing.T) {
	for seed := range uint64(20) {
		once, err := simulate(t, seed, sound)
		again, errAgain := simulate(t, seed, sound)
		if !slices.Equal(once, again) || fmt.Sprint(err) != fmt.Sprint(errAgain) {
			t.Errorf("seed %d: %s", seed, difference(once, again))
		}
	}
}

// difference describes where two traces begin to differ.
func difference(a, b []string) string {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	part := func(trace []string) string { return strings.Join(trace[max(0, n-5):min(n+1, len(trace))], "\n") }
	return fmt.Sprintf("they part at line %d\n%s\nor\n%s", n, part(a), part(b))
}
