package fault

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"flashsale/test/kit"
	"flashsale/test/kit/shop"
)

// lookPeriod is how often the books are checked while a fault lasts.
const lookPeriod = 100 * time.Millisecond

// written is an order as stored in the database.
type written struct {
	id, user, key, status string
	units                 int
}

func (w written) live() bool { return w.status == "pending" || w.status == "paid" }

// ledger reads the database with its own queries, so that an error in the engine's reads can't hide an error in its
// writes.
type ledger struct{ db *sql.DB }

func openLedger(t testing.TB, database string) *ledger {
	t.Helper()
	return &ledger{kit.OpenSQL(t, database+"?timeout=1m&readTimeout=1m")}
}

// ofSale is the condition that an order belongs to a sale, or to one of the sales of a campaign.
const ofSale = "sale_id IN (SELECT id FROM sales WHERE ? IN (id, campaign_id))"

func (l *ledger) orders(ctx context.Context, sale string) (orders []written, err error) {
	rows, err := l.db.QueryContext(ctx, "SELECT id, user_id, idempotency_key, status, quantity FROM orders WHERE "+ofSale, sale)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var w written
		if err := rows.Scan(&w.id, &w.user, &w.key, &w.status, &w.units); err != nil {
			return nil, err
		}
		orders = append(orders, w)
	}
	return orders, rows.Err()
}

// balance holds the figures of a sale at one instant: the stock row, and the sums over orders and buyers.
type balance struct {
	quota, available, held, paid int
	pendingOrders, paidOrders    int
	buyers                       int
}

func (l *ledger) balance(ctx context.Context, sale string) (b balance, err error) {
	err = l.db.QueryRowContext(ctx, `SELECT quota, available + reserved + called, held, paid,
		(SELECT COALESCE(SUM(quantity), 0) FROM orders WHERE sale_id = s.sale_id AND status = 'pending'),
		(SELECT COALESCE(SUM(quantity), 0) FROM orders WHERE sale_id = s.sale_id AND status = 'paid'),
		(SELECT COALESCE(SUM(units), 0) FROM buyers WHERE sale_id = s.sale_id)
		FROM stock s WHERE sale_id = ?`, sale).
		Scan(&b.quota, &b.available, &b.held, &b.paid, &b.pendingOrders, &b.paidOrders, &b.buyers)
	return b, err
}

// imbalance returns what is wrong with a sale's books now, or "" if they are right.
func (l *ledger) imbalance(ctx context.Context, sale string) (string, error) {
	b, err := l.balance(ctx, sale)
	switch {
	case err != nil:
		return "", err
	case b.available < 0 || b.held < 0 || b.paid < 0:
		return fmt.Sprintf("negative stock: %+v", b), nil
	case b.available+b.held+b.paid != b.quota:
		return fmt.Sprintf("the stock doesn't add up: %+v", b), nil
	case b.held != b.pendingOrders || b.paid != b.paidOrders:
		return fmt.Sprintf("stock and orders differ: %+v", b), nil
	case b.buyers != b.pendingOrders+b.paidOrders:
		return fmt.Sprintf("buyers and orders differ: %+v", b), nil
	}
	return "", nil
}

// watch checks a sale's books every lookPeriod, until the returned function is called, which looks once more and returns
// the first imbalance, or "". It ignores read errors, because the database may be down.
func (d *drill) watch(sale string) (end func() string) {
	first := ""
	look := func(int, int) {
		if wrong, err := d.books.imbalance(d.Context(), sale); err == nil && first == "" {
			first = wrong
		}
	}
	stop := d.meanwhile(1, lookPeriod, look)
	return func() string {
		stop()
		look(0, 0)
		return first
	}
}

// findings are the violations that the checkers have found in a run.
type findings struct {
	confirmed int      // attempts that were answered 201, or queued ones that became orders
	lost      []string // confirmed orders that are missing, or not in the state in which they were left
	doubled   []string // a second order for an id or an idempotency key
	over      []string // more than the quota, or a user's limit; orders that no attempt can have made; wrong books
	open      []string // queued attempts that have not ended
}

func (f findings) clean() bool { return f.sound() && len(f.open) == 0 }

// sound reports whether there are only violations that time may end.
func (f findings) sound() bool { return len(f.lost)+len(f.doubled)+len(f.over) == 0 }

func (f findings) String() string {
	text := fmt.Sprint(f.confirmed, " confirmed")
	for i, list := range [][]string{f.lost, f.doubled, f.over, f.open} {
		if len(list) > 0 {
			text += "; " + []string{"lost ", "doubled ", "over ", "open "}[i] + some(list)
		}
	}
	return text
}

// some formats a list as its length and its first elements, at most three.
func some(list []string) string {
	return fmt.Sprintf("%d %q", len(list), list[:min(3, len(list))])
}

// judge compares the buyers' answers with the orders, which were read after the last answer. A confirmed order exists
// exactly once and belongs to its buyer. An attempt without an answer has at most one order. An attempt that was only
// ever refused has none. No user's units exceed the limit, and the units of the sale do not exceed the quota. A queued
// attempt has ended. status asks the engine for the status of a queued order that is not in the database.
func judge(attempts []shop.Attempt, orders []written, quota, limit int, status func(a shop.Attempt) string) (f findings) {
	byID, byKey, unitsOf := map[string]written{}, map[[2]string]bool{}, map[string]int{}
	total := 0
	for _, w := range orders {
		if _, twice := byID[w.id]; twice || byKey[[2]string{w.user, w.key}] {
			f.doubled = append(f.doubled, w.id+" of "+w.user)
		}
		byID[w.id], byKey[[2]string{w.user, w.key}] = w, true
		if w.live() {
			unitsOf[w.user] += w.units
			total += w.units
		}
	}
	for _, user := range slices.Sorted(maps.Keys(unitsOf)) {
		if units := unitsOf[user]; units > limit {
			f.over = append(f.over, fmt.Sprintf("%s holds %d of %d", user, units, limit))
		}
	}
	if total > quota {
		f.over = append(f.over, fmt.Sprintf("%d sold of %d", total, quota))
	}
	asked, hopes, promised := map[string]bool{}, map[[2]string]bool{}, map[string]string{}
	for _, a := range attempts {
		asked[a.User] = true
		if said(a.Status) != saidNo {
			hopes[[2]string{a.User, a.Key}] = true
		}
		w, there := byID[a.OrderID]
		switch {
		case a.Confirmed() || a.Status == http.StatusAccepted && there:
			f.confirmed++
			if !there || w.user != a.User || a.Key != "" && w.key != a.Key {
				f.lost = append(f.lost, a.OrderID)
			}
			if other, again := promised[a.OrderID]; again && other != a.User {
				f.doubled = append(f.doubled, a.OrderID+" for two users")
			}
			promised[a.OrderID] = a.User
		case a.Status == http.StatusAccepted:
			if s := status(a); s != "rejected" {
				f.open = append(f.open, a.OrderID+" is "+s)
			}
		}
	}
	for _, w := range orders {
		switch {
		case !asked[w.user]:
			f.over = append(f.over, w.user+" has an order and never asked")
		case !hopes[[2]string{w.user, w.key}] && !hopes[[2]string{w.user, ""}]: // without a key the engine makes one
			f.over = append(f.over, w.user+" has an order and was only refused")
		}
	}
	return f
}

// kept compares orders with what was done to them after the purchase, and returns those in a wrong state. A cancelled
// or paid order must be in that state; if the answer never came, the order may also be pending. All other orders must
// be pending.
func kept(orders []written, deeds []deed) (broken []string) {
	may := map[string][]string{}
	for _, a := range deeds {
		then := map[string]string{toCancel: "cancelled", toPay: "paid"}[a.does]
		switch said(a.Status) {
		case saidYes:
			may[a.OrderID] = []string{then}
		case saidNothing:
			may[a.OrderID] = []string{"pending", then}
		}
	}
	for _, w := range orders {
		states, ok := may[w.id]
		if !ok {
			states = []string{"pending"}
		}
		if !slices.Contains(states, w.status) {
			broken = append(broken, fmt.Sprintf("%s is %s and may be %q", w.id, w.status, states))
		}
	}
	return broken
}

// recovered ends most rows, when the fault is over. Within the time of a recovery new buyers buy exactly the rest,
// every queued attempt ends, and gate and database agree. Nothing may be lost, doubled or over.
func (d *drill) recovered(sale string, quota int, attempts []shop.Attempt) {
	d.Helper()
	within := recoveryTime
	if d.loseAnOrder(sale) {
		within = 0 // the order does not come back
	}
	start := time.Now()
	f, err := d.sellRest(sale, quota, 1, within, attempts)
	d.result.Recovery = max(d.result.Recovery, time.Since(start)) // a row may have several sales
	d.result.Confirmed += f.confirmed
	d.result.Lost += len(f.lost)
	d.result.Doubled += len(f.doubled)
	f.over = append(f.over, d.record.changed(func(a shop.Attempt) string { return d.settledStatus(d.urls[0], a) })...)
	d.result.Over += len(f.over)
	if err != nil {
		d.Slowf("not within %s: %v", within, err)
	}
	if !f.sound() {
		d.Fatalf("%s", f) // gate and database need not agree any more
	}
	d.Audited(d.urls[0], sale)
}

// sellRest lets new buyers buy until the quota is sold and no queued attempt is open, or the time is over.
func (d *drill) sellRest(sale string, quota, limit int, within time.Duration, attempts []shop.Attempt) (f findings, err error) {
	d.record.add(toBuy, attempts...)
	rejected := map[string]bool{} // final: the engine must not take a rejection back
	status := func(a shop.Attempt) string {
		if rejected[a.OrderID] {
			return "rejected"
		}
		status := d.orderStatus(d.urls[0], a)
		rejected[a.OrderID] = status == "rejected"
		return status
	}
	deadline := time.Now().Add(within)
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for round := 0; ; round++ {
		live := 0
		wrong, err := d.books.imbalance(d.Context(), sale)
		orders, errOrders := d.books.orders(d.Context(), sale)
		if err = errors.Join(err, errOrders); err == nil {
			f = judge(attempts, orders, quota, limit, status)
			if wrong != "" {
				f.over = append(f.over, wrong)
			}
			for _, w := range orders {
				if w.live() {
					live += w.units
				}
				if rejected[w.id] {
					f.over = append(f.over, w.id+" is an order and was told to be rejected")
				}
			}
			if live >= quota && len(f.open) == 0 {
				return f, nil
			}
		}
		if time.Now().After(deadline) {
			return f, errors.Join(err, fmt.Errorf("%d of %d sold: %s", live, quota, f))
		}
		if live < quota {
			prefix := fmt.Sprintf("rest%d-%d", round, time.Now().UnixNano())
			fresh := d.Rush(sale, prefix, min(quota-live, 2000)+10, nil, d.urls...)
			d.record.add(toBuy, fresh...)
			attempts = append(attempts, fresh...)
		}
		<-ticker.C
	}
}
