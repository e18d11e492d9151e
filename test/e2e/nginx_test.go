package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"flashsale/test/kit"
	"flashsale/test/kit/shop"
)

// full is set by `make nginx`: larger crowds. `make test` runs the short form.
var full = os.Getenv("DRILL") == "full"

// size picks the short form's number, or the full one.
func size(short, whole int) int {
	if full {
		return whole
	}
	return short
}

// weights are those of the instances in every test.
var weights = []int{3, 2, 1}

// fleet is a shop with three instances that believe nginx, which is on the loopback's first address, and nobody else.
type fleet struct {
	*shop.Shop
	instances []*shop.Instance
	settings  []string
}

func newFleet(t *testing.T) *fleet { return fleetOn(shop.New(t)) }

func fleetOn(s *shop.Shop, settings ...string) *fleet {
	f := &fleet{Shop: s, settings: append([]string{"--trusted-proxies", "127.0.0.1"}, settings...)}
	for i := range weights {
		// On addresses from which nobody connects, so that no client can take the port of one that is killed.
		f.instances = append(f.instances, f.at(fmt.Sprintf("127.0.77.%d:0", i+1)))
	}
	return f
}

func (f *fleet) at(address string) *shop.Instance {
	return f.Start(append(f.settings, "--http-addr", address)...)
}

// revive starts an instance that was killed where it was.
func (f *fleet) revive(n int) { f.instances[n] = f.at(address(f.instances[n].URL)) }

// sold returns when so many units of a sale are ordered: the moment at which something is to break.
func (f *fleet) sold(t *testing.T, saleID string, units int) {
	t.Helper()
	shop.Recovered(t, fmt.Sprintf("%d units are sold", units), func() error {
		if stock := f.Books(saleID).Stock; stock.Held+stock.Paid < int64(units) {
			return fmt.Errorf("%d are", stock.Held+stock.Paid)
		}
		return nil
	})
}

// rushWhile lets a crowd buy through a door while something happens.
func (f *fleet) rushWhile(saleID string, buyers int, door string, happens func()) (attempts []shop.Attempt) {
	var rush sync.WaitGroup
	rush.Go(func() { attempts = f.Rush(saleID, "u", buyers, nil, door) })
	happens()
	rush.Wait()
	return attempts
}

// lines are those of instances.conf.
func (f *fleet) lines() (lines []string) {
	for i, instance := range f.instances {
		lines = append(lines, fmt.Sprintf("server %s weight=%d max_fails=3 fail_timeout=3s;", address(instance.URL), weights[i]))
	}
	return lines
}

func address(url string) string { return strings.TrimPrefix(url, "http://") }

func TestNginxSharesByWeight(t *testing.T) {
	f := newFleet(t)
	d := openDoor(t, choices{"weighted.conf", "plain.conf", f.lines()})
	const rounds, clients = 100, 6
	requests := rounds * (weights[0] + weights[1] + weights[2])
	var all sync.WaitGroup
	for n := range clients {
		// On a connection for each, so that every worker of nginx has some.
		client := from(t, shop.Address(n), func(tr *http.Transport) { tr.DisableKeepAlives = true })
		all.Go(func() {
			for i := range requests / clients {
				a, err := try(t.Context(), client, http.MethodGet, d.URL+"/api/v1/time", "", "X-Request-Id", fmt.Sprintf("share-%d-%d", n, i))
				if err != nil || a.status != http.StatusOK {
					t.Errorf("status %d, %v: %s", a.status, err, a.body)
				}
			}
		})
	}
	all.Wait()
	shares := map[string]int{}
	for _, line := range d.log(t, "share-", requests) {
		shares[line.Upstream]++
	}
	// nginx takes turns smoothly, and its workers share whose turn it is: any six requests one after another go three,
	// two and one to the instances. So there is nothing to tolerate.
	for i, instance := range f.instances {
		if got, want := shares[address(instance.URL)], rounds*weights[i]; got != want {
			t.Errorf("the instance of weight %d had %d requests of %d, want %d", weights[i], got, requests, want)
		}
	}
}

func TestNginxIPHashKeepsAClientOnAnInstance(t *testing.T) {
	f := newFleet(t)
	d := openDoor(t, choices{"ip-hash.conf", "plain.conf", f.lines()})
	// With 60 clients the chance that an instance of weight 1 in 6 has none is one in 50,000; the hash is always the same.
	const clients, each = 60, 4
	places := func(round string) map[string]string {
		t.Helper()
		for n := range clients {
			for i := range each { // each on a connection of its own
				client := from(t, shop.Address(n), func(tr *http.Transport) { tr.DisableKeepAlives = true })
				if a := ask(t, client, http.MethodGet, d.URL+"/api/v1/time", "", "X-Request-Id", fmt.Sprintf("%s-%d-%d", round, n, i)); a.status != http.StatusOK {
					t.Errorf("status %d: %s", a.status, a.body)
				}
			}
		}
		at := map[string]string{}
		for _, line := range d.log(t, round+"-", clients*each) {
			tried := strings.Split(line.Upstream, ", ") // the last one answered
			place := tried[len(tried)-1]
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

// An instance is killed under load and comes back: everybody has an answer, each unit is sold once, and whoever was
// promised one has it.
func TestNginxHidesAKilledInstance(t *testing.T) {
	f := newFleet(t)
	d := openDoor(t, choices{"weighted.conf", "plain.conf", f.lines()})
	f.Spread(100)
	quota, buyers := size(300, 5_000), size(1_500, 50_000)
	sale := f.Sale(f.instances[1].URL, quota)
	attempts := f.rushWhile(sale, buyers, d.URL, func() {
		f.sold(t, sale, quota/4)
		f.instances[0].Kill() // of weight 3: half of the load
		f.revive(0)
	})
	if live := f.Check(sale, attempts, d.URL); live != quota {
		t.Errorf("%d units sold, want %d", live, quota)
	}
	// Every purchase had a key, so nginx asked again on another instance. Who was queued at the dead one when it
	// asked again may hear so, until another instance takes the entry over.
	counts := shop.Tally(attempts)
	if bought := counts["201 "] + counts["202 "]; bought != quota || bought+counts["409 sold_out"] != buyers {
		t.Errorf("answers: %v", counts)
	}
	t.Log(counts)
	round := 0
	shop.Recovered(t, "the instance that came back has its share again", func() error {
		round++
		client, ids := from(t, shop.Address(1)), fmt.Sprintf("back%d-", round)
		for i := range 6 {
			ask(t, client, http.MethodGet, d.URL+"/api/v1/time", "", "X-Request-Id", fmt.Sprint(ids, i))
		}
		for _, line := range d.log(t, ids, 6) {
			if line.Upstream == address(f.instances[0].URL) {
				return nil
			}
		}
		return errors.New("it has none")
	})
	f.Audited(d.URL, sale)
	f.AuditCommand()
}

// An instance is killed, then the primary of Redis, while a crowd buys through nginx: all of the quota is sold, no unit
// twice, and whoever was promised one has it, though the replica that takes over may lack the last admissions.
func TestNginxAndSentinelsHideWhatDies(t *testing.T) {
	logging.Disable() // a server that is gone is no news
	r := kit.SentinelRedis(t)
	f := fleetOn(shop.On(t, kit.SharedMariaDB(t).NewDatabase(t), r.Primary), "--redis", r.URL())
	d := openDoor(t, choices{"weighted.conf", "plain.conf", f.lines()})
	f.Spread(100)
	quota, buyers := size(1_500, 5_000), size(4_000, 50_000)
	sale := f.Sale(f.instances[1].URL, quota)
	attempts := f.rushWhile(sale, buyers, d.URL, func() {
		f.sold(t, sale, quota/4)
		f.instances[0].Kill() // of weight 3: half of the load
		f.sold(t, sale, quota/2)
		r.Primary.Kill()
		f.revive(0)
	})
	counts := shop.Tally(attempts)
	t.Logf("%d units sold to the crowd: %v", f.Check(sale, attempts, d.URL), counts)
	if counts["201 "]+counts["202 "] < quota || counts["0 "] > 0 {
		t.Errorf("answers: %v", counts)
	}
	r.AwaitPromotion()
	f.SellRest(sale, quota, attempts, d.URL)
	if gate, database := ways(t, f.Shop, sale); gate == 0 || database == 0 {
		t.Errorf("%d orders came by the gate, %d in the database alone: nothing broke in mid-sale", gate, database)
	}
	f.Audited(d.URL, sale)
	auditAt(t, f.Shop, r.URL())
}

// Buyers behind one address are no flood: nobody of a thousand who come at once is turned away for it. A flood is.
func TestNginxKnowsAFloodFromANAT(t *testing.T) {
	f := newFleet(t)
	d := openDoor(t, choices{"weighted.conf", "plain.conf", f.lines()})
	f.Spread(1)
	const buyers = 1_000 // each asks for a path, then buys
	sale := f.Sale(f.instances[0].URL, buyers)
	attempts := f.Rush(sale, "u", buyers, nil, d.URL)
	if counts := shop.Tally(attempts); counts["201 "] != buyers {
		t.Errorf("answers: %v", counts)
	}

	// A flood of pages, which nginx has in its cache: as fast as it can, from another address.
	const connections, each, burst, rate = 20, 1_000, 3_000, 1_000
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(shop.Address(7))}}
	counts, start := map[int]int{}, time.Now()
	for range connections {
		for status, n := range flood(t, dialer, address(d.URL), each) {
			counts[status] += n
		}
	}
	most := 1 + burst + int(rate*time.Since(start).Seconds())
	if passed, busy := counts[http.StatusOK], counts[http.StatusTooManyRequests]; passed > most || passed < burst || passed+busy != connections*each {
		t.Errorf("%v, want %d to %d to pass", counts, burst, most)
	}
	// Others are not held by it.
	if a := ask(t, from(t, shop.Address(8)), http.MethodGet, d.URL+"/", ""); a.status != http.StatusOK {
		t.Errorf("from another address: %d", a.status)
	}
}

// One address has so many connections at most, streams of events among them; others have theirs.
func TestNginxBoundsConnections(t *testing.T) {
	const most, more = 2_000, 20
	d := openDoor(t, choices{"weighted.conf", "plain.conf", []string{"server " + address(newStream(t).URL) + ";"}})
	client, counts := from(t, shop.Address(1)), map[int]int{}
	for range most + more {
		counts[openStream(t, client, d.URL+"/api/v1/sales/S/events").status]++
	}
	if counts[http.StatusOK] != most || counts[http.StatusTooManyRequests] != more {
		t.Errorf("%v, want %d streams", counts, most)
	}
	if other := openStream(t, from(t, shop.Address(2)), d.URL+"/api/v1/sales/S/events"); other.status != http.StatusOK {
		t.Errorf("from another address: %d", other.status)
	}
}

// flood sends requests on one connection without waiting for answers, and counts those by status.
func flood(t *testing.T, dialer net.Dialer, to string, requests int) map[int]int {
	t.Helper()
	conn, err := dialer.DialContext(t.Context(), "tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	go func() {
		_, _ = io.WriteString(conn, strings.Repeat("HEAD / HTTP/1.1\r\nHost: flood\r\n\r\n", requests))
	}()
	counts, answers := map[int]int{}, bufio.NewReader(conn)
	for range requests {
		res, err := http.ReadResponse(answers, &http.Request{Method: http.MethodHead})
		if err != nil {
			t.Fatalf("after %v: %v", counts, err)
		}
		_ = res.Body.Close()
		counts[res.StatusCode]++
	}
	return counts
}

// What a client says about its address is believed by nobody, and what nginx says only because it is nginx.
func TestNginxForgedAddresses(t *testing.T) {
	const rate = 5
	s := shop.New(t)
	instance := s.Start("--trusted-proxies", "127.0.0.1", "--ip-rate", fmt.Sprint(rate))
	d := openDoor(t, choices{"weighted.conf", "plain.conf", []string{"server " + address(instance.URL) + ";"}})
	for n, url := range []string{d.URL, instance.URL} { // through nginx, and past it
		t.Run(url, func(t *testing.T) {
			const requests = 60
			forger, other := from(t, shop.Address(2*n)), from(t, shop.Address(2*n+1))
			passed, start := 0, time.Now()
			for i := range requests {
				forged := fmt.Sprintf("198.51.100.%d", i)
				a := ask(t, forger, http.MethodGet, url+"/api/v1/time", "",
					"X-Forwarded-For", forged, "X-Real-Ip", forged, "Forwarded", "for="+forged, "X-Client-Ip", forged)
				switch {
				case a.status == http.StatusOK:
					passed++
				case a.code() != "rate_limited":
					t.Fatalf("%d %s", a.status, a.body)
				}
			}
			if most := 1 + rate + int(rate*time.Since(start).Seconds()); passed > most || passed < rate {
				t.Errorf("%d of %d passed, want %d to %d", passed, requests, rate, most)
			}
			if a := ask(t, other, http.MethodGet, url+"/api/v1/time", ""); a.status != http.StatusOK {
				t.Errorf("another address is held by it: %d %s", a.status, a.body)
			}
		})
	}
}

// A stream's events go out as they come, also to a client that would take them compressed.
func TestNginxPassesEventsOn(t *testing.T) {
	f := newFleet(t)
	d := openDoor(t, choices{"weighted.conf", "plain.conf", f.lines()})
	sale := f.Sale(d.URL, 10)
	stock := openStream(t, from(t, shop.Address(1)), d.URL+"/api/v1/sales/"+sale+"/events")
	if h := stock.header; h.Get("Content-Type") != "text/event-stream" || h.Get("Content-Encoding") != "" {
		t.Errorf("headers: %v", h)
	}
	for sold := range 3 {
		if doc := event(t, stock.events); doc["available"] != float64(10-sold) {
			t.Errorf("after %d units: %v", sold, doc)
		}
		at := shop.Attempt{User: fmt.Sprint("u", sold), Key: fmt.Sprint("key", sold), URL: d.URL}
		if f.Buy(&at, sale); !at.Confirmed() {
			t.Fatalf("%+v", at)
		}
	}
}

// No instance has to ask for it: each of the streams passes as it is written.
func TestNginxBuffersNoStream(t *testing.T) {
	instance := newStream(t)
	d := openDoor(t, choices{"weighted.conf", "plain.conf", []string{"server " + address(instance.URL) + ";"}})
	for _, path := range []string{"/api/v1/sales/S/events", "/api/v1/admin/sales/S/live", "/api/v1/admin/lab/events"} {
		if event(t, openStream(t, from(t, shop.Address(1)), d.URL+path).events)["n"] != 1.0 {
			t.Errorf("%s sent something else", path)
		}
	}
}

// newStream stands in for an instance whose every answer is a stream of one event that doesn't end, on a connection that
// is the stream's own.
func newStream(t *testing.T) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\ndata: {\"n\":1}\n\n")
	}))
	t.Cleanup(server.Close)
	return server
}

// stream is an answer that doesn't end.
type stream struct {
	status int
	header http.Header
	events *bufio.Reader
}

// openStream asks for a stream as a browser does. It ends with the test, or when nothing comes.
func openStream(t *testing.T, client *http.Client, url string) stream {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept-Encoding", "gzip")
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	return stream{res.StatusCode, res.Header, bufio.NewReader(res.Body)}
}

// With every instance dead, what nginx has answers for them, and what it has not is refused in the engine's words.
func TestNginxWithoutInstances(t *testing.T) {
	f := newFleet(t)
	d := openDoor(t, choices{"weighted.conf", "plain.conf", f.lines()})
	sale := f.Sale(d.URL, 10)
	client := from(t, shop.Address(1))
	page := ask(t, client, http.MethodGet, d.URL+"/sales/"+sale, "")
	if page.status != http.StatusOK || !strings.Contains(page.body, "</html>") || len(page.header.Values("X-Request-Id")) != 1 {
		t.Fatalf("the page: %d %v %s", page.status, page.header, page.body)
	}
	// Everything that the page's files refer to.
	assets := map[string]answer{}
	var fetch func(text string)
	fetch = func(text string) {
		for _, match := range regexp.MustCompile(`["/]([a-z-]+\.[0-9a-f]{12}\.[a-z]+)"`).FindAllStringSubmatch(text, -1) {
			path := "/assets/" + match[1]
			if _, ok := assets[path]; !ok {
				assets[path] = ask(t, client, http.MethodGet, d.URL+path, "")
				assets[path+" gzip"] = ask(t, client, http.MethodGet, d.URL+path, "", "Accept-Encoding", "br, gzip;q=0.8")
				fetch(assets[path].body)
			}
		}
	}
	fetch(page.body)
	if len(assets) < 10 {
		t.Fatalf("the page has %d assets", len(assets)/2)
	}
	small := ask(t, client, http.MethodGet, d.URL+"/sales/"+sale, "", "Accept-Encoding", "gzip")
	if len(small.body) >= len(page.body) || small.header.Get("Content-Encoding") != "gzip" {
		t.Errorf("the page has %d bytes, compressed %d: %v", len(page.body), len(small.body), small.header)
	}
	if a := ask(t, client, http.MethodGet, d.URL+"/api/v1/sales/"+sale, ""); a.status != http.StatusOK {
		t.Fatalf("the sale: %d %s", a.status, a.body)
	}
	for _, instance := range f.instances {
		instance.Kill()
	}

	for name, was := range assets {
		path, encoding, _ := strings.Cut(name, " ")
		now := ask(t, client, http.MethodGet, d.URL+path, "", "Accept-Encoding", encoding)
		if was.status != http.StatusOK || now.status != http.StatusOK || now.body != was.body || now.header.Get("Content-Encoding") != encoding ||
			!strings.Contains(now.header.Get("Cache-Control"), "immutable") || now.header.Get("Content-Type") != was.header.Get("Content-Type") {
			t.Errorf("%s: %d %v, before %d %v", name, now.status, now.header, was.status, was.header)
		}
		if again := ask(t, client, http.MethodGet, d.URL+path, "", "Accept-Encoding", encoding, "If-None-Match", now.header.Get("Etag")); again.status != http.StatusNotModified {
			t.Errorf("%s again: %d", name, again.status)
		}
	}
	shop.Recovered(t, "the sale's figures end with their second", func() error {
		if a := ask(t, client, http.MethodGet, d.URL+"/api/v1/sales/"+sale, ""); a.status != http.StatusServiceUnavailable {
			return fmt.Errorf("%d %s", a.status, a.body)
		}
		return nil
	})
	// By then the page's second is over, too.
	if now := ask(t, client, http.MethodGet, d.URL+"/sales/"+sale, ""); now.status != http.StatusOK || now.body != page.body {
		t.Errorf("the page: %d %s", now.status, now.body)
	}
	refusedAs(t, ask(t, client, http.MethodGet, d.URL+"/api/v1/sales/"+sale, ""), http.StatusServiceUnavailable, "unavailable")
	if a := ask(t, client, http.MethodGet, d.URL+"/console", ""); a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" ||
		!strings.HasPrefix(a.header.Get("Content-Type"), "text/html") || !strings.Contains(a.body, "http-equiv=\"refresh\"") {
		t.Errorf("a page that nginx has not: %d %v %s", a.status, a.header, a.body)
	}
}

// refusedAs checks a refusal that nginx makes itself.
func refusedAs(t *testing.T, a answer, status int, code string) {
	t.Helper()
	if a.status != status || a.code() != code || a.header.Get("Content-Type") != "application/problem+json" || a.header.Get("Cache-Control") != "no-store" ||
		(status != http.StatusRequestEntityTooLarge) != (a.header.Get("Retry-After") != "") ||
		!strings.Contains(a.body, `"request_id":"`+a.header.Get("X-Request-Id")+`"`) {
		t.Errorf("%d %v %s, want %d %s", a.status, a.header, a.body, status, code)
	}
}

// standIn answers in the place of an instance. A broken one reads a request and closes the connection, as one does
// that is killed in the middle of its work.
type standIn struct {
	*httptest.Server
	mu       sync.Mutex
	requests []*http.Request
	bodies   []string
}

func newStandIn(t *testing.T, broken bool) *standIn {
	s := &standIn{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.requests, s.bodies = append(s.requests, r), append(s.bodies, string(body))
		s.mu.Unlock()
		if broken {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "{}")
	}))
	t.Cleanup(s.Close)
	return s
}

// take gives what came since the last time.
func (s *standIn) take() (requests []*http.Request, bodies []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	requests, bodies = s.requests, s.bodies
	s.requests, s.bodies = nil, nil
	return requests, bodies
}

const purchasePath = "/api/v1/sales/S/0123456789abcdef0123456789abcdef/orders"

// A request whose instance broke is sent to another one only if it means the same there.
func TestNginxRepeatsWhatIsSafe(t *testing.T) {
	broken, sound := newStandIn(t, true), newStandIn(t, false)
	d := openDoor(t, choices{"weighted.conf", "plain.conf", []string{
		"server " + address(broken.URL) + " max_fails=0;", "server " + address(sound.URL) + " backup;",
	}})
	client := from(t, shop.Address(1))
	for name, test := range map[string]struct {
		method, path, key string
		repeated          bool
	}{
		"orders":                     {"GET", "/api/v1/orders", "", true},
		"path":                       {"POST", "/api/v1/sales/S/path", "", true},
		"purchase with a key":        {"POST", purchasePath, "key", true},
		"purchase without a key":     {"POST", purchasePath, "", false},
		"payment":                    {"POST", "/api/v1/orders/O/payments", "", false},
		"payment with a key":         {"POST", "/api/v1/orders/O/payments", "key", false},
		"an operator's change":       {"PATCH", "/api/v1/admin/sales/S", "", false},
		"registration":               {"POST", "/api/v1/users", "", false},
		"the provider's call":        {"POST", "/api/v1/payments/callback", "", false},
		"purchase that is no path's": {"POST", "/api/v1/sales/S/0123/orders", "key", false},
	} {
		t.Run(name, func(t *testing.T) {
			const body = `{"quantity":1}`
			headers := []string{"Authorization", "Bearer token"}
			if test.key != "" {
				headers = append(headers, "Idempotency-Key", test.key)
			}
			a := ask(t, client, test.method, d.URL+test.path, body, headers...)
			first, _ := broken.take()
			second, bodies := sound.take()
			if len(first) != 1 {
				t.Fatalf("the broken instance was asked %d times", len(first))
			}
			if !test.repeated {
				refusedAs(t, a, http.StatusServiceUnavailable, "unavailable")
				if len(second) != 0 {
					t.Errorf("it was repeated")
				}
				return
			}
			if a.status != http.StatusCreated || len(second) != 1 {
				t.Fatalf("%d %s; the other instance was asked %d times", a.status, a.body, len(second))
			}
			if r := second[0]; r.Method != test.method || r.URL.Path != test.path || bodies[0] != body ||
				r.Header.Get("Idempotency-Key") != test.key || r.Header.Get("Authorization") != "Bearer token" {
				t.Errorf("repeated as %s %s %v %s", r.Method, r.URL, r.Header, bodies[0])
			}
		})
	}
	broken.Close() // now nobody listens there: nothing is sent, so everything may be sent elsewhere
	if a := ask(t, client, http.MethodPost, d.URL+purchasePath, "{}"); a.status != http.StatusCreated {
		t.Errorf("past an instance that is gone: %d %s", a.status, a.body)
	}
	sound.Close()
	for _, headers := range [][]string{nil, {"Idempotency-Key", "key"}} {
		refusedAs(t, ask(t, client, http.MethodPost, d.URL+purchasePath, "{}", headers...), http.StatusServiceUnavailable, "unavailable")
	}
}

// During an update an instance is asked for an asset that only another version has.
func TestNginxLooksForAnAssetElsewhere(t *testing.T) {
	version := func(asset string) string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/assets/"+asset {
				http.NotFound(w, r)
			}
		}))
		t.Cleanup(server.Close)
		return "server " + address(server.URL) + ";"
	}
	d := openDoor(t, choices{"weighted.conf", "plain.conf", []string{version("old.js"), version("new.js")}})
	client := from(t, shop.Address(1))
	for range 4 { // whichever instance has its turn
		for asset, want := range map[string]int{"old.js": http.StatusOK, "new.js": http.StatusOK, "none.js": http.StatusNotFound} {
			if a := ask(t, client, http.MethodGet, d.URL+"/assets/"+asset, ""); a.status != want {
				t.Errorf("%s: %d", asset, a.status)
			}
		}
	}
}

func TestNginxTellsInstancesTheTruth(t *testing.T) {
	instance := newStandIn(t, false)
	d := openDoor(t, choices{"weighted.conf", "plain.conf", []string{"server " + address(instance.URL) + ";"}})
	ask(t, from(t, shop.Address(5)), http.MethodPost, d.URL+purchasePath+"?secret=1", "{}", "X-Forwarded-For", "198.51.100.1, 198.51.100.2", "X-Real-Ip", "198.51.100.1",
		"Forwarded", "for=198.51.100.1", "X-Forwarded-Proto", "https", "X-Request-Id", "mine", "Accept-Encoding", "br, gzip, deflate", "Connection", "Upgrade", "Idempotency-Key", "k")
	requests, _ := instance.take()
	if len(requests) != 1 {
		t.Fatalf("%d requests", len(requests))
	}
	r := requests[0]
	for name, want := range map[string]string{
		"X-Forwarded-For": shop.Address(5), "X-Real-Ip": "", "Forwarded": "", "X-Forwarded-Proto": "http", "X-Request-Id": "mine",
		"Accept-Encoding": "gzip", "Connection": "", "Idempotency-Key": "k",
	} {
		if got := strings.Join(r.Header.Values(name), "|"); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if r.Proto != "HTTP/1.1" {
		t.Errorf("by %s, which keeps no connection", r.Proto)
	}
	line := d.log(t, "mine", 1)[0]
	if line.Client != shop.Address(5) || line.Path != "/api/v1/sales/S/-/orders" || line.Status != http.StatusCreated {
		t.Errorf("logged as %+v", line)
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if a := ask(t, from(t, shop.Address(5)), http.MethodGet, d.URL+path, ""); a.status != http.StatusNotFound {
			t.Errorf("%s: %d", path, a.status)
		}
	}
	if requests, _ = instance.take(); len(requests) != 0 {
		t.Errorf("the public may ask an instance about %s", requests[0].URL)
	}
	if a := ask(t, from(t, "127.0.0.1"), http.MethodGet, d.URL+"/nginx-status", ""); a.status != http.StatusOK || !strings.Contains(a.body, "Active connections") {
		t.Errorf("status on this machine: %d", a.status)
	}
	if a := ask(t, from(t, shop.Address(5)), http.MethodGet, d.URL+"/nginx-status", ""); a.status != http.StatusForbidden {
		t.Errorf("status from elsewhere: %d", a.status)
	}
}

// Refusals of nginx itself are those of the engine, word by word.
func TestNginxRefusesAsTheEngineDoes(t *testing.T) {
	instance := newStandIn(t, false)
	d := openDoor(t, choices{"weighted.conf", "plain.conf", []string{"server " + address(instance.URL) + ";"}})
	client := from(t, visitor)
	logIn := func(network string, n int, headers ...string) answer {
		t.Helper()
		headers = append(headers, visitorHeader, fmt.Sprintf("%s::%x", network, n+1))
		return ask(t, client, http.MethodPost, d.URL+"/api/v1/sessions", "{}", headers...)
	}
	// Each from an address of its own, in one network: one client.
	const attempts, burst, rate = 200, 100, 5
	passed, start := 0, time.Now()
	var refused answer
	for i := range attempts {
		if a := logIn("2001:db8:1:2", i); a.status == http.StatusCreated {
			passed++
		} else {
			refused = a
		}
	}
	if most := 1 + burst + int(rate*time.Since(start).Seconds()); passed > most || passed < burst {
		t.Errorf("%d passed, want %d to %d", passed, burst, most)
	}
	if a := logIn("2001:db8:1:3", 1); a.status != http.StatusCreated {
		t.Errorf("from another network: %d %s", a.status, a.body)
	}
	large := func(headers ...string) answer {
		return ask(t, client, http.MethodPost, d.URL+"/api/v1/users", strings.Repeat(" ", 1<<16), headers...)
	}
	refusedAs(t, refused, http.StatusTooManyRequests, "rate_limited")
	refusedAs(t, large(), http.StatusRequestEntityTooLarge, "too_large")
	chinese := []string{"Accept-Language", "zh-CN,zh;q=0.9,en;q=0.8"}
	var busy answer
	for busy.status != http.StatusTooManyRequests { // the bucket may have got a drop since
		busy = logIn("2001:db8:1:2", 1, chinese...)
	}
	big := large(chinese...)
	instance.Close()
	away := ask(t, client, http.MethodGet, d.URL+"/api/v1/time", "")
	refusedAs(t, away, http.StatusServiceUnavailable, "unavailable")

	source, err := os.ReadFile(filepath.Join(shop.Root(), "handler", "problem.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []answer{refused, busy, large(), big, away, ask(t, client, http.MethodGet, d.URL+"/api/v1/time", "", chinese...)} {
		var doc struct {
			Type, Title, Detail, Code string
			Status                    int
		}
		if err := json.Unmarshal([]byte(a.body), &doc); err != nil {
			t.Fatalf("%s: %v", a.body, err)
		}
		if words := fmt.Sprintf("text{%q, %q}", doc.Title, doc.Detail); !bytes.Contains(source, []byte(words)) {
			t.Errorf("the engine has no %s", words)
		}
		if doc.Type != "/problems/"+doc.Code || doc.Status != a.status {
			t.Errorf("%d: %s", a.status, a.body)
		}
	}
}

func TestNginxWithTLS(t *testing.T) {
	instance := newStandIn(t, false)
	roots := x509.NewCertPool()
	d := openDoor(t, choices{"weighted.conf", "tls.conf", []string{"server " + address(instance.URL) + ";"}}, func(folder string) {
		roots = makeCertificate(t, filepath.Join(folder, "tls"))
	})
	trusting := func(change func(*tls.Config)) *http.Client {
		return from(t, shop.Address(3), func(tr *http.Transport) {
			tr.ForceAttemptHTTP2 = true
			tr.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS10}
			change(tr.TLSClientConfig)
		})
	}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		a := ask(t, trusting(func(c *tls.Config) { c.MaxVersion = version }), http.MethodPost, d.URL+purchasePath, "{}", "X-Forwarded-Proto", "http")
		if a.status != http.StatusCreated || a.proto != "HTTP/2.0" || a.header.Get("Strict-Transport-Security") == "" {
			t.Errorf("TLS %x: %d by %s, %v", version, a.status, a.proto, a.header)
		}
		requests, _ := instance.take()
		if len(requests) != 1 || requests[0].Header.Get("X-Forwarded-Proto") != "https" || requests[0].Header.Get("X-Forwarded-For") != shop.Address(3) {
			t.Errorf("the instance got %+v", requests)
		}
	}
	old := tls.Dialer{Config: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}}
	if conn, err := old.DialContext(t.Context(), "tcp", strings.TrimPrefix(d.URL, "https://")); err == nil {
		_ = conn.Close()
		t.Error("TLS 1.1 is taken")
	}
	plain := from(t, shop.Address(3), func(tr *http.Transport) {
		tr.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", d.socket())
		}
	})
	if a := ask(t, plain, http.MethodPost, "http://shop.example/api/v1/users?x=1", "{}"); a.status != http.StatusPermanentRedirect ||
		a.header.Get("Location") != "https://shop.example/api/v1/users?x=1" {
		t.Errorf("without TLS: %d %v", a.status, a.header)
	}
}

// makeCertificate writes a self-signed certificate for the loopback and its key into a folder, and gives who trusts it.
func makeCertificate(t *testing.T, folder string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	write(t, filepath.Join(folder, "certificate.pem"), string(certificate))
	write(t, filepath.Join(folder, "key.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate)
	return roots
}
