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

// A build with the tag failpoints, for drills, kills itself with SIGKILL at the nth pass of a point, if FLASHSALE_FAILPOINT is
// POINT:N, and shifts its clock by FLASHSALE_CLOCK_OFFSET. The points are "before STEP" and "after STEP", with the name of a step
// in package observe.
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

// Begin passes the point before a step, except a TellGate without changes, and returns what passes the point after the step.
func (failpointObserver) Begin(ctx context.Context, step observe.Step) (context.Context, func(error)) {
	if step.Name != observe.TellGate || step.Items > 0 {
		pass("before " + step.Name)
	}
	return ctx, func(error) { pass("after " + step.Name) }
}

func (failpointObserver) Note(observe.Event) {}
