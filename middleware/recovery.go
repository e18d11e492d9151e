package middleware

import (
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"

	"github.com/gin-gonic/gin"
)

// Recovery turns a panic further in into a failure whose text ends in the stack, so that the place that
// logs failures logs the stack, once. The panic's value isn't wrapped: whatever it was, it is a bug.
func Recovery() gin.HandlerFunc {
	return func(c *gin.Context) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			// This one is no bug: it asks net/http to cut the connection.
			if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(p)
			}
			Fail(c, fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
		}()
		c.Next()
	}
}
