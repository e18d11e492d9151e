package middleware

import (
	"math/rand/v2"
	"strings"

	"github.com/gin-gonic/gin"

	"flashsale/model"
)

const requestIDHeader = "X-Request-Id" // in canonical form, for direct access to the map of headers

// RequestID gives each request an id, and sets it in the answer's X-Request-ID header. An id that the request brings is kept if
// it has 1 to 64 characters of A-Z a-z 0-9 . _ -. Otherwise a random one is made, which is not secret.
func RequestID() gin.HandlerFunc {
	return func(c *gin.Context) {
		id := HeaderOf(c, requestIDHeader)
		if !validRequestID(id) {
			id = newRequestID()
		}
		s := stateOf(c)
		s.requestID[0] = id
		s.Header()[requestIDHeader] = s.requestID[:]
	}
}

// RequestIDOf returns the request's id, or "" if RequestID did not run.
func RequestIDOf(c *gin.Context) string { return stateOf(c).requestID[0] }

// validRequestID reports whether a request may bring this id. Other ids could put arbitrary text into the logs.
func validRequestID(id string) bool {
	return model.ValidUserID(id) && !strings.Contains(id, ":")
}

// newRequestID returns 128 random bits in characters of base32.
func newRequestID() string {
	const alphabet, half = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 13
	var id [2 * half]byte
	for i := 0; i < len(id); i += half {
		bits := rand.Uint64() //nolint:gosec // an id is not secret
		for j := range half {
			id[i+j] = alphabet[bits&31]
			bits >>= 5
		}
	}
	return string(id[:])
}
