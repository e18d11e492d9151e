// Package pause waits between two steps of a loop.
package pause

import (
	"context"
	"time"
)

// For waits for d, or until ctx ends. It returns false if ctx has ended.
func For(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
