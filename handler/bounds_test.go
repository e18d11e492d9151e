package handler

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/model"
	"flashsale/service"
	"flashsale/service/auth"
	"flashsale/test/kit/check"
)

// cost is what an anonymous request can have done for it.
type cost string

const (
	inMemory  cost = "answered from memory"
	fromStore cost = "reads a row or a file, which the catalog keeps or of which only its owner knows the id"
	aStream   cost = "holds one of the streams, of which there are maxStreams"
	aProof    cost = "reads many rows, in one of the places of Lines.draw"
	aHash     cost = "hashes a password, in one of the places of Accounts.hashing"
	anIssuer  cost = "asks an issuer, in one of the places of Accounts.issuing"
	keysAlone cost = "asks an issuer at most once in auth.keysPause, for all requests together"
	signature cost = "checks a signature first"
	allStores cost = "asks all stores five times in a second at most, for all requests together"
)

// Each route that answers requests without a log-in is in this table, so that somebody has decided what bounds its cost. The
// routes that cost most are also limited at nginx.
func TestAnonymousRoutesAreDecided(t *testing.T) {
	decided := map[string]cost{
		"GET /healthz": inMemory, "GET /readyz": allStores, "GET /assets/:name": inMemory, "GET /embed.js": inMemory,
		"GET /console": inMemory, "GET /console/sales/:sale": inMemory, "GET /console/campaigns/:campaign": inMemory, "GET /console/orders": inMemory, "GET /console/payments": inMemory,
		"GET /console/endpoints": inMemory, "GET /console/staff": inMemory, "GET /console/shop": inMemory, "GET /console/lab": inMemory,
		"POST /api/v1/payments/callback": signature, "POST /api/v1/payments/notices": signature, "GET /.well-known/jwks.json": inMemory,
		"GET /api/v1/sales/:sale/events": aStream, "GET /api/v1/campaigns/:campaign/events": aStream,
		"GET /api/v1/sales": inMemory, "GET /api/v1/sales/:sale": fromStore, "GET /api/v1/sales/:sale/line": fromStore, "GET /api/v1/campaigns/:campaign": fromStore,
		"GET /api/v1/sales/:sale/draw.json": aProof,
		"GET /api/v1/time":                  inMemory, "GET /api/v1/login": keysAlone,
		"POST /api/v1/users": aHash, "POST /api/v1/sessions": aHash, "POST /api/v1/sessions/code": anIssuer,
		"GET /": inMemory, "GET /sales/:sale": fromStore, "GET /campaigns/:campaign": fromStore, "GET /orders": inMemory, "GET /login": inMemory,
		"GET /api": inMemory, "GET /openapi.yaml": inMemory, "GET /openapi.json": inMemory, "GET /robots.txt": inMemory, "GET /favicon.ico": inMemory,
		"GET /lab/reports/:report": fromStore, "GET /s/:code": fromStore, "GET /s/:code/qr.svg": fromStore,
		"GET /pay/:payment": fromStore, "POST /pay/:payment": fromStore,
	}
	nginx := string(check.Must(os.ReadFile("../deploy/nginx/server.conf")))
	limited := regexp.MustCompile(`location ~ (\S+) \{[^}]*zone=accounts`).FindStringSubmatch(nginx)
	if limited == nil {
		t.Fatal("no location of server.conf has the zone accounts")
	}
	atNginx := regexp.MustCompile(limited[1])
	s := newShop(t)
	found := map[string]cost{}
	for _, route := range s.handler().(*gin.Engine).Routes() {
		if route.Method == http.MethodHead {
			continue
		}
		path := strings.NewReplacer(":", "").Replace(route.Path)
		r := s.request(route.Method, path, "{}")
		ctx, cancel := context.WithCancel(r.Context())
		cancel() // the shop lacks most services: whatever comes after the stages fails
		answer := s.serve(r.WithContext(ctx))
		var problem struct{ Code model.Verdict }
		_ = json.Unmarshal(answer.Body.Bytes(), &problem) // pages are no problems
		if problem.Code == model.Unauthenticated {
			continue
		}
		name := route.Method + " " + route.Path
		found[name] = decided[name]
		check.Same(t, name+" is limited with the log-ins at nginx", atNginx.MatchString(path), decided[name] == aHash || decided[name] == anIssuer)
	}
	check.Same(t, "anonymous routes", found, decided)
}

// at sends a request from an address.
func (s *shop) at(address, path, body string) *httptest.ResponseRecorder {
	r := s.request(http.MethodPost, path, body)
	r.RemoteAddr = address + ":1"
	return s.serve(r)
}

// crowd sends n requests at once, and returns how many of them are refused at once.
func (s *shop) crowd(n int, path, body string, address func(i int) string) int {
	s.handler()
	var refused atomic.Int64
	for i := range n {
		go func() {
			if answer := s.at(address(i), path, body); answer.Code == http.StatusTooManyRequests {
				refused.Add(1)
				sameHeader(s, "refusal", answer.Header(), map[string]string{"Retry-After": "1", "Content-Type": problemJS})
			}
		}()
	}
	synctest.Wait()
	return int(refused.Load())
}

// slowIssuer is an OpenID Connect provider that takes a minute for each code.
type slowIssuer struct {
	asked, under atomic.Int64
}

func (i *slowIssuer) RoundTrip(r *http.Request) (*http.Response, error) {
	body := `{"issuer":"https://issuer.example","jwks_uri":"https://issuer.example/keys","authorization_endpoint":"https://issuer.example/a","token_endpoint":"https://issuer.example/token"}`
	switch r.URL.Path {
	case "/keys":
		body = `{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`
	case "/token":
		i.asked.Add(1)
		i.under.Add(1)
		defer i.under.Add(-1)
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

var codeBody = fmt.Sprintf(`{"code":"c","verifier":%q,"nonce":"n"}`, strings.Repeat("v", 43))

// logsInOutside has people log in at an issuer.
func (s *shop) logsInOutside(i *slowIssuer) {
	issuers := &auth.Issuers{Audience: "shop", UserClaim: "sub", Client: &http.Client{Transport: i}, Now: time.Now, Log: slog.New(slog.DiscardHandler)}
	issuers.Add(model.Issuer{Name: "https://issuer.example", Prefix: "i"})
	s.api.Accounts = NewAccounts(&service.Accounts{Outside: &auth.Login{
		Issuers: issuers, Issuer: "https://issuer.example", ClientID: "shop", RedirectURL: func() string { return "https://shop.example/login" },
	}})
}

// However many strangers send codes, the issuer is asked a few times at once, and less by one address. Others are refused at
// once; when the issuer has answered, or has not in time, the places are free.
func TestIssuerIsAskedAFewTimesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, issuer := newShop(t), &slowIssuer{}
		s.logsInOutside(issuer)
		const path, crowd = "/api/v1/sessions/code", 400
		one := s.crowd(crowd, path, codeBody, func(int) string { return "192.0.2.1" })
		check.Same(t, "calls for one address", int(issuer.under.Load()), issuerCallsOfOne)
		check.Same(t, "refused to it", one, crowd-issuerCallsOfOne)
		all := s.crowd(crowd, path, codeBody, func(i int) string { return fmt.Sprint("198.51.100.", i%200) })
		check.Same(t, "calls for all addresses", int(issuer.under.Load()), issuerCalls)
		check.Same(t, "refused to them", all, crowd-issuerCalls+issuerCallsOfOne)
		passes(time.Minute)
		check.Same(t, "calls in all", int(issuer.asked.Load()), issuerCalls)
		check.Same(t, "status when the issuer was too slow", s.at("192.0.2.1", path, codeBody).Code, http.StatusServiceUnavailable)
	})
}

// The issuer is not asked about what can't be a log-in.
func TestIssuerIsNotAskedInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, issuer := newShop(t), &slowIssuer{}
		s.logsInOutside(issuer)
		for _, body := range []string{
			`{}`, `[]`, `{"code":"c"}`, strings.Replace(codeBody, `"c"`, `""`, 1), strings.Replace(codeBody, `"c"`, `"c\n"`, 1),
			strings.Replace(codeBody, `"n"`, `""`, 1), strings.Replace(codeBody, "vvvv", "vvv", 1), strings.Replace(codeBody, "vvvv", "vv=v", 1),
			strings.Replace(codeBody, "v", strings.Repeat("v", 90), 1), strings.Replace(codeBody, `"n"`, `"`+strings.Repeat("n", 300)+`"`, 1),
		} {
			check.Same(t, body+": status", s.at("192.0.2.1", "/api/v1/sessions/code", body).Code, http.StatusBadRequest)
		}
		check.Same(t, "calls", int(issuer.asked.Load()), 0)
	})
}

// noAccounts is a database that does not answer before the end of a request.
type noAccounts struct {
	service.AccountStore
	under atomic.Int64
}

func (a *noAccounts) Account(ctx context.Context, _ string) (model.Account, bool, error) {
	a.under.Add(1)
	defer a.under.Add(-1)
	<-ctx.Done()
	return model.Account{}, false, ctx.Err()
}

// One address can't take all the time that the instance has for passwords.
func TestPasswordsOfOneAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, accounts := newShop(t), &noAccounts{}
		s.api.Accounts = NewAccounts(&service.Accounts{Open: true, Store: accounts})
		const path, body, crowd = "/api/v1/sessions", `{"name":"ann","password":"password"}`, 100
		refused := s.crowd(crowd, path, body, func(int) string { return "192.0.2.1" })
		check.Same(t, "under way for one address", int(accounts.under.Load()), hashesOfOne)
		check.Same(t, "refused to it", refused, crowd-hashesOfOne)
		s.crowd(1, path, body, func(int) string { return "192.0.2.2" })
		check.Same(t, "under way for two addresses", int(accounts.under.Load()), hashesOfOne+1)
		passes(requestLimit)
	})
}
