package app_test

import (
	"crypto/rand"
	"crypto/rsa"
	"net"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/oauth2-proxy/mockoidc"

	"flashsale/internal/config"
	"flashsale/test/kit/check"
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
	t.Cleanup(func() { check.NoError(t, m.Shutdown()) })
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
		shop.token("eve", jwt.MapClaims{"exp": time.Now().Add(-time.Minute).Unix()}), newIssuer(t).token("eve", aud),
	} {
		s.holding(token).call("GET", "/api/v1/orders", nil).refused(401, "unauthenticated")
	}
	s.buyer("dora").buy(sale.ID, 1) // tokens by the shared secret go on
}
