package app

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"flashsale/internal/config"
	"flashsale/test/kit"
)

// figures are what a console hears of a sale.
type figures struct {
	Now       time.Time        `json:"now"`
	State     string           `json:"state"`
	Status    string           `json:"status"`
	Quota     int64            `json:"quota"`
	Available int64            `json:"available"`
	Held      int64            `json:"held"`
	Paid      int64            `json:"paid"`
	Requests  int64            `json:"requests"`
	Purchases map[string]int64 `json:"purchases"`
	Orders    map[string]int64 `json:"orders"`
	Units     map[string]int64 `json:"units"`
	BooksAt   *time.Time       `json:"books_at"`
	OK        bool             `json:"ok"`
	Database  struct {
		Reachable bool `json:"reachable"`
	} `json:"database"`
	Gate struct {
		Reachable bool  `json:"reachable"`
		Epoch     int64 `json:"epoch"`
		Open      bool  `json:"open"`
		Left      int64 `json:"left"`
		Inflight  int64 `json:"inflight"`
		Stream    int64 `json:"stream"`
	} `json:"gate"`
	Drift   int64      `json:"drift"`
	DriftAt *time.Time `json:"drift_at"`
	Stages  map[string]struct {
		Count int64   `json:"count"`
		P50   float64 `json:"p50_ms"`
		P99   float64 `json:"p99_ms"`
	} `json:"stages"`
	Instances []struct {
		ID         string    `json:"id"`
		URL        string    `json:"url"`
		Strategy   string    `json:"strategy"`
		Gate       bool      `json:"gate_reachable"`
		Requests   int64     `json:"requests"`
		ReportedAt time.Time `json:"reported_at"`
	} `json:"instances"`
}

// console is a stream of figures as a page reads it.
type console struct {
	t      testing.TB
	events chan figures // closed at its end
}

// console looks at a sale until the test ends.
func (s *server) console(saleID string) *console {
	s.t.Helper()
	c := s.operator()
	c.from = s.newStreamHTTP()
	s.t.Cleanup(c.from.CloseIdleConnections)
	req, err := c.request(s.t.Context(), "GET", "/api/v1/admin/sales/"+saleID+"/live", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	res, err := c.from.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = res.Body.Close() })
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/event-stream" {
		s.t.Fatalf("live: %d %v", res.StatusCode, res.Header)
	}
	heard := &console{s.t, make(chan figures, 1000)}
	go func() {
		defer close(heard.events)
		for lines := bufio.NewScanner(res.Body); lines.Scan(); {
			data, ok := strings.CutPrefix(lines.Text(), "data: ")
			if !ok {
				continue
			}
			var f figures
			exact := json.NewDecoder(strings.NewReader(data))
			exact.DisallowUnknownFields()
			if err := exact.Decode(&f); err != nil {
				s.t.Errorf("%v in %s", err, data)
			}
			heard.events <- f
		}
	}()
	return heard
}

// until waits for figures of which ok says yes.
func (c *console) until(what string, ok func(figures) bool) figures {
	c.t.Helper()
	deadline := time.After(patience)
	var last figures
	for {
		select {
		case f, open := <-c.events:
			if !open {
				c.t.Fatalf("the stream ended before %s", what)
			}
			if last = f; ok(f) {
				return f
			}
		case <-deadline:
			c.t.Fatalf("not within %v: %s; last %+v", patience, what, last)
		}
	}
}

// What a console sees while a sale is sold, to the end of the server.
func TestLive(t *testing.T) {
	t.Parallel()
	s := start(t)
	made := s.createSale(fields{"quota": 3})
	live := s.console(made.ID)
	first := live.until("the first figures", func(figures) bool { return true })
	if first.State != "open" || first.Quota != 3 || first.Available != 3 || !first.Database.Reachable || !first.Gate.Reachable || len(first.Instances) != 1 {
		t.Errorf("at first %+v", first)
	}
	ann := s.buyer("ann")
	bought := ann.buy(made.ID, 2)
	ann.pay(bought.ID)
	s.buyer("ben").buy(made.ID, 1)
	s.buyer("carol").purchase(made.ID, 1).refused(409, "sold_out")
	s.buyer("dan").purchase(made.ID, 9).refused(400, "bad_request")
	s.anyone().call("POST", "/api/v1/sales/"+made.ID+"/nopath/orders", fields{"quantity": 1}).refused(401, "unauthenticated")
	s.anyone().call("POST", "/api/v1/sales/GUESS/nopath/orders", fields{"quantity": 1}).refused(401, "unauthenticated")
	s.balanced(made.ID)
	f := live.until("everything is counted", func(f figures) bool {
		return f.Requests == 5 && f.Orders["paid"] == 1 && f.Orders["pending"] == 1 && f.State == "sold_out" && f.Gate.Stream == 0 && f.Drift == 0
	})
	if want := "map[accepted:2 bad_request:1 sold_out:1 unauthenticated:1]"; fmt.Sprint(f.Purchases) != want {
		t.Errorf("purchases %v, want %s", f.Purchases, want)
	}
	if f.Available != 0 || f.Held != 1 || f.Paid != 2 || f.Units["paid"] != 2 || f.Units["pending"] != 1 || !f.OK {
		t.Errorf("the books %+v", f)
	}
	if f.BooksAt == nil || f.DriftAt == nil || f.Now.Sub(*f.BooksAt) > patience || !f.Gate.Open || f.Gate.Left != 0 || f.Gate.Epoch < 1 || f.Gate.Inflight != 0 {
		t.Errorf("the gate %+v", f)
	}
	if i := f.Instances[0]; i.URL != s.url || i.Strategy != "hybrid" || !i.Gate || i.Requests != 5 || i.ID == "" || f.Now.Sub(i.ReportedAt) > patience {
		t.Errorf("the instance %+v", i)
	}
	if d := f.Stages["deduct"]; d.Count != 3 || d.P50 <= 0 || d.P99 < d.P50 {
		t.Errorf("the stages %+v", f.Stages)
	}
	s.setStatus(made.ID, "pause")
	before := live.until("the pause shows", func(f figures) bool { return f.State == "paused" })
	after := live.until("the next figures", func(figures) bool { return true })
	if apart := after.Now.Sub(before.Now); apart <= 0 || apart > patience { // TestLiveFigures of package handler has the period
		t.Errorf("figures come %v apart", apart)
	}
	stopped := time.Now()
	go s.stop()
	for range live.events { // to its end
	}
	if took := time.Since(stopped); took > 5*time.Second {
		t.Errorf("the stream kept the server for %v", took)
	}
}

// A sale that was over long ago can still be looked at; one that never was can't.
func TestLiveOfOtherSales(t *testing.T) {
	t.Parallel()
	s := start(t)
	made := s.createSale(nil)
	s.exec("UPDATE sales SET starts_at_ms = 0, ends_at_ms = 1 WHERE id = ?", made.ID)
	f := s.console(made.ID).until("the end shows", func(f figures) bool { return f.State == "ended" })
	if f.Quota != 10 || f.Available != 10 || f.Requests != 0 {
		t.Errorf("%+v", f)
	}
	s.operator().call("GET", "/api/v1/admin/sales/AAAAAAAAAAAAAAAA/live", nil).refused(404, "not_found")
	for name, who := range map[string]*client{"a buyer": s.buyer("ann"), "nobody": s.anyone()} {
		for _, tail := range []string{"/live", "/orders.csv", "/operations"} {
			if a := who.call("GET", "/api/v1/admin/sales/"+made.ID+tail, nil).clean(); a.status != 401 && a.status != 403 {
				t.Errorf("%s gets %s with %d", name, tail, a.status)
			}
		}
		if a := who.call("GET", "/api/v1/admin/sales", nil).clean(); a.status != 401 && a.status != 403 {
			t.Errorf("%s gets all sales with %d", name, a.status)
		}
	}
}

// Two instances are one to a console, whichever it asks; what is away shows, and what is back.
func TestLiveOverTwoInstances(t *testing.T) {
	t.Parallel()
	database, redis := kit.MariaDB(t), kit.Redis(t)
	address := database.NewDatabase(t)
	outside := func(c *config.Settings) { c.Database, c.Redis = address, redis.URL() }
	one, two := start(t, outside), start(t, outside)
	saleID := one.createSale(fields{"quota": 100}).ID
	two.eventually("the other knows the sale", func() bool { return two.sale(saleID).State == "open" })
	for i := range 20 {
		s := []*server{one, two}[i%2]
		s.buyer(fmt.Sprint("u", i)).buy(saleID, 1)
	}
	consoles := []*console{one.console(saleID), two.console(saleID)}
	for _, c := range consoles {
		f := c.until("both are summed up", func(f figures) bool { return len(f.Instances) == 2 && f.Requests == 20 && f.Orders["pending"] == 20 })
		if f.Purchases["accepted"] != 20 || f.Instances[0].Requests != 10 || f.Instances[1].Requests != 10 || f.Held != 20 {
			t.Errorf("%+v", f)
		}
	}
	for i := range 20 {
		s := []*server{one, two}[i%2]
		s.buyer(fmt.Sprint("v", i)).buy(saleID, 1)
	}
	for _, c := range consoles {
		if f := c.until("the stages of both", func(f figures) bool { return f.Stages["deduct"].Count == 20 }); f.Stages["deduct"].P99 <= 0 {
			t.Errorf("%+v", f.Stages)
		}
	}
	redis.Kill()
	for _, c := range consoles {
		f := c.until("Redis is away", func(f figures) bool { return !f.Gate.Reachable })
		if !f.Database.Reachable || f.Held != 40 || len(f.Instances) != 1 || f.Instances[0].Requests != 20 {
			t.Errorf("without Redis %+v", f)
		}
		c.until("the books go on", func(next figures) bool { return next.BooksAt.After(*f.BooksAt) && !next.Gate.Reachable })
	}
	redis.Restart()
	for _, c := range consoles {
		c.until("Redis is back", func(f figures) bool {
			return f.Gate.Reachable && f.Gate.Open && f.Gate.Left == 60 && len(f.Instances) == 2
		})
	}
	database.Kill()
	for _, c := range consoles {
		f := c.until("the database is away", func(f figures) bool { return !f.Database.Reachable })
		later := c.until("the figures go on", func(next figures) bool { return next.Now.Sub(f.Now) > 3*time.Second })
		if !later.BooksAt.Equal(*f.BooksAt) || later.Held != 40 || !later.Gate.Reachable || later.Orders["pending"] != 40 {
			t.Errorf("without the database %+v", later)
		}
	}
	database.Restart()
	for _, c := range consoles {
		c.until("the database is back", func(f figures) bool { return f.Database.Reachable && f.Now.Sub(*f.BooksAt) < 3*time.Second })
	}
}

// All sales are listed, the newest first, also those that buyers don't see any more.
func TestAllSales(t *testing.T) {
	t.Parallel()
	s := start(t)
	var want []string
	for range 5 {
		want = append([]string{s.createSale(nil).ID}, want...)
	}
	s.exec("UPDATE sales SET created_at_ms = created_at_ms - 1000 WHERE id = ?", want[4]) // in spite of a quick machine
	s.exec("UPDATE sales SET created_at_ms = created_at_ms + 1000 WHERE id = ?", want[0])
	s.exec("UPDATE sales SET starts_at_ms = 0, ends_at_ms = 1 WHERE id = ?", want[4])
	s.setStatus(want[0], "close")
	type page struct {
		Sales      []operatorSale `json:"sales"`
		NextCursor string         `json:"next_cursor"`
	}
	for _, limit := range []int{1, 2, 5, 500} {
		var got []operatorSale
		for cursor := ""; ; {
			var p page
			s.operator().call("GET", fmt.Sprintf("/api/v1/admin/sales?limit=%d&cursor=%s", limit, cursor), nil).want(200).read(&p)
			if got = append(got, p.Sales...); p.NextCursor == "" || len(p.Sales) > limit {
				break
			}
			cursor = p.NextCursor
		}
		ids := make([]string, len(got))
		for i, o := range got {
			ids[i] = o.ID
		}
		slices.Sort(ids[1:4]) // those of one millisecond
		slices.Sort(want[1:4])
		if !slices.Equal(ids, want) || got[0].State != "ended" || got[4].State != "ended" || got[1].State != "open" {
			t.Errorf("pages of %d: %+v", limit, got)
		}
	}
	for query, field := range map[string]string{"?limit=0": "limit", "?limit=501": "limit", "?limit=x": "limit", "?cursor=x": "cursor"} {
		if p := s.operator().call("GET", "/api/v1/admin/sales"+query, nil).refused(400, "bad_request"); p.Field != field {
			t.Errorf("%s: the field %q: %s", query, p.Field, p.Detail)
		}
	}
}

// Whatever an operator does is written down: who, what, and what changed.
func TestOperations(t *testing.T) {
	t.Parallel()
	s := start(t)
	made := s.createSale(nil)
	desk := "/api/v1/admin/sales/" + made.ID
	olga := s.as("olga", "operator")
	olga.call("PATCH", desk, fields{"add_quota": 5, "limit_per_user": 3, "title": "Kettle"}).want(200)
	olga.call("PATCH", desk, fields{"add_quota": -1}).refused(400, "bad_request")
	olga.call("POST", desk+"/pause", nil).want(200)
	olga.call("POST", desk+"/resume", nil).want(200)
	ann := s.buyer("ann")
	bought := ann.buy(made.ID, 2)
	olga.call("POST", "/api/v1/admin/orders/"+bought.ID+"/refund", nil).refused(409, "not_refundable")
	ann.pay(bought.ID)
	olga.call("POST", "/api/v1/admin/orders/"+bought.ID+"/refund", nil).want(200)
	olga.call("POST", desk+"/close", nil).want(200)
	olga.call("POST", desk+"/resume", nil).refused(409, "ended")
	s.createSale(nil) // another

	type operation struct {
		At     time.Time `json:"at"`
		Actor  string    `json:"actor"`
		Action string    `json:"action"`
		Detail string    `json:"detail"`
	}
	var got []operation
	for cursor := ""; ; {
		var page struct {
			Operations []operation `json:"operations"`
			NextCursor string      `json:"next_cursor"`
		}
		olga.call("GET", desk+"/operations?limit=2&cursor="+cursor, nil).want(200).read(&page)
		if got = append(got, page.Operations...); page.NextCursor == "" {
			break
		}
		cursor = page.NextCursor
	}
	slices.Reverse(got) // the newest comes first
	want := [][3]string{
		{"admin", "create", `title "Teapot"; quota 10; price_cents 990; currency CNY; limit_per_user 2; pay_timeout_seconds 600; starts_at `},
		{"engine", "install_gate", "epoch 1: preheat"},
		{"olga", "patch", `quota: 10 -> 15; limit_per_user: 2 -> 3; title: "Teapot" -> "Kettle"`},
		{"olga", "pause", "status: live -> paused"},
		{"olga", "resume", "status: paused -> live"},
		{"olga", "refund", "order " + bought.ID + " of ann: paid -> refunded, quantity 2, 1980 cents"},
		{"olga", "close", "status: live -> closed"},
	}
	if len(got) != len(want) {
		t.Fatalf("%d operations: %+v", len(got), got)
	}
	for i, w := range want {
		o := got[i]
		if o.Actor != w[0] || o.Action != w[1] || !strings.HasPrefix(o.Detail, w[2]) || time.Since(o.At).Abs() > patience {
			t.Errorf("operation %d is %+v, want %v", i, o, w)
		}
	}
	olga.call("GET", desk+"/operations?cursor=x", nil).refused(400, "bad_request")
	olga.call("GET", "/api/v1/admin/sales/AAAAAAAAAAAAAAAA/operations", nil).refused(404, "not_found")
}

// The operator finds an order by its id, or by whose it is.
func TestSearchOrders(t *testing.T) {
	t.Parallel()
	s := start(t)
	saleID, other := s.createSale(nil).ID, s.createSale(nil).ID
	ann, ben := s.buyer("ann"), s.buyer("ben")
	anns := []string{ann.buy(saleID, 1).ID, ann.buy(saleID, 1).ID}
	bens, elsewhere := ben.buy(saleID, 1).ID, ann.buy(other, 1).ID
	paid := anns[1]
	ann.pay(paid)
	strange := s.buyer(elsewhere) // whose own id looks like an order's
	stranges := strange.buy(saleID, 1).ID
	slices.Sort(anns)
	for name, tc := range map[string]struct {
		query string
		want  []string
	}{
		"an order":                         {"q=" + bens, []string{bens}},
		"a buyer":                          {"q=ann", anns},
		"a buyer's paid ones":              {"q=ann&status=paid", []string{paid}},
		"an order in another status":       {"q=" + bens + "&status=paid", nil},
		"half a name":                      {"q=an", nil},
		"a name in capitals":               {"q=ANN", nil},
		"a buyer that looks like an order": {"q=" + elsewhere, []string{stranges}},
		"SQL":                              {"q=%27%20OR%201=1", nil},
		"a wildcard":                       {"q=%25", nil},
		"invalid UTF-8":                    {"q=%ff", nil},
		"a very long word":                 {"q=" + strings.Repeat("a", 5000), nil},
	} {
		t.Run(name, func(t *testing.T) {
			var page orders
			s.in(t).operator().call("GET", "/api/v1/admin/sales/"+saleID+"/orders?"+tc.query, nil).want(200).read(&page)
			got := []string{}
			for _, o := range page.Orders {
				got = append(got, o.ID)
			}
			slices.Sort(got)
			if !slices.Equal(got, append([]string{}, tc.want...)) {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}

// The sheet has all orders of the sale, and cells that no spreadsheet runs.
func TestOrdersSheet(t *testing.T) {
	t.Parallel()
	s := start(t)
	saleID := s.createSale(fields{"quota": 50}).ID
	paid := s.buyer("ann").buy(saleID, 2)
	s.buyer("ann").pay(paid.ID)
	s.buyer("-1.1").buy(saleID, 1)
	a := s.operator().call("GET", "/api/v1/admin/sales/"+saleID+"/orders.csv", nil).want(200)
	if got := a.header.Get("Content-Disposition"); got != `attachment; filename="orders-`+saleID+`.csv"` || a.header.Get("Content-Type") != "text/csv; charset=utf-8" {
		t.Errorf("headers %v", a.header)
	}
	rows, err := csv.NewReader(strings.NewReader(string(a.body))).ReadAll()
	if err != nil || len(rows) != 3 {
		t.Fatalf("%v, %v", rows, err)
	}
	if strings.Join(rows[0], ",") != "order_id,user_id,status,quantity,amount_cents,currency,created_at,expires_at,paid_at,reason" {
		t.Errorf("the head is %v", rows[0])
	}
	for _, row := range rows[1:] {
		created, err := time.Parse("2006-01-02T15:04:05.000Z", row[6])
		if err != nil || time.Since(created).Abs() > patience {
			t.Errorf("row %v: %v", row, err)
		}
		switch row[1] {
		case "ann":
			if strings.Join(row[:6], ",") != paid.ID+",ann,paid,2,1980,CNY" || row[8] == "" || row[9] != "" {
				t.Errorf("row %v", row)
			}
		case "'-1.1":
			if strings.Join(row[2:6], ",") != "pending,1,990,CNY" || row[8] != "" {
				t.Errorf("row %v", row)
			}
		default:
			t.Errorf("row %v", row)
		}
	}
	a = s.operator().call("GET", "/api/v1/admin/sales/"+saleID+"/orders.csv?status=paid&q=ann", nil).want(200)
	if n := strings.Count(string(a.body), "\n"); n != 2 {
		t.Errorf("%d lines: %s", n, a.body)
	}
	s.operator().call("GET", "/api/v1/admin/sales/"+saleID+"/orders.csv?status=lost", nil).refused(400, "bad_request")
	s.operator().call("GET", "/api/v1/admin/sales/AAAAAAAAAAAAAAAA/orders.csv", nil).refused(404, "not_found")
}
