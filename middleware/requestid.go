package middleware

import (
	"crypto/rand"
	"encoding/binary"
	"sync/atomic"

	"github.com/gin-gonic/gin"
)

const (
	requestIDHeader = "X-Request-Id" // in canonical form, for direct access to the map of headers
	maxRequestID    = 64
	// base32 is the alphabet of rand.Text, and of both halves of a request's id.
	base32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
	halfID = 13 // characters in each half: 64 bits, 5 in each character
)

// RequestID gives each request an id and sets it in the answer's X-Request-ID header. If the request brings an id of 1
// to 64 characters of A-Z a-z 0-9 . _ -, that id is kept, otherwise a new one is made. New ids are unique, but not
// secret.
func RequestID() gin.HandlerFunc {
	made := newRequestIDs()
	return func(c *gin.Context) {
		id := HeaderOf(c, requestIDHeader)
		if !validRequestID(id) {
			id = made.next()
		}
		s := stateOf(c)
		s.requestID[0] = id
		s.Header()[requestIDHeader] = s.requestID[:]
	}
}

// RequestIDOf returns the request's id, or "" if RequestID did not run.
func RequestIDOf(c *gin.Context) string { return stateOf(c).requestID[0] }

// validRequestID reports whether a client or proxy may choose this id. With longer ids or other characters, clients
// could write arbitrary text into the logs.
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

// requestIDs makes ids of two halves: a random one of this process, and a counter.
type requestIDs struct {
	prefix [halfID]byte
	count  atomic.Uint64
}

func newRequestIDs() *requestIDs {
	ids := &requestIDs{}
	copy(ids.prefix[:], rand.Text())
	var start [8]byte
	_, _ = rand.Read(start[:]) // never fails; the random start hides how many ids were made before
	ids.count.Store(binary.LittleEndian.Uint64(start[:]))
	return ids
}

func (ids *requestIDs) next() string {
	var id [2 * halfID]byte
	copy(id[:], ids.prefix[:])
	// Multiplication by an odd factor maps 64 bits one to one. It makes consecutive ids look different, so that people
	// can tell them apart more easily.
	n := ids.count.Add(1) * 0x9E3779B97F4A7C15
	for i := range halfID {
		id[halfID+i] = base32[n&31]
		n >>= 5
	}
	return string(id[:])
}
