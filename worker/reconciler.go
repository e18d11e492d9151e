package worker

import (
	"context"
	"log/slog"
	"time"

	"flashsale/model"
)

const (
	reconcilePeriod = 5 * time.Second
	reconcileBatch  = 100
	// reconcileLease is about as long as a round in which the provider does not answer.
	reconcileLease = time.Minute
)

// Unreported lists open payments about which the provider has to be asked.
type Unreported interface {
	Unreported(ctx context.Context, provider string, limit int) ([]model.Payment, error)
}

// Reconciler asks the payment provider about open payments, on the instance that has the lease.
type Reconciler struct {
	Lease    Lease
	Store    Unreported
	Provider string
	Check    func(ctx context.Context, payment model.Payment) error
	Log      *slog.Logger
}

// Run reconciles until ctx ends.
func (r *Reconciler) Run(ctx context.Context) {
	every(ctx, "reconciler", reconcilePeriod, nil, r.Log, r.step)
}

func (r *Reconciler) step(ctx context.Context) error {
	due, err := r.Store.Unreported(ctx, r.Provider, reconcileBatch)
	if err != nil || len(due) == 0 {
		return err
	}
	if mine, err := r.Lease(ctx, "reconciler", reconcileLease); err != nil || !mine {
		return err
	}
	// Check plans the next look at a payment before it asks, so a payment with trouble does not come first again.
	return callForEach(ctx, due, r.Check)
}
