package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"flashsale/model"
)

const (
	reconcilePeriod = 5 * time.Second
	reconcileBatch  = 100
	// reconcileLease is longer than a round in which the provider answers slowly. Two instances at the same time would only
	// ask the provider twice.
	reconcileLease = time.Minute
	// reconcileFailures is how many payments in a row may fail before the round ends: then the provider is away.
	reconcileFailures = 3
)

// Unreported is what the reconciler needs of the database.
type Unreported interface {
	Unreported(ctx context.Context, provider string, limit int) ([]model.Payment, error)
	Lease(ctx context.Context, name, holder string, ttl time.Duration) (bool, error)
}

// Reconciler asks the payment provider about open payments that it has not reported.
type Reconciler struct {
	Store    Unreported
	Provider string
	Check    func(ctx context.Context, payment model.Payment) error
	Instance string
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
	if mine, err := r.Store.Lease(ctx, "reconciler", r.Instance, reconcileLease); err != nil || !mine {
		return err
	}
	failures := 0
	for _, payment := range due {
		oneErr := r.Check(ctx, payment)
		failures++
		if oneErr == nil {
			failures = 0
		}
		if err = errors.Join(err, oneErr); failures == reconcileFailures || ctx.Err() != nil {
			break
		}
	}
	return err
}
