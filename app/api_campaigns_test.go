package app_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"flashsale/internal/config"
	"flashsale/internal/ranks"
	"flashsale/model"
	"flashsale/strategy"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
)

// campaign is a campaign with its sales, as operators see them.
type campaign struct {
	ID           string
	Title        string
	Description  string
	ImageURL     string `json:"image_url"`
	Currency     string
	State        string
	StartsAt     time.Time `json:"starts_at"`
	EndsAt       time.Time `json:"ends_at"`
	LimitPerUser int       `json:"limit_per_user"`
	Mode         string
	ShortURL     string `json:"short_url"`
	Sales        []operatorSale
}

const adminCampaigns = "/api/v1/admin/campaigns"

// newCampaign is an open campaign of several sizes, ten units of each, three for each buyer and two of each size.
func newCampaign(sizes int, changes fields) fields {
	sales := make([]fields, sizes)
	for i := range sales {
		sales[i] = fields{"variant": fmt.Sprint(40 + i), "quota": 10, "price_cents": 9900 + i, "limit_per_user": 2}
	}
	now := time.Now()
	return fields{
		"title": "Runner", "description": "Light", "starts_at": now.Add(-time.Minute), "ends_at": now.Add(time.Hour),
		"limit_per_user": 3, "pay_timeout_seconds": 600, "sales": sales,
	}.changed(changes)
}

func (s *server) createCampaign(sizes int, changes fields) (made campaign) {
	s.t.Helper()
	s.operator().call("POST", adminCampaigns, newCampaign(sizes, changes)).want(http.StatusCreated).read(&made)
	return made
}

func (s *server) campaign(id string) (found campaign) {
	s.t.Helper()
	s.operator().get(adminCampaigns + "/" + id).read(&found)
	return found
}

// The short link of a campaign's line leads to the campaign, and has a QR code.
func TestShortLinkOfACampaignsLine(t *testing.T) {
	t.Parallel()
	s := usual(t)
	made := s.createCampaign(2, fields{"mode": "line", "starts_at": time.Now().Add(time.Hour), "ends_at": time.Now().Add(2 * time.Hour)})
	link := s.sale(made.ID).ShortURL
	path := link[strings.Index(link, "/s/"):]
	check.Same(t, "link", s.anyone().call("GET", path, nil).want(http.StatusFound).header.Get("Location"), "/sales/"+made.ID)
	check.Same(t, "page", s.anyone().call("GET", "/sales/"+made.ID, nil).want(http.StatusFound).header.Get("Location"), "/campaigns/"+made.ID+"#"+made.ID)
	s.anyone().call("GET", path+"/qr.svg", nil).want(http.StatusOK)
}

// A campaign has what a sale has: a short link, a QR code, the orders of its sales, as a list and as a sheet, and live figures.
func TestCampaignHasWhatASaleHas(t *testing.T) {
	t.Parallel()
	s := usual(t)
	made, other := s.createCampaign(2, nil), s.createSale(fields{"quota": 5})
	path := made.ShortURL[strings.Index(made.ShortURL, "/s/"):]
	check.Same(t, "link", s.anyone().call("GET", path, nil).want(http.StatusFound).header.Get("Location"), "/campaigns/"+made.ID)
	s.anyone().call("GET", path+"/qr.svg", nil).want(http.StatusOK)
	s.anyone().call("GET", "/s/"+made.Sales[0].ID, nil).refused(http.StatusNotFound, "not_found") // a sale's id is no code

	ann, bob := s.buyer("ann"), s.buyer("bob")
	var want []string
	for i, sale := range []string{made.Sales[0].ID, made.Sales[1].ID, made.Sales[0].ID} {
		want = append(want, []*client{ann, ann, bob}[i].buy(sale, 1).ID)
	}
	ann.buy(other.ID, 1)
	slices.Reverse(want)
	orders := func(query string) (ids []string) {
		var list struct {
			Orders     []order
			NextCursor string `json:"next_cursor"`
		}
		s.operator().get(adminCampaigns + "/" + made.ID + "/orders" + query).read(&list)
		for _, o := range list.Orders {
			ids = append(ids, o.ID)
		}
		return ids
	}
	check.Same(t, "orders", orders(""), want)
	check.Same(t, "orders of ann", orders("?q=ann"), want[1:])
	check.Same(t, "paid orders", orders("?status=paid"), nil)
	sheet := s.operator().get(adminCampaigns + "/" + made.ID + "/orders.csv").want(http.StatusOK)
	check.Same(t, "name of the sheet", sheet.header.Get("Content-Disposition"), `attachment; filename="orders-`+made.ID+`.csv"`)
	check.Same(t, "rows of the sheet", strings.Count(string(sheet.body), "\n"), 4)
	check.Same(t, "the sizes that were bought", []int{strings.Count(string(sheet.body), ",Runner,40,"), strings.Count(string(sheet.body), ",Runner,41,")}, []int{2, 1})

	available := map[string]int64{}
	live := s.operator().listen(adminCampaigns + "/" + made.ID + "/live")
	hearUntil(live, "both sales have figures", func(f figures) bool {
		available[f.SaleID] = f.Available
		return len(available) == 2
	})
	check.Same(t, "available", available, map[string]int64{made.Sales[0].ID: 8, made.Sales[1].ID: 9})
}

// A user has the limit of a campaign over all of its sales, with every strategy; hybrid, the default, has servers.
func TestCampaign(t *testing.T) {
	t.Parallel()
	stores := withStores(kit.ServerStores(t))
	for _, name := range strategy.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changes := []func(*config.Settings){func(s *config.Settings) { s.Strategy, s.AllowOversell = name, true }}
			if name == "hybrid" {
				changes = append(changes, stores)
			}
			s := start(t, changes...)
			made := s.createCampaign(3, nil)
			ann, bob := s.buyer("ann"), s.buyer("bob")
			first := ann.buy(made.Sales[0].ID, 2)
			ann.purchase(made.Sales[0].ID, 1).refused(http.StatusConflict, "limit_reached") // that of the sale
			ann.buy(made.Sales[1].ID, 1)
			for _, sale := range made.Sales[1:] {
				ann.purchase(sale.ID, 1).refused(http.StatusConflict, "limit_reached") // that of the campaign
			}
			bob.buy(made.Sales[2].ID, 2)
			ann.cancel(first.ID)
			ann.pay(ann.buy(made.Sales[2].ID, 2).ID)
			ann.purchase(made.Sales[1].ID, 1).refused(http.StatusConflict, "limit_reached")
			s.wantStock(made.Sales[0].ID, stock{available: 10})
			s.wantStock(made.Sales[1].ID, stock{available: 9, held: 1})
			s.wantStock(made.Sales[2].ID, stock{available: 6, held: 2, paid: 2})
		})
	}
}

// Buyers who try all sizes at once, at two instances and with the gate's help or without, get the limit and no more.
func TestCampaignTogether(t *testing.T) {
	t.Parallel()
	const sizes, buyers, limit = 10, 8, 3
	stores := withStores(kit.ServerStores(t))
	instances := []*server{start(t, stores), start(t, stores, func(s *config.Settings) { s.Strategy = "optimistic" })}
	made := instances[0].createCampaign(sizes, fields{"limit_per_user": limit})
	for _, sale := range made.Sales {
		instances[1].knows(sale.ID)
	}
	buyer := func(user, instance int) *client { return instances[instance].buyer(fmt.Sprint("u-", user)) }
	check.Together(2*sizes*buyers, func(i int) {
		a, err := buyer(i%buyers, i/buyers%2).tryPurchase(made.Sales[i/buyers/2].ID, "Idempotency-Key", fmt.Sprint(i))
		switch {
		case err != nil:
			t.Error(err)
		case !slices.Contains([]int{201, 202, 409, 503}, a.status):
			t.Errorf("status %d", a.status)
		}
	})
	for _, sale := range made.Sales {
		instances[0].balanced(sale.ID)
	}
	for user := range buyers { // a busy machine answered 202 or 503, and left units that nobody has
		of := buyer(user, 0)
		of.eventually("all sizes refuse", func() bool {
			return !slices.ContainsFunc(made.Sales, func(size operatorSale) bool {
				return of.purchase(size.ID, 1).status != http.StatusConflict
			})
		})
		var list struct {
			Orders     []order
			NextCursor string `json:"next_cursor"`
		}
		of.get("/api/v1/orders?limit=100").read(&list)
		if len(list.Orders) != limit {
			t.Errorf("user %d has %d orders, want %d", user, len(list.Orders), limit)
		}
	}
}

// The sales of a campaign in the mode line share a line: a place belongs to the campaign, and who is called chooses one of the
// sales that have units.
func TestCampaignInLine(t *testing.T) {
	t.Parallel()
	stores := withStores(kit.ServerStores(t))
	for name, change := range map[string]func(*config.Settings){"embedded": func(*config.Settings) {}, "servers": stores} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, change)
			made := s.createCampaign(2, fields{
				"mode": "line", "limit_per_user": 1, "starts_at": time.Now().Add(time.Hour / 2),
				"sales": []fields{{"variant": "42", "quota": 1}, {"variant": "43", "quota": 2}},
			})
			small, large := made.Sales[0].ID, made.Sales[1].ID
			tickets := map[string]ticket{}
			for i, user := range []string{"ann", "bob", "cat", "dan"} { // it does not matter on which page somebody enters
				tickets[user] = s.buyer(user).enter([]string{small, large, made.ID}[i%3])
			}
			check.Same(t, "the same entry", s.buyer("ann").entry(large).Number, tickets["ann"].Number)
			s.operator().call("PATCH", adminCampaigns+"/"+made.ID, fields{"starts_at": time.Now()}).want(http.StatusOK)
			s.eventually("three are called", func() bool { return s.line(large).Serving == 3 })
			order := ranks.Order{N: 4}
			check.NoError(t, second(hex.Decode(order.Seed[:], []byte(s.line(small).Seed))))
			byRank := map[int64]*client{}
			for user, ticket := range tickets {
				byRank[order.Rank(ticket.Number)] = s.buyer(user)
			}
			first, second, third, fourth := byRank[0], byRank[1], byRank[2], byRank[3]

			bought := first.buy(small, 1)
			first.purchase(large, 1).refused(http.StatusConflict, "limit_reached")
			second.purchase(small, 1).refused(http.StatusConflict, "sold_out")
			check.Same(t, "the call stays", second.entry(large).State, "called")
			fourth.purchase(large, 1).refused(http.StatusConflict, "not_your_turn")
			second.call("POST", "/api/v1/sales/"+made.ID+"/path", nil).refused(http.StatusNotFound, "not_found")
			second.purchase(made.ID, 1).refused(http.StatusNotFound, "not_found")
			second.buy(large, 1)
			third.call("DELETE", "/api/v1/sales/"+large+"/entries/mine", nil).want(http.StatusOK)
			s.eventually("the fourth is called", func() bool { return fourth.entry(small).State == "called" })
			fourth.buy(large, 1)
			s.wantStock(large, stock{held: 2})

			late := s.buyer("eve")
			late.enter(small)
			first.cancel(bought.ID)
			s.eventually("who came later is called", func() bool { return late.entry(large).State == "called" })
			late.purchase(large, 1).refused(http.StatusConflict, "sold_out")
			late.buy(small, 1)
			s.wantStock(small, stock{held: 1})
			s.operator().call("PATCH", adminSales+"/"+small, fields{"add_quota": 1}).want(http.StatusOK)
			s.operator().call("POST", adminCampaigns+"/"+made.ID+"/sales", fields{"variant": "44", "quota": 3}).want(http.StatusCreated)
			s.wantStock(small, stock{available: 1, held: 1})
			s.wantStock(made.ID, stock{available: 4}) // the units that the line still has
			check.Same(t, "listed", len(s.campaign(made.ID).Sales), 3)
			s.operator().post(adminCampaigns+"/"+made.ID+"/close", nil)
			s.wantStock(made.ID, stock{available: 4})
		})
	}
}

// What belongs to the line of a campaign is set for the whole campaign.
func TestCampaignInLineInput(t *testing.T) {
	t.Parallel()
	s := usual(t)
	made := s.createCampaign(2, fields{"mode": "line"})
	size, line := adminSales+"/"+made.Sales[0].ID, adminSales+"/"+made.ID
	for _, tc := range []struct {
		url   string
		body  fields
		field string
	}{
		{size, fields{"call_seconds": 60}, "call_seconds"},
		{size, fields{"entries_at": time.Now()}, "entries_at"},
		{size + "/close", nil, "status"},
		{line, fields{"add_quota": 1}, "add_quota"},
		{line, fields{"limit_per_user": 1}, "limit_per_user"},
		{line + "/pause", nil, "status"},
	} {
		method := "PATCH"
		if tc.body == nil {
			method = "POST"
		}
		got := s.operator().call(method, tc.url, tc.body).refused(http.StatusBadRequest, "bad_request")
		check.Same(t, "field", got.Field, tc.field)
	}
	s.operator().call("PATCH", line, fields{"call_seconds": 60}).want(http.StatusOK)
	s.anyone().get("/api/v1/sales/" + made.Sales[0].ID).contains(`"call_seconds":60`)
}

// The winners of a campaign's draw are called, since they have to choose. Whom a call passes by, nobody replaces but a loser.
func TestCampaignDraw(t *testing.T) {
	t.Parallel()
	s := usual(t)
	made := s.createCampaign(2, fields{
		"mode": "draw", "starts_at": time.Now().Add(time.Hour / 2), "sales": []fields{{"variant": "42", "quota": 1}, {"variant": "43", "quota": 1}},
	})
	size := made.Sales[0].ID
	users := []string{"ann", "bob", "cat"}
	for _, user := range users {
		s.buyer(user).enter(size)
	}
	s.operator().call("PATCH", adminCampaigns+"/"+made.ID, fields{"starts_at": time.Now()}).want(http.StatusOK)
	s.eventually("the winners are called", func() bool { return s.line(size).Serving == 2 })
	slices.SortFunc(users, func(a, b string) int { return int(*s.buyer(a).entry(size).Rank - *s.buyer(b).entry(size).Rank) })
	s.buyer("dan").call("POST", "/api/v1/sales/"+made.ID+"/entries", fields{}).refused(http.StatusConflict, "entries_closed")
	s.buyer(users[0]).buy(size, 1)
	hearUntil(s.operator().listen(adminCampaigns+"/"+made.ID+"/live"), "the console shows the calls", func(f figures) bool {
		return f.Line.Called == 1 && f.Line.Spent == 1
	})
	s.buyer(users[2]).purchase(made.Sales[1].ID, 1).refused(http.StatusConflict, "not_your_turn")
	s.buyer(users[1]).call("DELETE", "/api/v1/sales/"+size+"/entries/mine", nil).want(http.StatusOK)
	s.eventually("the next is called", func() bool { return s.buyer(users[2]).entry(size).State == "called" })
	s.buyer(users[2]).buy(made.Sales[1].ID, 1)
	s.wantStock(made.ID, stock{})
	doc, err := ranks.Read(bytes.NewReader(s.anyone().get("/api/v1/sales/" + size + "/draw.json").body))
	check.NoError(t, err)
	check.NoError(t, ranks.Check(doc, nil))
}

// A campaign opens, pauses and closes with all its sales, and a change of it changes them.
func TestCampaignIsChanged(t *testing.T) {
	t.Parallel()
	s := usual(t)
	made := s.createCampaign(3, nil)
	url := adminCampaigns + "/" + made.ID
	status := func(id string) string {
		for _, sale := range s.campaign(made.ID).Sales {
			if sale.ID == id {
				return sale.Status
			}
		}
		return ""
	}
	check.Same(t, "new", []any{made.State, made.LimitPerUser, made.Sales[1].Title, made.Sales[1].Variant, made.Sales[1].CampaignID},
		[]any{"open", 3, "Runner · 41", "41", made.ID})
	page := s.anyone().call("GET", "/sales/"+made.Sales[1].ID, nil).want(http.StatusFound)
	check.Same(t, "where the page of a size leads to", page.header.Get("Location"), "/campaigns/"+made.ID+"#"+made.Sales[1].ID)
	ann := s.buyer("ann")
	ann.buy(made.Sales[0].ID, 1)

	s.operator().post(url+"/pause", nil)
	check.Same(t, "paused", s.campaign(made.ID).State, "paused")
	ann.purchase(made.Sales[1].ID, 1).refused(http.StatusConflict, "paused")
	s.setStatus(made.Sales[2].ID, "close")
	s.operator().post(url+"/resume", nil)
	check.Same(t, "resumed, but the closed one", []string{status(made.Sales[0].ID), status(made.Sales[2].ID)}, []string{"live", "closed"})

	ends := time.Now().Add(2 * time.Hour).UTC().Truncate(time.Millisecond)
	s.operator().call("PATCH", url, fields{"title": "Racer", "limit_per_user": 1, "ends_at": ends}).want(http.StatusOK)
	changed := s.campaign(made.ID)
	check.Same(t, "changed", []any{changed.Title, changed.LimitPerUser, changed.EndsAt, changed.Sales[0].Title, changed.Sales[0].EndsAt},
		[]any{"Racer", 1, ends, "Racer · 40", ends})
	ann.purchase(made.Sales[1].ID, 1).refused(http.StatusConflict, "limit_reached")
	s.operator().call("PATCH", url, fields{"limit_per_user": 2}).want(http.StatusOK)
	ann.buy(made.Sales[1].ID, 1)

	s.operator().call("POST", url+"/sales", fields{"variant": "43", "quota": 5, "price_cents": 100}).want(http.StatusCreated)
	added := s.campaign(made.ID).Sales[3]
	check.Same(t, "added", []any{added.Title, added.EndsAt, added.LimitPerUser, added.Quota}, []any{"Racer · 43", ends, 2, int64(5)})
	ann.purchase(added.ID, 1).refused(http.StatusConflict, "limit_reached")
	s.buyer("bob").buy(added.ID, 2)

	s.operator().post(url+"/close", nil)
	check.Same(t, "closed", s.campaign(made.ID).State, "ended")
	s.operator().call("POST", url+"/resume", nil).refused(http.StatusConflict, "ended")
	s.operator().call("POST", url+"/sales", fields{"variant": "44", "quota": 5}).refused(http.StatusConflict, "ended")
	s.operator().get(url+"/operations").contains(`"create"`, `"pause"`, `"resume"`, `"patch"`, `"add_variant"`, `"close"`)
}

// What is invalid is named, and changes nothing.
func TestCampaignInput(t *testing.T) {
	t.Parallel()
	s := usual(t)
	made := s.createCampaign(2, nil)
	size := func(changes fields) []fields {
		return []fields{{"variant": "1", "quota": 1}, fields{"variant": "2", "quota": 1}.changed(changes)}
	}
	many := make([]fields, 65)
	for i := range many {
		many[i] = fields{"variant": fmt.Sprint(i), "quota": 1}
	}
	for _, tc := range []struct {
		changes fields
		field   string
	}{
		{fields{"title": " "}, "title"},
		{fields{"title": strings.Repeat("x", 131)}, "title"},
		{fields{"limit_per_user": 0}, "limit_per_user"},
		{fields{"image_url": "ftp://x"}, "image_url"},
		{fields{"sales": []fields{}}, "sales"},
		{fields{"sales": many}, "sales"},
		{fields{"sales": size(fields{"quota": 0})}, "sales[1].quota"},
		{fields{"sales": size(fields{"variant": ""})}, "sales[1].variant"},
		{fields{"sales": size(fields{"variant": "1"})}, "sales[1].variant"},
		{fields{"sales": size(fields{"variant": " 1 "})}, "sales[1].variant"},
		{fields{"sales": size(fields{"variant": "\u200b"})}, "sales[1].variant"},
		{fields{"sales": size(fields{"limit_per_user": 0})}, "sales[1].limit_per_user"},
		{fields{"sales": size(fields{"price_cents": -1})}, "sales[1].price_cents"},
		{fields{"ends_at": time.Now().Add(-time.Second)}, "ends_at"},
		{fields{"currency": "yuan"}, "currency"},
		{fields{"mode": ""}, "mode"},
	} {
		got := s.operator().call("POST", adminCampaigns, newCampaign(2, tc.changes)).refused(http.StatusBadRequest, "bad_request")
		check.Same(t, fmt.Sprint("field of ", tc.changes), got.Field, tc.field)
	}
	s.operator().call("POST", adminCampaigns, newCampaign(2, fields{"sales": size(fields{"mode": "line"})})).refused(http.StatusBadRequest, "bad_request")
	for _, field := range []string{"title", "starts_at", "ends_at", "waiting_list"} {
		value := map[string]any{"title": "T", "starts_at": time.Now(), "ends_at": time.Now().Add(time.Hour), "waiting_list": true}[field]
		got := s.operator().call("PATCH", adminSales+"/"+made.Sales[0].ID, fields{field: value}).refused(http.StatusBadRequest, "bad_request")
		check.Same(t, "field of the sale alone", got.Field, field)
	}
	s.operator().call("PATCH", adminCampaigns+"/"+made.ID, fields{"ends_at": time.Now().Add(-time.Hour)}).refused(http.StatusBadRequest, "bad_request")
	s.operator().call("POST", adminCampaigns+"/"+made.ID+"/sales", fields{"variant": "41", "quota": 1}).refused(http.StatusBadRequest, "bad_request")
	s.operator().call("POST", adminCampaigns+"/"+made.ID+"/sales", fields{"variant": "41 ", "quota": 1}).refused(http.StatusBadRequest, "bad_request")
	check.Same(t, "after all that", s.campaign(made.ID), made)
	for _, id := range []string{"x", made.Sales[0].ID, strings.Repeat("A", 16)} {
		s.anyone().call("GET", "/api/v1/campaigns/"+id, nil).refused(http.StatusNotFound, "not_found")
		s.operator().call("PATCH", adminCampaigns+"/"+id, fields{"title": "T"}).refused(http.StatusNotFound, "not_found")
		s.operator().call("POST", adminCampaigns+"/"+id+"/pause", nil).refused(http.StatusNotFound, "not_found")
	}
	s.buyer("ann").call("POST", adminCampaigns, newCampaign(1, nil)).refused(http.StatusForbidden, "forbidden")
}

// Under one key an operator makes one campaign.
func TestCampaignUnderAKey(t *testing.T) {
	t.Parallel()
	s := usual(t)
	body := newCampaign(2, fields{"sales": []fields{{"variant": "red ", "quota": 1, "price_cents": 100}, {"variant": "blue", "quota": 1, "price_cents": 100}}})
	create := func(body fields) *answer {
		return s.operator().call("POST", adminCampaigns, body, "Idempotency-Key", "k")
	}
	var made, again campaign
	create(body).want(http.StatusCreated).read(&made)
	create(body).want(http.StatusCreated).read(&again)
	check.Same(t, "the same", again, made)
	check.Same(t, "without the space", made.Sales[0].Variant, "red")
	create(newCampaign(2, fields{"title": "Another"})).refused(http.StatusUnprocessableEntity, "idempotency_mismatch")
	create(newCampaign(3, nil)).refused(http.StatusUnprocessableEntity, "idempotency_mismatch")
}

// A sheet of sizes makes a campaign. What was exported can be imported.
func TestCampaignSheet(t *testing.T) {
	t.Parallel()
	s := usual(t)
	send := func(sheet string) *answer {
		return s.operator().call("POST", adminCampaigns, sheet, "Content-Type", "text/csv; charset=utf-8")
	}
	var made, again campaign
	send("\ufefftitle,starts_at,ends_at,campaign_limit,variant,quota,price,limit_per_user\r\n" +
		"跑鞋,2026-01-01T08:00:00+08:00,2099-01-01T00:00:00Z,3,\"=40,5\",7,99.00,2\r\n" +
		",,,,41,8,98,\r\n").want(http.StatusCreated).read(&made)
	check.Same(t, "campaign", []any{made.Title, made.LimitPerUser, made.StartsAt}, []any{"跑鞋", 3, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)})
	first, second := made.Sales[0], made.Sales[1]
	check.Same(t, "sizes", []any{first.Variant, first.Quota, first.PriceCents, first.LimitPerUser, second.Variant, second.Quota, second.PriceCents, second.LimitPerUser},
		[]any{"=40,5", int64(7), int64(9900), 2, "41", int64(8), int64(9800), 3})
	s.buyer("ann").buy(second.ID, 1)

	var sheet *answer
	s.eventually("the sheet has the order", func() bool {
		sheet = s.operator().get(adminCampaigns + "/" + made.ID + "/sales.csv").want(http.StatusOK)
		return strings.Contains(string(sheet.body), ","+second.ID+",open,7,1,0")
	})
	sheet.contains(`,"'=40,5",7,`)
	send(string(sheet.body)).want(http.StatusCreated).read(&again)
	check.Same(t, "imported again", []any{again.Title, again.Sales[0].Variant, again.Sales[1].Quota, again.Sales[1].LimitPerUser}, []any{"跑鞋", "=40,5", int64(8), 3})
	send("title,starts_at,ends_at,mode,call_seconds,beacon,entries_at,variant,quota\n" +
		"Line,2098-01-02T00:00:00Z,2099-01-01T00:00:00Z,draw,90,true,2098-01-01T00:00:00Z,40,7\n").want(http.StatusCreated).read(&made)
	send(string(s.operator().get(adminCampaigns + "/" + made.ID + "/sales.csv").body)).want(http.StatusCreated).read(&again)
	check.Same(t, "a draw that was exported", []any{again.Sales[0].Mode, again.Sales[0].CallSeconds, again.Sales[0].Beacon, again.Sales[0].EntriesAt},
		[]any{"draw", 90, true, time.Date(2098, 1, 1, 0, 0, 0, 0, time.UTC)})
	large := s.createCampaign(model.MaxVariants, fields{"description": strings.Repeat("跑", 1800)})
	send(string(s.operator().get(adminCampaigns + "/" + large.ID + "/sales.csv").body)).want(http.StatusCreated)

	for sheet, field := range map[string]string{
		"":                            "",
		"title,\"x":                   "",
		"title,variant,quota\nT,1\n":  "sales[0].quota",
		"title,variant,quota\n":       "title",
		"title,size\nT,40":            "size",
		"variant,variant\n1,2":        "variant",
		"title,quota\nT,many":         "row 2, quota",
		"title,starts_at\nT,tomorrow": "row 2, starts_at",
		"title,beacon\nT,perhaps":     "row 2, beacon",
		"title,variant\nT,1\nU,2":     "row 3, title",
	} {
		got := send(sheet).refused(http.StatusBadRequest, "bad_request")
		check.Same(t, "field of "+sheet, got.Field, field)
	}
}

// The public view and its events have the stock of all sizes.
func TestCampaignEvents(t *testing.T) {
	t.Parallel()
	s := usual(t)
	made := s.createCampaign(2, nil)
	var seen campaign
	s.anyone().get("/api/v1/campaigns/" + made.ID).read(&seen)
	check.Same(t, "sizes for everybody", []any{len(seen.Sales), seen.Sales[1].Variant, seen.Sales[1].Status}, []any{2, "41", ""})
	type stocks struct {
		Sales []struct {
			ID        string
			Available int64
			State     string
		}
	}
	events := s.anyone().listen("/api/v1/campaigns/" + made.ID + "/events")
	hear[stocks](events)
	s.buyer("ann").buy(made.Sales[1].ID, 2)
	for now := hear[stocks](events); now.Sales[1].Available != 8; now = hear[stocks](events) {
	}
	s.eventually("the public view has it too", func() bool {
		s.anyone().get("/api/v1/campaigns/" + made.ID).read(&seen)
		return seen.Sales[1].Available == 8
	})
}
