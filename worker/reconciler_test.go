package worker

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// fakeUnreported is open payments that nobody has reported.
type fakeUnreported struct {
	due     []model.Payment
	checked map[string]int
	away    map[string]bool // the provider does not answer about them
	mine    bool            // this instance has the lease
	hangs   bool            // the provider does not answer at all
}

func (f *fakeUnreported) Unreported(context.Context, string, int) ([]model.Payment, error) {
	defer locked()()
	return slices.Clone(f.due), nil
}

func (f *fakeUnreported) lease(context.Context, string, time.Duration) (bool, error) {
	defer locked()()
	return f.mine, nil
}

func (f *fakeUnreported) check(ctx context.Context, p model.Payment) error {
	hangs := false
	with(func() { f.checked[p.ID]++; hangs = f.hangs })
	if hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	defer locked()()
	if f.away[p.ID] {
		return errAway
	}
	f.due = slices.DeleteFunc(f.due, func(other model.Payment) bool { return other.ID == p.ID })
	return nil
}

// The reconciler asks about each payment that is due, however many fail or hang before it. Only the instance with the lease
// asks.
func TestReconciler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeUnreported{checked: map[string]int{}, away: map[string]bool{}}
		want := map[string]int{}
		for i := range 100 {
			id := fmt.Sprint("p-", i)
			f.due = append(f.due, model.Payment{ID: id})
			f.away[id], want[id] = i < 99, 1
		}
		during(t, (&Reconciler{Lease: f.lease, Store: f, Check: f.check, Log: slog.New(slog.DiscardHandler)}).Run, func() {
			check.Same(t, "asked without the lease", len(f.checked), 0)
			with(func() { f.mine = true })
			pass(reconcilePeriod)
			check.Same(t, "asked in a round", f.checked, want)
			with(func() { clear(f.checked); f.hangs = true })
			pass(reconcilePeriod + providerTimeout)
			check.Same(t, "asked while the provider hangs", len(f.checked), 2*providerCalls)
			with(func() { clear(f.away); f.hangs = false })
			pass(100/providerCalls*providerTimeout + reconcilePeriod)
			check.Same(t, "left when the provider is back", len(f.due), 0)
		})
	})
}
