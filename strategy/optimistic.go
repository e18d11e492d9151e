package strategy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"

	"flashsale/model"
)

const (
	// optimisticTries bounds the tries of one attempt.
	optimisticTries = 64
	// batchTries bounds the tries of a batch of the fallback.
	batchTries         = 64
	optimisticPause    = time.Millisecond
	optimisticMaxPause = 50 * time.Millisecond
)

var optimisticLesson = model.Lesson{
	How: "Optimistic reads the stock row with its version and takes the units only if the version is still the same, in one " +
		"transaction per attempt.",
	Right: "the UPDATE requires the version that was read, so of the transactions that read the same version only one succeeds.",
	Breaks: "it never oversells. Without retries it would undersell, since an attempt that lost its race would be given up while " +
		"units remain.",
	Costs: "every lost race is wasted work: the more attempts come at once, the fewer of them succeed.",
}

// Optimistic is the strategy that optimisticLesson describes.
type Optimistic struct {
	stateless
	needs Needs
}

// Deduct repeats the transaction until it commits, the attempt is refused, or race gives up.
func (o *Optimistic) Deduct(ctx context.Context, a model.Attempt) (model.Outcome, error) {
	outcomes, err := race(ctx, o.needs, optimisticTries, a.SaleID, []model.Attempt{a})
	if err != nil {
		return model.Outcome{}, err
	}
	return outcomes[0], nil
}

// race deducts attempts on one sale, and tries again after each lost race. If all tries have lost, the error wraps
// model.ErrUnavailable and model.ErrLostRace. Another error, or the end of ctx, ends the tries.
func race(ctx context.Context, n Needs, tries uint, saleID string, attempts []model.Attempt) ([]model.Outcome, error) {
	outcomes, err := backoff.Retry(ctx, func() ([]model.Outcome, error) {
		outcomes, err := n.Database.Deduct(ctx, saleID, attempts)
		if errors.Is(err, model.ErrLostRace) {
			return nil, err
		}
		if err != nil {
			return nil, backoff.Permanent(err)
		}
		return outcomes, nil
	}, backoff.WithBackOff(jitter()), backoff.WithMaxTries(tries))
	if errors.Is(err, model.ErrLostRace) {
		err = fmt.Errorf("%w: %w", model.ErrUnavailable, err)
	}
	return outcomes, err
}

// jitter returns random pauses that grow. The first are about as long as a transaction.
func jitter() backoff.BackOff {
	return &backoff.ExponentialBackOff{
		InitialInterval: optimisticPause, RandomizationFactor: 1, Multiplier: 1.5, MaxInterval: optimisticMaxPause,
	}
}
