package strategy

import (
	"context"
	"time"

	"flashsale/internal/batch"
	"flashsale/model"
)

// CalledStore makes orders for buyers who are called, with the outcomes in the order of the attempts.
type CalledStore interface {
	SellCalled(ctx context.Context, saleID string, attempts []model.Attempt) ([]model.Outcome, error)
}

// calledLimits bounds the transactions of called buyers. Calls: two on a sale would wait for each other at the stock row.
var calledLimits = batch.Limits{Batch: 512, Queue: 4096, Calls: 1, Time: 8 * time.Second}

// Called sells to buyers who were called in a line. No gate is asked: the calls keep crowds from the database.
type Called struct {
	batcher *batch.Batcher[model.Attempt, model.Outcome]
}

// NewCalled makes a Called. The caller must close it.
func NewCalled(store CalledStore) *Called {
	return &Called{batch.New(calledLimits, store.SellCalled)}
}

// Deduct makes an order of a buyer's call. The verdict is Accepted; NotFound, NotStarted, Ended or Paused if the sale does not
// sell now; NotYourTurn without a call; LimitReached for more units than the call or the user's limit allows; or SoldOut for
// more than this sale of a campaign has left. A known attempt gets its earlier outcome, or IdempotencyMismatch. The error wraps
// model.ErrUnavailable if too many attempts wait or Called is closed. If ctx ends, the attempt may still be decided.
func (c *Called) Deduct(ctx context.Context, a model.Attempt) (model.Outcome, error) {
	return c.batcher.Do(ctx, a.SaleID, a)
}

// Close refuses new attempts and waits for those under way. After calledLimits.Time it cancels the rest.
func (c *Called) Close() { c.batcher.Close(calledLimits.Time) }
