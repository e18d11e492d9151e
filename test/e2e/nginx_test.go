package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"flashsale/test/kit"
	"flashsale/test/kit/check"
	"flashsale/test/kit/pace"
	"flashsale/test/kit/shop"
)

// full is set by `make nginx`: larger crowds. `make test` runs the short form.
var full = os.Getenv("DRILL") == "full"

func TestNginxSharesByWeight(t *testing.T) {
	f := newFleet(t)
	d := openDoor(t, f.lines()...)
	const rounds, clients = 100, 6
	requests := rounds * (weights[0] + weights[1] + weights[2])
	check.Together(clients, func(n int) {
		c := from(t, shop.Address(n), onePerConnection) // so that every worker of nginx gets requests
		for i := range requests / clients {
			c.get(d.URL+"/api/v1/time", "X-Request-Id", fmt.Sprintf("share-%d-%d", n, i)).is(t, http.StatusOK)
		}
	})
	shares := map[string]int{}
	for _, line := range d.log(t, "share-", requests) {
		shares[line.Upstream]++
	}
	// nginx's workers share the turns: of any six successive requests, three, two and one go to the instances.
	for i, instance := range f.instances {
		check.Same(t, fmt.Sprint("requests to the instance of weight ", weights[i]), shares[address(instance.URL)], rounds*weights[i])
	}
}

// A client stays on one instance. When an instance is gone, only its clients move.
func TestNginxIPHashKeepsAClientOnAnInstance(t *testing.T) {
	f := newFleet(t)
	d := openDoorWith(t, "ip-hash.conf", "plain.conf", f.lines()...)
	const clients, each = 60, 4 // each instance gets some of 60 clients; the hash is always the same
	places := func(round string) map[string]string {
		t.Helper()
		for n := range clients {
			c := from(t, shop.Address(n), onePerConnection)
			for i := range each {
				c.get(d.URL+"/api/v1/time", "X-Request-Id", fmt.Sprintf("%s-%d-%d", round, n, i)).is(t, http.StatusOK)
			}
		}
		at := map[string]string{}
		for _, line := range d.log(t, round+"-", clients*each) {
			tried := strings.Split(line.Upstream, ", ")
			place := tried[len(tried)-1] // the instance that answered
			if at[line.Client] != "" && at[line.Client] != place {
				t.Errorf("%s went from %s to %s", line.Client, at[line.Client], place)
			}
			at[line.Client] = place
		}
		return at
	}
	before := places("before")
	used := map[string]bool{}
	for _, place := range before {
		used[place] = true
	}
	if len(before) != clients || len(used) != len(weights) {
		t.Fatalf("%d clients were spread over %d instances", len(before), len(used))
	}
	gone := f.instances[0]
	gone.Kill()
	for client, place := range places("after") {
		if was := before[client]; place == address(gone.URL) || was != address(gone.URL) && was != place {
			t.Errorf("%s was on %s and is on %s; %s is gone", client, was, place, gone.URL)
		}
	}
}

// An instance is killed under load and comes back: every buyer gets an answer, and exactly the quota is sold.
func TestNginxHidesAKilledInstance(t *testing.T) {
	pace.Try(t, func(t *pace.Trial) {
		f := newFleet(t)
		d := openDoor(t, f.lines()...)
		f.Spread(100)
		quota, buyers := size(300, 5_000), size(1_500, 50_000)
		sale := f.Sale(f.instances[1].URL, quota)
		attempts := f.rushWhile(sale, buyers, d.URL, func() {
			f.sold(t, sale, quota/4)
			f.instances[0].Kill() // its weight is 3: it gets half of the requests
			f.revive(0)
		})
		check.Same(t, "units sold", f.Check(sale, attempts, d.URL), quota)
		// Every purchase had a key, so nginx repeated it on another instance. An attempt that was queued at the dead
		// instance may be answered with 202.
		counts := shop.Tally(attempts)
		if bought := counts["201 "] + counts["202 "]; bought != quota || bought+counts["409 sold_out"] != buyers {
			if counts["503 unavailable"] > 0 { // no instance answered in time, or a store of one
				t.FatalSlowf("answers: %v", counts)
			}
			t.Errorf("answers: %v", counts)
		}
		t.Log(counts)
		round := 0
		shop.Recovered(t, "the revived instance gets requests", func() error {
			round++
			ids := fmt.Sprintf("back%d-", round)
			for i := range 6 {
				from(t, shop.Address(1)).get(d.URL+"/api/v1/time", "X-Request-Id", fmt.Sprint(ids, i))
			}
			for _, line := range d.log(t, ids, 6) {
				if line.Upstream == address(f.instances[0].URL) {
					return nil
				}
			}
			return errors.New("it got none")
		})
		f.Audited(d.URL, sale)
		f.AuditCommand()
	})
}

// An instance and then the primary of Redis are killed while a crowd buys. The promoted replica may lack the last
// admissions. Nevertheless exactly the quota is sold, and every confirmed order exists.
func TestNginxAndSentinelsHideWhatDies(t *testing.T) {
	pace.Try(t, func(t *pace.Trial) {
		logging.Disable() // connection errors to the killed server are expected
		r := kit.SentinelRedis(t)
		f := fleetOn(shop.On(t, kit.SharedMariaDB(t).NewDatabase(t), r.Primary), "--redis", r.URL())
		d := openDoor(t, f.lines()...)
		f.Spread(100)
		quota, buyers := size(1_500, 5_000), size(4_000, 50_000)
		sale := f.Sale(f.instances[1].URL, quota)
		attempts := f.rushWhile(sale, buyers, d.URL, func() {
			f.sold(t, sale, quota/4)
			f.instances[0].Kill() // its weight is 3: it gets half of the requests
			f.sold(t, sale, quota/2)
			r.Primary.Kill()
			f.revive(0)
		})
		counts := shop.Tally(attempts)
		t.Logf("%d units sold to the crowd: %v", f.Check(sale, attempts, d.URL), counts)
		if counts["0 "] > 0 {
			t.Errorf("answers: %v", counts)
		}
		if counts["201 "]+counts["202 "] < quota { // whoever asks while no store answers in time gets a 503
			t.Slowf("answers: %v", counts)
		}
		r.AwaitPromotion()
		f.SellRest(sale, quota, attempts, d.URL)
		if gate, database := ways(t, f.Shop, sale); gate == 0 || database == 0 {
			t.Slowf("%d orders came by the gate, %d by the database alone: no fault took effect during the sale", gate, database)
		}
		f.Audited(d.URL, sale)
		f.AuditCommand("--redis", r.URL())
	})
}

// within checks that of many requests since start as many passed as a bucket with this burst and rate lets pass.
func within(t testing.TB, passed, burst, rate int, start time.Time) {
	t.Helper()
	if most := 1 + burst + int(float64(rate)*time.Since(start).Seconds()); passed > most || passed < burst {
		t.Errorf("%d requests passed, want %d to %d", passed, burst, most)
	}
}

// A thousand buyers at once behind one address are served. A flood from one address is bounded, and does not affect
// other addresses.
func TestNginxKnowsAFloodFromANAT(t *testing.T) {
	f := newFleet(t)
	d := openDoor(t, f.lines()...)
	f.Spread(1)
	const buyers = 1_000 // each requests a path, then buys
	sale := f.Sale(f.instances[0].URL, buyers)
	counted := shop.Tally(f.Rush(sale, "u", buyers, nil, d.URL))
	if counted["201 "]+counted["202 "] != buyers { // 202: the order came later than the answer
		t.Errorf("answers: %v", counted)
	}
	const connections, each, burst, rate = 20, 1_000, 3_000, 1_000
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(shop.Address(7))}}
	counts, start := map[int]int{}, time.Now()
	for range connections {
		flood(t, dialer, address(d.URL), each, counts)
	}
	passed := counts[http.StatusOK]
	within(t, passed, burst, rate, start)
	check.Same(t, "served and refused", passed+counts[http.StatusTooManyRequests], connections*each)
	from(t, shop.Address(8)).get(d.URL+"/").is(t, http.StatusOK)
}

// flood sends requests for a page, which nginx has in its cache, on one connection without waiting for the answers. It
// counts the answers by status.
func flood(t *testing.T, dialer net.Dialer, to string, requests int, counts map[int]int) {
	t.Helper()
	conn, err := dialer.DialContext(t.Context(), "tcp", to)
	check.NoError(t, err)
	defer func() { _ = conn.Close() }()
	go func() {
		_, _ = io.WriteString(conn, strings.Repeat("HEAD / HTTP/1.1\r\nHost: flood\r\n\r\n", requests))
	}()
	answers := bufio.NewReader(conn)
	for range requests {
		res, err := http.ReadResponse(answers, &http.Request{Method: http.MethodHead})
		if err != nil {
			t.Fatalf("after %v: %v", counts, err)
		}
		_ = res.Body.Close()
		counts[res.StatusCode]++
	}
}

// Each address may have a number of connections, including streams of events.
func TestNginxBoundsConnections(t *testing.T) {
	const most, more = 2_000, 20
	d := openDoor(t, line(newStream(t).URL, ""))
	c, counts := from(t, shop.Address(1)), map[int]int{}
	for range most + more {
		counts[c.stream(d.URL+"/api/v1/sales/S/events").status]++
	}
	check.Same(t, "streams by status", counts, map[int]int{http.StatusOK: most, http.StatusTooManyRequests: more})
	other := from(t, shop.Address(2)).stream(d.URL + "/api/v1/sales/S/events")
	check.Same(t, "status from another address", other.status, http.StatusOK)
}

// A client cannot choose its address by a header, neither through nginx nor directly.
func TestNginxForgedAddresses(t *testing.T) {
	const rate, requests = 5, 60
	instance := shop.New(t).Start("--trusted-proxies", "127.0.0.1", "--ip-rate", fmt.Sprint(rate))
	d := openDoor(t, line(instance.URL, ""))
	for n, url := range []string{d.URL, instance.URL} {
		t.Run(url, func(t *testing.T) {
			forger, passed, start := from(t, shop.Address(2*n)), 0, time.Now()
			for i := range requests {
				forged := fmt.Sprintf("198.51.100.%d", i)
				a := forger.get(url+"/api/v1/time",
					"X-Forwarded-For", forged, "X-Real-Ip", forged, "Forwarded", "for="+forged, "X-Client-Ip", forged)
				switch {
				case a.status == http.StatusOK:
					passed++
				case a.code() != "rate_limited":
					t.Fatalf("%d %s", a.status, a.body)
				}
			}
			within(t, passed, rate, rate, start)
			from(t, shop.Address(2*n+1)).get(url+"/api/v1/time").is(t, http.StatusOK)
		})
	}
}

// nginx passes events on at once, uncompressed, although no header of the instance asks for that.
func TestNginxBuffersNoStream(t *testing.T) {
	d := openDoor(t, line(newStream(t).URL, ""))
	for _, path := range []string{"/api/v1/sales/S/events", "/api/v1/admin/sales/S/live", "/api/v1/admin/campaigns/S/live", "/api/v1/admin/lab/events"} {
		s := from(t, shop.Address(1)).stream(d.URL + path)
		event, err := bufio.NewReader(s.body).ReadString('\n')
		if err != nil || event != streamed || s.header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("%s sent %q, %v: %v", path, event, err, s.header)
		}
	}
}

const streamed = "data: {\"n\":1}\n"

// newStream starts a server whose every answer is a stream with one event that does not end.
func newStream(t *testing.T) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"+streamed+"\n")
	}))
	t.Cleanup(server.Close)
	return server
}

// assetNames finds the names of assets in a page or an asset.
var assetNames = regexp.MustCompile(`["/]([a-z-]+\.[0-9a-f]{12}\.[a-z]+)"`)

// When every instance is dead, nginx serves what it has cached, and refuses other requests in the engine's words.
func TestNginxWithoutInstances(t *testing.T) {
	f := newFleet(t)
	d := openDoor(t, f.lines()...)
	sale := f.Sale(d.URL, 10)
	c := from(t, shop.Address(1))
	page := c.get(d.URL + "/sales/" + sale)
	if page.status != http.StatusOK || !strings.Contains(page.body, "</html>") || len(page.header.Values("X-Request-Id")) != 1 {
		t.Fatalf("the page: %d %v %s", page.status, page.header, page.body)
	}
	assets := map[string]answer{} // by path, uncompressed and compressed
	var fetch func(text string)
	fetch = func(text string) {
		for _, match := range assetNames.FindAllStringSubmatch(text, -1) {
			path := "/assets/" + match[1]
			if _, ok := assets[path]; !ok {
				assets[path] = c.get(d.URL + path)
				assets[path+" gzip"] = c.get(d.URL+path, "Accept-Encoding", "br, gzip;q=0.8")
				fetch(assets[path].body)
			}
		}
	}
	fetch(page.body)
	if len(assets) < 10 {
		t.Fatalf("the page has %d assets", len(assets)/2)
	}
	small := c.get(d.URL+"/sales/"+sale, "Accept-Encoding", "gzip")
	if len(small.body) >= len(page.body) || small.header.Get("Content-Encoding") != "gzip" {
		t.Errorf("the page has %d bytes, compressed %d: %v", len(page.body), len(small.body), small.header)
	}
	c.get(d.URL+"/api/v1/sales/"+sale).is(t, http.StatusOK)
	for _, instance := range f.instances {
		instance.Kill()
	}

	for name, was := range assets {
		path, encoding, _ := strings.Cut(name, " ")
		now := c.get(d.URL+path, "Accept-Encoding", encoding)
		if was.status != http.StatusOK || now.status != http.StatusOK || now.body != was.body ||
			now.header.Get("Content-Encoding") != encoding || !strings.Contains(now.header.Get("Cache-Control"), "immutable") ||
			now.header.Get("Content-Type") != was.header.Get("Content-Type") {
			t.Errorf("%s: %d %v, before %d %v", name, now.status, now.header, was.status, was.header)
		}
		c.get(d.URL+path, "Accept-Encoding", encoding, "If-None-Match", now.header.Get("Etag")).is(t, http.StatusNotModified)
	}
	shop.Recovered(t, "the cached sale is out of date after a second", func() error {
		if a := c.get(d.URL + "/api/v1/sales/" + sale); a.status != http.StatusServiceUnavailable {
			return fmt.Errorf("%d %s", a.status, a.body)
		}
		return nil
	})
	// The page is out of date as well, but nginx still serves it.
	if now := c.get(d.URL + "/sales/" + sale); now.status != http.StatusOK || now.body != page.body {
		t.Errorf("the page: %d %s", now.status, now.body)
	}
	c.get(d.URL+"/api/v1/sales/"+sale).refusal(t, http.StatusServiceUnavailable, "unavailable")
	uncached := c.get(d.URL + "/console")
	uncached.is(t, http.StatusServiceUnavailable)
	if uncached.header.Get("Retry-After") == "" || !strings.HasPrefix(uncached.header.Get("Content-Type"), "text/html") ||
		!strings.Contains(uncached.body, "http-equiv=\"refresh\"") {
		t.Errorf("a page that is not cached: %v %s", uncached.header, uncached.body)
	}
}

// nginx caches the pages of a rehearsal's sale for the rehearsal's crowd, and shows them to nobody else.
func TestNginxKeepsARehearsalHidden(t *testing.T) {
	var asked atomic.Int64
	instance := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer crowd" {
			w.Header().Set("Cache-Control", "no-store")
			w.WriteHeader(http.StatusNotFound)
			return
		}
		asked.Add(1)
		w.Header().Set("Cache-Control", "public, max-age=60")
		w.Header().Set("Vary", "Authorization, Accept-Encoding")
	}))
	t.Cleanup(instance.Close)
	d := openDoor(t, line(instance.URL, ""))
	c := from(t, shop.Address(1))
	for _, path := range []string{"/sales/SHADOWABCDEFGHIJ", "/api/v1/sales/SHADOWABCDEFGHIJ"} {
		asked.Store(0)
		for range 3 {
			c.get(d.URL+path, "Authorization", "Bearer crowd").is(t, http.StatusOK)
			c.get(d.URL+path).is(t, http.StatusNotFound)
			c.get(d.URL+path, "Authorization", "Bearer other").is(t, http.StatusNotFound)
		}
		check.Same(t, "requests of the crowd that reached the instance", asked.Load(), 1)
	}
}

// Instances get the client's real address and scheme. The log has no secrets, and the public cannot ask for the health
// of instances or the status of nginx.
func TestNginxTellsInstancesTheTruth(t *testing.T) {
	instance := newStandIn(t, false)
	d := openDoor(t, line(instance.URL, ""))
	c := from(t, shop.Address(5))
	c.post(d.URL+purchasePath+"?secret=1", "{}",
		"X-Forwarded-For", "198.51.100.1, 198.51.100.2", "X-Real-Ip", "198.51.100.1", "Forwarded", "for=198.51.100.1",
		"X-Forwarded-Proto", "https", "X-Request-Id", "mine", "Accept-Encoding", "br, gzip, deflate",
		"Connection", "Upgrade", "Idempotency-Key", "k")
	requests, _ := instance.take()
	check.Same(t, "requests", len(requests), 1)
	r := requests[0]
	for name, want := range map[string]string{
		"X-Forwarded-For": shop.Address(5), "X-Real-Ip": "", "Forwarded": "", "X-Forwarded-Proto": "http", "X-Request-Id": "mine",
		"Accept-Encoding": "gzip", "Connection": "", "Idempotency-Key": "k",
	} {
		check.Same(t, name, strings.Join(r.Header.Values(name), "|"), want)
	}
	check.Same(t, "protocol", r.Proto, "HTTP/1.1") // HTTP/1.0 keeps no connection
	line := d.log(t, "mine", 1)[0]
	if line.Client != shop.Address(5) || line.Path != "/api/v1/sales/S/-/orders" || line.Status != http.StatusCreated {
		t.Errorf("logged as %+v", line)
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		c.get(d.URL+path).is(t, http.StatusNotFound)
	}
	requests, _ = instance.take()
	check.Same(t, "requests of the public about instances", len(requests), 0)
	c.get(d.URL+"/nginx-status").is(t, http.StatusForbidden)
	status := from(t, "127.0.0.1").get(d.URL + "/nginx-status")
	if status.is(t, http.StatusOK); !strings.Contains(status.body, "Active connections") {
		t.Errorf("status on this machine: %s", status.body)
	}
}

// Refusals of nginx itself have the engine's form and words, in both languages.
func TestNginxRefusesAsTheEngineDoes(t *testing.T) {
	instance := newStandIn(t, false)
	d := openDoor(t, line(instance.URL, ""))
	c := from(t, visitor)
	logIn := func(network string, n int, headers ...string) answer {
		t.Helper()
		return c.post(d.URL+"/api/v1/sessions", "{}", append(headers, visitorHeader, fmt.Sprintf("%s::%x", network, n+1))...)
	}
	// The addresses of one IPv6 network count as one client.
	const attempts, burst, rate = 200, 100, 5
	passed, start := 0, time.Now()
	var limited answer
	for i := range attempts {
		if a := logIn("2001:db8:1:2", i); a.status == http.StatusCreated {
			passed++
		} else {
			limited = a
		}
	}
	within(t, passed, burst, rate, start)
	logIn("2001:db8:1:3", 1).is(t, http.StatusCreated)
	tooLarge := func(headers ...string) answer {
		return c.post(d.URL+"/api/v1/users", strings.Repeat(" ", 1<<16), headers...)
	}
	chinese := []string{"Accept-Language", "zh-CN,zh;q=0.9,en;q=0.8"}
	var limitedInChinese answer
	for limitedInChinese.status != http.StatusTooManyRequests { // the bucket may have room again
		limitedInChinese = logIn("2001:db8:1:2", 1, chinese...)
	}
	large, largeInChinese := tooLarge(), tooLarge(chinese...)
	instance.Close()
	away, awayInChinese := c.get(d.URL+"/api/v1/time"), c.get(d.URL+"/api/v1/time", chinese...)
	limited.refusal(t, http.StatusTooManyRequests, "rate_limited")
	large.refusal(t, http.StatusRequestEntityTooLarge, "too_large")
	away.refusal(t, http.StatusServiceUnavailable, "unavailable")

	var words struct {
		Problems map[string]struct{ Title, Detail [2]string }
	}
	check.NoError(t, json.Unmarshal(check.Must(os.ReadFile(filepath.Join(shop.Root(), "handler", "words.json"))), &words))
	for _, a := range []answer{limited, limitedInChinese, large, largeInChinese, away, awayInChinese} {
		var doc struct {
			Type, Title, Detail, Code string
			Status                    int
		}
		check.NoError(t, json.Unmarshal([]byte(a.body), &doc))
		engine := words.Problems[doc.Code]
		if language := slices.Index(engine.Title[:], doc.Title); language < 0 || engine.Detail[language] != doc.Detail {
			t.Errorf("the engine does not say %q, %q", doc.Title, doc.Detail)
		}
		if doc.Type != "/problems/"+doc.Code || doc.Status != a.status {
			t.Errorf("%d: %s", a.status, a.body)
		}
	}
}

// Every way to log in is limited, whether it hashes a password or asks the issuer.
func TestNginxLimitsLogIns(t *testing.T) {
	d := openDoor(t, line(newStandIn(t, false).URL, ""))
	c := from(t, visitor)
	const attempts, burst, rate = 150, 100, 5
	for n, path := range []string{"users", "sessions", "sessions/code"} {
		passed, start := 0, time.Now()
		for range attempts {
			if a := c.post(d.URL+"/api/v1/"+path, "{}", visitorHeader, fmt.Sprint("198.51.100.", n)); a.status == http.StatusCreated {
				passed++
			} else {
				a.refusal(t, http.StatusTooManyRequests, "rate_limited")
			}
		}
		within(t, passed, burst, rate, start)
	}
}

func TestNginxWithTLS(t *testing.T) {
	instance := newStandIn(t, false)
	d := openDoorWith(t, "weighted.conf", "tls.conf", line(instance.URL, ""))
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		c := from(t, shop.Address(3), func(tr *http.Transport) {
			tr.ForceAttemptHTTP2 = true
			tr.TLSClientConfig = &tls.Config{RootCAs: d.Roots, MinVersion: tls.VersionTLS10, MaxVersion: version}
		})
		// A token of an issuer may have 16 KiB.
		long := "Bearer " + strings.Repeat("x", 16<<10)
		a := c.post(d.URL+purchasePath, "{}", "X-Forwarded-Proto", "http", "Authorization", long)
		if a.status != http.StatusCreated || a.proto != "HTTP/2.0" || a.header.Get("Strict-Transport-Security") == "" {
			t.Errorf("TLS %x: %d by %s, %v", version, a.status, a.proto, a.header)
		}
		requests, _ := instance.take()
		if len(requests) != 1 || requests[0].Header.Get("X-Forwarded-Proto") != "https" ||
			requests[0].Header.Get("X-Forwarded-For") != shop.Address(3) || requests[0].Header.Get("Authorization") != long {
			t.Errorf("the instance got %+v", requests)
		}
	}
	old := tls.Dialer{Config: &tls.Config{RootCAs: d.Roots, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}}
	if conn, err := old.DialContext(t.Context(), "tcp", strings.TrimPrefix(d.URL, "https://")); err == nil {
		_ = conn.Close()
		t.Error("TLS 1.1 is accepted")
	}
	plain := from(t, shop.Address(3), func(tr *http.Transport) {
		tr.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", d.Socket())
		}
	})
	a := plain.post("http://shop.example/api/v1/users?x=1", "{}")
	a.is(t, http.StatusPermanentRedirect)
	check.Same(t, "redirected to", a.header.Get("Location"), "https://shop.example/api/v1/users?x=1")
}
