package app_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"flashsale/test/kit"
	"flashsale/test/kit/check"
)

// A sale's stream reports the stock at once and on every change. It ends when the server stops, so that browsers look for
// another one.
func TestEvents(t *testing.T) {
	t.Parallel()
	s := start(t)
	saleID := s.createSale(fields{"quota": 3}).ID
	heard := s.events(saleID)
	if heard.header.Get("Cache-Control") != "no-cache" || heard.header.Get("X-Accel-Buffering") != "no" {
		t.Errorf("headers %v", heard.header)
	}
	await := func(available int64, state string) {
		t.Helper()
		e := hearUntil(heard, state, func(e stockEvent) bool { return e.Available == available && e.State == state })
		if time.Since(e.Now).Abs() > patience {
			t.Errorf("now is %v", e.Now)
		}
	}
	first := heard.next()
	if !strings.Contains(first.data, `"available":3,"quota":3,"state":"open"`) || first.id == "" || first.name != "stock" {
		t.Errorf("the first event is %+v", first)
	}
	resumed := s.events(saleID, "Last-Event-ID", first.id) // which has no event before the next change
	bought := s.buyer("ann").buy(saleID, 2)
	await(1, "open")
	if e := resumed.next(); !strings.Contains(e.data, `"available":1,`) || e.id == first.id {
		t.Errorf("resumed after %+v: %+v", first, e)
	}
	s.buyer("ben").buy(saleID, 1)
	await(0, "sold_out")
	s.buyer("ann").cancel(bought.ID)
	await(2, "open")
	s.setStatus(saleID, "pause")
	await(2, "paused")
	s.setStatus(saleID, "resume")
	await(2, "open")
	s.patchSale(saleID, fields{"add_quota": 5})
	await(7, "open")

	go s.stop()
	heard.ended()
}

// The clock alone changes the state of a sale. A busy machine may miss a state that lasts two seconds, so then the states
// last longer.
func TestEventsOfTheClock(t *testing.T) {
	t.Parallel()
	s := usual(t)
	for length := 2 * time.Second; ; length *= 4 {
		now := time.Now()
		events := s.events(s.createSale(fields{"starts_at": now.Add(length), "ends_at": now.Add(2 * length)}).ID)
		var states []string
		for len(states) == 0 || states[len(states)-1] != "ended" {
			states = append(states, hear[stockEvent](events).State)
		}
		if slices.Equal(states, []string{"upcoming", "open", "ended"}) {
			return
		}
		if length > patience {
			t.Fatalf("the clock made the sale %v", states)
		}
	}
}

// A new sale has the operator's values, or the defaults, and gets its gate at once.
func TestNewSale(t *testing.T) {
	t.Parallel()
	s := usual(t)
	starts, ends := time.Now().Add(time.Hour), time.Now().Add(2*time.Hour)
	least := fields{"title": "T", "quota": 1, "starts_at": starts, "ends_at": ends}
	defaults := sale{
		Title: "T", Currency: "CNY", Quota: 1, Available: 1, State: "upcoming", Revision: 1,
		StartsAt: starts.UTC().Truncate(time.Millisecond), EndsAt: ends.UTC().Truncate(time.Millisecond),
		LimitPerUser: 1, PayTimeoutSeconds: 1800,
	}
	defaults.Mode = "rush"
	full := defaults
	full.Title, full.Description = `双十一 🎉 naïve Ελλάδα'; DROP TABLE sales; --`, "a\n\tb"
	full.ImageURL, full.Currency = "https://img.example/a.png?x=1", "EUR"
	full.PriceCents, full.OriginalPriceCents, full.Quota, full.Available = 10_000_000_000, 1, 100_000_000, 100_000_000
	full.LimitPerUser, full.PayTimeoutSeconds = 10_000, 604800
	full.StartsAt = time.Date(2030, 1, 1, 0, 0, 0, 123e6, time.UTC)
	full.EndsAt = full.StartsAt.Add(time.Hour)
	for name, tc := range map[string]struct {
		body fields
		want sale
	}{
		"defaults":           {least, defaults},
		"null for a default": {least.changed(fields{"limit_per_user": nil, "currency": nil, "pay_timeout_seconds": nil}), defaults},
		"all values": {fields{
			"title": full.Title, "description": full.Description, "image_url": full.ImageURL, "price_cents": full.PriceCents,
			"original_price_cents": 1, "currency": "EUR", "quota": full.Quota, "limit_per_user": 10_000, "pay_timeout_seconds": 604800,
			"starts_at": "2030-01-01T08:00:00.1239+08:00", "ends_at": full.EndsAt,
		}, full},
	} {
		var made operatorSale
		s.operator().call("POST", adminSales, tc.body).want(201).read(&made)
		tc.want.ID, tc.want.ShortURL = made.ID, made.ShortURL
		if made.sale != tc.want || made.Status != "live" || made.Shards != 1 {
			t.Errorf("%s: made %+v\nwant %+v", name, made, tc.want)
		}
		if kept := s.sale(made.ID); kept != tc.want {
			t.Errorf("%s: kept %+v\nwant %+v", name, kept, tc.want)
		}
		if books := s.audit(made.ID); !books.OK || books.Gate.Left != tc.want.Quota || books.Gate.Epoch != 1 {
			t.Errorf("%s: the gate is not installed: %+v", name, books)
		}
	}
}

// Under one key an operator makes one sale, however often and at however many instances the request arrives.
func TestNewSaleUnderAKey(t *testing.T) {
	t.Parallel()
	stores := withStores(kit.ServerStores(t))
	instances := []*server{start(t, stores), start(t, stores)}
	s, body := instances[0], newSale(fields{"title": "Once"})
	create := func(body fields, key string) *answer {
		t.Helper()
		return s.operator().call("POST", adminSales, body, "Idempotency-Key", key)
	}
	sales := func() []operatorSale { return pages[operatorSale](s.operator(), adminSales, "sales", 100) }
	made := map[string]bool{}
	var mu sync.Mutex
	check.Together(20, func(i int) {
		a, err := instances[i%2].operator().try(t.Context(), "POST", adminSales, body, "Idempotency-Key", "k")
		if err != nil || a.status != http.StatusCreated {
			t.Errorf("%v, %+v", err, a)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		made[a.header.Get("Location")] = true
	})
	if list := sales(); len(made) != 1 || len(list) != 1 || list[0].Title != "Once" {
		t.Fatalf("20 requests were answered with %v and made %+v", made, list)
	}
	if again := create(body, "k").want(201); !again.replayed() {
		t.Errorf("a repeat is not marked as one: %v", again.header)
	}
	for name, value := range map[string]any{"title": "Twice", "quota": 11, "parts": 2, "ends_at": time.Now().Add(9 * time.Hour)} {
		create(body.changed(fields{name: value}), "k").refused(422, "idempotency_mismatch")
	}
	if p := create(body, "a key").refused(400, "bad_request"); p.Field != "Idempotency-Key" {
		t.Errorf("a key with a space: %+v", p)
	}
	create(body, "another").want(201)
	if n := len(sales()); n != 2 {
		t.Errorf("%d sales after a second key", n)
	}
}

// A sale in shards sells to the last unit, whichever shards its buyers belong to.
func TestNewSaleInParts(t *testing.T) {
	t.Parallel()
	s := usual(t)
	made := s.operator().call("POST", adminSales, newSale(fields{"parts": 4, "limit_per_user": 1})).want(201).contains(`"parts":4`)
	saleID := made.text("id")
	for i := range 10 {
		s.buyer(fmt.Sprint("buyer-", i)).buy(saleID, 1)
	}
	s.buyer("late").purchase(saleID, 1).refused(409, "sold_out")
	s.wantStock(saleID, stock{held: 10})
}

// Each field is refused outside of its bounds, by its name, and nothing is made or changed. TestWrongFields of the package
// service and TestBoundsAreTheServers have each bound.
func TestSaleFieldsOutOfBounds(t *testing.T) {
	t.Parallel()
	s := start(t)
	made := s.createSale(nil)
	now := time.Now()
	for _, tc := range []struct {
		method string // * for both
		body   fields
		field  string // the field that the refusal names
	}{
		{"*", fields{"title": " \u00a0 "}, "title"},
		{"*", fields{"title": 5}, "title"},
		{"*", fields{"image_url": "data:text/html,x"}, "image_url"},
		{"POST", fields{"price_cents": 9.9}, "price_cents"},
		{"POST", fields{"price_cents": "990"}, "price_cents"},
		{"POST", fields{"currency": ""}, "currency"},
		{"PATCH", fields{"limit_per_user": 0}, "limit_per_user"},
		{"*", fields{"ends_at": now.Add(-2 * time.Hour)}, "ends_at"}, // before the start
		{"POST", fields{"starts_at": now.Add(-2 * time.Hour), "ends_at": now.Add(-time.Hour)}, "ends_at"},
		{"*", fields{"ends_at": "tomorrow"}, "ends_at"},
		{"*", fields{"starts_at": now.Add(3 * time.Hour)}, "ends_at"}, // after the end
		{"*", fields{"starts_at": "2030-01-01T00:00:00"}, "starts_at"},
		{"PATCH", fields{"add_quota": -1}, "add_quota"},
		{"PATCH", fields{"add_quota": 100_000_001}, "add_quota"},
		{"PATCH", fields{"add_quota": 100_000_000}, "add_quota"}, // with the quota that there is
		{"POST", fields{"add_quota": 1}, "add_quota"},
		{"PATCH", fields{"quota": 0}, "quota"},
		{"PATCH", fields{"quota": 11, "add_quota": 1}, "add_quota"}, // one of the two
		{"*", fields{"Title": "T"}, "Title"},
		{"*", fields{"status": "closed"}, "status"},
		{"POST", fields{"title": nil}, "title"},
		{"POST", fields{"quota": nil}, "quota"},
		{"POST", fields{"starts_at": nil}, "starts_at"},
		{"POST", fields{"ends_at": nil}, "ends_at"},
	} {
		requests := map[string]fields{"POST " + adminSales: newSale(tc.body), "PATCH " + adminSales + "/" + made.ID: tc.body}
		for request, body := range requests {
			method, path, _ := strings.Cut(request, " ")
			if tc.method != "*" && tc.method != method {
				continue
			}
			for _, language := range []string{"en", "zh"} {
				p := s.operator().call(method, path, body, "Accept-Language", language).refused(400, "bad_request")
				if p.Field != tc.field || !strings.Contains(p.Detail, p.Field) || hasHan(p.Detail) != (language == "zh") {
					t.Errorf("%s %v names %q in %s: %s", method, tc.body, p.Field, language, p.Detail)
				}
			}
		}
	}
	s.operator().call("POST", adminSales, fields{}).refused(400, "bad_request")
	if list := pages[operatorSale](s.operator(), adminSales, "sales", 100); len(list) != 1 || list[0].sale != made {
		t.Errorf("after all refusals the sales are %+v, want %+v", list, made)
	}
}

// A change of a sale changes nothing else, and takes effect at once.
func TestPatchSale(t *testing.T) {
	t.Parallel()
	s := usual(t)
	later := time.Now().Add(3 * time.Hour).UTC().Truncate(time.Millisecond)
	for name, tc := range map[string]struct {
		changes fields
		apply   func(*sale)
	}{
		"texts": {fields{"title": "Kettle 水壶", "description": "", "image_url": "/k.png"}, func(w *sale) {
			w.Title, w.Description, w.ImageURL = "Kettle 水壶", "", "/k.png"
		}},
		"starts_at": {fields{"starts_at": later.Add(-150 * time.Minute)}, func(w *sale) {
			w.StartsAt, w.State = later.Add(-150*time.Minute), "upcoming"
		}},
		"ends_at":   {fields{"ends_at": later}, func(w *sale) { w.EndsAt = later }},
		"limit":     {fields{"limit_per_user": 5}, func(w *sale) { w.LimitPerUser = 5 }},
		"add_quota": {fields{"add_quota": 7}, func(w *sale) { w.Quota, w.Available = 17, 17 }},
		"nothing":   {fields{}, func(*sale) {}},
		"nulls":     {fields{"title": nil, "limit_per_user": nil, "ends_at": nil}, func(*sale) {}},
	} {
		want := s.createSale(fields{"description": "of clay"})
		want.Revision++
		tc.apply(&want)
		if got := s.patchSale(want.ID, tc.changes); got != want {
			t.Errorf("%s: changed to %+v\nwant %+v", name, got, want)
		}
		if kept := s.sale(want.ID); kept != want {
			t.Errorf("%s: kept %+v\nwant %+v", name, kept, want)
		}
		if books := s.balanced(want.ID); books.Quota != want.Quota || books.Gate.Left != want.Quota {
			t.Errorf("%s: books %+v", name, books)
		}
	}

	saleID, ann, ben := s.createSale(fields{"quota": 6}).ID, s.buyer("ann"), s.buyer("ben")
	ann.buy(saleID, 2)
	ann.purchase(saleID, 1).refused(409, "limit_reached")
	s.patchSale(saleID, fields{"limit_per_user": 4})
	ann.buy(saleID, 2)
	s.patchSale(saleID, fields{"limit_per_user": 1})
	ann.purchase(saleID, 1).refused(409, "limit_reached")
	ben.purchase(saleID, 2).refused(400, "bad_request")
	ben.buy(saleID, 1)
	s.buyer("carol").buy(saleID, 1)
	s.buyer("dan").purchase(saleID, 1).refused(409, "sold_out")
	add := fields{"add_quota": 1, "if_quota": 6}
	s.patchSale(saleID, add)
	s.operator().call("PATCH", adminSales+"/"+saleID, add).refused(409, "quota_changed") // a repeated request
	s.buyer("dan").buy(saleID, 1)
	s.buyer("eve").purchase(saleID, 1).refused(409, "sold_out")
	if books := s.wantStock(saleID, stock{held: 7}); books.Quota != 7 {
		t.Errorf("the quota is %d, want 7", books.Quota)
	}
}

// An audit reports a changed row.
func TestAuditSeesATamperedRow(t *testing.T) {
	t.Parallel()
	s := usual(t)
	saleID := s.createSale(nil).ID
	s.buyer("ann").buy(saleID, 1)
	s.balanced(saleID)
	for _, change := range []string{"+ 1", "- 1"} {
		s.exec("UPDATE buyers SET units = units "+change+" WHERE sale_id = ?", saleID)
		if books := s.audit(saleID); books.OK != (change == "- 1") {
			t.Errorf("after units %s the books are %+v", change, books)
		}
	}
}
