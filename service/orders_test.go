package service

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"flashsale/model"
)

// desk is the database and the gate of orders.
type desk struct {
	orders    map[string]model.Order
	verdict   model.Verdict // of a cancel or a refund
	known     map[string]model.Request
	err       error // of the database
	errGate   error
	looked    int
	refused   int // refusals written
	errRefuse error
	asked     []model.OrderFilter
	changed   []string // sales whose gates are told
}

func (d *desk) Order(_ context.Context, id string) (model.Order, bool, error) {
	d.looked++
	o, ok := d.orders[id]
	return o, ok, d.err
}

func (d *desk) Orders(_ context.Context, f model.OrderFilter) ([]model.Order, string, error) {
	d.asked = append(d.asked, f)
	if _, there := d.orders[f.ID]; f.ID != "" && !there {
		return nil, "", d.err
	}
	return []model.Order{{ID: "listed"}}, "next", d.err
}

func (d *desk) give(id string) (model.Order, model.Verdict, error) {
	d.looked++
	return d.orders[id], d.verdict, d.err
}

func (d *desk) Cancel(_ context.Context, _, id string) (model.Order, model.Verdict, error) {
	return d.give(id)
}

func (d *desk) RefundOrder(_ context.Context, id, _ string) (model.Order, model.Verdict, error) {
	return d.give(id)
}

// Refuse refuses what has no order.
func (d *desk) Refuse(_ context.Context, e model.Entry, reason model.Verdict) (model.Outcome, error) {
	d.refused++
	if d.errRefuse != nil {
		return model.Outcome{}, d.errRefuse
	}
	d.orders[e.ID] = model.Order{ID: e.ID, SaleID: e.SaleID, UserID: e.UserID, Status: model.OrderRejected, Reason: reason}
	return model.Outcome{Verdict: reason}, nil
}

func (d *desk) Changed(_ context.Context, saleID string) { d.changed = append(d.changed, saleID) }

func (d *desk) Knows(_ context.Context, id string) (model.Request, bool, error) {
	r, ok := d.known[id]
	return r, ok, d.errGate
}

func newDesk(t *testing.T) (*Orders, *desk, model.Offer) {
	t.Helper()
	offer := openOffer()
	d := &desk{orders: map[string]model.Order{}, known: map[string]model.Request{}, verdict: model.Accepted}
	return &Orders{Desk: d, Ledger: d, IDs: purchaseIDs, Catalog: refreshed(t, newFakeSales(offer)), Gate: d, Gates: d}, d, offer
}

// TestOrderIsLookedUp in the database, then at the gate; what neither knows is lost, if both have answered.
func TestOrderIsLookedUp(t *testing.T) {
	tests := map[string]struct {
		change  func(d *desk, id string)
		user    string
		verdict model.Verdict
		status  model.OrderStatus
		reason  model.Verdict
		err     error
	}{
		"made":                          {func(d *desk, id string) { d.orders[id] = model.Order{ID: id, Status: model.OrderPaid, Quantity: 2} }, "buyer", model.Accepted, model.OrderPaid, "", nil},
		"queued":                        {func(d *desk, id string) { d.known[id] = model.Request{Quantity: 2} }, "buyer", model.Accepted, model.OrderQueued, "", nil},
		"lost":                          {func(*desk, string) {}, "buyer", model.Accepted, model.OrderRejected, model.ReasonLost, nil},
		"another user's":                {func(d *desk, id string) { d.orders[id] = model.Order{ID: id} }, "guesser", model.NotFound, "", "", nil},
		"no database":                   {func(d *desk, _ string) { d.err = errAway }, "buyer", "", "", "", model.ErrUnavailable},
		"no Redis":                      {func(d *desk, _ string) { d.errGate = errAway }, "buyer", "", "", "", model.ErrUnavailable},
		"lost, and it can't be written": {func(d *desk, _ string) { d.errRefuse = errAway }, "buyer", "", "", "", model.ErrUnavailable},
		"made, and no Redis": {func(d *desk, id string) {
			d.orders[id], d.errGate = model.Order{ID: id, Status: model.OrderPending, Quantity: 2}, errAway
		}, "buyer", model.Accepted, model.OrderPending, "", nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			orders, d, offer := newDesk(t)
			id := purchaseIDs.Derive("buyer", offer.ID, "key")
			tc.change(d, id)
			got, verdict, err := orders.Order(t.Context(), tc.user, id)
			if !errors.Is(err, tc.err) || (err == nil) != (tc.err == nil) || verdict != tc.verdict || got.Status != tc.status || got.Reason != tc.reason {
				t.Errorf("%+v, %s, %v", got, verdict, err)
			}
			if verdict == model.Accepted && got.ID != id {
				t.Errorf("the order is %+v", got)
			}
			if tc.status == model.OrderQueued && (got.Quantity != 2 || got.AmountCents != 300 || got.Currency != "CNY" || got.SaleID != offer.ID) {
				t.Errorf("queued is %+v", got)
			}
			if wrote := d.refused > 0; wrote != (tc.reason == model.ReasonLost || d.errRefuse != nil) {
				t.Errorf("%d refusals were written", d.refused)
			}
			if tc.verdict == model.NotFound && d.looked != 0 {
				t.Error("a guessed id cost a look-up")
			}
		})
	}
}

// TestUnitsGoBackToTheGate after a cancel and a refund, and only after those that happened.
func TestUnitsGoBackToTheGate(t *testing.T) {
	type call func(o *Orders, ctx context.Context, id string) (model.Order, model.Verdict, error)
	cancel := func(o *Orders, ctx context.Context, id string) (model.Order, model.Verdict, error) {
		return o.Cancel(ctx, "buyer", id)
	}
	refund := func(o *Orders, ctx context.Context, id string) (model.Order, model.Verdict, error) {
		return o.Refund(ctx, id, "operator")
	}
	tests := map[string]struct {
		call    call
		says    model.Verdict
		err     error
		want    model.Verdict
		changed bool
	}{
		"cancelled":                          {cancel, model.Accepted, nil, model.Accepted, true},
		"too late to cancel":                 {cancel, model.NotCancellable, nil, model.NotCancellable, false},
		"cancel of one that is queued still": {cancel, model.NotFound, nil, model.NotCancellable, false},
		"no database to cancel":              {cancel, "", errAway, "", false},
		"refunded":                           {refund, model.Accepted, nil, model.Accepted, true},
		"not paid":                           {refund, model.NotRefundable, nil, model.NotRefundable, false},
		"no database to refund":              {refund, "", errAway, "", false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			orders, d, offer := newDesk(t)
			id := purchaseIDs.Derive("buyer", offer.ID, "key")
			d.orders[id] = model.Order{ID: id, SaleID: offer.ID, UserID: "buyer", Quantity: 2}
			d.verdict, d.err = tc.says, tc.err
			_, verdict, err := tc.call(orders, t.Context(), id)
			if verdict != tc.want || !errors.Is(err, tc.err) || (err == nil) != (tc.err == nil) {
				t.Errorf("%s, %v", verdict, err)
			}
			if told := slices.Equal(d.changed, []string{offer.ID}); told != tc.changed {
				t.Errorf("the gates of %v are told", d.changed)
			}
		})
	}
}

// TestStrangeOrderIDs reach no store.
func TestStrangeOrderIDs(t *testing.T) {
	orders, d, _ := newDesk(t)
	for _, id := range []string{"", "x", "a' OR 1=1", string(make([]byte, model.OrderIDLength)), "ÄÖÜ"} {
		if _, verdict, err := orders.Order(t.Context(), "buyer", id); verdict != model.NotFound || err != nil {
			t.Errorf("order %q: %s, %v", id, verdict, err)
		}
		if _, verdict, err := orders.Cancel(t.Context(), "buyer", id); verdict != model.NotFound || err != nil {
			t.Errorf("cancel %q: %s, %v", id, verdict, err)
		}
		if _, verdict, err := orders.Refund(t.Context(), id, "operator"); verdict != model.NotFound || err != nil {
			t.Errorf("refund %q: %s, %v", id, verdict, err)
		}
	}
	if d.looked != 0 {
		t.Errorf("%d look-ups", d.looked)
	}
}

func TestList(t *testing.T) {
	orders, d, _ := newDesk(t)
	if list, next, err := orders.List(t.Context(), model.OrderFilter{}); len(list) != 1 || next != "next" || err != nil {
		t.Errorf("%v, %q, %v", list, next, err)
	}
	d.err = model.ErrBadCursor
	if _, _, err := orders.List(t.Context(), model.OrderFilter{}); !errors.Is(err, model.ErrBadCursor) {
		t.Errorf("%v", err)
	}
}

// TestSearch looks for an order's id, else for a user's; what is neither is nowhere.
func TestSearch(t *testing.T) {
	sale := openOffer().ID
	there, none := purchaseIDs.Derive("ann", sale, "k"), purchaseIDs.Derive("ann", sale, "other")
	of := func(f model.OrderFilter) model.OrderFilter {
		f.SaleID, f.Status, f.Cursor, f.Limit = sale, model.OrderPaid, "c", 7
		return f
	}
	for name, tc := range map[string]struct {
		words string
		asked []model.OrderFilter
		found bool
	}{
		"nothing":                       {"", []model.OrderFilter{of(model.OrderFilter{})}, true},
		"an order's id":                 {there, []model.OrderFilter{of(model.OrderFilter{ID: there})}, true},
		"a user's id":                   {"ann", []model.OrderFilter{of(model.OrderFilter{UserID: "ann"})}, true},
		"a user's that looks otherwise": {none, []model.OrderFilter{of(model.OrderFilter{ID: none}), of(model.OrderFilter{UserID: none})}, true},
		"a part of SQL":                 {"' OR 1=1", nil, false},
		"a NUL":                         {"ann\x00", nil, false},
		"more than an id":               {strings.Repeat("a", model.MaxUserID+1), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			orders, d, _ := newDesk(t)
			d.orders[there] = model.Order{ID: there}
			list, next, err := orders.Search(t.Context(), of(model.OrderFilter{}), tc.words)
			if err != nil || (len(list) > 0) != tc.found || (next != "") != tc.found || !slices.Equal(d.asked, tc.asked) {
				t.Errorf("%v, %q, %v, asked for %+v", list, next, err, d.asked)
			}
		})
	}
	orders, d, _ := newDesk(t)
	d.err = errAway
	if _, _, err := orders.Search(t.Context(), of(model.OrderFilter{}), none); !errors.Is(err, errAway) || len(d.asked) != 1 {
		t.Errorf("the database is away: %v, asked %d times", err, len(d.asked))
	}
}
