package middleware

import (
	"net/http"

	"github.com/gin-gonic/gin"
)

// MaxBody bounds what a handler may read of a request's body to most bytes, whether the handler decodes JSON, a form or
// multipart, and whatever length was announced. A read beyond most returns an http.MaxBytesError. A handler with a
// lower bound checks its bound itself. longer has the bounds of routes that may read more, by their paths.
func MaxBody(most int64, longer map[string]int64) gin.HandlerFunc {
	return func(c *gin.Context) {
		most := max(most, longer[c.FullPath()])
		// An announced length up to most needs no reader: net/http returns no more than that length.
		if announced := c.Request.ContentLength; announced < 0 || announced > most {
			c.Request.Body = http.MaxBytesReader(c.Writer, c.Request.Body, most)
		}
	}
}
