package middleware

import (
	"context"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/model"
)

// Deadline ends the request's context after limit, so that a handler that waits for a store gives up. The context also gets the
// request's id. The stage copies the request, so it is not for the busiest routes.
func Deadline(limit time.Duration) gin.HandlerFunc {
	return func(c *gin.Context) {
		outer := c.Request
		ctx, cancel := context.WithTimeout(model.WithRequestID(outer.Context(), RequestIDOf(c)), limit)
		defer func() {
			cancel()
			c.Request = outer // the end of ctx must not look like that of the client's connection
		}()
		c.Request = outer.WithContext(ctx)
		c.Next()
	}
}
