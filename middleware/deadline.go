package middleware

import (
	"context"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/model"
)

// Deadline ends the request's context after limit, so that what waits for a store gives up while its client can
// still be told. Outcome then: the context's error, which is answered as 503. The context knows the request's id from
// here on; what is answered from memory, and so has no such context, is spared the copy of the request.
func Deadline(limit time.Duration) gin.HandlerFunc {
	return func(c *gin.Context) {
		ctx, cancel := context.WithTimeout(model.WithRequestID(c.Request.Context(), RequestIDOf(c)), limit)
		defer cancel()
		c.Request = c.Request.WithContext(ctx)
		c.Next()
	}
}
