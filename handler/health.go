package handler

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/gin-gonic/gin"
)

const (
	// checkTimeout bounds the checks of all dependencies together.
	checkTimeout = time.Second
	// readyAge is how long results are reused, so that a flood of /readyz causes few checks.
	readyAge = 200 * time.Millisecond
)

// Check asks one dependency. The instance is not ready if a Needed dependency fails its check.
type Check struct {
	Name   string
	Needed bool
	Ask    func(ctx context.Context) error
}

// Health tells load balancers about this instance.
type Health struct {
	Checks  []Check
	Closing <-chan struct{} // closed when the server stops: the instance is then not ready
	Now     func() time.Time
}

func (h *Health) live(c *gin.Context) { c.JSON(http.StatusOK, gin.H{"status": "ok"}) }

// ready answers with the results of the checks, but not with their errors, since anybody may read the answer.
func (h *Health) ready() gin.HandlerFunc {
	var mu sync.Mutex
	var states gin.H
	var needed bool // as check returned it
	var at time.Time
	look := func(ctx context.Context) (gin.H, bool) {
		mu.Lock()
		defer mu.Unlock()
		if states == nil || h.Now().Sub(at).Abs() >= readyAge {
			// Other requests use the results too, so a client that disconnects must not cancel the checks.
			states, needed = h.check(context.WithoutCancel(ctx))
			at = h.Now()
		}
		return states, needed
	}
	return func(c *gin.Context) {
		states, needed := look(c.Request.Context())
		status, word := http.StatusOK, "ready"
		if !needed {
			status, word = http.StatusServiceUnavailable, "not ready"
		}
		select {
		case <-h.Closing:
			status, word = http.StatusServiceUnavailable, "stopping"
		default:
		}
		c.JSON(status, gin.H{"status": word, "dependencies": states})
	}
}

// check runs all checks. needed is false if a needed dependency is down.
func (h *Health) check(ctx context.Context) (states gin.H, needed bool) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	states, needed = gin.H{}, true
	errs := make([]error, len(h.Checks))
	var asking sync.WaitGroup // all at once, so that one that hangs takes no time from the others
	for i, check := range h.Checks {
		asking.Go(func() { errs[i] = check.Ask(ctx) })
	}
	asking.Wait()
	for i, check := range h.Checks {
		states[check.Name] = "ok"
		if errs[i] != nil {
			states[check.Name] = "down"
			needed = needed && !check.Needed
		}
	}
	return states, needed
}
