// Package middleware holds the stages that a request passes on its way to a handler: its id and log
// line, the limits, who asks, and whether the path was handed out. No stage writes an error's body; it
// records a refusal or a failure, which package handler turns into the answer.
package middleware

import (
	"errors"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/model"
	"flashsale/service"
)

// Refusal is a request turned down on purpose. It is an error so that it can come back through a call.
type Refusal struct {
	Verdict    model.Verdict
	Invalid    *service.Invalid // what exactly is wrong; nil: the verdict's own text says it all
	RetryAfter time.Duration    // told to the client with 429 and 503, in whole seconds and at least one
}

// Error gives the verdict's code.
func (r Refusal) Error() string { return string(r.Verdict) }

// Refuse ends the request with a refusal. The caller returns at once.
func Refuse(c *gin.Context, r Refusal) {
	s := stateOf(c)
	s.refusal, s.refused = r, true
	c.Abort()
}

// Fail ends the request with an error: something broke, or the client left. The caller returns at once
// and doesn't log err; that is done where the answer is written.
func Fail(c *gin.Context, err error) {
	if refusal, refused := errors.AsType[Refusal](err); refused {
		Refuse(c, refusal)
		return
	}
	stateOf(c).refused = false // what came last counts
	_ = c.Error(err)           // the same error comes back, wrapped for gin
	c.Abort()
}

// RefusalOf gives the refusal that ended the request; false if none did.
func RefusalOf(c *gin.Context) (Refusal, bool) {
	s := stateOf(c)
	if !s.refused {
		return Refusal{}, false
	}
	return s.refusal, true
}

// FailureOf gives the error that ended the request; nil if it went well or was refused.
func FailureOf(c *gin.Context) error {
	last := c.Errors.Last() // gin itself leaves one there if an answer can't be encoded
	if last == nil || stateOf(c).refused {
		return nil
	}
	return last.Err
}
