package handler

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/internal/observe"
	"flashsale/middleware"
	"flashsale/model"
)

const (
	// checkTimeout bounds the checks of all dependencies for one answer of /readyz.
	checkTimeout = time.Second
	// readyAge is how long the results of the checks are reused, so that a flood of /readyz runs them at most five
	// times a second.
	readyAge = 200 * time.Millisecond
)

// Check asks one dependency. If it fails, the instance is not ready only if the dependency is Needed.
type Check struct {
	Name   string
	Needed bool
	Ask    func(ctx context.Context) error
}

func (a *API) healthz(c *gin.Context) { c.JSON(http.StatusOK, gin.H{"status": "ok"}) }

// readyz answers with the last results of the checks. A request that comes while checks run waits for their results.
// The answer does not say why a check failed, since anybody may read it.
func (a *API) readyz() gin.HandlerFunc {
	var mu sync.Mutex
	var states gin.H
	var needed bool // all needed dependencies answered
	var at time.Time
	look := func(ctx context.Context) (gin.H, bool) {
		mu.Lock()
		defer mu.Unlock()
		if states == nil || a.Now().Sub(at).Abs() >= readyAge {
			// Other requests use the results too, so a client that disconnects must not cancel the checks.
			states, needed = a.check(context.WithoutCancel(ctx))
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

// check asks every dependency. needed is false if a needed dependency is down.
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

// methods are the methods that have their own figures in the metrics. All others are counted as "other", so that
// clients can't create metrics.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPatch, http.MethodDelete, http.MethodOptions}

// observe measures every request by the pattern of its route, never by its path, which may contain a purchase token.
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
	a.Requested(method, route, c.Writer.Status(), middleware.Took(c, a.Now))
	if route == purchaseRoute {
		a.Tally.Count(c.Param("sale"), verdictOf(c))
	}
}

// purchaseRoute is the route of purchase requests.
const purchaseRoute = "/api/v1/sales/:sale/:path/orders"

// Verdicts for the tally of purchase requests that ended without a verdict of the engine.
const (
	clientGone = model.Verdict("client_gone")
)

// verdictOf returns how a purchase request ended, whichever stage ended it.
func verdictOf(c *gin.Context) model.Verdict {
	if refusal, refused := middleware.RefusalOf(c); refused {
		return refusal.Verdict
	}
	switch c.Writer.Status() {
	case http.StatusCreated:
		return model.Accepted
	case http.StatusAccepted:
		return model.Queued
	case http.StatusServiceUnavailable:
		return model.Unavailable
	case statusClientGone:
		return clientGone
	}
	return internalError
}

// stageSample is the sampling of stages: one request in stageSample has the stages of the front door timed. To read the
// clock after each stage costs more than most of the stages do.
const stageSample = 8

// timed measures a stage of the front door, for one request in stageSample. Each stage returns before the next one
// begins, so that each time is the stage's own. The time of the first stage includes the few steps that every request
// takes before it.
func (a *API) timed(stage string, h gin.HandlerFunc) gin.HandlerFunc {
	return func(c *gin.Context) {
		h(c)
		if middleware.Sampled(c) {
			a.Observe.Note(observe.Event{Name: observe.Stage, Label: stage, Took: middleware.Lap(c, a.Now())})
		}
	}
}
