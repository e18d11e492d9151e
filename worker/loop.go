// Package worker holds the loops that run beside the requests, one loop in each file. Every loop has a method Run. Run
// returns when its context has ended and the work under way is finished.
package worker

import (
	"context"
	"log/slog"
	"time"
)

// every calls step at once, then after each period and on each value of poke, until ctx ends. It logs the first of
// several failures in a row, and the first success after them.
func every(ctx context.Context, name string, period time.Duration, poke <-chan struct{}, log *slog.Logger, step func(context.Context) error) {
	ticker := time.NewTicker(period)
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
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-poke:
		}
	}
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
