package middleware

import (
	"context"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/model"
)

// Counter counts a user's request to a sale. If the user has now made more requests in a window than f allows, ok is false, and
// retryAfter is the time until the window ends.
type Counter interface {
	Count(ctx context.Context, saleID, userID string, f model.Frequency) (retryAfter time.Duration, ok bool, err error)
}

// countLimit is how long counting may take. The route of purchases has no deadline.
const countLimit = 10 * time.Second

// UserCounter limits how often a user may send a request to the route's :sale. If freq.Limit is 0, there is no limit. Outcomes:
// the next stage, or TooFrequent with the time until the window ends.
//
// With a nil counter the stage only stores freq for FrequencyOf, so that the gate can count the request without another round
// trip. If counting fails, the request passes and onError is called, since a limit that can't be counted must not stop a sale.
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

// FrequencyOf returns the limit that UserCounter left to the gate, or zero.
func FrequencyOf(c *gin.Context) model.Frequency { return stateOf(c).frequency }
