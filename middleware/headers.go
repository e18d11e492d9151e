package middleware

import (
	"strings"

	"github.com/gin-gonic/gin"
)

// apiPrefix begins the routes whose answers no browser shows as a page.
const apiPrefix = "/api/"

// Headers sets what every answer carries: no guessing of content types, and no URL of ours (it may hold a
// path token) in a Referer. Answers aren't stored by any cache unless the handler overrides Cache-Control.
//
// What isn't the API's may be shown in a browser: no other site may frame it, to have its buttons pressed by somebody
// who sees something else, and it loads nothing unless its handler says in Content-Security-Policy what it needs. The
// API is spared the two, which would do nothing for JSON that only a header of its client's unlocks.
func Headers() gin.HandlerFunc {
	// All answers share the values: whoever sets or adds to a header gets a slice of its own.
	nosniff, noReferrer, noStore := []string{"nosniff"}, []string{"no-referrer"}, []string{"no-store"}
	deny, nothing := []string{"DENY"}, []string{"default-src 'none'; frame-ancestors 'none'"}
	return func(c *gin.Context) {
		header := c.Writer.Header()
		header["X-Content-Type-Options"] = nosniff
		header["Referrer-Policy"] = noReferrer
		header["Cache-Control"] = noStore
		if !strings.HasPrefix(c.FullPath(), apiPrefix) {
			header["X-Frame-Options"] = deny
			header["Content-Security-Policy"] = nothing
		}
	}
}
