package strategy

import (
	"slices"
	"sync"
	"testing"

	"flashsale/model"
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
				books := s.sums(o)
				if books.Orders[model.OrderPending] != 2 || books.BuyersUnits != 2 || books.Stock.Available != 0 || books.Stock.Held != 1 {
					s.Errorf("the orders are %v of %d units, the stock is %+v", books.Orders, books.BuyersUnits, books.Stock)
				}
				if want := []string{"held against pending orders: 1, not 2"}; !slices.Equal(books.Violations(), want) {
					s.Errorf("the books show %q, want %q", books.Violations(), want)
				}
				if got := here.deduct(attempt(o, "third", 1)); got != (model.Outcome{Verdict: model.SoldOut}) {
					s.Errorf("the third: %+v", got)
				}
			})
		})
	}
}
