package strategy

import (
	"time"

	"github.com/maypok86/otter/v2"
	"golang.org/x/time/rate"

	"flashsale/model"
)

// localUsers bounds the counters of requests in an instance's memory, one for each user of a sale. Beyond that the cache
// evicts counters that were not used recently or often.
const localUsers = 100_000

// localCounter limits the request frequency of users while Redis, which counts for all instances, does not answer.
type localCounter struct {
	limiters *otter.Cache[string, *rate.Limiter]
}

func newLocalCounter() *localCounter {
	return &localCounter{limiters: otter.Must(&otter.Options[string, *rate.Limiter]{MaximumSize: localUsers})}
}

// count counts one request. ok is false if the request came too soon; the next one is allowed after retryAfter at the latest.
func (c *localCounter) count(a model.Attempt) (retryAfter time.Duration, ok bool) {
	f := a.Frequency
	if f.Limit <= 0 {
		return 0, true
	}
	key := a.SaleID + "/" + a.UserID
	pause := f.Window / time.Duration(f.Limit)
	limiter, _ := c.limiters.ComputeIfAbsent(key, func() (*rate.Limiter, bool) { return rate.NewLimiter(rate.Every(pause), f.Limit), false })
	return pause, limiter.Allow()
}
