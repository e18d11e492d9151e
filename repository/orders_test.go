package repository

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// absent is the status of an attempt that was never stored.
const absent model.OrderStatus = "absent"

// orderIn makes an attempt of the user "me", and brings its order to a status on the regular way. The payment is the
// order's, if there is one.
func (d *testDB) orderIn(t *testing.T, sale model.Sale, status model.OrderStatus) (a model.Attempt, p model.Payment) {
	t.Helper()
	a = attempt(sale.ID, "me", "k", 1)
	p = model.Payment{ID: "no payment", AmountCents: sale.PriceCents, Provider: "bank"}
	switch status {
	case absent:
		return a, p
	case model.OrderRejected:
		d.refuse(t, a, model.ReasonFailed)
		return a, p
	default:
	}
	order := *d.deduct(t, a)[0].Order
	p = d.startPayment(t, order)
	switch status {
	case model.OrderPaid:
		d.pay(t, p, "txn 1 "+sale.ID)
	case model.OrderRefunded:
		d.pay(t, p, "txn 1 "+sale.ID)
		d.refund(t, order)
	case model.OrderCancelled:
		d.cancel(t, order)
	case model.OrderExpired:
		d.expire(t, order)
	default:
	}
	check.Same(t, "status", d.order(t, a.ID).Status, status)
	return a, p
}

// An act moves units of the stock row. It is on the order of an attempt for one unit, see orderIn.
type act struct {
	from  model.OrderStatus // of the order before the act
	do    func(ctx context.Context, d *testDB, a model.Attempt, p model.Payment) error
	to    model.OrderStatus
	units units // of a sale with 2 units, after the act
}

var acts = map[string]act{
	"deduct":             {absent, takeBy(deducting), model.OrderPending, units{available: 1, held: 1}},
	"deduct locked":      {absent, takeBy(locking), model.OrderPending, units{available: 1, held: 1}},
	"look and overwrite": {absent, takeBy(looking), model.OrderPending, units{available: 1, held: 1}},
	"settle":             {absent, takeBy(settling), model.OrderPending, units{available: 1, held: 1}},
	"cancel": {model.OrderPending, func(ctx context.Context, d *testDB, a model.Attempt, _ model.Payment) error {
		_, _, err := d.Cancel(ctx, a.UserID, a.ID)
		return err
	}, model.OrderCancelled, units{available: 2}},
	"expire": {model.OrderPending, func(ctx context.Context, d *testDB, a model.Attempt, _ model.Payment) error {
		_, err := d.Expire(ctx, a.SaleID, []string{a.ID})
		return err
	}, model.OrderExpired, units{available: 2}},
	"pay":      {model.OrderPending, payBy("in time "), model.OrderPaid, units{available: 1, paid: 1}},
	"pay late": {model.OrderExpired, payBy("late "), model.OrderPaid, units{available: 1, paid: 1}},
	"refund": {model.OrderPaid, func(ctx context.Context, d *testDB, a model.Attempt, _ model.Payment) error {
		_, _, err := d.RefundOrder(ctx, a.ID, "op")
		return err
	}, model.OrderRefunded, units{available: 2}},
}

func takeBy(by way) func(context.Context, *testDB, model.Attempt, model.Payment) error {
	return func(ctx context.Context, d *testDB, a model.Attempt, _ model.Payment) error {
		_, err := by.try(ctx, d, a)
		return err
	}
}

func payBy(txn string) func(context.Context, *testDB, model.Attempt, model.Payment) error {
	return func(ctx context.Context, d *testDB, a model.Attempt, p model.Payment) error {
		_, _, _, err := d.ApplyReport(ctx, "bank", paidBy(p, txn+a.ID), true)
		return err
	}
}

// Every act on an order in every status: the verdict, the returned order, and the status after it. Orders move only along
// the arrows of the model. An act that does not move the order does not change the stock.
func TestOrderLife(t *testing.T) {
	const (
		pending, paid, cancelled = model.OrderPending, model.OrderPaid, model.OrderCancelled
		expired, refunded        = model.OrderExpired, model.OrderRefunded
		yes, none                = model.Accepted, model.NotFound
		notCan, notRef, notPay   = model.NotCancellable, model.NotRefundable, model.NotPayable
		notDue                   = model.Verdict("not due")
	)
	type result func(t *testing.T, d *testDB, id string, p model.Payment) (model.Order, model.Verdict, error)
	cancels := func(user string) result {
		return func(t *testing.T, d *testDB, id string, _ model.Payment) (model.Order, model.Verdict, error) {
			return d.Cancel(t.Context(), user, id)
		}
	}
	starts := func(user string) result {
		return func(t *testing.T, d *testDB, id string, _ model.Payment) (order model.Order, verdict model.Verdict, err error) {
			_, verdict, err = d.StartPayment(t.Context(), user, id, "bank")
			return order, verdict, err
		}
	}
	report := func(succeeded bool) result {
		return func(t *testing.T, d *testDB, id string, p model.Payment) (order model.Order, verdict model.Verdict, err error) {
			result := model.PaymentSucceeded
			if !succeeded {
				result = model.PaymentFailed
			}
			order, _, verdict, err = d.ApplyReport(t.Context(), "bank", reported(p, "txn 2 "+id, result), true)
			return order, verdict, err
		}
	}
	expires := func(t *testing.T, d *testDB, id string, _ model.Payment) (order model.Order, verdict model.Verdict, err error) {
		d.overdue(t, time.Second, id)
		bySale, err := d.expireDue(t.Context(), 0, 100)
		if len(bySale[model.SaleOf(id)]) == 1 {
			return order, yes, err
		}
		return order, notDue, err
	}
	refunds := func(t *testing.T, d *testDB, id string, _ model.Payment) (model.Order, model.Verdict, error) {
		return d.RefundOrder(t.Context(), id, "op")
	}
	ends := func(t *testing.T, d *testDB, id string, _ model.Payment) (model.Order, model.Verdict, error) {
		return d.CancelAny(t.Context(), id, "op")
	}
	type list = []model.Verdict
	type moves = map[model.OrderStatus]model.OrderStatus
	froms := []model.OrderStatus{absent, model.OrderRejected, pending, paid, cancelled, expired, refunded}
	tests := map[string]struct {
		act      result
		verdicts list  // by froms
		moves    moves // in any other status the order stays
	}{
		"its owner cancels":          {cancels("me"), list{none, none, yes, notCan, notCan, notCan, notCan}, moves{pending: cancelled}},
		"another user cancels":       {cancels("Me"), list{none, none, none, none, none, none, none}, nil},
		"its time is over":           {expires, list{notDue, notDue, yes, notDue, notDue, notDue, notDue}, moves{pending: expired}},
		"the operator refunds":       {refunds, list{none, none, notRef, yes, notRef, notRef, notRef}, moves{paid: refunded}},
		"support cancels":            {ends, list{none, none, yes, notCan, notCan, notCan, notCan}, moves{pending: cancelled}},
		"its owner starts to pay":    {starts("me"), list{none, none, yes, notPay, notPay, notPay, notPay}, nil},
		"another user starts to pay": {starts("you"), list{none, none, none, none, none, none, none}, nil},
		"it is paid":                 {report(true), list{none, none, yes, yes, yes, yes, yes}, moves{pending: paid, expired: paid}},
		"its payment is declined":    {report(false), list{none, none, yes, yes, yes, yes, yes}, nil},
	}
	left := map[model.OrderStatus]units{pending: {held: 1}, paid: {paid: 1}}
	onBoth(t, func(t *testing.T, d *testDB) {
		for name, tc := range tests {
			for i, from := range froms {
				t.Run(fmt.Sprintf("%s/%s", from, name), func(t *testing.T) {
					sale := d.newSale(t, 1)
					a, p := d.orderIn(t, sale, from)
					before := d.stock(t, sale.ID)
					returned, verdict, err := tc.act(t, d, a.ID, p)
					if err != nil || verdict != tc.verdicts[i] {
						t.Errorf("got %s, %v, want %s", verdict, err, tc.verdicts[i])
					}
					order, _, err := d.Order(t.Context(), a.ID)
					check.NoError(t, err)
					to := cmp.Or(tc.moves[from], from)
					check.Same(t, "status", cmp.Or(order.Status, absent), to)
					if verdict == none || returned.ID != "" { // another user's order is not returned
						check.Same(t, "the returned order", returned, map[bool]model.Order{true: {}, false: order}[verdict == none])
					}
					after := d.stock(t, sale.ID)
					if to == from {
						check.Same(t, "the stock", after, before)
						return
					}
					if !from.CanBecome(to) {
						t.Errorf("the model has no arrow from %s to %s", from, to)
					}
					u := left[to]
					u.available = 1 - u.held - u.paid
					d.wantUnits(t, sale.ID, u)
					check.Same(t, "version", after.Version, before.Version+1)
					var told []model.GateChange
					if moved := after.Available - before.Available; moved != 0 {
						told = []model.GateChange{{Version: after.Version, OrderID: a.ID, UserID: "me", Units: moved}}
					}
					check.Same(t, "changes for the gate", fmt.Sprint(d.told(t, sale.ID, before.Version)), fmt.Sprint(told))
				})
			}
		}
	})
}

// Orders expire after their time to pay and the grace, the longest overdue first, a limited number at a time.
func TestExpireDue(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sales := []model.Sale{d.newSale(t, 9, limit(3)), d.newSale(t, 9, limit(3))}
		byAge := make([]model.Order, 5)
		for i, by := range []time.Duration{time.Hour, 40 * time.Minute, 20 * time.Minute, 10 * time.Minute, -time.Minute} {
			byAge[i] = d.buy(t, sales[i%2].ID, fmt.Sprint("user", i), i%3+1)
			d.overdue(t, by, byAge[i].ID)
		}
		for _, step := range []struct {
			name  string
			grace time.Duration
			limit int
			want  []int // places in byAge
		}{
			{"no order within a long grace", 2 * time.Hour, 9, nil},
			{"only the order beyond the grace", 50 * time.Minute, 9, []int{0}},
			{"the longest overdue, as many as the limit", 0, 2, []int{1, 2}},
			{"the rest", 0, 9, []int{3}},
			{"no order before its time", 0, 9, nil},
		} {
			t.Run(step.name, func(t *testing.T) {
				bySale, err := d.expireDue(t.Context(), step.grace, step.limit)
				check.NoError(t, err)
				want := map[string][]model.Release{}
				for _, i := range step.want {
					o := byAge[i]
					want[o.SaleID] = append(want[o.SaleID], model.Release{OrderID: o.ID, UserID: o.UserID, Units: o.Quantity})
					check.Same(t, "status", d.order(t, o.ID).Status, model.OrderExpired)
					check.Same(t, "the user's units", d.live(t, o.SaleID, o.UserID), 0)
				}
				check.Same(t, "releases", bySale, want)
			})
		}
		d.wantUnits(t, sales[0].ID, units{available: 7, held: 2}) // the last order
		d.wantUnits(t, sales[1].ID, units{available: 9})
	})
}

// manyOrders makes n orders of three users on two sales, several at a time, and returns them with the newest first.
func manyOrders(t *testing.T, d *testDB, n int) (list []model.Order, sales []model.Sale) {
	t.Helper()
	sales = []model.Sale{d.newSale(t, int64(n), limit(n)), d.newSale(t, int64(n), limit(n))}
	for i := 0; i < n; i += 4 {
		sale, batch := sales[i/4%2], make([]model.Attempt, 0, 4)
		for j := range min(4, n-i) {
			batch = append(batch, attempt(sale.ID, fmt.Sprint("user", (i+j)%3), fmt.Sprint("k", i+j), 1))
		}
		for _, o := range d.deduct(t, batch...) {
			list = append(list, *o.Order)
		}
	}
	slices.Reverse(list)
	return list, sales
}

func orderID(o model.Order) string { return o.ID }

func TestOrdersPages(t *testing.T) {
	const n = 22
	onBoth(t, func(t *testing.T, d *testDB) {
		all, sales := manyOrders(t, d, n)
		for i := 0; i < n; i += 5 {
			all[i] = d.cancel(t, all[i])
		}
		campaign := []string{sales[0].ID, sales[1].ID}
		for len(campaign) < model.MaxVariants {
			campaign = append(campaign, model.NewSaleID())
		}
		check.Each(t, map[string]model.OrderFilter{
			"all":                              {},
			"of a user":                        {UserID: "user1"},
			"of a sale":                        {SaleIDs: []string{sales[1].ID}},
			"of a campaign":                    {SaleIDs: campaign},
			"of a campaign in a status":        {SaleIDs: campaign, Status: model.OrderCancelled},
			"of a user in a campaign":          {SaleIDs: campaign, UserID: "user1"},
			"one order of a campaign":          {SaleIDs: campaign, ID: all[7].ID},
			"in a status":                      {Status: model.OrderCancelled},
			"one order":                        {ID: all[7].ID},
			"the beginning of an id":           {ID: all[7].ID[:20]},
			"a number in all sales":            {Number: model.OrderNumber(all[7].ID)},
			"a number in all sales, begun":     {Number: model.OrderNumber(all[7].ID)[:1]},
			"a number in a status":             {Number: model.OrderNumber(all[5].ID), Status: model.OrderCancelled},
			"users by their beginning":         {UserPrefix: "user"},
			"a user by the beginning":          {UserPrefix: "user1"},
			"users of a sale":                  {UserPrefix: "use", SaleIDs: []string{sales[1].ID}},
			"no user begins so":                {UserPrefix: "users"},
			"one number":                       {Number: model.OrderNumber(all[7].ID), SaleIDs: []string{sales[0].ID, sales[1].ID}},
			"the beginning of a number":        {Number: model.OrderNumber(all[7].ID)[:1], SaleIDs: []string{sales[0].ID, sales[1].ID}},
			"of a sale in a status":            {SaleIDs: []string{sales[0].ID}, Status: model.OrderCancelled},
			"one order of another sale":        {ID: all[7].ID, SaleIDs: []string{"another"}},
			"of an unknown user":               {UserID: "nobody"},
			"of a user and a sale in a status": {UserID: "user0", SaleIDs: []string{sales[0].ID}, Status: model.OrderPending},
		}, func(t *testing.T, filter model.OrderFilter) {
			var want []string
			for _, o := range all {
				if o.UserID == cmp.Or(filter.UserID, o.UserID) && (filter.SaleIDs == nil || slices.Contains(filter.SaleIDs, o.SaleID)) &&
					strings.HasPrefix(o.UserID, filter.UserPrefix) &&
					o.Status == cmp.Or(filter.Status, o.Status) && strings.HasPrefix(o.ID, filter.ID) && strings.HasPrefix(model.OrderNumber(o.ID), filter.Number) {
					want = append(want, o.ID)
				}
			}
			for _, size := range []int{1, 3, 11, n, n + 1} {
				wantPages(t, size, func(cursor string) ([]model.Order, string, error) {
					filter.Cursor, filter.Limit = cursor, size
					return d.Orders(t.Context(), filter)
				}, orderID, want)
			}
		})
	})
}

// Orders that arrive or change between two pages move no order to another page.
func TestOrdersPagesStayWhereTheyAre(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		all, sales := manyOrders(t, d, 12)
		want := make([]string, len(all))
		for i, o := range all {
			want[i] = o.ID
		}
		turns := 0
		wantPages(t, 5, func(cursor string) ([]model.Order, string, error) {
			if cursor != "" {
				turns++
				d.deduct(t, attempt(sales[0].ID, "late", fmt.Sprint("k", turns), 1))
				d.cancel(t, all[5*turns]) // the first order of the next page
			}
			return d.Orders(t.Context(), model.OrderFilter{Cursor: cursor, Limit: 5})
		}, orderID, want)
	})
}

// A page costs as much as it shows, however many orders the sale or the user has and however old the page is.
func TestHole56_OrdersPagesAreCheap(t *testing.T) {
	const n, page = 200, 5
	onBoth(t, func(t *testing.T, d *testDB) {
		all, sales := manyOrders(t, d, n)
		d.exec(t, "UPDATE orders SET status = 'expired' WHERE id = ?", all[n-1].ID) // the only one
		defer d.exec(t, "UPDATE orders SET status = 'pending' WHERE id = ?", all[n-1].ID)
		lone := openStore(t, d.address, 1) // MySQL counts rows for each connection
		_, old, err := lone.Orders(t.Context(), model.OrderFilter{Limit: n / 2})
		check.NoError(t, err)
		type row struct {
			filter model.OrderFilter
			plan   string // SQLite's search by an index
		}
		check.Each(t, map[string]row{
			"the newest":           {model.OrderFilter{}, "orders_status (sale_id=? AND status=? AND number<?)"},
			"older ones":           {model.OrderFilter{Cursor: old}, "orders_status (sale_id=? AND status=? AND number<?)"},
			"in a status":          {model.OrderFilter{Status: model.OrderPending}, "orders_status (sale_id=? AND status=? AND number<?)"},
			"in a rare status":     {model.OrderFilter{Status: model.OrderExpired}, "orders_status (sale_id=? AND status=? AND number<?)"},
			"older in a status":    {model.OrderFilter{Status: model.OrderPending, Cursor: old}, "orders_status (sale_id=? AND status=? AND number<?)"},
			"by id":                {model.OrderFilter{ID: all[n-1].ID}, "orders_id (id>? AND id<?"},
			"by number":            {model.OrderFilter{Number: model.OrderNumber(all[n-1].ID)}, "orders_id (id>? AND id<?"},
			"of an unknown user":   {model.OrderFilter{UserID: "nobody"}, "orders_user (user_id=? AND number<?)"},
			"of a user":            {model.OrderFilter{UserID: "user0"}, "orders_user (user_id=? AND number<?)"},
			"older ones of a user": {model.OrderFilter{UserID: "user0", Cursor: old}, "orders_user (user_id=? AND number<?)"},
		}, func(t *testing.T, tc row) {
			if tc.filter.Limit = page; tc.filter.UserID != "user0" {
				tc.filter.SaleIDs = []string{sales[0].ID}
			}
			before := lone.rowsRead(t)
			_, _, err := lone.Orders(t.Context(), tc.filter)
			check.NoError(t, err)
			if !lone.sqlite {
				if read := lone.rowsRead(t) - before; read > 8*page { // of two indexes and of the rows themselves
					t.Errorf("%d rows were read for %d", read, page)
				}
				return
			}
			var steps []struct{ Detail string }
			parts, err := lone.orderParts(t.Context(), tc.filter)
			check.NoError(t, err)
			query, args := numbersOf(parts, math.MaxInt64, page)
			check.NoError(t, lone.read.WithContext(t.Context()).Raw("EXPLAIN QUERY PLAN "+query, args...).Scan(&steps).Error)
			searches := 0
			for _, step := range steps {
				if strings.Contains(step.Detail, " orders ") {
					searches++
					if !strings.Contains(step.Detail, "INDEX "+tc.plan) {
						t.Errorf("%s, want a search by %s", step.Detail, tc.plan)
					}
				}
			}
			if searches == 0 {
				t.Errorf("the plan is %v", steps)
			}
		})
	})
}

// rowsRead returns how many rows this store's only connection has read. SQLite does not count them.
func (d *testDB) rowsRead(t *testing.T) (n int64) {
	t.Helper()
	if d.sqlite {
		return 0
	}
	return d.count(t, `SELECT SUM(VARIABLE_VALUE) FROM information_schema.SESSION_STATUS
		WHERE VARIABLE_NAME LIKE 'HANDLER_READ%' AND VARIABLE_NAME <> 'HANDLER_READ_RND_NEXT'`)
}

func TestOrdersRefusesBadCursors(t *testing.T) {
	encode := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	onBoth(t, func(t *testing.T, d *testDB) {
		d.buy(t, d.newSale(t, 1).ID, "me", 1)
		for name, cursor := range map[string]string{
			"no base64":             "!!!",
			"padded base64":         base64.URLEncoding.EncodeToString([]byte("1")),
			"a number and more":     encode("12."),
			"a word":                encode("now"),
			"a number out of range": encode("99999999999999999999"),
		} {
			list, next, err := d.Orders(t.Context(), model.OrderFilter{Cursor: cursor, Limit: 5})
			if !errors.Is(err, model.ErrBadCursor) || list != nil || next != "" {
				t.Errorf("%s: %d orders, %q, %v", name, len(list), next, err)
			}
		}
		list, _, err := d.Orders(t.Context(), model.OrderFilter{Cursor: encode("0"), Limit: 5})
		if err != nil || len(list) != 0 {
			t.Errorf("a cursor before all orders gives %d, %v", len(list), err)
		}
	})
}

// The number of orders that a user may cancel in a sale is limited. The limit harms neither the order that stands nor
// other sales.
func TestHole57_CancelLoop(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale, other := d.newSale(t, 3), d.newSale(t, 3)
		for range cancelMost {
			d.cancel(t, d.buy(t, sale.ID, "me", 1))
		}
		last := d.buy(t, sale.ID, "me", 1)
		if _, verdict, err := d.Cancel(t.Context(), "me", last.ID); verdict != model.NotCancellable || err != nil {
			t.Errorf("one more: %s, %v", verdict, err)
		}
		check.Same(t, "status of the last order", d.order(t, last.ID).Status, model.OrderPending)
		d.cancel(t, d.buy(t, other.ID, "me", 1))
	})
}

// Support finds an order by each name of its payments: the engine's, and the provider's for what it has opened and what was paid.
func TestOrdersByPayment(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale, other := d.newSale(t, 9, limit(9)), d.newSale(t, 9)
		order := d.buy(t, sale.ID, "me", 1)
		payment := d.startPayment(t, order)
		d.exec(t, "UPDATE payments SET reference = 'session' WHERE id = ?", payment.ID)
		payment.Reference = "session"
		d.pay(t, payment, "txn")
		d.startPayment(t, d.buy(t, other.ID, "you", 1))
		for name, found := range map[string]bool{payment.ID: true, "session": true, "txn": true, "sess": false, "TXN": false, "": true} {
			list, next, err := d.Orders(t.Context(), model.OrderFilter{Payment: name, SaleIDs: []string{sale.ID}, Limit: 5})
			check.NoError(t, err)
			check.Same(t, name+": orders", len(list), map[bool]int{true: 1}[found])
			check.Same(t, name+": next page", next, "")
		}
		list, _, err := d.Orders(t.Context(), model.OrderFilter{Payment: "txn", SaleIDs: []string{other.ID}, Limit: 5})
		check.NoError(t, err)
		check.Same(t, "orders of another sale", len(list), 0)
	})
}

// A search by the beginning of a number asks each sale for it, and reads no other orders.
func TestNumbersOfAllSalesAreCheap(t *testing.T) {
	const sales, each = 40, 25
	onBoth(t, func(t *testing.T, d *testDB) {
		var last model.Order
		for range sales {
			sale := d.newSale(t, each)
			attempts := make([]model.Attempt, each)
			for i := range attempts {
				attempts[i] = attempt(sale.ID, fmt.Sprint("user", i), "k", 1)
			}
			last = *d.deduct(t, attempts...)[0].Order
		}
		lone := openStore(t, d.address, 1) // MySQL counts rows for each connection
		before := lone.rowsRead(t)
		list, _, err := lone.Orders(t.Context(), model.OrderFilter{Number: model.OrderNumber(last.ID)[:4], Limit: 5})
		check.NoError(t, err)
		check.Same(t, "the order is found", slices.ContainsFunc(list, func(o model.Order) bool { return o.ID == last.ID }), true)
		if read := lone.rowsRead(t) - before; read > 4*sales+8*int64(len(list)) {
			t.Errorf("%d rows were read for %d sales with %d orders", read, sales, sales*each)
		}
	})
}

// The record of an order has when it ended, its payments, and what operators did to it and to no other order.
func TestOrderRecord(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		for _, status := range model.StoredStatuses {
			sale := d.newSale(t, 3, limit(3))
			a, payment := d.orderIn(t, sale, status)
			d.refund(t, d.payFor(t, d.buy(t, sale.ID, "other", 1)))
			record, err := d.OrderRecord(t.Context(), a.ID)
			check.NoError(t, err)
			ended := status != model.OrderPending && status != model.OrderPaid
			check.Same(t, string(status)+" has ended", !record.EndedAt.IsZero(), ended)
			if ended && d.now(t).Sub(record.EndedAt) > check.Patience {
				t.Errorf("it ended at %s", record.EndedAt)
			}
			check.Same(t, "payments", len(record.Payments), 1)
			check.Same(t, "payment", record.Payments[0].ID, payment.ID)
			var actions []string
			for _, e := range record.Log {
				actions = append(actions, e.Actor+" "+e.Action)
			}
			check.Same(t, string(status)+": actions", actions, map[model.OrderStatus][]string{model.OrderRefunded: {"op refund"}}[status])
		}
		record, err := d.OrderRecord(t.Context(), "NONE")
		check.NoError(t, err)
		check.Same(t, "of no order", len(record.Payments)+len(record.Log), 0)
	})
}
