package strategy

import (
	"fmt"
	"testing"

	"flashsale/model"
)

// violations reads a sale's sums, which may disagree.
func (s *stores) violations(o model.Offer) (model.Books, []string) {
	s.Helper()
	books, ok, err := s.db.Books(s.Context(), o.ID)
	if err != nil || !ok {
		s.Fatalf("the books: found %t, %v", ok, err)
	}
	return books, books.Violations()
}

// wantSoldTwice checks that the only unit of a sale has two orders, and that the books show it.
func (s *stores) wantSoldTwice(o model.Offer) {
	s.Helper()
	books, violations := s.violations(o)
	if books.Orders[model.OrderPending] != 2 || books.BuyersUnits != 2 {
		s.Errorf("the orders are %v of %d units, want 2 orders of the only unit", books.Orders, books.BuyersUnits)
	}
	if books.Stock.Available != 0 || books.Stock.Held != 1 {
		s.Errorf("the stock is %+v, and each write by itself leaves 0 available, 1 held", books.Stock)
	}
	if want := []string{"held against pending orders: 1, not 2"}; fmt.Sprint(violations) != fmt.Sprint(want) {
		s.Errorf("the books show %q, want %q", violations, want)
	}
}

// TestHole41_NaiveOversells: a second buyer comes between the first one's read and its write. Both read that one unit
// is left, and both get it.
func TestHole41_NaiveOversells(t *testing.T) {
	eachPair(t, func(s *stores) {
		e := s.engine("naive")
		o := e.sale(1, 1)
		naive := e.strategy.(*Naive)
		var second model.Outcome
		naive.between = func() {
			naive.between = func() {}
			second = e.deduct(e.attempt(o, "second", 1))
		}
		first := e.deduct(e.attempt(o, "first", 1))
		for user, got := range map[string]model.Outcome{"first": first, "second": second} {
			wantOrder(e.T, user, outcomeOf{got: got})
		}
		e.wantSoldTwice(o)
		if got := e.deduct(e.attempt(o, "third", 1)); got != (model.Outcome{Verdict: model.SoldOut}) {
			e.Errorf("the third: %+v", got)
		}
	})
}

// TestNaiveLosesUnits: it is as wrong the other way round, when a unit comes back between its read and its write.
func TestNaiveLosesUnits(t *testing.T) {
	eachPair(t, func(s *stores) {
		e := s.engine("naive")
		o := e.sale(2, 1)
		owned := e.buy(o, "owner", 1)
		e.strategy.(*Naive).between = func() { e.cancel(owned) }
		e.buy(o, "buyer", 1)
		books, violations := e.violations(o)
		if books.Orders[model.OrderPending] != 1 || books.Stock.Available != 0 || len(violations) == 0 {
			e.Errorf("the orders are %v, the stock %+v, the books show %q", books.Orders, books.Stock, violations)
		}
	})
}

// cancel has a user give an order back.
func (e *engine) cancel(a model.Attempt) {
	e.Helper()
	if _, verdict, err := e.orders.Cancel(e.Context(), a.UserID, a.ID); err != nil || verdict != model.Accepted {
		e.Errorf("cancel: %s, %v", verdict, err)
	}
}

// TestNaiveIsExactOneByOne: nothing is wrong with it as long as nobody else is there.
func TestNaiveIsExactOneByOne(t *testing.T) {
	eachPair(t, func(s *stores) {
		e := s.engine("naive")
		o := e.sale(5, 2)
		attempts := map[string]model.Attempt{}
		for i, tc := range []struct {
			user string
			n    int
			want model.Verdict
		}{
			{"u-1", 2, model.Accepted},
			{"u-2", 1, model.Accepted},
			{"u-1", 1, model.LimitReached},
			{"u-3", 2, model.Accepted},
			{"u-4", 1, model.SoldOut},
		} {
			attempts[tc.user] = e.attempt(o, tc.user, tc.n)
			if got := e.deduct(attempts[tc.user]); got.Verdict != tc.want {
				e.Errorf("number %d, %s: %+v, want %s", i, tc.user, got, tc.want)
			}
			e.books(o.ID)
		}
		e.cancel(attempts["u-3"])
		e.buy(o, "u-4", 1)
		if books := e.books(o.ID); books.Stock.Available != 1 || books.Stock.Held != 4 || books.Orders[model.OrderPending] != 3 {
			e.Errorf("the orders are %v, the stock %+v", books.Orders, books.Stock)
		}
	})
}
