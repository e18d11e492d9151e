package service

import (
	"context"
	"fmt"
	"iter"
	"testing"
	"testing/synctest"

	"flashsale/model"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
)

// fakeBooks are the stores of an auditor. gateOf is its gate.
type fakeBooks struct {
	*fakeStores
	counted, units map[string]int // by user: at the gate, and in the database
	counting       func()         // called while the units at the gate are read
}

type gateOf struct{ *fakeBooks }

// newBooks returns fakes of a sale with 10 units available, and of a gate in this state.
func newBooks(state model.GateState) (*fakeBooks, *Auditor, string) {
	o := openOffer()
	f := &fakeBooks{fakeStores: newFakeStores(o), counting: func() {}}
	f.states[o.ID] = state
	return f, &Auditor{Store: f, Gate: gateOf{f}}, o.ID
}

func (f *fakeBooks) Units(_ context.Context, _ model.GateRef, users []string) ([]int, error) {
	units := make([]int, len(users))
	for i, user := range users {
		units[i] = f.counted[user]
	}
	return units, f.errGate
}

func (f *fakeBooks) Buyers(ctx context.Context, _ string) iter.Seq2[[]model.Buyer, error] {
	return kit.Contents{Units: f.units}.Buyers(ctx)
}

func (g gateOf) Buyers(context.Context, model.GateRef) (int64, error) {
	g.counting()
	return int64(len(g.counted)), g.errGate
}

// The user u has one unit of the sale in the database.
func TestMiscounts(t *testing.T) {
	right := map[string]int{"u": 1}
	type test struct {
		counted map[string]int
		change  func(f *fakeBooks, id string)
		want    bool
	}
	while := func(change func(f *fakeBooks, id string)) func(*fakeBooks, string) {
		return func(f *fakeBooks, id string) { f.counting = func() { change(f, id) } }
	}
	none := func(*fakeBooks, string) {}
	closed := func(f *fakeBooks, id string) { f.states[id] = model.GateState{Exists: true} }
	queued := func(f *fakeBooks, id string) {
		f.states[id] = model.GateState{Exists: true, Open: true, Left: 10, Stream: 1}
	}
	check.Each(t, map[string]test{
		"equal":                          {right, none, false},
		"too many units":                 {map[string]int{"u": 2}, none, true},
		"a user without an order":        {map[string]int{"u": 1, "v": 1}, none, true},
		"no units":                       {nil, none, true},
		"the gate is closed":             {nil, closed, false},
		"the stream has an entry":        {nil, queued, false},
		"the sale is closed":             {nil, func(f *fakeBooks, _ string) { f.offers[0].Status = model.SaleClosed }, false},
		"the sale has ended":             {nil, func(f *fakeBooks, _ string) { f.offers = nil }, false},
		"the stock changes meanwhile":    {nil, while(func(f *fakeBooks, _ string) { f.offers[0].Stock.Version++ }), false},
		"an attempt is queued meanwhile": {nil, while(queued), false},
		"the gate closes meanwhile":      {nil, while(closed), false},
	}, func(t *testing.T, tc test) {
		f, auditor, id := newBooks(openGate(0, 10))
		f.counted, f.units = tc.counted, right
		tc.change(f, id)
		_, got, err := auditor.Miscounts(t.Context(), id)
		check.Error(t, "miscounts", err, nil)
		check.Same(t, "miscounts", got, tc.want)
	})

	t.Run("an unchanged sale is compared once", func(t *testing.T) {
		f, auditor, id := newBooks(openGate(0, 10))
		reads := 0
		f.counted, f.units, f.counting = right, right, func() { reads++ }
		for _, version := range []int64{1, 1, 1, 2} {
			f.offers[0].Stock.Version = version
			if _, got, err := auditor.Miscounts(t.Context(), id); got || err != nil {
				t.Errorf("miscounts: %t, %v", got, err)
			}
		}
		check.Same(t, "comparisons at two versions of the stock", reads, 2)
	})
}

// The sale has 10 units available.
func TestDrifts(t *testing.T) {
	gate := func(left, inflight, stream int64) model.GateState {
		return model.GateState{Exists: true, Open: true, Epoch: 3, Left: left, Inflight: inflight, Stream: stream}
	}
	type test struct {
		state    model.GateState
		change   func(f *fakeBooks)
		drift    int64
		reported bool
	}
	meanwhile := func(change func(f *fakeBooks)) func(*fakeBooks) {
		return func(f *fakeBooks) { f.peeked = func() { change(f) } }
	}
	none := func(*fakeBooks) {}
	check.Each(t, map[string]test{
		"equal":                            {gate(10, 0, 0), none, 0, true},
		"equal, with units in flight":      {gate(7, 3, 2), none, 0, true},
		"too many":                         {gate(9, 3, 2), none, 2, true},
		"too few":                          {gate(6, 3, 2), none, -1, true},
		"units in flight without entries":  {gate(7, 3, 0), none, -3, true},
		"no gate":                          {model.GateState{}, none, 0, false},
		"a closed gate":                    {model.GateState{Exists: true, Left: 3}, none, 0, false},
		"a closed sale":                    {gate(3, 0, 0), func(f *fakeBooks) { f.offers[0].Status = model.SaleClosed }, 0, false},
		"the stock changes meanwhile":      {gate(8, 0, 0), meanwhile(func(f *fakeBooks) { f.offers[0].Stock.Available-- }), 0, false},
		"an order is made, and settled":    {gate(9, 0, 0), func(f *fakeBooks) { f.offers[0].Stock.Available-- }, 0, true},
		"the stock changes there and back": {gate(9, 0, 0), meanwhile(func(f *fakeBooks) { f.offers[0].Stock.Version += 2 }), 0, false},
		"the sale ends meanwhile":          {gate(9, 0, 0), meanwhile(func(f *fakeBooks) { f.offers = nil }), 0, false},
	}, func(t *testing.T, tc test) {
		f, auditor, id := newBooks(tc.state)
		check.Same(t, "reported by the first call", len(check.Must(auditor.Drifts(t.Context()))), 0)
		tc.change(f)
		want := map[string]Drift{}
		if tc.reported {
			want[id] = Drift{tc.state.Epoch, tc.drift}
		}
		check.Same(t, "drifts", check.Must(auditor.Drifts(t.Context())), want)
	})

	f, auditor, id := newBooks(gate(9, 0, 0))
	for call, reported := range []bool{false, true, false, true} {
		f.offers[0].Stock.Version = int64(call / 2)
		_, got := check.Must(auditor.Drifts(t.Context()))[id]
		check.Same(t, fmt.Sprintf("call %d finds the drift", call), got, reported)
	}
}

func TestDriftsWithoutStores(t *testing.T) {
	f, auditor, _ := newBooks(openGate(1, 7))
	check.Same(t, "drifts at first", len(check.Must(auditor.Drifts(t.Context()))), 0)
	f.errGate = errAway
	_, err := auditor.Drifts(t.Context())
	check.Error(t, "without Redis", err, errAway)
	f.errGate, f.err = nil, errAway
	_, err = auditor.Drifts(t.Context())
	check.Error(t, "without a database", err, errAway)
}

func TestAudit(t *testing.T) {
	balanced := model.Books{
		Stock:       model.Stock{Quota: 10, Available: 7, Held: 2, Paid: 1},
		Units:       map[model.OrderStatus]int64{model.OrderPending: 2, model.OrderPaid: 1, model.OrderCancelled: 5},
		BuyersUnits: 3,
	}
	unbalanced := balanced
	unbalanced.Stock.Quota, unbalanced.BuyersUnits = 11, 4
	type test struct {
		books      model.Books
		state      model.GateState
		drift      int64
		violations int
		ok         bool
	}
	check.Each(t, map[string]test{
		"all sums agree":      {balanced, openGate(1, 7), 0, 0, true},
		"the gate drifts":     {balanced, openGate(1, 8), 1, 0, false},
		"the books are wrong": {unbalanced, openGate(1, 7), 0, 2, false},
		"no gate":             {balanced, model.GateState{}, 0, 0, true},
	}, func(t *testing.T, tc test) {
		f, auditor, id := newBooks(tc.state)
		f.books = tc.books
		got, ok, err := auditor.Audit(t.Context(), id)
		if !ok || err != nil || got.Gate != tc.state {
			t.Errorf("the audit is %+v, %t, %v", got, ok, err)
		}
		check.Same(t, "drift, violations, ok", []any{got.Drift, len(got.Violations), got.OK()}, []any{tc.drift, tc.violations, tc.ok})
	})

	f, auditor, id := newBooks(openGate(1, 7))
	f.books, f.errGate = balanced, errAway
	_, _, err := auditor.Audit(t.Context(), id)
	check.Error(t, "without Redis", err, errAway)
	check.Error(t, "without Redis", err, model.ErrUnavailable)
	auditor.Gate = nil
	if got, ok, err := auditor.Audit(t.Context(), id); !ok || err != nil || !got.OK() {
		t.Errorf("the database alone: %+v, %t, %v", got, ok, err)
	}
	f.books = model.Books{}
	if _, ok, err := auditor.Audit(t.Context(), id); ok || err != nil {
		t.Errorf("an unknown sale: %t, %v", ok, err)
	}
}

// A drift is an error if the stock stands still. While it moves, the gate may only not have heard of the last orders.
func TestAuditSettled(t *testing.T) {
	for _, moving := range []bool{false, true} {
		t.Run(fmt.Sprintf("the stock moves: %t", moving), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, auditor, id := newBooks(openGate(1, 8))
				f.books = model.Books{Stock: model.Stock{Quota: 7, Available: 7}, Units: map[model.OrderStatus]int64{}}
				f.peeked = func() {
					if moving {
						f.books.Stock.Version++
					}
				}
				audit, ok, err := auditor.AuditSettled(t.Context(), id)
				check.Same(t, "found, error, drift, ok", []any{ok, err, audit.Drift, audit.OK()}, []any{true, nil, int64(1), moving})
			})
		})
	}
}
