package app_test

import (
	"slices"
	"strings"
	"testing"

	"flashsale/internal/config"
	"flashsale/test/kit/check"
)

// Pages of the shop's own origin call the API from the browser, and the stream of the stock too. Those of other origins
// can't read anything, and nobody's can call the operators' part.
func TestOrigins(t *testing.T) {
	t.Parallel()
	const shop, other = "https://shop.example", "https://shop.example.evil.example"
	s := start(t, func(c *config.Settings) { c.AllowOrigins = []string{shop} })
	saleID := s.createSale(nil).ID
	from := func(origin string) *client { return s.buyer("ann").with("Origin", origin) }
	allowed := func(a *answer) string {
		t.Helper()
		if a.header.Get("Access-Control-Allow-Origin") == "*" {
			check.Same(t, a.what+": may be kept", a.header.Get("Cache-Control"), "public, max-age=1")
			return "*"
		}
		if !slices.Contains(a.header.Values("Vary"), "Origin") {
			t.Errorf("%s: Vary is %q", a.what, a.header.Values("Vary"))
		}
		if a.header.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%s: credentials are allowed", a.what)
		}
		return a.header.Get("Access-Control-Allow-Origin")
	}
	url := "/api/v1/sales/" + saleID
	for origin, want := range map[string]string{shop: shop, other: "", "http://shop.example": "", "null": "", "HTTPS://SHOP.EXAMPLE": ""} {
		for _, path := range []string{"/api/v1/sales", url} { // caches keep these for everybody
			check.Same(t, path+" of "+origin, allowed(from(origin).call("GET", path, nil)), "*")
		}
		for _, path := range []string{"/api/v1/time", "/api/v1/orders", "/api/v1/orders/none"} {
			if got := allowed(from(origin).call("GET", path, nil)); got != want {
				t.Errorf("%s of %s: allowed is %q", path, origin, got)
			}
		}
		stream := from(origin).listen(url + "/events")
		stream.next()
		if got := stream.header.Get("Access-Control-Allow-Origin"); got != want {
			t.Errorf("the stream of %s: allowed is %q", origin, got)
		}
	}
	preflight := from(shop).call("OPTIONS", url+"/path", nil, "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization,idempotency-key").want(204)
	if allowed(preflight) != shop || preflight.header.Get("Access-Control-Max-Age") != "600" ||
		!strings.Contains(preflight.header.Get("Access-Control-Allow-Headers"), "Idempotency-Key") {
		t.Errorf("the preflight answers %v", preflight.header)
	}
	from(other).call("OPTIONS", url+"/path", nil, "Access-Control-Request-Method", "POST").want(405)
	if got := s.operator().with("Origin", shop).call("GET", adminSales, nil).header.Get("Access-Control-Allow-Origin"); got != "" {
		t.Errorf("the operators' part allows %q", got)
	}
	from(shop).buy(saleID, 1)
}
