package auth

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

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
	tokens map[string]any        // the answer to a code with status 200
	about  any                   // what /userinfo tells the owner of the access token "access"; a status: the refusal
}

func (e tokenEndpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/token":
		if e.asked != nil {
			e.asked(r)
		}
		w.WriteHeader(e.status)
		if e.status == http.StatusOK {
			_ = json.NewEncoder(w).Encode(e.tokens)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"error": e.code})
	case "/userinfo":
		status, refused := e.about.(int)
		if r.Header.Get("Authorization") != "Bearer access" {
			status, refused = http.StatusUnauthorized, true
		}
		if refused {
			http.Error(w, "no", status)
			return
		}
		_ = json.NewEncoder(w).Encode(e.about)
	case "/keys":
		e.keys.ServeHTTP(w, r)
	default:
		_ = json.NewEncoder(w).Encode(e.found)
	}
}

// login returns a log-in at an issuer, which answers by the endpoint.
func (e tokenEndpoint) login(t *testing.T) *Login { return e.at(newProvider(t)) }

// at returns a log-in at this issuer.
func (e tokenEndpoint) at(p *provider) *Login {
	e.keys = p.Handler
	e.found["issuer"], e.found["jwks_uri"] = p.URL, p.URL+"/keys"
	for _, name := range []string{"authorization_endpoint", "token_endpoint", "userinfo_endpoint"} {
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

// completed logs ann in by a token of the issuer with some claims changed.
func completed(t *testing.T, p *provider, kid string, changes jwt.MapClaims, about any, set func(*Issuers)) (who model.Identity, name string, err error) {
	e := tokenEndpoint{about: about, status: http.StatusOK, found: map[string]any{"authorization_endpoint": "/a", "token_endpoint": "/token"}}
	if about != nil {
		e.found["userinfo_endpoint"] = "/userinfo"
	}
	changed := jwt.MapClaims{"nonce": "nonce"}
	maps.Copy(changed, changes)
	e.tokens = map[string]any{"access_token": "access", "token_type": "Bearer", "id_token": p.signed(kid, changed)}
	login := e.at(p)
	set(login.Issuers)
	return login.Finish(t.Context(), "code", "verifier", "nonce")
}

// What the token does not say, the issuer is asked for; what it says counts.
func TestClaimsAtUserInfo(t *testing.T) {
	all := map[string]any{"sub": "ann", "preferred_username": "Ann", "groups": []string{"staff"}, "email": "Ann@Shop.example", "email_verified": true}
	unverified := maps.Clone(all)
	unverified["email_verified"] = "false"
	type row struct {
		claims jwt.MapClaims
		about  any
		by     string // the user claim
		id     string
		role   model.Role
		name   string
		err    error
	}
	check.Each(t, map[string]row{
		"all of them":        {nil, all, "sub", "i0:ann", model.RoleViewer, "Ann", nil},
		"none":               {nil, nil, "sub", "i0:ann", model.RoleBuyer, "i0:ann", nil},
		"the token first":    {jwt.MapClaims{"name": "A.", "groups": []string{"bosses"}}, all, "sub", "i0:ann", model.RoleOperator, "Ann", nil},
		"nothing is missing": {jwt.MapClaims{"name": "A.", "groups": "none", "job": "none"}, all, "sub", "i0:ann", model.RoleBuyer, "A.", nil},
		"a name is missing":  {jwt.MapClaims{"groups": "none", "job": "none"}, all, "sub", "i0:ann", model.RoleBuyer, "Ann", nil},
		"no JSON object":     {nil, "no JSON object", "sub", "i0:ann", model.RoleBuyer, "i0:ann", nil},
		"the user is missing": {
			jwt.MapClaims{"email_verified": true, "name": "A.", "groups": "none", "job": "none"},
			all, "email",
			"i0::" + hashed("ann@shop.example"), model.RoleBuyer, "Ann", nil,
		},
		"another user's":     {nil, map[string]any{"sub": "bob", "groups": "bosses"}, "sub", "i0:ann", model.RoleBuyer, "i0:ann", nil},
		"nobody's":           {nil, map[string]any{"groups": "bosses"}, "sub", "i0:ann", model.RoleBuyer, "i0:ann", nil},
		"by e-mail":          {nil, all, "email", "i0::" + hashed("ann@shop.example"), model.RoleViewer, "Ann", nil},
		"not verified":       {nil, unverified, "email", "", "", "", ErrNotAccepted},
		"verified there":     {jwt.MapClaims{"email": "ann@shop.example", "groups": "none", "job": "none"}, unverified, "email", "", "", "", ErrNotAccepted},
		"empty in the token": {jwt.MapClaims{"preferred_username": "", "groups": nil}, all, "sub", "i0:ann", model.RoleViewer, "Ann", nil},
		"refused there":      {nil, http.StatusForbidden, "email", "", "", "", ErrNotAccepted},
		"away there":         {nil, http.StatusBadGateway, "email", "", "", "", model.ErrUnavailable},
		"away, not needed":   {nil, http.StatusBadGateway, "sub", "i0:ann", model.RoleBuyer, "i0:ann", nil},
		"perhaps verified":   {jwt.MapClaims{"email": "ann@shop.example"}, http.StatusBadGateway, "email", "", "", "", model.ErrUnavailable},
		"never known":        {jwt.MapClaims{"email": "ann@shop.example"}, http.StatusForbidden, "email", "", "", "", ErrNotAccepted},
		"another's verified": {jwt.MapClaims{"email": "bob@shop.example"}, all, "email", "", "", "", ErrNotAccepted},
		"an odd flag":        {jwt.MapClaims{"email": "ann@shop.example", "email_verified": 0}, nil, "email", "", "", "", ErrNotAccepted},
		"no user":            {nil, nil, "email", "", "", "", ErrNotAccepted},
		"another audience":   {jwt.MapClaims{"aud": "other"}, nil, "sub", "", "", "", ErrNotAccepted},
		"another log-in":     {jwt.MapClaims{"nonce": "other"}, nil, "sub", "", "", "", ErrBadToken},
	}, func(t *testing.T, tc row) {
		who, name, err := completed(t, newProvider(t), "rsa", tc.claims, tc.about, func(i *Issuers) { i.UserClaim = tc.by })
		check.Error(t, "log-in", err, tc.err)
		check.Same(t, "the token does not count", errors.Is(err, ErrNotAccepted), errors.Is(tc.err, ErrNotAccepted))
		check.Same(t, "user", []any{who.UserID, who.Role, name}, []any{tc.id, tc.role, tc.name})
	})
}

// A log-in may be signed by a key that is newer than the last look at the issuer's keys, however short ago that was. Its clock may
// be off by less than a minute.
func TestLogInByANewKey(t *testing.T) {
	p := newProvider(t)
	for name, tc := range map[string]struct {
		claim string
		from  time.Duration
		want  error
	}{
		"just over": {"exp", -59 * time.Second, nil}, "over": {"exp", -time.Minute, ErrNotAccepted},
		"soon valid": {"nbf", time.Minute, nil}, "not valid yet": {"nbf", 61 * time.Second, ErrNotAccepted},
	} {
		_, _, err := completed(t, p, "rsa", jwt.MapClaims{tc.claim: p.clock.Add(tc.from).Unix()}, nil, func(*Issuers) {})
		check.Error(t, name, err, tc.want)
	}
	old := p.keys["rsa"]
	p.keys["new"] = check.Must(rsa.GenerateKey(rand.Reader, 2048))
	_, _, err := completed(t, p, "new", nil, nil, func(i *Issuers) {
		fresh := p.keys["new"]
		p.keys = map[string]crypto.Signer{"rsa": old}
		check.NoError(t, i.Fetch(t.Context()))
		p.keys["new"] = fresh
	})
	check.NoError(t, err)
	_, _, err = completed(t, p, "new", nil, nil, func(i *Issuers) {
		p.keys = map[string]crypto.Signer{"rsa": old}
		check.NoError(t, i.Fetch(t.Context()))
		p.Handler.(tokenEndpoint).found["jwks_uri"] = "https://" // nobody is there
		i.Client.Transport.(providers)["https://"] = &provider{Handler: http.NotFoundHandler()}
	})
	check.Error(t, "while the keys are away", err, model.ErrUnavailable)
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

func hashed(user string) string {
	sum := sha256.Sum256([]byte(user))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:20]))
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
