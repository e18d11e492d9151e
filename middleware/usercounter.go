package middleware

import (
	"context"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/model"
)

// Counter counts a user's request to a sale. If that is one too many within f's window, ok is false and
// retryAfter says when the window ends. An error means that it couldn't count.
type Counter interface {
	Count(ctx context.Context, saleID, userID string, f model.Frequency) (retryAfter time.Duration, ok bool, err error)
}

// countLimit is how long counting may take: what the purchase itself may. The route has no deadline of its own, so
// that what memory answers needs no timer.
const countLimit = 10 * time.Second

// UserCounter limits how often a user may ask for the route's :sale; a zero freq.Limit is off. Outcomes: the
// next stage, or TooFrequent with the time until the window ends.
//
// With a nil counter the stage only leaves freq for FrequencyOf. Strategies that ask the gate count in the
// same script that admits, which saves every purchase a round trip; a counter is for the other strategies.
//
// If counting fails the request passes and onError is told: a limit that can't be counted must not stop a
// sale, and the stock and the limit per user are still checked where the units are.
func UserCounter(freq model.Frequency, counter Counter, onError func(error)) gin.HandlerFunc {
	switch {
	case freq.Limit == 0:
		return func(*gin.Context) {}
	case counter == nil:
		return func(c *gin.Context) { stateOf(c).frequency = freq }
	}
	return func(c *gin.Context) {
		ctx, cancel := context.WithTimeout(c.Request.Context(), countLimit)
		defer cancel()
		retryAfter, ok, err := counter.Count(ctx, c.Param("sale"), IdentityOf(c).UserID, freq)
		switch {
		case err != nil:
			onError(err)
		case !ok:
			Refuse(c, Refusal{Verdict: model.TooFrequent, RetryAfter: retryAfter})
		}
	}
}

// FrequencyOf gives the limit that is left to the gate to count; zero if there is none, or if it was
// counted already.
func FrequencyOf(c *gin.Context) model.Frequency { return stateOf(c).frequency }
