package strategy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"flashsale/gather"
	"flashsale/model"
)

// fallbackLimits: one writer a sale, so that races are only between instances; the queue is a few batches' worth, so
// that nobody waits long for a no.
var fallbackLimits = gather.Limits{Batch: 512, Queue: 4096, Calls: 1, Time: 8 * time.Second}

// closeGrace is how long a stop waits for the batches under way before it cuts them off: a batch that is cut off has
// happened or not, and its buyers find out under their keys.
const closeGrace = time.Second

// fallback takes units in the database for attempts that the gate can't take, those of one sale that gathered in one
// transaction.
type fallback struct {
	gatherer *gather.Gatherer[model.Attempt, model.Outcome]
}

func newFallback(n Needs) *fallback {
	return &fallback{gatherer: gather.New(n.batched(fallbackLimits), func(ctx context.Context, saleID string, attempts []model.Attempt) ([]model.Outcome, error) {
		outcomes, err := race(ctx, n, batchTries, saleID, attempts)
		if errors.Is(err, model.ErrUnavailable) && !errors.Is(err, model.ErrLostRace) {
			// It may have committed before its connection broke; then the ids are known now.
			outcomes, err = race(ctx, n, batchTries, saleID, attempts)
		}
		if err != nil {
			n.Log.Error("fallback", "sale", saleID, "attempts", len(attempts), "error", err)
			err = fmt.Errorf("%w: the database could not take the attempt", model.ErrUnavailable)
		}
		return outcomes, err
	})}
}

// deduct gives the attempt's outcome. An attempt whose caller leaves is still decided: its buyer finds the order
// under its key. model.ErrUnavailable: the database could not take it, or too many wait.
func (f *fallback) deduct(ctx context.Context, a model.Attempt) (model.Outcome, error) {
	outcome, err := f.gatherer.Do(ctx, a.SaleID, a)
	if errors.Is(err, gather.ErrFull) || errors.Is(err, gather.ErrClosed) {
		err = fmt.Errorf("%w: wait for the database: %w", model.ErrUnavailable, err)
	}
	return outcome, err
}

func (f *fallback) close() { f.gatherer.Close(closeGrace) }
