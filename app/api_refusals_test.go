package app

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"flashsale/internal/config"
	"flashsale/model"
	"flashsale/service"
	"flashsale/test/kit"
)

// internals are what no client may ever see of the engine.
var internals = regexp.MustCompile(`(?i)fs:\{|/root\b|/home/|/tmp/|goroutine|\.go:|panic|\bsql|gorm|sqlite|mysql|mariadb|redis|\blua\b|` +
	`\bselect\b|\binsert\b|\bupdate\b|\bdelete from\b|\bwhere\b|constraint|dial tcp|127\.0\.0\.1|connection refused|context (canceled|deadline)|EOF`)

// ids are random letters, in which any word may stand.
var ids = regexp.MustCompile(`[A-Z2-7]{16,}`)

// clean fails the test if the answer shows internals.
func (a *answer) clean() *answer {
	a.t.Helper()
	if found := internals.Find(ids.ReplaceAll(a.body, nil)); found != nil {
		a.t.Errorf("%s shows %q: %s", a.what, found, a.body)
	}
	return a
}

// books are a sale's sums as the database and the gate have them, without asking over HTTP.
func (s *server) books(saleID string) string {
	s.t.Helper()
	auditor := service.Auditor{Store: s.app.stores.database, Gate: s.app.gate}
	audit, ok, err := auditor.Audit(s.t.Context(), saleID)
	if err != nil || !ok {
		s.t.Fatalf("audit of %s: %t, %v", saleID, ok, err)
	}
	return fmt.Sprintf("%+v", audit)
}

// Every line of the contract's table of refusals, each by a request as a client makes it, in both languages. The
// stores are the same afterwards.
func TestEveryRefusal(t *testing.T) {
	t.Parallel()
	usual := start(t)
	slow := start(t, func(c *config.Settings) { c.LimitRate, c.LimitBurst = 0.001, 3 })          // each asks twice, to be refused twice
	distant := start(t, func(c *config.Settings) { c.IPRate = 0.0001 })                          // one request of each address
	strict := start(t, func(c *config.Settings) { c.UserRequests, c.UserWindow = 1, time.Hour }) // one of each buyer
	counting := start(t, func(c *config.Settings) { c.UserRequests, c.UserWindow, c.Strategy = 1, time.Hour, "optimistic" })
	redis := kit.Redis(t)
	alone := start(t, func(c *config.Settings) { c.Redis, c.Strategy = redis.URL(), "redis" })

	open := func(s *server) string { return s.createSale(nil).ID }
	hour := time.Hour
	early := func(s *server) string {
		return s.createSale(fields{"starts_at": time.Now().Add(hour), "ends_at": time.Now().Add(2 * hour)}).ID
	}
	after := func(action string) func(*server) string {
		return func(s *server) string {
			id := open(s)
			s.setStatus(id, action)
			return id
		}
	}
	purchase := func(user string, quantity any) func(*server, string) (string, string, any, *client) {
		return func(s *server, saleID string) (string, string, any, *client) {
			c := s.buyer(user)
			return "POST", "/api/v1/sales/" + saleID + "/" + c.forgedPath(saleID) + "/orders", fields{"quantity": quantity}, c
		}
	}
	anns := func(s *server, saleID, method, tail string) (string, string, any, *client) {
		return method, "/api/v1/orders/" + s.buyer("ann").buy(saleID, 1).ID + tail, nil, s.buyer("ann")
	}
	tests := []struct {
		status  int
		code    string
		name    string
		server  *server
		prepare func(s *server) (saleID string)
		// request makes what is needed for it, and says who asks what
		request func(s *server, saleID string) (method, path string, body any, who *client)
	}{
		{400, "bad_request", "quantity 0", usual, open, purchase("ann", 0)},
		{400, "bad_request", "more than the limit", usual, open, purchase("ann", 3)},
		{400, "bad_request", "a text", usual, open, purchase("ann", "two")},
		{401, "unauthenticated", "no token", usual, open, func(s *server, saleID string) (string, string, any, *client) {
			return "POST", "/api/v1/sales/" + saleID + "/path", nil, s.anyone()
		}},
		{401, "unauthenticated", "a wrong password", usual, open, func(s *server, _ string) (string, string, any, *client) {
			return "POST", "/api/v1/sessions", fields{"name": "admin", "password": "a wrong one"}, s.anyone()
		}},
		{401, "unauthenticated", "an unknown name", usual, open, func(s *server, _ string) (string, string, any, *client) {
			return "POST", "/api/v1/sessions", fields{"name": "nobody", "password": "a wrong one"}, s.anyone()
		}},
		{401, "bad_signature", "an unsigned callback", usual, open, func(s *server, saleID string) (string, string, any, *client) {
			ann := s.buyer("ann")
			body := paid(ann.startPayment(ann.buy(saleID, 1).ID), nil)
			return "POST", "/api/v1/payments/callback", body, s.anyone().with("X-Timestamp", strconv.FormatInt(time.Now().Unix(), 10))
		}},
		{403, "bad_path", "another buyer's path", usual, open, func(s *server, saleID string) (string, string, any, *client) {
			return "POST", "/api/v1/sales/" + saleID + "/" + s.buyer("ann").path(saleID) + "/orders", fields{"quantity": 1}, s.buyer("ben")
		}},
		{403, "forbidden", "a buyer at the operator's desk", usual, open, func(s *server, saleID string) (string, string, any, *client) {
			return "POST", "/api/v1/admin/sales/" + saleID + "/close", nil, s.buyer("ann")
		}},
		{404, "not_found", "an absent sale", usual, open, func(s *server, _ string) (string, string, any, *client) {
			return "GET", "/api/v1/sales/AAAAAAAAAAAAAAAA", nil, s.anyone()
		}},
		{404, "not_found", "another buyer's order", usual, open, func(s *server, saleID string) (string, string, any, *client) {
			return "DELETE", "/api/v1/orders/" + s.buyer("ann").buy(saleID, 1).ID, nil, s.buyer("ben")
		}},
		{409, "not_started", "too early", usual, early, purchase("ann", 1)},
		{409, "not_started", "a path too early", usual, early, func(s *server, saleID string) (string, string, any, *client) {
			return "POST", "/api/v1/sales/" + saleID + "/path", nil, s.buyer("ann")
		}},
		{409, "ended", "too late", usual, after("close"), purchase("ann", 1)},
		{409, "paused", "a pause", usual, after("pause"), purchase("ann", 1)},
		{409, "limit_reached", "a third unit of two", usual, open, func(s *server, saleID string) (string, string, any, *client) {
			s.buyer("ann").buy(saleID, 2)
			return purchase("ann", 1)(s, saleID)
		}},
		{409, "sold_out", "an eleventh unit of ten", usual, func(s *server) string { return s.createSale(fields{"quota": 2}).ID }, func(s *server, saleID string) (string, string, any, *client) {
			s.buyer("ann").buy(saleID, 2)
			return purchase("ben", 1)(s, saleID)
		}},
		{409, "sold_out", "two units of one", usual, func(s *server) string { return s.createSale(fields{"quota": 1}).ID }, purchase("ben", 2)},
		{409, "not_payable", "a cancelled order", usual, open, func(s *server, saleID string) (string, string, any, *client) {
			id := s.buyer("ann").buy(saleID, 1).ID
			s.buyer("ann").cancel(id)
			return "POST", "/api/v1/orders/" + id + "/payments", nil, s.buyer("ann")
		}},
		{409, "not_payable", "another payment's transaction", usual, open, func(s *server, saleID string) (string, string, any, *client) {
			ann, ben := s.buyer("ann"), s.buyer("ben")
			s.callback(paid(ann.startPayment(ann.buy(saleID, 1).ID), fields{"provider_txn_id": "txn-" + saleID})).want(200)
			body := paid(ben.startPayment(ben.buy(saleID, 1).ID), fields{"provider_txn_id": "txn-" + saleID})
			return "POST", "/api/v1/payments/callback", body, s.signed(body)
		}},
		{409, "not_cancellable", "a paid order", usual, open, func(s *server, saleID string) (string, string, any, *client) {
			id := s.buyer("ann").buy(saleID, 1).ID
			s.buyer("ann").pay(id)
			return "DELETE", "/api/v1/orders/" + id, nil, s.buyer("ann")
		}},
		{409, "amount_mismatch", "a cent too little", usual, open, func(s *server, saleID string) (string, string, any, *client) {
			ann := s.buyer("ann")
			body := paid(ann.startPayment(ann.buy(saleID, 1).ID), fields{"amount_cents": 989})
			return "POST", "/api/v1/payments/callback", body, s.signed(body)
		}},
		{409, "not_refundable", "an unpaid order", usual, open, func(s *server, saleID string) (string, string, any, *client) {
			return "POST", "/api/v1/admin/orders/" + s.buyer("ann").buy(saleID, 1).ID + "/refund", nil, s.operator()
		}},
		{409, "name_taken", "the operator's name", usual, open, func(s *server, _ string) (string, string, any, *client) {
			return "POST", "/api/v1/users", fields{"name": "Admin", "password": "correct horse"}, s.anyone()
		}},
		{405, "method_not_allowed", "a method that is none", usual, open, func(s *server, saleID string) (string, string, any, *client) {
			return anns(s, saleID, "PATCH", "")
		}},
		{413, "too_large", "five KiB", usual, open, func(s *server, saleID string) (string, string, any, *client) {
			method, path, _, who := purchase("ann", 1)(s, saleID)
			return method, path, `{"quantity":1` + strings.Repeat(" ", 5<<10) + `}`, who
		}},
		{415, "unsupported_media_type", "a form", usual, open, func(s *server, saleID string) (string, string, any, *client) {
			method, path, _, who := purchase("ann", 1)(s, saleID)
			return method, path, "quantity=1", who.with("Content-Type", "application/x-www-form-urlencoded")
		}},
		{422, "idempotency_mismatch", "the same key, another body", usual, open, func(s *server, saleID string) (string, string, any, *client) {
			s.buyer("ann").purchase(saleID, 1, "Idempotency-Key", "k").want(201)
			method, path, body, who := purchase("ann", 2)(s, saleID)
			return method, path, body, who.with("Idempotency-Key", "k")
		}},
		{429, "rate_limited", "the instance", slow, open, func(s *server, saleID string) (string, string, any, *client) {
			for range 3 {
				s.sale(saleID)
			}
			return purchase("ann", 1)(s, saleID)
		}},
		{429, "rate_limited", "the address", distant, open, func(s *server, saleID string) (string, string, any, *client) {
			s.sale(saleID)
			return purchase("ann", 1)(s, saleID)
		}},
		{429, "too_frequent", "the buyer, counted at the gate", strict, open, func(s *server, saleID string) (string, string, any, *client) {
			s.buyer("ann").purchase(saleID, 1).want(201)
			return purchase("ann", 1)(s, saleID)
		}},
		{429, "too_frequent", "the buyer, counted before", counting, open, func(s *server, saleID string) (string, string, any, *client) {
			s.buyer("ann").purchase(saleID, 1).want(201)
			return purchase("ann", 1)(s, saleID)
		}},
		{503, "unavailable", "no gate, and nothing else to sell from", alone, open, func(s *server, saleID string) (string, string, any, *client) {
			return purchase("ann", 1)(s, saleID)
		}},
	}
	promised := map[string]int{
		"bad_request": 400, "unauthenticated": 401, "bad_signature": 401, "bad_path": 403, "forbidden": 403, "not_found": 404,
		"not_started": 409, "ended": 409, "paused": 409, "limit_reached": 409, "sold_out": 409, "not_payable": 409,
		"not_cancellable": 409, "amount_mismatch": 409, "too_large": 413, "unsupported_media_type": 415,
		"idempotency_mismatch": 422, "rate_limited": 429, "too_frequent": 429, "unavailable": 503,
	}
	for _, tc := range tests {
		t.Run(fmt.Sprintf("%d %s: %s", tc.status, tc.code, tc.name), func(t *testing.T) {
			s := tc.server.in(t)
			saleID := tc.prepare(s)
			method, path, body, who := tc.request(s, saleID)
			s.settled(saleID)
			if s.app.strategy.UsesGate() { // the controller may be about to install it, or to tell it of an added quota
				s.eventually("the gate is there, and knows all", func() bool {
					states, err := s.app.gate.Peek(t.Context(), saleID)
					offer, _, errOffer := s.app.catalog.Sale(t.Context(), saleID)
					return err == nil && errOffer == nil && states[0].Exists &&
						(states[0].Version >= offer.Stock.GateVersion || offer.Judge(s.app.catalog.Now()) == model.Ended)
				})
			}
			before := s.books(saleID)
			if tc.server == alone {
				redis.Kill()
			}
			english := checkProblem(t, who.call(method, path, body, "Accept-Language", "en-GB, zh;q=0.5", "X-Request-ID", "r-1"), tc.status, tc.code)
			chinese := checkProblem(t, who.call(method, path, body, "Accept-Language", "zh-CN, en;q=0.5", "X-Request-ID", "r-1"), tc.status, tc.code)
			if english.Type != chinese.Type || hasHan(english.Title+english.Detail) || !hasHan(chinese.Title) || !hasHan(chinese.Detail) {
				t.Errorf("English %+v, Chinese %+v", english, chinese)
			}
			if tc.server == alone {
				redis.Restart()
				s.eventually("the gate is installed again", func() bool { return s.anyone().call("GET", "/readyz", nil).status == 200 })
				return // its gate is another one now; that nothing was sold shows below
			}
			s.settled(saleID)
			if now := s.books(saleID); now != before {
				t.Errorf("books before: %s\nafter: %s", before, now)
			}
		})
		delete(promised, tc.code)
	}
	for code := range promised {
		t.Errorf("no request was refused with %s", code)
	}
	for _, offer := range func() []string { return alone.app.catalog.LiveIDs() }() {
		if books := alone.balanced(offer); books.Held != 0 || books.Available != 10 {
			t.Errorf("a refused attempt has bought: %+v", books)
		}
	}
}

// settled waits until nothing of a sale is on its way.
func (s *server) settled(saleID string) {
	s.t.Helper()
	s.eventually("the stream of sale "+saleID+" is settled", func() bool {
		states, err := s.app.gate.Peek(s.t.Context(), saleID)
		if err != nil {
			s.t.Fatal(err)
		}
		return states[0].Inflight == 0 && states[0].Stream == 0
	})
}

// checkProblem checks what all refusals have in common.
func checkProblem(t *testing.T, a *answer, status int, code string) problem {
	t.Helper()
	a.t = t
	p := a.clean().refused(status, code)
	members := "type:text title:text status:int detail:text code:text request_id:text"
	if p.Field != "" {
		members += " field:text"
	}
	shape(t, "problem", a.body, members)
	if p.Status != status || p.Type != "/problems/"+code || p.Title == "" || p.Detail == "" {
		t.Errorf("%s", a.body)
	}
	if p.RequestID != "r-1" || a.header.Get("X-Request-ID") != "r-1" {
		t.Errorf("request id %s, header %s", p.RequestID, a.header.Get("X-Request-ID"))
	}
	if a.header.Get("Cache-Control") != "no-store" || !strings.Contains(a.header.Get("Vary"), "Accept-Language") {
		t.Errorf("headers %v", a.header)
	}
	retry, err := strconv.Atoi(a.header.Get("Retry-After"))
	if later := status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable; later != (err == nil && retry >= 1) {
		t.Errorf("%d with Retry-After %q", status, a.header.Get("Retry-After"))
	}
	if challenge := a.header.Get("WWW-Authenticate"); (status == http.StatusUnauthorized) != (challenge == "Bearer") {
		t.Errorf("%d with WWW-Authenticate %q", status, challenge)
	}
	return p
}

func hasHan(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return unicode.Is(unicode.Han, r) })
}
