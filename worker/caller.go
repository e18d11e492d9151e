package worker

import (
	"context"
	"log/slog"
	"time"

	"flashsale/service"
)

const (
	// callPeriod is how often lines are looked after: units that came back are called within it.
	callPeriod = 200 * time.Millisecond
	// callLease is how long the lease of a dead instance keeps others from calling. Calls get the time back if it is longer.
	callLease = 2 * time.Second
)

// Caller looks after the lines of sales, on one instance at a time. The lease only saves work: two callers at once are
// safe.
type Caller struct {
	Caller *service.Caller
	Leases interface {
		Lease(ctx context.Context, name, holder string, ttl time.Duration) (bool, error)
	}
	Instance string
	Log      *slog.Logger
}

// Run calls until ctx ends.
func (c *Caller) Run(ctx context.Context) {
	every(ctx, "caller", callPeriod, nil, c.Log, c.step)
}

func (c *Caller) step(ctx context.Context) error {
	if !c.Caller.Lined() {
		return nil
	}
	if mine, err := c.Leases.Lease(ctx, "caller", c.Instance, callLease); err != nil || !mine {
		return err
	}
	return c.Caller.Step(ctx)
}
