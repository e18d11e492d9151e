package middleware

import "github.com/gin-gonic/gin"

// Headers sets what every answer carries: no guessing of content types, and no URL of ours (it may hold a
// path token) in a Referer. Answers aren't stored by any cache unless the handler overrides Cache-Control.
func Headers() gin.HandlerFunc {
	// All answers share the values: whoever sets or adds to a header gets a slice of its own.
	nosniff, noReferrer, noStore := []string{"nosniff"}, []string{"no-referrer"}, []string{"no-store"}
	return func(c *gin.Context) {
		header := c.Writer.Header()
		header["X-Content-Type-Options"] = nosniff
		header["Referrer-Policy"] = noReferrer
		header["Cache-Control"] = noStore
	}
}
