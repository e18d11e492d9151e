// Package pause has the wait between two steps of a loop. The wait ends early if the loop has to end.
package pause

import (
	"context"
	"time"
)

// For waits for d, or until ctx ends. It reports whether ctx has not ended.
func For(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
