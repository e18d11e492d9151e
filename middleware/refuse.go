// Package middleware holds the stages that a request passes on its way to a handler: its id and log
// line, the limits, who asks, and whether the path was handed out. No stage writes an error's body; it
// records a refusal or a failure, which package handler turns into the answer.
package middleware

import (
	"errors"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/model"
)

// Refusal is a request turned down on purpose. It is an error only so that gin's context can carry it.
type Refusal struct {
	Verdict    model.Verdict
	Detail     string        // in English, what exactly is wrong; empty: the verdict's own text says it all
	RetryAfter time.Duration // told to the client with 429 and 503, in whole seconds and at least one
}

// Error gives the verdict's code.
func (r Refusal) Error() string { return string(r.Verdict) }

// Refuse ends the request with a refusal. The caller returns at once.
func Refuse(c *gin.Context, r Refusal) { Fail(c, r) }

// Fail ends the request with an error: something broke, or the client left. The caller returns at once
// and doesn't log err; that is done where the answer is written.
func Fail(c *gin.Context, err error) {
	_ = c.Error(err) // the same error comes back, wrapped for gin
	c.Abort()
}

// RefusalOf gives the refusal that ended the request; false if none did.
func RefusalOf(c *gin.Context) (Refusal, bool) {
	last := c.Errors.Last()
	if last == nil {
		return Refusal{}, false
	}
	return errors.AsType[Refusal](last.Err)
}

// FailureOf gives the error that ended the request; nil if it went well or was refused.
func FailureOf(c *gin.Context) error {
	last := c.Errors.Last()
	if last == nil {
		return nil
	}
	if _, refused := errors.AsType[Refusal](last.Err); refused {
		return nil
	}
	return last.Err
}

// key names what the stages leave on gin's context; the type keeps it apart from anyone else's keys.
type key int

const (
	requestIDKey key = iota
	identityKey
	frequencyKey
)

// valueOf reads what a stage left under k, or the zero value if that stage did not run.
func valueOf[T any](c *gin.Context, k key) T {
	v, _ := c.Get(k)
	t, _ := v.(T)
	return t
}
