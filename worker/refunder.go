package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"flashsale/internal/observe"
	"flashsale/model"
)

const (
	refundPeriod = time.Second
	refundBatch  = 100
)

// Refunds has the money that is due for a refund.
type Refunds interface {
	RefundsDue(ctx context.Context, provider string, limit int) (list []model.Payment, all int, err error)
	TryRefund(ctx context.Context, payment model.Payment) (mine bool, err error)
	MarkRefunded(ctx context.Context, payment model.Payment) error
}

// Refunder asks the provider to send back money that is due for a refund. The pauses between the tries grow, so that refunds
// that fail hardly delay others.
type Refunder struct {
	Store    Refunds
	Provider string
	Refund   func(ctx context.Context, payment model.Payment) (done bool, err error)
	Observe  observe.All
	Log      *slog.Logger

	failing sync.Map // the refunds that fail, by payment's id: whether the provider refuses them
}

// Run refunds until ctx ends.
func (r *Refunder) Run(ctx context.Context) {
	every(ctx, "refunder", refundPeriod, nil, r.Log, r.step)
}

func (r *Refunder) step(ctx context.Context) error {
	due, all, err := r.Store.RefundsDue(ctx, r.Provider, refundBatch)
	if err != nil {
		return err
	}
	r.Observe.Note(observe.Event{Name: observe.RefundsDue, N: int64(all)})
	if all == 0 {
		r.failing.Clear()
	}
	return callForEach(ctx, due, r.try)
}

// try asks the provider to send a payment's money back, unless another instance does so or no refund is due. It returns errors
// of the database, but not of the provider.
func (r *Refunder) try(ctx context.Context, p model.Payment) error {
	if mine, err := r.Store.TryRefund(ctx, p); err != nil || !mine {
		return err
	}
	done, err := r.Refund(ctx, p)
	if err != nil {
		r.fails(ctx, p, err)
		return nil
	}
	if !done {
		return nil
	}
	if err := r.Store.MarkRefunded(ctx, p); err != nil {
		return err
	}
	r.failing.Delete(p.ID)
	r.Log.InfoContext(ctx, "refunded", "payment", p.ID, "order", p.OrderID, "amount_cents", p.AmountCents, "currency", p.Currency)
	return nil
}

// fails logs the first failure and the first refusal of a refund.
func (r *Refunder) fails(ctx context.Context, p model.Payment, err error) {
	refused := errors.Is(err, model.ErrRefundRefused)
	before, known := r.failing.Load(p.ID)
	if known && (before == true || !refused) || errors.Is(ctx.Err(), context.Canceled) { // or this instance stops
		return
	}
	r.failing.Store(p.ID, refused)
	line := "a refund fails, and will be tried again"
	if refused {
		line = "a refund is refused: look after it at the provider; it is also tried again, each hour in the end"
	}
	r.Log.ErrorContext(ctx, line, "payment", p.ID, "order", p.OrderID, "transaction", p.ProviderTxnID,
		"amount_cents", p.AmountCents, "currency", p.Currency, "error", err)
}
