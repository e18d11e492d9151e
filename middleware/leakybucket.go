package middleware

import (
	"time"

	"github.com/gin-gonic/gin"
	"golang.org/x/time/rate"
)

// LeakyBucket lets requests through one by one, at least 1/perSecond apart, however they come. Those that come
// earlier wait in the bucket, which holds capacity of them, each for its turn and at most for wait. With wait 0 a
// request tries once, and only one that comes when the bucket is empty gets through.
//
// Where TokenBucket hands a burst on as it is, this smooths it: what stands behind sees a steady stream. The price is
// the wait of those who come together, also when there is nothing else to do.
//
// Outcomes: as TokenBucket's.
func LeakyBucket(perSecond float64, capacity int, wait time.Duration) gin.HandlerFunc {
	limiter := rate.NewLimiter(rate.Limit(perSecond), 1) // a token bucket that holds one token is a leak
	bucket := make(chan struct{}, capacity)
	return func(c *gin.Context) {
		ctx := c.Request.Context()
		select {
		case bucket <- struct{}{}:
		default:
			refuseRate(c, limiter)
			return
		}
		passed := takeToken(ctx, limiter, wait)
		<-bucket
		switch {
		case passed:
		case ctx.Err() != nil:
			Fail(c, ctx.Err())
		default:
			refuseRate(c, limiter)
		}
	}
}
