package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"flashsale/internal/observe"
	"flashsale/model"
)

const (
	refundPeriod = time.Second
	refundBatch  = 100
)

// Refunds is what the refunder needs of the database.
type Refunds interface {
	RefundsDue(ctx context.Context, limit int) ([]model.Payment, error)
	MarkRefunded(ctx context.Context, paymentID string) error
}

// Refunder sends back money that no order keeps. The provider refunds a transaction only once, so a repeat after a lost
// answer is safe.
type Refunder struct {
	Store   Refunds
	Refund  func(ctx context.Context, payment model.Payment) (done bool, err error)
	Observe observe.All
	Log     *slog.Logger
}

// Run refunds until ctx ends.
func (r *Refunder) Run(ctx context.Context) {
	every(ctx, "refunder", refundPeriod, nil, r.Log, r.step)
}

func (r *Refunder) step(ctx context.Context) error {
	due, err := r.Store.RefundsDue(ctx, refundBatch)
	if err != nil {
		return err
	}
	r.Observe.Note(observe.Event{Name: observe.RefundsDue, N: int64(len(due))})
	for _, p := range due {
		done, oneErr := r.Refund(ctx, p)
		if oneErr == nil && done {
			oneErr = r.Store.MarkRefunded(ctx, p.ID)
		}
		if oneErr == nil && done {
			r.Log.Info("refunded", "payment", p.ID, "order", p.OrderID, "amount_cents", p.AmountCents)
		}
		err = errors.Join(err, oneErr)
	}
	return err
}
