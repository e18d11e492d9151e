package strategy

import (
	"time"

	"github.com/maypok86/otter/v2"
	"golang.org/x/time/rate"

	"flashsale/model"
)

// localUsers bounds the users that an instance counts in memory; the least recent are forgotten first.
const localUsers = 100_000

// localCounter holds users to their request frequency while Redis, which counts for all instances, is away.
type localCounter struct {
	limiters *otter.Cache[string, *rate.Limiter]
}

func newLocalCounter() *localCounter {
	return &localCounter{limiters: otter.Must(&otter.Options[string, *rate.Limiter]{MaximumSize: localUsers})}
}

// count counts one request; ok is false if it came too soon, and retryAfter says when the next may come.
func (c *localCounter) count(a model.Attempt) (retryAfter time.Duration, ok bool) {
	f := a.Frequency
	if f.Limit <= 0 {
		return 0, true
	}
	key := a.SaleID + "/" + a.UserID
	limiter, found := c.limiters.GetIfPresent(key)
	if !found {
		limiter, _ = c.limiters.SetIfAbsent(key, rate.NewLimiter(rate.Every(f.Window/time.Duration(f.Limit)), f.Limit))
	}
	return f.Window / time.Duration(f.Limit), limiter.Allow()
}
