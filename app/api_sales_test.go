package app

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"flashsale/internal/config"
	"flashsale/test/kit"
)

func TestETag(t *testing.T) {
	t.Parallel()
	s := start(t)
	saleID := s.createSale(nil).ID
	url := "/api/v1/sales/" + saleID
	tag := s.anyone().call("GET", url, nil).want(200).header.Get("ETag")
	if len(tag) < 4 || tag[0] != '"' || tag[len(tag)-1] != '"' {
		t.Fatalf("ETag: %s is not a strong tag", tag)
	}
	for name, tc := range map[string]struct {
		header string
		want   int
	}{
		"the tag":          {tag, 304},
		"a weak one":       {"W/" + tag, 304},
		"among others":     {`"x", ` + tag + `, "y"`, 304},
		"any":              {"*", 304},
		"another":          {`"0123456789abcdef"`, 200},
		"without quotes":   {strings.Trim(tag, `"`), 200},
		"nothing":          {"", 200},
		"the tag, cut off": {tag[:5], 200},
	} {
		t.Run(name, func(t *testing.T) {
			a := s.in(t).anyone().call("GET", url, nil, "If-None-Match", tc.header)
			a.want(tc.want)
			if (len(a.body) == 0) != (tc.want == 304) {
				t.Errorf("%d bytes with %d", len(a.body), tc.want)
			}
			if a.header.Get("ETag") != tag || a.header.Get("Cache-Control") != "public, max-age=1" {
				t.Errorf("headers %v", a.header)
			}
		})
	}
	changes := map[string]func(*server){
		"a purchase": func(s *server) { s.buyer("ann").buy(saleID, 1) },
		"a new text": func(s *server) { s.patchSale(saleID, fields{"title": "Kettle"}) },
		"a pause":    func(s *server) { s.setStatus(saleID, "pause") },
	}
	for _, name := range []string{"a purchase", "a new text", "a pause"} {
		t.Run(name+" makes a new tag", func(t *testing.T) {
			s := s.in(t)
			old := s.anyone().call("GET", url, nil).want(200).header.Get("ETag")
			changes[name](s)
			s.eventually("the tag changes", func() bool {
				a := s.anyone().call("GET", url, nil, "If-None-Match", old)
				return a.status == 200 && a.header.Get("ETag") != old
			})
		})
	}
}

// The stream says the stock at once, on every change, and when the clock alone changes the state; it ends when
// the server stops, so that browsers look for another.
func TestEvents(t *testing.T) {
	t.Parallel()
	s := start(t)
	made := s.createSale(fields{"quota": 3})
	heard := s.events(made.ID)
	for name, want := range map[string]string{"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"} {
		if got := heard.header.Get(name); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	await := func(available int64, state string) {
		t.Helper()
		for { // what changes in between may show or not
			e := heard.next(t)
			if e.Now.IsZero() || time.Since(e.Now).Abs() > patience {
				t.Errorf("now is %v", e.Now)
			}
			if e.Available == available && e.State == state {
				return
			}
		}
	}
	first := heard.next(t)
	if first.Available != 3 || first.Quota != 3 || first.State != "open" || first.ID == "" {
		t.Errorf("first %+v", first)
	}
	resumed := s.events(made.ID, "Last-Event-ID", first.ID) // says nothing before something changes
	bought := s.buyer("ann").buy(made.ID, 2)
	await(1, "open")
	if e := resumed.next(t); e.Available != 1 || e.ID == first.ID {
		t.Errorf("resumed after %+v: %+v", first, e)
	}
	s.buyer("ben").buy(made.ID, 1)
	await(0, "sold_out")
	s.buyer("ann").cancel(bought.ID)
	await(2, "open")
	s.setStatus(made.ID, "pause")
	await(2, "paused")
	s.setStatus(made.ID, "resume")
	await(2, "open")
	s.patchSale(made.ID, fields{"add_quota": 5})
	await(7, "open")

	soon := s.createSale(fields{"starts_at": time.Now().Add(2 * time.Second), "ends_at": time.Now().Add(4 * time.Second)})
	turning := s.events(soon.ID)
	for _, want := range []string{"upcoming", "open", "ended"} {
		if e := turning.next(t); e.State != want {
			t.Errorf("state %s, want %s", e.State, want)
		}
	}
	go s.stop()
	heard.ended(t)
	turning.ended(t)
}

// An unchanged stock is said again every 15 seconds, for longer than the server's time-outs for other answers. The test of
// the same name in package handler judges the time by a clock that no other load slows down.
func TestEventsHeartbeat(t *testing.T) {
	t.Parallel()
	s := start(t)
	heard := s.events(s.createSale(nil).ID)
	first, second := heard.next(t), heard.next(t)
	if pause := second.Now.Sub(first.Now); second.Available != 10 || pause < 14*time.Second {
		t.Errorf("%+v, then %+v", first, second)
	}
}

// Many listeners stop with the server, as buyers who wait do.
func TestStopEndsStreams(t *testing.T) {
	t.Parallel()
	s := start(t)
	saleID := s.createSale(nil).ID
	streams := make([]*stream, 50)
	for i := range streams {
		streams[i] = s.events(saleID)
		streams[i].next(t)
	}
	began := time.Now()
	s.stop()
	for _, heard := range streams {
		heard.ended(t)
	}
	if took := time.Since(began); took > 3*time.Second { // the server cuts what doesn't end by itself after four
		t.Errorf("the stop took %v", took)
	}
	if _, err := s.anyone().try(t.Context(), "GET", "/healthz", nil); err == nil {
		t.Error("a stopped server answers")
	}
}

func TestStatesOfASale(t *testing.T) {
	t.Parallel()
	s := start(t)
	hour := time.Hour
	for name, tc := range map[string]struct {
		starts, ends time.Duration
		then         func(s *server, id string)
		want         string
	}{
		"upcoming":        {hour, 2 * hour, nil, "upcoming"},
		"open":            {-hour, hour, nil, "open"},
		"paused":          {-hour, hour, func(s *server, id string) { s.setStatus(id, "pause") }, "paused"},
		"paused, early":   {hour, 2 * hour, func(s *server, id string) { s.setStatus(id, "pause") }, "upcoming"},
		"resumed":         {-hour, hour, func(s *server, id string) { s.setStatus(id, "pause"); s.setStatus(id, "resume") }, "open"},
		"closed":          {-hour, hour, func(s *server, id string) { s.setStatus(id, "close") }, "ended"},
		"closed, early":   {hour, 2 * hour, func(s *server, id string) { s.setStatus(id, "close") }, "ended"},
		"ended by time":   {-2 * hour, hour, func(s *server, id string) { s.patchSale(id, fields{"ends_at": time.Now().Add(-hour)}) }, "ended"},
		"long over":       {-99 * hour, hour, func(s *server, id string) { s.patchSale(id, fields{"ends_at": time.Now().Add(-48 * hour)}) }, "ended"},
		"sold out":        {-hour, hour, func(s *server, id string) { s.buyer("ann").buy(id, 2) }, "sold_out"},
		"sold out, ended": {-hour, hour, func(s *server, id string) { s.buyer("ann").buy(id, 2); s.setStatus(id, "close") }, "ended"},
	} {
		t.Run(name, func(t *testing.T) {
			s, now := s.in(t), time.Now()
			made := s.createSale(fields{"quota": 2, "starts_at": now.Add(tc.starts), "ends_at": now.Add(tc.ends)})
			if tc.then != nil {
				tc.then(s, made.ID)
			}
			s.eventually(tc.want, func() bool { return s.sale(made.ID).State == tc.want })
			var all struct {
				Sales []sale `json:"sales"`
			}
			s.anyone().call("GET", "/api/v1/sales", nil).want(200).read(&all)
			listed := slices.ContainsFunc(all.Sales, func(o sale) bool { return o.ID == made.ID && o.State == tc.want })
			if over := name == "long over"; listed == over {
				t.Errorf("listed: %t", listed)
			}
		})
	}
}

func TestNewSaleDefaults(t *testing.T) {
	t.Parallel()
	s := start(t)
	starts, ends := time.Now().Add(time.Hour), time.Now().Add(2*time.Hour)
	var made operatorSale
	s.operator().call("POST", "/api/v1/admin/sales", fields{
		"title": "T", "quota": 1, "starts_at": starts, "ends_at": ends,
	}).want(201).read(&made)
	want := sale{
		ID: made.ID, ShortURL: made.ShortURL, Title: "T", Currency: "CNY", Quota: 1, Available: 1, State: "upcoming",
		StartsAt: starts.UTC().Truncate(time.Millisecond), EndsAt: ends.UTC().Truncate(time.Millisecond),
		LimitPerUser: 1, PayTimeoutSeconds: 1800,
	}
	if made.sale != want || made.Status != "live" || made.Parts != 1 {
		t.Errorf("got  %+v\nwant %+v", made, want)
	}
	if kept := s.sale(made.ID); kept != want {
		t.Errorf("kept %+v", kept)
	}
	if books := s.audit(made.ID); !books.OK || books.Gate.Left != 1 || books.Gate.Epoch != 1 {
		t.Errorf("its gate is not installed: %+v", books)
	}
}

// Under one key an operator makes one sale, however often and at however many instances the request arrives.
func TestNewSaleUnderAKey(t *testing.T) {
	t.Parallel()
	redis := kit.Redis(t)
	stores := onMariaDB(t, redis)
	s, other := start(t, stores), start(t, stores)
	want := newSale(fields{"title": "Once"})
	made := map[string]bool{}
	var mu sync.Mutex
	var crowd sync.WaitGroup
	for i := range 20 {
		crowd.Go(func() {
			a := []*server{s, other}[i%2].operator().call("POST", "/api/v1/admin/sales", want, "Idempotency-Key", "k").want(http.StatusCreated)
			mu.Lock()
			defer mu.Unlock()
			made[a.header.Get("Location")] = true
		})
	}
	crowd.Wait()
	var list struct {
		Sales      []operatorSale
		NextCursor string `json:"next_cursor"`
	}
	s.operator().call("GET", "/api/v1/admin/sales", nil).want(200).read(&list)
	if len(made) != 1 || len(list.Sales) != 1 || list.Sales[0].Title != "Once" {
		t.Fatalf("20 requests were answered with %v and made %+v", made, list.Sales)
	}
	again := s.operator().call("POST", "/api/v1/admin/sales", want, "Idempotency-Key", "k").want(http.StatusCreated)
	if again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("a repeat is not said to be one: %v", again.header)
	}
	for name, value := range map[string]any{"title": "Twice", "quota": 11, "parts": 2, "ends_at": time.Now().Add(9 * time.Hour)} {
		changed := maps.Clone(want)
		changed[name] = value
		s.operator().call("POST", "/api/v1/admin/sales", changed, "Idempotency-Key", "k").refused(http.StatusUnprocessableEntity, "idempotency_mismatch")
	}
	if p := s.operator().call("POST", "/api/v1/admin/sales", want, "Idempotency-Key", "a key").refused(http.StatusBadRequest, "bad_request"); p.Field != "Idempotency-Key" {
		t.Errorf("%+v", p)
	}
	s.operator().call("POST", "/api/v1/admin/sales", want, "Idempotency-Key", "another").want(http.StatusCreated)
	s.operator().call("GET", "/api/v1/admin/sales", nil).want(200).read(&list)
	if len(list.Sales) != 2 {
		t.Errorf("%d sales are there after a second key", len(list.Sales))
	}
}

// A sale in parts sells to the last unit, wherever its buyers are at home.
func TestNewSaleInParts(t *testing.T) {
	t.Parallel()
	s := start(t)
	var made operatorSale
	s.operator().call("POST", "/api/v1/admin/sales", newSale(fields{"parts": 4, "limit_per_user": 1})).want(201).read(&made)
	if made.Parts != 4 {
		t.Fatalf("it is in %d parts", made.Parts)
	}
	for i := range made.Quota {
		s.buyer(fmt.Sprint("buyer-", i)).buy(made.ID, 1)
	}
	s.buyer("late").purchase(made.ID, 1).refused(409, "sold_out")
	if books := s.audit(made.ID); !books.OK || books.Held != made.Quota {
		t.Errorf("%+v", books)
	}
}

// What an operator may enter, and that it comes back as it was entered.
func TestNewSaleTakes(t *testing.T) {
	t.Parallel()
	s := start(t)
	for name, tc := range map[string]struct {
		changes fields
		check   func(made sale) bool
	}{
		"all at their least": {
			fields{"title": "x", "price_cents": 0, "original_price_cents": 0, "quota": 1, "limit_per_user": 1, "pay_timeout_seconds": 1},
			func(m sale) bool { return m.PriceCents == 0 && m.Quota == 1 && m.PayTimeoutSeconds == 1 },
		},
		"all at their most": {
			fields{
				"title": strings.Repeat("茶", 200), "description": strings.Repeat("茶", 2000), "price_cents": 10_000_000_000,
				"original_price_cents": 10_000_000_000, "quota": 100_000_000, "limit_per_user": 10_000, "pay_timeout_seconds": 604800,
			},
			func(m sale) bool {
				return m.PriceCents == 10_000_000_000 && m.Quota == 100_000_000 && m.LimitPerUser == 10_000 && m.Description == strings.Repeat("茶", 2000)
			},
		},
		"any script":         {fields{"title": "双十一 🎉 naïve Ελλάδα"}, func(m sale) bool { return m.Title == "双十一 🎉 naïve Ελλάδα" }},
		"SQL in a text":      {fields{"title": `'; DROP TABLE sales; --`}, func(m sale) bool { return m.Title == `'; DROP TABLE sales; --` }},
		"lines and tabs":     {fields{"description": "a\n\tb"}, func(m sale) bool { return m.Description == "a\n\tb" }},
		"a picture's URL":    {fields{"image_url": "https://img.example/a.png?x=1"}, func(m sale) bool { return m.ImageURL == "https://img.example/a.png?x=1" }},
		"a picture's path":   {fields{"image_url": "/img/a.png"}, func(m sale) bool { return m.ImageURL == "/img/a.png" }},
		"another currency":   {fields{"currency": "EUR"}, func(m sale) bool { return m.Currency == "EUR" }},
		"another time zone":  {fields{"starts_at": "2030-01-01T08:00:00.1239+08:00", "ends_at": "2031-01-01T00:00:00Z"}, func(m sale) bool { return m.StartsAt.Equal(time.Date(2030, 1, 1, 0, 0, 0, 123e6, time.UTC)) }},
		"null for a default": {fields{"limit_per_user": nil, "currency": nil, "pay_timeout_seconds": nil}, func(m sale) bool { return m.LimitPerUser == 1 && m.Currency == "CNY" && m.PayTimeoutSeconds == 1800 }},
	} {
		t.Run(name, func(t *testing.T) {
			a := s.in(t).operator().call("POST", "/api/v1/admin/sales", newSale(tc.changes))
			var made operatorSale
			if a.want(201).read(&made); !tc.check(made.sale) {
				t.Errorf("%s", a.body)
			}
			shape(t, "sale", a.body, operatorShape)
		})
	}
}

// wrongField is a value that a field may not have.
type wrongField struct {
	name  string
	field string
	value any
	patch bool // PATCH has this field as well
}

// wrong is the field that is named: of a start that is past the end, it is the end.
func (w wrongField) wrong() string {
	if w.name == "after the end" {
		return "ends_at"
	}
	return w.field
}

// Every field is refused outside of its bounds, by name, and nothing is made.
func TestSaleFieldsOutOfBounds(t *testing.T) {
	t.Parallel()
	s := start(t)
	made := s.createSale(nil)
	long := time.Now().Add(time.Hour)
	tests := []wrongField{
		{"empty", "title", "", true},
		{"blank", "title", " \u00a0 ", true},
		{"too long", "title", strings.Repeat("茶", 201), true},
		{"with a line break", "title", "a\nb", true},
		{"with a NUL", "title", "a\x00b", true},
		{"a number", "title", 5, true},
		{"too long", "description", strings.Repeat("茶", 2001), true},
		{"with a bell", "description", "\a", true},
		{"a script", "image_url", "javascript:alert(1)", true},
		{"some data", "image_url", "data:text/html,x", true},
		{"another host", "image_url", "//evil.example/x.png", true},
		{"no path", "image_url", "x.png", true},
		{"too long", "image_url", "/" + strings.Repeat("x", 500), true},
		{"negative", "price_cents", -1, false},
		{"too much", "price_cents", 10_000_000_001, false},
		{"a fraction", "price_cents", 9.9, false},
		{"a text", "price_cents", "990", false},
		{"negative", "original_price_cents", -1, false},
		{"too much", "original_price_cents", 10_000_000_001, false},
		{"small letters", "currency", "cny", false},
		{"two letters", "currency", "CN", false},
		{"empty", "currency", "", false},
		{"none", "quota", 0, false},
		{"negative", "quota", -1, false},
		{"too many", "quota", 100_000_001, false},
		{"none", "limit_per_user", 0, true},
		{"negative", "limit_per_user", -1, true},
		{"too many", "limit_per_user", 10_001, true},
		{"none", "pay_timeout_seconds", 0, false},
		{"too long", "pay_timeout_seconds", 604801, false},
		{"none", "parts", 0, false},
		{"too many", "parts", 17, false},
		{"before the start", "ends_at", time.Now().Add(-2 * time.Hour), true},
		{"far off", "ends_at", "2201-01-01T00:00:00Z", true},
		{"no time", "ends_at", "tomorrow", true},
		{"a number", "ends_at", 1767225600, true},
		{"after the end", "starts_at", long.Add(time.Hour), true},
		{"long ago", "starts_at", "1999-12-31T23:59:59Z", true},
		{"no zone", "starts_at", "2030-01-01T00:00:00", true},
		{"negative", "add_quota", -1, true},
		{"too many", "add_quota", 100_000_001, true},
		{"of PATCH", "add_quota", 1, false},
		{"unknown", "colour", "red", true},
		{"in capitals", "Title", "T", true},
		{"not for buyers to know", "status", "closed", true},
	}
	for _, tc := range tests {
		requests := map[string]fields{}
		if tc.field != "add_quota" || tc.name == "of PATCH" {
			requests["POST /api/v1/admin/sales"] = newSale(fields{tc.field: tc.value})
		}
		if tc.patch {
			requests["PATCH /api/v1/admin/sales/"+made.ID] = fields{tc.field: tc.value}
		}
		for request, body := range requests {
			method, path, _ := strings.Cut(request, " ")
			t.Run(fmt.Sprintf("%s %s %s", method, tc.field, tc.name), func(t *testing.T) {
				p := s.in(t).operator().call(method, path, body).refused(400, "bad_request")
				if p.Field != tc.wrong() || !strings.Contains(p.Detail, p.Field) {
					t.Errorf("the refusal of %s names %q: %s", tc.field, p.Field, p.Detail)
				}
				p = s.in(t).operator().call(method, path, body, "Accept-Language", "zh").refused(400, "bad_request")
				if p.Field != tc.wrong() || !strings.Contains(p.Detail, p.Field) || !hasHan(p.Detail) {
					t.Errorf("the refusal of %s in Chinese names %q: %s", tc.field, p.Field, p.Detail)
				}
			})
		}
	}
	for name, body := range map[string]any{
		"a past end": newSale(fields{"starts_at": time.Now().Add(-2 * time.Hour), "ends_at": time.Now().Add(-time.Hour)}),
		"no title":   fields{"quota": 1, "starts_at": time.Now(), "ends_at": long},
		"no quota":   fields{"title": "T", "starts_at": time.Now(), "ends_at": long},
		"no times":   fields{"title": "T", "quota": 1},
		"no end":     fields{"title": "T", "quota": 1, "starts_at": time.Now()},
		"nothing":    fields{},
	} {
		t.Run("POST with "+name, func(t *testing.T) {
			s.in(t).operator().call("POST", "/api/v1/admin/sales", body).refused(400, "bad_request")
		})
	}
	var all struct {
		Sales []sale `json:"sales"`
	}
	s.anyone().call("GET", "/api/v1/sales", nil).want(200).read(&all)
	if len(all.Sales) != 1 || all.Sales[0] != made {
		t.Errorf("after all refusals there are %+v, want %+v", all.Sales, made)
	}
}

// Each field that can be changed, that it changes nothing else, and that everybody hears of it.
func TestPatchSale(t *testing.T) {
	t.Parallel()
	s := start(t)
	later := time.Now().Add(3 * time.Hour).UTC().Truncate(time.Millisecond)
	for name, tc := range map[string]struct {
		changes fields
		apply   func(*sale)
	}{
		"title":          {fields{"title": "Kettle 水壶"}, func(w *sale) { w.Title = "Kettle 水壶" }},
		"description":    {fields{"description": "of brass"}, func(w *sale) { w.Description = "of brass" }},
		"no description": {fields{"description": ""}, func(w *sale) { w.Description = "" }},
		"image_url":      {fields{"image_url": "/k.png"}, func(w *sale) { w.ImageURL = "/k.png" }},
		"starts_at":      {fields{"starts_at": later.Add(-2*time.Hour - 30*time.Minute)}, func(w *sale) { w.StartsAt, w.State = later.Add(-2*time.Hour-30*time.Minute), "upcoming" }},
		"ends_at":        {fields{"ends_at": later}, func(w *sale) { w.EndsAt = later }},
		"limit_per_user": {fields{"limit_per_user": 5}, func(w *sale) { w.LimitPerUser = 5 }},
		"add_quota":      {fields{"add_quota": 7}, func(w *sale) { w.Quota, w.Available = 17, 17 }},
		"nothing":        {fields{}, func(*sale) {}},
		"nulls":          {fields{"title": nil, "limit_per_user": nil, "ends_at": nil}, func(*sale) {}},
		"several":        {fields{"title": "K", "limit_per_user": 3, "add_quota": 1}, func(w *sale) { w.Title, w.LimitPerUser, w.Quota, w.Available = "K", 3, 11, 11 }},
	} {
		t.Run(name, func(t *testing.T) {
			s := s.in(t)
			want := s.createSale(fields{"description": "of clay"})
			tc.apply(&want)
			if got := s.patchSale(want.ID, tc.changes); got != want {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
			if kept := s.sale(want.ID); kept != want {
				t.Errorf("kept %+v\nwant %+v", kept, want)
			}
			books := s.balanced(want.ID)
			if books.Quota != want.Quota || books.Gate.Left != want.Quota {
				t.Errorf("books %+v", books)
			}
		})
	}
	t.Run("a new limit holds at once, both ways", func(t *testing.T) {
		s := s.in(t)
		saleID, ann := s.createSale(nil).ID, s.buyer("ann")
		ann.buy(saleID, 2)
		ann.purchase(saleID, 1).refused(409, "limit_reached")
		s.patchSale(saleID, fields{"limit_per_user": 4})
		ann.buy(saleID, 2)
		s.patchSale(saleID, fields{"limit_per_user": 1})
		ann.purchase(saleID, 1).refused(409, "limit_reached")
		s.buyer("ben").purchase(saleID, 2).refused(400, "bad_request")
		s.buyer("ben").buy(saleID, 1)
	})
	t.Run("added units are sold", func(t *testing.T) {
		s := s.in(t)
		saleID := s.createSale(fields{"quota": 1}).ID
		s.buyer("ann").buy(saleID, 1)
		s.buyer("ben").purchase(saleID, 1).refused(409, "sold_out")
		s.patchSale(saleID, fields{"add_quota": 1})
		s.buyer("ben").buy(saleID, 1)
		s.buyer("carol").purchase(saleID, 1).refused(409, "sold_out")
		if books := s.balanced(saleID); books.Quota != 2 || books.Held != 2 {
			t.Errorf("books %+v", books)
		}
	})
	t.Run("a repeated request adds nothing", func(t *testing.T) {
		s := s.in(t)
		saleID := s.createSale(fields{"quota": 10}).ID
		add := fields{"add_quota": 5, "if_quota": 10}
		s.patchSale(saleID, add)
		s.operator().call("PATCH", "/api/v1/admin/sales/"+saleID, add).refused(409, "quota_changed")
		if books := s.balanced(saleID); books.Quota != 15 || books.Gate.Left != 15 {
			t.Errorf("books %+v", books)
		}
	})
	t.Run("an absent sale", func(t *testing.T) {
		s.in(t).operator().call("PATCH", "/api/v1/admin/sales/AAAAAAAAAAAAAAAA", fields{"title": "T"}).refused(404, "not_found")
	})
}

func TestPauseResumeClose(t *testing.T) {
	t.Parallel()
	s := start(t)
	desk := func(s *server, id, action string) *answer {
		s.t.Helper()
		return s.operator().call("POST", "/api/v1/admin/sales/"+id+"/"+action, nil)
	}
	t.Run("a pause stops sales, not payments", func(t *testing.T) {
		s := s.in(t)
		ann := s.buyer("ann")
		saleID := s.createSale(nil).ID
		made := ann.buy(saleID, 1)
		desk(s, saleID, "pause").want(200)
		desk(s, saleID, "pause").want(200) // twice is no more than once
		ann.purchase(saleID, 1).refused(409, "paused")
		ann.call("POST", "/api/v1/sales/"+saleID+"/path", nil).refused(409, "paused")
		ann.pay(made.ID)
		desk(s, saleID, "resume").want(200)
		ann.buy(saleID, 1)
	})
	t.Run("a closed sale stays closed", func(t *testing.T) {
		s := s.in(t)
		ann := s.buyer("ann")
		saleID := s.createSale(nil).ID
		made := ann.buy(saleID, 1)
		desk(s, saleID, "close").want(200)
		desk(s, saleID, "close").want(200)
		desk(s, saleID, "resume").refused(409, "ended")
		desk(s, saleID, "pause").refused(409, "ended")
		ann.purchase(saleID, 1).refused(409, "ended")
		ann.call("POST", "/api/v1/sales/"+saleID+"/path", nil).refused(409, "ended")
		ann.pay(made.ID)
	})
	for _, action := range []string{"pause", "resume", "close"} {
		t.Run(action+" an absent sale", func(t *testing.T) {
			desk(s.in(t), "AAAAAAAAAAAAAAAA", action).refused(404, "not_found")
		})
	}
}

// A sold-out sale that is paused or over says so: the order of refusals is the same whoever asks.
func TestOrderOfRefusalsWhenSoldOut(t *testing.T) {
	t.Parallel()
	s := start(t)
	for action, want := range map[string]string{"pause": "paused", "close": "ended"} {
		t.Run(want, func(t *testing.T) {
			s := s.in(t)
			saleID := s.createSale(fields{"quota": 1, "limit_per_user": 1}).ID
			s.buyer("ann").buy(saleID, 1)
			s.buyer("ben").purchase(saleID, 1).refused(409, "sold_out")
			s.setStatus(saleID, action)
			s.buyer("carol").purchase(saleID, 1).refused(409, want)
			s.buyer("dan").purchase(saleID, 1, "Idempotency-Key", "k").refused(409, want)
		})
	}
}

// The operator's list of a sale's orders, by status and in pages.
func TestOrdersOfASale(t *testing.T) {
	t.Parallel()
	s := start(t)
	saleID := s.createSale(fields{"quota": 50}).ID
	s.buyer("x").buy(s.createSale(nil).ID, 1) // of another sale
	want := map[string][]string{}
	for i := range 12 {
		c := s.buyer(fmt.Sprint("u", i))
		id, status := c.buy(saleID, 1).ID, "pending"
		switch i % 4 {
		case 1:
			c.cancel(id)
			status = "cancelled"
		case 2:
			c.pay(id)
			status = "paid"
		case 3:
			c.pay(id)
			s.operator().call("POST", "/api/v1/admin/orders/"+id+"/refund", nil).want(200)
			status = "refunded"
		}
		want[status] = append(want[status], c.user)
		want[""] = append(want[""], c.user)
	}
	want["expired"] = nil
	url := "/api/v1/admin/sales/" + saleID + "/orders"
	for status, users := range want {
		for _, limit := range []int{1, 2, 500} {
			t.Run(fmt.Sprintf("%q, %d on a page", status, limit), func(t *testing.T) {
				s := s.in(t)
				var got []string
				for cursor := ""; ; {
					var page orders
					s.operator().call("GET", fmt.Sprintf("%s?status=%s&limit=%d&cursor=%s", url, status, limit, cursor), nil).want(200).read(&page)
					if len(page.Orders) > limit {
						t.Fatalf("%d orders on a page of %d", len(page.Orders), limit)
					}
					for _, o := range page.Orders {
						if o.SaleID != saleID || status != "" && o.Status != status {
							t.Errorf("%+v in the list", o)
						}
						got = append(got, o.UserID)
					}
					if cursor = page.NextCursor; cursor == "" {
						break
					}
				}
				slices.Sort(got)
				slices.Sort(users)
				if !slices.Equal(got, users) {
					t.Errorf("orders of %v, want %v", got, users)
				}
			})
		}
	}
	for name, query := range map[string]string{
		"a status that no row has": "?status=queued", "a status of SQL": "?status=paid'--", "in capitals": "?status=PAID",
		"no page": "?limit=0", "too long a page": "?limit=501", "another's cursor": "?cursor=x",
	} {
		t.Run(name, func(t *testing.T) { s.in(t).operator().call("GET", url+query, nil).refused(400, "bad_request") })
	}
	t.Run("an absent sale", func(t *testing.T) {
		s.in(t).operator().call("GET", "/api/v1/admin/sales/AAAAAAAAAAAAAAAA/orders", nil).refused(404, "not_found")
	})
}

// The audit's figures after one order of each status.
func TestAuditAddsUp(t *testing.T) {
	t.Parallel()
	s := start(t)
	saleID := s.createSale(fields{"quota": 20, "limit_per_user": 5}).ID
	ann := s.buyer("ann")
	ann.overdue(ann.buy(saleID, 1).ID)
	ann.cancel(ann.buy(saleID, 2).ID)
	ann.pay(ann.buy(saleID, 3).ID)
	refunded := s.buyer("ben")
	id := refunded.buy(saleID, 4).ID
	refunded.pay(id)
	s.operator().call("POST", "/api/v1/admin/orders/"+id+"/refund", nil).want(200)

	books := s.balanced(saleID)
	wantOrders := "map[cancelled:1 expired:1 paid:1 refunded:1 rejected:0]"
	wantUnits := "map[cancelled:2 expired:1 paid:3 refunded:4 rejected:0]"
	if fmt.Sprint(books.Orders) != wantOrders || fmt.Sprint(books.Units) != wantUnits {
		t.Errorf("orders %v, units %v", books.Orders, books.Units)
	}
	if books.Quota != 20 || books.Available != 17 || books.Held != 0 || books.Paid != 3 || books.Gate.Left != 17 || books.Drift != 0 {
		t.Errorf("%+v", books)
	}
}

// A sale whose units are taken in the database alone has right books, whatever a gate would say.
func TestAuditOfAStrategyWithoutTheGate(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *config.Settings) { c.Strategy = "optimistic" })
	saleID := s.createSale(nil).ID
	ann := s.buyer("ann")
	for range 3 {
		ann.cancel(ann.buy(saleID, 2).ID)
		if books := s.audit(saleID); !books.OK || books.Drift != 0 {
			t.Errorf("books %+v", books)
		}
	}
}

// An audit says when something was tampered with.
func TestAuditSeesATamperedRow(t *testing.T) {
	t.Parallel()
	s := start(t)
	saleID := s.createSale(nil).ID
	s.buyer("ann").buy(saleID, 1)
	s.balanced(saleID)
	s.exec("UPDATE buyers SET units = units + 1 WHERE sale_id = ?", saleID)
	if books := s.audit(saleID); books.OK {
		t.Errorf("%+v", books)
	}
	s.exec("UPDATE buyers SET units = units - 1 WHERE sale_id = ?", saleID)
	if books := s.audit(saleID); !books.OK {
		t.Errorf("%+v", books)
	}
}

// What the instances say of themselves.
func TestStats(t *testing.T) {
	t.Parallel()
	s := start(t)
	saleID := s.createSale(fields{"quota": 1}).ID
	s.buyer("ann").buy(saleID, 1)
	s.buyer("ben").purchase(saleID, 1).refused(409, "sold_out")
	var said struct {
		Instances map[string]struct {
			URL       string             `json:"url"`
			Strategy  string             `json:"strategy"`
			Purchases map[string]float64 `json:"purchases"`
			Gate      bool               `json:"gate_reachable"`
			Reported  int64              `json:"reported_at_ms"`
		} `json:"instances"`
	}
	s.operator().call("GET", "/api/v1/admin/stats", nil).want(http.StatusOK).read(&said)
	if len(said.Instances) != 1 {
		t.Fatalf("%d instances", len(said.Instances))
	}
	for _, figures := range said.Instances {
		if figures.URL != s.url || figures.Strategy != "hybrid" || !figures.Gate || figures.Purchases["accepted"] != 1 || figures.Purchases["sold_out"] != 1 {
			t.Errorf("%+v", figures)
		}
	}
}
