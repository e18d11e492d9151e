package handler

import (
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/internal/observe"
	"flashsale/middleware"
	"flashsale/model"
	"flashsale/service"
)

// Door has what the stages before the handlers need: the limits, and what counts and records requests.
type Door struct {
	Limits    Limits
	Counter   middleware.Counter                                         // nil: the gate's script that admits also counts users' requests
	Trace     gin.HandlerFunc                                            // starts a span for each request; nil: no spans
	Requested func(method, route string, status int, took time.Duration) // records a request that has ended
	Tally     *service.Tally
	Observe   observe.All
	Now       func() time.Time
	Log       *slog.Logger

	requests atomic.Uint64
}

// Limits are the limits of the stages before the handlers, and the proxies and origins that these stages trust.
type Limits struct {
	Leaky          bool // a leaky bucket for the instance instead of a token bucket
	Rate           float64
	Burst          int
	Wait           time.Duration
	AddressRate    float64
	User           model.Frequency
	TrustedProxies []string
	Origins        []string // of pages that may call the API from a browser
}

// methods have their own figures in the metrics. All others are counted as "other", so that clients can't create metrics.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPatch, http.MethodDelete, http.MethodOptions}

// observe measures every request by the pattern of its route, never by its path, which may contain a buyer's path token.
func (d *Door) observe(c *gin.Context) {
	middleware.Begin(c, d.Now)
	if d.requests.Add(1)%stageSample == 1 {
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
	d.Requested(method, route, c.Writer.Status(), middleware.Took(c, d.Now))
	if route == purchaseRoute {
		d.Tally.Count(c.Param("sale"), verdictOf(c))
	}
}

// purchaseRoute is the route of purchase requests.
const purchaseRoute = "/api/v1/sales/:sale/:path/orders"

// clientGone is the verdict under which the tally counts the purchase requests with statusClientGone.
const clientGone = model.Verdict("client_gone")

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

// One request in stageSample has its stages timed, since reading the clock costs more than most stages.
const stageSample = 8

// timed measures a stage, for one request in stageSample. The stage must return before the next one begins. The measured time also
// includes the steps between the stage and the timed one before it, or the beginning of the request.
func (d *Door) timed(stage string, h gin.HandlerFunc) gin.HandlerFunc {
	return func(c *gin.Context) {
		h(c)
		if middleware.Sampled(c) {
			d.Observe.Note(observe.Event{Name: observe.Stage, Label: stage, Took: middleware.Lap(c, d.Now())})
		}
	}
}
