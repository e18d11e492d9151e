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
		dialer := net.Dialer{Timeout: time.Minute}
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
		d.Slowf("%s: %d of %d were cut in %s, the first after %s, the time-out is %s (%v)",
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
		d.Slowf("%d of %d that had made a request were cut before %s (%v)", len(kept.lives), kept.n, idleCut, kept.err)
	}
	_, p99 := slowest(visitors)
	if p99 > max(2*time.Second, 5*usual) {
		d.Slowf("the slowest of a hundred visitors waited %s, and %s before", p99, usual)
	}
	d.finish("%d slow and %d idle connections held %d MiB; meanwhile %d visitors were served, 99 of 100 within %s",
		2*slow, idle, (held-before)>>20, len(d.attempts), ms(p99))
}

// forgeries are the headers in which various proxies forward a client's address.
var forgeries = []string{
	"X-Forwarded-For", "X-Real-Ip", "Forwarded", "True-Client-Ip", "Cf-Connecting-Ip", "X-Client-Ip", "X-Forwarded-Host", "Via",
}

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
					d.Slowf("%s: %v", at.User, err)
				case r.status == http.StatusCreated:
				case again(r) != "":
					d.wrong(r.status)("%s: %s", at.User, again(r))
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
		d.Slowf("nobody was turned away while %d waited", buyers)
	}
	if confirmed := shop.Tally(d.attempts)["201 "]; confirmed < waitingAtMost/2 {
		d.Slowf("only %d of those that waited were served: %v", confirmed, shop.Tally(d.attempts))
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
	const perSecond, noAnswer = 50, "no answer"
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
			what = noAnswer
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

	// The guessers share an address, which may have less under way than the instance.
	no, tooMany, silent := counts["401 unauthenticated"], counts["429 rate_limited"]+counts["503 unavailable"], counts[noAnswer]
	if no == 0 || tooMany == 0 || silent > 0 {
		d.Slowf("log-ins heard %v, want both a no and that there are too many", counts)
	}
	for _, usual := range []string{"401 unauthenticated", "429 rate_limited", "503 unavailable", noAnswer} {
		delete(counts, usual)
	}
	if len(counts) > 0 {
		d.Errorf("log-ins heard %v, want a no, or that there are too many, and nothing else", counts)
	}
	if len(f.wrong) > 0 {
		d.Errorf("buyers: wrong answers: %s", some(f.wrong))
	}
	if len(f.late) > 0 || len(f.refused) > 0 || f.skipped > 0 || len(f.accepted) < perSecond*int(lasts.Seconds())/2 {
		d.Slowf("buyers: %d accepted, %d refused, %d could not be sent; %s", len(f.accepted), len(f.refused), f.skipped, some(f.late))
	}
	was, is := percentile(calm.accepted, 95), percentile(f.accepted, 95)
	if is > max(10*was, size(5*time.Second, time.Second)) {
		d.Slowf("95 of 100 buyers were served within %s before, and within %s among the log-ins", was, is)
	}
	// A password hash takes 19 MiB. Two at a time stay far below this bound, two hundred far exceed it.
	if most-before > 192<<20 {
		d.Errorf("its memory went from %d MiB to %d MiB", before>>20, most>>20)
	}
	d.finish("200 guessers: %d times 401, %d times 429 or 503; buyers' p95 %s, before %s; %d MiB, before %d",
		no, tooMany, ms(is), ms(was), most>>20, before>>20)
}
