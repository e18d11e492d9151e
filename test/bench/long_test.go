//go:build bench && linux

package bench

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/service"
	"flashsale/test/kit/check"
)

const (
	// longOrders is how many orders the row "a long sale" begins with, unless BENCH_ORDERS names another number. The open sale and
	// each of the olderSales has the same part of them.
	longOrders, olderSales = 5_000_000, 4
	// dueAtOnce is how many orders expire in a round.
	dueAtOnce = 5_000
)

// longSale measures what an engine does beside many orders of an open sale and of older ones, and beside none. The figures are
// ratios: of rates, less than 1 is slower; of times, more than 1 is slower.
func longSale(t *testing.T, b *run, r *Result) {
	orders, control := setting(t, "BENCH_ORDERS", longOrders), &Result{}
	full, empty := start(t, r, false), start(t, control, false)
	for e, n := range map[*engine]int{full: orders, empty: 0} {
		begun := time.Now()
		e.fillOrders(n, b.rounds*dueAtOnce)
		r.note("%d orders to begin with, filled in %.0f s", n+b.rounds*dueAtOnce, time.Since(begun).Seconds())
	}
	sale := func(e *engine) string { return "/api/v1/admin/sales/" + e.sales[0] }
	got := func(path func(e *engine) string, token func(e *engine) string) func(e *engine) time.Duration {
		return func(e *engine) time.Duration {
			times := make([]time.Duration, 11)
			for i := range times {
				_, times[i] = e.get(path(e), token(e))
			}
			slices.Sort(times)
			return times[len(times)/2]
		}
	}
	operator := func(e *engine) string { return e.Operator(e.url) }
	for _, does := range []struct {
		what string
		do   func(e *engine) time.Duration
	}{
		{"a user's list", got(func(*engine) string { return "/api/v1/orders?limit=50" }, func(e *engine) string { return e.token(7) })},
		{"the sale's list", got(func(e *engine) string { return sale(e) + "/orders?limit=50" }, operator)},
		{"expiry", (*engine).expires},
		{"audit", got(func(e *engine) string { return sale(e) + "/audit" }, operator)},
		{"rebuild", (*engine).rebuilds},
	} {
		var with, without []float64
		for range b.rounds {
			with = append(with, float64(does.do(full))/float64(time.Millisecond))
			without = append(without, float64(does.do(empty))/float64(time.Millisecond))
		}
		r.least(spreadOf(ratios(with, without)).median, 0, "x "+does.what)
		r.note("%s: %s ms, without orders %s ms", does.what, spreadOf(with), spreadOf(without))
	}
	for _, kind := range []struct {
		what   string
		async  bool
		status int
	}{{"confirmed", false, http.StatusCreated}, {"queued", true, http.StatusAccepted}} {
		turnOf := func(e, other *engine) turn {
			e.async, e.status = kind.async, kind.status
			load := wrk(t, buyers, wrkConnections, false, func(i int) string { return e.purchase(e.sales[0], i) })
			under := e.under(load(e.url), wrkConnections)
			return alone(e, other, func(seconds int, from float64) Sample {
				other.mariadb.Stop() // it writes changed pages long after the load
				defer other.mariadb.Continue()
				return under(seconds, from)
			})
		}
		point, ofFull, ofEmpty := &Result{}, full.databaseCPUSince(), empty.databaseCPUSince()
		b.compare(point, turnOf(empty, full), turnOf(full, empty))
		if r.Path == nil {
			r.Path, r.Control = point.Path, point.Control
		}
		r.Void = cmp.Or(r.Void, point.Void)
		r.least(point.ratio(), 0, "of "+kind.what)
		r.note("%s: %s a second, without orders %s; %.1f %s an order, without orders %.1f", kind.what, spreadOf(collect(point.Path, rate)),
			spreadOf(collect(point.Control, rate)), ofFull(), databaseCPU, ofEmpty())
	}
	load{}.checked(full)
	load{}.checked(empty)
	for _, note := range control.Notes {
		r.note("without orders: %s", note)
	}
	r.Void = cmp.Or(r.Void, control.Void)
}

// databaseCPUSince returns a function that returns the database's processor time for an answer under load, from now on.
func (e *engine) databaseCPUSince() (each func() float64) {
	used, answers := e.used[databaseCPU], e.answers
	return func() float64 { return (e.used[databaseCPU] - used) / float64(max(1, e.answers-answers)) }
}

// fillOrders makes an open sale and older ones, and writes orders of them into the tables. So many orders of the open sale are pending;
// of the others, three quarters are paid, and the rest has expired.
func (e *engine) fillOrders(orders, pending int) {
	e.t.Helper()
	sales := make([]string, olderSales+1)
	for i := range sales {
		sales[i] = e.sale(manyUnits, manyEach)
	}
	open := sales[olderSales]
	e.sales = []string{open}
	e.instance.Stop()
	do := func(query string, args ...any) {
		e.t.Helper()
		_, err := e.root.ExecContext(e.t.Context(), query, args...)
		check.NoError(e.t, err)
	}
	restart := func(args ...string) {
		e.t.Helper()
		do("SHUTDOWN") // which writes all changed pages
		for e.mariadb.Running() {
			<-time.After(10 * time.Millisecond)
		}
		e.mariadb.RestartWith(args...)
	}
	restart("--innodb-buffer-pool-size=3G", "--innodb-log-file-size=2G", "--innodb-flush-log-at-trx-commit=2")
	schema, each, users, from := e.schema(), orders/len(sales), max(1, (orders+pending)/10), 1
	for _, sale := range sales {
		held, n := 0, each
		if sale == open {
			held, n = pending, each+pending
		}
		e.insertOrders(sale, fmt.Sprintf("IF(seq < %d, 'pending', IF(seq %% 4 = 0, 'expired', 'paid'))", from+held), from, from+n-1, users)
		from += n
		do(fmt.Sprintf(`INSERT INTO %[1]s.buyers (sale_id, user_id, units) SELECT sale_id, user_id, SUM(IF(status = 'expired', 0, quantity))
			FROM %[1]s.orders FORCE INDEX (orders_status) WHERE sale_id = ? GROUP BY user_id`, schema), sale)
		do(fmt.Sprintf(`UPDATE %[1]s.stock SET held = ?, paid = (SELECT COUNT(*) FROM %[1]s.orders WHERE sale_id = ? AND status = 'paid'),
			available = quota - held - paid, version = version + 1 WHERE sale_id = ?`, schema), held, sale, sale)
	}
	do(fmt.Sprintf("UPDATE %s.sales SET starts_at_ms = 1, ends_at_ms = 2 WHERE id <> ?", schema), open)
	do(fmt.Sprintf("ANALYZE TABLE %[1]s.orders, %[1]s.buyers", schema))
	restart("--innodb-buffer-pool-size=128M", redoLog, "--innodb-flush-log-at-trx-commit=1")
	check.NoError(e.t, e.redis.FlushAll(e.t.Context()).Err()) // the gates know nothing of these orders
	e.open()
	e.audited()
}

// expires lets dueAtOnce pending orders be overdue, and returns the time from the first that expires to the last.
func (e *engine) expires() time.Duration {
	e.t.Helper()
	_, err := e.root.ExecContext(e.t.Context(), "UPDATE "+e.schema()+".orders SET expires_at_ms = 1 WHERE sale_id = ? AND status = 'pending' ORDER BY number LIMIT ?",
		e.sales[0], dueAtOnce)
	check.NoError(e.t, err)
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	first, begun := time.Now(), time.Now()
	for left := dueAtOnce; left > 0; <-ticker.C {
		if left == dueAtOnce {
			first = time.Now()
		}
		if time.Since(begun) > toolTimeout {
			e.t.Fatalf("%d orders have not expired", left)
		}
		check.NoError(e.t, e.root.QueryRowContext(e.t.Context(),
			"SELECT COUNT(*) FROM "+e.schema()+".orders WHERE status = 'pending' AND expires_at_ms = 1").Scan(&left))
	}
	took := time.Since(first)
	e.audited()
	return took
}

// rebuilds replaces the gate of the sale, and returns the time that this took.
func (e *engine) rebuilds() time.Duration {
	e.t.Helper()
	gates := service.NewGates(e.DB, e.gate, service.NewCatalog(e.DB, time.Now), false, slog.New(slog.DiscardHandler))
	ref := model.GateRef{SaleID: e.sales[0], Shards: 1}
	epoch := func() int64 {
		states, err := e.gate.Peek(e.t.Context(), ref)
		check.NoError(e.t, err)
		return states[0].Epoch
	}
	for before := epoch(); ; <-time.After(50 * time.Millisecond) { // a rebuild does not begin soon after another
		begun := time.Now()
		check.NoError(e.t, gates.Serve(e.t.Context(), service.GateRequest{SaleID: ref.SaleID, Reason: model.RebuildDrift, Epoch: before}))
		if took := time.Since(begun); epoch() > before {
			return took
		}
	}
}
