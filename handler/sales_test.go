package handler

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/service"
)

// changing is a store whose one sale the test changes.
type changing struct {
	soldOutStore
	offer *model.Offer
}

func (s changing) LiveOffers(context.Context, time.Duration) ([]model.Offer, error) {
	return []model.Offer{*s.offer}, nil
}

// shop is the front door over a sale that the test changes, under a clock that it sets.
type shop struct {
	t      *testing.T
	api    *API
	router http.Handler
	offer  *model.Offer
	now    time.Time
}

func newShop(t *testing.T) *shop {
	start := time.Date(2026, 11, 11, 20, 0, 0, 0, time.UTC)
	s := &shop{t: t, api: benchAPI(t, false), now: start.Add(-time.Minute), offer: &model.Offer{
		Sale: model.Sale{
			ID: benchSale, Code: "abc", Title: "<Tea>", PriceCents: 990, Currency: "CNY", LimitPerUser: 1,
			StartsAt: start, EndsAt: start.Add(time.Hour), Status: model.SaleLive,
		},
		Stock: model.Stock{SaleID: benchSale, Quota: 5, Available: 5},
	}}
	store := changing{offer: s.offer}
	store.soldOutStore.offer = *s.offer
	s.api.Catalog = service.NewCatalog(nowStore{store, &s.now}, func() time.Time { return s.now })
	s.refresh()
	return s
}

func (s *shop) refresh() {
	s.t.Helper()
	if err := s.api.Catalog.Refresh(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shop) get(path, known string) *httptest.ResponseRecorder {
	s.t.Helper()
	return s.ask(path, "If-None-Match", known)
}

// ask asks for a path with headers: pairs of name and value.
func (s *shop) ask(path string, headers ...string) *httptest.ResponseRecorder {
	s.t.Helper()
	if s.router == nil {
		var err error
		if s.router, err = Router(s.api); err != nil {
			s.t.Fatal(err)
		}
	}
	r := httptest.NewRequestWithContext(s.t.Context(), http.MethodGet, path, nil)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.router.ServeHTTP(w, r)
	return w
}

// saleChange is what may happen to a sale, in this order.
type saleChange struct {
	name   string
	change func(*shop)
}

var saleChanges = []saleChange{
	{"upcoming", func(*shop) {}},
	{"open", func(s *shop) { s.now = s.offer.StartsAt }},
	{"a unit less", func(s *shop) { s.offer.Stock.Available--; s.offer.Stock.Held++ }},
	{"another title", func(s *shop) { s.offer.Title = "Tea" }},
	{"paused", func(s *shop) { s.offer.Status = model.SalePaused }},
	{"over", func(s *shop) { s.now = s.offer.EndsAt }},
}

// A sale's JSON is encoded once for all who ask, and again as soon as the sale, its stock or its state is another.
func TestSaleIsEncodedOnChange(t *testing.T) {
	s := newShop(t)
	tags := map[string]string{}
	for _, step := range saleChanges {
		step.change(s)
		s.refresh()
		want, err := json.Marshal(s.api.saleView(*s.offer))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			w := s.get("/api/v1/sales/"+benchSale, "")
			if w.Code != http.StatusOK || w.Body.String() != string(want) {
				t.Errorf("%s: %d %s, want %s", step.name, w.Code, w.Body, want)
			}
			tag := w.Header().Get("ETag")
			sum := sha256.Sum256(want)
			if tag != `"`+hex.EncodeToString(sum[:8])+`"` || w.Header().Get("Cache-Control") != "public, max-age=1" {
				t.Errorf("%s: headers %v", step.name, w.Header())
			}
			if other, seen := tags[tag]; seen && other != step.name {
				t.Errorf("%s and %s share a tag", step.name, other)
			}
			tags[tag] = step.name
			again := s.get("/api/v1/sales/"+benchSale, tag)
			if again.Code != http.StatusNotModified || again.Body.Len() != 0 || again.Header().Get("ETag") != tag {
				t.Errorf("%s, known already: %d %s", step.name, again.Code, again.Body)
			}
		}
	}
}

// nowStore is a store with a clock that the test sets.
type nowStore struct {
	changing
	now *time.Time
}

func (s nowStore) Now(context.Context) (time.Time, error) { return *s.now, nil }
