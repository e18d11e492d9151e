package strategy

import (
	"context"
	"sync"
	"testing"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// slowWriter is a database before whose writes something else happens.
type slowWriter struct {
	Database
	before func()
}

func (w slowWriter) WriteStock(ctx context.Context, a model.Attempt, look model.StockView) (model.Outcome, error) {
	w.before()
	return w.Database.WriteStock(ctx, a, look)
}

// TestHole41_NaiveOversells: a second buyer comes between the read and the write of the first one, and both get the only
// unit. With mutex, this needs a second instance, which has a lock of its own.
func TestHole41_NaiveOversells(t *testing.T) {
	for _, name := range []string{"naive", "mutex"} {
		t.Run(name, func(t *testing.T) {
			eachPair(t, func(s *stores) {
				var between func()
				here := s.engine(name, func(n *Needs) { n.Database = slowWriter{n.Database, func() { between() }} })
				there := s.engine(name)
				o := here.sale(1, 1)
				var second model.Outcome
				between = sync.OnceFunc(func() { second = there.deduct(attempt(o, "second", 1)) })
				first := here.deduct(attempt(o, "first", 1))
				wantOrder(s.T, "first", result{got: first})
				wantOrder(s.T, "second", result{got: second})
				b := s.sums(o)
				got := []int64{b.Orders[model.OrderPending], b.BuyersUnits, b.Stock.Available, b.Stock.Held}
				check.Same(s, "pending orders, units of buyers, available, held", got, []int64{2, 2, 0, 1})
				check.Same(s, "violations of the books", b.Violations(), []string{"held against pending orders: 1, not 2"})
				check.Same(s, "the third", here.deduct(attempt(o, "third", 1)), model.Outcome{Verdict: model.SoldOut})
			})
		})
	}
}
