package fault

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"flashsale/test/kit/pace"
)

const (
	// standsFor is how long the processes of a row stand still: longer than every time-out of a statement or a command.
	standsFor = 3 * time.Second
	// stopsEnv names the process that TestStandStill stops, with all its descendants.
	stopsEnv = "STANDSTILL_PROCESS"
	// losesEnv makes each row lose a confirmed order before the books are judged.
	losesEnv = "LOSE_AN_ORDER"
)

// standstill is how long after its beginning a row stands still in its first try; 0: it does not. Then rows run one
// after the other, because the whole process stands still.
var standstill = func() time.Duration {
	after, err := time.ParseDuration(cmp.Or(os.Getenv("STANDSTILL"), "0s"))
	if err != nil {
		panic(err)
	}
	return after
}()

// standsStill lets this process and all its descendants stand still once, if STANDSTILL is set, this is the row's first
// try, and the row lasts until then. A helper that is this program too stops and continues them.
func (d *drill) standsStill() {
	d.Helper()
	if trial, ok := d.TB.(*pace.Trial); !ok || trial.Before != "" || standstill == 0 || d.willStand {
		return
	}
	d.willStand = true
	ended := make(chan struct{})
	var standing sync.WaitGroup
	standing.Go(func() {
		select {
		case <-ended:
			return
		case <-time.After(standstill):
		}
		helper := exec.CommandContext(context.Background(), os.Args[0], "-test.run=^TestStandStill$", "-test.count=1")
		helper.Env = append(os.Environ(), fmt.Sprintf("%s=%d", stopsEnv, os.Getpid()))
		if out, err := helper.CombinedOutput(); err != nil {
			d.Errorf("the standstill: %v: %s", err, out)
			return
		}
		d.Logf("stood still for %s", standsFor)
	})
	d.Cleanup(func() {
		close(ended)
		standing.Wait()
	})
}

// TestStandStill is the helper of standsStill, and no test. It stops the process first, so that no other process starts
// or continues meanwhile. It leaves out itself and whatever the row has stopped.
func TestStandStill(t *testing.T) {
	parent := number(os.Getenv(stopsEnv))
	if parent == 0 {
		return // nobody asks for help
	}
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP) // what it has stopped has to go on
	var stopped []int
	defer func() {
		for _, pid := range stopped {
			_ = syscall.Kill(pid, syscall.SIGCONT) // it may have been killed
		}
	}()
	stop := func(pid int) {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err == nil {
			stopped = append([]int{pid}, stopped...) // the parent goes on last
		} else if !errors.Is(err, syscall.ESRCH) {
			t.Error(err)
		}
	}
	stop(parent)
	for state, _ := stateOf(parent); state != "T"; state, _ = stateOf(parent) {
		time.Sleep(time.Millisecond) // no event announces to a child that its parent has stopped
	}
	for more := true; more; { // a descendant may start another before it is stopped
		more = false
		for pid := range descendants(parent) {
			if state, _ := stateOf(pid); pid != os.Getpid() && state != "T" && state != "Z" && state != "" {
				stop(pid)
				more = true
			}
		}
	}
	time.Sleep(standsFor)
}

// stateOf returns the state of a process and the id of its parent; "" if there is no such process.
func stateOf(pid int) (state string, parent int) {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(raw[max(0, strings.LastIndex(string(raw), ")")):]), " ") // the name may have spaces
	fields := strings.Fields(rest)
	if len(fields) < 2 {
		return "", 0
	}
	return fields[0], number(fields[1])
}

// descendants returns the processes that a process or its descendants have started.
func descendants(of int) map[int]bool {
	folders, _ := filepath.Glob("/proc/[0-9]*")
	parents := map[int]int{}
	for _, folder := range folders {
		pid, _ := strconv.Atoi(filepath.Base(folder))
		_, parents[pid] = stateOf(pid)
	}
	below := map[int]bool{}
	for pid := range parents {
		for up := parents[pid]; up != 0; up = parents[up] {
			if up == of {
				below[pid] = true
			}
		}
	}
	return below
}

// loseAnOrder deletes a confirmed order, if the environment says so, and reports whether it did.
func (d *drill) loseAnOrder(sale string) bool {
	d.Helper()
	if os.Getenv(losesEnv) == "" {
		return false
	}
	d.execute(d.books.db, fmt.Sprintf("DELETE FROM orders WHERE sale_id = '%s' AND status = 'pending' LIMIT 1", sale))
	return true
}

// A machine that stands still does not hide that an order is lost: the row fails, and is not tried again.
func TestStandstillFindsALostOrder(t *testing.T) {
	together(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.count=1", "-test.v", "-test.timeout=5m", "-test.run=^TestDrill$/^22 ")
	cmd.Env = append(os.Environ(), "STANDSTILL=1ms", losesEnv+"=1", "DRILL=", "REPEAT=")
	out, err := cmd.CombinedOutput()
	if _, failed := errors.AsType[*exec.ExitError](err); !failed {
		t.Errorf("a lost order is not found: %v", err)
	}
	_, after, found := strings.Cut(string(out), "; lost 1 ")
	if !found || strings.Contains(after, "try 2 of") || strings.Contains(after, "try 3 of") {
		t.Errorf("a lost order is found: %t; it has to be, and then the row is not tried again", found)
	}
	if !strings.Contains(string(out), "stood still for "+standsFor.String()) {
		t.Error("the row did not stand still")
	}
	if t.Failed() {
		t.Logf("%s", out)
	}
}
