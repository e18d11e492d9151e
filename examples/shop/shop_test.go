package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"
)

const orderID = "VEWQEH4J6T4XVTZX7A6HXTC6BGQYJGM7WTG2U2JULFKKBJGX"

// engine stands for the engine: it publishes a key, lists one sale, and answers calls about holds as a test says.
type engine struct {
	*httptest.Server
	t   *testing.T
	key *ecdsa.PrivateKey

	mu      sync.Mutex
	answers map[string]string // by the call, such as settle: a refusal's code, or "away"; none: 200
	heard   []string          // each call with its body
}

func newEngine(t *testing.T) *engine {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	noError(t, err)
	e := &engine{t: t, key: key, answers: map[string]string{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/jwks.json", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k", Algorithm: "ES256"}}})
	})
	mux.HandleFunc("GET /api/v1/sales", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]any{"sales": []map[string]any{
			{"id": "OVER", "state": "ended"},
			{"id": "SALE", "title": "<b>Teapots</b>", "state": "open", "price_cents": 990, "currency": "CNY", "available": 7},
		}})
	})
	mux.HandleFunc("POST /api/v1/holds/{order}/{call}", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		call := r.PathValue("call")
		e.mu.Lock()
		e.heard = append(e.heard, strings.TrimSpace(call+" "+string(body)))
		code := e.answers[call]
		e.mu.Unlock()
		if r.Header.Get("Authorization") != "Bearer fs_shop_key" || r.PathValue("order") != orderID {
			t.Errorf("%s with the key %q for the order %s", call, r.Header.Get("Authorization"), r.PathValue("order"))
		}
		switch code {
		case "":
			answer(w, http.StatusOK, map[string]any{"id": orderID})
		case "away":
			answer(w, http.StatusServiceUnavailable, map[string]any{"code": "unavailable"})
		default:
			answer(w, http.StatusConflict, map[string]any{"code": code})
		}
	})
	e.Server = httptest.NewServer(mux)
	t.Cleanup(e.Close)
	return e
}

func (e *engine) says(call, code string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.answers[call] = code
}

// calls returns what the shop has called since the last time.
func (e *engine) calls() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	defer func() { e.heard = nil }()
	return strings.Join(e.heard, ", ")
}

// hold returns a hold token with some claims changed.
func (e *engine) hold(key *ecdsa.PrivateKey, changes jwt.MapClaims) string {
	e.t.Helper()
	claims := jwt.MapClaims{
		"iss": e.URL, "sub": "shop:ann", "exp": time.Now().Add(time.Minute).Unix(),
		"order": orderID, "number": orderID[16:24], "sale": "SALE", "user": "shop:ann", "quantity": 1, "amount": 990, "currency": "CNY",
	}
	for name, value := range changes {
		claims[name] = value
	}
	token := jwt.NewWithClaims(jwt.SigningMethodES256, claims)
	token.Header["kid"] = "k"
	signed, err := token.SignedString(key)
	noError(e.t, err)
	return signed
}

const webhookSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// open starts a shop that is connected to an engine.
func open(t *testing.T, e *engine) (*Shop, string) {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	s, err := newShop("http://"+server.Listener.Addr().String(), func() (Connection, error) {
		return Connection{Engine: e.URL, Key: "fs_shop_key", WebhookSecret: webhookSecret}, nil
	}, io.Discard)
	noError(t, err)
	server.Config.Handler = s.routes()
	server.Start()
	t.Cleanup(server.Close)
	return s, server.URL
}

// ask sends a GET request, or a POST request if form is not nil. It returns the status, the body and the header Location.
func ask(t *testing.T, address string, form url.Values, header ...string) (status int, body, location string) {
	t.Helper()
	method, content := http.MethodGet, io.Reader(nil)
	if form != nil {
		method, content = http.MethodPost, strings.NewReader(form.Encode())
	}
	request, err := http.NewRequestWithContext(t.Context(), method, address, content)
	noError(t, err)
	if form != nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	noError(t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	noError(t, err)
	if policy := response.Header.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'; ") {
		t.Errorf("%s has the policy %q", address, policy)
	}
	return response.StatusCode, string(text), response.Header.Get("Location")
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("there is no %q in %s", part, text)
		}
	}
}

// The front page leads to the sale that is not over, shows what the engine says as text, and does without the engine.
func TestCatalogue(t *testing.T) {
	e := newEngine(t)
	_, shop := open(t, e)
	_, page, _ := ask(t, shop+"/", nil)
	contains(t, page, e.URL+"/sales/SALE", "&lt;b&gt;Teapots", "CNY 9.90 · 7 left", "Tea tin")
	e.Close()
	status, page, _ := ask(t, shop+"/", nil)
	same(t, "status without the engine", status, http.StatusOK)
	contains(t, page, "Tea tin")
}

// login is what the engine's pages ask for.
func login(e *engine) url.Values {
	return url.Values{
		"response_type": {"code"}, "client_id": {clientID}, "redirect_uri": {e.URL + "/login"}, "scope": {"openid profile"}, "state": {"s"},
		"nonce": {"n"}, "code_challenge": {"E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"}, "code_challenge_method": {"S256"}, // of RFC 7636
		"name": {"ann"}, "password": {"tea for two"},
	}
}

// A code is for the page that asked for it and knows the verifier, once. A log-in never leads anywhere but to the engine.
func TestLogIn(t *testing.T) {
	e := newEngine(t)
	s, shop := open(t, e)
	for name, change := range map[string][2]string{
		"another client":   {"client_id", "other"},
		"another page":     {"redirect_uri", "https://evil.example/login"},
		"no PKCE":          {"code_challenge", ""},
		"plain PKCE":       {"code_challenge_method", "plain"},
		"an implicit flow": {"response_type", "token"},
	} {
		form := login(e)
		form.Set(change[0], change[1])
		status, _, location := ask(t, shop+"/authorize", form)
		same(t, name, [2]any{status, location}, [2]any{http.StatusBadRequest, ""})
	}
	wrong := login(e)
	wrong.Set("name", `"><script>`)
	status, page, _ := ask(t, shop+"/authorize", wrong)
	same(t, "a wrong name", status, http.StatusUnauthorized)
	contains(t, page, "&#34;&gt;&lt;script&gt;")
	status, _, _ = ask(t, shop+"/authorize", login(e), "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site")
	same(t, "a form of another site", status, http.StatusForbidden)

	code := func() string {
		_, _, location := ask(t, shop+"/authorize", login(e))
		back, err := url.Parse(location)
		noError(t, err)
		same(t, "state", back.Query().Get("state"), "s")
		return back.Query().Get("code")
	}
	exchange := func(code, verifier string) (int, string) {
		status, body, _ := ask(t, shop+"/token", url.Values{
			"grant_type": {"authorization_code"}, "client_id": {clientID}, "redirect_uri": {e.URL + "/login"}, "code": {code}, "code_verifier": {verifier},
		})
		return status, body
	}
	const verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
	used := code()
	status, body := exchange(used, verifier)
	same(t, "the first exchange", status, http.StatusOK)
	var tokens struct {
		ID string `json:"id_token"`
	}
	noError(t, json.Unmarshal([]byte(body), &tokens))
	var claims jwt.MapClaims
	_, err := jwt.ParseWithClaims(tokens.ID, &claims, func(*jwt.Token) (any, error) { return &s.key.PublicKey, nil },
		jwt.WithValidMethods([]string{"RS256"}), jwt.WithIssuer(shop), jwt.WithAudience(clientID), jwt.WithExpirationRequired())
	noError(t, err)
	same(t, "the customer", [2]any{claims["sub"], claims["nonce"]}, [2]any{"ann", "n"})
	for name, pair := range map[string][2]string{"a used code": {used, verifier}, "another verifier": {code(), strings.Repeat("v", 43)}, "an unknown code": {"x", verifier}} {
		status, _ := exchange(pair[0], pair[1])
		same(t, name, status, http.StatusBadRequest)
	}
}
