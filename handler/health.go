package handler

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"
)

// checkTimeout is how long a dependency may take to answer /readyz.
const checkTimeout = time.Second

// Check asks one dependency. A failed one makes the instance not ready only if it is Needed.
type Check struct {
	Name   string
	Needed bool
	Ask    func(ctx context.Context) error
}

func (a *API) healthz(c *gin.Context) { c.JSON(http.StatusOK, gin.H{"status": "ok"}) }

// readyz asks every dependency. Why one fails is for the log and the operator, not for whoever asks.
func (a *API) readyz(c *gin.Context) {
	ctx, cancel := context.WithTimeout(c.Request.Context(), checkTimeout)
	defer cancel()
	states, status, word := gin.H{}, http.StatusOK, "ready"
	for _, check := range a.Checks {
		states[check.Name] = "ok"
		if err := check.Ask(ctx); err != nil {
			states[check.Name] = "down"
			if check.Needed {
				status, word = http.StatusServiceUnavailable, "not ready"
			}
		}
	}
	select {
	case <-a.Closing:
		status, word = http.StatusServiceUnavailable, "stopping"
	default:
	}
	c.JSON(status, gin.H{"status": word, "dependencies": states})
}

// observe measures every request by its route, never by its path, which may hold a purchase token.
func (a *API) observe(c *gin.Context) {
	start := a.Now()
	c.Next()
	route := c.FullPath()
	if route == "" {
		route = "none"
	}
	a.Observe(c.Request.Method, route, strconv.Itoa(c.Writer.Status()), a.Now().Sub(start))
}
