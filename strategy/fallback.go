package strategy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"flashsale/internal/batch"
	"flashsale/model"
)

// fallbackLimits bounds the transactions of the fallback. Calls: with more, an instance races against itself for a sale. Queue:
// a few full batches, so that no attempt waits long.
var fallbackLimits = batch.Limits{Batch: 512, Queue: 4096, Calls: 1, Time: 8 * time.Second}

// closeGrace is how long a strategy's Close waits for the batches under way before it cancels them. A cancelled batch may have
// taken effect or not.
const closeGrace = time.Second

// newFallback returns a Batcher, by the sales' ids, that takes units in the database for attempts that the gate cannot judge. If
// the context given to Do ends while an attempt waits, the attempt may still be decided. The error wraps model.ErrUnavailable if
// the database could not take the attempt, too many attempts wait, or the strategy is closed.
func newFallback(n Needs) *batch.Batcher[model.Attempt, model.Outcome] {
	return batch.New(n.batched(fallbackLimits), func(ctx context.Context, saleID string, attempts []model.Attempt) ([]model.Outcome, error) {
		outcomes, err := race(ctx, n, batchTries, saleID, attempts)
		if errors.Is(err, model.ErrUnavailable) && !errors.Is(err, model.ErrLostRace) {
			// The transaction may have committed before its connection broke. Then the second try finds the ids known.
			outcomes, err = race(ctx, n, batchTries, saleID, attempts)
		}
		if err != nil {
			n.Log.Error("the database could not take attempts", "sale", saleID, "attempts", len(attempts), "error", err)
			err = fmt.Errorf("%w: the database could not take the attempt", model.ErrUnavailable)
		}
		return outcomes, err
	})
}
