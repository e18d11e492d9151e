package middleware

import (
	"testing"

	"github.com/gin-gonic/gin"

	"flashsale/test/kit/check"
)

// A page can't be framed. An answer of the API is not shown as a page, and has no such headers.
func TestHeadersOfPages(t *testing.T) {
	const bare, own = "default-src 'none'; frame-ancestors 'none'", "default-src 'none'; style-src 'unsafe-inline'"
	type test struct{ route, policy, frame, cache string }
	engine := newEngine(Headers())
	for _, route := range []string{"/bare", "/api/v1/time", "/apiary", "/apis/v1"} {
		engine.GET(route, func(*gin.Context) {})
	}
	engine.GET("/own", func(c *gin.Context) {
		c.Header("Content-Security-Policy", own)
		c.Header("Cache-Control", "max-age=5")
	})
	check.Each(t, map[string]test{
		"a page":                   {"/bare", bare, "DENY", "no-store"},
		"a page with own headers":  {"/own", own, "DENY", "max-age=5"},
		"no page":                  {"/nowhere", bare, "DENY", "no-store"},
		"the API":                  {"/api/v1/time", "", "", "no-store"},
		"a name like the API's":    {"/apiary", bare, "DENY", "no-store"},
		"a page below such a name": {"/apis/v1", bare, "DENY", "no-store"},
	}, func(t *testing.T, tc test) {
		r := newRequest(t)
		r.URL.Path = tc.route
		header := serve(engine, r).Header()
		for name, want := range map[string]string{
			"Content-Security-Policy": tc.policy, "X-Frame-Options": tc.frame, "Cache-Control": tc.cache,
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
		} {
			check.Same(t, name, header.Get(name), want)
		}
	})
}
