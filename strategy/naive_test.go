package strategy

import (
	"sync"
	"testing"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// TestHole41_NaiveOversells: a second buyer comes between the read and the write of the first one, and both get the only
// unit. With mutex, this needs a second instance, which has a lock of its own.
func TestHole41_NaiveOversells(t *testing.T) {
	for _, name := range []string{"naive", "mutex"} {
		t.Run(name, func(t *testing.T) {
			eachPair(t, func(s *stores) {
				here, there := s.engine(name), s.engine(name)
				o := here.sale(1, 1)
				var second model.Outcome
				naive, isNaive := here.strategy.(*Naive)
				if !isNaive {
					naive = here.strategy.(*Mutex).naive
				}
				naive.between = sync.OnceFunc(func() { second = there.deduct(attempt(o, "second", 1)) })
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
