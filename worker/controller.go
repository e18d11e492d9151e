package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"flashsale/service"
)

const (
	// refreshPeriod is how often the catalog is read anew if no change is announced; longer with many sales (pace).
	refreshPeriod = 250 * time.Millisecond
	// ensurePeriod is how often all gates are checked; longer with many sales (pace).
	ensurePeriod = time.Second
	// refusalPeriod is how often leases of refusals are renewed, well below model.RefusalTime.
	refusalPeriod = 250 * time.Millisecond
	// shopPeriod is how often is read what operators have set of the shop, which only pages show.
	shopPeriod = time.Second
	// reportPeriod is how often this instance publishes its figures, well below leftAfter.
	reportPeriod = time.Second
)

// Controller keeps this instance's memory of the sales up to date, and their gates installed.
type Controller struct {
	Catalog *service.Catalog
	Gates   *service.Gates
	SoldOut *service.SoldOut
	Shop    *service.Shop
	Changed <-chan struct{}                 // receives a value when a change of a sale was announced
	Report  func(ctx context.Context) error // publishes this instance's figures
	Log     *slog.Logger
}

// Run refreshes the catalog, looks after the gates, renews the leases of refusals and publishes figures until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	var others sync.WaitGroup
	others.Go(func() { c.gates(ctx) })
	others.Go(func() { every(ctx, "lease of refusals", refusalPeriod, nil, c.Log, c.SoldOut.Refresh) })
	others.Go(func() { every(ctx, "reading of the shop", shopPeriod, nil, c.Log, c.Shop.Refresh) })
	others.Go(func() { every(ctx, "report of this instance's figures", reportPeriod, nil, c.Log, c.Report) })
	everyPaced(ctx, "refresh of the catalog", refreshPeriod, c.Catalog.Watched, c.Changed, c.Log, c.Catalog.Refresh)
	others.Wait()
}

// gates serves requests for gates, and checks all gates in each period. It logs the first failure in a row.
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
			err = c.Gates.Ensure(ctx)
			ticker.Reset(ensurePeriod * time.Duration(pace(c.Catalog.Watched())))
		}
		if err != nil && !failing && ctx.Err() == nil {
			c.Log.Error("can't check the gates", "error", err)
		}
		failing = err != nil
	}
}
