package middleware

import (
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/model"
)

// state is the data that the stages of one request pass to each other and to the handler. It wraps gin's writer, and costs one
// allocation. gin's own map of keys would cost three allocations and half a microsecond, a twentieth of the time of a refusal.
type state struct {
	gin.ResponseWriter
	requestID [1]string // an array, so that the header's value can be a slice of it
	identity  model.Identity
	signed    bool // the request has a right signature
	frequency model.Frequency
	refusal   Refusal // without a verdict: the request was not refused
	began     time.Time
	lap       time.Time // the last call of Lap, or else Begin
	took      time.Duration
	over      bool // took is set
	sampled   bool // the stages of the request are to be timed
}

// stateOf returns the request's state, empty at first. A stage that wraps the writer again would hide the state.
func stateOf(c *gin.Context) *state {
	if s, ok := c.Writer.(*state); ok {
		return s
	}
	s := &state{ResponseWriter: c.Writer}
	c.Writer = s
	return s
}

// Unwrap returns gin's writer, for http.ResponseController.
func (s *state) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// Begin records when the request came in, unless an outer stage has already recorded that.
func Begin(c *gin.Context, now func() time.Time) {
	if s := stateOf(c); s.began.IsZero() {
		s.began = now()
		s.lap = s.began
	}
}

// Took returns the time from Begin to the first call of Took, by the innermost stage that calls it. Later calls return the same
// time without reading the clock.
func Took(c *gin.Context, now func() time.Time) time.Duration {
	s := stateOf(c)
	if !s.over {
		s.took, s.over = now().Sub(s.began), true
	}
	return s.took
}

// Sample marks the request, so that its stages are timed.
func Sample(c *gin.Context) { stateOf(c).sampled = true }

func Sampled(c *gin.Context) bool { return stateOf(c).sampled }

// Lap returns the time from the last call of Lap, or else from Begin, to now. The end of a stage is the beginning of the next, so
// one clock reading is enough for both.
func Lap(c *gin.Context, now time.Time) time.Duration {
	s := stateOf(c)
	took := now.Sub(s.lap)
	s.lap = now
	return took
}
