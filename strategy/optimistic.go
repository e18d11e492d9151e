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
	// optimisticTries bounds the races that one attempt runs. Somebody wins each race, so an attempt that
	// loses this many has seen at least as many units sold to others.
	optimisticTries = 64
	// batchTries bounds the races of a batch: it meets the writers of the other instances, their settlers too.
	batchTries         = 64
	optimisticPause    = time.Millisecond
	optimisticMaxPause = 50 * time.Millisecond
)

// Optimistic reads the stock row with its version and takes the units only if the version is still the same,
// one transaction an attempt.
//
// Right: the UPDATE names the version that was read, so of those who read the same row exactly one succeeds.
// Breaks: never oversells; without retries it undersells, since losers would leave while units remain.
// Costs: every loser has done its work in vain: the more come at once, the fewer get through.
type Optimistic struct{ needs Needs }

// NewOptimistic makes the strategy.
func NewOptimistic(n Needs) *Optimistic { return &Optimistic{needs: n} }

// Deduct runs the race until it is won or the attempt refused; model.ErrUnavailable when it was lost too often.
func (o *Optimistic) Deduct(ctx context.Context, a model.Attempt) (model.Outcome, error) {
	outcomes, err := race(ctx, o.needs, optimisticTries, a.SaleID, []model.Attempt{a})
	if err != nil {
		return model.Outcome{}, err
	}
	return outcomes[0], nil
}

// UsesGate is false.
func (*Optimistic) UsesGate() bool { return false }

// Healthy is always so.
func (*Optimistic) Healthy() error { return nil }

// Close has nothing to end.
func (*Optimistic) Close() {}

// race deducts attempts on one sale, and again after each lost race, with pauses that grow and vary.
func race(ctx context.Context, n Needs, tries uint, saleID string, attempts []model.Attempt) ([]model.Outcome, error) {
	outcomes, err := backoff.Retry(ctx, func() ([]model.Outcome, error) {
		outcomes, err := n.Database.Deduct(ctx, saleID, attempts)
		if errors.Is(err, model.ErrLostRace) {
			n.Retried()
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

// jitter starts at about one transaction's time and grows to what a crowd of a pool's size needs to thin out.
func jitter() backoff.BackOff {
	return &backoff.ExponentialBackOff{
		InitialInterval: optimisticPause, RandomizationFactor: 1, Multiplier: 1.5, MaxInterval: optimisticMaxPause,
	}
}
