package handler

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// newUpcoming returns a shop a minute before its sale, and its clock.
func newUpcoming(t *testing.T) (*shop, *time.Time) {
	s, start := newShop(t), time.Date(2026, 11, 11, 20, 0, 0, 0, time.UTC)
	now := start.Add(-time.Minute)
	s.clock = func() time.Time { return now }
	s.offer.StartsAt, s.offer.EndsAt = start, start.Add(time.Hour)
	s.refresh()
	return s, &now
}

// eachChange runs a test after each change of a sale.
func eachChange(s *shop, now *time.Time, test func(name string)) {
	for _, step := range []struct {
		name   string
		change func()
	}{
		{"upcoming", func() {}},
		{"open", func() { *now = s.offer.StartsAt }},
		{"a unit less", func() { s.offer.Stock.Available--; s.offer.Stock.Held++ }},
		{"another title", func() { s.offer.Title = "Tea" }},
		{"paused", func() { s.offer.Status = model.SalePaused }},
		{"over", func() { *now = s.offer.EndsAt }},
	} {
		step.change()
		s.refresh()
		test(step.name)
	}
}

// A sale's JSON is encoded once for all clients, and again as soon as the sale, its stock or its state changes.
func TestSaleIsEncodedOnChange(t *testing.T) {
	s, now := newUpcoming(t)
	const path = "/api/v1/sales/" + benchSale
	tags := map[string]string{}
	eachChange(s, now, func(name string) {
		want := check.Must(json.Marshal(s.offers.saleView(*s.offer)))
		sum := sha256.Sum256(want)
		tag := `"` + hex.EncodeToString(sum[:8]) + `"`
		check.Same(t, name+": state with the same tag", tags[tag], "")
		tags[tag] = name
		for range 2 {
			w := s.get(path)
			check.Same(t, name+": status", w.Code, http.StatusOK)
			check.Same(t, name+": body", w.Body.String(), string(want))
			sameHeader(t, name, w.Header(), map[string]string{"ETag": tag, "Cache-Control": "public, max-age=1"})
			again := s.get(path, "If-None-Match", tag)
			check.Same(t, name+": known", again.Code, http.StatusNotModified)
			check.Same(t, name+": body of a known sale", again.Body.Len(), 0)
			sameHeader(t, name+": known", again.Header(), map[string]string{"ETag": tag})
		}
	})
}
