package middleware

import (
	"crypto/rand"
	"encoding/binary"
	"sync/atomic"

	"github.com/gin-gonic/gin"
)

const (
	requestIDHeader = "X-Request-Id" // in Go's spelling, so that the map of headers can be asked
	maxRequestID    = 64
	// base32 is the alphabet of rand.Text, in which an id's two halves have halfID letters each.
	base32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
	halfID = 13 // 64 bits, 5 a letter
)

// RequestID gives each request an id, which its answer carries in X-Request-ID: the one it came with, if
// that is 1 to 64 of A-Z a-z 0-9 . _ -, else a new one. A new one differs from all others; it is no secret.
func RequestID() gin.HandlerFunc {
	made := newRequestIDs()
	return func(c *gin.Context) {
		id := ""
		if given := c.Request.Header[requestIDHeader]; len(given) > 0 {
			id = given[0]
		}
		if !validRequestID(id) {
			id = made.next()
		}
		s := stateOf(c)
		s.requestID[0] = id
		s.Header()[requestIDHeader] = s.requestID[:]
	}
}

// RequestIDOf gives the request's id; empty if RequestID did not run.
func RequestIDOf(c *gin.Context) string { return stateOf(c).requestID[0] }

// validRequestID tells what a client or proxy may choose as an id: anything longer or stranger would let it
// write into the logs.
func validRequestID(id string) bool {
	if id == "" || len(id) > maxRequestID {
		return false
	}
	for _, b := range []byte(id) {
		switch {
		case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b && b <= '9', b == '.', b == '_', b == '-':
		default:
			return false
		}
	}
	return true
}

// requestIDs makes ids: a half that is the process's own, at random, and a half that counts.
type requestIDs struct {
	prefix [halfID]byte
	count  atomic.Uint64
}

func newRequestIDs() *requestIDs {
	ids := &requestIDs{}
	copy(ids.prefix[:], rand.Text())
	var start [8]byte
	_, _ = rand.Read(start[:]) // it never fails, and a client can't tell how many came before it
	ids.count.Store(binary.LittleEndian.Uint64(start[:]))
	return ids
}

func (ids *requestIDs) next() string {
	var id [2 * halfID]byte
	copy(id[:], ids.prefix[:])
	// An odd factor maps 64 bits one to one, and takes neighbours far apart: ids are easier told by eye.
	n := ids.count.Add(1) * 0x9E3779B97F4A7C15
	for i := range halfID {
		id[halfID+i] = base32[n&31]
		n >>= 5
	}
	return string(id[:])
}
