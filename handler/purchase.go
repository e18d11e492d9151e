package handler

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/middleware"
	"flashsale/model"
	"flashsale/service"
)

// maxKey is the longest Idempotency-Key.
const maxKey = 128

// purchase takes an attempt: 201 with an order that is in the database, or 202 with one that is queued.
func (a *API) purchase(c *gin.Context) {
	var body struct {
		Quantity *int `json:"quantity"`
	}
	if !decode(c, &body) {
		return
	}
	if body.Quantity == nil {
		refuseBadRequest(c, `field "quantity" is missing`)
		return
	}
	key := c.GetHeader("Idempotency-Key")
	if len(key) > maxKey || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		refuseBadRequest(c, "Idempotency-Key must be at most 128 visible ASCII characters without spaces")
		return
	}
	prefer, ok := parsePrefer(c.Request.Header.Values("Prefer"))
	if !ok {
		refuseBadRequest(c, "Prefer: wait needs whole seconds")
		return
	}
	outcome, err := a.Purchases.Purchase(c.Request.Context(), service.Request{
		UserID: middleware.IdentityOf(c).UserID, SaleID: c.Param("sale"), Quantity: *body.Quantity,
		Key: key, Frequency: middleware.FrequencyOf(c), Prefer: prefer,
	})
	switch {
	case err != nil:
		middleware.Fail(c, err)
		return
	case outcome.Verdict == model.BadRequest:
		refuseBadRequest(c, "quantity must be 1 to the sale's limit_per_user")
		return
	case outcome.Verdict != model.Accepted:
		middleware.Refuse(c, middleware.Refusal{Verdict: outcome.Verdict, RetryAfter: outcome.RetryAfter})
		return
	}
	if outcome.Repeated {
		c.Header("Idempotent-Replayed", "true")
	}
	c.Header("Location", "/api/v1/orders/"+outcome.Order.ID)
	status := http.StatusCreated
	if outcome.Order.Status == model.OrderQueued {
		status = http.StatusAccepted
		c.Header("Retry-After", "1")
	}
	c.JSON(status, viewOrder(*outcome.Order))
}

// parsePrefer reads the preferences that a purchase knows (RFC 7240); others are left aside.
func parsePrefer(headers []string) (p service.Preference, ok bool) {
	for _, header := range headers {
		for preference := range strings.SplitSeq(header, ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(preference), "=")
			switch strings.ToLower(strings.TrimSpace(name)) {
			case "respond-async":
				p.Async = true
			case "wait":
				seconds, err := strconv.ParseUint(strings.TrimSpace(value), 10, 16)
				if err != nil {
					return p, false
				}
				p.Wait = time.Duration(seconds) * time.Second
				p.Async = p.Async || seconds == 0
			}
		}
	}
	return p, true
}
