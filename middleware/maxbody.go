package middleware

import (
	"net/http"

	"github.com/gin-gonic/gin"
)

// MaxBody lets no handler read more than most bytes of a request's body, whether it decodes JSON, a form or parts, and
// whatever length was announced: behind them comes an http.MaxBytesError. A handler that takes less says so itself.
func MaxBody(most int64) gin.HandlerFunc {
	return func(c *gin.Context) {
		if announced := c.Request.ContentLength; announced < 0 || announced > most { // net/http gives no byte more
			c.Request.Body = http.MaxBytesReader(c.Writer, c.Request.Body, most)
		}
	}
}
