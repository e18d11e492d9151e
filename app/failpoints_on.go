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
// The points are: admitted, settling, committed, acknowledging; changed, when changes of the database are about to be sent to
// a gate; refunded, when the provider has sent money back and the database has not recorded that yet; the steps of a
// rebuild: epoch, closed, measured, contents, staged, installed; and the steps of a caller, before and after each: sealing
// and sealed, calling and called, ending and ended, drawing and drawn.

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
	if point != "" && point == failpoint && passes.Add(1) == failAt {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // until the signal arrives
	}
}

func clock() time.Time { return time.Now().Add(clockOffset) }

func failpoints() observe.All { return observe.All{failpointObserver{}} }

// points names the failpoints at the beginning and at the end of steps.
var points = struct{ begin, end map[string]string }{
	begin: map[string]string{
		observe.Settle: "settling", observe.Acknowledge: "acknowledging", observe.TellGate: "changed", observe.StageIDs: "staged", observe.MarkRefunded: "refunded",
		observe.SealLine: "sealing", observe.CallNext: "calling", observe.EndCalls: "ending", observe.DrawWinners: "drawing",
	},
	end: map[string]string{
		observe.Admit: "admitted", observe.Settle: "committed", observe.NextEpoch: "epoch", observe.CloseGate: "closed",
		observe.MeasureStream: "measured", observe.ReadContents: "contents", observe.Install: "installed",
		observe.SealLine: "sealed", observe.CallNext: "called", observe.EndCalls: "ended", observe.DrawWinners: "drawn",
	},
}

type failpointObserver struct{}

// Begin is part of observe.Observer.
func (failpointObserver) Begin(ctx context.Context, step observe.Step) (context.Context, func(error)) {
	if point := points.begin[step.Name]; point != "" && (step.Name != observe.TellGate || step.Items > 0) {
		pass(point)
	}
	return ctx, func(error) { pass(points.end[step.Name]) }
}

// Note is part of observe.Observer.
func (failpointObserver) Note(observe.Event) {}
