package middleware

import (
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/model"
)

// state is what the stages of one request leave for each other and for the handler. It rides on gin's writer,
// which is one allocation; gin's own map of keys is three, and half a microsecond, a twentieth of a refusal.
type state struct {
	gin.ResponseWriter
	requestID [1]string // so kept that the header's value is a slice of it
	identity  model.Identity
	frequency model.Frequency
	refusal   Refusal
	refused   bool
	began     time.Time
	lap       time.Time // when the last stage ended
	took      time.Duration
	over      bool // took is set
	sampled   bool // its stages are timed
}

// stateOf gives the request's state, an empty one if no stage has left anything. Whoever wraps the writer once
// more hides it.
func stateOf(c *gin.Context) *state {
	if s, ok := c.Writer.(*state); ok {
		return s
	}
	s := &state{ResponseWriter: c.Writer}
	c.Writer = s
	return s
}

// Unwrap is for http.ResponseController.
func (s *state) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// Begin notes when the request came in, unless a stage further out has.
func Begin(c *gin.Context, now func() time.Time) {
	if s := stateOf(c); s.began.IsZero() {
		s.began = now()
		s.lap = s.began
	}
}

// Took gives the time from Begin to the end of the request, which is when the innermost stage asks; those further
// out share its reading of the clock.
func Took(c *gin.Context, now func() time.Time) time.Duration {
	s := stateOf(c)
	if !s.over {
		s.took, s.over = now().Sub(s.began), true
	}
	return s.took
}

// Sample has the stages of this request timed.
func Sample(c *gin.Context) { stateOf(c).sampled = true }

// Sampled reports whether they are.
func Sampled(c *gin.Context) bool { return stateOf(c).sampled }

// Lap gives the time from the last Lap, or Begin, to now: stages that follow each other share a reading of the
// clock.
func Lap(c *gin.Context, now time.Time) time.Duration {
	s := stateOf(c)
	took := now.Sub(s.lap)
	s.lap = now
	return took
}
