package middleware

import (
	"strings"

	"github.com/gin-gonic/gin"
)

// Headers sets headers that protect clients. Browsers must not guess content types, and must not send our URLs as Referer, since
// a URL may contain a path token. Caches must not store an answer unless its handler overrides Cache-Control.
//
// Answers outside of the API may be shown as pages. Other sites may not show them in a frame, where they could trick visitors
// into pressing buttons. Such a page loads nothing unless its handler sets another Content-Security-Policy. Answers of the API's
// routes have neither that header nor X-Frame-Options. These would not protect them: such answers are not shown as pages, and are
// either public or only for a client that sends a secret or a signature.
func Headers() gin.HandlerFunc {
	// All answers share these slices, and nothing writes into them: Set replaces a slice, and Add copies these, which are full.
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

// HeaderOf returns the first value of a request header, or "". The name must be in the canonical form, to which gin's GetHeader
// would first have to convert it.
func HeaderOf(c *gin.Context, name string) string {
	if values := c.Request.Header[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}
