package middleware

import (
	"net/http"

	"github.com/gin-gonic/gin"
)

// MaxBody bounds how many bytes a handler may read of a request's body, whether the handler decodes JSON, a form or multipart,
// and whatever length was announced: to "most" or, if the route is in "longer" with a higher bound, to that bound. A read beyond
// the bound returns an http.MaxBytesError. A handler with a lower bound checks its bound itself.
func MaxBody(most int64, longer map[string]int64) gin.HandlerFunc {
	return func(c *gin.Context) {
		most := max(most, longer[c.FullPath()])
		// A body with an announced length up to the bound needs no reader: net/http returns no more than that length.
		if announced := c.Request.ContentLength; announced < 0 || announced > most {
			c.Request.Body = http.MaxBytesReader(c.Writer, c.Request.Body, most)
		}
	}
}
