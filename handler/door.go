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

// Door has what the stages before the handlers need.
type Door struct {
	Limits    Limits
	Counter   middleware.Counter                                         // nil: the gate counts users' requests
	Trace     gin.HandlerFunc                                            // starts a span for each request; nil: no spans
	Requested func(method, route string, status int, took time.Duration) // records a request
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
	Origins        []string // see middleware.Origins
}

// methods have their own figures in the metrics. Other methods are counted as "other", so that clients can't create metrics.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions}

// observe measures a request under the pattern of its route: the path itself may contain a buyer's path token.
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

// verdictOf returns how a purchase request ended.
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

// One request in stageSample has its stages timed, to save readings of the clock.
const stageSample = 8

// timed measures a stage of the sampled requests. The stage must return before the next one begins. The measured time begins at
// the request's last Lap, so it includes steps before the stage that are not timed.
func (d *Door) timed(stage string, h gin.HandlerFunc) gin.HandlerFunc {
	return func(c *gin.Context) {
		h(c)
		if middleware.Sampled(c) {
			d.Observe.Note(observe.Event{Name: observe.Stage, Label: stage, Took: middleware.Lap(c, d.Now())})
		}
	}
}
