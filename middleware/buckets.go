package middleware

import (
	"context"
	"time"

	"github.com/gin-gonic/gin"
	"golang.org/x/time/rate"

	"flashsale/model"
)

// TokenBucket lets perSecond requests a second pass, and after a quiet time a burst of at most "burst". A request waits for its
// token no longer than "wait". Outcomes: the next stage; RateLimited with the time until a token is free; or the context's error
// if the context ends first.
func TokenBucket(perSecond float64, burst int, wait time.Duration) gin.HandlerFunc {
	limiter := rate.NewLimiter(rate.Limit(perSecond), burst)
	return func(c *gin.Context) { waitToken(c, limiter, wait) }
}

// LeakyBucket lets requests pass one at a time, about 1/perSecond seconds apart or more. So a burst becomes a steady stream. At
// most "capacity" requests wait, each no longer than "wait"; a further one gets RateLimited. Other outcomes: as for TokenBucket.
func LeakyBucket(perSecond float64, capacity int, wait time.Duration) gin.HandlerFunc {
	limiter := rate.NewLimiter(rate.Limit(perSecond), 1) // one token: requests pass one at a time
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

// waitToken lets the request pass if it gets a token within "wait", with the outcomes of TokenBucket. Limiter.Wait reserves no
// token that would come too late. A reservation that is cancelled is not always given back in full.
func waitToken(c *gin.Context, limiter *rate.Limiter, wait time.Duration) {
	ctx, ok := c.Request.Context(), limiter.Allow()
	if !ok && wait > 0 {
		waiting, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		ok = limiter.Wait(waiting) == nil
	}
	switch {
	case ok:
	case ctx.Err() != nil:
		Fail(c, ctx.Err())
	default:
		refuseRate(c, limiter)
	}
}

// refuseRate refuses the request as RateLimited, with the time until the limiter has a free token.
func refuseRate(c *gin.Context, limiter *rate.Limiter) {
	seconds := (1 - limiter.Tokens()) / float64(limiter.Limit())
	Refuse(c, Refusal{Verdict: model.RateLimited, RetryAfter: time.Duration(seconds * float64(time.Second))})
}
