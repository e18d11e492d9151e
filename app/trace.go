package app

import (
	"context"

	"github.com/gin-gonic/gin"

	"flashsale/middleware"
	"flashsale/model"
	"flashsale/service"
	"flashsale/strategy"
	"flashsale/tracing"
	"flashsale/worker"
)

// openTracing makes the tracing that the settings ask for, nil if none.
func (a *App) openTracing(ctx context.Context) (err error) {
	if a.settings.OTLPEndpoint != "" {
		a.tracing, err = tracing.New(ctx, a.settings.OTLPEndpoint, a.settings.TraceRatio, a.instance, a.log)
	}
	return err
}

// The functions below put spans around the parts that see attempts. Without tracing the parts stay as they are.

func (a *App) traceRequests() gin.HandlerFunc {
	if a.tracing == nil {
		return nil
	}
	return middleware.Trace(a.tracing.Tracer())
}

func (a *App) traceStrategy(s service.Strategy) service.Strategy {
	if a.tracing == nil {
		return s
	}
	return tracedStrategy{s, a.tracing}
}

func (a *App) traceGate(g strategy.Gate) strategy.Gate {
	if a.tracing == nil {
		return g
	}
	return tracedGate{g, a.tracing}
}

func (a *App) traceDatabase(db strategy.Database) strategy.Database {
	if a.tracing == nil {
		return db
	}
	return tracedDatabase{db, a.tracing}
}

func (a *App) traceLedger(l worker.Ledger) worker.Ledger {
	if a.tracing == nil {
		return l
	}
	return tracedLedger{l, a.tracing}
}

type tracedStrategy struct {
	service.Strategy
	tracing *tracing.Tracing
}

// Deduct is the strategy's.
func (s tracedStrategy) Deduct(ctx context.Context, a model.Attempt) (model.Outcome, error) {
	ctx, end := s.tracing.Follow(ctx, "deduct", a.ID)
	outcome, err := s.Strategy.Deduct(ctx, a)
	end(err)
	return outcome, err
}

type tracedGate struct {
	strategy.Gate
	tracing *tracing.Tracing
}

// Admit is the gate's.
func (g tracedGate) Admit(ctx context.Context, saleID string, attempts []model.Attempt, epoch int64) ([]model.Outcome, error) {
	ctx, end := g.tracing.Batch(ctx, "admit", len(attempts), func(i int) string { return attempts[i].ID })
	outcomes, err := g.Gate.Admit(ctx, saleID, attempts, epoch)
	end(err)
	return outcomes, err
}

type tracedDatabase struct {
	strategy.Database
	tracing *tracing.Tracing
}

// Deduct is the database's.
func (d tracedDatabase) Deduct(ctx context.Context, saleID string, attempts []model.Attempt) ([]model.Outcome, error) {
	ctx, end := d.tracing.Batch(ctx, "deduct in the database", len(attempts), func(i int) string { return attempts[i].ID })
	outcomes, err := d.Database.Deduct(ctx, saleID, attempts)
	end(err)
	return outcomes, err
}

type tracedLedger struct {
	worker.Ledger
	tracing *tracing.Tracing
}

// Settle is the database's.
func (l tracedLedger) Settle(ctx context.Context, saleID string, entries []model.Entry) ([]model.Outcome, error) {
	ctx, end := l.tracing.Batch(ctx, "settle", len(entries), func(i int) string { return entries[i].ID })
	outcomes, err := l.Ledger.Settle(ctx, saleID, entries)
	end(err)
	return outcomes, err
}
