package fault

import (
	"database/sql"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"flashsale/test/kit"
	"flashsale/test/kit/shop"
)

// neighbourRows are faults of one sale, or requests of one user, that must not affect other sales and users. Their
// numbers are those of docs/holes.md.
var neighbourRows = []row{
	{49, "the stock row of one sale is locked for long", "other sales are confirmed and expire as before", lockedNeighbour},
	{50, "the books of one sale are wrong", "other sales are confirmed and expire as before; told once", wrongNeighbour},
	{56, "a user with very many orders lists them all the time", "purchases of others are as fast as before", greedyLister},
}

const (
	// unhurried is how often a buyer comes to a sale in these rows: often enough to fill every batch, without an
	// overload.
	unhurried = 10 * time.Millisecond
	// listEvery is the time between two lists of row 56.
	listEvery = time.Second / 15
	// expired is how soon overdue orders must expire.
	expired = 5 * time.Second
)

// neighbours are a sale in trouble and another sale, on two instances, with a crowd at each.
type neighbours struct {
	*drill
	shop            *shop.Shop
	books           *ledger
	urls            []string
	quota           int
	troubled, other string
	crowds          [2]*load // of the sale in trouble, and of the other
}

func (d *drill) neighbours() *neighbours {
	db := kit.MariaDB(d)
	n := &neighbours{drill: d, shop: shop.On(d, db.NewDatabase(d), kit.Redis(d)), quota: size(1_000, 12_000)}
	for range 2 {
		n.urls = append(n.urls, n.shop.Start("--pay-grace", "0s").URL)
	}
	n.troubled, n.other = n.shop.Sale(n.urls[0], n.quota), n.shop.Sale(n.urls[0], n.quota)
	var err error
	if n.books, err = openLedger(n.shop.Database); err != nil {
		d.Fatal(err)
	}
	d.Cleanup(n.books.close)
	for i, sale := range []string{n.troubled, n.other} {
		n.crowds[i] = d.rushAs(n.shop, sale, manner{every: unhurried, to: func(buyer int) string { return n.urls[buyer%len(n.urls)] }})
		n.crowds[i].more(50, time.Minute)
	}
	return n
}

// overdue ends the time to pay of some orders of a sale. The returned function reports whether they have expired.
func (n *neighbours) overdue(sale string, orders int) (gone func() (bool, error)) {
	n.Helper()
	n.execute(n.books.db, fmt.Sprintf("UPDATE orders SET expires_at_ms = 1 WHERE sale_id = '%s' AND status = 'pending' LIMIT %d", sale, orders))
	return func() (bool, error) {
		var left int
		err := n.books.db.QueryRowContext(n.Context(), "SELECT COUNT(*) FROM orders WHERE sale_id = ? AND status = 'pending' AND expires_at_ms = 1", sale).Scan(&left)
		return left == 0, err
	}
}

// bear checks that the other sale works as before while the first is in trouble.
func (n *neighbours) bear(trouble time.Duration) {
	n.Helper()
	from := time.Now()
	for time.Since(from) < trouble {
		gone := n.overdue(n.other, 5)
		n.until(expired, "the other sale's orders expire", gone)
		n.crowds[1].more(20, time.Minute)
	}
	attempts := within(n.crowds[1].soFar(), from, time.Now())
	longest, p99 := slowest(attempts)
	n.told(attempts, "201")
	// The short form runs beside other tests, so its bound is higher.
	if p99 > span(2*time.Second, 500*time.Millisecond) {
		n.Errorf("the slowest in a hundred waited %s", p99)
	}
	n.result.Happened = fmt.Sprintf("buyers of the other sale in %s: %s, p99 %s, longest %s", time.Since(from).Round(time.Second),
		n.tally(attempts), p99.Round(time.Millisecond), longest.Round(time.Millisecond))
}

// over ends the row once the trouble is over.
func (n *neighbours) over() {
	n.Helper()
	for i, sale := range []string{n.other, n.troubled} {
		n.recovered(n.shop, sale, int64(n.quota), n.crowds[1-i].stop(), n.urls...)
	}
}

func lockedNeighbour(d *drill) {
	n := d.neighbours()
	var gone func() (bool, error)
	d.transact(n.books.db, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(d.Context(), "UPDATE stock SET version = version WHERE sale_id = ?", n.troubled); err != nil {
			return err
		}
		gone = n.overdue(n.troubled, 10)
		n.bear(span(4*time.Second, 30*time.Second))
		if ended, err := gone(); ended || err != nil {
			d.Errorf("the lock did not hold: %v", err)
		}
		return nil
	})
	d.until(recoveryTime, "the orders of the sale that was locked expire", gone)
	n.over()
}

func wrongNeighbour(d *drill) {
	n := d.neighbours()
	n.crowds[0].stop()
	var held int
	if err := n.books.db.QueryRowContext(d.Context(), "SELECT held FROM stock WHERE sale_id = ?", n.troubled).Scan(&held); err != nil {
		d.Fatal(err)
	}
	move := "UPDATE stock SET held = held - %[1]d, available = available + %[1]d WHERE sale_id = '%[2]s'"
	d.execute(n.books.db, fmt.Sprintf(move, held, n.troubled))
	gone := n.overdue(n.troubled, 10)
	n.bear(span(3*time.Second, 30*time.Second))
	if ended, err := gone(); ended || err != nil {
		d.Errorf("orders have expired against the books: %v", err)
	}
	var reports int
	const violations = "SELECT COUNT(*) FROM operations WHERE actor = 'expirer' AND action = 'violation' AND subject = ?"
	if err := n.books.db.QueryRowContext(d.Context(), violations, n.troubled).Scan(&reports); err != nil || reports < 1 || reports > len(n.urls) {
		d.Errorf("%d reports of two instances, %v", reports, err)
	}
	if status, doc, err := n.shop.Call(http.MethodGet, n.urls[0]+"/readyz", "", nil); err != nil || status != http.StatusOK {
		d.Errorf("/readyz: %d %v %v", status, doc, err)
	}
	d.execute(n.books.db, fmt.Sprintf(strings.Replace(move, "- %[1]d, available = available +", "+ %[1]d, available = available -", 1), held, n.troubled))
	d.until(recoveryTime, "the orders expire once the books are right", gone)
	n.over()
}

func greedyLister(d *drill) {
	n := d.neighbours()
	n.crowds[0].stop()
	orders := size(10_000, 50_000)
	d.execute(n.books.db, fmt.Sprintf(`INSERT INTO orders (id, sale_id, user_id, quantity, amount_cents, currency, status, source, epoch,
		request_key, request_hash, created_at_ms, expires_at_ms)
		SELECT CONCAT('X', LPAD(seq, 47, '0')), 'XXXXXXXXXXXXXXXX', 'lister', 1, 100, 'CNY', 'cancelled', 'stream', 1,
		CONCAT('k', seq), REPEAT('0', 32), seq, seq FROM seq_1_to_%d`, orders))
	var lists sync.WaitGroup
	ended := make(chan struct{})
	end := sync.OnceFunc(func() {
		close(ended)
		lists.Wait()
	})
	d.Cleanup(end)
	ticker := time.NewTicker(listEvery)
	defer ticker.Stop()
	list := func() (int, shop.Document, error) {
		return n.shop.Call(http.MethodGet, n.urls[0]+"/api/v1/orders", n.shop.Token("lister"), nil)
	}
	listed, longest := 0, time.Duration(0)
	lists.Go(func() {
		for {
			select {
			case <-ended:
				return
			case <-ticker.C:
			}
			start := time.Now()
			status, doc, err := list()
			if err != nil || status != http.StatusOK {
				d.Errorf("the list: %d %v %v", status, doc, err)
			}
			listed, longest = listed+1, max(longest, time.Since(start))
		}
	})
	n.bear(span(3*time.Second, 30*time.Second))
	end()
	n.result.Happened += fmt.Sprintf("; %d lists of %d orders within %s", listed, orders, longest.Round(time.Millisecond))
	n.over()
}
