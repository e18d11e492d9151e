package service

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

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
	record    model.OrderRecord
}

func (d *desk) OrderRecord(context.Context, string) (model.OrderRecord, error) {
	return d.record, d.err
}

func (d *desk) Order(_ context.Context, id string) (model.Order, bool, error) {
	d.looked++
	o, ok := d.orders[id]
	return o, ok, d.err
}

func (d *desk) Orders(_ context.Context, f model.OrderFilter) ([]model.Order, string, error) {
	d.asked = append(d.asked, f)
	if f.Payment != "" {
		f.Payment = "payment " + f.Payment // a user may have the same name
	}
	for _, name := range []string{f.ID, f.Number, f.Payment, f.UserID, f.UserPrefix} {
		if _, there := d.orders[name]; name != "" && !there {
			return nil, "", d.err
		}
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

// List looks for an order, a payment, a user and the beginning of users' ids, in this order, until it finds orders.
func TestListByWords(t *testing.T) {
	sale := openOffer().ID
	there, none := purchaseIDs.Derive("ann", sale, "k"), purchaseIDs.Derive("ann", sale, "other")
	number := model.OrderNumber(there)
	filter := model.OrderFilter{SaleIDs: []string{sale}, Status: model.OrderPaid, Cursor: "c", Limit: 7}
	with := func(change func(f *model.OrderFilter)) model.OrderFilter {
		f := filter
		change(&f)
		return f
	}
	id := func(id string) model.OrderFilter { return with(func(f *model.OrderFilter) { f.ID = id }) }
	numbered := func(number string) model.OrderFilter { return with(func(f *model.OrderFilter) { f.Number = number }) }
	payment := func(name string) model.OrderFilter { return with(func(f *model.OrderFilter) { f.Payment = name }) }
	user := func(id string) model.OrderFilter { return with(func(f *model.OrderFilter) { f.UserID = id }) }
	users := func(begin string) model.OrderFilter { return with(func(f *model.OrderFilter) { f.UserPrefix = begin }) }
	type test struct {
		words string
		there string // what the database knows
		asked []model.OrderFilter
	}
	long, reference := strings.Repeat("a", model.MaxUserID+1), "cs_test_"+strings.Repeat("a", 60)
	check.Each(t, map[string]test{
		"nothing":                     {"", "", []model.OrderFilter{filter}},
		"an order's id":               {there, there, []model.OrderFilter{id(there)}},
		"the beginning of an id":      {there[:20], there[:20], []model.OrderFilter{id(there[:20])}},
		"too little of an id":         {there[:19], "", []model.OrderFilter{payment(there[:19]), user(there[:19]), users(there[:19])}},
		"an order's number":           {number, number, []model.OrderFilter{numbered(number)}},
		"a number in small letters":   {strings.ToLower(number), number, []model.OrderFilter{numbered(number)}},
		"the beginning of a number":   {number[:4], number[:4], []model.OrderFilter{numbered(number[:4])}},
		"a user's id like a number":   {"samantha", "samantha", []model.OrderFilter{numbered("SAMANTHA"), payment("samantha"), user("samantha")}},
		"a payment":                   {"pi_1", "payment pi_1", []model.OrderFilter{payment("pi_1")}},
		"a long reference":            {reference, "payment " + reference, []model.OrderFilter{payment(reference)}},
		"a user's id":                 {"ann", "ann", []model.OrderFilter{payment("ann"), user("ann")}},
		"the beginning of a user's":   {"u-ab", "", []model.OrderFilter{payment("u-ab"), user("u-ab"), users("u-ab")}},
		"a user's id like an order's": {none, "", []model.OrderFilter{id(none), payment(none), user(none), users(none)}},
		"a part of SQL":               {"' OR 1=1", "", nil},
		"a NUL":                       {"ann\x00", "", nil},
		"more than an id has":         {long, "", []model.OrderFilter{payment(long)}},
		"more than a reference has":   {strings.Repeat("a", 256), "", nil},
	}, func(t *testing.T, tc test) {
		orders, d, _ := newDesk(t)
		d.orders[tc.there] = model.Order{}
		list, next, err := orders.List(t.Context(), filter, tc.words)
		found := tc.there != "" || tc.words == ""
		if err != nil || (len(list) > 0) != found || (next != "") != found {
			t.Errorf("%v, %q, %v", list, next, err)
		}
		check.Same(t, "filters", d.asked, tc.asked)
	})
	orders, d, _ := newDesk(t)
	d.err = errAway
	_, _, err := orders.List(t.Context(), filter, none)
	check.Error(t, "without a database", err, errAway)
	check.Same(t, "calls of the database", len(d.asked), 1)
}

// The history has what was recorded, in the order of time, and names who did it.
func TestHistory(t *testing.T) {
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0) }
	entry := func(seconds int64, actor, action, detail string) model.AuditEntry {
		return model.AuditEntry{At: at(seconds), Actor: actor, Action: action, Detail: detail}
	}
	made, started, paid := entry(1, "ann", "order_made", ""), entry(2, "ann", "payment_started", "P"), entry(3, "stripe", "order_paid", "")
	open := model.Payment{ID: "P", Provider: "stripe", CreatedAt: at(2), Status: model.PaymentOpen}
	succeeded, again := open, open
	succeeded.Status, succeeded.ProviderTxnID = model.PaymentSucceeded, "txn"
	again.ID, again.Status, again.ProviderTxnID = "Q", model.PaymentRefundDue, "txn 2"
	byOperator := entry(4, "operator", "cancel", "order of ann")
	refund := entry(5, "operator", "refund", "order of ann")
	type test struct {
		status  model.OrderStatus
		change  func(o *model.Order)
		record  model.OrderRecord
		history []model.AuditEntry
	}
	withPaid := func(o *model.Order) { o.PaidAt = at(3) }
	check.Each(t, map[string]test{
		"new":                   {model.OrderPending, nil, model.OrderRecord{}, []model.AuditEntry{made}},
		"drawn":                 {model.OrderPending, func(o *model.Order) { o.Source = model.FromDraw }, model.OrderRecord{}, []model.AuditEntry{entry(1, "engine", "order_made", "")}},
		"rejected":              {model.OrderRejected, func(o *model.Order) { o.Reason = model.SoldOut }, model.OrderRecord{}, []model.AuditEntry{entry(1, "engine", "order_rejected", "sold_out")}},
		"paid":                  {model.OrderPaid, withPaid, model.OrderRecord{Payments: []model.Payment{succeeded}}, []model.AuditEntry{made, started, paid}},
		"paid twice":            {model.OrderPaid, withPaid, model.OrderRecord{Payments: []model.Payment{succeeded, again}}, []model.AuditEntry{made, started, paid}},
		"cancelled":             {model.OrderCancelled, nil, model.OrderRecord{EndedAt: at(4), Payments: []model.Payment{open}}, []model.AuditEntry{made, started, entry(4, "ann", "order_cancelled", "")}},
		"cancelled by support":  {model.OrderCancelled, nil, model.OrderRecord{EndedAt: at(4), Log: []model.AuditEntry{byOperator}}, []model.AuditEntry{made, byOperator}},
		"cancelled before 0.1":  {model.OrderCancelled, nil, model.OrderRecord{}, []model.AuditEntry{made}},
		"expired":               {model.OrderExpired, nil, model.OrderRecord{EndedAt: at(9)}, []model.AuditEntry{made, entry(9, "engine", "order_expired", "")}},
		"paid after the expiry": {model.OrderPaid, withPaid, model.OrderRecord{EndedAt: at(2)}, []model.AuditEntry{made, entry(2, "engine", "order_expired", ""), entry(3, "", "order_paid", "")}},
		"refunded":              {model.OrderRefunded, withPaid, model.OrderRecord{EndedAt: at(5), Payments: []model.Payment{succeeded}, Log: []model.AuditEntry{refund}}, []model.AuditEntry{made, started, paid, refund}},
	}, func(t *testing.T, tc test) {
		orders, d, offer := newDesk(t)
		id := purchaseIDs.Derive("ann", offer.ID, "k")
		order := model.Order{ID: id, SaleID: offer.ID, UserID: "ann", Status: tc.status, CreatedAt: at(1)}
		if tc.change != nil {
			tc.change(&order)
		}
		d.orders[id], d.record = order, tc.record
		got, record, verdict, err := orders.Record(t.Context(), id)
		check.NoError(t, err)
		check.Same(t, "verdict", verdict, model.Accepted)
		check.Same(t, "order", got, order)
		check.Same(t, "history", record.Log, tc.history)
	})
	orders, d, offer := newDesk(t)
	for _, id := range []string{"", "x", purchaseIDs.Derive("ann", offer.ID, "none")} {
		_, _, verdict, err := orders.Record(t.Context(), id)
		check.NoError(t, err)
		check.Same(t, id, verdict, model.NotFound)
	}
	check.Same(t, "look-ups", d.looked, 1)
}
