package app_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/oauth2-proxy/mockoidc"

	"flashsale/internal/config"
	"flashsale/test/kit/check"
	"flashsale/test/kit/pace"
)

// issuer is the shop's own OpenID Connect provider.
type issuer struct {
	*mockoidc.MockOIDC
	t testing.TB
}

func newIssuer(t testing.TB) issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048) // the library's own servers all have the same one
	check.NoError(t, err)
	m, err := mockoidc.NewServer(key)
	check.NoError(t, err)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	check.NoError(t, err)
	check.NoError(t, m.Start(listener, nil))
	t.Cleanup(func() { _ = m.Shutdown() })
	return issuer{m, t}
}

// token returns a token of a user with more claims.
func (i issuer) token(user string, more jwt.MapClaims) string {
	i.t.Helper()
	claims := jwt.MapClaims{"iss": i.Issuer(), "aud": i.Config().ClientID, "sub": user, "exp": time.Now().Add(time.Hour).Unix()}
	for name, value := range more {
		claims[name] = value
	}
	token, err := i.Keypair.SignJWT(claims)
	check.NoError(i.t, err)
	return token
}

// Customers and operators of the shop's own issuer buy and work with its tokens. Two issuers never share a user, and only a
// claim that the settings name makes an operator.
func TestIssuer(t *testing.T) {
	t.Parallel()
	pace.Try(t, func(t *pace.Trial) {
		shop, partner := newIssuer(t), newIssuer(t)
		s := start(t, func(c *config.Settings) {
			c.Issuers = []string{"shop=" + shop.Issuer(), "partner=" + partner.Issuer()}
			c.Audience, c.OperatorClaim, c.SupportClaim = shop.Config().ClientID, "groups=bosses", "groups=desk"
		})
		aud := jwt.MapClaims{"aud": shop.Config().ClientID}
		boss := s.holding(shop.token("olga", jwt.MapClaims{"groups": []string{"all", "bosses"}}))
		var sale operatorSale
		boss.call("POST", adminSales, newSale(fields{"quota": 5, "limit_per_user": 1})).want(201).read(&sale)

		ann, other := s.holding(shop.token("ann", nil)), s.holding(partner.token("ann", aud))
		order := ann.buy(sale.ID, 1)
		other.call("GET", "/api/v1/orders/"+order.ID, nil).refused(404, "not_found")
		other.buy(sale.ID, 1) // the limit of the other ann is her own
		s.holding(shop.token("ann@shop.example", nil)).buy(sale.ID, 1)
		boss.get(adminSales+"/"+sale.ID+"/orders").contains(`"shop:ann"`, `"partner:ann"`, `"shop::`)

		desk := s.holding(partner.token("support", jwt.MapClaims{"aud": aud["aud"], "groups": "desk"}))
		desk.call("POST", "/api/v1/admin/orders/"+order.ID+"/cancel", nil).want(200)
		boss.get(adminSales+"/"+sale.ID+"/operations").contains(`"shop:olga"`, `"partner:support"`)
		for _, claims := range []jwt.MapClaims{{"role": "operator"}, {"groups": []string{"Bosses"}}} {
			s.holding(shop.token("eve", claims)).call("GET", adminSales, nil).refused(403, "forbidden")
		}
		for _, token := range []string{
			shop.token("eve", jwt.MapClaims{"aud": "other"}), shop.token("eve", jwt.MapClaims{"iss": partner.Issuer()}),
			shop.token("eve", jwt.MapClaims{"exp": time.Now().Add(-2 * time.Minute).Unix()}), newIssuer(t).token("eve", aud),
		} {
			s.holding(token).call("GET", "/api/v1/orders", nil).refused(401, "unauthenticated")
		}
		s.buyer("dora").buy(sale.ID, 1) // tokens by the shared secret go on
	})
}

// authorize asks the issuer for a code as a browser does, and returns the code.
func (i issuer) authorize(start map[string]any, challenge, nonce string) (code string) {
	i.t.Helper()
	query := url.Values{
		"response_type": {"code"}, "client_id": {start["client_id"].(string)}, "redirect_uri": {start["redirect_url"].(string)},
		"scope": {"openid profile"}, "code_challenge": {challenge}, "code_challenge_method": {"S256"}, "state": {"s"}, "nonce": {nonce},
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	request := check.Must(http.NewRequestWithContext(i.t.Context(), "GET", start["authorization_url"].(string)+"?"+query.Encode(), nil))
	response := check.Must(client.Do(request))
	check.NoError(i.t, response.Body.Close())
	back := check.Must(response.Location())
	if !strings.HasPrefix(back.String(), start["redirect_url"].(string)+"?") {
		i.t.Fatalf("the issuer leads to %s", back)
	}
	return back.Query().Get("code")
}

// verifier is what a page keeps of a log-in.
var verifier = strings.Repeat("v", 43)

// codeFor logs a user in at the issuer and returns the code. To exchange it, a page needs the variable verifier and the nonce
// "nonce".
func (i issuer) codeFor(s *server, user string) string {
	var login struct{ Issuer map[string]any }
	s.anyone().get("/api/v1/login").read(&login)
	sum := sha256.Sum256([]byte(verifier))
	i.QueueUser(&mockoidc.MockUser{Subject: "id of " + user, PreferredUsername: user})
	return i.authorize(login.Issuer, base64.RawURLEncoding.EncodeToString(sum[:]), "nonce")
}

// logsIn has the pages log people in at the issuer.
func (i issuer) logsIn(c *config.Settings) {
	c.Issuers, c.Audience = []string{"shop=" + i.Issuer()}, "api"
	c.ClientID, c.ClientSecret = i.Config().ClientID, i.Config().ClientSecret
}

// A buyer logs in by a code with PKCE, and buys. A code works once, for whoever has the verifier and the nonce.
func TestLogInByCode(t *testing.T) {
	t.Parallel()
	pace.Try(t, func(t *pace.Trial) {
		shop := newIssuer(t)
		s := start(t, shop.logsIn, func(c *config.Settings) { c.OperatorClaim = "preferred_username=olga" })
		saleID := s.createSale(nil).ID
		as := func(user string) string { return shop.codeFor(s, user) }
		finish := func(code, verifier, nonce string) *answer {
			return s.anyone().call("POST", "/api/v1/sessions/code", fields{"code": code, "verifier": verifier, "nonce": nonce})
		}
		code := as("ann")
		in := finish(code, verifier, "nonce").want(200).contains(`"name":"ann"`, `"role":"buyer"`, `"id":"shop::`)
		s.holding(in.text("token")).buy(saleID, 1)
		finish(code, verifier, "nonce").refused(401, "unauthenticated")
		finish(as("ann"), strings.Repeat("w", 43), "nonce").refused(401, "unauthenticated")
		finish(as("ann"), verifier, "other").refused(401, "unauthenticated")
		for _, wrong := range [][3]string{{"", verifier, "nonce"}, {"code", verifier[1:], "nonce"}, {"code", verifier, ""}} {
			finish(wrong[0], wrong[1], wrong[2]).refused(400, "bad_request") // the issuer need not be asked
		}
		finish("made up", verifier, "nonce").refused(401, "unauthenticated")
		boss := finish(as("olga"), verifier, "nonce").want(200).contains(`"role":"operator"`)
		s.holding(boss.text("token")).get(adminSales)

		usual(t).anyone().get("/api/v1/login").contains(`"issuer":null`)
		usual(t).anyone().call("POST", "/api/v1/sessions/code", fields{"code": "c", "verifier": "v", "nonce": "n"}).refused(404, "not_found")
		left := as("ann")
		check.NoError(t, shop.Shutdown())
		finish(left, verifier, "nonce").refused(503, "unavailable")
	})
}
