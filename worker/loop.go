// Package worker holds loops that run beside the requests. Each returns when its context has ended and its work has stopped.
package worker

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"flashsale/model"
)

const (
	// paceSales times 2, 3 and 4 are the numbers of sales from which on the period of a loop is 2, 3 and 4 times as long.
	paceSales = 250
	// paceMost bounds this factor, so that no instance works with figures that are too old.
	paceMost = 4
)

// pace returns the factor by which the period of a loop grows with the number of sales. It is for loops that read many sales in
// each step, and so take time of the stores from the buyers.
func pace(sales int) int { return min(max(sales/paceSales, 1), paceMost) }

// every calls "step" now, then after each period and on each value from "poke", until ctx ends. It logs the first failure in a
// row, and the first success after it.
func every(ctx context.Context, name string, period time.Duration, poke <-chan struct{}, log *slog.Logger, step func(context.Context) error) {
	everyPaced(ctx, name, period, func() int { return 0 }, poke, log, step)
}

// everyPaced does what every does, but the period grows with the number of sales (pace).
func everyPaced(ctx context.Context, name string, period time.Duration, sales func() int, poke <-chan struct{}, log *slog.Logger, step func(context.Context) error) {
	ticker, last := time.NewTicker(period), 1
	defer ticker.Stop()
	failing := false
	for {
		err := step(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failing:
			log.Error(name+" fails", "error", err)
		case err == nil && failing:
			log.Info(name + " works again")
		}
		failing = err != nil
		if next := pace(sales()); next != last {
			last = next
			ticker.Reset(period * time.Duration(next))
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-poke:
		}
	}
}

// ended waits until done is closed, or returns the error of ctx if that ends before.
func ended(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Lease gets the lease of a loop for this instance, or extends it, for the time "ttl" from now. mine is false if another
// instance has it. A lease saves work: two instances at once are safe.
type Lease func(ctx context.Context, loop string, ttl time.Duration) (mine bool, err error)

// AuditLog records what the engine finds or does by itself.
type AuditLog interface {
	Log(ctx context.Context, actor, action, subject, detail string) error
}

const (
	// providerCalls is how many payments a loop works on at once at most. Calls that hang should hold up few others, but each call
	// may take a connection of the database from the buyers.
	providerCalls = 16
	// providerTimeout bounds the work on one payment.
	providerTimeout = 10 * time.Second
)

// callForEach runs "do" for the payments until ctx ends, at most providerCalls at once, each for providerTimeout. It waits for
// all and returns the first error.
func callForEach(ctx context.Context, payments []model.Payment, do func(context.Context, model.Payment) error) error {
	var calls errgroup.Group
	calls.SetLimit(providerCalls)
	for _, p := range payments {
		calls.Go(func() error {
			if ctx.Err() != nil {
				return nil
			}
			within, cancel := context.WithTimeout(ctx, providerTimeout)
			defer cancel()
			return do(within, p)
		})
	}
	return calls.Wait()
}
