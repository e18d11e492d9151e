package app_test

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/internal/config"
	"flashsale/model"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
	"flashsale/test/kit/pace"
)

// Every route answers as the contract says when all goes well: a sale, two buyers, an operator. The inspector compares
// the members of each answer with openapi.yaml.
func TestEveryRoute(t *testing.T) {
	t.Parallel()
	pace.Try(t, everyRoute) // which logs somebody in at another server, within a limit of time
}

func everyRoute(t *pace.Trial) {
	shop := newIssuer(t)
	s, told := start(t, withFigures, shop.logsIn, privately), newReceiver(t)
	endpointID := s.tells(told).ID
	endpoint := adminEndpoints + "/" + endpointID
	operator, ann, ben := s.operator(), s.buyer("ann"), s.buyer("ben")
	ask := func(c *client, method, path string, body any, status int) *answer {
		t.Helper()
		a := c.call(method, path, body).want(status)
		if h := a.header; h.Get("X-Content-Type-Options") != "nosniff" || h.Get("X-Request-ID") == "" || h.Get("Cache-Control") == "" ||
			!strings.HasSuffix(h.Get("Content-Type"), "; charset=utf-8") {
			t.Errorf("%s: headers %v", a.what, h)
		}
		return a
	}
	get := func(path string) *answer { t.Helper(); return ask(s.anyone(), "GET", path, nil, 200) }
	equal := func(what string, got, want any) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}

	var clock struct {
		Now    time.Time `json:"now"`
		UnixMs int64     `json:"unix_ms"`
	}
	get("/api/v1/time").read(&clock)
	if clock.Now.UnixMilli() != clock.UnixMs || time.Since(clock.Now).Abs() > patience {
		t.Errorf("the time is %+v at %v", clock, time.Now())
	}
	carol := fields{"name": "Carol", "password": "tea for two"}
	ask(s.anyone(), "POST", "/api/v1/users", carol, 201).contains(`"name":"Carol"`, `"role":"buyer"`)
	loggedIn := s.anyone()
	loggedIn.token = ask(s.anyone(), "POST", "/api/v1/sessions", carol, 200).text("token")
	loggedIn.get("/api/v1/orders")
	loggedIn.call("GET", "/api/v1/admin/stats", nil).refused(403, "forbidden")
	session := ask(s.anyone(), "POST", "/api/v1/sessions", fields{"name": "admin", "password": adminPassword}, 200)
	loggedIn.token = session.contains(`"role":"operator"`).text("token")
	ask(loggedIn, "GET", "/api/v1/admin/stats", nil, 200)

	var teapot operatorSale
	made := ask(operator, "POST", adminSales, newSale(nil), 201)
	made.read(&teapot)
	equal("the sale's Location", made.header.Get("Location"), "/api/v1/sales/"+teapot.ID)
	if teapot.State != "open" || teapot.Quota != 10 || teapot.Available != 10 {
		t.Errorf("the sale is %+v", teapot)
	}
	saleURL, desk := "/api/v1/sales/"+teapot.ID, adminSales+"/"+teapot.ID
	get("/api/v1/sales").contains(teapot.ID)
	shown := get(saleURL).header
	equal("the sale's Cache-Control", shown.Get("Cache-Control"), "public, max-age=1")
	s.anyone().call("GET", saleURL, nil, "If-None-Match", `"x", `+shown.Get("ETag")).want(304)
	path := ask(ann, "POST", saleURL+"/path", nil, 200).text("path")

	var anns order
	bought := ask(ann, "POST", saleURL+"/"+path+"/orders", fields{"quantity": 2}, 201)
	bought.read(&anns)
	orderURL := "/api/v1/orders/" + anns.ID
	equal("the order's Location", bought.header.Get("Location"), orderURL)
	equal("the time to pay", anns.ExpiresAt.Sub(*anns.CreatedAt), 600*time.Second)
	equal("the order", anns, order{
		ID: anns.ID, Number: model.OrderNumber(anns.ID), SaleID: teapot.ID, Status: "pending", Quantity: 2, AmountCents: 1980, Currency: "CNY",
		CreatedAt: anns.CreatedAt, ExpiresAt: anns.ExpiresAt,
	})
	ask(ann, "GET", orderURL, nil, 200).contains(`"status":"pending"`)
	ask(ann, "GET", "/api/v1/orders", nil, 200).contains(anns.ID)

	var started payment
	ask(ann, "POST", orderURL+"/payments", nil, 201).read(&started)
	equal("the end of the payment", started.ExpiresAt, *anns.ExpiresAt)
	equal("the payment's page", started.PayURL, s.url+"/pay/"+started.PaymentID)
	get(started.PayURL).contains("19.80 CNY", `value="pay"`)
	if page := ann.choose(started, "pay"); strings.Contains(string(page.body), `value="pay"`) {
		t.Errorf("a paid payment can be paid again: %s", page.body)
	}
	paidOrder := ann.order(anns.ID)
	if paidOrder.Status != "paid" || paidOrder.PaidAt == nil {
		t.Errorf("after the payment: %+v", paidOrder)
	}
	bens := ben.buy(teapot.ID, 1)
	s.callback(paid(ben.startPayment(bens.ID).PaymentID, nil)).want(200).contains(`"status":"paid"`)
	ask(operator, "GET", "/api/v1/admin/orders?q="+bens.Number, nil, 200).contains(bens.ID, `"title":"Teapot"`)
	ask(operator, "GET", "/api/v1/admin/orders/"+bens.ID, nil, 200).contains(bens.ID, `"action":"order_paid"`)
	ask(operator, "POST", "/api/v1/admin/orders/"+bens.ID+"/refund", nil, 200).contains(`"status":"refunded"`)
	ask(ben, "DELETE", "/api/v1/orders/"+ben.buy(teapot.ID, 1).ID, nil, 200).contains(`"status":"cancelled"`)

	ask(operator, "POST", "/api/v1/admin/orders/"+ben.buy(teapot.ID, 1).ID+"/cancel", nil, 200).contains(`"status":"cancelled"`)

	ask(s.anyone(), "POST", "/api/v1/sessions/code", fields{"code": shop.codeFor(s, "dora"), "verifier": verifier, "nonce": "nonce"}, 200)
	worked := s.createSale(fields{"mode": "line", "entry_work": 10, "starts_at": time.Now().Add(time.Hour), "ends_at": time.Now().Add(2 * time.Hour)}).ID
	ask(ben, "GET", "/api/v1/sales/"+worked+"/entries/challenge", nil, 200).contains(`"maxnumber":10`)
	lined := s.createSale(fields{"mode": "line", "starts_at": time.Now().Add(time.Hour), "ends_at": time.Now().Add(2 * time.Hour)}).ID
	ask(ben, "POST", "/api/v1/sales/"+lined+"/entries", fields{}, 201).contains(`"number":0`)
	ask(ben, "GET", "/api/v1/sales/"+lined+"/entries/mine", nil, 200).contains(`"waiting"`)
	get("/api/v1/sales/" + lined + "/line").contains(`"entering"`)
	ask(ben, "DELETE", "/api/v1/sales/"+lined+"/entries/mine", nil, 200).contains(`"left"`)
	ask(operator, "POST", adminSales+"/"+lined+"/line/void", fields{"users": []string{"zed"}, "reason": "a bot"}, 200).contains(`"voided":0`)
	ask(operator, "POST", adminSales+"/"+lined+"/line/extend", fields{"seconds": 60}, 200).contains(`"calls":0`)

	var sizes campaign
	ask(operator, "POST", adminCampaigns, newCampaign(2, nil), 201).read(&sizes)
	sizesURL := adminCampaigns + "/" + sizes.ID
	ask(operator, "POST", sizesURL+"/sales", fields{"variant": "XL", "quota": 3}, 201).contains(`"XL"`)
	ask(operator, "PATCH", sizesURL, fields{"limit_per_user": 5}, 200).contains(`"limit_per_user":5`)
	for _, list := range []string{adminCatalog, sizesURL, sizesURL + "/sales.csv", sizesURL + "/operations", sizesURL + "/orders", sizesURL + "/orders.csv", sizesURL + "/report", desk} {
		ask(operator, "GET", list, nil, 200)
	}
	get("/api/v1/campaigns/" + sizes.ID).contains(`"XL"`)
	for _, page := range []string{"/campaigns/" + sizes.ID, "/console/campaigns/" + sizes.ID} {
		get(page)
	}
	for _, action := range []string{"pause", "resume", "close"} {
		ask(operator, "POST", sizesURL+"/"+action, nil, 200)
	}

	ask(operator, "POST", adminStaff, fields{"name": "olga", "role": "viewer"}, 201).contains(`"role":"viewer"`)
	ask(operator, "PATCH", adminStaff+"/olga", fields{"role": "support"}, 200).contains(`"role":"support"`)
	ask(operator, "POST", adminStaff+"/olga/secret", nil, 200).contains(`"secret"`)
	ask(operator, "GET", adminStaff, nil, 200).contains(`"olga"`)
	ask(operator, "DELETE", adminStaff+"/olga", nil, 200)
	ask(operator, "GET", "/api/v1/admin/staff-operations", nil, 200).contains(`"remove"`)
	ask(operator, "PUT", adminShop, fields{"name": "Tea & Co"}, 200).contains(`"name":"Tea \u0026 Co"`)
	ask(operator, "GET", adminShop, nil, 200)
	ask(operator, "GET", "/api/v1/admin/shop-operations", nil, 200).contains(`"change"`)
	ask(operator, "GET", "/api/v1/admin/payments?status=succeeded", nil, 200).contains(anns.ID)

	ask(operator, "GET", adminEvents, nil, 200).contains(`"order.confirmed"`, `"order.paid"`)
	s.eventually("events are delivered", func() bool { return len(s.deliveries(endpointID)) > 0 })
	ask(operator, "POST", endpoint+"/deliveries/"+s.deliveries(endpointID)[0].ID, nil, 200).contains(`"status":200`)
	ask(operator, "PATCH", endpoint, fields{"state": "off"}, 200)
	ask(operator, "POST", endpoint+"/secret", nil, 200).contains(`"secret"`)
	ask(operator, "GET", adminEndpoints, nil, 200).contains(`"off"`)
	ask(operator, "DELETE", endpoint, nil, 200)
	ask(operator, "GET", "/api/v1/admin/endpoint-operations", nil, 200).contains(`"remove"`)

	equal("the short link", ask(s.anyone(), "GET", teapot.ShortURL, nil, 302).header.Get("Location"), "/sales/"+teapot.ID)
	home := get("/").contains("/sales/" + teapot.ID)
	s.anyone().get(regexp.MustCompile(`/assets/base\.[0-9a-f]+\.css`).FindString(string(home.body)))
	for _, page := range []string{"/sales/" + teapot.ID, "/orders", "/console", "/console/sales/" + teapot.ID, "/console/orders", "/console/payments", "/console/endpoints", "/console/staff", "/console/shop", "/console/lab", "/login"} {
		get(page)
	}
	ask(operator, "PATCH", desk, fields{"title": "Kettle"}, 200).contains(`"title":"Kettle"`)
	ask(operator, "POST", desk+"/pause", nil, 200).contains(`"state":"paused"`)
	ask(operator, "POST", desk+"/resume", nil, 200).contains(`"state":"open"`)
	var rehearsals struct{ Rehearsals []fields }
	for _, version := range []string{"older", ""} {
		check.NoError(t, s.app.Stores.Database.SaveRehearsal(t.Context(), model.Rehearsal{Version: version, Verdict: "failed", Buyers: 9, Units: 7, PerSecond: 5, Report: []byte(`{"crowd":"nine"}`)}))
	}
	ask(operator, "GET", "/api/v1/admin/rehearsals", nil, 200).read(&rehearsals)
	for i, same := range []bool{true, false} { // the newest first
		equal("of this version", rehearsals.Rehearsals[i]["same_version"], any(same))
	}
	ask(operator, "GET", fmt.Sprint("/api/v1/admin/rehearsals/", rehearsals.Rehearsals[1]["id"]), nil, 200).
		contains(`"report":{"crowd":"nine"}`, `"version":"older"`, `"verdict":"failed"`, `"buyers":9,"units":7,"peak_per_second":5`)
	operator.call("GET", "/api/v1/admin/rehearsals/999", nil).refused(404, "not_found")
	operator.call("GET", "/api/v1/admin/rehearsals/x", nil).refused(404, "not_found")
	for _, list := range []string{desk + "/audit", desk + "/orders", desk + "/operations", adminSales} {
		ask(operator, "GET", list, nil, 200)
	}
	ask(operator, "POST", desk+"/close", nil, 200).contains(`"state":"ended"`)
	get("/healthz")
	s.eventually("all dependencies are ok", func() bool {
		a := s.anyone().call("GET", "/readyz", nil)
		return a.status == 200 && strings.Contains(string(a.body), `"dependencies":{"database":"ok","redis":"ok","strategy":"ok"}`)
	})

	s.events(teapot.ID).next()
	s.console(teapot.ID).next()
	operator.get(desk + "/orders.csv")
	operator.get("/api/v1/admin/orders.csv")
	ask(operator, "GET", desk+"/report", nil, 200).contains(`"series":`)
	for _, file := range []string{
		teapot.ShortURL + "/qr.svg", "/api", "/openapi.yaml", "/openapi.json", "/robots.txt",
		"/favicon.ico", "/embed.js",
	} {
		s.anyone().get(file)
	}
	compared := s.labEvents()
	s.startLab(smallLab(fields{"strategies": []string{"hybrid"}}))
	_, done := labEnd(compared)
	s.anyone().get(done.URL)
	operator.call("DELETE", labPath, nil).want(200)
	s.lab()

	figures := s.anyone().get(s.app.OpsURL() + "/metrics")
	for _, route := range s.app.Handler().(*gin.Engine).Routes() {
		if route.Method == http.MethodHead { // TestHead
			continue
		}
		seen := regexp.MustCompile(`(?m)^flashsale_http_request_seconds_count\{method="` + route.Method +
			`",route="` + regexp.QuoteMeta(route.Path) + `",status="[23]..".* [1-9]`)
		endless := strings.HasSuffix(route.Path, "/events") || strings.HasSuffix(route.Path, "/live")
		endless = endless || strings.HasSuffix(route.Path, "/draw.json") || strings.HasSuffix(route.Path, "/proof") // TestDraw
		if !endless && !seen.Match(figures.body) {
			t.Errorf("%s %s was never called with success", route.Method, route.Path)
		}
	}
	s.wantStock(teapot.ID, stock{available: 8, paid: 2})
}

func TestUnknownRoutesAndMethods(t *testing.T) {
	t.Parallel()
	s := usual(t)
	saleID := s.createSale(nil).ID
	for _, path := range []string{
		"/nope", "/api/v1", "/api/v2/sales", "/api/v1/sales/", "/api/v1//sales", "/API/V1/sales", "/metrics", "/debug/pprof/",
		"/api/v1/admin",
		"/api/v1/sales/" + saleID + "/nope", "/api/v1/sales/../../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd",
		"/s/" + strings.Repeat("A", 4000),
	} {
		s.operator().call("GET", path, nil).refused(404, "not_found")
	}
	for _, tc := range []struct{ method, path, allow string }{
		{"POST", "/api/v1/sales", "GET, HEAD"},
		{"GET", "/api/v1/sales/" + saleID + "/path", "POST"},
		{"PUT", "/api/v1/orders/x", "DELETE, GET, HEAD"},
		{"GET", callbackURL, "POST"},
		{"BREW", "/api/v1/time", "GET, HEAD"},
	} {
		a := s.operator().call(tc.method, tc.path, nil)
		a.refused(405, "method_not_allowed")
		allow := strings.Split(a.header.Get("Allow"), ", ")
		slices.Sort(allow)
		if got := strings.Join(allow, ", "); got != tc.allow {
			t.Errorf("%s: Allow: %s, want %s", a.what, got, tc.allow)
		}
	}
}

// Each metric of the package metrics has a value once something has happened, and profiles can be taken: both on the
// operators' address only. Texts that a client invents do not become labels, which would be kept until the process ends.
func TestOpsAddress(t *testing.T) {
	t.Parallel()
	s := start(t, withFigures, func(c *config.Settings) { c.PayGrace = 0 })
	ops := s.app.OpsURL()
	figures := func() string { return string(s.anyone().get(ops + "/metrics").body) }
	s.buyer("ann").buy(s.createSale(fields{"pay_timeout_seconds": 1}).ID, 1)

	source, err := os.ReadFile("../internal/metrics/metrics.go")
	check.NoError(t, err)
	names := regexp.MustCompile(`"(flashsale_[a-z_]+)"`).FindAllSubmatch(source, -1)
	if len(names) < 10 {
		t.Fatalf("the package metrics has %d metrics", len(names))
	}
	for _, name := range names {
		measured := regexp.MustCompile(`(?m)^` + string(name[1]) + `(_count)?(\{.*)? \d`)
		s.eventually(string(name[1])+" is measured", func() bool { return measured.MatchString(figures()) })
	}
	for _, profile := range []string{"", "goroutine?debug=1", "heap?debug=1", "symbol", "trace?seconds=0.01"} {
		if a := s.anyone().get(ops + "/debug/pprof/" + profile); len(a.body) == 0 {
			t.Errorf("%s is empty", a.what)
		}
	}
	s.anyone().call("GET", ops+"/api/v1/time", nil).want(404)

	invent := func(letter byte) {
		text := strings.Repeat(string(letter), 7)
		s.anyone().call(text, "/api/v1/time", nil).want(405)
		s.anyone().call(text, "/"+text, nil).want(404)
		s.anyone().call("GET", "/"+text, nil).want(404)
		s.anyone().call("GET", "/api/v1/sales/"+text, nil).want(404)
	}
	series := func() int { return strings.Count(figures(), "flashsale_http_request_seconds_count{") }
	invent('A')
	before := series()
	for letter := byte('B'); letter <= 'M'; letter++ {
		invent(letter)
	}
	if after := series(); after != before {
		t.Errorf("invented methods and paths made %d series of %d", after, before)
	}
}

// An instance is ready as long as its strategy can sell.
func TestReadyz(t *testing.T) {
	t.Parallel()
	redis := kit.Redis(t)
	redis.Kill()
	for strategy, want := range map[string]struct {
		status int
		word   string
	}{"redis": {503, "not ready"}, "local": {503, "not ready"}, "hybrid": {200, "ready"}, "optimistic": {200, "ready"}} {
		t.Run(strategy, func(t *testing.T) {
			s := start(t, func(c *config.Settings) { c.Redis, c.Strategy = redis.URL(), strategy })
			var said *answer
			s.eventually("the database is ok", func() bool {
				said = s.anyone().call("GET", "/readyz", nil)
				return strings.Contains(string(said.body), `"database":"ok"`)
			})
			said.want(want.status).contains(`"status":"`+want.word+`"`, `"redis":"down"`)
			s.anyone().get("/healthz")
		})
	}
}

// Pages show an operator's text as text, and links begin with the public URL, not with the address of the server.
func TestPagesAndLinks(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *config.Settings) { c.PublicURL = "https://shop.example/" })
	made := s.createSale(fields{"title": `<script>alert(1)</script>`, "description": `"><img src=x onerror=alert(1)>`})
	for _, path := range []string{"/", "/sales/" + made.ID} {
		a := s.anyone().get(path)
		if body := string(a.body); strings.Contains(body, "<script>") || strings.Contains(body, "<img src=x") {
			t.Errorf("%s shows the operator's markup: %s", path, body)
		}
		if policy := a.header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") {
			t.Errorf("%s: Content-Security-Policy: %s", path, policy)
		}
	}
	if !strings.HasPrefix(made.ShortURL, "https://shop.example/s/") {
		t.Errorf("short_url %s", made.ShortURL)
	}
	ann := s.buyer("ann")
	if p := ann.startPayment(ann.buy(made.ID, 1).ID); p.PayURL != "https://shop.example/pay/"+p.PaymentID {
		t.Errorf("pay_url %s", p.PayURL)
	}
}
