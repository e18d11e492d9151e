package app

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/internal/config"
	"flashsale/test/kit"
)

// The members of the API's documents: names and kinds; a question mark stands behind what may be missing.
const (
	saleShape = "id:id title:text description:text image_url:text price_cents:int original_price_cents:int currency:text " +
		"quota:int available:int state:text starts_at:time ends_at:time limit_per_user:int pay_timeout_seconds:int short_url:url"
	operatorShape = saleShape + " status:text parts:int"
	queuedShape   = "id:id sale_id:id status:text quantity:int amount_cents:int currency:text created_at:time"
	orderShape    = queuedShape + " expires_at:time"
	paidShape     = orderShape + " paid_at:time"
	sessionShape  = "user:object token:text expires_at:time"
	auditShape    = "quota:int available:int held:int paid:int orders:object units:object gate:object drift:int ok:bool"
)

var kinds = map[string]*regexp.Regexp{
	"id":     regexp.MustCompile(`^"[A-Za-z0-9_-]{8,64}"$`),
	"text":   regexp.MustCompile(`^".*"$`),
	"url":    regexp.MustCompile(`^"http://127\.0\.0\.1:\d+/\S+"$`),
	"int":    regexp.MustCompile(`^-?\d+$`),
	"bool":   regexp.MustCompile(`^(true|false)$`),
	"time":   regexp.MustCompile(`^"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"$`),
	"path":   regexp.MustCompile(`^"[0-9a-f]{32}"$`),
	"list":   regexp.MustCompile(`(?s)^\[.*\]$`),
	"object": regexp.MustCompile(`(?s)^\{.*\}$`),
}

// shape checks that a JSON object has these members, each of its kind, and no other.
func shape(t testing.TB, what string, object []byte, want string) {
	t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal(object, &members); err != nil {
		t.Errorf("%s: %v in %s", what, err, object)
		return
	}
	for member := range strings.FieldsSeq(want) {
		name, kind, _ := strings.Cut(member, ":")
		value, there := members[name]
		switch {
		case !there:
			t.Errorf("%s has no %s: %s", what, name, object)
		case !kinds[kind].Match(value):
			t.Errorf("%s: %s is %s, want %s", what, name, value, kind)
		}
		delete(members, name)
	}
	for name, value := range members {
		t.Errorf("%s has %s: %s, which nobody was promised", what, name, value)
	}
}

// member gives a part of the answer's JSON object as it came.
func (a *answer) member(name string) []byte {
	a.t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal(a.body, &members); err != nil {
		a.t.Fatalf("%s: %v in %s", a.what, err, a.body)
	}
	return members[name]
}

// first gives the first of the objects in the list that a member is.
func (a *answer) first(name string) []byte {
	a.t.Helper()
	var list []json.RawMessage
	if err := json.Unmarshal(a.member(name), &list); err != nil || len(list) == 0 {
		a.t.Fatalf("%s: no %s in %s", a.what, name, a.body)
	}
	return list[0]
}

// What the contract promises of every route when all goes well: status, headers, members. The steps are a
// story: a sale, two buyers, an operator.
func TestEveryRoute(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *config.Settings) { c.OpsAddr = "127.0.0.1:0" })
	operator, ann, ben := s.operator(), s.buyer("ann"), s.buyer("ben")
	var (
		teapot         sale
		anns, bens     order
		started        payment
		short, pathURL string
	)
	order := func(id string) string { return "/api/v1/orders/" + id }
	desk := func(tail string) string { return "/api/v1/admin/sales/" + teapot.ID + tail }
	steps := []struct {
		name   string
		ask    func() *answer
		status int
		shape  string
		also   func(t *testing.T, a *answer)
	}{
		{"the time", func() *answer { return s.anyone().call("GET", "/api/v1/time", nil) }, 200, "now:time unix_ms:int", func(t *testing.T, a *answer) {
			var said struct {
				Now    time.Time `json:"now"`
				UnixMs int64     `json:"unix_ms"`
			}
			a.read(&said)
			if said.Now.UnixMilli() != said.UnixMs || time.Since(said.Now).Abs() > patience {
				t.Errorf("%s at %v", a.body, time.Now())
			}
		}},
		{"a new buyer", func() *answer {
			return s.anyone().call("POST", "/api/v1/users", fields{"name": "Carol", "password": "tea for two"})
		}, 201, sessionShape, func(t *testing.T, a *answer) {
			shape(t, "user", a.member("user"), "id:id name:text role:text")
			if user := string(a.member("user")); !strings.Contains(user, `"name":"Carol"`) || !strings.Contains(user, `"role":"buyer"`) {
				t.Errorf("user %s", user)
			}
		}},
		{"a buyer's log-in", func() *answer {
			return s.anyone().call("POST", "/api/v1/sessions", fields{"name": "Carol", "password": "tea for two"})
		}, 200, sessionShape, func(t *testing.T, a *answer) {
			carol := s.anyone()
			carol.token, _ = a.object()["token"].(string)
			carol.call("GET", "/api/v1/orders", nil).want(200)
			carol.call("GET", "/api/v1/admin/stats", nil).refused(403, "forbidden")
		}},
		{"the operator's log-in", func() *answer {
			return s.anyone().call("POST", "/api/v1/sessions", fields{"name": "admin", "password": adminPassword})
		}, 200, sessionShape, func(t *testing.T, a *answer) {
			if user := string(a.member("user")); !strings.Contains(user, `"role":"operator"`) {
				t.Errorf("user %s", user)
			}
			admin := s.anyone()
			admin.token, _ = a.object()["token"].(string)
			admin.call("GET", "/api/v1/admin/stats", nil).want(200)
		}},
		{"a new sale", func() *answer { return operator.call("POST", "/api/v1/admin/sales", newSale(nil)) }, 201, operatorShape, func(t *testing.T, a *answer) {
			var made operatorSale
			a.read(&made)
			teapot, short = made.sale, made.ShortURL
			if teapot.State != "open" || teapot.Quota != 10 || teapot.Available != 10 {
				t.Errorf("%+v", teapot)
			}
			if got := a.header.Get("Location"); got != "/api/v1/sales/"+teapot.ID {
				t.Errorf("Location: %s", got)
			}
		}},
		{"the sales", func() *answer { return s.anyone().call("GET", "/api/v1/sales", nil) }, 200, "sales:list", func(t *testing.T, a *answer) {
			shape(t, "sale in the list", a.first("sales"), saleShape)
		}},
		{"one sale", func() *answer { return s.anyone().call("GET", "/api/v1/sales/"+teapot.ID, nil) }, 200, saleShape, func(t *testing.T, a *answer) {
			if a.header.Get("ETag") == "" || a.header.Get("Cache-Control") != "public, max-age=1" {
				t.Errorf("headers %v", a.header)
			}
		}},
		{"a path", func() *answer { return ann.call("POST", "/api/v1/sales/"+teapot.ID+"/path", nil) }, 200, "path:path expires_at:time", func(t *testing.T, a *answer) {
			path, _ := a.object()["path"].(string)
			pathURL = "/api/v1/sales/" + teapot.ID + "/" + path + "/orders"
		}},
		{"a purchase", func() *answer { return ann.call("POST", pathURL, fields{"quantity": 2}) }, 201, orderShape, func(t *testing.T, a *answer) {
			a.read(&anns)
			if anns.SaleID != teapot.ID || anns.Status != "pending" || anns.Quantity != 2 || anns.AmountCents != 1980 || anns.Currency != "CNY" {
				t.Errorf("%+v", anns)
			}
			if got := a.header.Get("Location"); got != order(anns.ID) {
				t.Errorf("Location: %s", got)
			}
			if pay := anns.ExpiresAt.Sub(*anns.CreatedAt); pay != 600*time.Second {
				t.Errorf("%v to pay, want 600s", pay)
			}
		}},
		{"an order", func() *answer { return ann.call("GET", order(anns.ID), nil) }, 200, orderShape, nil},
		{"a buyer's orders", func() *answer { return ann.call("GET", "/api/v1/orders", nil) }, 200, "orders:list next_cursor:text", func(t *testing.T, a *answer) {
			shape(t, "order in the list", a.first("orders"), orderShape)
		}},
		{"a payment", func() *answer { return ann.call("POST", order(anns.ID)+"/payments", nil) }, 201, "payment_id:text pay_url:url expires_at:time", func(t *testing.T, a *answer) {
			a.read(&started)
			if !started.ExpiresAt.Equal(*anns.ExpiresAt) || started.PayURL != s.url+"/pay/"+started.PaymentID {
				t.Errorf("%+v of an order until %v", started, anns.ExpiresAt)
			}
		}},
		{"the payment's page", func() *answer { return s.anyone().call("GET", started.PayURL, nil) }, 200, "", func(t *testing.T, a *answer) {
			if !strings.Contains(string(a.body), "19.80 CNY") || !strings.Contains(string(a.body), `value="pay"`) {
				t.Errorf("page %s", a.body)
			}
		}},
		{"the button to pay", func() *answer { return ann.choose(started, "pay") }, 200, "", func(t *testing.T, a *answer) {
			if strings.Contains(string(a.body), `value="pay"`) {
				t.Errorf("a paid payment can be paid again: %s", a.body)
			}
		}},
		{"a paid order", func() *answer { return ann.call("GET", order(anns.ID), nil) }, 200, paidShape, nil},
		{"a callback", func() *answer {
			bens = ben.buy(teapot.ID, 1)
			return s.callback(fields{
				"payment_id": ben.startPayment(bens.ID).PaymentID, "provider_txn_id": "txn-1", "status": "succeeded", "amount_cents": 990,
			})
		}, 200, "order:object", func(t *testing.T, a *answer) {
			shape(t, "order of the callback", a.member("order"), paidShape)
		}},
		{"a refund", func() *answer { return operator.call("POST", "/api/v1/admin/orders/"+bens.ID+"/refund", nil) }, 200, paidShape, func(t *testing.T, a *answer) {
			if status := a.object()["status"]; status != "refunded" {
				t.Errorf("status %v", status)
			}
		}},
		{"a cancelled order", func() *answer { return ben.call("DELETE", order(ben.buy(teapot.ID, 1).ID), nil) }, 200, orderShape, func(t *testing.T, a *answer) {
			if status := a.object()["status"]; status != "cancelled" {
				t.Errorf("status %v", status)
			}
		}},
		{"a short link", func() *answer { return s.anyone().call("GET", short, nil) }, 302, "", func(t *testing.T, a *answer) {
			if to := a.header.Get("Location"); to != "/sales/"+teapot.ID {
				t.Errorf("Location: %s", to)
			}
		}},
		{"the page of all sales", func() *answer { return s.anyone().call("GET", "/", nil) }, 200, "", func(t *testing.T, a *answer) {
			if !strings.Contains(string(a.body), "/sales/"+teapot.ID) {
				t.Errorf("the sale is missing: %s", a.body)
			}
			style := regexp.MustCompile(`/assets/base\.[0-9a-f]+\.css`).FindString(string(a.body))
			s.anyone().call("GET", style, nil).want(200)
		}},
		{"the page of one sale", func() *answer { return s.anyone().call("GET", "/sales/"+teapot.ID, nil) }, 200, "", nil},
		{"the page of a buyer's orders", func() *answer { return s.anyone().call("GET", "/orders", nil) }, 200, "", nil},
		{"the console", func() *answer { return s.anyone().call("GET", "/console", nil) }, 200, "", nil},
		{"the console of one sale", func() *answer { return s.anyone().call("GET", "/console/sales/"+teapot.ID, nil) }, 200, "", nil},
		{"the console of the lab", func() *answer { return s.anyone().call("GET", "/console/lab", nil) }, 200, "", nil},
		{"a changed sale", func() *answer { return operator.call("PATCH", desk(""), fields{"title": "Kettle"}) }, 200, operatorShape, nil},
		{"a pause", func() *answer { return operator.call("POST", desk("/pause"), nil) }, 200, operatorShape, wantState("paused")},
		{"the end of a pause", func() *answer { return operator.call("POST", desk("/resume"), nil) }, 200, operatorShape, wantState("open")},
		{"an audit", func() *answer { return operator.call("GET", desk("/audit"), nil) }, 200, auditShape, func(t *testing.T, a *answer) {
			shape(t, "gate", a.member("gate"), "epoch:int left:int inflight:int stream:int")
		}},
		{"a sale's orders", func() *answer { return operator.call("GET", desk("/orders"), nil) }, 200, "orders:list next_cursor:text", func(t *testing.T, a *answer) {
			shape(t, "order for the operator", a.first("orders"), orderShape+" user_id:text") // Ben's, cancelled
		}},
		{"the figures", func() *answer { return operator.call("GET", "/api/v1/admin/stats", nil) }, 200, "instances:object", nil},
		{"all sales", func() *answer { return operator.call("GET", "/api/v1/admin/sales", nil) }, 200, "sales:list next_cursor:text", func(t *testing.T, a *answer) {
			shape(t, "sale in the list", a.first("sales"), operatorShape)
		}},
		{"what was done", func() *answer { return operator.call("GET", desk("/operations"), nil) }, 200, "operations:list next_cursor:text", func(t *testing.T, a *answer) {
			shape(t, "operation in the list", a.first("operations"), "at:time actor:text action:text detail:text")
		}},
		{"a close", func() *answer { return operator.call("POST", desk("/close"), nil) }, 200, operatorShape, wantState("ended")},
		{"life", func() *answer { return s.anyone().call("GET", "/healthz", nil) }, 200, "status:text", nil},
		{"readiness", func() *answer { return s.anyone().call("GET", "/readyz", nil) }, 200, "status:text dependencies:object", func(t *testing.T, a *answer) {
			if got := string(a.member("dependencies")); got != `{"database":"ok","redis":"ok","strategy":"ok"}` {
				t.Errorf("dependencies %s", got)
			}
		}},
	}
	for _, step := range steps {
		ok := t.Run(step.name, func(t *testing.T) {
			a := step.ask()
			a.t = t
			a.want(step.status)
			if a.header.Get("X-Content-Type-Options") != "nosniff" || a.header.Get("X-Request-ID") == "" || a.header.Get("Cache-Control") == "" {
				t.Errorf("headers %v", a.header)
			}
			if step.shape != "" {
				if got := a.header.Get("Content-Type"); got != "application/json; charset=utf-8" {
					t.Errorf("Content-Type: %s", got)
				}
				shape(t, step.name, a.body, step.shape)
			} else if got := a.header.Get("Content-Type"); got != "text/html; charset=utf-8" {
				t.Errorf("Content-Type: %s", got)
			}
			if step.also != nil {
				step.also(t, a)
			}
		})
		if !ok {
			t.FailNow() // the next steps build on this one
		}
	}
	// The routes that this story has no step for: they don't end, or aren't JSON.
	s.events(teapot.ID).next(t)
	s.console(teapot.ID).until("figures", func(figures) bool { return true })
	operator.call("GET", desk("/orders.csv"), nil).want(200)
	s.anyone().call("GET", short+"/qr.svg", nil).want(200)
	for _, file := range []string{"/api", "/openapi.yaml", "/openapi.json", "/robots.txt", "/favicon.ico"} {
		s.anyone().call("GET", file, nil).want(200)
	}
	compared := s.labEvents()
	s.startLab(smallLab(fields{"strategies": []string{"hybrid"}}))
	_, done := labEnd(t, compared)
	s.anyone().call("GET", done.URL, nil).want(200)
	operator.call("DELETE", labPath, nil).want(200)
	s.lab()

	for _, page := range []string{"/console", "/console/lab", "/console/sales/" + teapot.ID} {
		s.anyone().call("GET", page, nil).want(200)
	}
	figures := s.anyone().call("GET", s.app.OpsURL()+"/metrics", nil).want(200)
	for _, route := range s.app.server.Handler.(*gin.Engine).Routes() {
		if route.Method == http.MethodHead { // TestHead
			continue
		}
		seen := regexp.MustCompile(`(?m)^flashsale_http_request_seconds_count\{method="` + route.Method + `",route="` + regexp.QuoteMeta(route.Path) + `",status="[23]..".* [1-9]`)
		if !seen.Match(figures.body) && !strings.HasSuffix(route.Path, "/events") && !strings.HasSuffix(route.Path, "/live") {
			t.Errorf("%s %s was never asked with success", route.Method, route.Path)
		}
	}
	books := s.balanced(teapot.ID)
	if books.Quota != 10 || books.Paid != 2 || books.Held != 0 || books.Available != 8 {
		t.Errorf("books %+v", books)
	}
}

func wantState(state string) func(*testing.T, *answer) {
	return func(t *testing.T, a *answer) {
		if got := a.object()["state"]; got != state {
			t.Errorf("state %v, want %s", got, state)
		}
	}
}

// Whoever has the secret may issue tokens: a plain JWT with sub and exp is a buyer.
func TestTokensOfAnotherIssuer(t *testing.T) {
	t.Parallel()
	s := start(t)
	saleID := s.createSale(nil).ID
	for name, claims := range map[string]fields{
		"no role":     {"sub": "ann"},
		"a buyer":     {"sub": "ben", "role": "buyer", "iss": "elsewhere", "name": "Ben", "iat": time.Now().Unix()},
		"every sign":  {"sub": "A.z_0:9-"},
		"one sign":    {"sub": "7"},
		"64 of them":  {"sub": strings.Repeat("x", 64)},
		"2^53 and +1": {"sub": "9007199254740993"},
	} {
		t.Run(name, func(t *testing.T) {
			c := s.in(t).anyone()
			c.user = claims["sub"].(string)
			c.token = signJWT(t, "HS256", testSecret, claims, time.Hour)
			if made := c.buy(saleID, 1); made.Status != "pending" {
				t.Errorf("%+v", made)
			}
			c.call("GET", "/api/v1/admin/stats", nil).refused(403, "forbidden")
		})
	}
	c := s.anyone()
	c.token = signJWT(t, "HS256", testSecret, fields{"sub": "boss", "role": "operator"}, time.Hour)
	c.call("GET", "/api/v1/admin/stats", nil).want(200)
}

func TestUnknownRoutesAndMethods(t *testing.T) {
	t.Parallel()
	s := start(t)
	saleID := s.createSale(nil).ID
	unknown := map[string]string{
		"nothing of ours":   "/nope",
		"half a way":        "/api/v1",
		"another version":   "/api/v2/sales",
		"a slash at end":    "/api/v1/sales/",
		"two slashes":       "/api/v1//sales",
		"capital letters":   "/API/V1/sales",
		"metrics":           "/metrics",
		"pprof":             "/debug/pprof/",
		"the admin's root":  "/api/v1/admin",
		"below a sale":      "/api/v1/sales/" + saleID + "/nope",
		"dots":              "/api/v1/sales/../../../etc/passwd",
		"encoded dots":      "/%2e%2e/%2e%2e/etc/passwd",
		"an absent sale":    "/api/v1/sales/AAAAAAAAAAAAAAAA",
		"its events":        "/api/v1/sales/AAAAAAAAAAAAAAAA/events",
		"an absent code":    "/s/AAAAAAAA",
		"a code too long":   "/s/" + strings.Repeat("A", 4000),
		"an absent payment": "/pay/AAAAAAAA",
		"a page of no sale": "/sales/AAAAAAAAAAAAAAAA",
	}
	for name, path := range unknown {
		t.Run(name, func(t *testing.T) {
			a := s.in(t).operator().call("GET", path, nil)
			if strings.HasPrefix(path, "/pay/") || strings.HasPrefix(path, "/sales/") { // pages are for people
				a.want(404)
				return
			}
			a.refused(404, "not_found")
		})
	}
	for name, tc := range map[string]struct{ method, path, allow string }{
		"POST the sales":      {"POST", "/api/v1/sales", "GET, HEAD"},
		"DELETE a sale":       {"DELETE", "/api/v1/sales/" + saleID, "GET, HEAD"},
		"GET a path":          {"GET", "/api/v1/sales/" + saleID + "/path", "POST"},
		"PUT an order":        {"PUT", "/api/v1/orders/x", "DELETE, GET, HEAD"},
		"GET the callback":    {"GET", "/api/v1/payments/callback", "POST"},
		"GET the sessions":    {"GET", "/api/v1/sessions", "POST"},
		"POST a sale's audit": {"POST", "/api/v1/admin/sales/" + saleID + "/audit", "GET, HEAD"},
		"a made-up method":    {"BREW", "/api/v1/time", "GET, HEAD"},
	} {
		t.Run(name, func(t *testing.T) {
			a := s.in(t).operator().call(tc.method, tc.path, nil)
			a.refused(405, "method_not_allowed")
			allow := strings.Split(a.header.Get("Allow"), ", ")
			slices.Sort(allow)
			if got := strings.Join(allow, ", "); got != tc.allow {
				t.Errorf("Allow: %s, want %s", got, tc.allow)
			}
		})
	}
}

// Each instrument of package metrics shows up once something has happened, and the profiles can be taken; both
// on the operators' address only.
func TestOpsAddress(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *config.Settings) { c.OpsAddr, c.PayGrace = "127.0.0.1:0", 0 })
	saleID := s.createSale(fields{"pay_timeout_seconds": 1}).ID
	s.buyer("ann").buy(saleID, 1)

	source, err := os.ReadFile("../internal/metrics/metrics.go")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`"(flashsale_[a-z_]+)"`).FindAllSubmatch(source, -1)
	if len(names) < 10 {
		t.Fatalf("%d instruments found in package metrics", len(names))
	}
	for _, name := range names {
		s.eventually(string(name[1])+" is measured", func() bool {
			figures := s.anyone().call("GET", s.app.OpsURL()+"/metrics", nil).want(200)
			return regexp.MustCompile(`(?m)^` + string(name[1]) + `(_count)?(\{.*)? \d`).Match(figures.body)
		})
	}
	for _, profile := range []string{"", "goroutine?debug=1", "heap?debug=1", "symbol", "trace?seconds=0.01"} {
		t.Run("pprof/"+profile, func(t *testing.T) {
			if a := s.in(t).anyone().call("GET", s.app.OpsURL()+"/debug/pprof/"+profile, nil); a.status != 200 || len(a.body) == 0 {
				t.Errorf("%d, %d bytes", a.status, len(a.body))
			}
		})
	}
	s.anyone().call("GET", s.app.OpsURL()+"/api/v1/time", nil).want(404)
}

// What a client makes up must not become a label: each one is kept until the process ends.
func TestMetricsStaySmall(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *config.Settings) { c.OpsAddr = "127.0.0.1:0" })
	count := func() int {
		return strings.Count(string(s.anyone().call("GET", s.app.OpsURL()+"/metrics", nil).want(200).body), "flashsale_http_request_seconds_count{")
	}
	ask := func(sign byte) {
		made := strings.Repeat(string(sign), 7)
		s.anyone().call(made, "/api/v1/time", nil).want(405)
		s.anyone().call(made, "/"+made, nil).want(404)
		s.anyone().call("GET", "/"+made, nil).want(404)
		s.anyone().call("GET", "/api/v1/sales/"+made, nil).want(404)
	}
	ask('A')
	before := count()
	for sign := byte('B'); sign <= 'Z'; sign++ {
		ask(sign)
	}
	if after := count(); after != before {
		t.Errorf("%d series became %d by made-up methods and paths", before, after)
	}
}

// Readiness follows what the strategy can't do without.
func TestReadyz(t *testing.T) {
	t.Parallel()
	redis := kit.Redis(t)
	redis.Kill()
	for strategy, want := range map[string]struct {
		status      int
		word, redis string
	}{
		"redis":      {503, "not ready", "down"},
		"local":      {503, "not ready", "down"},
		"hybrid":     {200, "ready", "down"},
		"optimistic": {200, "ready", "down"},
	} {
		t.Run(strategy, func(t *testing.T) {
			s := start(t, func(c *config.Settings) { c.Redis, c.Strategy = redis.URL(), strategy })
			var said struct {
				Status       string            `json:"status"`
				Dependencies map[string]string `json:"dependencies"`
			}
			s.anyone().call("GET", "/readyz", nil).want(want.status).read(&said)
			if said.Status != want.word || said.Dependencies["redis"] != want.redis || said.Dependencies["database"] != "ok" {
				t.Errorf("%+v", said)
			}
			s.anyone().call("GET", "/healthz", nil).want(http.StatusOK)
		})
	}
}

// A text of the operator's is text on the pages as well.
func TestPagesEscape(t *testing.T) {
	t.Parallel()
	s := start(t)
	made := s.createSale(fields{"title": `<script>alert(1)</script>`, "description": `"><img src=x onerror=alert(1)>`})
	for _, path := range []string{"/", "/sales/" + made.ID} {
		a := s.anyone().call("GET", path, nil).want(200)
		if body := string(a.body); strings.Contains(body, "<script>") || strings.Contains(body, "<img src=x") {
			t.Errorf("%s shows markup of the operator's: %s", path, body)
		}
		if policy := a.header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") {
			t.Errorf("%s: Content-Security-Policy: %s", path, policy)
		}
	}
}

// Links follow the URL that buyers use, whatever the server listens on.
func TestPublicURL(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *config.Settings) { c.PublicURL = "https://shop.example/" })
	made := s.createSale(nil)
	if u, err := url.Parse(made.ShortURL); err != nil || u.Host != "shop.example" || u.Scheme != "https" || !strings.HasPrefix(u.Path, "/s/") {
		t.Errorf("short_url %s", made.ShortURL)
	}
	ann := s.buyer("ann")
	if p := ann.startPayment(ann.buy(made.ID, 1).ID); p.PayURL != "https://shop.example/pay/"+p.PaymentID {
		t.Errorf("pay_url %s", p.PayURL)
	}
}
