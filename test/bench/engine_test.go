//go:build bench && linux

package bench

import (
	"database/sql"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"flashsale/gate"
	"flashsale/lab"
	"flashsale/model"
	"flashsale/service/auth"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
	"flashsale/test/kit/shop"
)

const (
	// manyUnits and manyEach let every buyer buy again and again; they are the engine's largest quota and limit.
	manyUnits, manyEach = 100_000_000, 10_000
	// validity is that of tokens and sales. A row takes minutes.
	validity = 10 * time.Hour
	buyRoute = "/api/v1/sales/:sale/:path/orders"
	buyBody  = `{"quantity":1}`
	// redoLog is MariaDB's own default. The servers of other tests have a small log, which is quick to make, but makes a busy
	// server write its pages again and again.
	redoLog = "--innodb-log-file-size=96M"
	// profile is the profile with which the shipped program is built.
	profile = "-pgo=app/serve.pgo"
)

// engineArgs enable all limiters, with limits so high that none of them refuses a buyer of the load.
var engineArgs = []string{
	"--ops-addr=127.0.0.1:0", "--limit-rate=1e6", "--limit-burst=1000000", "--ip-rate=1e6", "--user-requests=100000",
	"--ack-wait=800ms", "--log-format=json", "--log-level=info",
}

// engine is an instance under test, on stores of its own. It counts what the load tool saw of it.
type engine struct {
	*shop.Shop
	t             *testing.T
	r             *Result
	url, ops, log string // addresses, file
	instance      *shop.Instance
	mariadb       *kit.MariaDBServer // nil with embedded stores, as are the next three
	root          *sql.DB
	redis         *redis.Client
	gate          *gate.Gate
	redisDead     bool
	tokens        *auth.Tokens
	paths         *auth.Paths
	sales         []string

	prefix string                   // of the buyers' ids
	sign   func(user string) string // tokens of an issuer; nil: the engine's own

	inLine                      bool               // the sales are in line
	campaignID                  string             // of the sales; empty: they belong to none
	keyed, async                bool               // requests have an Idempotency-Key; buyers do not wait for their orders
	status                      int                // of each answer
	answers, refused, bytesRead int64              // under load
	accepted                    int64              // also before the load
	left                        int64              // upper bound on the requests in flight when their clients left
	used                        map[string]float64 // under load
	peakMiB                     float64
	troubles                    int // lines of the log at warn and above
}

// start runs an engine on MariaDB and Redis. If embedded is set, it has an SQLite file and the Redis inside the process.
func start(t *testing.T, r *Result, embedded bool, args ...string) *engine {
	t.Helper()
	return startOn(t, r, shop.Build(t, profile), oneServer(embedded), args...)
}

// startOn starts a program as the engine on a database, and on a Redis of its own unless it is embedded.
func startOn(t *testing.T, r *Result, program string, of servers, args ...string) *engine {
	t.Helper()
	mariadb, database := of(t)
	e := &engine{
		t: t, r: r, used: map[string]float64{}, log: filepath.Join(t.TempDir(), "log"),
		tokens: auth.NewTokens([]byte(shop.Secret), time.Now), paths: auth.NewPaths([]byte(shop.Secret), time.Now),
	}
	if mariadb == nil {
		e.Shop = shop.On(t, database, nil)
	} else {
		e.mariadb, e.root = mariadb, mariadb.Root(t)
		e.Shop = shop.On(t, database, kit.Redis(t))
		e.redis = redis.NewClient(&redis.Options{Addr: e.Redis.Addr()})
		t.Cleanup(func() { _ = e.redis.Close() })
		e.gate = gate.New(e.redis, "bench")
	}
	// The log goes to a file: to read it from a pipe would take the processor from the engine.
	script := fmt.Sprintf("#!/bin/sh\nexec '%s' \"$@\" 2>>'%s'\n", program, e.log)
	e.Binary = filepath.Join(t.TempDir(), "flashsale")
	check.NoError(t, os.WriteFile(e.Binary, []byte(script), 0o700))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log ends with:\n%s", output(t, "tail", "-c", "4096", e.log))
		}
	})
	e.open(args...)
	if len(args) > 0 {
		r.note("the engine runs with %s", strings.Join(args, " "))
	}
	return e
}

func (e *engine) open(args ...string) {
	e.t.Helper()
	e.instance = e.Start(slices.Concat(engineArgs, args)...)
	e.url, e.ops = e.instance.URL, e.instance.OpsURL()
}

// sale makes an open sale.
func (e *engine) sale(quota, each int) (id string) {
	e.t.Helper()
	now := time.Now().UTC()
	doc := e.Must(http.StatusCreated, "POST", e.url+"/api/v1/admin/sales", e.Operator(e.url), shop.Document{
		"title": "Bench", "description": "A sale under load.", "image_url": "/assets/sale.png",
		"price_cents": 990, "original_price_cents": 1990, "quota": quota, "limit_per_user": each, "pay_timeout_seconds": 24 * 3600,
		"starts_at": now.Add(-time.Minute).Format(time.RFC3339), "ends_at": now.Add(validity).Format(time.RFC3339),
	})
	id, _ = doc["id"].(string)
	e.sales = append(e.sales, id)
	return id
}

// campaign makes a campaign of open sales, as sale does.
func (e *engine) campaign(sizes, quota, each int) {
	e.t.Helper()
	now, sales := time.Now().UTC(), make([]shop.Document, sizes)
	for i := range sales {
		sales[i] = shop.Document{"variant": strconv.Itoa(i), "quota": quota, "price_cents": 990}
	}
	doc := e.Must(http.StatusCreated, "POST", e.url+"/api/v1/admin/campaigns", e.Operator(e.url), shop.Document{
		"title": "Bench", "limit_per_user": each, "pay_timeout_seconds": 24 * 3600, "sales": sales,
		"starts_at": now.Add(-time.Minute).Format(time.RFC3339), "ends_at": now.Add(validity).Format(time.RFC3339),
	})
	e.campaignID, _ = doc["id"].(string)
	for _, sale := range doc["sales"].([]any) {
		id, _ := sale.(shop.Document)["id"].(string)
		e.sales = append(e.sales, id)
	}
}

// soldOut makes a sale whose only unit is sold.
func (e *engine) soldOut() {
	e.t.Helper()
	first := shop.Attempt{User: "first", Key: "first", URL: e.url}
	if e.Buy(&first, e.sale(1, 1)); !first.Confirmed() {
		e.t.Fatalf("the only unit is not sold: %+v", first)
	}
	e.accepted++
}

// schema returns the name of the database.
func (e *engine) schema() string { return e.Database[strings.LastIndex(e.Database, "/")+1:] }

func userID(i int) string { return fmt.Sprintf("u%07d", i) }

func (e *engine) token(buyer int) string {
	e.t.Helper()
	if e.sign != nil {
		return e.sign(userID(buyer))
	}
	token, _, err := e.tokens.Sign(model.Identity{UserID: userID(buyer), Role: model.RoleBuyer}, validity)
	check.NoError(e.t, err)
	return token
}

// request returns a complete HTTP request, of a buyer unless the method is GET.
func (e *engine) request(method, path string, buyer int, body string) string {
	e.t.Helper()
	if method == "GET" {
		return "GET " + path + " HTTP/1.1\r\nHost: bench\r\n\r\n"
	}
	more := ""
	if e.keyed {
		more = fmt.Sprintf("Idempotency-Key: %032d\r\n", buyer)
	}
	if e.async {
		more += "Prefer: respond-async\r\n"
	}
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer %s\r\n%sContent-Type: application/json\r\n"+
		"Content-Length: %d\r\n\r\n%s", method, path, e.token(buyer), more, len(body), body)
}

// buyPath returns the path at which a buyer buys.
func (e *engine) buyPath(saleID string, buyer int) string {
	path, _ := e.paths.Issue(e.prefix+userID(buyer), saleID, validity)
	return "/api/v1/sales/" + saleID + "/" + path + "/orders"
}

// purchase returns the request of a buyer for one unit.
func (e *engine) purchase(saleID string, buyer int) string {
	e.t.Helper()
	return e.request("POST", e.buyPath(saleID, buyer), buyer, buyBody)
}

// mirror starts a control of a route of the engine.
func (e *engine) mirror(b *run, method, route string) (url string) {
	e.t.Helper()
	return e.control(b, method, route).URL
}

// control starts a control with more environment variables.
func (e *engine) control(b *run, method, route string, env ...string) *shop.Instance {
	e.t.Helper()
	if e.status < http.StatusBadRequest {
		e.accepted++ // the control makes the request whose answer it repeats
	}
	control := *e.Shop
	control.Binary = b.control
	return control.StartWith(append(env, "ENGINE="+e.url, "METHOD="+method, "ROUTE="+route, "STATUS="+strconv.Itoa(e.status)))
}

// under returns turns that count what the load tool sees, and end when the engine is idle again.
func (e *engine) under(path turn, connections int) turn {
	return func(seconds int, from float64) Sample {
		e.t.Helper()
		e.forgetPeak()
		before := e.use()
		profiled := e.profiled(seconds)
		sample := path(seconds, from)
		profiled()
		e.count(sample, connections)
		e.drained()
		for what, now := range e.use() {
			used := now - before[what]
			if e.used[what] += used; what == engineCPU {
				sample.EngineMicros = used / float64(max(1, sample.Requests))
			}
		}
		e.peakMiB = max(e.peakMiB, e.memoryMiB("VmHWM"))
		return sample
	}
}

// profiled takes a processor profile of the engine for some seconds if BENCH_PROFILES names a folder. done waits for its end.
func (e *engine) profiled(seconds int) (done func()) {
	e.t.Helper()
	folder := os.Getenv("BENCH_PROFILES")
	if folder == "" {
		return func() {}
	}
	file := filepath.Join(folder, fmt.Sprintf("%d.pprof", time.Now().UnixNano()))
	var wait sync.WaitGroup
	wait.Go(func() {
		output(e.t, "curl", "--silent", "--fail", "--output", file, fmt.Sprintf("%s/debug/pprof/profile?seconds=%d", e.ops, seconds))
	})
	return wait.Wait
}

// ab returns turns of ApacheBench, as the first article used it: a connection for each request, one user.
func (e *engine) ab(saleID string) (at func(url string) turn) {
	const requests = manyEach - 1 // a user may buy as often, and the control buys once
	user := 0
	return func(url string) turn {
		return func(int, float64) Sample {
			e.t.Helper()
			user++
			out := output(e.t, "sh", "-c", `echo '`+buyBody+`' >"$0" && ab -p "$0" "$@"`, filepath.Join(e.t.TempDir(), "body"),
				"-l", "-q", "-n", strconv.Itoa(requests), "-c", strconv.Itoa(wrkConnections), "-T", "application/json",
				"-H", "Authorization: Bearer "+e.token(user), url+e.buyPath(saleID, user))
			if total(out, "Complete requests:") != requests {
				e.t.Fatal(out)
			}
			return Sample{
				RequestsPerSecond: total(out, "Requests per second:"), P50MS: total(out, " +50%"), P99MS: total(out, " +99%"),
				Requests: requests, Refused: int64(total(out, "Non-2xx responses:")), Errors: int64(total(out, "Failed requests:")),
				BytesRead: int64(total(out, "Total transferred:")),
			}
		}
	}
}

// watched opens n streams, which report the stock of the only sale, during each turn. The streams' clients read only
// after the turn, because in production they run on machines of their own.
func (e *engine) watched(n int, path turn) turn {
	return func(seconds int, from float64) Sample {
		e.t.Helper()
		streams := make([]net.Conn, n)
		for i := range streams {
			conn, err := new(net.Dialer).DialContext(e.t.Context(), "tcp", strings.TrimPrefix(e.url, "http://"))
			check.NoError(e.t, err)
			fmt.Fprint(conn, e.request("GET", "/api/v1/sales/"+e.sales[0]+"/events", 0, ""))
			streams[i] = conn
		}
		e.hear(streams, `"available":`)
		sample := path(seconds, from)
		e.Audited(e.url, e.sales[0])
		audit := e.Must(http.StatusOK, "GET", e.url+"/api/v1/admin/sales/"+e.sales[0]+"/audit", e.Operator(e.url), nil)
		e.hear(streams, fmt.Sprintf(`"available":%.0f,`, audit["available"]))
		for _, conn := range streams {
			_ = conn.(*net.TCPConn).SetLinger(0) // a reset frees the port for the next turn
			_ = conn.Close()
		}
		return sample
	}
}

// hear reads each stream until it has a text.
func (e *engine) hear(streams []net.Conn, text string) {
	e.t.Helper()
	deadline, part := time.Now().Add(10*time.Second), make([]byte, 64<<10)
	for i, conn := range streams {
		_ = conn.SetReadDeadline(deadline) // fails only for a closed connection, as reading does
		for heard := ""; !strings.Contains(heard, text); {
			n, err := conn.Read(part)
			if heard += string(part[:n]); err != nil {
				e.t.Fatalf("stream %d ended without %s: %v; it ends with %q", i, text, err, heard[max(0, len(heard)-200):])
			}
		}
	}
}

// count adds what a load tool saw, and counts and empties the log, which would grow to gigabytes.
func (e *engine) count(s Sample, connections int) {
	e.t.Helper()
	e.answers, e.refused, e.bytesRead = e.answers+s.Requests, e.refused+s.Refused, e.bytesRead+s.BytesRead
	e.accepted, e.left = e.accepted+s.Requests-s.Refused, e.left+int64(connections)
	if s.Errors > 0 {
		e.r.void("%d connections failed or timed out", s.Errors)
	}
	out := output(e.t, "sh", "-c", `grep -cE '"level":"(WARN|ERROR)"' "$0"; : >"$0"`, e.log)
	e.troubles += int(total(out, ""))
}

// drained waits until every admitted attempt is settled.
func (e *engine) drained() {
	e.t.Helper()
	if e.Redis == nil {
		e.audited()
		return
	}
	shop.Recovered(e.t, "the backlog is settled", func() error {
		if n := e.queued(); n > 0 {
			return fmt.Errorf("%d entries are left", n)
		}
		return nil
	})
}

// audited waits until the engine's own audits find no error, no attempt in flight and empty streams.
func (e *engine) audited() {
	e.t.Helper()
	for _, id := range e.sales {
		if e.inLine {
			audit := e.Must(http.StatusOK, "GET", e.url+"/api/v1/admin/sales/"+id+"/audit", e.Operator(e.url), nil)
			check.Same(e.t, "the books balance", audit["ok"], any(true))
			continue // a sale in line has no gate
		}
		e.Audited(e.url, id)
	}
}

// queued returns the number of entries in the streams. A dead Redis has none.
func (e *engine) queued() (n int64) {
	e.t.Helper()
	if e.redisDead {
		return 0
	}
	gates := make([]model.GateRef, len(e.sales))
	for i, id := range e.sales {
		gates[i] = model.GateRef{SaleID: id, CampaignID: e.campaignID, Shards: 1}
	}
	states, err := e.gate.Peek(e.t.Context(), gates...)
	check.NoError(e.t, err)
	for _, state := range states {
		n += state.Stream
	}
	return n
}

const (
	trips       = "trips to Redis"
	statements  = "statements of MariaDB"
	engineCPU   = "µs of the engine's CPU"
	databaseCPU = "µs of MariaDB's CPU"
)

// use returns what the engine and its stores have used so far. The embedded stores are a part of the engine.
func (e *engine) use() map[string]float64 {
	e.t.Helper()
	u := map[string]float64{engineCPU: cpu(e.t, e.instance.PID())}
	if e.Redis == nil {
		return u
	}
	var questions float64
	const query = "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'QUESTIONS'"
	check.NoError(e.t, e.root.QueryRowContext(e.t.Context(), query).Scan(&questions))
	u[statements], u[databaseCPU] = questions, cpu(e.t, e.mariadb.PID())
	if e.redisDead {
		return u
	}
	info, err := e.redis.Info(e.t.Context()).Result()
	check.NoError(e.t, err)
	// Redis counts a read whenever it reads from a connection, which is about one per round trip.
	u[trips], u["µs of Redis's CPU"] = total(info, "total_reads_processed:"), total(info, "used_cpu_(?:sys|user):")*1e6
	return u
}

// each returns what an answer under load took on average, background work included.
func (e *engine) each(what string) float64 { return e.used[what] / float64(max(1, e.answers)) }

// cpu returns the CPU time that a process has used, in µs: fields 14 and 15 of proc(5), in hundredths of a second.
func cpu(t *testing.T, pid int) float64 {
	t.Helper()
	stat := proc(t, pid, "stat")
	return 1e4 * (total(stat, `\d+ \(.*\) (?:\S+ ){11}`) + total(stat, `\d+ \(.*\) (?:\S+ ){12}`))
}

func proc(t *testing.T, pid int, file string) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	check.NoError(t, err)
	return string(text)
}

// memoryMiB returns the resident memory of the engine: VmRSS, or VmHWM, the most since forgetPeak.
func (e *engine) memoryMiB(field string) float64 {
	e.t.Helper()
	return total(proc(e.t, e.instance.PID(), "status"), field+":") / 1024
}

func (e *engine) forgetPeak() {
	e.t.Helper()
	check.NoError(e.t, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", e.instance.PID()), []byte("5"), 0))
}

// check stops the engine and compares the orders in the database with the engine's counts and with the answers that
// the load tool saw. A client that left before its answer came may have an order that the load tool did not count.
func (e *engine) check() {
	e.t.Helper()
	if e.redisDead {
		e.Redis.Restart() // after its restart the gate has to agree, too
	}
	e.audited()
	figures := output(e.t, "curl", "--silent", "--fail", e.ops+"/metrics")
	purchases := func(status string) int64 {
		return int64(total(figures, `flashsale_http_request_seconds_count\{.*route="`+buyRoute+`",status="`+status+`"\}`))
	}
	counted := int64(total(figures, `flashsale_purchases_total\{.*verdict="(?:accepted|queued)".*\}`))
	left := purchases("(?:499|503)")
	if n := purchases("202"); e.status == http.StatusCreated && n > e.left {
		e.r.void("%d purchases were answered before their order was in the database", n)
	}
	e.instance.Stop()
	var orders, rejected int64
	for _, id := range e.sales {
		books := e.Books(id)
		orders += books.Orders[model.OrderPending]
		rejected += books.Orders[model.OrderRejected]
	}
	if orders < max(counted, e.accepted) || orders > min(counted+left, e.accepted+e.left) {
		e.r.void("%d orders are in the database; the engine counted %d and %d leavers, the load tool saw %d and left %d",
			orders, counted, left, e.accepted, e.left)
	}
	if e.peakMiB > 0 { // it was under load
		var costs []string
		for _, what := range slices.Sorted(maps.Keys(e.used)) {
			costs = append(costs, lab.Figure(e.each(what))+" "+what)
		}
		e.r.note("an answer of %d bytes: %s; at most %.0f MiB", e.bytesRead/max(1, e.answers), strings.Join(costs, ", "), e.peakMiB)
	}
	e.r.note("books balance: %d orders, %d counted by the engine, %d seen by the load tool; "+
		"%d queued attempts were refused later; %d log lines at warn or above", orders, counted, e.accepted, rejected, e.troubles)
}

// total returns the sum of the numbers that follow a pattern at the beginning of lines.
func total(text, pattern string) (sum float64) {
	for _, found := range regexp.MustCompile(`(?m)^`+pattern+`\s*([\d.e+]+)`).FindAllStringSubmatch(text, -1) {
		n, _ := strconv.ParseFloat(found[1], 64)
		sum += n
	}
	return sum
}
