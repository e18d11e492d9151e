package drill

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"flashsale/service"
	"flashsale/testkit/shop"
)

// limitRows are attacks by mass: connections, addresses, requests, log-ins.
var limitRows = []row{
	{18, "500 slowloris connections and 10,000 idle ones", "cut by timeouts; others are served", slowAndIdle},
	{24, "forged headers, and 1,000 addresses", "still limited", forgedAddresses},
	{26, "ten times the requests that the instance takes", "a bounded wait for those taken; 429 for the others; soon normal", tenTimesTheRate},
	{27, "more buyers than the queue in front of the database holds", "503 at once for the excess, nobody else loses", fullQueue},
	{28, "log-ins without end", "bounded in cores and memory; buyers are served", loginsWithoutEnd},
}

// leanly has an instance collect its garbage early, so that what it holds is what it needs.
var leanly = []string{"GOGC=50"}

// reply is an answer as it came.
type reply struct {
	status int
	header http.Header
	body   []byte
	took   time.Duration
}

// code is that of a problem.
func (r reply) code() string {
	_, after, _ := strings.Cut(string(r.body), `"code":"`)
	code, _, _ := strings.Cut(after, `"`)
	return code
}

// ask makes a request with these headers, given as names and values.
func ask(ctx context.Context, client *http.Client, method, url string, body io.Reader, headers ...string) (r reply, err error) {
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return r, err
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	start := time.Now()
	res, err := client.Do(req)
	if err != nil {
		return r, err
	}
	defer func() { _ = res.Body.Close() }()
	r.status, r.header = res.StatusCode, res.Header
	r.body, err = io.ReadAll(res.Body)
	r.took = time.Since(start)
	return r, err
}

// knock asks for one unit under a path that is good: one request, where shop.Buy makes two.
func knock(ctx context.Context, client *http.Client, s *shop.Shop, a *shop.Attempt, sale string, headers ...string) (reply, error) {
	path, _ := service.NewPaths([]byte(shop.Secret), time.Now).Issue(a.User, sale, time.Minute)
	a.Invoked = time.Now()
	r, err := ask(ctx, client, http.MethodPost, a.URL+"/api/v1/sales/"+sale+"/"+path+"/orders", strings.NewReader(`{"quantity":1}`),
		append([]string{"Authorization", "Bearer " + s.Token(a.User), "Content-Type", "application/json", "Idempotency-Key", a.Key}, headers...)...)
	a.Answered = time.Now()
	if err != nil {
		return r, err
	}
	a.Status, a.Code = r.status, r.code()
	if a.Status == http.StatusCreated || a.Status == http.StatusAccepted {
		a.OrderID = strings.TrimPrefix(r.header.Get("Location"), "/api/v1/orders/")
	}
	return r, nil
}

// manyConnections is a client that opens as many as are asked of it.
func (d *drill) manyConnections(change ...func(*http.Transport)) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 20_000}
	for _, f := range change {
		f(transport)
	}
	d.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 20 * time.Second}
}

// resident is what an instance holds in memory, in bytes, by the kernel's count.
func (d *drill) resident(i *shop.Instance) int64 {
	d.Helper()
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(i.PID()), "status"))
	if err != nil {
		d.Error(err) // not Fatal: some look from a goroutine of their own
		return 0
	}
	_, after, _ := strings.Cut(string(status), "VmRSS:")
	line, _, _ := strings.Cut(after, " kB")
	kilobytes, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	if err != nil {
		d.Errorf("the memory of %d: %v", i.PID(), err)
	}
	return kilobytes << 10
}

// flatSlack is what an instance's memory may move by itself.
const flatSlack = 24 << 20

// flat repeats an attack: once the instance has met it, it may not grow any more by it.
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

// percentile is the time within which so many of a hundred were answered.
func percentile(times []time.Duration, percent int) time.Duration {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[min(len(times)*percent/100, len(times)-1)]
}

// again says what is wrong with a refusal for want of capacity: it has to say when to come again.
func again(r reply) string {
	after, err := strconv.Atoi(r.header.Get("Retry-After"))
	if r.status != http.StatusTooManyRequests && r.status != http.StatusServiceUnavailable || err != nil || after < 1 {
		return fmt.Sprintf("%d %s with Retry-After %q", r.status, r.code(), r.header.Get("Retry-After"))
	}
	return ""
}

// openFiles sees to it that this process, and those that it starts, may have so many files open.
func (d *drill) openFiles(need uint64) {
	d.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		d.Fatal(err)
	}
	if limit.Max < need {
		d.Fatalf("this row needs %d open files, and no process here may have more than %d (ulimit -Hn)", need, limit.Max)
	}
	if limit.Cur >= need {
		return
	}
	limit.Cur = limit.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		d.Fatal(err)
	}
}

// The instance's own time-outs, and what a busy machine may add to them.
const (
	headersCut = 5 * time.Second
	bodyCut    = 10 * time.Second
	idleCut    = 2 * time.Minute
	cutSlack   = 5 * time.Second
)

// hoard is a heap of connections that say little, and how long each of them lived.
type hoard struct {
	what  string
	lives []time.Duration // of those that were cut
	kept  int             // those that were not, until the patience was over
	err   error
	done  chan struct{}
}

// dialers is how many connections are opened at once: a listener's backlog is small.
const dialers = 64

// hoard opens n connections to an address, says first on each, and then drip each second, until the server cuts it or
// patience is over. opened is called when all of them are open.
func (d *drill) hoard(what string, n int, address, first, drip string, patience time.Duration, opened func()) *hoard {
	h := &hoard{what: what, done: make(chan struct{})}
	var mu sync.Mutex
	var all, dialled sync.WaitGroup
	dialled.Add(n)
	slots := make(chan struct{}, dialers)
	for range n {
		all.Go(func() {
			slots <- struct{}{}
			dialer := net.Dialer{Timeout: 10 * time.Second}
			conn, err := dialer.DialContext(d.Context(), "tcp", address)
			<-slots
			dialled.Done()
			start := time.Now()
			cut := false
			if err == nil {
				cut = sit(conn, first, drip, start.Add(patience))
				_ = conn.Close()
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				h.err = errors.Join(h.err, err)
			case cut:
				h.lives = append(h.lives, time.Since(start))
			default:
				h.kept++
			}
		})
	}
	go func() {
		defer close(h.done)
		dialled.Wait()
		opened()
		all.Wait()
	}()
	return h
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
		_, err := io.Copy(io.Discard, conn) // an answer is no reason to go
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			return true
		}
		if _, err := io.WriteString(conn, drip); err != nil {
			return true
		}
	}
	return false
}

// cut checks that every connection was cut, and when.
func (d *drill) cut(h *hoard, least, most time.Duration) {
	d.Helper()
	<-h.done
	if h.err != nil || h.kept > 0 {
		d.Errorf("%s: %d were not cut in %s (%v)", h.what, h.kept, most, h.err)
	}
	if len(h.lives) == 0 {
		return
	}
	if shortest := slices.Min(h.lives); shortest < least {
		d.Errorf("%s: one was cut after %s, the time-out is %s", h.what, shortest, least)
	}
	d.Logf("%s: %d cut after %s to %s", h.what, len(h.lives), slices.Min(h.lives).Round(time.Millisecond), slices.Max(h.lives).Round(time.Millisecond))
}

func slowAndIdle(d *drill) {
	slow, idle := size(50, 500), size(1_000, 10_000)
	d.openFiles(uint64(2*slow + idle + 1_000))
	s := shop.New(d)
	a := s.StartWith(leanly)
	quota := size(500, 2_000)
	sale := s.Sale(a.URL, quota)
	address := strings.TrimPrefix(a.URL, "http://")
	before := d.resident(a)

	var opened sync.WaitGroup
	opened.Add(4)
	headers := d.hoard("slow headers", slow, address, "GET /api/v1/time HTTP/1.1\r\nHost: shop\r\n", "X-More: and more\r\n", headersCut+cutSlack, opened.Done)
	bodies := d.hoard("slow bodies", slow, address, "POST /api/v1/users HTTP/1.1\r\nHost: shop\r\nContent-Type: application/json\r\nContent-Length: 4000\r\n\r\n{", " ", bodyCut+cutSlack, opened.Done)
	silent := d.hoard("silent", idle/2, address, "", "", headersCut+cutSlack, opened.Done)
	kept := d.hoard("idle after a request", idle-idle/2, address, "GET /healthz HTTP/1.1\r\nHost: shop\r\n\r\n", "", span(bodyCut, idleCut+cutSlack), opened.Done)
	opened.Wait()
	held := d.resident(a)

	var attempts []shop.Attempt
	var waits []time.Duration
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	for round, sitting := 0, true; sitting; round++ {
		for _, at := range s.Rush(sale, fmt.Sprintf("visitor%d", round), 20, nil, a.URL) {
			if at.Status != http.StatusCreated && at.Code != "sold_out" {
				d.Errorf("%s was told %d %s", at.User, at.Status, at.Code)
			}
			attempts, waits = append(attempts, at), append(waits, at.Answered.Sub(at.Invoked))
		}
		select {
		case <-bodies.done:
			sitting = false
		case <-ticker.C:
		}
	}
	// The server may count from a moment before this side's.
	d.cut(headers, headersCut-time.Second, headersCut+cutSlack)
	d.cut(silent, headersCut-time.Second, headersCut+cutSlack)
	d.cut(bodies, headersCut, bodyCut+cutSlack)
	if full {
		d.cut(kept, idleCut-time.Second, idleCut+cutSlack)
	} else if <-kept.done; kept.kept != idle-idle/2 {
		d.Errorf("%d of %d that had made a request were cut before %s", len(kept.lives), idle-idle/2, idleCut)
	}
	p99 := percentile(waits, 99)
	if p99 > 2*time.Second {
		d.Errorf("the slowest of a hundred visitors waited %s", p99)
	}
	d.result.Happened = fmt.Sprintf("%d slow and %d idle connections held %d MiB; meanwhile %d visitors were served, 99 of 100 within %s",
		2*slow, idle, (held-before)>>20, len(attempts), p99.Round(time.Millisecond))
	d.recovered(s, sale, int64(quota), attempts, a.URL)
}

// forgeries are headers in which one or another proxy hands on a client's address.
var forgeries = []string{"X-Forwarded-For", "X-Real-Ip", "Forwarded", "True-Client-Ip", "Cf-Connecting-Ip", "X-Client-Ip", "X-Forwarded-Host", "Via"}

func forgedAddresses(d *drill) {
	const each, total = 20.0, 100
	s := shop.New(d)
	open := s.StartWith(leanly, "--ip-rate", fmt.Sprint(each))
	behind := s.StartWith(leanly, "--ip-rate", fmt.Sprint(each), "--trusted-proxies", "127.0.0.1", "--limit-rate", fmt.Sprint(total), "--limit-burst", fmt.Sprint(total))
	byUser := s.StartWith(leanly, "--user-requests", "5", "--user-window", "1h")
	client := d.manyConnections()
	requests := size(1_000, 5_000)

	// letIn makes requests one after the other and checks that no more pass than a rate, and a burst of as many, allow.
	letIn := func(what string, rate float64, url string, from *http.Client, header func(i int) []string) string {
		d.Helper()
		passed, start := 0, time.Now()
		for i := range requests {
			r, err := ask(d.Context(), from, http.MethodGet, url+"/api/v1/time", http.NoBody, header(i)...)
			if err != nil {
				d.Fatal(err)
			}
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
		return fmt.Sprintf("%s: %d of %d passed (at most %d); ", what, passed, requests, most)
	}
	spoofed := func(i int) (headers []string) {
		address := fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255)
		for _, name := range forgeries {
			headers = append(headers, name, address)
		}
		return headers
	}
	next := atomic.Int64{}
	elsewhere := d.manyConnections(func(t *http.Transport) { // a fresh connection from a fresh address each time
		t.DisableKeepAlives = true
		t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			n := next.Add(1)
			dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 1+byte(n>>16), byte(n>>8), byte(n))}}
			return dialer.DialContext(ctx, network, address)
		}
	})

	var alone, proxied string
	d.flat(open, 2, func() { alone = letIn("forged headers", each, open.URL, client, spoofed) })
	// Who is on an address of its own is not held by the flood from another.
	if r, err := ask(d.Context(), elsewhere, http.MethodGet, open.URL+"/api/v1/time", http.NoBody); err != nil || r.status != http.StatusOK {
		d.Errorf("from another address: %d, %v", r.status, err)
	}
	// The proxy has put the true address behind whatever its client claimed.
	one := letIn("one address behind a proxy", each, behind.URL, client, func(i int) []string {
		return []string{"X-Forwarded-For", fmt.Sprintf("10.0.%d.%d, 192.0.2.7", i>>8&255, i&255)}
	})
	d.flat(behind, 2, func() {
		proxied = letIn("1,000 addresses behind a proxy", total, behind.URL, client, func(i int) []string {
			return []string{"X-Forwarded-For", fmt.Sprintf("198.51.%d.%d", i%1_000/250, i%250)}
		})
	})
	true1000 := letIn("1,000 true addresses", total, behind.URL, elsewhere, func(int) []string { return nil })
	d.result.Happened = strings.TrimSuffix(alone+one+proxied+true1000, "; ")

	// One buyer from many addresses is one buyer.
	sale := s.Sale(byUser.URL, 10)
	attempts, counts := make([]shop.Attempt, size(50, 1_000)), map[string]int{}
	for i := range attempts {
		attempts[i] = shop.Attempt{User: "everywhere", Key: fmt.Sprint("key-", i), URL: byUser.URL}
		r, err := knock(d.Context(), elsewhere, s, &attempts[i], sale, spoofed(i)...)
		if err != nil {
			d.Fatal(err)
		}
		counts[fmt.Sprint(r.status, " ", r.code())]++
		if wrong := again(r); i >= 5 && wrong != "" {
			d.Errorf("request %d of one buyer: %s", i, wrong)
		}
	}
	if counts["201 "] != 1 || counts["409 limit_reached"] != 4 {
		d.Errorf("one buyer at limit 1 with five requests allowed: %v", counts)
	}
	d.recovered(s, sale, 10, attempts, byUser.URL)
}

// flood is what came of requests that were sent at a fixed rate, however fast they are answered.
type flood struct {
	attempts []shop.Attempt
	accepted []time.Duration
	refused  []time.Duration
	wrong    []string
	skipped  int // nobody was free to send these
	lasted   time.Duration
}

// senders is how many requests of a flood may be on their way at once.
const senders = 400

// flood sends so many purchases a second, each by another buyer.
func (d *drill) flood(client *http.Client, s *shop.Shop, sale, url, prefix string, perSecond int, lasts time.Duration) (f flood) {
	d.Helper()
	var mu sync.Mutex
	var work sync.WaitGroup
	due := make(chan int, senders)
	for range senders {
		work.Go(func() {
			for n := range due {
				a := shop.Attempt{User: fmt.Sprint(prefix, n), URL: url}
				a.Key = "key-" + a.User
				r, err := knock(d.Context(), client, s, &a, sale)
				mu.Lock()
				f.attempts = append(f.attempts, a)
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
	const rate, burst = 200, 50
	s := shop.New(d)
	a := s.StartWith(leanly, "--limit-rate", fmt.Sprint(rate), "--limit-burst", fmt.Sprint(burst))
	wide := s.Start() // for the looks from the side
	lasts := span(8*time.Second, time.Minute)
	quota := int(lasts.Seconds())*rate + burst + 900 // also for those before and after
	sale := s.Sale(wide.URL, quota)
	client := d.manyConnections()

	calm := d.flood(client, s, sale, a.URL, "calm", rate/2, 2*time.Second)
	if len(calm.refused) > 0 || len(calm.wrong) > 0 {
		d.Fatalf("half of what it takes: %d refused, %q", len(calm.refused), calm.wrong[:min(3, len(calm.wrong))])
	}
	normal := max(3*percentile(calm.accepted, 99), 250*time.Millisecond)

	type look struct{ at, bytes int64 }
	var looks []look
	ended := make(chan struct{})
	var looking sync.WaitGroup
	looking.Go(func() {
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		for start := time.Now(); ; {
			select {
			case <-ended:
				return
			case <-ticker.C:
				looks = append(looks, look{int64(time.Since(start)), d.resident(a)})
			}
		}
	})
	f := d.flood(client, s, sale, a.URL, "flood", 10*rate, lasts)
	close(ended)
	looking.Wait()

	// What was sent over the same time: a busy machine may not manage ten times.
	sent := len(f.attempts)
	if few := 5 * rate * int(lasts.Seconds()); sent < few {
		d.Errorf("this machine has sent %d requests of %d, too few to be an overload", sent, 10*rate*int(lasts.Seconds()))
	}
	if most := burst + int(rate*f.lasted.Seconds()) + 1; len(f.accepted) > most || len(f.accepted) < most/2 {
		d.Errorf("%d were accepted, want about %d", len(f.accepted), most)
	}
	if len(f.wrong) > 0 {
		d.Errorf("%d wrong answers, such as %q", len(f.wrong), f.wrong[0])
	}
	taken, turned := percentile(f.accepted, 99), percentile(f.refused, 99)
	if taken > 2*time.Second || turned > 2*time.Second {
		d.Errorf("99 of 100 that were taken had their answer in %s, of those that were not in %s", taken, turned)
	}
	early, late := int64(0), int64(0) // the most that it held in the second and in the last quarter
	for _, l := range looks {
		switch quarter := 4 * l.at / int64(lasts); {
		case quarter == 1:
			early = max(early, l.bytes)
		case quarter >= 3:
			late = max(late, l.bytes)
		}
	}
	if early == 0 || late == 0 || late-early > flatSlack {
		d.Errorf("its memory went from %d MiB to %d MiB", early>>20, late>>20)
	}

	// Back to normal within five seconds.
	over, n := time.Now(), 0
	var after flood
	for {
		after = d.flood(client, s, sale, a.URL, fmt.Sprintf("after%d-", n), rate/2, 500*time.Millisecond)
		f.attempts = append(f.attempts, after.attempts...)
		if len(after.refused)+len(after.wrong) == 0 && percentile(after.accepted, 95) <= normal {
			break
		}
		if n++; time.Since(over) > 5*time.Second {
			d.Errorf("after five seconds: %d refused, %q, 95 of 100 within %s, normal is %s", len(after.refused), after.wrong[:min(3, len(after.wrong))], percentile(after.accepted, 95), normal)
			break
		}
	}
	calmed := time.Since(over)
	d.result.Happened = fmt.Sprintf("%d requests a second, %d taken: %d accepted, 99 of 100 within %s; %d times 429, 99 of 100 within %s; %d MiB, %+d; normal after %s",
		sent/int(lasts.Seconds()), rate, len(f.accepted), taken.Round(time.Millisecond), len(f.refused), turned.Round(time.Millisecond),
		late>>20, (late-early)>>20, calmed.Round(100*time.Millisecond))
	d.recovered(s, sale, int64(quota), append(calm.attempts, f.attempts...), wide.URL)
}

// What waits in front of the database, for one sale on one instance: in the queue, and in the batch under way.
const (
	waitingAtMost = 4096
	inOneBatch    = 512
)

func fullQueue(d *drill) {
	const excess = 600
	const buyers = waitingAtMost + inOneBatch + excess
	d.openFiles(2*buyers + 1_000)
	s := shop.New(d)
	a := s.StartWith(leanly)
	const quota = buyers + 100
	sale := s.Sale(a.URL, quota)
	s.Redis.Kill()
	scouts := d.away(a, s, sale)

	books, err := openLedger(s.Database)
	if err != nil {
		d.Fatal(err)
	}
	defer func() { _ = books.db.Close() }()
	held, err := books.db.BeginTx(d.Context(), nil)
	if err != nil {
		d.Fatal(err)
	}
	defer func() { _ = held.Rollback() }()
	if _, err := held.ExecContext(d.Context(), "UPDATE stock SET version = version WHERE sale_id = ?", sale); err != nil {
		d.Fatal(err)
	}

	// As many as are refused at once, or as have to be; the others wait until the row is free again.
	slots := make(chan struct{}, dialers)
	client := d.manyConnections(func(t *http.Transport) {
		t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			slots <- struct{}{}
			defer func() { <-slots }()
			return new(net.Dialer).DialContext(ctx, network, address)
		}
	})
	attempts := make([]shop.Attempt, buyers)
	refused := make(chan time.Duration, buyers)
	var all sync.WaitGroup
	for i := range attempts {
		at := &attempts[i]
		at.User, at.Key, at.URL = fmt.Sprint("u", i), fmt.Sprint("key-", i), a.URL
		all.Go(func() {
			r, err := knock(d.Context(), client, s, at, sale)
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
	var turned []time.Duration               // while the row was held, so they did not wait for it
	enough := time.NewTimer(6 * time.Second) // the batch that waits for the row is given up after eight
	defer enough.Stop()
	for waiting := true; waiting && len(turned) < excess; {
		select {
		case took := <-refused:
			turned = append(turned, took)
		case <-enough.C:
			waiting = false
		}
	}
	filled := d.resident(a)
	if err := held.Rollback(); err != nil {
		d.Fatal(err)
	}
	all.Wait()
	confirmed := 0
	for _, at := range attempts {
		if at.Confirmed() {
			confirmed++
		}
	}
	if len(turned) == 0 {
		d.Errorf("nobody was turned away while %d waited", buyers)
	}
	if confirmed < waitingAtMost/2 {
		d.Errorf("only %d of those that waited were served: %v", confirmed, shop.Tally(attempts))
	}
	d.result.Happened = fmt.Sprintf("%s; %d were turned away while the row was held, 99 of 100 within %s; %d MiB with the queue full",
		d.tally(attempts), len(turned), percentile(turned, 99).Round(time.Millisecond), filled>>20)
	s.Redis.Restart()
	d.recovered(s, sale, quota, append(attempts, scouts...), a.URL)
}

// away sends buyers until an instance has noticed that its Redis is gone: then it sells from the database and asks
// nobody else.
func (d *drill) away(i *shop.Instance, s *shop.Shop, sale string) (scouts []shop.Attempt) {
	d.Helper()
	shop.Recovered(d, "the instance leaves Redis alone", func() error {
		status, doc, err := s.Call(http.MethodGet, i.URL+"/readyz", "", nil)
		dependencies, _ := doc["dependencies"].(shop.Document)
		if err == nil && status == http.StatusOK && dependencies["strategy"] == "down" {
			return nil
		}
		at := shop.Attempt{User: fmt.Sprint("scout", len(scouts)), Key: "key", URL: i.URL}
		s.Buy(&at, sale)
		scouts = append(scouts, at)
		return fmt.Errorf("%d %v %w", status, doc, cmp.Or(err, errors.New("it still tries")))
	})
	return scouts
}

func loginsWithoutEnd(d *drill) {
	s := shop.New(d)
	a := s.StartWith(leanly)
	quota := size(1_000, 5_000)
	sale := s.Sale(a.URL, quota)
	client := d.manyConnections()
	lasts := span(4*time.Second, 20*time.Second)
	const perSecond = 50
	calm := d.flood(client, s, sale, a.URL, "calm", perSecond, 2*time.Second)
	before := d.resident(a)

	ended := make(chan struct{})
	var crowd sync.WaitGroup
	var mu sync.Mutex
	counts, most := map[string]int{}, int64(0)
	for n := range 200 {
		crowd.Go(func() {
			ticker := time.NewTicker(100 * time.Millisecond)
			defer ticker.Stop()
			for try := 0; ; try++ {
				select {
				case <-ended:
					return
				case <-ticker.C:
				}
				name := []string{"admin", fmt.Sprint("stranger-", n)}[try%2] // one that is there, and one that is not
				body := fmt.Appendf(nil, `{"name":%q,"password":"guess number %d"}`, name, try)
				r, err := ask(d.Context(), client, http.MethodPost, a.URL+"/api/v1/sessions", bytes.NewReader(body), "Content-Type", "application/json")
				what := fmt.Sprint(r.status, " ", r.code())
				if err != nil {
					what = err.Error()
				} else if wrong := again(r); r.status != http.StatusUnauthorized && wrong != "" {
					what = wrong
				}
				mu.Lock()
				counts[what]++
				mu.Unlock()
			}
		})
	}
	crowd.Go(func() {
		ticker := time.NewTicker(50 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				return
			case <-ticker.C:
				most = max(most, d.resident(a))
			}
		}
	})
	f := d.flood(client, s, sale, a.URL, "buyer", perSecond, lasts)
	close(ended)
	crowd.Wait()

	for what := range counts {
		if what != "401 unauthenticated" && what != "503 unavailable" {
			d.Errorf("a log-in heard %s, %d times", what, counts[what])
		}
	}
	if counts["401 unauthenticated"] == 0 || counts["503 unavailable"] == 0 {
		d.Errorf("log-ins heard %v, want both a no and that there are too many", counts)
	}
	if len(f.wrong) > 0 || len(f.refused) > 0 || f.skipped > 0 || len(f.accepted) < perSecond*int(lasts.Seconds())/2 {
		d.Errorf("buyers: %d accepted, %d refused, %d could not be sent; %q", len(f.accepted), len(f.refused), f.skipped, f.wrong[:min(3, len(f.wrong))])
	}
	was, is := percentile(calm.accepted, 95), percentile(f.accepted, 95)
	if is > max(10*was, time.Second) {
		d.Errorf("95 of 100 buyers were served within %s before, and within %s among the log-ins", was, is)
	}
	// A hashing takes 19 MiB: two at a time are far from this, and two hundred far above.
	if most-before > 192<<20 {
		d.Errorf("its memory went from %d MiB to %d MiB", before>>20, most>>20)
	}
	d.result.Happened = fmt.Sprintf("200 guessers: %d times 401, %d times 503; buyers' p95 %s, before %s; %d MiB, before %d",
		counts["401 unauthenticated"], counts["503 unavailable"], is.Round(time.Millisecond), was.Round(time.Millisecond), most>>20, before>>20)
	d.recovered(s, sale, int64(quota), append(calm.attempts, f.attempts...), a.URL)
}
