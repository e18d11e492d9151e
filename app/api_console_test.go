package app_test

import (
	"encoding/csv"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit/pace"
)

// figures are the part of a sale's live figures that the tests look at.
type figures struct {
	SaleID    string           `json:"sale_id"`
	Now       time.Time        `json:"now"`
	State     string           `json:"state"`
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
	Line      *struct{ Called, Spent int64 }
	Database  struct{ Reachable bool }
	Gate      struct {
		Reachable, Open               bool
		Epoch, Left, Inflight, Stream int64
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

// console follows a sale's live figures until the test ends.
func (s *server) console(saleID string) *stream {
	s.t.Helper()
	return s.operator().listen(adminSales + "/" + saleID + "/live")
}

// A console sees all figures of a sale while the sale sells, until the server stops.
func TestLive(t *testing.T) {
	t.Parallel()
	pace.Try(t, func(t *pace.Trial) {
		s := start(t)
		saleID := s.createSale(fields{"quota": 3}).ID
		live := s.console(saleID)
		reachable := func(f figures) bool { return f.Database.Reachable && f.Gate.Reachable && len(f.Instances) == 1 }
		if f := hearUntil(live, "the stores are reachable", reachable); f.State != "open" || f.Quota != 3 || f.Available != 3 {
			t.Errorf("at first %+v", f)
		}
		ann := s.buyer("ann")
		ann.pay(ann.buy(saleID, 2).ID)
		s.buyer("ben").buy(saleID, 1)
		s.buyer("carol").purchase(saleID, 1).refused(409, "sold_out")
		s.buyer("dan").purchase(saleID, 9).refused(400, "bad_request")
		for _, sale := range []string{saleID, "GUESS"} {
			s.anyone().call("POST", "/api/v1/sales/"+sale+"/nopath/orders", fields{"quantity": 1}).refused(401, "unauthenticated")
		}
		s.balanced(saleID)
		f := hearUntil(live, "everything is counted", func(f figures) bool {
			return f.Requests == 5 && f.Orders["paid"] == 1 && f.Orders["pending"] == 1 && f.State == "sold_out" && f.Gate.Stream == 0 &&
				f.Drift == 0
		})
		want := map[string]int64{"accepted": 2, "bad_request": 1, "sold_out": 1, "unauthenticated": 1}
		if !maps.Equal(f.Purchases, want) {
			t.Errorf("purchases %v, want %v", f.Purchases, want)
		}
		if f.Available != 0 || f.Held != 1 || f.Paid != 2 || f.Units["paid"] != 2 || f.Units["pending"] != 1 || !f.OK {
			t.Errorf("the books %+v", f)
		}
		if f.BooksAt == nil || f.DriftAt == nil || f.Now.Sub(*f.BooksAt) > patience || !f.Gate.Open || f.Gate.Left != 0 ||
			f.Gate.Epoch < 1 || f.Gate.Inflight != 0 {
			t.Errorf("the gate %+v", f)
		}
		if i := f.Instances[0]; i.URL != s.url || i.Strategy != "hybrid" || !i.Gate || i.Requests != 5 || i.ID == "" ||
			f.Now.Sub(i.ReportedAt) > patience {
			t.Errorf("the instance %+v", i)
		}
		stats := s.operator().get("/api/v1/admin/stats")
		stats.contains(`"url":"`+s.url+`"`, `"strategy":"hybrid"`, `"gate_reachable":true`, `"accepted":2`, `"sold_out":1`)
		if d := f.Stages["deduct"]; d.Count != 3 || d.P50 <= 0 || d.P99 < d.P50 {
			t.Errorf("the stages %+v", f.Stages)
		}
		s.setStatus(saleID, "pause")
		before := hearUntil(live, "the pause shows", func(f figures) bool { return f.State == "paused" })
		if after := hear[figures](live); !after.Now.After(before.Now) { // TestLiveFigures of the package handler has the period
			t.Errorf("figures of %v follow those of %v", after.Now, before.Now)
		}
		stopped := time.Now()
		go s.stop()
		live.ended()
		if took := time.Since(stopped); took > 5*time.Second {
			t.Slowf("the stream kept the server for %v", took)
		}
	})
}

// The operator's list has all sales, the newest first, also those that buyers don't see any more.
func TestAllSales(t *testing.T) {
	t.Parallel()
	s := start(t)
	want := make([]string, 5)
	for i := range want {
		want[4-i] = s.createSale(nil).ID
	}
	s.exec("UPDATE sales SET created_at_ms = created_at_ms - 1000 WHERE id = ?", want[4]) // two sales may be of the same millisecond
	s.exec("UPDATE sales SET created_at_ms = created_at_ms + 1000 WHERE id = ?", want[0])
	s.exec("UPDATE sales SET starts_at_ms = 0, ends_at_ms = 1 WHERE id = ?", want[4])
	s.setStatus(want[0], "close")
	slices.Sort(want[1:4]) // of one millisecond
	for _, limit := range []int{1, 2, 5, 500} {
		list := pages[operatorSale](s.operator(), adminSales, "sales", limit)
		got := make([]string, len(list))
		for i, o := range list {
			got[i] = o.ID
		}
		if len(got) == 5 {
			slices.Sort(got[1:4])
		}
		if !slices.Equal(got, want) || list[0].State != "ended" || list[4].State != "ended" || list[1].State != "open" {
			t.Errorf("pages of %d: %+v", limit, list)
		}
	}
	s.eventually("buyers don't see the sale of long ago", func() bool {
		body := string(s.anyone().get("/api/v1/sales").body)
		return !strings.Contains(body, want[4]) && strings.Contains(body, want[1])
	})
	old := hearUntil(s.console(want[4]), "the end shows", func(f figures) bool { return f.State == "ended" })
	if old.Quota != 10 || old.Available != 10 || old.Requests != 0 {
		t.Errorf("the live figures of a sale of long ago: %+v", old)
	}
	for query, field := range map[string]string{
		"?limit=0": "limit", "?limit=501": "limit", "?limit=x": "limit",
		"?cursor=x": "cursor",
	} {
		if p := s.operator().call("GET", adminSales+query, nil).refused(400, "bad_request"); p.Field != field {
			t.Errorf("%s: the field %q: %s", query, p.Field, p.Detail)
		}
	}
}

// Each operation is recorded with its operator and what it changed.
func TestOperations(t *testing.T) {
	t.Parallel()
	s := usual(t)
	desk := adminSales + "/" + s.createSale(nil).ID
	saleID := desk[len(adminSales)+1:]
	olga := s.as("olga", "operator")
	olga.call("PATCH", desk, fields{"add_quota": 5, "limit_per_user": 3, "title": "Kettle"}).want(200)
	olga.call("PATCH", desk, fields{"add_quota": -1}).refused(400, "bad_request")
	olga.post(desk+"/pause", nil)
	olga.post(desk+"/resume", nil)
	ann := s.buyer("ann")
	bought := ann.buy(saleID, 2)
	olga.call("POST", "/api/v1/admin/orders/"+bought.ID+"/refund", nil).refused(409, "not_refundable")
	ann.pay(bought.ID)
	olga.post("/api/v1/admin/orders/"+bought.ID+"/refund", nil)
	olga.post(desk+"/close", nil)
	olga.call("POST", desk+"/resume", nil).refused(409, "ended")

	type operation struct {
		At                    time.Time
		Actor, Action, Detail string
	}
	got := pages[operation](olga, desk+"/operations", "operations", 2)
	slices.Reverse(got) // the newest comes first
	want := [][3]string{
		{"admin", "create", `title "Teapot"; quota 10; price_cents 990; currency CNY; limit_per_user 2; pay_timeout_seconds 600; `},
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
}

// The operator sees the orders of a sale: in pages, by status, by id or user, and as a sheet. The audit has their sums.
func TestOrdersOfASale(t *testing.T) {
	t.Parallel()
	s := usual(t)
	saleID, operator := s.createSale(fields{"quota": 50, "limit_per_user": 5}).ID, s.operator()
	url := adminSales + "/" + saleID + "/orders"
	ids := map[string][]string{} // by status; under "" all
	buy := func(user string, units int, status string) string {
		c := s.buyer(user)
		id := c.buy(saleID, units).ID
		switch status {
		case "cancelled":
			c.cancel(id)
		case "expired":
			c.overdue(id)
		case "paid":
			c.pay(id)
		case "refunded":
			c.pay(id)
			s.refund(id).want(200)
		}
		ids[status], ids[""] = append(ids[status], id), append(ids[""], id)
		return id
	}
	anns := []string{buy("ann", 1, "pending"), buy("ann", 3, "paid")}
	bens := buy("ben", 1, "pending")
	buy("ben", 2, "cancelled")
	buy("ben", 4, "refunded")
	buy("ben", 1, "expired")
	elsewhere := s.buyer("ann").buy(s.createSale(nil).ID, 1).ID
	strange := buy(elsewhere, 1, "pending") // a user whose id looks like an order's

	check := func(query string, limit int, want ...string) {
		t.Helper()
		var got []string
		for _, o := range pages[order](operator, url+query, "orders", limit) {
			if got = append(got, o.ID); o.SaleID != saleID || o.UserID == "" {
				t.Errorf("%s: %+v is in the list", query, o)
			}
		}
		slices.Sort(got)
		if want = slices.Sorted(slices.Values(want)); !slices.Equal(got, want) {
			t.Errorf("%s in pages of %d: %v, want %v", query, limit, got, want)
		}
	}
	for status, want := range ids {
		for _, limit := range []int{1, 2, 500} {
			check("?status="+status, limit, want...)
		}
	}
	check("?q="+bens, 500, bens)
	check("?q="+model.OrderNumber(bens), 500, bens)
	check("?q="+strings.ToLower(model.OrderNumber(bens)), 500, bens)
	check("?q=ann", 500, anns...)
	check("?q=ann&status=paid", 500, anns[1])
	check("?q="+elsewhere, 500, strange)
	for _, nobody := range []string{bens + "&status=paid", "an", "ANN", "%27%20OR%201=1", "%25", "%ff", strings.Repeat("a", 5000)} {
		check("?q="+nobody, 500)
	}
	for _, query := range []string{"?status=queued", "?status=paid'--", "?status=PAID", "?limit=0", "?limit=501", "?cursor=x"} {
		operator.call("GET", url+query, nil).refused(400, "bad_request")
	}

	books := s.wantStock(saleID, stock{available: 44, held: 3, paid: 3})
	wantOrders := map[string]int64{"pending": 3, "cancelled": 1, "expired": 1, "paid": 1, "refunded": 1, "rejected": 0}
	wantUnits := map[string]int64{"pending": 3, "cancelled": 2, "expired": 1, "paid": 3, "refunded": 4, "rejected": 0}
	if !maps.Equal(books.Orders, wantOrders) || !maps.Equal(books.Units, wantUnits) || books.Quota != 50 || books.Gate.Left != 44 ||
		books.Drift != 0 {
		t.Errorf("books %+v", books)
	}
	checkSheet(operator, saleID, len(ids[""]), anns[1])
}

// checkSheet checks the sheet of a sale's orders. TestExportOrders of the package handler has its cells.
func checkSheet(operator *client, saleID string, orders int, annsPaid string) {
	t, url := operator.t, adminSales+"/"+saleID+"/orders.csv"
	a := operator.get(url)
	disposition, kind := a.header.Get("Content-Disposition"), a.header.Get("Content-Type")
	if disposition != `attachment; filename="orders-`+saleID+`.csv"` || kind != "text/csv; charset=utf-8" {
		t.Errorf("headers %v", a.header)
	}
	rows, err := csv.NewReader(strings.NewReader(string(a.body))).ReadAll()
	if err != nil || len(rows) != orders+1 {
		t.Fatalf("%d rows of %d orders, %v", len(rows), orders, err)
	}
	head := "\ufefforder_id,order_number,title,variant,user_id,status,quantity,amount,currency,created_at,expires_at,paid_at,reason"
	if strings.Join(rows[0], ",") != head || !strings.Contains(string(a.body), "\n"+annsPaid+","+model.OrderNumber(annsPaid)+",Teapot,,ann,paid,3,29.70,CNY,") {
		t.Errorf("the sheet %s", a.body)
	}
	if a := operator.get(url + "?status=paid&q=ann"); strings.Count(string(a.body), "\n") != 2 {
		t.Errorf("one order: %s", a.body)
	}
	operator.call("GET", url+"?status=lost", nil).refused(400, "bad_request")
}
