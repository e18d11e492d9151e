package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"flashsale/service"
)

const (
	// refreshPeriod is how old an instance's memory of the sales may be when no announcement reached it.
	refreshPeriod = 250 * time.Millisecond
	// ensurePeriod is how long a gate may be missing when no attempt meets that.
	ensurePeriod = time.Second
)

// Controller keeps this instance's memory of the sales fresh and their gates installed.
type Controller struct {
	Catalog *service.Catalog
	Gates   *service.Gates
	Changed <-chan struct{}                 // a sale changed on another instance
	Report  func(ctx context.Context) error // publishes this instance's figures
	Log     *slog.Logger
}

// Run does so until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.gates(ctx)
	}()
	every(ctx, "refresh of the catalog", refreshPeriod, c.Changed, c.Log, c.Catalog.Refresh)
	<-done
}

// gates installs the gates that were asked for, and looks for missing ones each period.
func (c *Controller) gates(ctx context.Context) {
	ticker := time.NewTicker(ensurePeriod)
	defer ticker.Stop()
	failing := false
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case r := <-c.Gates.Requests():
			err = c.Gates.Serve(ctx, r)
		case <-ticker.C:
			err = errors.Join(c.Gates.Ensure(ctx), c.Report(ctx))
		}
		if err != nil && !failing && ctx.Err() == nil {
			c.Log.Error("gates can't be looked after", "error", err)
		}
		failing = err != nil
	}
}
