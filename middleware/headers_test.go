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
