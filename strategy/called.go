package strategy

import (
	"context"
	"time"

	"flashsale/internal/batch"
	"flashsale/model"
)

// CalledStore makes orders for buyers who are called. The outcomes are in the order of the attempts.
type CalledStore interface {
	SellCalled(ctx context.Context, saleID string, attempts []model.Attempt) ([]model.Outcome, error)
}

// calledLimits bounds the transactions of called buyers. Calls: two at once on a sale would wait for each other at the stock row.
var calledLimits = batch.Limits{Batch: 512, Queue: 4096, Calls: 1, Time: 8 * time.Second}

// Called sells to buyers who were called in a line. The calls keep crowds from the database, as a gate would, so the database
// decides alone, in the transaction that also ends the buyer's call.
type Called struct {
	batcher *batch.Batcher[model.Attempt, model.Outcome]
}

// NewCalled makes a Called. The caller must close it.
func NewCalled(store CalledStore) *Called {
	return &Called{batch.New(calledLimits, store.SellCalled)}
}

// Deduct makes an order of a buyer's call. The verdict is Accepted; NotFound, NotStarted, Ended or Paused if the sale does not
// sell now; NotYourTurn if the buyer is not called; LimitReached for more units than the call or the user's limit allows; or
// SoldOut for more than this sale of a campaign has left. A known attempt gets its earlier outcome, or IdempotencyMismatch.
// Deduct returns model.ErrUnavailable if too many attempts wait or Called is closed. If ctx ends while the attempt waits, Deduct
// returns the error of ctx, and the attempt is decided all the same.
func (c *Called) Deduct(ctx context.Context, a model.Attempt) (model.Outcome, error) {
	return c.batcher.Do(ctx, a.SaleID, a)
}

// Close refuses new attempts and waits for those under way. After the time that one transaction may take, it cancels the rest.
func (c *Called) Close() { c.batcher.Close(calledLimits.Time) }
