package middleware

import (
	"crypto/rand"
	"regexp"

	"github.com/gin-gonic/gin"
)

const requestIDHeader = "X-Request-ID"

// requestID is what a client or proxy may choose as an id: anything longer or stranger would let it
// write into the logs.
var requestID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// RequestID gives each request an id, which its answer carries in X-Request-ID: the one it came with, if
// that is 1 to 64 of A-Z a-z 0-9 . _ -, else a new one.
func RequestID() gin.HandlerFunc {
	return func(c *gin.Context) {
		id := c.GetHeader(requestIDHeader)
		if !requestID.MatchString(id) {
			id = rand.Text()
		}
		c.Set(requestIDKey, id)
		c.Header(requestIDHeader, id)
	}
}

// RequestIDOf gives the request's id; empty if RequestID did not run.
func RequestIDOf(c *gin.Context) string { return valueOf[string](c, requestIDKey) }
