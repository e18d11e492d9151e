//go:build bench && linux

package bench

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"

	"flashsale/test/kit/check"
	"flashsale/test/kit/shop"
)

// mostIntegrated is what purchases may lose by an issuer's tokens and an endpoint that hears of every order.
const mostIntegrated = 0.05

// integrated compares purchases of an issuer's customers, by RS256, while an endpoint hears of every order, with purchases
// on an engine that has neither.
func integrated(t *testing.T, b *run, r *Result) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	check.NoError(t, err)
	keys, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k", Algorithm: "RS256", Use: "sig"}}})
	check.NoError(t, err)
	var heard atomic.Int64
	outside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = w.Write(keys)
			return
		}
		n, _ := io.Copy(io.Discard, r.Body)
		heard.Add(n)
	}))
	t.Cleanup(outside.Close)

	plain := start(t, r, false)
	plain.sale(manyUnits, manyEach)
	e := start(t, r, false, "--issuer-name=shop=bench", "--jwks="+outside.URL, "--audience=flashsale", "--webhook-private")
	e.prefix = "shop:"
	e.sign = func(user string) string {
		token := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.MapClaims{
			"iss": "bench", "aud": "flashsale", "sub": user, "exp": time.Now().Add(validity).Unix(),
		})
		token.Header["kid"] = "k"
		text, err := token.SignedString(key)
		check.NoError(t, err)
		return text
	}
	e.Must(http.StatusCreated, "POST", e.url+"/api/v1/admin/endpoints", e.Operator(e.url), shop.Document{"url": outside.URL})
	e.sale(manyUnits, manyEach)
	turns := func(e *engine) turn {
		e.status = http.StatusCreated
		return e.under(wrk(t, buyers, wrkConnections, false, func(i int) string { return e.purchase(e.sales[0], i) })(e.url), wrkConnections)
	}
	b.compare(r, turns(plain), turns(e))
	r.note("control: the engine with tokens of its own and without an endpoint; the endpoint, at its usual rate of 1,000 events a second, and the control's stores are on the same machine")
	r.least(r.ratio(), 1-mostIntegrated, "")
	if heard.Load() == 0 {
		r.void("the endpoint heard of nothing")
	}
	e.check()
	plain.check()
}
