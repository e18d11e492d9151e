package fault

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"flashsale/test/kit/shop"
)

// lookPeriod is how often the books are checked while a fault lasts.
const lookPeriod = 100 * time.Millisecond

// written is an order as stored in the database.
type written struct {
	id, user, key, status string
	units                 int64
}

func (w written) live() bool { return w.status == "pending" || w.status == "paid" }

// ledger reads the database with its own queries, so that an error in the engine's reads can't hide an error in its
// writes.
type ledger struct{ db *sql.DB }

func openLedger(database string) (*ledger, error) {
	u, err := url.Parse(database)
	if err != nil {
		return nil, err
	}
	config, err := mysql.ParseDSN(fmt.Sprintf("%s@tcp(%s)%s?timeout=1s&readTimeout=5s", u.User, u.Host, u.Path))
	if err != nil {
		return nil, err
	}
	config.Logger = &mysql.NopLogger{} // connection errors are expected, since a row may kill the database
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	return &ledger{sql.OpenDB(connector)}, nil
}

func (l *ledger) close() { _ = l.db.Close() }

func (l *ledger) orders(ctx context.Context, sale string) (orders []written, err error) {
	rows, err := l.db.QueryContext(ctx, "SELECT id, user_id, request_key, status, quantity FROM orders WHERE sale_id = ?", sale)
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
	quota, available, held, paid int64
	pendingOrders, paidOrders    int64
	buyers                       int64
}

func (l *ledger) balance(ctx context.Context, sale string) (b balance, err error) {
	err = l.db.QueryRowContext(ctx, `SELECT quota, available, held, paid,
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

// firstImbalance checks the books every lookPeriod and returns the first imbalance, or "" when ctx ends. It ignores
// read errors, because the database may be down.
func (l *ledger) firstImbalance(ctx context.Context, sale string) string {
	ticker := time.NewTicker(lookPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ""
		case <-ticker.C:
		}
		if wrong, err := l.imbalance(ctx, sale); err == nil && wrong != "" {
			return wrong
		}
	}
}

// findings are the violations that the checkers have found in a run.
type findings struct {
	confirmed int      // attempts that were answered 201, or queued ones that became orders
	lost      []string // confirmed orders that are missing, or not in the state in which they were left
	doubled   []string // a second order for an id or a request key
	over      []string // more than the quota, or a user's limit; orders that no attempt can have made; wrong books
	open      []string // queued attempts that have not ended
}

func (f findings) clean() bool { return len(f.lost)+len(f.doubled)+len(f.over)+len(f.open) == 0 }

func (f findings) String() string {
	return fmt.Sprintf("%d confirmed; lost %s, doubled %s, over %s, open %s", f.confirmed,
		some(f.lost), some(f.doubled), some(f.over), some(f.open))
}

// some formats a list as its length and its first elements, at most three.
func some(list []string) string {
	return fmt.Sprintf("%d %q", len(list), list[:min(3, len(list))])
}

// judge compares the buyers' answers with the orders, which were read after the last answer. A confirmed order exists
// exactly once and belongs to its buyer. An attempt without an answer has at most one order. An attempt that was only
// ever refused has none. No user's units exceed the limit, and the units of the sale do not exceed the quota. A queued
// attempt has ended. status asks the engine for the status of a queued order that is not in the database.
func judge(attempts []shop.Attempt, orders []written, quota int64, limit int64, status func(a shop.Attempt) string) (f findings) {
	byID, byKey, unitsOf := map[string]written{}, map[[2]string]bool{}, map[string]int64{}
	total := int64(0)
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

// watch checks the books until the returned function is called. That function fails the row if the books were ever
// wrong.
func (d *drill) watch(s *shop.Shop, sale string) (end func()) {
	d.Helper()
	books, err := openLedger(s.Database)
	if err != nil {
		d.Fatal(err)
	}
	ctx, cancel := context.WithCancel(d.Context())
	seen := make(chan string, 1)
	go func() { seen <- books.firstImbalance(ctx, sale) }()
	return func() {
		cancel()
		if wrong := <-seen; wrong != "" {
			d.Errorf("while it lasted: %s", wrong)
			d.result.Over++
		}
		books.close()
	}
}

// recovered ends most rows, when the fault is over. Within the time of a recovery new buyers buy exactly the rest,
// every queued attempt ends, and gate and database agree. Nothing may be lost, doubled or over.
func (d *drill) recovered(s *shop.Shop, sale string, quota int64, attempts []shop.Attempt, urls ...string) {
	d.Helper()
	d.recoveredOn(s, sale, terms{quota: quota, limit: 1, within: recoveryTime}, attempts, urls...)
}

// recoveredOn is recovered for a sale with other terms.
func (d *drill) recoveredOn(s *shop.Shop, sale string, t terms, attempts []shop.Attempt, urls ...string) {
	d.Helper()
	start := time.Now()
	f, err := d.sellRest(s, sale, t, attempts, urls...)
	d.result.Recovery = time.Since(start)
	d.result.Confirmed, d.result.Lost, d.result.Doubled = f.confirmed, len(f.lost), len(f.doubled)
	f.over = append(f.over, d.record.changed(func(a shop.Attempt) string { return d.settledStatus(s, urls[0], a) })...)
	d.result.Over += len(f.over)
	if err != nil {
		d.Errorf("not within %s: %v", t.within, err)
	}
	if !f.clean() {
		d.Errorf("%s", f)
	}
	s.Audited(urls[0], sale)
}

// terms are the quota and the limit of a sale, and the time in which its rest has to be sold.
type terms struct {
	quota, limit int64
	within       time.Duration
}

// sellRest lets new buyers buy until the quota is sold and no queued attempt is open, or the time is over.
func (d *drill) sellRest(s *shop.Shop, sale string, t terms, attempts []shop.Attempt, urls ...string) (f findings, err error) {
	d.record.add(toBuy, attempts...)
	books, err := openLedger(s.Database)
	if err != nil {
		return f, err
	}
	defer books.close()
	rejected := map[string]bool{} // final: the engine must not take a rejection back
	status := func(a shop.Attempt) string {
		if rejected[a.OrderID] {
			return "rejected"
		}
		status := d.orderStatus(s, urls[0], a)
		rejected[a.OrderID] = status == "rejected"
		return status
	}
	deadline := time.Now().Add(t.within)
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for round := 0; ; round++ {
		wrong, err := books.imbalance(d.Context(), sale)
		var orders []written
		if err == nil {
			orders, err = books.orders(d.Context(), sale)
		}
		live := int64(0)
		if err == nil {
			f = judge(attempts, orders, t.quota, t.limit, status)
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
			if live >= t.quota && len(f.open) == 0 {
				return f, nil
			}
		}
		if time.Now().After(deadline) {
			return f, errors.Join(err, fmt.Errorf("%d of %d sold: %s", live, t.quota, f))
		}
		if live < t.quota {
			fresh := s.Rush(sale, fmt.Sprintf("rest%d-%d", round, time.Now().UnixNano()), int(min(t.quota-live, 2000))+10, nil, urls...)
			d.record.add(toBuy, fresh...)
			attempts = append(attempts, fresh...)
		}
		<-ticker.C
	}
}

// orderStatus asks the engine for the status of an attempt's order. It returns the status, or the error as text. It
// records a final status.
func (d *drill) orderStatus(s *shop.Shop, url string, a shop.Attempt) string {
	code, doc, err := s.Call(http.MethodGet, url+"/api/v1/orders/"+a.OrderID, s.Token(a.User), nil)
	if err != nil {
		return err.Error()
	}
	if code != http.StatusOK {
		return fmt.Sprint(code, " ", doc["code"])
	}
	text, _ := doc["status"].(string)
	d.record.ended(a, text)
	return text
}

// tally formats the counts of the answers for the report, the most frequent first.
func (d *drill) tally(attempts []shop.Attempt) string {
	counts := shop.Tally(attempts)
	keys := slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return cmp.Or(counts[b]-counts[a], strings.Compare(a, b)) })
	for i, k := range keys {
		name := strings.TrimSpace(k)
		if name == "0" {
			name = "no answer"
		}
		keys[i] = fmt.Sprintf("%d × %s", counts[k], name)
	}
	return strings.Join(keys, ", ")
}
