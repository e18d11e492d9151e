package middleware

import (
	"testing"

	"github.com/gin-gonic/gin"
)

func TestHeaders(t *testing.T) {
	tests := map[string]struct {
		stage        gin.HandlerFunc
		cacheControl string
	}{
		"by default":           {func(*gin.Context) {}, "no-store"},
		"the handler's choice": {func(c *gin.Context) { c.Header("Cache-Control", "max-age=5") }, "max-age=5"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := serve(newEngine(t, Headers(), tc.stage), newRequest(t)).Header()
			for header, want := range map[string]string{
				"Cache-Control": tc.cacheControl, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			} {
				if got.Get(header) != want {
					t.Errorf("%s: %q, want %q", header, got.Get(header), want)
				}
			}
		})
	}
}

// What a browser shows can't be framed; JSON isn't shown, and stays as short as it is.
func TestHeadersOfPages(t *testing.T) {
	const bare, own = "default-src 'none'; frame-ancestors 'none'", "default-src 'none'; style-src 'unsafe-inline'"
	tests := map[string]struct{ route, csp, frame string }{
		"a page":                 {"/bare", bare, "DENY"},
		"a page with its own":    {"/own", own, "DENY"},
		"nothing there":          {"/nowhere", bare, "DENY"},
		"the API":                {"/api/v1/time", "", ""},
		"a name like the API's":  {"/apiary", bare, "DENY"},
		"below a name like that": {"/apis/v1", bare, "DENY"},
	}
	engine := newEngine(t, Headers())
	for _, route := range []string{"/bare", "/api/v1/time", "/apiary", "/apis/v1"} {
		engine.GET(route, func(*gin.Context) {})
	}
	engine.GET("/own", func(c *gin.Context) { c.Header("Content-Security-Policy", own) })
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRequest(t)
			r.URL.Path = tc.route
			got := serve(engine, r).Header()
			if csp, frame := got.Get("Content-Security-Policy"), got.Get("X-Frame-Options"); csp != tc.csp || frame != tc.frame {
				t.Errorf("Content-Security-Policy %q, X-Frame-Options %q; want %q, %q", csp, frame, tc.csp, tc.frame)
			}
		})
	}
}
