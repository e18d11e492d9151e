package app_test

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"flashsale/internal/config"
)

// internals are words that no client may ever see.
var internals = regexp.MustCompile(`(?i)fs:\{|/root\b|/home/|/tmp/|goroutine|\.go:|panic|` +
	`\bsql|gorm|sqlite|mysql|mariadb|redis|\blua\b|` +
	`\bselect\b|\binsert\b|\bupdate\b|\bdelete from\b|\bwhere\b|constraint|` +
	`dial tcp|127\.0\.0\.1|connection refused|context (canceled|deadline)|EOF`)

// ids are random letters, which may form any word.
var ids = regexp.MustCompile(`[A-Z2-7]{16,}`)

// clean fails the test if the answer shows internals.
func (a *answer) clean() *answer {
	a.t.Helper()
	if found := internals.Find(ids.ReplaceAll(a.body, nil)); found != nil {
		a.t.Errorf("%s shows %q: %s", a.what, found, a.body)
	}
	return a
}

// Refusals that depend on the settings of the front door, and refusals of passwords and payments, leave the stores as they
// were. TestRefusals of the package handler has all codes; other tests of this package cause the others.
func TestRefusals(t *testing.T) {
	t.Parallel()
	usual := usual(t)
	slow := start(t, func(c *config.Settings) { c.LimitRate, c.LimitBurst = 0.001, 3 })
	distant := start(t, func(c *config.Settings) { c.IPRate = 0.0001 }) // one request of each address
	strict := start(t, func(c *config.Settings) { c.UserRequests, c.UserWindow = 1, time.Hour })
	counting := start(t, func(c *config.Settings) { c.UserRequests, c.UserWindow, c.Strategy = 1, time.Hour, "optimistic" })
	annBuys := func(s *server, saleID string) request {
		return request{s.buyer("ann"), "POST", s.buyer("ann").orderURL(saleID), fields{"quantity": 1}}
	}
	annBuysAgain := func(s *server, saleID string) request {
		s.buyer("ann").purchase(saleID, 1).want(201)
		return annBuys(s, saleID)
	}
	logIn := func(name string) func(*server, string) request {
		return func(s *server, _ string) request {
			return request{s.anyone(), "POST", "/api/v1/sessions", fields{"name": name, "password": "a wrong one"}}
		}
	}
	for name, tc := range map[string]struct {
		status int
		code   string
		server *server
		// request prepares the refusal and returns the request that is refused.
		request func(s *server, saleID string) request
	}{
		"a wrong password": {401, "unauthenticated", usual, logIn("admin")},
		"an unknown name":  {401, "unauthenticated", usual, logIn("nobody")},
		"a short name": {400, "bad_request", usual, func(s *server, _ string) request {
			return request{s.anyone(), "POST", "/api/v1/users", fields{"name": "ab", "password": "correct horse"}}
		}},
		"the operator's name": {409, "name_taken", usual, func(s *server, _ string) request {
			return request{s.anyone(), "POST", "/api/v1/users", fields{"name": "ADMIN", "password": "correct horse"}}
		}},
		"another's path": {403, "bad_path", usual, func(s *server, saleID string) request {
			return request{s.buyer("ben"), "POST", s.buyer("ann").orderURL(saleID), fields{"quantity": 1}}
		}},
		"more units than are left": {409, "sold_out", usual, func(s *server, saleID string) request {
			for i := range 9 {
				s.buyer(strconv.Itoa(i)).buy(saleID, 1)
			}
			return request{s.buyer("ann"), "POST", s.buyer("ann").orderURL(saleID), fields{"quantity": 2}}
		}},
		"the transaction of another payment": {409, "not_payable", usual, func(s *server, saleID string) request {
			ann, ben := s.buyer("ann"), s.buyer("ben")
			same := fields{"provider_txn_id": "txn-" + saleID}
			s.callback(paid(ann.startPayment(ann.buy(saleID, 1).ID).PaymentID, same)).want(200)
			body := paid(ben.startPayment(ben.buy(saleID, 1).ID).PaymentID, same)
			return request{s.signed(body), "POST", callbackURL, body}
		}},
		"a form": {415, "unsupported_media_type", usual, func(s *server, saleID string) request {
			return request{s.buyer("ann").with("Content-Type", formType), "POST", s.buyer("ann").orderURL(saleID), "quantity=1"}
		}},
		"the instance's limit": {429, "rate_limited", slow, func(s *server, saleID string) request {
			for range 3 {
				s.sale(saleID)
			}
			return annBuys(s, saleID)
		}},
		"the address's limit": {429, "rate_limited", distant, func(s *server, saleID string) request {
			s.sale(saleID)
			return annBuys(s, saleID)
		}},
		"the buyer's limit, at the gate":     {429, "too_frequent", strict, annBuysAgain},
		"the buyer's limit, before the sale": {429, "too_frequent", counting, annBuysAgain},
	} {
		t.Run(name, func(t *testing.T) {
			s := tc.server.in(t)
			saleID := s.createSale(nil).ID
			r := tc.request(s, saleID)
			before := s.balanced(saleID)
			var texts []string
			for _, language := range []string{"en-GB, zh;q=0.5", "zh-CN, en;q=0.5"} {
				a := r.who.call(r.method, r.path, r.body, "Accept-Language", language, "X-Request-ID", "r-1")
				a.t = t
				p := a.checkProblem(tc.status, tc.code)
				texts = append(texts, p.Title+p.Detail)
			}
			if hasHan(texts[0]) || !hasHan(texts[1]) {
				t.Errorf("English %s, Chinese %s", texts[0], texts[1])
			}
			s.wantBooks(saleID, before)
		})
	}
}

// request is a request of a client.
type request struct {
	who          *client
	method, path string
	body         any
}

// checkProblem checks what all refusals have in common. The inspector has checked the members, Retry-After and
// WWW-Authenticate where they are needed.
func (a *answer) checkProblem(status int, code string) problem {
	a.t.Helper()
	p := a.clean().refused(status, code)
	if p.Status != status || p.Type != "/problems/"+code || p.Title == "" || p.Detail == "" {
		a.t.Errorf("%s", a.body)
	}
	if p.RequestID != "r-1" || a.header.Get("X-Request-ID") != "r-1" {
		a.t.Errorf("request id %s, header %s", p.RequestID, a.header.Get("X-Request-ID"))
	}
	if a.header.Get("Cache-Control") != "no-store" || !strings.Contains(a.header.Get("Vary"), "Accept-Language") {
		a.t.Errorf("headers %v", a.header)
	}
	retry, err := strconv.Atoi(a.header.Get("Retry-After"))
	later := status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
	if later != (err == nil && retry >= 1) {
		a.t.Errorf("%d with Retry-After %q", status, a.header.Get("Retry-After"))
	}
	if challenge := a.header.Get("WWW-Authenticate"); (status == http.StatusUnauthorized) != (challenge == "Bearer") {
		a.t.Errorf("%d with WWW-Authenticate %q", status, challenge)
	}
	return p
}

func hasHan(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return unicode.Is(unicode.Han, r) })
}
