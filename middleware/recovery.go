package middleware

import (
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"

	"github.com/gin-gonic/gin"
)

// Recovery turns a panic of an inner stage, except http.ErrAbortHandler, into a failure whose text ends with the stack. The
// failure does not wrap the value of the panic: whatever the value is, the panic is a bug.
func Recovery() gin.HandlerFunc {
	return func(c *gin.Context) {
		defer func() {
			p := recover()
			err, _ := p.(error)
			switch {
			case errors.Is(err, http.ErrAbortHandler):
				panic(p) // not a bug: a handler cuts its answer off
			case p != nil:
				Fail(c, fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
			}
		}()
		c.Next()
	}
}
