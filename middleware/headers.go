package middleware

import "github.com/gin-gonic/gin"

// Headers sets what every answer carries: no guessing of content types, and no URL of ours (it may hold a
// path token) in a Referer. Answers aren't stored by any cache unless the handler overrides Cache-Control.
func Headers() gin.HandlerFunc {
	return func(c *gin.Context) {
		c.Header("X-Content-Type-Options", "nosniff")
		c.Header("Referrer-Policy", "no-referrer")
		c.Header("Cache-Control", "no-store")
	}
}
