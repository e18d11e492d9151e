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

// A build with the tag failpoints, for drills, kills itself with SIGKILL at the nth pass of the point that
// FLASHSALE_FAILPOINT names as point:n (point alone means the first pass), and shifts its clock by FLASHSALE_CLOCK_OFFSET.
// The points are "before STEP" and "after STEP", with the name of a step in package observe.

var (
	failpoint, failAt = parseFailpoint(os.Getenv("FLASHSALE_FAILPOINT"))
	passes            atomic.Int64
	clockOffset, _    = time.ParseDuration(os.Getenv("FLASHSALE_CLOCK_OFFSET"))
)

func parseFailpoint(text string) (point string, at int64) {
	point, count, _ := strings.Cut(text, ":")
	at, err := strconv.ParseInt(count, 10, 64)
	if err != nil {
		at = 1
	}
	return point, at
}

func pass(point string) {
	if point == failpoint && passes.Add(1) == failAt {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // until the signal arrives
	}
}

func clock() time.Time { return time.Now().Add(clockOffset) }

func failpoints() observe.All { return observe.All{failpointObserver{}} }

type failpointObserver struct{}

// Begin is part of observe.Observer. A gate that has no changes to be told about passes no point.
func (failpointObserver) Begin(ctx context.Context, step observe.Step) (context.Context, func(error)) {
	if step.Name != observe.TellGate || step.Items > 0 {
		pass("before " + step.Name)
	}
	return ctx, func(error) { pass("after " + step.Name) }
}

// Note is part of observe.Observer.
func (failpointObserver) Note(observe.Event) {}
