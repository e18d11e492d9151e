package fault

import (
	"database/sql"
	"fmt"
	"net/http"
	"time"
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
	troubled, other string
	crowds          [2]*load // of the sale in trouble, and of the other
}

func (d *drill) neighbours() *neighbours {
	d.ownDatabase()
	d.sell(size(1_000, 12_000), d.Start("--pay-grace", "0s"), d.Start("--pay-grace", "0s"))
	n := &neighbours{drill: d, troubled: d.sale, other: d.Sale(d.urls[0], d.quota)}
	for i, sale := range []string{n.troubled, n.other} {
		n.crowds[i] = d.crowdAt(sale, manner{every: unhurried, to: inTurn(d.urls...)})
		n.crowds[i].more(50)
	}
	return n
}

// overdue ends the time to pay of some orders of a sale. The returned function reports whether they have expired.
func (n *neighbours) overdue(sale string, orders int) (gone func() (bool, error)) {
	n.Helper()
	const end = "UPDATE orders SET expires_at_ms = 1 WHERE sale_id = '%s' AND status = 'pending' LIMIT %d"
	n.execute(n.books.db, fmt.Sprintf(end, sale, orders))
	return func() (bool, error) {
		left, err := n.count("SELECT COUNT(*) FROM orders WHERE sale_id = ? AND status = 'pending' AND expires_at_ms = 1", sale)
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
		n.crowds[1].more(20)
	}
	attempts := within(n.crowds[1].soFar(), from, time.Now())
	longest, p99 := slowest(attempts)
	n.toldOf(n.other, attempts, "201")
	// The short form runs beside other tests, so its bound is higher.
	if p99 > size(2*time.Second, 500*time.Millisecond) {
		n.Slowf("the slowest in a hundred waited %s", p99)
	}
	n.result.Happened = fmt.Sprintf("buyers of the other sale in %s: %s, p99 %s, longest %s", time.Since(from).Round(time.Second),
		tally(attempts), ms(p99), ms(longest))
}

// stillThere fails the row if the orders of the sale in trouble have expired.
func (n *neighbours) stillThere(gone func() (bool, error)) {
	n.Helper()
	if ended, err := gone(); ended || err != nil {
		n.Errorf("orders of the sale in trouble have expired: %v", err)
	}
}

// over ends the row once the trouble is over.
func (n *neighbours) over() {
	n.Helper()
	n.recovered(n.other, n.quota, n.crowds[1].stop())
	n.recovered(n.troubled, n.quota, n.crowds[0].stop())
}

func lockedNeighbour(d *drill) {
	n := d.neighbours()
	var gone func() (bool, error)
	d.whileLocked(n.troubled, func(*sql.Tx) {
		gone = n.overdue(n.troubled, 10)
		n.bear(size(4*time.Second, 30*time.Second))
		n.stillThere(gone)
	})
	d.until(recoveryTime, "the orders of the sale that was locked expire", gone)
	n.over()
}

func wrongNeighbour(d *drill) {
	n := d.neighbours()
	n.crowds[0].stop()
	held, err := d.count("SELECT held FROM stock WHERE sale_id = ?", n.troubled)
	d.ok(err)
	release := func(units int) {
		const move = "UPDATE stock SET held = held - (%[1]d), available = available + (%[1]d) WHERE sale_id = '%[2]s'"
		d.execute(d.books.db, fmt.Sprintf(move, units, n.troubled))
	}
	release(held)
	gone := n.overdue(n.troubled, 10)
	n.bear(size(3*time.Second, 30*time.Second))
	n.stillThere(gone)
	const violations = "SELECT COUNT(*) FROM audit_log WHERE actor = 'expirer' AND action = 'violation' AND subject = ?"
	reports, err := d.count(violations, n.troubled)
	if err != nil || reports > len(d.urls) {
		d.Errorf("%d reports of two instances, %v", reports, err)
	} else if reports < 1 {
		d.Slowf("no instance has reported the wrong books")
	}
	if status, doc, err := d.Call(http.MethodGet, d.urls[0]+"/readyz", "", nil); err != nil || status != http.StatusOK {
		d.wrong(status)("/readyz: %d %v %v", status, doc, err)
	}
	release(-held)
	d.until(recoveryTime, "the orders expire once the books are right", gone)
	n.over()
}

func greedyLister(d *drill) {
	n := d.neighbours()
	n.crowds[0].stop()
	orders := size(10_000, 50_000)
	d.execute(d.books.db, fmt.Sprintf(`INSERT INTO orders (id, sale_id, user_id, quantity, amount_cents, currency, status, source, epoch,
		idempotency_key, created_at_ms, expires_at_ms)
		SELECT CONCAT('X', LPAD(seq, 47, '0')), 'LISTERSPASTSALES', 'lister', 1, 100, 'CNY', 'cancelled', 'stream', 1,
		CONCAT('k', seq), seq, seq FROM seq_1_to_%d`, orders))
	listed, longest := 0, time.Duration(0)
	end := d.meanwhile(1, listEvery, func(int, int) {
		start := time.Now()
		status, doc, err := d.Call(http.MethodGet, d.urls[0]+"/api/v1/orders", d.Token("lister"), nil)
		if err != nil || status != http.StatusOK {
			d.wrong(status)("the list: %d %v %v", status, doc, err)
		}
		listed, longest = listed+1, max(longest, time.Since(start))
	})
	n.bear(size(3*time.Second, 30*time.Second))
	end()
	n.result.Happened += fmt.Sprintf("; %d lists of %d orders within %s", listed, orders, ms(longest))
	n.over()
}
