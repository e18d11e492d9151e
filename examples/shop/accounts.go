package main

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"
)

// The engine is started with --client-id storefront and --audience flashsale.
const (
	clientID = "storefront" // stands for the engine's pages
	audience = "flashsale"  // stands for the engine's API

	codeLife  = time.Minute
	tokenLife = 10 * time.Minute
	keyID     = "shop-1"
	keyBits   = 2048
	maxGrants = 10_000 // log-ins under way
)

// customers has the shop's customers and their passwords. A real shop keeps hashes, and counts wrong passwords.
var customers = map[string]string{"ann": "tea for two", "ben": "milk first", "eve": "no sugar"}

// The shop is an OpenID Connect issuer for its customers, with authorization codes, PKCE (RFC 7636) and tokens signed by RS256. A
// shop that has an issuer already does not need this file.

// grant is a log-in whose code has not been exchanged for tokens yet.
type grant struct{ customer, redirect, challenge, nonce string }

// discovery answers with the addresses of the issuer's endpoints.
func (s *Shop) discovery(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, map[string]any{
		"issuer": s.url, "jwks_uri": s.url + "/keys", "authorization_endpoint": s.url + "/authorize", "token_endpoint": s.url + "/token",
		"response_types_supported": []string{"code"}, "subject_types_supported": []string{"public"}, "scopes_supported": []string{"openid", "profile"},
		"id_token_signing_alg_values_supported": []string{"RS256"}, "code_challenge_methods_supported": []string{"S256"},
		"token_endpoint_auth_methods_supported": []string{"none"},
	})
}

func (s *Shop) keys(w http.ResponseWriter, _ *http.Request) {
	public := jose.JSONWebKey{Key: s.key.Public(), KeyID: keyID, Algorithm: "RS256", Use: "sig"}
	answer(w, http.StatusOK, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{public}})
}

// authorize shows the log-in page and, after the log-in, sends the browser back to the engine with a code.
func (s *Shop) authorize(w http.ResponseWriter, r *http.Request) {
	c, err := s.connection()
	form := map[string]string{}
	for _, name := range []string{"response_type", "client_id", "redirect_uri", "scope", "state", "nonce", "code_challenge", "code_challenge_method"} {
		form[name] = r.FormValue(name)
	}
	if err != nil || form["client_id"] != clientID || form["redirect_uri"] != c.Engine+"/login" { // redirect to no other address
		s.show(w, http.StatusBadRequest, "message.html", "This log-in did not begin at our flash sale.")
		return
	}
	if form["response_type"] != "code" || form["code_challenge_method"] != "S256" || len(form["code_challenge"]) != 43 || !strings.Contains(form["scope"], "openid") {
		s.show(w, http.StatusBadRequest, "message.html", "This log-in lacks a part. Go back and try again.")
		return
	}
	w.Header().Set("Content-Security-Policy", policy(c.Engine)) // the answer to the form redirects to the engine
	name := r.PostFormValue("name")
	password, known := customers[name]
	if r.Method == http.MethodGet || !known || subtle.ConstantTimeCompare([]byte(password), []byte(r.PostFormValue("password"))) == 0 {
		status := http.StatusOK
		if r.Method == http.MethodPost {
			status = http.StatusUnauthorized
		}
		s.show(w, status, "login.html", map[string]any{"Form": form, "Name": name, "Wrong": r.Method == http.MethodPost, "Customers": customers})
		return
	}
	code := rand.Text()
	if !s.keep(code, grant{name, form["redirect_uri"], form["code_challenge"], form["nonce"]}) {
		s.show(w, http.StatusServiceUnavailable, "message.html", "Too many people are logging in. Please try again in a minute.")
		return
	}
	back := url.Values{"code": {code}, "state": {form["state"]}}
	http.Redirect(w, r, form["redirect_uri"]+"?"+back.Encode(), http.StatusSeeOther)
}

// keep stores a grant under its code for codeLife. It returns false if there are maxGrants others.
func (s *Shop) keep(code string, g grant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.grants) >= maxGrants {
		return false
	}
	s.grants[code] = g
	time.AfterFunc(codeLife, func() { s.take(code) })
	return true
}

// take returns and deletes a code's grant; "ok" is false if there is none.
func (s *Shop) take(code string) (g grant, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, ok = s.grants[code]
	delete(s.grants, code)
	return g, ok
}

// token exchanges a code and its verifier for tokens.
func (s *Shop) token(w http.ResponseWriter, r *http.Request) {
	g, ok := s.take(r.PostFormValue("code"))
	sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	if !ok || r.PostFormValue("grant_type") != "authorization_code" || r.PostFormValue("client_id") != clientID ||
		r.PostFormValue("redirect_uri") != g.redirect || base64.RawURLEncoding.EncodeToString(sum[:]) != g.challenge {
		answer(w, http.StatusBadRequest, map[string]any{"error": "invalid_grant"})
		return
	}
	idToken, err := s.sign(clientID, g.customer, g.nonce)
	accessToken, err2 := s.sign(audience, g.customer, "")
	if err != nil || err2 != nil {
		answer(w, http.StatusInternalServerError, map[string]any{"error": "server_error"})
		return
	}
	answer(w, http.StatusOK, map[string]any{
		"id_token": idToken, "access_token": accessToken, "token_type": "Bearer", "expires_in": int(tokenLife.Seconds()),
	})
}

func (s *Shop) sign(forWhom, customer, nonce string) (string, error) {
	now := time.Now()
	claims := jwt.MapClaims{
		"iss": s.url, "aud": forWhom, "sub": customer, "preferred_username": customer, "iat": now.Unix(), "exp": now.Add(tokenLife).Unix(),
	}
	if nonce != "" {
		claims["nonce"] = nonce
	}
	token := jwt.NewWithClaims(jwt.SigningMethodRS256, claims)
	token.Header["kid"] = keyID
	return token.SignedString(s.key)
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may have left
}
