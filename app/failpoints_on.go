//go:build failpoints

package app

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"flashsale/internal/observe"
)

// If FLASHSALE_FAILPOINT is POINT:N, the process kills itself with SIGKILL at the Nth pass of that point. The points are
// "before STEP" and "after STEP", where STEP is the name of a step in package observe. FLASHSALE_CLOCK_OFFSET shifts the clock.
var (
	failpoint, nth, _ = strings.Cut(os.Getenv("FLASHSALE_FAILPOINT"), ":")
	failAt, _         = strconv.ParseInt(nth, 10, 64)
	passes            atomic.Int64
	clockOffset, _    = time.ParseDuration(os.Getenv("FLASHSALE_CLOCK_OFFSET"))
)

func pass(point string) {
	if point == failpoint && passes.Add(1) == failAt {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // until the signal arrives
	}
}

func clock() time.Time { return time.Now().Add(clockOffset) }

func failpoints() observe.All { return observe.All{failpointObserver{}} }

type failpointObserver struct{}

// Begin passes the point before the step and returns a function that passes the point after it. A TellGate without changes does
// not count as a pass of the point before.
func (failpointObserver) Begin(ctx context.Context, step observe.Step) (context.Context, func(error)) {
	if step.Name != observe.TellGate || step.Items > 0 {
		pass("before " + step.Name)
	}
	return ctx, func(error) { pass("after " + step.Name) }
}

func (failpointObserver) Note(observe.Event) {}
