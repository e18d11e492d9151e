package handler

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/internal/metrics"
	"flashsale/internal/observe"
	"flashsale/internal/sandbox"
	"flashsale/model"
	"flashsale/service"
	"flashsale/service/auth"
	"flashsale/test/kit/check"
)

const (
	benchSale = "AAAAAAAAAAAAAAAA"
	benchUser = "u-1"
	oneUnit   = `{"quantity":1}`
	problemJS = "application/problem+json"
)

var benchSecret = []byte("0123456789abcdef0123456789abcdef")

// sameHeader compares some headers.
func sameHeader(t testing.TB, what string, got http.Header, want map[string]string) {
	t.Helper()
	for name, value := range want {
		check.Same(t, what+": "+name, strings.Join(got.Values(name), ", "), value)
	}
}

// yes admits every attempt, as an order in the database.
type yes struct{}

func (yes) Deduct(_ context.Context, a model.Attempt) (model.Outcome, error) {
	at := time.Date(2026, 11, 11, 20, 0, 0, 0, time.UTC)
	return model.Outcome{Verdict: model.Accepted, Order: &model.Order{
		ID: a.ID, SaleID: a.SaleID, UserID: a.UserID, Quantity: a.Quantity, AmountCents: 990, Currency: "CNY",
		Status: model.OrderPending, Source: model.FromDatabase, CreatedAt: at, ExpiresAt: at.Add(time.Minute),
	}}, nil
}

// shop is the API, with everything switched on, over one sale, which the test changes. It is the database of its catalog.
type shop struct {
	testing.TB
	api    *API
	offers *Offers
	stop   chan struct{} // closed when the server stops
	router http.Handler  // made at the first request
	offer  *model.Offer
	face   *model.Shop
	gone   bool             // the sale is no longer live
	clock  func() time.Time // of the database
}

func (s *shop) LiveOffers(context.Context, time.Duration) ([]model.Offer, error) {
	if s.gone {
		return nil, nil
	}
	return []model.Offer{*s.offer}, nil
}

func (s *shop) Offer(context.Context, string) (model.Offer, bool, error) {
	return model.Offer{}, false, nil
}

func (*shop) CampaignSales(context.Context, string) ([]model.Offer, error) { return nil, nil }

func (s *shop) SaleCodes(context.Context, time.Time) (map[string]string, time.Time, error) {
	return map[string]string{benchSale: "abc"}, time.Time{}, nil
}

func (s *shop) Now(context.Context) (time.Time, error) { return s.clock(), nil }

// newShop returns a shop whose sale began an hour ago and ends in an hour.
func newShop(tb testing.TB) *shop {
	tb.Helper()
	gin.SetMode(gin.ReleaseMode)
	now := time.Now()
	s := &shop{TB: tb, clock: time.Now, stop: make(chan struct{}), face: &model.Shop{}, offer: &model.Offer{
		Sale: model.Sale{
			ID: benchSale, Code: "abc", Title: "<Tea>", PriceCents: 990, Currency: "CNY", LimitPerUser: 10, PayTimeoutSeconds: 60, Mode: model.ModeRush,
			StartsAt: now.Add(-time.Hour), EndsAt: now.Add(time.Hour), Status: model.SaleLive,
		},
		Stock: model.Stock{SaleID: benchSale, Quota: 5, Available: 5, Epoch: 1},
	}}
	catalog := service.NewCatalog(s, func() time.Time { return s.clock() })
	s.offers = &Offers{catalog, func() string { return "http://localhost" }}
	staff := &service.Staff{Tokens: auth.NewTokens(benchSecret, time.Now)}
	consoles := NewConsoles(staff, s.stop)
	meter := metrics.New(time.Now)
	s.api = &API{
		Door: Door{
			Limits: Limits{Rate: 1e9, Burst: 1e9, AddressRate: 1e9, User: model.Frequency{Limit: 1e6, Window: time.Second}},
			Tally:  service.NewTally(catalog), Requested: meter.Request, Observe: observe.All{meter}, Now: time.Now,
			Log: slog.New(slog.NewJSONHandler(io.Discard, nil)),
		},
		Health: Health{Closing: s.stop, Now: time.Now},
		Purchases: Purchases{
			Offers: s.offers, Paths: auth.NewPaths(benchSecret, catalog.Now), Service: &service.Purchases{
				Catalog: catalog, IDs: model.NewOrderIDs(benchSecret), Strategy: yes{}, Waiters: service.NewWaiters(time.Now),
				Observe: observe.All{meter},
			},
		},
		Links: Links{PublicURL: s.offers.PublicURL}, Orders: Orders{Offers: s.offers, Consoles: consoles},
		Lines: Lines{Offers: s.offers, Closing: s.stop}, Holds: &Holds{Service: &service.Holds{}},
		Payments: Payments{Notices: true, Sandbox: &sandbox.Provider{
			Secret: benchSecret, Now: catalog.Now,
			Read: func(context.Context, string) (model.Payment, bool, error) { return model.Payment{}, false, nil },
		}},
		Pages: Pages{
			Offers: s.offers, Home: &home{page: func(string) (int, string) { return http.StatusNotFound, "nothing" }},
			Shop: func() *model.Shop { return s.face },
		},
		Assets: http.NotFoundHandler(), Sales: Sales{Offers: s.offers}, Campaigns: Campaigns{Offers: s.offers}, Operations: Operations{Offers: s.offers},
		Live: Live{Offers: s.offers, Consoles: consoles}, Lab: &Lab{Consoles: consoles}, Staff: Staff{staff}, Shop: Shop{service.NewShop(nil)}, Accounts: NewAccounts(&service.Accounts{}),
	}
	s.refresh()
	return s
}

// soldOut sells all units of the sale.
func (s *shop) soldOut() *shop {
	s.offer.Stock.Available, s.offer.Stock.Paid = 0, s.offer.Stock.Quota
	s.refresh()
	s.offers.Catalog.Latch(benchSale)
	return s
}

func (s *shop) refresh() { check.Done(s.offers.Catalog.Refresh(s.Context())) }

// handler returns the router.
func (s *shop) handler() http.Handler {
	if s.router == nil {
		s.router = check.Must(Router(s.api))
	}
	return s.router
}

// token returns the header of a user in this role.
func (s *shop) token(role model.Role) string {
	token, _, err := s.api.Staff.Service.Tokens.Sign(model.Identity{UserID: benchUser, Role: role}, time.Hour)
	check.Done(err)
	return "Bearer " + token
}

// request returns a request with headers: pairs of name and value.
func (s *shop) request(method, path, body string, headers ...string) *http.Request {
	var content io.Reader
	if body != "" {
		content = strings.NewReader(body)
	}
	r := httptest.NewRequestWithContext(s.Context(), method, path, content)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

// purchase returns a buyer's request with a valid token and path.
func (s *shop) purchase(body string) *http.Request {
	path, _ := s.api.Purchases.Paths.Issue(benchUser, benchSale, time.Hour)
	return s.request(http.MethodPost, "/api/v1/sales/"+benchSale+"/"+path+"/orders", body, "Authorization", s.token(model.RoleBuyer))
}

func (s *shop) serve(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.handler().ServeHTTP(w, r)
	return w
}

// get asks for a path, with headers.
func (s *shop) get(path string, headers ...string) *httptest.ResponseRecorder {
	return s.serve(s.request(http.MethodGet, path, "", headers...))
}

// wire is the server of a shop with connections in memory, so that a fake clock moves while they are idle.
type wire struct {
	*shop
	accepted chan net.Conn
	closed   chan struct{}
}

// open starts the server.
func (s *shop) open() *wire {
	w := &wire{shop: s, accepted: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: s.handler(), ReadHeaderTimeout: time.Second, WriteTimeout: time.Second}
	served := make(chan error)
	go func() { served <- server.Serve(w) }()
	s.Cleanup(func() {
		if s.api.Streams != nil {
			s.api.Streams.Close()
		}
		_ = server.Close()
		check.Error(s, "server", <-served, http.ErrServerClosed)
	})
	return w
}

func (w *wire) Accept() (net.Conn, error) {
	select {
	case conn := <-w.accepted:
		return conn, nil
	case <-w.closed:
		return nil, net.ErrClosed
	}
}

func (w *wire) Close() error   { close(w.closed); return nil }
func (w *wire) Addr() net.Addr { return &net.UnixAddr{} }

// connect sends a request, an operator's unless the headers say otherwise, and reads nothing of the answer.
func (w *wire) connect(path string, headers ...string) net.Conn {
	mine, theirs := net.Pipe()
	w.accepted <- theirs
	r := w.request(http.MethodGet, path, "", append([]string{"Authorization", w.token(model.RoleOperator)}, headers...)...)
	check.Done(r.Write(mine))
	w.Cleanup(func() { _ = mine.Close() })
	return mine
}

// ask sends an operator's request, and reads the head of the answer.
func (w *wire) ask(path string, headers ...string) (*http.Response, net.Conn) {
	conn := w.connect(path, headers...)
	res := check.Must(http.ReadResponse(bufio.NewReader(conn), nil))
	w.Cleanup(func() { _ = res.Body.Close() })
	return res, conn
}

// event is a server-sent event, and when it came. A comment is an event named ":".
type event struct {
	name, id, data string
	at             time.Time
}

func (e event) String() string { return strings.TrimSpace(e.name + " " + e.data) }

// listener is a client that reads a stream.
type listener struct {
	testing.TB
	conn   net.Conn
	status int
	header http.Header
	events chan event // closed at the end of the stream
}

// listen opens a stream and reads it.
func (w *wire) listen(path string, headers ...string) *listener {
	res, conn := w.ask(path, headers...)
	l := &listener{w, conn, res.StatusCode, res.Header, make(chan event, 2*3600)} // more than a console sends in an hour
	go func() {
		defer close(l.events)
		e := event{}
		for lines := bufio.NewScanner(res.Body); lines.Scan(); {
			name, value, _ := strings.Cut(lines.Text(), ": ")
			switch name {
			case "id":
				e.id = value
			case "data":
				e.data = value
			case "event", ":":
				e.name = value + strings.TrimSuffix(name, "event")
			case "":
				e.at = time.Now()
				l.events <- e
				e = event{}
			default:
				if l.status == http.StatusOK {
					w.Errorf("line %s", lines.Text())
				}
			}
		}
	}()
	synctest.Wait()
	w.Cleanup(l.leave)
	return l
}

func (l *listener) leave() {
	_ = l.conn.Close()
	synctest.Wait()
}

// read returns the events since the last call, and whether the stream has ended.
func (l *listener) read() (all []event, over bool) {
	synctest.Wait()
	for {
		select {
		case e, more := <-l.events:
			if !more {
				return all, true
			}
			all = append(all, e)
		default:
			return all, false
		}
	}
}

func (l *listener) heard() []event {
	all, _ := l.read()
	return all
}

func (l *listener) over() bool {
	_, over := l.read()
	return over
}

// one returns the only event since the last call.
func (l *listener) one() event {
	l.Helper()
	all := l.heard()
	if len(all) != 1 {
		l.Fatalf("heard %v, want one event", all)
	}
	return all[0]
}

// none checks that no event came since the last call.
func (l *listener) none() {
	l.Helper()
	check.Same(l, "events", fmt.Sprint(l.heard()), "[]")
}

// passes advances the clock of the test's synctest bubble by d, and waits until all its goroutines block again.
func passes(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// readHead reads up to an empty line, and nothing after it.
func readHead(conn net.Conn) {
	for head, next := "", make([]byte, 1); !strings.HasSuffix(strings.ReplaceAll(head, "\r", ""), "\n\n"); head += string(next) {
		check.Must(conn.Read(next))
	}
}
