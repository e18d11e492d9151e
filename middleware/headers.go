package middleware

import (
	"strings"

	"github.com/gin-gonic/gin"
)

// Headers sets headers that protect clients. Browsers must not guess content types, nor send a URL as Referer, since it may
// contain a path token. Caches must not store an answer unless its handler overrides Cache-Control.
//
// An answer that is not of a route below /api/ may be shown as a page. Other sites must not show it in a frame, and it loads
// nothing unless its handler overrides Content-Security-Policy.
func Headers() gin.HandlerFunc {
	// All answers share these slices. Set replaces a slice, and Add copies it, since its capacity is used up.
	nosniff, noReferrer, noStore := []string{"nosniff"}, []string{"no-referrer"}, []string{"no-store"}
	deny, nothing := []string{"DENY"}, []string{"default-src 'none'; frame-ancestors 'none'"}
	return func(c *gin.Context) {
		header := c.Writer.Header()
		header["X-Content-Type-Options"] = nosniff
		header["Referrer-Policy"] = noReferrer
		header["Cache-Control"] = noStore
		if !strings.HasPrefix(c.FullPath(), "/api/") {
			header["X-Frame-Options"] = deny
			header["Content-Security-Policy"] = nothing
		}
	}
}

// HeaderOf returns the first value of a request header, or "". The name must be in canonical form, which saves a conversion.
func HeaderOf(c *gin.Context, name string) string {
	if values := c.Request.Header[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}
