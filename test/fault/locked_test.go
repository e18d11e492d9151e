package fault

import (
	"database/sql"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"flashsale/test/kit/shop"
)

// lockedRows is a fault of single rows.
var lockedRows = []row{
	{95, "rows of one sale, or of one endpoint, are locked for long, in one table after the other", "orders of other sales are sold, paid, refunded and expire, and other endpoints hear of them", lockedTables},
}

// lockedTables locks rows in each table that a loop reads and that row 94 leaves out, while something is due for these rows.
// Meanwhile other orders live their whole life. What was due is done after the lock.
func lockedTables(d *drill) {
	d.stores()
	settings := []string{"--pay-grace", "0s", "--webhook-private"}
	first, second := d.Start(settings...), d.Start(settings...)
	good, locked := newListener(d), newListener(d)
	good.secret, locked.secret = d.tellTo(first.URL, good.URL), d.tellTo(first.URL, locked.URL)
	d.sell(size(30, 100), first, second)
	troubled := d.sale
	held := d.Rush(troubled, "held", 5, nil, d.urls...)
	d.told(held, "201")
	for _, a := range held[3:] {
		d.paysInSandbox(a)
	}
	d.sale = d.Sale(first.URL, d.quota)
	d.watched = d.watch(d.sale)

	expires := func(a shop.Attempt) func() { // soon, so that the lock comes first
		return func() {
			d.execute(d.books.db, fmt.Sprintf("UPDATE orders SET expires_at_ms = %d WHERE id = '%s'", time.Now().Add(time.Second).UnixMilli(), a.OrderID))
		}
	}
	refunded := func(a shop.Attempt) func() { return func() { d.sendBack(a) } }
	is := func(a shop.Attempt, query string) func() (bool, error) {
		return func() (bool, error) {
			n, err := d.count(query, a.OrderID)
			return n == 1, err
		}
	}
	const (
		expired  = "SELECT COUNT(*) FROM orders WHERE id = ? AND status = 'expired'"
		sentBack = "SELECT COUNT(*) FROM payments WHERE order_id = ? AND status = 'refunded'"
		payment  = "payment_id IN (SELECT id FROM payments WHERE order_id = ?)"
		reported = "SELECT COUNT(*) FROM sandbox_transactions WHERE " + payment + " AND reported = 1"
		endpoint = "SELECT id FROM endpoints WHERE url = ?"
	)
	longest := time.Duration(0)
	for i, tc := range []struct {
		table, where, of string
		due              func() // nil: the life of the other orders is enough
		done             func() (bool, error)
	}{
		{"sales", "id = ?", troubled, nil, nil},
		{"orders", "sale_id = ?", troubled, expires(held[0]), is(held[0], expired)},
		{"buyers", "sale_id = ?", troubled, expires(held[1]), is(held[1], expired)},
		{"payments", "order_id = ?", held[3].OrderID, refunded(held[3]), is(held[3], sentBack)},
		{"sandbox_transactions", payment, held[4].OrderID, func() {
			d.execute(d.books.db, "UPDATE sandbox_transactions SET reported = 0 WHERE "+payment[:len(payment)-2]+"'"+held[4].OrderID+"')")
		}, is(held[4], reported)},
		{"endpoints", "url = ?", locked.URL, nil, nil},
		{"deliveries", "endpoint_id = (" + endpoint + ")", locked.URL, nil, nil},
		{"events", "type = ?", "order.confirmed", nil, nil},
		{"event_feed", "? = ''", "", nil, nil},
		{"leases", "holder <> ?", "", nil, nil},
	} {
		if tc.due != nil {
			tc.due()
		}
		var heardLater []string
		func() {
			tx, err := d.books.db.BeginTx(d.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted}) // locks no gaps
			d.ok(err)
			defer func() { _ = tx.Rollback() }()
			d.lockRows(tx, tc.table, tc.where, tc.of)
			began := time.Now()
			heard := d.lives(fmt.Sprint("life-", i), "while rows of "+tc.table+" are locked")
			if tc.table == "event_feed" { // each event gets its number in this one row
				heardLater = heard
			} else {
				d.until(recoveryTime, "the other endpoint hears, while rows of "+tc.table+" are locked", good.heardAll(heard))
			}
			longest = max(longest, time.Since(began))
		}()
		d.until(recoveryTime, "the other endpoint hears in the end", good.heardAll(heardLater))
		if tc.done != nil {
			d.until(recoveryTime, "what was due for the rows of "+tc.table+" is done", tc.done)
		}
	}
	if longest > size(40*time.Second, 10*time.Second) {
		d.Slowf("the life of orders took %s", longest)
	}
	events, _ := good.heard()
	d.until(recoveryTime, "the endpoint whose rows were locked hears all", func() (bool, error) {
		n, _ := locked.heard()
		return n >= events, nil
	})
	d.stop()
	d.finish("rows of ten tables were locked, one after the other; three orders of the other sale lived for %s at most", ms(longest))
	d.recovered(troubled, d.quota, held)
}

// lives lets three orders of the sale live: one is paid and refunded, one is cancelled and one expires. It returns the events that
// the endpoints should hear of, each as type and order.
func (d *drill) lives(user, when string) (events []string) {
	d.Helper()
	list := make([]shop.Attempt, 3)
	for i := range list {
		list[i] = d.buy(fmt.Sprint(user, "-", i), "1", d.urls[i%2])
	}
	d.attempts = append(d.attempts, list...)
	d.told(list, "201")
	paid, cancelled, late := list[0], list[1], list[2]
	d.paysInSandbox(paid)
	d.sendBack(paid)
	if answer := d.cancel(cancelled, d.urls[0]); answer.Status != http.StatusOK {
		d.wrong(answer.Status)("cancel: %d %s", answer.Status, answer.Code)
	}
	d.execute(d.books.db, "UPDATE orders SET expires_at_ms = 1 WHERE id = '"+late.OrderID+"'")
	for a, status := range map[shop.Attempt]string{paid: "refunded", cancelled: "cancelled", late: "expired"} {
		d.until(recoveryTime, "an order is "+status+", "+when, func() (bool, error) { return d.settledStatus(d.urls[1], a) == status, nil })
		events = append(events, "order.confirmed "+a.OrderID, "order."+status+" "+a.OrderID)
	}
	d.until(recoveryTime, "the money is sent back, "+when, func() (bool, error) {
		n, err := d.count("SELECT COUNT(*) FROM payments WHERE order_id = ? AND status = 'refunded'", paid.OrderID)
		return n == 1, err
	})
	return append(events, "order.paid "+paid.OrderID)
}

// paysInSandbox pays an order on the page of the sandbox, as its buyer does, and waits until the engine has heard of it.
func (d *drill) paysInSandbox(a shop.Attempt) {
	d.Helper()
	doc := d.Must(http.StatusCreated, http.MethodPost, a.URL+"/api/v1/orders/"+a.OrderID+"/payments", d.Token(a.User), nil)
	res, err := http.PostForm(text(doc, "pay_url"), url.Values{"choice": {"pay"}}) //nolint:noctx // the server of the test
	d.ok(err)
	d.ok(res.Body.Close())
	d.until(recoveryTime, "an order is paid", func() (bool, error) { return d.orderStatus(d.urls[1], a) == "paid", nil })
}

// sendBack sends the money of an order back, as support does.
func (d *drill) sendBack(a shop.Attempt) {
	d.Helper()
	d.Must(http.StatusOK, http.MethodPost, d.urls[0]+"/api/v1/admin/orders/"+a.OrderID+"/refund", d.Operator(d.urls[0]), nil)
}

// heardAll reports whether a listener has heard of events, each given as type and order.
func (l *listener) heardAll(events []string) func() (bool, error) {
	return func() (bool, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		known := map[string]bool{}
		for _, what := range l.orders {
			known[what] = true
		}
		for _, what := range events {
			if !known[what] {
				return false, nil
			}
		}
		return true, nil
	}
}
