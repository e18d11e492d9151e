//go:build bench && linux

package bench

import (
	"cmp"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"flashsale/lab"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
	"flashsale/test/kit/shop"
)

const (
	// buyers is how many buyers a row has unless it says otherwise. Each of them buys a few times a round.
	buyers = 20_000
	// fewCalls is the most calls of a store for an attempt, from background work alone, that count as none.
	fewCalls = 0.01
	// backlog is how many attempts the row "settling" settles at least, within settleTimeout on a slow machine.
	backlog, settleTimeout = 100_000, 5 * time.Minute
)

// row is a line of the table.
type row struct {
	name    string
	measure func(*testing.T, *run, *Result)
}

// rows returns all lines of the table, in the order of the goals in docs/performance.md.
func rows() []row {
	list := []row{
		{"sold out", load{soldOut: true, least: 0.92, mostTrips: fewCalls, mostStatements: fewCalls}.measure},
		{"sold out, with a key", load{soldOut: true, keyed: true, least: 0.85, mostTrips: fewCalls, mostStatements: fewCalls}.measure},
		{"accepted, queued", load{args: []string{"--ack=queued"}, status: 202, least: 0.35, mostTrips: 0.1}.measure},
		{"accepted, confirmed", load{least: 0.24, mostTail: 1.6}.measure},
		{"accepted, confirmed, 1,000 connections", load{connections: 1_000, least: 0.34}.measure},
		{"accepted, confirmed, a lone buyer", load{connections: 1}.measure},
		{"accepted, confirmed, database 0.5 ms away", load{databaseAway: 500 * time.Microsecond}.measure},
		{"accepted, confirmed, semi-synchronous replica", load{servers: replicated}.measure},
		{"accepted, confirmed, Galera cluster", load{servers: galera}.measure},
		{"accepted, one by one", load{args: []string{"--batch=1"}}.measure},
		{"accepted, embedded", load{embedded: true, least: 0.17}.measure},
		{"accepted, Redis dead", load{redisDead: true, least: 0.18}.measure},
		{"accepted, an issuer's tokens and an endpoint", integrated},
		{"entered in a line", entered},
		{"line JSON", lineRead},
		{"line JSON behind nginx", lineBehindNginx},
		{"return to call", returnToCall},
		{"a million entries drawn", aMillionEntries},
		{"settling", settling},
		{"parts alone", partsAlone(false)},
		{"parts alone, embedded", partsAlone(true)},
		{"a million orders", lists},
		{"a long sale: 5 million orders", longSale},
		{"lab", inTheLab},
		{"rehearsal", rehearsed},
		{"path", load{method: "POST", route: "/api/v1/sales/:sale/path"}.measure},
		{"sale JSON", load{method: "GET", route: "/api/v1/sales/:sale", least: 0.95}.measure},
		{"sale page", load{method: "GET", route: "/sales/:sale", least: 0.95}.measure},
		{"memory: at rest", memoryAtRest},
		{"memory: connections", load{soldOut: true, connections: 10_000, mostMiB: 500}.measure},
		{"memory: a million attempts", longRun},
		{"5,000 streams open", load{streams: 5_000, least: 0.95, mostMiB: 200}.measure},
		{"ab: sold out", load{soldOut: true, ab: true, least: 0.9}.measure},
		{"ab: confirmed", load{ab: true, least: 0.9}.measure},
		{"start", startUp},
	}
	fewSales, manySales := []int{1, 10, 100, 1_000}, []int{10, 100, 1_000}
	for _, g := range []struct {
		what  string
		most  float64 // how far the cost may rise
		at    func(size int) load
		sizes []int
		kinds []string
	}{
		{"buyers", mostGrowth, func(n int) load { return load{buyers: n} }, []int{1_000, 10_000, 100_000, 1_000_000}, []string{"sold out", "confirmed"}},
		{"live sales", mostGrowth, func(n int) load { return load{sales: n, hot: 1} }, fewSales, []string{"sold out", "confirmed"}},
		{hotSales, hotGrowth, func(n int) load { return load{sales: n, besideOne: true} }, manySales, []string{"sold out", "confirmed", "queued"}},
		{hotSales + ", 1,000 connections", hotGrowth, func(n int) load { return load{sales: n, besideOne: true, connections: 1_000} }, manySales, []string{"confirmed", "queued"}},
		{"sizes of a campaign", mostGrowth, func(n int) load { return load{sizes: n, besideOne: true} }, []int{10}, []string{"confirmed", "queued"}},
		{"connections", mostGrowth, func(n int) load { return load{connections: n} }, []int{100, 500, 1_000, 5_000}, []string{"sold out", "confirmed"}},
	} {
		for _, kind := range g.kinds {
			list = append(list, row{"growth: " + g.what + ", " + kind, func(t *testing.T, b *run, r *Result) {
				for _, size := range g.sizes {
					number, _, _ := strings.Cut(lab.Figure(float64(size)), ".")
					l, point := g.at(size), &Result{Name: r.Name + ", at " + number, Size: size}
					switch kind {
					case "sold out":
						l.soldOut = true
					case "queued":
						l.args, l.status = []string{"--ack=queued"}, http.StatusAccepted
					}
					t.Run(strconv.Itoa(size), func(t *testing.T) { l.measure(t, b, point) })
					r.Points, r.Void = append(r.Points, point), cmp.Or(r.Void, point.Void)
				}
				base := 0.0
				if g.at(1).besideOne {
					base = 1
				}
				r.judgeGrowth(g.most, base)
			}})
		}
	}
	return list
}

// load is requests that all end in the same way, on the path and on the control in turns: purchases of one unit, unless
// a route is set.
type load struct {
	args                []string // of the engine
	embedded, redisDead bool
	soldOut             bool          // the hot sales have no unit left; otherwise buyers buy again and again
	keyed               bool          // requests have an Idempotency-Key
	method, route       string        // of requests that buy nothing
	status              int           // of every answer; 0: 409, 200 or 201
	buyers, sales, hot  int           // 0: 20,000 buyers, one sale, buyers for every sale
	sizes               int           // more than 1: a campaign of so many sales instead of sales, with buyers for every one
	besideOne           bool          // the control is an engine with one sale and stores of its own
	connections         int           // 0: 100
	ab                  bool          // ApacheBench instead of wrk: a connection for each request, one user
	streams             int           // open while the path is loaded; the control is the engine without streams
	databaseAway        time.Duration // the time by which a round trip to the database is longer
	servers             servers       // of the database; nil: one
	program             string        // that runs as the engine; empty: the one of this revision

	least, mostTrips, mostStatements, mostMiB float64 // goals; 0: none
	mostTail                                  float64 // goal for the 99th percentile, divided by the mean time of a request
}

// servers starts the servers of a database, and returns the one that takes the writes, whose statements and processor time
// count, and the address of all. writer is nil if the engine is embedded.
type servers func(t testing.TB) (writer *kit.MariaDBServer, database string)

func oneServer(embedded bool) servers {
	return func(t testing.TB) (*kit.MariaDBServer, string) {
		if embedded {
			return nil, kit.SQLite(t)
		}
		db := kit.MariaDB(t, redoLog)
		return db, db.NewDatabase(t)
	}
}

func replicated(t testing.TB) (*kit.MariaDBServer, string) {
	primary, replica := kit.Replicated(t)
	return primary, strings.Replace(primary.NewDatabase(t), primary.Addr(), primary.Addr()+","+replica.Addr(), 1)
}

func galera(t testing.TB) (*kit.MariaDBServer, string) {
	c := kit.Galera(t)
	return c.Nodes[0], c.NewDatabase(t)
}

func (l load) measure(t *testing.T, b *run, r *Result) {
	e, at, connections := l.start(t, r)
	path := e.under(at(e.url), connections)
	switch {
	case l.streams > 0:
		r.note("control: the engine without streams")
		b.compare(r, path, e.watched(l.streams, path))
	case l.besideOne || b.beside != "":
		other, control, what := l, &Result{}, "an engine with one sale"
		if b.beside != "" {
			other.program, what, l.least, l.mostTail = b.beside, b.beside, 0, 0
		} else {
			other.sales, other.sizes = 1, 0
		}
		second, at, _ := other.start(t, control)
		b.compare(r, alone(second, e, second.under(at(second.url), connections)), alone(e, second, path))
		r.note("the engine's CPU for a request is %s of the control's", spreadOf(ratios(collect(r.Path, work), collect(r.Control, work))))
		l.checked(second)
		for _, note := range control.Notes {
			r.note("the control, %s: %s", what, note)
		}
		r.Void = cmp.Or(r.Void, control.Void)
	default:
		b.compare(r, at(e.mirror(b, cmp.Or(l.method, "POST"), cmp.Or(l.route, buyRoute))), path)
	}
	r.least(r.ratio(), l.least, "")
	mean := func(s Sample) float64 { return float64(connections) * 1000 / s.RequestsPerSecond }
	r.most(spreadOf(ratios(collect(r.Path, p99), collect(r.Path, mean))).median, l.mostTail, "x the mean at p99")
	r.most(e.each(trips), l.mostTrips, trips)
	r.most(e.each(statements), l.mostStatements, statements)
	r.most(e.peakMiB, l.mostMiB, "MiB")
	l.checked(e)
}

// checked stops an engine after the load. The result is void if nothing was answered, if a purchase was refused although there
// were units, if one was not refused although the sale is sold out, or if the books are wrong.
func (l load) checked(e *engine) {
	if e.answers == 0 || l.soldOut && e.refused < e.answers || !l.soldOut && e.refused > 0 {
		e.r.void("%d of %d requests were refused", e.refused, e.answers)
	}
	if l.route != "" {
		e.accepted, e.left = 0, 0 // nobody bought
	}
	e.check()
}

// alone wraps the turns of an engine: the other engine is frozen while a turn lasts. An engine with many live sales needs
// processor time even if nobody sends requests, and would slow the turn down.
func alone(e, other *engine, of turn) turn {
	return func(seconds int, from float64) Sample {
		other.instance.Signal(syscall.SIGSTOP)
		defer other.instance.Signal(syscall.SIGCONT)
		return of(seconds, from)
	}
}

// start starts an engine and makes the load's sales there. at makes a turn that sends the load's requests to the server at url,
// over this number of connections.
func (l load) start(t *testing.T, r *Result) (e *engine, at func(url string) turn, connections int) {
	of := l.servers
	if of == nil {
		of = oneServer(l.embedded)
	}
	e = startOn(t, r, cmp.Or(l.program, shop.Build(t, profile)), of, l.args...)
	if l.databaseAway > 0 {
		host := e.mariadb.Addr()
		e.instance.Stop()
		e.open(append(l.args, "--database="+strings.Replace(e.Database, host, away(t, host, l.databaseAway), 1))...)
	}
	hot, sales := cmp.Or(l.hot, l.sales, l.sizes, 1), max(1, l.sales)
	if l.sizes > 1 {
		e.campaign(l.sizes, manyUnits, manyEach)
		sales = 0
	}
	for i := range sales {
		if l.soldOut && i < hot {
			e.soldOut()
		} else {
			e.sale(manyUnits, manyEach)
		}
	}
	e.drained()
	if l.redisDead {
		e.Redis.Kill()
		e.redisDead = true
	}
	e.keyed, e.status, connections = l.keyed, cmp.Or(l.status, http.StatusCreated), cmp.Or(l.connections, wrkConnections)
	request := func(i int) string { return e.purchase(e.sales[i%hot], i) }
	switch {
	case l.soldOut:
		e.status = http.StatusConflict
	case l.route != "":
		e.status = http.StatusOK
		request = func(i int) string {
			return e.request(cmp.Or(l.method, "POST"), strings.Replace(l.route, ":sale", e.sales[0], 1), i, "")
		}
	}
	at = wrk(t, cmp.Or(l.buyers, buyers), connections, false, request)
	if l.ab {
		at = e.ab(e.sales[0])
	}
	return e, at, connections
}

// settling freezes the database while attempts are admitted, so that all of them are queued before the first is
// settled. Then it measures the time from the first settled entry to the last. If attempts were queued meanwhile, the
// settle would share the machine with the load tool.
func settling(t *testing.T, b *run, r *Result) {
	e := start(t, r, false, "--ack=queued")
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for range b.rounds {
		sale := e.sale(manyUnits, manyEach)
		queue := wrk(t, buyers, wrkConnections, false, func(i int) string { return e.purchase(sale, i) })(e.url)
		e.under(queue, wrkConnections)(warmUpSeconds, 0)
		e.mariadb.Stop()
		for queued := e.answers + backlog; e.answers < queued && r.Void == ""; {
			sample := queue(b.seconds, 0)
			if e.count(sample, wrkConnections); sample.Refused > 0 || sample.Requests == 0 {
				r.void("%d of %d attempts were refused", sample.Refused, sample.Requests)
			}
		}
		entries := e.queued()
		e.mariadb.Continue()
		before := e.use()
		woken := time.Now()
		first := woken
		for n := entries; n > 0; n = e.queued() {
			if n == entries {
				first = time.Now() // none is settled yet
			}
			if <-ticker.C; time.Since(woken) > settleTimeout {
				t.Fatalf("%d entries are left after %s", n, settleTimeout)
			}
		}
		r.Values = append(r.Values, float64(entries)/time.Since(first).Seconds())
		var used []string
		sum := 0.0
		for what, now := range e.use() {
			if strings.HasPrefix(what, "µs") {
				each := (now - before[what]) / float64(entries)
				sum, used = sum+each, append(used, lab.Figure(each)+" "+what)
			}
		}
		r.note("%d entries in %.2f s, the first after %.2f s, each with %s; so this machine settles at most %.0f a second", entries,
			time.Since(woken).Seconds(), first.Sub(woken).Seconds(), strings.Join(slices.Sorted(slices.Values(used)), ", "), float64(runtime.NumCPU())*1e6/sum)
	}
	r.Unit = "orders/s"
	r.least(spreadOf(r.Values).median, 60_000, r.Unit)
	e.check()
}

// inTheLab compares strategies in the lab. Each has a number of buyers that keeps it busy for some seconds.
func inTheLab(t *testing.T, b *run, r *Result) {
	s := shop.On(t, kit.MariaDB(t).NewDatabase(t), kit.Redis(t))
	strategies := []struct {
		name, buyers string
		least        float64 // goal for hybrid's rate, divided by this strategy's rate
	}{{"hybrid", "20000", 0}, {"pessimistic", "2000", 10}, {"optimistic", "500", 100}}
	rates := map[string][]float64{}
	for range b.rounds {
		for _, strategy := range strategies {
			folder := t.TempDir()
			output(t, s.Binary, "lab", "--strategies", strategy.name, "--buyers", strategy.buyers, "--stock", strategy.buyers,
				"--concurrency", "100", "--database", s.Database, "--redis", s.Redis.URL(), "--out", folder)
			var report lab.Report
			raw, err := os.ReadFile(filepath.Join(folder, "report.json"))
			check.NoError(t, err, json.Unmarshal(raw, &report))
			if report.Strategies[0].Oversold > 0 {
				r.void("%s oversold", strategy.name)
			}
			rates[strategy.name] = append(rates[strategy.name], report.Strategies[0].PersistedPerSecond)
		}
	}
	r.Values, r.Unit = rates["hybrid"], "orders/s"
	for _, strategy := range strategies[1:] {
		r.least(spreadOf(ratios(r.Values, rates[strategy.name])).median, strategy.least, "x "+strategy.name)
		r.note("%s: %s orders/s", strategy.name, spreadOf(rates[strategy.name]))
	}
}

// memoryAtRest measures the engine's peak memory with a thousand live sales and no requests.
func memoryAtRest(t *testing.T, b *run, r *Result) {
	e := start(t, r, false)
	for range 1_000 {
		e.sale(100, 1)
	}
	e.instance.Stop() // exclude the memory that making the sales took
	e.open()
	e.Must(http.StatusOK, "GET", e.url+"/readyz", "", nil)
	e.forgetPeak()
	<-time.After(time.Duration(b.seconds) * time.Second)
	r.Values, r.Unit = []float64{e.memoryMiB("VmHWM")}, "MiB"
	r.most(r.Values[0], 150, r.Unit)
	r.note("the most in %d s after a start on 1,000 live sales", b.seconds)
}

// longRun has each of a million users attempt once to buy one of 10,000 units, in tenths, and compares memory and
// latency.
func longRun(t *testing.T, _ *run, r *Result) {
	const quota, users, tenths, mostSeconds = 10_000, 1_000_000, 10, 120
	e := start(t, r, false)
	sale := e.sale(quota, 1)
	for tenth := range tenths {
		tenthOf := wrk(t, users/tenths, wrkConnections, true, func(i int) string { return e.purchase(sale, tenth*users/tenths+i) })
		r.Path = append(r.Path, e.under(tenthOf(e.url), wrkConnections)(mostSeconds, 0))
		r.Values = append(r.Values, e.memoryMiB("VmRSS"))
	}
	if e.accepted < quota-e.left || e.answers < users-e.left {
		r.void("of %d attempts %d were accepted", e.answers, e.accepted)
	}
	early, late := spreadOf(r.Values[:tenths/2]), spreadOf(r.Values[tenths/2:])
	r.most(late.most, early.most*(1+mostGrowth), "MiB in the second half")
	r.most(r.Path[tenths-1].P99MS, r.Path[0].P99MS*(1+mostGrowth), "ms p99 at the end")
	r.note("memory after each tenth: %.0f MiB; p99: %.2f ms", r.Values, collect(r.Path, p99))
	e.check()
}

// startUp measures the time from the start of the program, without other servers, to its first answer.
func startUp(t *testing.T, _ *run, r *Result) {
	s := shop.On(t, kit.SQLite(t), nil)
	for range 10 {
		s.Database = kit.SQLite(t)
		begun := time.Now()
		i := s.Start("--ops-addr=127.0.0.1:0")
		s.Must(http.StatusOK, "GET", i.URL+"/healthz", "", nil)
		r.Values = append(r.Values, float64(time.Since(begun))/float64(time.Millisecond))
		i.Stop()
	}
	r.Unit = "ms"
	r.most(spreadOf(r.Values).median, 300, r.Unit)
	r.note("each start is in an empty folder: tables, keys, operator and demo sale are made")
}
