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
}

func (f *fakeUnreported) Unreported(context.Context, string, int) ([]model.Payment, error) {
	defer locked()()
	return slices.Clone(f.due), nil
}

func (f *fakeUnreported) Lease(context.Context, string, string, time.Duration) (bool, error) {
	defer locked()()
	return f.mine, nil
}

func (f *fakeUnreported) check(_ context.Context, p model.Payment) error {
	defer locked()()
	f.checked[p.ID]++
	if f.away[p.ID] {
		return errAway
	}
	f.due = slices.DeleteFunc(f.due, func(other model.Payment) bool { return other.ID == p.ID })
	return nil
}

// The reconciler asks about each payment that is due, past those with trouble. If several in a row fail, the provider is
// away, and the others wait for the next round. Only the instance with the lease asks.
func TestReconciler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeUnreported{checked: map[string]int{}, away: map[string]bool{"p-1": true, "p-3": true, "p-4": true, "p-5": true}}
		for i := range 8 {
			f.due = append(f.due, model.Payment{ID: fmt.Sprint("p-", i)})
		}
		during(t, (&Reconciler{Store: f, Check: f.check, Log: slog.New(slog.DiscardHandler)}).Run, func() {
			check.Same(t, "asked without the lease", len(f.checked), 0)
			with(func() { f.mine = true })
			pass(reconcilePeriod)
			check.Same(t, "asked in a round", f.checked, map[string]int{"p-0": 1, "p-1": 1, "p-2": 1, "p-3": 1, "p-4": 1, "p-5": 1})
			with(func() { clear(f.away) })
			pass(reconcilePeriod)
			check.Same(t, "asked when the provider is back", f.checked,
				map[string]int{"p-0": 1, "p-1": 2, "p-2": 1, "p-3": 2, "p-4": 2, "p-5": 2, "p-6": 1, "p-7": 1})
		})
	})
}
