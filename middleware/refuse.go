// Package middleware holds stages that a request passes on its way to a handler, such as limits and log-in. A stage records a
// refusal or a failure, which package handler turns into the answer.
package middleware

import (
	"errors"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/model"
	"flashsale/service"
)

// Refusal is a refused request. It implements error, so that a function can return a refusal as its error.
type Refusal struct {
	Verdict    model.Verdict
	Invalid    *service.Invalid // what exactly is wrong; nil: the verdict's own text is enough
	RetryAfter time.Duration    // sent with 429 and 503, rounded up to whole seconds, at least one
	Turn       *Turn            // sent if a buyer who is not called asks for a purchase path
	Why        error            // only for the log
}

// Turn is a buyer's place in a line.
type Turn struct {
	Rank    *int64 `json:"rank,omitempty"` // nil: the rank is not known
	Serving int64  `json:"serving"`        // all ranks below this one have had their turn
}

func (r Refusal) Error() string { return string(r.Verdict) }

// Refuse ends the request with a refusal. The caller must return at once.
func Refuse(c *gin.Context, r Refusal) {
	stateOf(c).refusal = r
	c.Abort()
}

// Fail ends the request with an error: something broke, or the client disconnected. If err wraps a Refusal, the request is
// refused instead. The caller must return at once and must not log err.
func Fail(c *gin.Context, err error) {
	if refusal, refused := errors.AsType[Refusal](err); refused {
		Refuse(c, refusal)
		return
	}
	stateOf(c).refusal = Refusal{} // the last outcome counts
	_ = c.Error(err)               // returns the same error, wrapped for gin
	c.Abort()
}

// RefusalOf returns the refusal that ended the request; false if there is none.
func RefusalOf(c *gin.Context) (Refusal, bool) {
	r := stateOf(c).refusal
	return r, r.Verdict != ""
}

// FailureOf returns the error that ended the request, or nil if it succeeded or was refused.
func FailureOf(c *gin.Context) error {
	last := c.Errors.Last() // gin itself adds an error if it can't encode an answer
	if last == nil || stateOf(c).refusal.Verdict != "" {
		return nil
	}
	return last.Err
}
