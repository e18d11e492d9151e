package middleware

import (
	"context"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/model"
)

// Deadline ends the request's context after limit, so that a handler that waits for a store gives up while the client
// still waits for an answer. The request then fails with the context's error, which is answered as 503. The context also gets the
// request's id. The busiest routes go without this stage, because it copies the request.
func Deadline(limit time.Duration) gin.HandlerFunc {
	return func(c *gin.Context) {
		ctx, cancel := context.WithTimeout(model.WithRequestID(c.Request.Context(), RequestIDOf(c)), limit)
		defer cancel()
		c.Request = c.Request.WithContext(ctx)
		c.Next()
	}
}
