package app

import (
	"context"

	"github.com/gin-gonic/gin"

	"flashsale/internal/tracing"
	"flashsale/middleware"
	"flashsale/model"
	"flashsale/service"
	"flashsale/strategy"
	"flashsale/worker"
)

// openTracing starts the tracing that the settings ask for. a.tracing stays nil if they ask for none.
func (a *App) openTracing(ctx context.Context) (err error) {
	if a.settings.OTLPEndpoint != "" {
		a.tracing, err = tracing.New(ctx, a.settings.OTLPEndpoint, a.settings.TraceRatio, a.instance, a.log)
	}
	return err
}

// The functions below wrap the parts that handle attempts, so that their calls make spans. Without tracing they
// return a part unchanged.

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

// Deduct calls the strategy within a span of the attempt's request.
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

// Admit calls the gate within a span of the whole batch.
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

// Deduct calls the database within a span of the whole batch.
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

// Settle calls the database within a span of the whole batch.
func (l tracedLedger) Settle(ctx context.Context, saleID string, entries []model.Entry) ([]model.Outcome, error) {
	ctx, end := l.tracing.Batch(ctx, "settle", len(entries), func(i int) string { return entries[i].ID })
	outcomes, err := l.Ledger.Settle(ctx, saleID, entries)
	end(err)
	return outcomes, err
}
