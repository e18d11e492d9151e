package auth

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// tokenEndpoint is an issuer that answers each code in the same way.
type tokenEndpoint struct {
	keys   http.Handler
	found  map[string]any
	status int
	code   string                // the error
	asked  func(r *http.Request) // called with each request for a token; may be nil
}

func (e tokenEndpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/token":
		if e.asked != nil {
			e.asked(r)
		}
		w.WriteHeader(e.status)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": e.code})
	case "/keys":
		e.keys.ServeHTTP(w, r)
	default:
		_ = json.NewEncoder(w).Encode(e.found)
	}
}

// login returns a log-in at an issuer, which answers by the endpoint.
func (e tokenEndpoint) login(t *testing.T) *Login {
	p := newProvider(t)
	e.keys = p.Handler
	e.found["issuer"], e.found["jwks_uri"] = p.URL, p.URL+"/keys"
	for _, name := range []string{"authorization_endpoint", "token_endpoint"} {
		if path, ok := e.found[name]; ok {
			e.found[name] = p.URL + path.(string)
		}
	}
	p.Handler = e
	return &Login{Issuers: p.tokens().Outside, Issuer: p.URL, ClientID: "shop", RedirectURL: func() string { return "https://shop.example/login" }}
}

// Only a code that is not valid is the customer's mistake. An issuer that has too much to do may answer later, and one that does
// not take this client never will.
func TestRefusalsOfCodes(t *testing.T) {
	const wrongSetUp = "another error"
	for _, tc := range []struct {
		status     int
		code, want string
	}{
		{http.StatusBadRequest, "invalid_grant", ErrBadToken.Error()},
		{http.StatusUnauthorized, "invalid_grant", ErrBadToken.Error()},
		{http.StatusBadRequest, "invalid_request", ErrBadToken.Error()},
		{http.StatusBadRequest, "", ErrBadToken.Error()},
		{http.StatusUnauthorized, "invalid_client", wrongSetUp},
		{http.StatusBadRequest, "unauthorized_client", wrongSetUp},
		{http.StatusBadRequest, "unsupported_grant_type", wrongSetUp},
		{http.StatusTooManyRequests, "", model.ErrUnavailable.Error()},
		{http.StatusRequestTimeout, "", model.ErrUnavailable.Error()},
		{http.StatusServiceUnavailable, "temporarily_unavailable", model.ErrUnavailable.Error()},
	} {
		e := tokenEndpoint{found: map[string]any{"authorization_endpoint": "/a", "token_endpoint": "/token"}, status: tc.status, code: tc.code}
		_, _, err := e.login(t).Finish(t.Context(), "code", "verifier", "nonce")
		check.Same(t, http.StatusText(tc.status)+" "+tc.code, kindOf(err), tc.want)
	}
	for _, found := range []map[string]any{{}, {"token_endpoint": "/token"}, {"authorization_endpoint": "/a"}} {
		login := tokenEndpoint{found: found}.login(t)
		_, err := login.Start(t.Context())
		check.Same(t, "start", kindOf(err), wrongSetUp)
		_, _, err = login.Finish(t.Context(), "code", "verifier", "nonce")
		check.Same(t, "finish", kindOf(err), wrongSetUp)
	}
}

// The secret of a client goes where the issuer prefers it, and by the header if that does not say: in it both parts are encoded as
// in a form (RFC 6749, 2.3.1). A client without a secret has no header.
func TestClientShowsItsSecret(t *testing.T) {
	const secret = "a:b c%/+ü"
	const inHeader, inForm = "in the header", "in the form"
	for _, tc := range []struct {
		ways         any
		secret, want string
	}{
		{nil, secret, inHeader},
		{"client_secret_post", secret, inHeader}, // not a list
		{[]string{"client_secret_basic"}, secret, inHeader},
		{[]string{"client_secret_post"}, secret, inForm},
		{[]string{"private_key_jwt", "client_secret_basic", "client_secret_post"}, secret, inHeader + ", then " + inForm},
		{[]string{"client_secret_post", "client_secret_basic"}, secret, inForm},
		{[]string{"client_secret_basic"}, "", ""},
	} {
		var got []string
		e := tokenEndpoint{found: map[string]any{"authorization_endpoint": "/a", "token_endpoint": "/token"}, status: http.StatusBadRequest}
		if tc.ways != nil {
			e.found["token_endpoint_auth_methods_supported"] = tc.ways
		}
		e.asked = func(r *http.Request) {
			if id, password, ok := r.BasicAuth(); ok && id == "shop" && password == url.QueryEscape(secret) {
				got = append(got, inHeader)
			}
			if r.PostFormValue("client_id") == "shop" && r.PostFormValue("client_secret") == secret {
				got = append(got, inForm)
			}
		}
		login := e.login(t)
		login.ClientSecret = tc.secret
		_, _, err := login.Finish(t.Context(), "code", "verifier", "nonce")
		check.Error(t, "finish", err, ErrBadToken)
		check.Same(t, fmt.Sprint(tc.ways), strings.Join(got, ", then "), tc.want)
	}
}

func kindOf(err error) string {
	for _, kind := range []error{ErrBadToken, model.ErrUnavailable} {
		if errors.Is(err, kind) {
			return kind.Error()
		}
	}
	if err == nil {
		return ""
	}
	return "another error"
}
