package handler

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/middleware"
	"flashsale/model"
)

const (
	// checkTimeout is how long the dependencies may take to answer /readyz.
	checkTimeout = time.Second
	// readyAge is how long their answers hold, so that a flood of /readyz asks them five times a second.
	readyAge = 200 * time.Millisecond
)

// Check asks one dependency. A failed one makes the instance not ready only if it is Needed.
type Check struct {
	Name   string
	Needed bool
	Ask    func(ctx context.Context) error
}

func (a *API) healthz(c *gin.Context) { c.JSON(http.StatusOK, gin.H{"status": "ok"}) }

// readyz says what the dependencies last said; whoever comes while they are asked waits for that. Why one fails is for
// the log and the operator, not for whoever asks.
func (a *API) readyz() gin.HandlerFunc {
	var mu sync.Mutex
	var states gin.H
	var needed bool // all that are needed are there
	var at time.Time
	look := func(ctx context.Context) (gin.H, bool) {
		mu.Lock()
		defer mu.Unlock()
		if states == nil || a.Now().Sub(at).Abs() >= readyAge {
			states, needed = a.check(context.WithoutCancel(ctx)) // others want to know as well
			at = a.Now()
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
		case <-a.Closing:
			status, word = http.StatusServiceUnavailable, "stopping"
		default:
		}
		c.JSON(status, gin.H{"status": word, "dependencies": states})
	}
}

// check asks every dependency. needed is false if one that is needed is down.
func (a *API) check(ctx context.Context) (states gin.H, needed bool) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	states, needed = gin.H{}, true
	for _, check := range a.Checks {
		states[check.Name] = "ok"
		if err := check.Ask(ctx); err != nil {
			states[check.Name] = "down"
			needed = needed && !check.Needed
		}
	}
	return states, needed
}

// methods are those that figures are kept of; strangers must not make up others.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPatch, http.MethodDelete, http.MethodOptions}

// observe measures every request by its route, never by its path, which may hold a purchase token.
func (a *API) observe(c *gin.Context) {
	middleware.Begin(c, a.Now)
	if a.requests.Add(1)%stageSample == 1 {
		middleware.Sample(c)
	}
	c.Next()
	route := c.FullPath()
	if route == "" {
		route = "none"
	}
	method := c.Request.Method
	if !slices.Contains(methods, method) {
		method = "other"
	}
	a.Meter.Request(method, route, c.Writer.Status(), middleware.Took(c, a.Now))
	if route == purchaseRoute {
		a.Tally.Count(c.Param("sale"), verdictOf(c))
	}
}

// purchaseRoute is where purchases are asked for.
const purchaseRoute = "/api/v1/sales/:sale/:path/orders"

// Verdicts of requests that got none.
const (
	queued     = model.Verdict(model.OrderQueued)
	clientGone = model.Verdict("client_gone")
)

// verdictOf says how a purchase request ended, whichever stage ended it.
func verdictOf(c *gin.Context) model.Verdict {
	if refusal, refused := middleware.RefusalOf(c); refused {
		return refusal.Verdict
	}
	switch c.Writer.Status() {
	case http.StatusCreated:
		return model.Accepted
	case http.StatusAccepted:
		return queued
	case http.StatusServiceUnavailable:
		return model.Unavailable
	case statusClientGone:
		return clientGone
	}
	return internalError
}

// stageSample is the part of the requests whose stages at the front door are timed: reading the clock after each of
// them costs more than most of them do.
const stageSample = 8

// timed measures a stage of the front door, of one request in stageSample. The stages return before the next one begins, so that each
// time is the stage's own; the first one's holds the few steps that every request takes before it.
func (a *API) timed(stage string, h gin.HandlerFunc) gin.HandlerFunc {
	return func(c *gin.Context) {
		h(c)
		if middleware.Sampled(c) {
			a.Meter.Stage(stage, middleware.Lap(c, a.Now()))
		}
	}
}
