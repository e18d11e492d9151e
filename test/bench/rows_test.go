//go:build bench && linux

package bench

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	// noStoreCalls is the most store calls an attempt, from background work alone, that count as no store asked. It
	// leaves room for a slow machine.
	noStoreCalls = 0.01
	// mostReads is the goal for Redis round trips per attempt.
	mostReads = 0.1
	// tenths is the number of parts of the long run that are compared with each other.
	tenths = 10
	// mostTenthSeconds is only an upper bound: a tenth ends when all its requests have been sent.
	mostTenthSeconds = 120
	// openConnections is the number of connections of the memory goal.
	openConnections = 10_000
	starts          = 10
	abTimes         = 10_000
)

// rows returns all lines of the table, in the order of the goals in docs/performance.md.
func rows() []row {
	list := []row{
		{"sold out", comparison{least: 0.95, soldOut: true, want: http.StatusConflict, noStores: true}.measure},
		{"accepted, queued", comparison{least: 0.7, args: []string{"--ack", "queued"}, want: http.StatusAccepted, fewReads: true}.measure},
		{"accepted, confirmed", comparison{least: 0.5, mostP99MS: 25, want: http.StatusCreated}.measure},
		{"accepted, one by one", comparison{args: []string{"--batch", "1"}, want: http.StatusCreated}.measure},
		{"accepted, embedded", comparison{least: 0.35, embedded: true, want: http.StatusCreated}.measure},
		{"accepted, Redis dead", comparison{least: 0.3, redisDead: true, want: http.StatusCreated}.measure},
		{"settling", settling},
		{"lab", inTheLab},
		{"sale JSON", reading{"/api/v1/sales/:sale"}.measure},
		{"sale page", reading{"/sales/:sale"}.measure},
	}
	for _, kind := range []struct {
		name    string
		soldOut bool
	}{{"sold out", true}, {"confirmed", false}} {
		list = append(list,
			row{"growth: buyers, " + kind.name, growth{soldOut: kind.soldOut, buyers: []int{1_000, 10_000, 100_000, 1_000_000}}.measure},
			row{"growth: live sales, " + kind.name, growth{soldOut: kind.soldOut, sales: []int{1, 10, 100, 1_000}}.measure},
			row{"growth: live sales all hot, " + kind.name, growth{soldOut: kind.soldOut, sales: []int{1, 10, 100, 1_000}, allHot: true}.measure},
			row{"growth: connections, " + kind.name, growth{soldOut: kind.soldOut, connections: []int{100, 500, 1_000, 5_000}}.measure},
		)
	}
	return append(list,
		row{"memory: at rest", memoryAtRest},
		row{"memory: connections", memoryOfConnections},
		row{"5,000 streams open", withStreams},
		row{"memory: a million attempts", longRun},
		row{"ab: sold out", ab{soldOut: true}.measure},
		row{"ab: confirmed", ab{}.measure},
		row{"start", startUp},
	)
}

// comparison compares purchases that all end the same way with the control.
type comparison struct {
	least, mostP99MS             float64
	args                         []string
	soldOut, embedded, redisDead bool
	noStores, fewReads           bool // goals for the calls of stores per attempt
	want                         int  // status of every answer
}

func (c comparison) measure(t *testing.T, b *run, r *Result) {
	s := newStores(t, c.embedded).open(b.binary, c.args...)
	r.command("flashsale", s.engine.cmd.Args[1:])
	var sale string
	seen := int64(1) // one order: the sold-out sale's only unit, or the purchase whose answer the control repeats
	if c.soldOut {
		sale = s.soldOut(&b.wallet)
	} else {
		sale = s.sale(manyUnits, manyEach)
	}
	calm := func() {
		s.drained(sale)
		s.troubles += s.engine.troubles()
	}
	if c.redisDead {
		s.redis.Kill()
		s.redisDead = true
		calm = func() { s.troubles += s.engine.troubles() } // nothing is queued
	}
	answer := s.buy(sale, "probe", &b.wallet, c.want)
	load := b.wallet.requests(s, 0, buyers, sale)
	control := load.at(b.mirror(t, r, http.MethodPost, buyPattern, answer))

	before, counted := s.storeWork(), s.tally()
	done := b.compare(t, r, control, load.at(s.url), calm)
	after, now := s.storeWork(), s.tally()
	r.Control, r.Path = done.control, done.path
	r.judgeRatio(c.least, c.mostP99MS)
	seen += done.accepted(r, !c.soldOut)
	if n := now.statuses["202"] - counted.statuses["202"]; c.want == http.StatusCreated && n > done.unheard {
		r.void("%d purchases were answered before their order was in the database", n)
	}
	if s.mariadb != nil && !s.redisDead {
		reads := perAttempt(before.redisReads, after.redisReads, float64(done.answers))
		statements := perAttempt(before.statements, after.statements, float64(done.answers))
		r.note("an attempt: %.4f readings by Redis, %.4f statements of MariaDB, background work included", reads, statements)
		if c.fewReads {
			r.Goal += fmt.Sprintf(", <= %.1f Redis trips", mostReads)
			r.Met = r.Met && reads <= mostReads
		}
		if c.noStores {
			r.Goal += ", no store asked"
			r.Met = r.Met && reads <= noStoreCalls && statements <= noStoreCalls
		}
	}
	s.balance(r, seen, done.unheard, sale)
}

// settling freezes the database while attempts are admitted, so that all of them are queued before the first is
// settled. Then it measures the time from the first settled entry to the last. If attempts were queued meanwhile, the
// settle would share the machine with the load tool.
func settling(t *testing.T, b *run, r *Result) {
	s := newStores(t, false).open(b.binary, "--ack", "queued")
	r.command("flashsale", s.engine.cmd.Args[1:])
	r.Unit = "orders/s"
	var sales []string
	var seen, unheard int64
	for range b.rounds {
		sale := s.sale(manyUnits, manyEach)
		sales = append(sales, sale)
		s.buy(sale, "probe", &b.wallet, http.StatusAccepted)
		s.drained(sale)
		seen++
		load := b.wallet.requests(s, 0, buyers, sale).at(s.url)

		s.mariadb.Stop()
		var queued int64
		for deadline := time.Now().Add(drainTimeout); queued < int64(b.backlog); {
			sample := b.fire(t, r, load, b.seconds, 0)
			if sample.Refused+sample.Errors > 0 || time.Now().After(deadline) {
				s.mariadb.Continue()
				r.void("%d queued, then %d attempts were refused and %d failed; the log ends with: %s", queued, sample.Refused, sample.Errors, s.engine.logged())
				return
			}
			queued += sample.Requests
			unheard += wrkConnections
		}
		seen += queued
		entries := s.stream(sale)
		woken := time.Now()
		s.mariadb.Continue()
		var first, last time.Time
		left := entries
		s.wait(drainTimeout, look, "the backlog is settled", func() error {
			n := s.stream(sale)
			last = time.Now()
			if n == entries {
				return fmt.Errorf("none of %d is settled yet", n)
			}
			if first.IsZero() {
				first, left = last, n
			}
			if n > 0 {
				return fmt.Errorf("%d of %d entries are left", n, entries)
			}
			return nil
		})
		if left == 0 { // all were settled between two looks
			first, left = woken, entries
		}
		r.Values = append(r.Values, float64(left)/last.Sub(first).Seconds())
		r.note("%d entries in %.2f s, the first after %.2f s", entries, last.Sub(woken).Seconds(), first.Sub(woken).Seconds())
		s.troubles += s.engine.troubles()
	}
	r.judgeLeast(50_000)
	s.balance(r, seen, unheard, sales...)
}

// stream returns the number of entries in a sale's stream.
func (s *shop) stream(saleID string) int64 {
	s.t.Helper()
	states, err := s.gate.Peek(s.t.Context(), saleID)
	if err != nil {
		s.t.Fatal(err)
	}
	return states[0].Stream
}

// inTheLab compares strategies in the lab. Each has a number of buyers that keeps it busy for some seconds.
func inTheLab(t *testing.T, b *run, r *Result) {
	s := newStores(t, false)
	strategies := []struct {
		name   string
		buyers int
		least  float64 // goal for hybrid's rate, divided by this strategy's rate
	}{{"hybrid", 20_000, 0}, {"pessimistic", 2_000, 10}, {"optimistic", 500, 100}}
	persisted := map[string][]float64{}
	for range b.rounds {
		for _, strategy := range strategies {
			folder := t.TempDir()
			count := strconv.Itoa(strategy.buyers)
			args := []string{
				"lab", "--strategies", strategy.name, "--buyers", count, "--stock", count, "--concurrency", "100",
				"--database", s.database, "--redis", s.redisArg(), "--out", folder,
			}
			r.command("flashsale", args)
			out := output(t, drainTimeout, b.binary, args...)
			raw, err := os.ReadFile(filepath.Join(folder, "report.json"))
			if err != nil {
				t.Fatal(err)
			}
			var report struct {
				Strategies []struct {
					Oversold           int64
					PersistedPerSecond float64 `json:"persisted_per_second"`
				}
			}
			if err := json.Unmarshal(raw, &report); err != nil || len(report.Strategies) != 1 {
				t.Fatalf("read the lab's report: %v\n%s", err, out)
			}
			if report.Strategies[0].Oversold > 0 {
				r.void("%s oversold", strategy.name)
			}
			persisted[strategy.name] = append(persisted[strategy.name], report.Strategies[0].PersistedPerSecond)
		}
	}
	hybrid := persisted["hybrid"]
	var goals, measured []string
	r.Values, r.Unit, r.Met = hybrid, "orders/s", true
	for _, strategy := range strategies[1:] {
		times := spread(ratios(hybrid, persisted[strategy.name]))
		goals = append(goals, fmt.Sprintf(">= %.0f x %s", strategy.least, strategy.name))
		measured = append(measured, fmt.Sprintf("%s x %s", figure(times.Median), strategy.name))
		r.Met = r.Met && times.Median >= strategy.least
		r.note("%s: %s orders/s", strategy.name, spread(persisted[strategy.name]))
	}
	r.Goal, r.Measured = strings.Join(goals, ", "), strings.Join(measured, ", ")
}

// reading measures a GET of one sale.
type reading struct{ pattern string }

func (g reading) measure(t *testing.T, b *run, r *Result) {
	s := newStores(t, false).open(b.binary)
	r.command("flashsale", s.engine.cmd.Args[1:])
	sale := s.sale(manyUnits, manyEach)
	path := strings.ReplaceAll(g.pattern, ":sale", sale)
	answer := s.must(http.StatusOK, http.MethodGet, s.url+path, "", "")
	request := "GET " + path + " HTTP/1.1\r\nHost: bench\r\n\r\n"
	load := target{file: b.save(t, []byte(strings.Repeat(request, wrkThreads))), bytes: len(request), connections: wrkConnections}
	control := load.at(b.mirror(t, r, http.MethodGet, g.pattern, answer))
	done := b.compare(t, r, control, load.at(s.url), func() { s.troubles += s.engine.troubles() })
	if done.refused > 0 {
		r.void("%d of %d readings were refused", done.refused, done.answers)
	}
	r.Control, r.Path = done.control, done.path
	r.judgeRatio(0.95, 0)
	s.balance(r, 0, 0, sale)
}

// growth measures one thing at several sizes, each on stores of its own: in a shared database the orders of earlier
// sizes would outgrow MariaDB's memory, and that cost would look like a cost of the size.
type growth struct {
	soldOut                    bool
	buyers, sales, connections []int // exactly one is set
	allHot                     bool  // spread the attempts over all sales
}

func (g growth) measure(t *testing.T, b *run, r *Result) {
	for _, size := range slices.Concat(g.buyers, g.sales, g.connections) {
		if g.buyers != nil {
			size = min(size, b.mostBuyers)
		}
		if n := len(r.Points); n == 0 || r.Points[n-1].Size != size { // BENCH_BUYERS may reduce sizes to the same
			t.Run(strconv.Itoa(size), func(t *testing.T) { r.Points = append(r.Points, g.point(t, b, r, size)) })
		}
	}
	r.judgeGrowth()
	if g.allHot {
		r.Unjudged, r.Goal = true, "-"
	}
}

func (g growth) point(t *testing.T, b *run, r *Result, size int) Point {
	s := newStores(t, false).open(b.binary)
	r.command("flashsale", s.engine.cmd.Args[1:])
	people, sales, connections := buyers, 1, wrkConnections
	switch {
	case g.buyers != nil:
		people = size
	case g.sales != nil:
		sales = size
	default:
		connections = size
	}
	want, open := http.StatusCreated, func() string { return s.sale(manyUnits, manyEach) }
	seen := int64(1) // the order whose answer the control repeats
	if g.soldOut {
		want, seen = http.StatusConflict, 0
		open = func() string { seen++; return s.soldOut(&b.wallet) }
	}
	all := []string{open()}
	hot := all
	for len(all) < sales {
		if g.allHot {
			all = append(all, open())
			hot = all
		} else {
			all = append(all, s.sale(manyUnits, manyEach))
		}
	}
	answer := s.buy(hot[0], "probe", &b.wallet, want)
	load := b.wallet.requests(s, 0, people, hot...)
	load.connections = connections
	done := b.compare(t, r, load.at(b.mirror(t, r, http.MethodPost, buyPattern, answer)), load.at(s.url), func() {
		s.drained(hot...)
		s.troubles += s.engine.troubles()
	})
	s.balance(r, seen+done.accepted(r, !g.soldOut), done.unheard, all...)
	return Point{Size: size, Control: done.control, Path: done.path}
}

// memoryAtRest measures the engine's peak memory with a thousand live sales and no requests.
func memoryAtRest(t *testing.T, b *run, r *Result) {
	s := newStores(t, false).open(b.binary)
	for range 1_000 {
		s.sale(100, 1)
	}
	if err := s.engine.stop(); err != nil { // exclude the memory that making the sales took
		t.Fatal(err)
	}
	s.open(b.binary)
	r.command("flashsale", s.engine.cmd.Args[1:])
	s.must(http.StatusOK, http.MethodGet, s.url+"/readyz", "", "")
	r.Unit = "MiB"
	r.Values = []float64{s.watch(func() { <-time.After(time.Duration(b.seconds) * time.Second) })}
	r.judgeMost(150)
	r.note("the most in %d s after a start on 1,000 live sales", b.seconds)
}

// watch returns the engine's peak memory, in MiB, while during runs.
func (s *shop) watch(during func()) (mostMiB float64) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		during()
	}()
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for {
		mostMiB = max(mostMiB, s.engine.rssMiB())
		select {
		case <-ticker.C:
		case <-done:
			return mostMiB
		}
	}
}

// memoryOfConnections has 10,000 connections send requests all the time, which needs more memory than open, idle ones.
func memoryOfConnections(t *testing.T, b *run, r *Result) {
	s := newStores(t, false).open(b.binary)
	r.command("flashsale", s.engine.cmd.Args[1:])
	sale := s.soldOut(&b.wallet)
	load := b.wallet.requests(s, 0, buyers, sale).at(s.url)
	load.connections = openConnections
	r.Unit = "MiB"
	for range b.rounds {
		var sample Sample
		r.Values = append(r.Values, s.watch(func() { sample = b.fire(t, r, load, b.seconds, 0) }))
		if sample.Requests == 0 || sample.Refused != sample.Requests {
			r.void("%d of %d attempts were not refused as sold out", sample.Requests-sample.Refused, sample.Requests)
		}
		if sample.Errors > 0 {
			r.note("%d connections failed or timed out", sample.Errors)
		}
		s.troubles += s.engine.troubles()
	}
	r.judgeMost(500)
	s.balance(r, 1, 0, sale)
}

// longRun sends one attempt of each of b.mostBuyers users to a sale of 10,000 units, in tenths, and compares memory and
// latency.
func longRun(t *testing.T, b *run, r *Result) {
	const quota = 10_000
	s := newStores(t, false).open(b.binary)
	r.command("flashsale", s.engine.cmd.Args[1:])
	sale := s.sale(quota, 1)
	r.Unit = "MiB"
	var refused, answers int64
	for tenth := range tenths {
		from, to := tenth*b.mostBuyers/tenths, (tenth+1)*b.mostBuyers/tenths
		load := b.wallet.requests(s, from, to, sale).at(s.url)
		load.once = true
		sample := b.fire(t, r, load, mostTenthSeconds, 0)
		if sample.Errors > 0 {
			r.void("%d connections failed or timed out", sample.Errors)
		}
		r.Path = append(r.Path, sample)
		r.Values = append(r.Values, s.engine.rssMiB())
		refused, answers = refused+sample.Refused, answers+sample.Requests
		s.troubles += s.engine.troubles()
	}
	sold := answers - refused
	early, late := spread(r.Values[:tenths/2]), spread(r.Values[tenths/2:])
	first, last := r.Path[0].P99MS, r.Path[tenths-1].P99MS
	r.Goal = "flat memory, p99 no higher at the end"
	r.Measured = fmt.Sprintf("%s to %s MiB, p99 %s to %s ms", figure(early.Max), figure(late.Max), figure(first), figure(last))
	r.Met = late.Max <= early.Max*(1+mostGrowth) && last <= first*(1+mostGrowth)
	r.note("%d attempts by as many users, %d orders seen; memory after each tenth: %.0f MiB; p99: %.2f ms", answers, sold, r.Values, p99s(r.Path))
	if b.mostBuyers > quota && s.available(sale) != 0 {
		r.void("units are left")
	}
	s.balance(r, sold, wrkConnections*tenths, sale)
}

func (s *shop) available(saleID string) (n int64) {
	s.t.Helper()
	s.settled(saleID)
	var audit struct{ Available int64 }
	body := s.must(http.StatusOK, http.MethodGet, s.url+"/api/v1/admin/sales/"+saleID+"/audit", s.admin, "").Body
	if err := json.Unmarshal([]byte(body), &audit); err != nil {
		s.t.Fatal(err)
	}
	return audit.Available
}

// ab measures with ApacheBench, as the first article did: one connection per request, one user.
type ab struct{ soldOut bool }

func (a ab) measure(t *testing.T, b *run, r *Result) {
	s := newStores(t, false).open(b.binary, "--user-requests", "100000")
	r.command("flashsale", s.engine.cmd.Args[1:])
	want, seen := http.StatusCreated, int64(1)
	var sale string
	if a.soldOut {
		want = http.StatusConflict
		sale = s.soldOut(&b.wallet)
	} else {
		sale = s.sale(manyUnits, manyEach)
	}
	control := b.mirror(t, r, http.MethodPost, buyPattern, s.buy(sale, "probe", &b.wallet, want))
	body := b.save(t, []byte(buyBody))
	fire := func(url string, round int) Sample {
		path, token := b.wallet.request(s, sale, userID(round)) // another user per round, who buys up to the limit
		args := []string{
			"-l", "-q", "-n", strconv.Itoa(abTimes), "-c", strconv.Itoa(wrkConnections), "-p", body, "-T", "application/json",
			"-H", "Authorization: Bearer " + token, url + path,
		}
		r.command("ab", args)
		sample, err := parseAB(output(t, wrkSlack, "ab", args...))
		if err != nil {
			t.Fatal(err)
		}
		if sample.Errors > 0 || sample.Requests != abTimes {
			r.void("ab completed %d of %d requests, and %d failed", sample.Requests, abTimes, sample.Errors)
		}
		return sample
	}
	var done turns
	for round := range b.rounds + 1 { // the first round warms up
		c, p := fire(control, round), fire(s.url, round)
		done.answers, done.refused = done.answers+p.Requests, done.refused+p.Refused
		s.drained(sale)
		s.troubles += s.engine.troubles()
		if round > 0 {
			done.control, done.path = append(done.control, c), append(done.path, p)
		}
	}
	r.Control, r.Path = done.control, done.path
	r.judgeRatio(0.9, 0)
	seen += done.accepted(r, !a.soldOut)
	r.note("one user and a connection a request; the first article had 4,276/s on its machine")
	s.balance(r, seen, 0, sale)
}

// startUp measures the time from the start of the program, without other servers, to its first answer.
func startUp(t *testing.T, b *run, r *Result) {
	r.Unit = "ms"
	for range starts {
		folder := t.TempDir()
		args := []string{"serve", "--http-addr", "127.0.0.1:0", "--ops-addr", "127.0.0.1:0", "--database", "sqlite:" + filepath.Join(folder, "flashsale.db")}
		r.command("flashsale", args)
		begun := time.Now()
		s := &shop{t: t, client: &http.Client{Timeout: startTimeout}}
		s.engine = start(t, b.binary, args...)
		s.url = s.engine.says(" is at ")
		s.must(http.StatusOK, http.MethodGet, s.url+"/healthz", "", "")
		r.Values = append(r.Values, float64(time.Since(begun))/float64(time.Millisecond))
		s.client.CloseIdleConnections()
		if err := s.engine.stop(); err != nil {
			r.void("%v", err)
		}
	}
	r.judgeMost(300)
	r.note("each of %d starts in an empty folder: tables, keys, operator and demo sale are made", starts)
}
