package middleware

import (
	"slices"
	"strings"
	"time"

	"github.com/gin-contrib/cors"
	"github.com/gin-gonic/gin"
)

const preflightAge = 10 * time.Minute // how long a browser may remember that an origin is allowed

// exposedHeaders are headers of answers that pages of other origins may read.
var exposedHeaders = []string{"Content-Language", "ETag", "Idempotent-Replayed", "Location", "Retry-After", "X-Request-ID"}

// Origins lets pages of these exact origins call /api/v1/ from a browser, except /api/v1/admin/. Requests need no cookies, so
// credentials are not allowed.
func Origins(allowed []string) gin.HandlerFunc {
	admit := cors.New(cors.Config{
		AllowOrigins: allowed, AllowMethods: []string{"GET", "HEAD", "POST", "DELETE"},
		AllowHeaders: []string{
			"Accept-Language", "Authorization", "Content-Type", "Idempotency-Key", "If-None-Match", "Last-Event-ID",
			"Line-Ticket", "Prefer", "X-Request-ID",
		},
		ExposeHeaders: exposedHeaders, MaxAge: preflightAge,
	})
	return func(c *gin.Context) {
		path := c.Request.URL.Path
		if !strings.HasPrefix(path, "/api/v1/") || strings.HasPrefix(path, "/api/v1/admin/") {
			return
		}
		if origin := c.Request.Header["Origin"]; len(origin) == 1 && slices.Contains(allowed, origin[0]) {
			admit(c)
			return
		}
		// A cache must not give this answer, without the headers of CORS, to a page of an allowed origin.
		c.Writer.Header()["Vary"] = []string{"Origin"}
	}
}

// AnyOrigin lets pages of every origin read an answer, so that a cached answer does not depend on the origin. It comes after
// Origins, whose headers it replaces.
func AnyOrigin() gin.HandlerFunc {
	everyone, exposed := []string{"*"}, []string{strings.Join(exposedHeaders, ", ")}
	return func(c *gin.Context) {
		header := c.Writer.Header()
		header["Access-Control-Allow-Origin"] = everyone
		header["Access-Control-Expose-Headers"] = exposed
		delete(header, "Vary")
	}
}
