package service

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// desk is a database and a gate with orders.
type desk struct {
	orders    map[string]model.Order
	verdict   model.Verdict // of a cancel or a refund
	known     map[string]int
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
	_, there := d.orders[f.ID]
	if _, numbered := d.orders[f.Number]; f.ID != "" && !there || f.Number != "" && !numbered {
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

func (d *desk) CancelAny(_ context.Context, id, _ string) (model.Order, model.Verdict, error) {
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

func (d *desk) Knows(_ context.Context, _ model.GateRef, _, id string) (int, bool, error) {
	quantity, ok := d.known[id]
	return quantity, ok, d.errGate
}

func newDesk(t *testing.T) (*Orders, *desk, model.Offer) {
	t.Helper()
	offer := openOffer()
	d := &desk{orders: map[string]model.Order{}, known: map[string]int{}, verdict: model.Accepted}
	return &Orders{Desk: d, Ledger: d, IDs: purchaseIDs, Catalog: refreshed(t, newFakeStores(offer)), Gate: d, Gates: d}, d, offer
}

// Order asks the database, then the gate. An order that neither knows is lost, if both have answered.
func TestOrderIsLookedUp(t *testing.T) {
	type test struct {
		change  func(d *desk, id string)
		user    string
		verdict model.Verdict
		order   model.Order
		err     error
		lookUps int
		refused int
	}
	has := func(o model.Order) func(*desk, string) {
		return func(d *desk, id string) {
			o.ID = id
			d.orders[id] = o
		}
	}
	paid := model.Order{Status: model.OrderPaid, Quantity: 2}
	atGate := func(d *desk, id string) { d.known[id] = 2 }
	noRedis := func(d *desk, id string) { has(paid)(d, id); d.errGate = errAway }
	queued := model.Order{Status: model.OrderQueued, Quantity: 2, UserID: "buyer", AmountCents: 300, Currency: "CNY"}
	lost := model.Order{Status: model.OrderRejected, Reason: model.ReasonLost, UserID: "buyer"}
	none, away := model.Order{}, model.ErrUnavailable
	check.Each(t, map[string]test{
		"in the database":           {has(paid), "buyer", model.Accepted, paid, nil, 1, 0},
		"at the gate":               {atGate, "buyer", model.Accepted, queued, nil, 1, 0},
		"nowhere":                   {func(*desk, string) {}, "buyer", model.Accepted, lost, nil, 2, 1},
		"another user's":            {has(paid), "guesser", model.NotFound, none, nil, 0, 0},
		"no database":               {func(d *desk, _ string) { d.err = errAway }, "buyer", "", none, away, 1, 0},
		"no Redis":                  {func(d *desk, _ string) { d.errGate = errAway }, "buyer", "", none, away, 1, 0},
		"lost, and no refusal":      {func(d *desk, _ string) { d.errRefuse = errAway }, "buyer", "", none, away, 1, 1},
		"in the database, no Redis": {noRedis, "buyer", model.Accepted, paid, nil, 1, 0},
	}, func(t *testing.T, tc test) {
		orders, d, offer := newDesk(t)
		id := purchaseIDs.Derive("buyer", offer.ID, "key")
		tc.change(d, id)
		got, verdict, err := orders.Order(t.Context(), tc.user, id)
		check.Error(t, "order", err, tc.err)
		check.Same(t, "verdict", verdict, tc.verdict)
		if tc.order != none {
			tc.order.ID = id
		}
		if tc.order.UserID != "" {
			tc.order.SaleID = offer.ID
		}
		check.Same(t, "order", got, tc.order)
		check.Same(t, "look-ups and refusals", []int{d.looked, d.refused}, []int{tc.lookUps, tc.refused})
	})
}

// The gate is told of a cancel and of a refund, if they happened.
func TestUnitsGoBackToTheGate(t *testing.T) {
	type test struct {
		refund  bool
		says    model.Verdict // the database
		err     error
		want    model.Verdict
		changed bool
	}
	check.Each(t, map[string]test{
		"cancelled":                {false, model.Accepted, nil, model.Accepted, true},
		"too late to cancel":       {false, model.NotCancellable, nil, model.NotCancellable, false},
		"cancel of a queued order": {false, model.NotFound, nil, model.NotCancellable, false},
		"cancel without database":  {false, "", errAway, "", false},
		"refunded":                 {true, model.Accepted, nil, model.Accepted, true},
		"not paid":                 {true, model.NotRefundable, nil, model.NotRefundable, false},
		"refund without database":  {true, "", errAway, "", false},
	}, func(t *testing.T, tc test) {
		orders, d, offer := newDesk(t)
		id := purchaseIDs.Derive("buyer", offer.ID, "key")
		d.orders[id] = model.Order{ID: id, SaleID: offer.ID, UserID: "buyer", Quantity: 2}
		d.verdict, d.err = tc.says, tc.err
		call := func() (model.Order, model.Verdict, error) { return orders.Cancel(t.Context(), "buyer", id) }
		if tc.refund {
			call = func() (model.Order, model.Verdict, error) { return orders.Refund(t.Context(), id, "operator") }
		}
		_, verdict, err := call()
		check.Error(t, "error", err, tc.err)
		check.Same(t, "verdict", verdict, tc.want)
		check.Same(t, "the gate is told", slices.Equal(d.changed, []string{offer.ID}), tc.changed)
	})
}

// Ids that the engine has not issued reach no store.
func TestStrangeOrderIDs(t *testing.T) {
	orders, d, _ := newDesk(t)
	for _, id := range []string{"", "x", "a' OR 1=1", string(make([]byte, model.OrderIDLength)), "ÄÖÜ"} {
		_, ordered, errOrder := orders.Order(t.Context(), "buyer", id)
		_, cancelled, errCancel := orders.Cancel(t.Context(), "buyer", id)
		_, refunded, errRefund := orders.Refund(t.Context(), id, "operator")
		check.Error(t, id, errors.Join(errOrder, errCancel, errRefund), nil)
		none := model.NotFound
		check.Same(t, id, []model.Verdict{ordered, cancelled, refunded}, []model.Verdict{none, none, none})
	}
	check.Same(t, "look-ups", d.looked, 0)
}

// List looks for an order's id, else for a user's.
func TestListByWords(t *testing.T) {
	sale := openOffer().ID
	there, none := purchaseIDs.Derive("ann", sale, "k"), purchaseIDs.Derive("ann", sale, "other")
	number := model.OrderNumber(there)
	filter := func(id, user string) model.OrderFilter {
		return model.OrderFilter{ID: id, UserID: user, SaleIDs: []string{sale}, Status: model.OrderPaid, Cursor: "c", Limit: 7}
	}
	numbered := func(number string) model.OrderFilter {
		f := filter("", "")
		f.Number = number
		return f
	}
	type test struct {
		words string
		asked []model.OrderFilter
	}
	check.Each(t, map[string]test{
		"nothing":                        {"", []model.OrderFilter{filter("", "")}},
		"an order's id":                  {there, []model.OrderFilter{filter(there, "")}},
		"an order's number":              {number, []model.OrderFilter{numbered(number)}},
		"a number in small letters":      {strings.ToLower(number), []model.OrderFilter{numbered(number)}},
		"a user's id like a number":      {"samantha", []model.OrderFilter{numbered("SAMANTHA"), filter("", "samantha")}},
		"a user's id":                    {"ann", []model.OrderFilter{filter("", "ann")}},
		"a user's id like an order's":    {none, []model.OrderFilter{filter(none, ""), filter("", none)}},
		"a part of SQL":                  {"' OR 1=1", nil},
		"a NUL":                          {"ann\x00", nil},
		"more characters than an id has": {strings.Repeat("a", model.MaxUserID+1), nil},
	}, func(t *testing.T, tc test) {
		orders, d, _ := newDesk(t)
		d.orders[there] = model.Order{ID: there}
		d.orders[number] = model.Order{ID: there}
		list, next, err := orders.List(t.Context(), filter("", ""), tc.words)
		found := len(tc.asked) > 0
		if err != nil || (len(list) > 0) != found || (next != "") != found {
			t.Errorf("%v, %q, %v", list, next, err)
		}
		check.Same(t, "filters", d.asked, tc.asked)
	})
	orders, d, _ := newDesk(t)
	d.err = errAway
	_, _, err := orders.List(t.Context(), filter("", ""), none)
	check.Error(t, "without a database", err, errAway)
	check.Same(t, "calls of the database", len(d.asked), 1)
}
