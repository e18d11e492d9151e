package handler

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/model"
	"flashsale/service"
)

// office is the API with an operator in front of it, in a bubble.
type office struct {
	*testing.T
	api *API
	pipes
}

func newOffice(t *testing.T, api *API) *office {
	t.Helper()
	router, err := Router(api)
	if err != nil {
		t.Fatal(err)
	}
	o := &office{T: t, api: api, pipes: pipes{make(chan net.Conn), make(chan struct{})}}
	server := &http.Server{Handler: router, ReadHeaderTimeout: time.Second, WriteTimeout: time.Second}
	served := make(chan error)
	go func() { served <- server.Serve(o) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return o
}

// reading is an answer that the operator may read, or not.
type reading struct {
	status int
	header http.Header
	body   io.Reader
	leave  func()
}

// get asks for a path of the operator's.
func (o *office) get(path string) reading {
	o.Helper()
	token, _, err := o.api.Tokens.Sign(model.Identity{UserID: "op", Role: model.RoleOperator}, time.Hour)
	if err != nil {
		o.Fatal(err)
	}
	client, server := net.Pipe()
	o.accepted <- server
	if _, err := io.WriteString(client, "GET /api/v1/admin"+path+" HTTP/1.1\r\nHost: shop\r\nAuthorization: Bearer "+token+"\r\n\r\n"); err != nil {
		o.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(client), nil)
	if err != nil {
		o.Fatal(err)
	}
	leave := func() {
		_ = client.Close()
		_ = res.Body.Close()
	}
	o.Cleanup(leave)
	return reading{res.StatusCode, res.Header, res.Body, leave}
}

// quietGate is a gate and a database that have nothing but a sale.
type quietGate struct{ offer model.Offer }

func (g quietGate) Peek(context.Context, ...string) ([]model.GateState, error) {
	return []model.GateState{{Exists: true, Open: true, Epoch: 3, Left: 9, Inflight: 2, Stream: 1}}, nil
}

func (g quietGate) Offer(context.Context, string) (model.Offer, bool, error) {
	return g.offer, true, nil
}

func (g quietGate) Books(context.Context, string) (model.Books, bool, error) {
	return model.Books{
		Stock: g.offer.Stock, BuyersUnits: 3, Orders: map[model.OrderStatus]int64{model.OrderPending: 1, model.OrderPaid: 1},
		Units: map[model.OrderStatus]int64{model.OrderPending: 1, model.OrderPaid: 2},
	}, true, nil
}

// liveAPI is an API whose sale has figures.
func liveAPI(t *testing.T) *API {
	t.Helper()
	api := benchAPI(t, false)
	offer, _ := api.Catalog.InMemory(benchSale)
	offer.Stock = model.Stock{SaleID: benchSale, Quota: 13, Available: 10, Held: 1, Paid: 2}
	gate := quietGate{offer}
	api.Closing = make(chan struct{})
	instances := func(context.Context) map[string]model.Instance {
		return map[string]model.Instance{
			"b": {URL: "http://b", Strategy: "hybrid", GateReachable: true, ReportedAtMs: 1_800_000_000_123, Sales: map[string]map[model.Verdict]int64{
				benchSale: {model.Accepted: 2, model.SoldOut: 40}, "another": {model.SoldOut: 9},
			}},
			"a": {URL: "http://a", Strategy: "local", Sales: map[string]map[model.Verdict]int64{benchSale: {model.SoldOut: 1, model.RateLimited: 7}}},
		}
	}
	api.Live = service.NewLive(api.Catalog, gate, gate, instances, []float64{1})
	return api
}

// A console sees all of a sale at once and each second, until the server stops.
func TestLiveFigures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := liveAPI(t)
		closing := make(chan struct{})
		api.Closing = closing
		o := newOffice(t, api)
		live := o.get("/sales/" + benchSale + "/live")
		if live.status != http.StatusOK || live.header.Get("Content-Type") != "text/event-stream" || live.header.Get("Cache-Control") != "no-cache" {
			t.Errorf("%d %v", live.status, live.header)
		}
		const rest = `"state":"open","status":"live","quota":13,"available":10,"held":1,"paid":2,"requests":50,"purchases":{"accepted":2,"rate_limited":7,"sold_out":41},`
		lines := bufio.NewScanner(live.body)
		began := time.Now()
		for second := range 20 { // for longer than the server's time for other answers
			for lines.Scan() && lines.Text() != "event: figures" {
				if line := lines.Text(); line != "" && line != ":" { // a sign of life
					t.Fatalf("second %d: %q", second, line)
				}
			}
			lines.Scan()
			data := strings.TrimPrefix(lines.Text(), "data: ")
			if !strings.Contains(data, rest) || !json.Valid([]byte(data)) {
				t.Fatalf("second %d: %s", second, data)
			}
			if at := time.Since(began).Round(time.Second); at != time.Duration(second)*time.Second {
				t.Errorf("event %d came at %s", second, at)
			}
		}
		close(closing)
		for lines.Scan() {
			t.Log(lines.Text()) // the next one may be on its way
		}
		if lines.Err() != nil {
			t.Errorf("the stream ended by %v", lines.Err())
		}
	})
}

// What a console sees, member by member.
func TestViewFigures(t *testing.T) {
	at := time.UnixMilli(1_800_000_000_123)
	stock := model.Stock{SaleID: "S", Quota: 13, Available: 10, Held: 1, Paid: 2}
	offer := model.Offer{Sale: model.Sale{ID: "S", Status: model.SaleLive, StartsAt: at.Add(-time.Hour), EndsAt: at.Add(time.Hour)}, Stock: stock}
	full := &service.SaleFigures{
		Now: at, Offer: offer, Database: true, BooksAt: at.Add(-time.Second), Reachable: true, Drift: -4, DriftAt: at.Add(-time.Minute),
		Books:  model.Books{Stock: stock, BuyersUnits: 3, Orders: map[model.OrderStatus]int64{"paid": 1}, Units: map[model.OrderStatus]int64{"pending": 1, "paid": 2}},
		Gate:   model.GateState{Exists: true, Open: true, Epoch: 3, Left: 9, Inflight: 2, Stream: 1},
		Stages: map[string]service.Latency{"deduct": {Count: 7, P50: 1500 * time.Microsecond, P99: 2 * time.Second}},
		Instances: map[string]model.Instance{
			"b": {URL: "http://b", Strategy: "hybrid", GateReachable: true, ReportedAtMs: at.UnixMilli(), Sales: map[string]map[model.Verdict]int64{"S": {"sold_out": 40}, "T": {"sold_out": 9}}},
			"a": {URL: "http://a", Strategy: "local", ReportedAtMs: at.UnixMilli(), Sales: map[string]map[model.Verdict]int64{"S": {"sold_out": 1, "rate_limited": 7}}},
		},
	}
	const want = `{"now":"2027-01-15T08:00:00.123Z","state":"open","status":"live","quota":13,"available":10,"held":1,"paid":2,"requests":48,` +
		`"purchases":{"rate_limited":7,"sold_out":41},"orders":{"paid":1},"units":{"paid":2,"pending":1},"books_at":"2027-01-15T07:59:59.123Z","ok":true,` +
		`"database":{"reachable":true},"gate":{"reachable":true,"epoch":3,"open":true,"left":9,"inflight":2,"stream":1},"drift":-4,"drift_at":"2027-01-15T07:59:00.123Z",` +
		`"stages":{"deduct":{"count":7,"p50_ms":1.5,"p99_ms":2000}},"instances":[` +
		`{"id":"a","url":"http://a","strategy":"local","gate_reachable":false,"requests":8,"reported_at":"2027-01-15T08:00:00.123Z"},` +
		`{"id":"b","url":"http://b","strategy":"hybrid","gate_reachable":true,"requests":40,"reported_at":"2027-01-15T08:00:00.123Z"}]}`
	if got, err := json.Marshal(viewFigures(full)); err != nil || string(got) != want {
		t.Errorf("%v\ngot  %s\nwant %s", err, got, want)
	}
	wrong := *full
	wrong.Books.BuyersUnits = 4
	if viewFigures(&wrong).OK {
		t.Error("books that don't balance are ok")
	}
	const nothing = `"requests":0,"purchases":{},"orders":{},"units":{},"books_at":null,"ok":false,"database":{"reachable":false},"gate":{"reachable":false,"epoch":0,"open":false,"left":0,"inflight":0,"stream":0},"drift":0,"drift_at":null,"stages":{},"instances":[]}`
	empty := &service.SaleFigures{Now: at, Offer: offer, Books: model.Books{Orders: map[model.OrderStatus]int64{}, Units: map[model.OrderStatus]int64{}}}
	if got, err := json.Marshal(viewFigures(empty)); err != nil || !strings.HasSuffix(string(got), nothing) {
		t.Errorf("%v\ngot  %s\nwant %s", err, got, nothing)
	}
}

// A console that doesn't read is dropped, and doesn't keep the others waiting; each stream ends some day.
func TestConsolesThatStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, liveAPI(t))
		o.get("/sales/" + benchSale + "/live") // and nobody reads it
		began := time.Now()
		lines, heard := bufio.NewScanner(o.get("/sales/"+benchSale+"/live").body), 0
		for lines.Scan() {
			if lines.Text() != "event: figures" {
				continue
			}
			heard++
			if n := o.api.consoles.Load(); time.Since(began) > sendTimeout+2*time.Second && n != 1 {
				t.Fatalf("after %s %d consoles are open", time.Since(began), n)
			}
		}
		if lasted := time.Since(began); lasted != consoleLifetime || lines.Err() != nil {
			t.Errorf("the stream ended after %s, %v", lasted, lines.Err())
		}
		if seconds := int(consoleLifetime / time.Second); heard < seconds || heard > seconds+1 {
			t.Errorf("%d events in %d seconds", heard, seconds)
		}
		synctest.Wait()
		if n := o.api.consoles.Load(); n != 0 {
			t.Errorf("%d consoles are open", n)
		}
	})
}

// There is room for so many consoles, and room again when one leaves.
func TestConsolesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, liveAPI(t))
		o.api.consoles.Store(maxConsoles - 1)
		last := o.get("/sales/" + benchSale + "/live")
		for range 3 {
			full := o.get("/sales/" + benchSale + "/live")
			if retry, err := strconv.Atoi(full.header.Get("Retry-After")); full.status != http.StatusServiceUnavailable || err != nil || retry < 1 {
				t.Errorf("%d %v", full.status, full.header)
			}
		}
		last.leave()
		synctest.Wait()
		if again := o.get("/sales/" + benchSale + "/live"); again.status != http.StatusOK {
			t.Errorf("%d", again.status)
		}
	})
}

// How a purchase request ended is counted under its sale, whichever stage ended it.
func TestPurchasesAreTallied(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(api *API, r *http.Request)
		body   string
		want   model.Verdict
	}{
		"accepted": {func(*API, *http.Request) {}, `{"quantity":1}`, model.Accepted},
		"queued": {func(api *API, _ *http.Request) {
			api.Purchases.Strategy = answering{model.Outcome{Verdict: model.Accepted}, nil}
		}, `{"quantity":1}`, "queued"},
		"sold out": {func(api *API, _ *http.Request) { api.Catalog.Latch(benchSale) }, `{"quantity":1}`, model.SoldOut},
		"too frequent": {func(api *API, _ *http.Request) {
			api.Purchases.Strategy = answering{model.Outcome{Verdict: model.TooFrequent}, nil}
		}, `{"quantity":1}`, model.TooFrequent},
		"rate limited": {func(api *API, _ *http.Request) { api.Limits.Burst = 0 }, `{"quantity":1}`, model.RateLimited},
		"no token":     {func(_ *API, r *http.Request) { r.Header.Del("Authorization") }, `{"quantity":1}`, model.Unauthenticated},
		"no sense":     {func(*API, *http.Request) {}, `{"quantity":`, model.BadRequest},
		"no store":     {func(api *API, _ *http.Request) { api.Purchases.Strategy = answering{err: model.ErrUnavailable} }, `{"quantity":1}`, model.Unavailable},
		"broken":       {func(api *API, _ *http.Request) { api.Purchases.Strategy = answering{err: errors.New("x")} }, `{"quantity":1}`, internalError},
	} {
		t.Run(name, func(t *testing.T) {
			api := benchAPI(t, false)
			api.Purchases.AckQueued = true
			r := purchaseRequest(t, api, tc.body)
			tc.change(api, r)
			router, err := Router(api)
			if err != nil {
				t.Fatal(err)
			}
			router.ServeHTTP(&sink{header: http.Header{}}, r)
			r.URL.Path = strings.Replace(r.URL.Path, benchSale, "GUESS", 1)
			router.ServeHTTP(&sink{header: http.Header{}}, r)
			counts := api.Tally.Counts()
			if len(counts) != 1 || len(counts[benchSale]) != 1 || counts[benchSale][tc.want] != 1 {
				t.Errorf("counted %v, want one %s", counts, tc.want)
			}
		})
	}
}

// answering is a strategy that knows one answer.
type answering struct {
	outcome model.Outcome
	err     error
}

func (a answering) Deduct(context.Context, model.Attempt) (model.Outcome, error) {
	return a.outcome, a.err
}
