package middleware

import (
	"context"
	"time"

	"github.com/gin-gonic/gin"
)

// Deadline ends the request's context after limit, so that what waits for a store gives up while its client can
// still be told. Outcome then: the context's error, which is answered as 503.
func Deadline(limit time.Duration) gin.HandlerFunc {
	return func(c *gin.Context) {
		ctx, cancel := context.WithTimeout(c.Request.Context(), limit)
		defer cancel()
		c.Request = c.Request.WithContext(ctx)
		c.Next()
	}
}
