//go:build failpoints

package app

import (
	"context"
	"iter"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"flashsale/gate"
	"flashsale/model"
	"flashsale/repository"
)

// A build with the tag failpoints, for drills, kills itself with SIGKILL at the nth pass of the point that
// FLASHSALE_FAILPOINT names as point:n, and shifts its clock by FLASHSALE_CLOCK_OFFSET. The points are: admitted,
// committed, acknowledging; changed, when the database has changes for the gate that were not sent to the gate yet;
// refunded, when the provider has sent money back and the database has not recorded that yet; and the steps of a
// rebuild: epoch, closed, measured, contents, staged, installed.

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

func withFailpoints(g *gate.Gate, db *repository.Store) (mortalGate, mortalStore) {
	return mortalGate{g}, mortalStore{db}
}

type mortalGate struct{ *gate.Gate }

func (g mortalGate) Admit(ctx context.Context, saleID string, attempts []model.Attempt, epoch int64) ([]model.Outcome, error) {
	defer pass("admitted")
	return g.Gate.Admit(ctx, saleID, attempts, epoch)
}

func (g mortalGate) Settled(ctx context.Context, saleID string, entries []model.Entry, outcomes []model.Outcome) error {
	pass("acknowledging")
	return g.Gate.Settled(ctx, saleID, entries, outcomes)
}

func (g mortalGate) Close(ctx context.Context, saleID string, epoch int64) (bool, error) {
	defer pass("closed")
	return g.Gate.Close(ctx, saleID, epoch)
}

func (g mortalGate) StreamLengths(ctx context.Context, saleID string) ([]int64, error) {
	defer pass("measured")
	return g.Gate.StreamLengths(ctx, saleID)
}

func (g mortalGate) Install(ctx context.Context, epoch int64, lengths []int64, c model.GateContents) ([]string, error) {
	defer pass("installed")
	return g.Gate.Install(ctx, epoch, lengths, mortalContents{c})
}

// mortalContents passes the point "staged" after the users' units are staged and before the known ids are.
type mortalContents struct{ model.GateContents }

func (c mortalContents) Known(ctx context.Context) iter.Seq2[[]model.Known, error] {
	pass("staged")
	return c.GateContents.Known(ctx)
}

type mortalStore struct{ *repository.Store }

func (s mortalStore) Settle(ctx context.Context, saleID string, entries []model.Entry) ([]model.Outcome, error) {
	defer pass("committed")
	return s.Store.Settle(ctx, saleID, entries)
}

func (s mortalStore) GateChanges(ctx context.Context, saleID string, after int64, limit int) ([]model.GateChange, int64, bool, error) {
	changes, upTo, more, err := s.Store.GateChanges(ctx, saleID, after, limit)
	if len(changes) > 0 {
		pass("changed")
	}
	return changes, upTo, more, err
}

func (s mortalStore) MarkRefunded(ctx context.Context, paymentID string) error {
	pass("refunded")
	return s.Store.MarkRefunded(ctx, paymentID)
}

func (s mortalStore) NextEpoch(ctx context.Context, saleID string, seen, gates int64, pause time.Duration) (int64, bool, error) {
	defer pass("epoch")
	return s.Store.NextEpoch(ctx, saleID, seen, gates, pause)
}

func (s mortalStore) GateContents(ctx context.Context, saleID string) (model.GateContents, bool, error) {
	defer pass("contents")
	return s.Store.GateContents(ctx, saleID)
}
