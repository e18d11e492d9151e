package app

import (
	"context"
	"time"

	"flashsale/metrics"
	"flashsale/model"
	"flashsale/strategy"
	"flashsale/worker"
)

// watch has the figures read that are read when somebody asks for them.
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

// drifts notes what the auditor saw.
func (a *App) drifts(saleID string, units int64) { a.metrics.Drift(saleID, units, a.now()) }

// observedGate measures the calls of the gate, each of which has all the attempts that gathered.
type observedGate struct {
	strategy.Gate
	admitted func(attempts int, d time.Duration)
	now      func() time.Time
}

// Admit is the gate's.
func (g observedGate) Admit(ctx context.Context, saleID string, attempts []model.Attempt, epoch int64) ([]model.Outcome, error) {
	began := g.now()
	outcomes, err := g.Gate.Admit(ctx, saleID, attempts, epoch)
	g.admitted(len(attempts), g.now().Sub(began))
	return outcomes, err
}

// observedRefunds notes how many are due.
type observedRefunds struct {
	worker.Refunds
	due func(payments int)
}

// RefundsDue is the database's.
func (r observedRefunds) RefundsDue(ctx context.Context, limit int) ([]model.Payment, error) {
	payments, err := r.Refunds.RefundsDue(ctx, limit)
	if err == nil {
		r.due(len(payments))
	}
	return payments, err
}

// observedLeases notes that this instance is the auditor.
type observedLeases struct {
	worker.Leases
	audited func(at time.Time)
	now     func() time.Time
}

// Lease is the database's.
func (l observedLeases) Lease(ctx context.Context, name, holder string, ttl time.Duration) (bool, error) {
	mine, err := l.Leases.Lease(ctx, name, holder, ttl)
	if mine {
		l.audited(l.now())
	}
	return mine, err
}
