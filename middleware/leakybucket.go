package middleware

import (
	"time"

	"github.com/gin-gonic/gin"
	"golang.org/x/time/rate"
)

// LeakyBucket lets requests pass one at a time, at least 1/perSecond seconds apart. Requests that come earlier wait, up to
// capacity of them, and each for at most wait: so a burst becomes a steady stream for the stages behind, and requests that come
// together have to wait even if the instance has nothing else to do. Outcomes: as for TokenBucket. A request that comes while
// capacity requests wait also gets RateLimited.
func LeakyBucket(perSecond float64, capacity int, wait time.Duration) gin.HandlerFunc {
	limiter := rate.NewLimiter(rate.Limit(perSecond), 1) // a token bucket for one token lets one request pass at a time
	bucket := make(chan struct{}, capacity)
	return func(c *gin.Context) {
		select {
		case bucket <- struct{}{}:
			waitToken(c, limiter, wait)
			<-bucket
		default:
			refuseRate(c, limiter)
		}
	}
}
