package app

import (
	"context"
	"time"

	"flashsale/internal/metrics"
	"flashsale/model"
	"flashsale/strategy"
	"flashsale/worker"
)

// watch registers the metrics whose values are read from other parts at each scrape.
func (a *App) watch() error {
	pools, err := a.stores.database.Pools()
	if err != nil {
		return err
	}
	for name, pool := range pools {
		a.metrics.WatchPool(name, pool)
	}
	a.metrics.Watch(metrics.Sources{
		Build: func() (string, string) { return a.version, a.settings.Strategy },
		Sales: func() []model.Offer {
			sales, _ := a.catalog.Live()
			return sales
		},
		Requests: a.tally.Counts, Peek: a.gate.Peek, QueueAge: a.gate.QueueAge,
		Breaker: func() bool { return a.strategy.Healthy() == nil },
		Streams: a.streams.Open, Bypassed: a.settler.Bypassed, Now: a.now,
	})
	return nil
}

// drifts records the drift that the auditor found for a sale.
func (a *App) drifts(saleID string, units int64) { a.metrics.Drift(saleID, units, a.now()) }

// observedGate measures the calls of the gate. One call contains all the attempts that gathered.
type observedGate struct {
	strategy.Gate
	admitted func(attempts int, d time.Duration)
	now      func() time.Time
}

// Admit calls the gate and records the number of attempts and the duration of the call.
func (g observedGate) Admit(ctx context.Context, saleID string, attempts []model.Attempt, epoch int64) ([]model.Outcome, error) {
	began := g.now()
	outcomes, err := g.Gate.Admit(ctx, saleID, attempts, epoch)
	g.admitted(len(attempts), g.now().Sub(began))
	return outcomes, err
}

// observedRefunds records how many refunds are due.
type observedRefunds struct {
	worker.Refunds
	due func(payments int)
}

// RefundsDue reads the due refunds from the database and records their number.
func (r observedRefunds) RefundsDue(ctx context.Context, limit int) ([]model.Payment, error) {
	payments, err := r.Refunds.RefundsDue(ctx, limit)
	if err == nil {
		r.due(len(payments))
	}
	return payments, err
}

// observedLeases records when this instance holds the auditor's lease.
type observedLeases struct {
	worker.Leases
	audited func(at time.Time)
	now     func() time.Time
}

// Lease asks the database for the lease and records the time if this instance got it.
func (l observedLeases) Lease(ctx context.Context, name, holder string, ttl time.Duration) (bool, error) {
	mine, err := l.Leases.Lease(ctx, name, holder, ttl)
	if mine {
		l.audited(l.now())
	}
	return mine, err
}
