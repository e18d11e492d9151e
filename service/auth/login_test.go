package auth

import (
	"encoding/json"
	"errors"
	"net/http"
	"testing"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// tokenEndpoint is an issuer that answers each code in the same way.
type tokenEndpoint struct {
	keys   http.Handler
	found  map[string]string
	status int
	code   string // the error
}

func (e tokenEndpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/token":
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
			e.found[name] = p.URL + path
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
		e := tokenEndpoint{found: map[string]string{"authorization_endpoint": "/a", "token_endpoint": "/token"}, status: tc.status, code: tc.code}
		_, _, err := e.login(t).Finish(t.Context(), "code", "verifier", "nonce")
		check.Same(t, http.StatusText(tc.status)+" "+tc.code, kindOf(err), tc.want)
	}
	for _, found := range []map[string]string{{}, {"token_endpoint": "/token"}, {"authorization_endpoint": "/a"}} {
		login := tokenEndpoint{found: found}.login(t)
		_, err := login.Start(t.Context())
		check.Same(t, "start", kindOf(err), wrongSetUp)
		_, _, err = login.Finish(t.Context(), "code", "verifier", "nonce")
		check.Same(t, "finish", kindOf(err), wrongSetUp)
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
