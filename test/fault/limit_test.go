package fault

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"flashsale/test/kit/shop"
)

// limitRows are attacks by volume: connections, addresses, requests, log-ins.
var limitRows = []row{
	{18, "500 slowloris connections and 10,000 idle ones", "cut by timeouts; others are served", slowAndIdle},
	{24, "forged headers, and 1,000 addresses", "still limited", forgedAddresses},
	{26, "ten times the requests that the instance takes", "a bounded wait for those taken; 429 for the others; soon normal", tenTimesTheRate},
	{27, "more buyers than the queue in front of the database holds", "503 at once for the excess, nobody else loses", fullQueue},
	{28, "log-ins without end", "bounded in cores and memory; buyers are served", loginsWithoutEnd},
}

// leanly makes an instance collect garbage early, so that its memory is what it needs.
var leanly = []string{"GOGC=50"}

func (d *drill) resident(i *shop.Instance) int64 { return d.memory(i, "VmRSS") }

// memory reads a field of a process's status, in bytes.
func (d *drill) memory(i *shop.Instance, field string) int64 {
	d.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", i.PID()))
	_, after, _ := strings.Cut(string(status), field+":")
	line, _, _ := strings.Cut(after, " kB")
	kilobytes := number(strings.TrimSpace(line))
	if kilobytes == 0 {
		d.Errorf("the memory of %d: %v", i.PID(), err) // not Fatal, because some callers run in goroutines of their own
	}
	return int64(kilobytes) << 10
}

// flatSlack is how much an instance's memory may vary without a cause, in bytes.
const flatSlack = 24 << 20

// flat runs an attack once and then repeats it: the repetitions must not make the instance's memory grow.
func (d *drill) flat(i *shop.Instance, times int, attack func()) {
	d.Helper()
	attack()
	before := d.resident(i)
	for range times {
		attack()
	}
	grown := d.resident(i) - before
	d.Logf("%d bytes, %+d after %d more rounds", before, grown, times)
	if grown > flatSlack {
		d.Errorf("%d more rounds of it have taken %d MiB", times, grown>>20)
	}
}

// The instance's own time-outs, and the delay that a busy machine may add to them.
const (
	headersCut = 5 * time.Second
	bodyCut    = 10 * time.Second
	idleCut    = 2 * time.Minute
	cutSlack   = 5 * time.Second
)

// hoard is a set of connections that send little or nothing, and how long each of them lived.
type hoard struct {
	what  string
	n     int
	first string        // what each connection sends when it is open
	drip  string        // what it sends each second
	least time.Duration // the server cuts no connection before
	most  time.Duration // the server has cut every connection

	mu    sync.Mutex
	lives []time.Duration // of the connections that the server cut
	err   error
	done  chan struct{}
}

// dialers is how many connections are opened at once, because a listener's backlog is small.
const dialers = 64

// open opens the connections, and keeps each until the server cuts it or h.most is over. It returns when all are open.
func (h *hoard) open(d *drill, address string) {
	h.done = make(chan struct{})
	var all sync.WaitGroup
	inParallel(dialers, h.n, func(int) {
		dialer := net.Dialer{Timeout: 10 * time.Second}
		conn, err := dialer.DialContext(d.Context(), "tcp", address)
		if err != nil {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.err = errors.Join(h.err, err)
			return
		}
		all.Go(func() {
			defer func() { _ = conn.Close() }()
			start := time.Now()
			if cut := sit(conn, h.first, h.drip, start.Add(h.most)); cut {
				h.mu.Lock()
				defer h.mu.Unlock()
				h.lives = append(h.lives, time.Since(start))
			}
		})
	})
	go func() {
		defer close(h.done)
		all.Wait()
	}()
}

// sit keeps a connection open and reports whether the other side has cut it.
func sit(conn net.Conn, first, drip string, until time.Time) bool {
	if _, err := io.WriteString(conn, first); err != nil {
		return true
	}
	for time.Now().Before(until) {
		if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			return true
		}
		_, err := io.Copy(io.Discard, conn) // an answer does not end the loop
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			return true
		}
		if _, err := io.WriteString(conn, drip); err != nil {
			return true
		}
	}
	return false
}

// cut checks that every connection of a hoard was cut, in time and not too early.
func (d *drill) cut(h *hoard) {
	d.Helper()
	<-h.done
	if h.err != nil || len(h.lives) != h.n || slices.Min(h.lives) < h.least {
		d.Errorf("%s: %d of %d were cut in %s, the first after %s, the time-out is %s (%v)",
			h.what, len(h.lives), h.n, h.most, percentile(h.lives, 0), h.least, h.err)
	}
	d.Logf("%s: %d cut after %s to %s", h.what, len(h.lives), ms(percentile(h.lives, 0)), ms(percentile(h.lives, 100)))
}

func slowAndIdle(d *drill) {
	slow, idle := size(50, 500), size(1_000, 10_000)
	d.openFiles(uint64(2*slow + idle + 1_000))
	d.stores()
	a := d.StartWith(leanly)
	d.sell(size(500, 2_000), a)
	d.attempts = d.Rush(d.sale, "calm", 100, nil, a.URL)
	_, usual := slowest(d.attempts)
	before := d.resident(a)

	// The server may start to count a moment before the client.
	const request = " HTTP/1.1\r\nHost: shop\r\n"
	headers := &hoard{
		what: "slow headers", n: slow, first: "GET /api/v1/time" + request, drip: "X-More: and more\r\n",
		least: headersCut - time.Second, most: headersCut + cutSlack,
	}
	bodies := &hoard{
		what: "slow bodies", n: slow, drip: " ", least: headersCut, most: bodyCut + cutSlack,
		first: "POST /api/v1/users" + request + "Content-Type: application/json\r\nContent-Length: 4000\r\n\r\n{",
	}
	silent := &hoard{what: "silent", n: idle / 2, least: headersCut - time.Second, most: headersCut + cutSlack}
	kept := &hoard{
		what: "idle after a request", n: idle - idle/2, first: "GET /healthz" + request + "\r\n",
		least: idleCut - time.Second, most: size(bodyCut, idleCut+cutSlack),
	}
	var opened sync.WaitGroup
	for _, h := range []*hoard{headers, bodies, silent, kept} {
		opened.Go(func() { h.open(d, strings.TrimPrefix(a.URL, "http://")) })
	}
	opened.Wait()
	held := d.resident(a)

	var visitors []shop.Attempt
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	for round, sitting := 0, true; sitting; round++ {
		visitors = append(visitors, d.Rush(d.sale, fmt.Sprintf("visitor%d", round), 20, nil, a.URL)...)
		select {
		case <-bodies.done:
			sitting = false
		case <-ticker.C:
		}
	}
	d.told(visitors, "201", "409 sold_out")
	d.attempts = append(d.attempts, visitors...)
	for _, h := range []*hoard{headers, silent, bodies} {
		d.cut(h)
	}
	if full {
		d.cut(kept)
	} else if <-kept.done; len(kept.lives) > 0 || kept.err != nil {
		d.Errorf("%d of %d that had made a request were cut before %s (%v)", len(kept.lives), kept.n, idleCut, kept.err)
	}
	_, p99 := slowest(visitors)
	if p99 > max(2*time.Second, 5*usual) {
		d.Errorf("the slowest of a hundred visitors waited %s, and %s before", p99, usual)
	}
	d.finish("%d slow and %d idle connections held %d MiB; meanwhile %d visitors were served, 99 of 100 within %s",
		2*slow, idle, (held-before)>>20, len(d.attempts), ms(p99))
}

// forgeries are the headers in which various proxies forward a client's address.
var forgeries = []string{
	"X-Forwarded-For", "X-Real-Ip", "Forwarded", "True-Client-Ip", "Cf-Connecting-Ip", "X-Client-Ip", "X-Forwarded-Host", "Via",
}

func forgedAddresses(d *drill) {
	const each, total = 20.0, 100
	d.stores()
	rate := []string{"--ip-rate", fmt.Sprint(each)}
	open := d.StartWith(leanly, rate...)
	behind := d.StartWith(leanly, append(rate, "--trusted-proxies", "127.0.0.1",
		"--limit-rate", fmt.Sprint(total), "--limit-burst", fmt.Sprint(total))...)
	byUser := d.StartWith(leanly, "--user-requests", "5", "--user-window", "1h")
	client := d.manyConnections()
	requests := size(1_000, 5_000)

	// letIn sends requests one after the other. It checks that no more are served than the rate and a burst of that
	// size allow.
	letIn := func(what string, rate float64, url string, from *http.Client, header func(i int) []string) string {
		d.Helper()
		passed, start := 0, time.Now()
		for i := range requests {
			r, err := ask(d.Context(), from, http.MethodGet, url+"/api/v1/time", http.NoBody, header(i)...)
			d.ok(err)
			if r.status == http.StatusOK {
				passed++
			} else if wrong := again(r); wrong != "" {
				d.Errorf("%s: %s", what, wrong)
			}
		}
		most := int(rate+rate*time.Since(start).Seconds()) + 1
		if passed < 1 || passed > most {
			d.Errorf("%s: %d of %d passed, want 1 to %d", what, passed, requests, most)
		}
		return fmt.Sprintf("%s: %d of %d passed (at most %d)", what, passed, requests, most)
	}
	spoofed := func(i int) (headers []string) {
		address := fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255)
		for _, name := range forgeries {
			headers = append(headers, name, address)
		}
		return headers
	}
	next := atomic.Int64{}
	elsewhere := d.manyConnections(func(t *http.Transport) { // a new connection from a new address for each request
		t.DisableKeepAlives = true
		t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			n := next.Add(1)
			dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 1+byte(n>>16), byte(n>>8), byte(n))}}
			return dialer.DialContext(ctx, network, address)
		}
	})

	told := make([]string, 4)
	d.flat(open, 2, func() { told[0] = letIn("forged headers", each, open.URL, client, spoofed) })
	// A client at another address is not limited by the flood.
	r, err := ask(d.Context(), elsewhere, http.MethodGet, open.URL+"/api/v1/time", http.NoBody)
	if err != nil || r.status != http.StatusOK {
		d.Errorf("from another address: %d, %v", r.status, err)
	}
	// The proxy appends the true address to the addresses that its client claims.
	told[1] = letIn("one address behind a proxy", each, behind.URL, client, func(i int) []string {
		return []string{"X-Forwarded-For", fmt.Sprintf("10.0.%d.%d, 192.0.2.7", i>>8&255, i&255)}
	})
	d.flat(behind, 2, func() {
		told[2] = letIn("1,000 addresses behind a proxy", total, behind.URL, client, func(i int) []string {
			return []string{"X-Forwarded-For", fmt.Sprintf("198.51.%d.%d", i%1_000/250, i%250)}
		})
	})
	told[3] = letIn("1,000 true addresses", total, behind.URL, elsewhere, func(int) []string { return nil })

	// The requests of one buyer count together, from whatever addresses they come.
	d.sell(10, byUser)
	d.attempts = make([]shop.Attempt, size(50, 1_000))
	for i := range d.attempts {
		d.attempts[i] = shop.Attempt{User: "everywhere", Key: fmt.Sprint("key-", i), URL: byUser.URL}
		r, err := d.knock(elsewhere, &d.attempts[i], d.sale, spoofed(i)...)
		d.ok(err)
		if wrong := again(r); i >= 5 && wrong != "" {
			d.Errorf("request %d of one buyer: %s", i, wrong)
		}
	}
	if counts := shop.Tally(d.attempts); counts["201 "] != 1 || counts["409 limit_reached"] != 4 {
		d.Errorf("one buyer at limit 1 with five requests allowed: %v", counts)
	}
	d.finish("%s", strings.Join(told, "; "))
}

// flood holds the results of requests that were sent at a fixed rate, however fast they were answered.
type flood struct {
	accepted []time.Duration
	refused  []time.Duration
	wrong    []string
	skipped  int // requests for which no sender was free
	lasted   time.Duration
}

func (f flood) sent() int { return len(f.accepted) + len(f.refused) }

// senders is how many requests of a flood may be in flight at once.
const senders = 400

// flood sends perSecond purchases a second, each by another buyer.
func (d *drill) flood(client *http.Client, url, prefix string, perSecond int, lasts time.Duration) (f flood) {
	d.Helper()
	var mu sync.Mutex
	var work sync.WaitGroup
	due := make(chan int, senders)
	for range senders {
		work.Go(func() {
			for n := range due {
				a := shop.Attempt{User: fmt.Sprint(prefix, n), URL: url}
				a.Key = "key-" + a.User
				r, err := d.knock(client, &a, d.sale)
				mu.Lock()
				d.attempts = append(d.attempts, a)
				switch {
				case err != nil:
					f.wrong = append(f.wrong, err.Error())
				case r.status == http.StatusCreated:
					f.accepted = append(f.accepted, r.took)
				default:
					f.refused = append(f.refused, r.took)
					if wrong := again(r); wrong != "" {
						f.wrong = append(f.wrong, wrong)
					}
				}
				mu.Unlock()
			}
		})
	}
	start, sent := time.Now(), 0
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for now := start; now.Sub(start) < lasts; now = <-ticker.C {
		for ; sent < int(now.Sub(start).Seconds()*float64(perSecond)); sent++ {
			select {
			case due <- sent:
			default:
				f.skipped++
			}
		}
	}
	close(due)
	work.Wait()
	f.lasted = time.Since(start)
	return f
}

func tenTimesTheRate(d *drill) {
	const burst = 50
	rate := size(100, 200)
	d.stores()
	a := d.StartWith(leanly, "--limit-rate", fmt.Sprint(rate), "--limit-burst", fmt.Sprint(burst))
	lasts := size(4*time.Second, time.Minute)
	seconds := int(lasts.Seconds())
	d.sell(seconds*rate+burst+900, d.Start()) // for the setup and the checks; 900 for the floods before and after
	client := d.manyConnections()

	calm := d.flood(client, a.URL, "calm", rate/2, size(time.Second, 2*time.Second))
	if len(calm.refused) > 0 || len(calm.wrong) > 0 {
		d.Fatalf("half of what it takes: %d refused, %s", len(calm.refused), some(calm.wrong))
	}
	normal := max(3*percentile(calm.accepted, 99), 250*time.Millisecond)

	early, late := int64(0), int64(0) // its peak memory in the second and in the last quarter
	start := time.Now()
	endLooks := d.meanwhile(1, 100*time.Millisecond, func(int, int) {
		switch quarter := 4 * time.Since(start) / lasts; {
		case quarter == 1:
			early = max(early, d.resident(a))
		case quarter >= 3:
			late = max(late, d.resident(a))
		}
	})
	f := d.flood(client, a.URL, "flood", 10*rate, lasts)
	endLooks()

	// What counts is how many requests were sent: a busy machine may not manage ten times the rate.
	if f.sent() < 5*rate*seconds {
		d.Errorf("this machine has sent %d requests of %d, too few to be an overload", f.sent(), 10*rate*seconds)
	}
	if most := burst + int(float64(rate)*f.lasted.Seconds()) + 1; len(f.accepted) > most || len(f.accepted) < most/2 {
		d.Errorf("%d were accepted, want about %d", len(f.accepted), most)
	}
	if len(f.wrong) > 0 {
		d.Errorf("wrong answers: %s", some(f.wrong))
	}
	taken, turned := percentile(f.accepted, 99), percentile(f.refused, 99)
	if bound := max(2*time.Second, 4*normal); taken > bound || turned > bound {
		d.Errorf("99 of 100 that were taken had their answer in %s, of those that were not in %s", taken, turned)
	}
	if early == 0 || late == 0 || late-early > flatSlack {
		d.Errorf("its memory went from %d MiB to %d MiB", early>>20, late>>20)
	}

	// The latency must be normal again within five seconds.
	over := time.Now()
	for n := 0; ; n++ {
		after := d.flood(client, a.URL, fmt.Sprintf("after%d-", n), rate/2, 500*time.Millisecond)
		p95 := percentile(after.accepted, 95)
		if len(after.refused)+len(after.wrong) == 0 && p95 <= normal {
			break
		}
		if time.Since(over) > 5*time.Second {
			d.Errorf("after five seconds: %d refused, %s, 95 of 100 within %s, normal is %s",
				len(after.refused), some(after.wrong), p95, normal)
			break
		}
	}
	calmed := time.Since(over)
	d.finish("%d requests a second, %d taken: %d accepted, 99 of 100 within %s; %d times 429, 99 of 100 within %s; "+
		"%d MiB, %+d; normal after %s", f.sent()/seconds, rate, len(f.accepted), ms(taken), len(f.refused), ms(turned),
		late>>20, (late-early)>>20, calmed.Round(100*time.Millisecond))
}

// The most attempts that wait for the database, for one sale on one instance: in the queue, and in the batch in
// progress.
const (
	waitingAtMost = 4096
	inOneBatch    = 512
)

func fullQueue(d *drill) {
	const excess = 600
	const buyers = waitingAtMost + inOneBatch + excess
	d.openFiles(2*buyers + 1_000)
	d.stores()
	a := d.StartWith(leanly)
	d.sell(buyers+100, a)
	d.Redis.Kill()
	scouts := d.away(a)

	// All buyers come at once. The excess is refused at once; the others wait until the stock row is free. slots bounds
	// the connections that are opened at once.
	slots := make(chan struct{}, dialers)
	client := d.manyConnections(func(t *http.Transport) {
		t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			slots <- struct{}{}
			defer func() { <-slots }()
			return new(net.Dialer).DialContext(ctx, network, address)
		}
	})
	d.attempts = make([]shop.Attempt, buyers)
	refused := make(chan time.Duration, buyers)
	var all sync.WaitGroup
	var turned []time.Duration // refused while the row was locked, so without a wait for it
	var filled int64
	d.whileLocked(d.sale, func(*sql.Tx) {
		for i := range d.attempts {
			at := &d.attempts[i]
			at.User, at.Key, at.URL = fmt.Sprint("u", i), fmt.Sprint("key-", i), a.URL
			all.Go(func() {
				r, err := d.knock(client, at, d.sale)
				switch {
				case err != nil:
					d.Errorf("%s: %v", at.User, err)
				case r.status == http.StatusCreated:
				case again(r) != "":
					d.Errorf("%s: %s", at.User, again(r))
				default:
					refused <- r.took
				}
			})
		}
		enough := time.NewTimer(6 * time.Second) // the engine gives the waiting batch up after eight
		defer enough.Stop()
		for waiting := true; waiting && len(turned) < excess; {
			select {
			case took := <-refused:
				turned = append(turned, took)
			case <-enough.C:
				waiting = false
			}
		}
		filled = d.resident(a)
	})
	all.Wait()
	if len(turned) == 0 {
		d.Errorf("nobody was turned away while %d waited", buyers)
	}
	if confirmed := shop.Tally(d.attempts)["201 "]; confirmed < waitingAtMost/2 {
		d.Errorf("only %d of those that waited were served: %v", confirmed, shop.Tally(d.attempts))
	}
	told := tally(d.attempts)
	d.attempts = append(d.attempts, scouts...)
	d.Redis.Restart()
	d.finish("%s; %d were turned away while the row was held, 99 of 100 within %s; %d MiB with the queue full",
		told, len(turned), ms(percentile(turned, 99)), filled>>20)
}

// away sends buyers until an instance has noticed that its Redis is gone. From then on the instance sells from the
// database and does not ask Redis. It returns the buyers' attempts.
func (d *drill) away(i *shop.Instance) (scouts []shop.Attempt) {
	d.Helper()
	d.until(time.Minute, "the instance leaves Redis alone", func() (bool, error) {
		status, doc, err := d.Call(http.MethodGet, i.URL+"/readyz", "", nil)
		dependencies, _ := doc["dependencies"].(shop.Document)
		if err == nil && status == http.StatusOK && dependencies["strategy"] == "down" {
			return true, nil
		}
		scouts = append(scouts, d.buy(fmt.Sprint("scout", len(scouts)), "key", i.URL))
		return false, err
	})
	return scouts
}

func loginsWithoutEnd(d *drill) {
	d.stores()
	a := d.StartWith(leanly)
	d.sell(size(1_000, 5_000), a)
	client := d.manyConnections()
	lasts := size(3*time.Second, 20*time.Second)
	const perSecond = 50
	calm := d.flood(client, a.URL, "calm", perSecond, size(time.Second, 2*time.Second))
	before := d.resident(a)

	var mu sync.Mutex
	counts, most := map[string]int{}, int64(0)
	endGuesses := d.meanwhile(200, 100*time.Millisecond, func(guesser, try int) {
		name := []string{"admin", fmt.Sprint("stranger-", guesser)}[try%2] // one exists, the other does not
		body := strings.NewReader(fmt.Sprintf(`{"name":%q,"password":"guess number %d"}`, name, try))
		r, err := ask(d.Context(), client, http.MethodPost, a.URL+"/api/v1/sessions", body, "Content-Type", "application/json")
		what := r.String()
		if err != nil {
			what = err.Error()
		} else if wrong := again(r); r.status != http.StatusUnauthorized && wrong != "" {
			what = wrong
		}
		mu.Lock()
		defer mu.Unlock()
		counts[what]++
	})
	endLooks := d.meanwhile(1, 50*time.Millisecond, func(int, int) { most = max(most, d.resident(a)) })
	f := d.flood(client, a.URL, "buyer", perSecond, lasts)
	endGuesses()
	endLooks()

	no, tooMany := counts["401 unauthenticated"], counts["503 unavailable"]
	if no == 0 || tooMany == 0 || len(counts) > 2 {
		d.Errorf("log-ins heard %v, want both a no and that there are too many, and nothing else", counts)
	}
	if len(f.wrong) > 0 || len(f.refused) > 0 || f.skipped > 0 || len(f.accepted) < perSecond*int(lasts.Seconds())/2 {
		d.Errorf("buyers: %d accepted, %d refused, %d could not be sent; %s", len(f.accepted), len(f.refused), f.skipped, some(f.wrong))
	}
	was, is := percentile(calm.accepted, 95), percentile(f.accepted, 95)
	if is > max(10*was, size(5*time.Second, time.Second)) {
		d.Errorf("95 of 100 buyers were served within %s before, and within %s among the log-ins", was, is)
	}
	// A password hash takes 19 MiB. Two at a time stay far below this bound, two hundred far exceed it.
	if most-before > 192<<20 {
		d.Errorf("its memory went from %d MiB to %d MiB", before>>20, most>>20)
	}
	d.finish("200 guessers: %d times 401, %d times 503; buyers' p95 %s, before %s; %d MiB, before %d",
		no, tooMany, ms(is), ms(was), most>>20, before>>20)
}
