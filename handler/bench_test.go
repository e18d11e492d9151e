package handler

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/internal/metrics"
	"flashsale/model"
	"flashsale/service"
	"flashsale/service/auth"
)

const (
	benchSale = "AAAAAAAAAAAAAAAA"
	benchUser = "u-1"
)

var benchSecret = []byte("0123456789abcdef0123456789abcdef")

// soldOutStore is the database of a catalog with one sale, which has no unit left.
type soldOutStore struct{ offer model.Offer }

func (s soldOutStore) LiveOffers(context.Context, time.Duration) ([]model.Offer, error) {
	return []model.Offer{s.offer}, nil
}

func (s soldOutStore) Offer(context.Context, string) (model.Offer, bool, error) {
	return model.Offer{}, false, nil
}

func (s soldOutStore) SaleCodes(context.Context, time.Time) (map[string]string, time.Time, error) {
	return map[string]string{s.offer.ID: s.offer.Code}, time.Time{}, nil
}

func (s soldOutStore) Now(context.Context) (time.Time, error) { return time.Now(), nil }

// yes admits whatever it is asked for, into the database at once.
type yes struct{}

func (yes) Deduct(_ context.Context, a model.Attempt) (model.Outcome, error) {
	at := time.Date(2026, 11, 11, 20, 0, 0, 0, time.UTC)
	return model.Outcome{Verdict: model.Accepted, Order: &model.Order{
		ID: a.ID, SaleID: a.SaleID, UserID: a.UserID, Quantity: a.Quantity, AmountCents: 990, Currency: "CNY",
		Status: model.OrderPending, Source: model.FromDatabase, CreatedAt: at, ExpiresAt: at.Add(time.Minute),
	}}, nil
}

// benchAPI is the whole front door, everything switched on, over a sale that is sold out or sells without end.
func benchAPI(tb testing.TB, soldOut bool) *API {
	tb.Helper()
	gin.SetMode(gin.ReleaseMode)
	now := time.Now()
	offer := model.Offer{
		Sale: model.Sale{
			ID: benchSale, Code: "abc", Title: "Bench", PriceCents: 990, Currency: "CNY", LimitPerUser: 10,
			StartsAt: now.Add(-time.Hour), EndsAt: now.Add(time.Hour), Status: model.SaleLive,
		},
		Stock: model.Stock{SaleID: benchSale, Quota: 1, Paid: 1, Epoch: 1},
	}
	catalog := service.NewCatalog(soldOutStore{offer}, time.Now)
	if err := catalog.Refresh(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	if soldOut {
		catalog.Latch(benchSale)
	}
	meter := metrics.New()
	return &API{
		Purchases: &service.Purchases{
			Catalog: catalog, IDs: model.NewOrderIDs(benchSecret), Strategy: yes{}, Waiters: service.NewWaiters(),
			Queued: func(string) {}, Meter: meter, Now: time.Now,
		},
		Catalog: catalog, Paths: auth.NewPaths(benchSecret, catalog.Now), Tokens: auth.NewTokens(benchSecret, time.Now),
		Sandbox: http.NotFoundHandler(), Home: http.NotFoundHandler(), Assets: http.NotFoundHandler(), PublicURL: func() string { return "http://localhost" },
		Limits: Limits{Rate: 1e9, Burst: 1e9, AddressRate: 1e9, User: model.Frequency{Limit: 1e6, Window: time.Second}},
		Tally:  service.NewTally(catalog),
		Meter:  meter, CounterFailed: func(error) {}, Now: time.Now, Log: slog.New(slog.NewJSONHandler(io.Discard, nil)),
	}
}

// sink is a client that reads nothing.
type sink struct {
	header http.Header
	status int
	bytes  int
}

func (s *sink) Header() http.Header { return s.header }

func (s *sink) WriteHeader(status int) { s.status = status }

func (s *sink) Write(p []byte) (int, error) {
	s.bytes += len(p)
	return len(p), nil
}

// body is a request's body that can be read again and again.
type body struct{ strings.Reader }

func (b *body) Close() error { return nil }

// purchaseRequest is a buyer's request with a token and a path that are good.
func purchaseRequest(tb testing.TB, api *API, body string) *http.Request {
	tb.Helper()
	token, _, err := api.Tokens.Sign(model.Identity{UserID: benchUser, Role: model.RoleBuyer}, time.Hour)
	if err != nil {
		tb.Fatal(err)
	}
	path, _ := api.Paths.Issue(benchUser, benchSale, time.Hour)
	r := httptest.NewRequestWithContext(tb.Context(), http.MethodPost, "/api/v1/sales/"+benchSale+"/"+path+"/orders", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

func benchPurchase(b *testing.B, soldOut bool, status int) {
	api := benchAPI(b, soldOut)
	router, err := Router(api)
	if err != nil {
		b.Fatal(err)
	}
	const quantity = `{"quantity":1}`
	r := purchaseRequest(b, api, quantity)
	again := &body{}
	client := &sink{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		again.Reset(quantity)
		r.Body = again
		clear(client.header)
		router.ServeHTTP(client, r)
		if client.status != status {
			b.Fatalf("status %d, want %d", client.status, status)
		}
	}
}

// BenchmarkSoldOut is a refusal from memory, BenchmarkAccepted a 201, both through every stage.
func BenchmarkSoldOut(b *testing.B)  { benchPurchase(b, true, http.StatusConflict) }
func BenchmarkAccepted(b *testing.B) { benchPurchase(b, false, http.StatusCreated) }

// BenchmarkBareGin answers the same bytes and does nothing else: the control.
func BenchmarkBareGin(b *testing.B) {
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.POST("/api/v1/sales/:sale/:path/orders", func(c *gin.Context) {
		_, _ = io.Copy(io.Discard, c.Request.Body)
		c.Data(http.StatusConflict, "application/problem+json", make([]byte, 220))
	})
	r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/api/v1/sales/S/p/orders", nil)
	again, client := &body{}, &sink{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		again.Reset(`{"quantity":1}`)
		r.Body = again
		clear(client.header)
		engine.ServeHTTP(client, r)
	}
}

func BenchmarkSale(b *testing.B) {
	router, err := Router(benchAPI(b, true))
	if err != nil {
		b.Fatal(err)
	}
	r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/api/v1/sales/"+benchSale, nil)
	client := &sink{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		clear(client.header)
		router.ServeHTTP(client, r)
	}
}
