package auth

import (
	"bytes"
	"crypto"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// provider is an OpenID Connect issuer whose keys a test may change. It answers without a network, so that no request takes
// too long on a busy machine.
type provider struct {
	testing.TB
	http.Handler
	URL   string
	clock time.Time
	keys  map[string]crypto.Signer // by kid
	odd   []json.RawMessage        // keys beside them
	about map[string]any           // members of the discovery document beside the usual ones
	log   bytes.Buffer
	asked atomic.Int64
	away  atomic.Bool
}

func newProvider(t testing.TB) *provider {
	t.Helper()
	p := &provider{TB: t, URL: "https://" + rand.Text(), clock: time.Now().Truncate(time.Second), keys: map[string]crypto.Signer{}}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		document := map[string]any{"issuer": p.URL, "jwks_uri": p.URL + "/keys"}
		maps.Copy(document, p.about)
		_ = json.NewEncoder(w).Encode(document)
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		p.asked.Add(1)
		list := slices.Clone(p.odd)
		for kid, key := range p.keys {
			list = append(list, check.Must(json.Marshal(jose.JSONWebKey{KeyID: kid, Key: key.Public(), Use: "sig"})))
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": list})
	})
	p.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.away.Load() {
			http.Error(w, "away", http.StatusServiceUnavailable)
			return
		}
		mux.ServeHTTP(w, r)
	})
	p.keys["rsa"] = check.Must(rsa.GenerateKey(rand.Reader, 2048))
	return p
}

// providers are the providers that a client reaches, by their URLs.
type providers map[string]*provider

// RoundTrip implements http.RoundTripper.
func (p providers) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	p["https://"+r.URL.Host].ServeHTTP(w, r)
	return w.Result(), nil
}

// tokens returns a checker that accepts the tokens of these providers.
func (p *provider) tokens(more ...*provider) *Tokens {
	tokens, all := NewTokens(tokenSecret, func() time.Time { return p.clock }), providers{}
	tokens.Outside = &Issuers{Audience: "shop", UserClaim: "sub", Client: &http.Client{Transport: all}, Now: func() time.Time { return p.clock }, Log: slog.New(slog.NewTextHandler(&p.log, nil)), Roles: []RoleClaim{
		{model.RoleViewer, "groups", "staff"}, {model.RoleOperator, "groups", "bosses"}, {model.RoleSupport, "job", "support"},
	}}
	for i, one := range append([]*provider{p}, more...) {
		all[one.URL] = one
		tokens.Outside.Add(model.Issuer{Name: one.URL, Prefix: fmt.Sprint("i", i)})
	}
	return tokens
}

// signed returns a token for the user ann with some claims changed; nil removes a claim.
func (p *provider) signed(kid string, changes jwt.MapClaims) string {
	p.Helper()
	claims := jwt.MapClaims{"iss": p.URL, "aud": "shop", "sub": "ann", "exp": p.clock.Add(time.Hour).Unix(), "iat": p.clock.Unix()}
	maps.Copy(claims, changes)
	maps.DeleteFunc(claims, func(_ string, value any) bool { return value == nil })
	methods := map[string]jwt.SigningMethod{"*rsa.PrivateKey": jwt.SigningMethodRS256, "*ecdsa.PrivateKey": jwt.SigningMethodES256, "ed25519.PrivateKey": jwt.SigningMethodEdDSA}
	key := p.keys[kid]
	token := jwt.NewWithClaims(methods[fmt.Sprintf("%T", key)], claims)
	token.Header["kid"] = kid
	return check.Must(token.SignedString(key))
}

// Each algorithm is accepted, and so are several audiences; the user's id and role follow the claims.
func TestTokensOfIssuers(t *testing.T) {
	p, other := newProvider(t), newProvider(t)
	p.keys["ec"] = check.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	_, p.keys["ed"], _ = ed25519.GenerateKey(rand.Reader)
	tokens := p.tokens(other)
	long := strings.Repeat("x", 70)
	for _, tc := range []struct {
		token string
		id    string
		role  model.Role
	}{
		{p.signed("rsa", nil), "i0:ann", model.RoleBuyer},
		{p.signed("ec", nil), "i0:ann", model.RoleBuyer},
		{p.signed("ed", nil), "i0:ann", model.RoleBuyer},
		{other.signed("rsa", nil), "i1:ann", model.RoleBuyer},
		{p.signed("rsa", jwt.MapClaims{"aud": []string{"other", "shop"}}), "i0:ann", model.RoleBuyer},
		{p.signed("rsa", jwt.MapClaims{"role": "operator"}), "i0:ann", model.RoleBuyer},
		{p.signed("rsa", jwt.MapClaims{"groups": []string{"x", "staff"}}), "i0:ann", model.RoleViewer},
		{p.signed("rsa", jwt.MapClaims{"groups": []string{"bosses", "staff"}}), "i0:ann", model.RoleOperator},
		{p.signed("rsa", jwt.MapClaims{"job": "support", "groups": "staff"}), "i0:ann", model.RoleSupport},
		{p.signed("rsa", jwt.MapClaims{"groups": map[string]any{"staff": true}}), "i0:ann", model.RoleBuyer},
		{p.signed("rsa", jwt.MapClaims{"groups": append(slices.Repeat([]string{strings.Repeat("g", 40)}, 250), "staff")}), "i0:ann", model.RoleViewer},
	} {
		check.Same(t, tc.token, check.Must(tokens.Verify(tc.token)), model.Identity{UserID: tc.id, Role: tc.role})
	}
	// Names that are no ids get ids of their own.
	ids := map[string]string{}
	for _, user := range []string{"ann", "ann@shop.example", "ann ", "Ann", "安", long, long + "x", ":ann", "a|b"} {
		who := check.Must(tokens.Verify(p.signed("rsa", jwt.MapClaims{"sub": user})))
		if !model.ValidUserID(who.UserID) || ids[who.UserID] != "" {
			t.Errorf("%q has the id %q, as %q", user, who.UserID, ids[who.UserID])
		}
		ids[who.UserID] = user
	}
}

func TestTokensOfIssuersRefused(t *testing.T) {
	p, stranger := newProvider(t), newProvider(t)
	tokens := p.tokens()
	hour := p.clock.Add(time.Hour).Unix()
	public := string(check.Must(json.Marshal(jose.JSONWebKey{Key: p.keys["rsa"].Public()})))
	stranger.keys["rsa2"] = stranger.keys["rsa"]
	parts := strings.Split(p.signed("rsa", nil), ".")
	for name, token := range map[string]string{
		"an unknown issuer":            stranger.signed("rsa", nil),
		"another's key":                stranger.signed("rsa", jwt.MapClaims{"iss": p.URL}),
		"another's key, unknown":       stranger.signed("rsa2", jwt.MapClaims{"iss": p.URL}),
		"another audience":             p.signed("rsa", jwt.MapClaims{"aud": "other"}),
		"no audience":                  p.signed("rsa", jwt.MapClaims{"aud": nil}),
		"expired":                      p.signed("rsa", jwt.MapClaims{"exp": p.clock.Add(-leeway).Unix()}),
		"without an end":               p.signed("rsa", jwt.MapClaims{"exp": nil}),
		"not valid yet":                p.signed("rsa", jwt.MapClaims{"nbf": hour}),
		"nobody":                       p.signed("rsa", jwt.MapClaims{"sub": ""}),
		"a number for a user":          p.signed("rsa", jwt.MapClaims{"sub": 1}),
		"no user":                      p.signed("rsa", jwt.MapClaims{"sub": nil}),
		"no issuer":                    p.signed("rsa", jwt.MapClaims{"iss": nil}),
		"alg none":                     check.Must(jwt.NewWithClaims(jwt.SigningMethodNone, jwt.MapClaims{"iss": p.URL, "aud": "shop", "sub": "ann", "exp": hour}).SignedString(jwt.UnsafeAllowNoneSignatureType)),
		"HS256 by the public key":      check.Must(jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"iss": p.URL, "aud": "shop", "sub": "ann", "exp": hour}).SignedString([]byte(public))),
		"HS512 by the secret":          check.Must(jwt.NewWithClaims(jwt.SigningMethodHS512, jwt.MapClaims{"sub": "ann", "exp": hour}).SignedString(tokenSecret)),
		"other claims, same signature": parts[0] + "." + encoded(`{"iss":"`+p.URL+`","aud":"shop","sub":"admin","exp":9999999999}`) + "." + parts[2],
		"far too long":                 p.signed("rsa", jwt.MapClaims{"x": strings.Repeat("x", maxOutsideBytes)}),
		"no signature":                 parts[0] + "." + parts[1] + ".",
	} {
		refuses(t, name, tokens, token)
	}
	check.Same(t, "the secret's tokens go on", check.Must(tokens.Verify(forged(jwt.MapClaims{"sub": "u-1", "exp": hour}))).UserID, "u-1")
}

// New keys are found when a token has one, but are asked for at most once in keysPause. Withdrawn keys are forgotten.
func TestIssuersKeysRotate(t *testing.T) {
	p := newProvider(t)
	tokens := p.tokens()
	check.NoError(t, tokens.Outside.Fetch(t.Context()))
	check.Same(t, "asked", p.asked.Load(), int64(1))
	old := p.signed("rsa", nil)
	check.Must(tokens.Verify(old))
	p.clock = p.clock.Add(keysPause)
	p.keys["new"] = check.Must(rsa.GenerateKey(rand.Reader, 2048))
	delete(p.keys, "rsa")
	check.Must(tokens.Verify(p.signed("new", nil)))
	check.Same(t, "asked", p.asked.Load(), int64(2))
	stranger := newProvider(t)
	for i := range 20 {
		refuses(t, "forged", tokens, stranger.signed("rsa", jwt.MapClaims{"iss": p.URL, "n": i}))
	}
	check.Same(t, "asked", p.asked.Load(), int64(2))
	p.clock = p.clock.Add(outsideFresh)
	refuses(t, "a withdrawn key", tokens, old)
}

// A key, or a member of the discovery document, that is not understood costs only itself, and the log says so once.
func TestHole72_OddKeys(t *testing.T) {
	x25519 := base64.RawURLEncoding.EncodeToString(check.Must(ecdh.X25519().GenerateKey(rand.Reader)).PublicKey().Bytes())
	for name, odd := range map[string]string{
		"Ed448":             `{"kty":"OKP","crv":"Ed448","kid":"a","use":"sig","x":"` + x25519 + `"}`,
		"X25519":            `{"kty":"OKP","crv":"X25519","kid":"b","use":"enc","x":"` + x25519 + `"}`,
		"secp256k1":         `{"kty":"EC","crv":"secp256k1","kid":"c","x":"` + x25519 + `","y":"` + x25519 + `"}`,
		"ML-DSA":            `{"kty":"AKP","alg":"ML-DSA-65","kid":"d","pub":"` + x25519 + `"}`,
		"an unknown type":   `{"kty":"new","kid":"e"}`,
		"no type":           `{"kid":"f"}`,
		"a bad certificate": `{"kty":"RSA","kid":"g","n":"AQAB","e":"AQAB","x5c":["not base64"]}`,
		"a number for kid":  `{"kty":"RSA","kid":7,"n":"AQAB","e":"AQAB"}`,
		"a secret":          `{"kty":"oct","kid":"h","k":"AQAB"}`,
		"a text":            `"key"`,
		"nothing":           `null`,
	} {
		t.Run(name, func(t *testing.T) {
			p := newProvider(t)
			p.odd = []json.RawMessage{json.RawMessage(odd)}
			p.about = map[string]any{"authorization_endpoint": 7, "token_endpoint": []string{"a"}, "token_endpoint_auth_methods_supported": "none", "claims_supported": "all"}
			tokens := p.tokens()
			check.Same(t, "user", check.Must(tokens.Verify(p.signed("rsa", nil))).UserID, "i0:ann")
			p.clock = p.clock.Add(keysPause)
			p.keys["new"] = check.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
			check.Same(t, "user, by a new key", check.Must(tokens.Verify(p.signed("new", nil))).UserID, "i0:ann")
			check.Same(t, "keys were asked for", p.asked.Load(), int64(2))
			if lines := strings.Count(p.log.String(), "does not understand"); lines > 1 || lines == 0 && name != "a secret" && name != "nothing" {
				t.Errorf("the log has %d lines: %s", lines, &p.log)
			}
		})
	}
	p := newProvider(t)
	p.keys, p.odd = nil, []json.RawMessage{json.RawMessage(`{"kty":"new"}`)}
	if err := p.tokens().Outside.Fetch(t.Context()); err == nil || !strings.Contains(err.Error(), "no keys") || !strings.Contains(err.Error(), "unsupported key type") {
		t.Errorf("no key is understood: %v", err)
	}
}

// An issuer with another name is told apart from one that is away.
func TestIssuerWithAnotherName(t *testing.T) {
	p := newProvider(t)
	p.about = map[string]any{"issuer": p.URL + "/"}
	err := p.tokens().Outside.Fetch(t.Context())
	check.Error(t, "a slash more", err, ErrOtherIssuer)
	check.Same(t, "the name is in "+err.Error(), strings.Contains(err.Error(), p.URL+`/"`), true)
	p.away.Store(true)
	if err := p.tokens().Outside.Fetch(t.Context()); err == nil || errors.Is(err, ErrOtherIssuer) {
		t.Errorf("away: %v", err)
	}
}

// Users by other claims than sub.
func TestUsersByOtherClaims(t *testing.T) {
	for _, tc := range []struct {
		claim  string
		claims jwt.MapClaims
		want   string // empty: refused
	}{
		{"uid", jwt.MapClaims{"uid": "ann"}, "i0:ann"},
		{"uid", jwt.MapClaims{"uid": json.Number("12345678901234567891")}, "i0:12345678901234567891"},
		{"uid", jwt.MapClaims{"uid": true}, ""},
		{"uid", jwt.MapClaims{"uid": []string{"ann"}}, ""},
		{"email", jwt.MapClaims{"email": "Ann@Shop.example"}, "of ann@shop.example"},
		{"email", jwt.MapClaims{"email": "ann@shop.example", "email_verified": true}, "of ann@shop.example"},
		{"email", jwt.MapClaims{"email": "ann@shop.example", "email_verified": "true"}, "of ann@shop.example"},
		{"email", jwt.MapClaims{"email": "ann@shop.example", "email_verified": false}, ""},
		{"email", jwt.MapClaims{"email": "ann@shop.example", "email_verified": "false"}, ""},
		{"email", nil, ""},
	} {
		p := newProvider(t)
		tokens := p.tokens()
		tokens.Outside.UserClaim = tc.claim
		who, err := tokens.Verify(p.signed("rsa", tc.claims))
		if name, ok := strings.CutPrefix(tc.want, "of "); ok {
			tc.want = tokens.Outside.all[p.URL].userID(name)
		}
		check.Same(t, fmt.Sprint(tc.claims), who.UserID, tc.want)
		check.Same(t, fmt.Sprint(tc.claims, " is refused"), err != nil, tc.want == "")
	}
}

// While an issuer is away, its keys hold for a day. Without any, whether a token is valid can't be told.
func TestIssuerIsAway(t *testing.T) {
	p := newProvider(t)
	p.away.Store(true)
	tokens := p.tokens()
	if err := tokens.Outside.Fetch(t.Context()); err == nil {
		t.Error("there are no keys, and no error")
	}
	ann := func() (model.Identity, error) {
		return tokens.Verify(p.signed("rsa", jwt.MapClaims{"exp": p.clock.Add(time.Hour).Unix(), "at": p.clock.UnixNano()}))
	}
	if _, err := ann(); !errors.Is(err, model.ErrUnavailable) {
		t.Error(err)
	}
	p.away.Store(false)
	p.clock = p.clock.Add(keysPause)
	check.Must(ann())
	p.away.Store(true)
	p.clock = p.clock.Add(keysMost - time.Minute)
	check.Must(ann())
	stranger := newProvider(t)
	for range 2 {
		_, err := tokens.Verify(stranger.signed("rsa", jwt.MapClaims{"iss": p.URL}))
		check.Error(t, "a key that is new or forged, while nobody can tell", err, model.ErrUnavailable)
	}
	p.clock = p.clock.Add(2 * time.Minute)
	if _, err := ann(); !errors.Is(err, model.ErrUnavailable) {
		t.Error(err)
	}
}

// Tokens that were checked are not checked again, as long as they are fresh.
func TestTokensOfIssuersAreKept(t *testing.T) {
	p := newProvider(t)
	tokens := p.tokens()
	token := p.signed("rsa", jwt.MapClaims{"exp": p.clock.Add(2 * time.Minute).Unix()})
	check.Must(tokens.Verify(token))
	p.away.Store(true)
	p.keys = nil
	p.clock = p.clock.Add(2*time.Minute + leeway - 1)
	check.Must(tokens.Verify(token))
	p.clock = p.clock.Add(1)
	refuses(t, "expired", tokens, token)
}
