package middleware

import (
	"context"
	"time"

	"github.com/gin-gonic/gin"
	"golang.org/x/time/rate"

	"flashsale/model"
)

// TokenBucket lets perSecond requests a second through, and up to burst of them at once after a lull. With
// wait 0 a request tries once; else it may wait that long for its token.
//
// Outcomes: the next stage; RateLimited with the time until a token is free; or, if the client left while
// it waited, its context's error, and the token goes to another.
//
// At most perSecond*wait requests wait at any time: a token that is further away than wait is not reserved.
func TokenBucket(perSecond float64, burst int, wait time.Duration) gin.HandlerFunc {
	limiter := rate.NewLimiter(rate.Limit(perSecond), burst)
	return func(c *gin.Context) {
		ctx := c.Request.Context()
		switch {
		case takeToken(ctx, limiter, wait):
		case ctx.Err() != nil:
			Fail(c, ctx.Err())
		default:
			refuseRate(c, limiter)
		}
	}
}

// takeToken reports whether a token came within wait. It leaves the choice to Wait, which checks and
// reserves in one step: a reservation that is made and then cancelled isn't given back in full if another
// was made in between, and under a flood, when it matters, that would eat the rate itself.
func takeToken(ctx context.Context, limiter *rate.Limiter, wait time.Duration) bool {
	if limiter.Allow() {
		return true
	}
	if wait <= 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return limiter.Wait(ctx) == nil
}

// refuseRate refuses with the time until the limiter has a token to spare, behind those who wait already.
func refuseRate(c *gin.Context, limiter *rate.Limiter) {
	seconds := (1 - limiter.Tokens()) / float64(limiter.Limit())
	Refuse(c, Refusal{
		Verdict:    model.RateLimited,
		RetryAfter: time.Duration(seconds * float64(time.Second)),
	})
}
