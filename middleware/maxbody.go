package middleware

import (
	"net/http"

	"github.com/gin-gonic/gin"
)

// MaxBody lets a handler read at most "most" bytes of a request's body, or more if "longer" has a higher bound for the route. A
// read beyond the bound returns an *http.MaxBytesError.
func MaxBody(most int64, longer map[string]int64) gin.HandlerFunc {
	return func(c *gin.Context) {
		most := max(most, longer[c.FullPath()])
		// A body with an announced length up to the bound needs no reader: net/http returns no more than that length.
		if announced := c.Request.ContentLength; announced < 0 || announced > most {
			c.Request.Body = http.MaxBytesReader(c.Writer, c.Request.Body, most)
		}
	}
}
