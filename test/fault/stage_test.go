package fault

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"flashsale/test/kit"
	"flashsale/test/kit/pace"
	"flashsale/test/kit/shop"
)

const (
	// fast is how soon a buyer gets 503 or 202 while the database is down, on a machine that has other work.
	fast = 5 * time.Second
	// feltTries bounds the polls for the first sign of a fault.
	feltTries = 100
)

// drill is a running row: its stores and instances, its sale, and what its buyers did and were told.
type drill struct {
	testing.TB
	*shop.Shop
	result result
	record record

	books    *ledger
	sale     string         // or the campaign for which users wait in line
	variants []string       // the sales of that campaign; nil: they wait for a sale
	quota    int            // of all variants
	limit    int            // most units of a user in line; each wants that many
	urls     []string       // of the instances that sell
	load     *load          // nil: nobody comes
	attempts []shop.Attempt // of all loads that were stopped, and of other buyers that the row has added
	watched  func() string  // ends the watch over the books, see watch; nil: nobody watches

	willStand bool // the row stands still once, see standsStill
}

// useStores makes the row's shop on these stores.
func (d *drill) useStores(database string, redis *kit.RedisServer) {
	d.Helper()
	d.Shop = shop.On(d, database, redis)
	d.books = openLedger(d, database)
	d.standsStill()
}

// stores makes the row's shop on a database in the shared MariaDB, and a Redis of its own.
func (d *drill) stores(redisArgs ...string) {
	d.Helper()
	d.useStores(kit.SharedMariaDB(d).NewDatabase(d), kit.Redis(d, redisArgs...))
}

// ownDatabase makes the row's shop on servers of its own.
func (d *drill) ownDatabase(args ...string) *kit.MariaDBServer {
	d.Helper()
	db := kit.MariaDB(d, args...)
	d.useStores(db.NewDatabase(d), kit.Redis(d))
	return db
}

func (d *drill) databaseURL() *url.URL {
	d.Helper()
	u, err := url.Parse(d.Database)
	d.ok(err)
	return u
}

// sell makes a sale, which these instances sell.
func (d *drill) sell(quota int, instances ...*shop.Instance) {
	d.Helper()
	for _, i := range instances {
		d.urls = append(d.urls, i.URL)
	}
	d.quota, d.sale = quota, d.Sale(d.urls[0], quota)
}

// open makes a sale, which these instances sell, and watches its books until stop.
func (d *drill) open(quota int, instances ...*shop.Instance) {
	d.Helper()
	d.sell(quota, instances...)
	d.watched = d.watch(d.sale)
}

// gatedAndAlone starts an instance that sells through the gate, and one that has lost Redis and sells from the database
// alone. So a fault of the database meets both ways of selling. --ack-wait is short, so that no buyer waits long for an
// order that doesn't come.
func (d *drill) gatedAndAlone(args ...string) (gated, alone *shop.Instance) {
	d.Helper()
	args = append(args, "--ack-wait", "300ms")
	down := kit.Redis(d)
	gated = d.Start(args...)
	alone = d.Start(append(args, "--redis", down.URL())...)
	down.Kill()
	return gated, alone
}

// retire stops an instance. The row goes on with the others.
func (d *drill) retire(i *shop.Instance) {
	d.Helper()
	i.Stop()
	d.urls = slices.DeleteFunc(d.urls, func(url string) bool { return url == i.URL })
}

// rush starts a crowd at the sale, spread over the instances at these addresses, or over all that sell.
func (d *drill) rush(urls ...string) {
	if len(urls) == 0 {
		urls = slices.Clone(d.urls)
	}
	d.load = d.crowdAt(d.sale, manner{to: inTurn(urls...)})
}

// more waits until so many more attempts have ended, with any answer.
func (d *drill) more(answers int) {
	d.Helper()
	d.load.more(answers)
}

// pause stops the crowd and waits until every buyer has an answer.
func (d *drill) pause() {
	if d.load != nil {
		d.attempts = append(d.attempts, d.load.stop()...)
		d.load = nil
	}
}

func (d *drill) soFar() []shop.Attempt {
	if d.load == nil {
		return d.attempts
	}
	return append(slices.Clone(d.attempts), d.load.soFar()...)
}

// since returns the attempts that were both sent and answered after a time.
func (d *drill) since(from time.Time) []shop.Attempt { return within(d.soFar(), from, time.Now()) }

// stop ends the crowd and the watch over the books, which were never wrong. If answers are given, every buyer of the row
// got one of them. It returns how often each answer came.
func (d *drill) stop(answers ...string) string {
	d.Helper()
	d.pause()
	if d.watched != nil {
		if wrong := d.watched(); wrong != "" {
			d.Errorf("while the fault lasted: %s", wrong)
			d.result.Over++
		}
	}
	if len(answers) > 0 {
		d.told(d.attempts, answers...)
	}
	return tally(d.attempts)
}

// finish ends a row once the fault is over: it describes what happened and checks that the sale recovers.
func (d *drill) finish(format string, args ...any) {
	d.Helper()
	d.pause()
	d.result.Happened = fmt.Sprintf(format, args...)
	d.recovered(d.sale, d.quota, d.attempts)
}

// told fails the row if a buyer of its sale got any other answer than these.
func (d *drill) told(attempts []shop.Attempt, answers ...string) {
	d.Helper()
	d.toldOf(d.sale, attempts, answers...)
}

// toldOf is told for the buyers of another sale. On a slow machine a sale may be sold out before the row's fault is over;
// then that answer is true.
func (d *drill) toldOf(sale string, attempts []shop.Attempt, answers ...string) {
	d.Helper()
	for answer, n := range shop.Tally(attempts) {
		answer = strings.TrimSpace(answer)
		if slices.Contains(answers, answer) {
			continue
		}
		status, code, _ := strings.Cut(answer, " ")
		failed := d.wrong(number(status))
		if code == "sold_out" && d.soldOut(sale) {
			failed = d.Slowf
		}
		failed("%d × %q, want only %q", n, answer, answers)
	}
}

// soldOut reports whether all units of a sale are sold, or become so when the queued attempts have ended.
func (d *drill) soldOut(sale string) bool {
	for end := time.Now().Add(recoveryTime); time.Now().Before(end); <-time.After(lookPeriod) {
		if b, err := d.books.balance(d.Context(), sale); err == nil && b.available == 0 {
			return true
		}
	}
	return false
}

// wrong returns how an answer fails the row that should not have come. A refusal and a yes are wrong in substance. An
// answer that leaves the outcome open comes if the machine is late.
func (d *drill) wrong(status int) (failed func(format string, args ...any)) {
	if said(status) == saidNothing {
		return d.Slowf
	}
	return d.Errorf
}

// mustBe ends the row unless the condition holds. Otherwise it is as wrong.
func (d *drill) mustBe(ok bool, status int, format string, args ...any) {
	d.Helper()
	switch {
	case ok:
	case said(status) == saidNothing:
		d.FatalSlowf(format, args...)
	default:
		d.Fatalf(format, args...)
	}
}

// undecided reports whether the outcome of some attempt is open.
func undecided(attempts []shop.Attempt) bool {
	return slices.ContainsFunc(attempts, func(a shop.Attempt) bool { return said(a.Status) == saidNothing })
}

// tally formats the counts of the answers for the report.
func tally(attempts []shop.Attempt) string {
	counts := map[string]int{}
	for answer, n := range shop.Tally(attempts) {
		counts[cmp.Or(strings.TrimPrefix(strings.TrimSpace(answer), "0"), "no answer")] = n
	}
	return listed(counts)
}

// listed formats counts, the largest first.
func listed(counts map[string]int) string {
	var parts []string
	for _, name := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(counts[b]-counts[a], strings.Compare(a, b))
	}) {
		parts = append(parts, fmt.Sprintf("%d × %s", counts[name], name))
	}
	return strings.Join(parts, ", ")
}

// within returns the attempts that were both sent and answered between two times.
func within(attempts []shop.Attempt, from, to time.Time) []shop.Attempt {
	return slices.DeleteFunc(slices.Clone(attempts), func(a shop.Attempt) bool {
		return a.Invoked.Before(from) || a.Answered.After(to)
	})
}

// slowest returns the longest wait for an answer, and the 99th percentile of the waits.
func slowest(attempts []shop.Attempt) (longest, p99 time.Duration) {
	var waits []time.Duration
	for _, a := range attempts {
		waits = append(waits, a.Answered.Sub(a.Invoked))
	}
	return percentile(waits, 100), percentile(waits, 99)
}

// percentile returns the time within which so many of a hundred were answered.
func percentile(times []time.Duration, percent int) time.Duration {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[min(len(times)*percent/100, len(times)-1)]
}

func TestSlowest(t *testing.T) {
	start := time.Now()
	var attempts []shop.Attempt
	for i := range 200 {
		attempts = append(attempts, shop.Attempt{Invoked: start, Answered: start.Add(time.Duration(i) * time.Millisecond)})
	}
	if longest, p99 := slowest(attempts); longest != 199*time.Millisecond || p99 != 198*time.Millisecond {
		t.Errorf("longest %s, p99 %s", longest, p99)
	}
	if got := within(attempts, start, start.Add(9*time.Millisecond)); len(got) != 10 {
		t.Errorf("%d were answered within 9 ms, want 10", len(got))
	}
}

func ms(t time.Duration) time.Duration { return t.Round(time.Millisecond) }

func text(doc shop.Document, field string) string {
	value, _ := doc[field].(string)
	return value
}

// Slowf says that a limit of time was exceeded, which counts only while the machine kept time. Errorf is for anything
// else, and counts always.
func (d *drill) Slowf(format string, args ...any) {
	d.Helper()
	pace.Errorf(d.TB, format, args...)
}

// FatalSlowf is Slowf and ends the row.
func (d *drill) FatalSlowf(format string, args ...any) {
	d.Helper()
	pace.Fatalf(d.TB, format, args...)
}

func (d *drill) ok(err error) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
}

// until polls the function there until it returns true without an error. It fails the row after most.
func (d *drill) until(most time.Duration, what string, there func() (bool, error)) {
	d.Helper()
	deadline := time.Now().Add(most)
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		ok, err := there()
		if ok && err == nil {
			return
		}
		if time.Now().After(deadline) {
			d.FatalSlowf("%s: not within %s: %v", what, most, err)
		}
		<-ticker.C
	}
}

// inParallel calls do with each number below n, at most so many at once.
func inParallel(atOnce, n int, do func(i int)) {
	var next atomic.Int64
	var work sync.WaitGroup
	for range min(atOnce, n) {
		work.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	work.Wait()
}

// meanwhile lets some workers call do again and again, each once in a period, until the returned function is called.
func (d *drill) meanwhile(workers int, period time.Duration, do func(worker, round int)) (end func()) {
	ctx, cancel := context.WithCancel(d.Context())
	var work sync.WaitGroup
	for worker := range workers {
		work.Go(func() {
			ticker := time.NewTicker(period)
			defer ticker.Stop()
			for round := 0; ; round++ {
				select {
				case <-ctx.Done():
					return
				case <-ticker.C:
					do(worker, round)
				}
			}
		})
	}
	end = sync.OnceFunc(func() {
		cancel()
		work.Wait()
	})
	d.Cleanup(end)
	return end
}

func (d *drill) sql(query string, args ...any) *sql.Row {
	return d.books.db.QueryRowContext(d.Context(), query, args...)
}

func (d *drill) count(query string, args ...any) (n int, err error) {
	err = d.sql(query, args...).Scan(&n)
	return n, err
}

// execute runs statements that have to succeed.
func (d *drill) execute(db *sql.DB, statements ...string) {
	d.Helper()
	for _, statement := range statements {
		if _, err := db.ExecContext(d.Context(), statement); err != nil {
			d.Fatalf("%s: %v", statement, err)
		}
	}
}

// status reads a counter of a MariaDB server.
func (d *drill) status(db *sql.DB, name string) (n int, err error) {
	err = db.QueryRowContext(d.Context(), "SHOW GLOBAL STATUS LIKE '"+name+"'").Scan(&name, &n)
	return n, err
}

// whileLocked locks the stock row of a sale while do runs.
func (d *drill) whileLocked(sale string, do func(tx *sql.Tx)) {
	d.Helper()
	tx, err := d.books.db.BeginTx(d.Context(), nil)
	d.ok(err)
	defer func() { _ = tx.Rollback() }() // after a deadlock the transaction is rolled back already
	var available int
	d.ok(tx.QueryRowContext(d.Context(), "SELECT available FROM stock WHERE sale_id = ? FOR UPDATE", sale).Scan(&available))
	do(tx)
}

// client returns a client for a Redis, besides those of the engine, with one connection.
func (d *drill) client(r *kit.RedisServer) *redis.Client {
	c := redis.NewClient(&redis.Options{
		Addr: r.Addr(), MaxRetries: -1, PoolSize: 1,
		DialTimeout: time.Minute, WriteTimeout: time.Minute, ReadTimeout: 2 * time.Minute,
	})
	d.Cleanup(func() { _ = c.Close() })
	return c
}

// tell runs a command that must succeed, and returns its reply.
func (d *drill) tell(c *redis.Client, command ...any) string {
	d.Helper()
	reply, err := c.Do(d.Context(), command...).Result()
	if err != nil {
		d.Fatalf("%v: %v", command, err)
	}
	return fmt.Sprint(reply)
}

// figure reads one figure of a section of INFO. It returns 0 if the figure is missing, as is a count of errors that
// have not happened.
func (d *drill) figure(c *redis.Client, section, name string) int {
	d.Helper()
	for line := range strings.Lines(d.tell(c, "INFO", section)) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), name+":"); ok {
			return number(strings.TrimPrefix(text, "count="))
		}
	}
	return 0
}

func gateKey(sale, name string) string { return "fs:{" + sale + "}:" + name }

// streamEmpty reports whether all admitted attempts of the sale are settled.
func (d *drill) streamEmpty(c *redis.Client) func() (bool, error) {
	return func() (bool, error) {
		n, err := c.XLen(d.Context(), gateKey(d.sale, "stream")).Result()
		return n == 0, err
	}
}

// gateThere waits until a sale has a gate.
func (d *drill) gateThere(sale, url string) {
	d.Helper()
	d.until(time.Minute, "the sale has a gate", func() (bool, error) {
		status, doc, err := d.Call(http.MethodGet, url+"/api/v1/admin/sales/"+sale+"/audit", d.Operator(url), nil)
		gate, _ := doc["gate"].(shop.Document)
		return status == http.StatusOK && gate["epoch"] != 0.0, err
	})
}

// orderStatus asks the engine for the status of an attempt's order. It returns the status, or the error as text. It
// records a final status.
func (d *drill) orderStatus(url string, a shop.Attempt) string {
	code, doc, err := d.Call(http.MethodGet, url+"/api/v1/orders/"+a.OrderID, d.Token(a.User), nil)
	if err != nil {
		return err.Error()
	}
	if code != http.StatusOK {
		return fmt.Sprint(code, " ", doc["code"])
	}
	status := text(doc, "status")
	d.record.ended(a, status)
	return status
}

func (d *drill) buy(user, key, url string) shop.Attempt {
	if d.variants != nil {
		return d.choose(user, key, url)
	}
	a := shop.Attempt{User: user, Key: key, URL: url}
	d.Buy(&a, d.sale)
	return a
}

// cancel cancels an order as its buyer, and returns the answer.
func (d *drill) cancel(order shop.Attempt, url string) deed {
	return d.did(toCancel, order, url, func() (int, shop.Document, error) {
		return d.Call(http.MethodDelete, url+"/api/v1/orders/"+order.OrderID, d.Token(order.User), nil)
	})
}

// pay pays an order as its buyer, and returns the answer to the provider's callback. If no payment can be started, it
// returns no deed.
func (d *drill) pay(order shop.Attempt, url string) deed {
	status, doc, err := d.Call(http.MethodPost, url+"/api/v1/orders/"+order.OrderID+"/payments", d.Token(order.User), nil)
	if err != nil || status != http.StatusCreated {
		return deed{}
	}
	return d.did(toPay, order, url, func() (int, shop.Document, error) {
		return d.Callback(url, text(doc, "payment_id"), "txn-"+order.OrderID, shop.PriceCents)
	})
}

// did makes a request about an order, and returns it with its answer.
func (d *drill) did(does string, order shop.Attempt, url string, call func() (int, shop.Document, error)) deed {
	a := shop.Attempt{User: order.User, Key: order.Key, URL: url, OrderID: order.OrderID, Invoked: time.Now()}
	status, doc, err := call()
	a.Answered = time.Now()
	if err == nil {
		a.Status, a.Code = status, text(doc, "code")
	}
	return deed{does, a}
}

// openFiles makes sure that this process, and those that it starts, may have so many files open.
func (d *drill) openFiles(need uint64) {
	d.Helper()
	var limit syscall.Rlimit
	d.ok(syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	if limit.Max < need {
		d.Fatalf("this row needs %d open files, and no process here may have more than %d (ulimit -Hn)", need, limit.Max)
	}
	if limit.Cur < need {
		limit.Cur = limit.Max
		d.ok(syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	}
}
