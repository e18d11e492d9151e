package middleware

import (
	"context"
	"time"

	"github.com/gin-gonic/gin"
	"golang.org/x/time/rate"

	"flashsale/model"
)

// TokenBucket lets perSecond requests a second pass, and after a quiet time as many at once as "burst" says. A request waits for
// its token no longer than the time "wait", so about perSecond*wait requests wait at most. Outcomes: the next stage; RateLimited
// with the time until a token is free; or the context's error if it ends before there is a token.
func TokenBucket(perSecond float64, burst int, wait time.Duration) gin.HandlerFunc {
	limiter := rate.NewLimiter(rate.Limit(perSecond), burst)
	return func(c *gin.Context) { waitToken(c, limiter, wait) }
}

// LeakyBucket lets requests pass one at a time, about 1/perSecond seconds apart or more. Requests that come sooner wait: at most
// as many as "capacity" says, each no longer than the time "wait". So a burst becomes a steady stream for the stages behind, and
// requests that come together have to wait even if the instance has nothing else to do. Outcomes: as for TokenBucket. A request
// also gets RateLimited if it comes when as many as "capacity" says are waiting.
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

// waitToken lets the request pass if it gets a token within the time "wait", with the outcomes of TokenBucket. Limiter.Wait does
// not reserve a token that comes too late. To reserve the token and cancel would not work: if another reservation was made in
// between, the token is not given back in full, so that in a flood cancelled reservations would use up the rate.
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

// refuseRate refuses the request as RateLimited, with the time until the limiter has a free token after it has served the
// requests that already wait.
func refuseRate(c *gin.Context, limiter *rate.Limiter) {
	seconds := (1 - limiter.Tokens()) / float64(limiter.Limit())
	Refuse(c, Refusal{Verdict: model.RateLimited, RetryAfter: time.Duration(seconds * float64(time.Second))})
}
