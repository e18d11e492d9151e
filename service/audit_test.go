package service

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit"
)

// fakeBooks are the stores of an auditor: the stock of one sale, and its gate.
type fakeBooks struct {
	offers []model.Offer
	books  model.Books
	gone   bool
	err    error
	state  model.GateState
	peek   func() // something happens while the gate is read
	errAt  error  // of the gate

	counted, units map[string]int // by user, at the gate and in the database
	counting       func()         // something happens while the gate's are read
}

func (f *fakeBooks) Books(context.Context, string) (model.Books, bool, error) {
	return f.books, !f.gone, f.err
}

func (f *fakeBooks) LiveOffers(context.Context, time.Duration) ([]model.Offer, error) {
	return slices.Clone(f.offers), f.err
}

func (f *fakeBooks) Peek(_ context.Context, ids ...string) ([]model.GateState, error) {
	states := slices.Repeat([]model.GateState{f.state}, len(ids))
	if f.peek != nil {
		f.peek()
	}
	return states, f.errAt
}

func (f *fakeBooks) Units(_ context.Context, _ string, users []string) ([]int, error) {
	units := make([]int, len(users))
	for i, user := range users {
		units[i] = f.counted[user]
	}
	return units, f.errAt
}

// gateOf is the gate of the fakeBooks.
type gateOf struct{ *fakeBooks }

func (g gateOf) Buyers(context.Context, string) (int64, error) {
	if g.counting != nil {
		g.counting()
	}
	return int64(len(g.counted)), g.errAt
}

func (f *fakeBooks) Buyers(ctx context.Context, _ string) iter.Seq2[[]model.Buyer, error] {
	if f.err != nil {
		return func(yield func([]model.Buyer, error) bool) { yield(nil, f.err) }
	}
	return kit.Contents{Units: f.units}.Buyers(ctx)
}

// TestMiscounts of a gate over a sale where u has one unit.
func TestMiscounts(t *testing.T) {
	right, open := map[string]int{"u": 1}, model.GateState{Exists: true, Open: true, Left: 10}
	tests := map[string]struct {
		counted map[string]int
		change  func(f *fakeBooks)
		want    bool
	}{
		"right":                   {right, nil, false},
		"too many":                {map[string]int{"u": 2}, nil, true},
		"of nobody":               {map[string]int{"u": 1, "v": 1}, nil, true},
		"none":                    {nil, nil, true},
		"a closed gate":           {nil, func(f *fakeBooks) { f.state.Open = false }, false},
		"attempts on their way":   {nil, func(f *fakeBooks) { f.state.Stream = 1 }, false},
		"a closed sale":           {nil, func(f *fakeBooks) { f.offers[0].Status = model.SaleClosed }, false},
		"an ended sale":           {nil, func(f *fakeBooks) { f.offers = nil }, false},
		"the stock moved":         {nil, func(f *fakeBooks) { f.counting = func() { f.offers[0].Stock.Version++ } }, false},
		"an attempt came":         {nil, func(f *fakeBooks) { f.counting = func() { f.state.Stream = 1 } }, false},
		"the gate closed in time": {nil, func(f *fakeBooks) { f.counting = func() { f.state.Open = false } }, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			o := openOffer()
			f := &fakeBooks{offers: []model.Offer{o}, state: open, counted: tc.counted, units: right}
			if tc.change != nil {
				tc.change(f)
			}
			_, got, err := (&Auditor{Store: f, Gate: gateOf{f}}).Miscounts(t.Context(), o.ID)
			if err != nil || got != tc.want {
				t.Errorf("%t, %v; want %t", got, err, tc.want)
			}
		})
	}
	o, reads := openOffer(), 0
	f := &fakeBooks{offers: []model.Offer{o}, state: open, counted: right, units: right, counting: func() { reads++ }}
	a := &Auditor{Store: f, Gate: gateOf{f}}
	for _, version := range []int64{1, 1, 1, 2} {
		f.offers[0].Stock.Version = version
		if _, got, err := a.Miscounts(t.Context(), o.ID); got || err != nil {
			t.Errorf("%t, %v", got, err)
		}
	}
	if reads != 2 {
		t.Errorf("the units were read %d times at two versions of the stock", reads)
	}
	if _, got, err := (&Auditor{Store: &fakeBooks{}}).Miscounts(t.Context(), "sale"); got || err != nil {
		t.Errorf("without a gate: %t, %v", got, err)
	}
}

// TestDrifts of a gate over a sale with 10 units available.
func TestDrifts(t *testing.T) {
	tests := map[string]struct {
		state  model.GateState
		change func(f *fakeBooks)
		drift  int64
		judged bool
	}{
		"agrees":                            {model.GateState{Exists: true, Open: true, Left: 10}, nil, 0, true},
		"agrees, with units on their way":   {model.GateState{Exists: true, Open: true, Left: 7, Inflight: 3, Stream: 2}, nil, 0, true},
		"too many":                          {model.GateState{Exists: true, Open: true, Left: 9, Inflight: 3, Stream: 2}, nil, 2, true},
		"too few":                           {model.GateState{Exists: true, Open: true, Left: 6, Inflight: 3, Stream: 2}, nil, -1, true},
		"its queue was lost":                {model.GateState{Exists: true, Open: true, Left: 7, Inflight: 3}, nil, -3, true},
		"no gate":                           {model.GateState{}, nil, 0, false},
		"a closed gate":                     {model.GateState{Exists: true, Left: 3}, nil, 0, false},
		"a closed sale":                     {model.GateState{Exists: true, Open: true, Left: 3}, func(f *fakeBooks) { f.offers[0].Status = model.SaleClosed }, 0, false},
		"the stock moved meanwhile":         {model.GateState{Exists: true, Open: true, Left: 9}, func(f *fakeBooks) { f.peek = func() { f.offers[0].Stock.Available = 9; f.offers[0].Stock.Version++ } }, 0, false},
		"the stock went and came meanwhile": {model.GateState{Exists: true, Open: true, Left: 9}, func(f *fakeBooks) { f.peek = func() { f.offers[0].Stock.Version += 2 } }, 0, false},
		"the sale ended meanwhile":          {model.GateState{Exists: true, Open: true, Left: 9}, func(f *fakeBooks) { f.peek = func() { f.offers = nil } }, 0, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			o := openOffer()
			f := &fakeBooks{offers: []model.Offer{o}, state: tc.state}
			if tc.change != nil {
				tc.change(f)
			}
			want := map[string]Drift{}
			if tc.judged {
				want[o.ID] = Drift{tc.state.Epoch, tc.drift}
			}
			got, err := (&Auditor{Store: f, Gate: gateOf{f}}).Drifts(t.Context())
			if err != nil || !maps.Equal(got, want) {
				t.Errorf("%v, %v; want %v", got, err, want)
			}
		})
	}
}

func TestDriftsWithoutStores(t *testing.T) {
	f := &fakeBooks{offers: []model.Offer{openOffer()}}
	if got, err := (&Auditor{Store: f}).Drifts(t.Context()); len(got) != 0 || err != nil {
		t.Errorf("no gate to ask: %v, %v", got, err)
	}
	f.errAt = errAway
	if _, err := (&Auditor{Store: f, Gate: gateOf{f}}).Drifts(t.Context()); !errors.Is(err, errAway) {
		t.Errorf("no Redis: %v", err)
	}
	f.err = errors.New("no database")
	if _, err := (&Auditor{Store: f, Gate: gateOf{f}}).Drifts(t.Context()); !errors.Is(err, f.err) {
		t.Errorf("no database: %v", err)
	}
	none := &fakeBooks{errAt: errAway}
	if got, err := (&Auditor{Store: none, Gate: gateOf{none}}).Drifts(t.Context()); len(got) != 0 || err != nil {
		t.Errorf("no sales: %v, %v", got, err)
	}
}

func TestAudit(t *testing.T) {
	balanced := model.Books{
		Stock:       model.Stock{Quota: 10, Available: 7, Held: 2, Paid: 1},
		Units:       map[model.OrderStatus]int64{model.OrderPending: 2, model.OrderPaid: 1, model.OrderCancelled: 5},
		BuyersUnits: 3,
	}
	unbalanced := balanced
	unbalanced.Stock.Quota, unbalanced.BuyersUnits = 11, 4
	tests := map[string]struct {
		books      model.Books
		state      model.GateState
		drift      int64
		violations int
		ok         bool
	}{
		"all adds up":         {balanced, model.GateState{Exists: true, Open: true, Left: 7}, 0, 0, true},
		"the gate drifts":     {balanced, model.GateState{Exists: true, Open: true, Left: 8}, 1, 0, false},
		"the books are wrong": {unbalanced, model.GateState{Exists: true, Open: true, Left: 7}, 0, 2, false},
		"no gate":             {balanced, model.GateState{}, 0, 0, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			f := &fakeBooks{books: tc.books, state: tc.state}
			got, ok, err := (&Auditor{Store: f, Gate: gateOf{f}}).Audit(t.Context(), "any")
			if !ok || err != nil || got.Drift != tc.drift || len(got.Violations) != tc.violations || got.OK() != tc.ok || got.Gate != tc.state {
				t.Errorf("%+v, %t, %v", got, ok, err)
			}
		})
	}
	f := &fakeBooks{books: balanced, errAt: errAway}
	if _, _, err := (&Auditor{Store: f, Gate: gateOf{f}}).Audit(t.Context(), "any"); !errors.Is(err, errAway) || !errors.Is(err, model.ErrUnavailable) {
		t.Errorf("no Redis: %v", err)
	}
	if got, ok, err := (&Auditor{Store: f}).Audit(t.Context(), "any"); !ok || err != nil || !got.OK() {
		t.Errorf("the database alone: %+v, %t, %v", got, ok, err)
	}
	f.gone = true
	if _, ok, err := (&Auditor{Store: f}).Audit(t.Context(), "any"); ok || err != nil {
		t.Errorf("no such sale: %t, %v", ok, err)
	}
}
