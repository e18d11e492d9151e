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

func TestIfNoneMatch(t *testing.T) {
	const tag = `"abc"`
	for name, tc := range map[string]struct {
		header string
		want   bool
	}{
		"nothing":            {"", false},
		"the tag":            {`"abc"`, true},
		"weak":               {`W/"abc"`, true},
		"any":                {"*", true},
		"the last of many":   {`"x",W/"y" , "abc"`, true},
		"among empty ones":   {`,,"abc",`, true},
		"another":            {`"abd"`, false},
		"its beginning":      {`"ab`, false},
		"without quotes":     {"abc", false},
		"in capitals":        {`"ABC"`, false},
		"a small w":          {`w/"abc"`, false},
		"weak in the quotes": {`"W/abc"`, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := matches(tc.header, tag); got != tc.want {
				t.Errorf("%s matches %s: %t", tc.header, tag, got)
			}
		})
	}
}

// A stream looks again when the clock alone changes the state, not earlier, and not never.
func TestUntilTurn(t *testing.T) {
	start := time.Date(2026, 11, 11, 20, 0, 0, 0, time.UTC)
	offer := model.Offer{Sale: model.Sale{StartsAt: start, EndsAt: start.Add(time.Hour)}}
	for name, tc := range map[string]struct{ now, want time.Duration }{
		"a second before the start": {-time.Second, time.Second},
		"at the start":              {0, time.Hour},
		"a second before the end":   {time.Hour - time.Second, time.Second},
		"at the end":                {time.Hour, heartbeat},
		"long over":                 {99 * time.Hour, heartbeat},
	} {
		t.Run(name, func(t *testing.T) {
			if got := untilTurn(offer, start.Add(tc.now)); got != tc.want {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}

// changing is a store whose one sale the test changes.
type changing struct {
	soldOutStore
	offer *model.Offer
}

func (s changing) LiveOffers(context.Context, time.Duration) ([]model.Offer, error) {
	return []model.Offer{*s.offer}, nil
}

// A sale's JSON is encoded once for all who ask, and again as soon as the sale, its stock or its state is another.
func TestSaleIsEncodedOnChange(t *testing.T) {
	start := time.Date(2026, 11, 11, 20, 0, 0, 0, time.UTC)
	now := start.Add(-time.Minute)
	offer := &model.Offer{
		Sale: model.Sale{
			ID: benchSale, Code: "abc", Title: "<Tea>", PriceCents: 990, Currency: "CNY", LimitPerUser: 1,
			StartsAt: start, EndsAt: start.Add(time.Hour), Status: model.SaleLive,
		},
		Stock: model.Stock{SaleID: benchSale, Quota: 5, Available: 5},
	}
	store := changing{offer: offer}
	store.soldOutStore.offer = *offer
	api := benchAPI(t, false)
	api.Catalog = service.NewCatalog(nowStore{store, &now}, func() time.Time { return now })
	refresh := func() {
		t.Helper()
		if err := api.Catalog.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	refresh()
	router, err := Router(api)
	if err != nil {
		t.Fatal(err)
	}
	get := func(known string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/sales/"+benchSale, nil)
		r.Header.Set("If-None-Match", known)
		w := httptest.NewRecorder()
		router.ServeHTTP(w, r)
		return w
	}
	tags := map[string]string{}
	for _, step := range []struct {
		name   string
		change func()
	}{
		{"upcoming", func() {}},
		{"open", func() { now = start }},
		{"a unit less", func() { offer.Stock.Available--; offer.Stock.Held++ }},
		{"another title", func() { offer.Title = "Tea" }},
		{"paused", func() { offer.Status = model.SalePaused }},
		{"over", func() { now = start.Add(time.Hour) }},
	} {
		step.change()
		refresh()
		want, err := json.Marshal(api.saleView(*offer))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			w := get("")
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
			if again := get(tag); again.Code != http.StatusNotModified || again.Body.Len() != 0 || again.Header().Get("ETag") != tag {
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
