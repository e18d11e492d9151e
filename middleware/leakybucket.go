package middleware

import (
	"time"

	"github.com/gin-gonic/gin"
	"golang.org/x/time/rate"
)

// LeakyBucket lets requests pass one at a time, at least 1/perSecond seconds apart. Requests that come earlier wait, up
// to capacity of them, and each for at most wait. With wait 0 a request does not wait: it passes only if the last request
// that passed did so at least 1/perSecond seconds ago.
//
// TokenBucket passes a burst on as it comes. LeakyBucket turns a burst into a steady stream for the stages behind. The
// price is that requests that come together have to wait, even if the instance has nothing else to do.
//
// Outcomes: as for TokenBucket. A request that comes while capacity requests wait also gets RateLimited.
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
