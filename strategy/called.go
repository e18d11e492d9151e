package strategy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"flashsale/internal/batch"
	"flashsale/model"
)

// CalledStore makes orders for buyers who are called.
type CalledStore interface {
	SellCalled(ctx context.Context, saleID string, attempts []model.Attempt) ([]model.Outcome, error)
}

// calledLimits bounds the batches. No more buyers than units are called at a time, and each of them buys once.
var calledLimits = batch.Limits{Batch: 512, Queue: 4096, Calls: 1, Time: 8 * time.Second}

// Called sells to buyers who were called in a line. A gate keeps crowds from the database; here the calls do that. So the
// database alone decides, in the transaction that also ends the buyer's call.
type Called struct {
	batcher *batch.Batcher[model.Attempt, model.Outcome]
}

// NewCalled makes it. Close ends it.
func NewCalled(store CalledStore) *Called {
	return &Called{batch.New(calledLimits, store.SellCalled)}
}

// Deduct takes the units of a buyer's call. It returns model.ErrUnavailable if too many wait.
func (c *Called) Deduct(ctx context.Context, a model.Attempt) (model.Outcome, error) {
	outcome, err := c.batcher.Do(ctx, a.SaleID, a)
	if errors.Is(err, batch.ErrFull) || errors.Is(err, batch.ErrClosed) {
		err = fmt.Errorf("%w: %w", model.ErrUnavailable, err)
	}
	return outcome, err
}

// Close waits for the batches under way.
func (c *Called) Close() { c.batcher.Close(calledLimits.Time) }
