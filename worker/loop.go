// Package worker holds what runs beside the requests, one loop a file. Every loop has a Run that returns when
// its context ends and what it was doing is finished.
package worker

import (
	"context"
	"log/slog"
	"time"
)

// every calls step at once, then each period and whenever poked, until ctx ends. A failure is logged when it
// begins, not each time, and again when it is over.
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

// pause waits for so long, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
