package handler

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/middleware"
	"flashsale/model"
	"flashsale/service"
	"flashsale/service/auth"
)

// maxKey is the greatest length of an Idempotency-Key, in bytes.
const maxKey = 128

// Purchases gives buyers the hidden path of a sale, and takes their attempts.
type Purchases struct {
	*Offers
	Service *service.Purchases
	Lines   *service.Lines
	Paths   *auth.Paths
}

// purchase takes an attempt. It answers Accepted as 201 and Queued as 202.
func (p *Purchases) purchase(c *gin.Context) {
	quantity, ok := readQuantity(c)
	if !ok {
		return
	}
	key, ok := idempotencyKey(c)
	if !ok {
		return
	}
	prefer, ok := parsePrefer(c.Request.Header["Prefer"])
	if !ok {
		refuseInvalid(c, &service.Invalid{Field: "Prefer", Reason: notSeconds})
		return
	}
	request := service.Request{
		UserID: userOf(c), SaleID: c.Param("sale"), Quantity: quantity,
		Key: key, Frequency: middleware.FrequencyOf(c), Prefer: prefer,
	}
	outcome, err := p.Service.Purchase(c.Request.Context(), request)
	if err != nil {
		middleware.Fail(c, err)
		return
	}
	switch outcome.Verdict {
	case model.Accepted, model.Queued:
		answerOutcome(c, outcome)
	case model.BadRequest:
		refuseInvalid(c, &service.Invalid{Field: "quantity", Reason: overLimit})
	default:
		middleware.Refuse(c, middleware.Refusal{Verdict: outcome.Verdict, RetryAfter: outcome.RetryAfter})
	}
}

// idempotencyKey returns the Idempotency-Key, or "" if there is none. If the key is too long or not of visible ASCII, it refuses
// the request.
func idempotencyKey(c *gin.Context) (key string, ok bool) {
	key = middleware.HeaderOf(c, "Idempotency-Key")
	if len(key) > maxKey || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		refuseInvalid(c, &service.Invalid{Field: "Idempotency-Key", Reason: notAKey, Max: maxKey})
		return "", false
	}
	return key, true
}

func answerOutcome(c *gin.Context, outcome model.Outcome) {
	if outcome.Repeated {
		c.Header("Idempotent-Replayed", "true")
	}
	c.Header("Location", "/api/v1/orders/"+outcome.Order.ID)
	status := http.StatusCreated
	if outcome.Verdict == model.Queued {
		status = http.StatusAccepted
		c.Header("Retry-After", "1")
	}
	c.Data(status, jsonType, appendOrder(make([]byte, 0, usualOrderBytes), outcome.Order))
}

// readQuantity reads a purchase's body, or refuses the request. The usual form of the body is read without reflection.
func readQuantity(c *gin.Context) (quantity int, ok bool) {
	raw, ok := readBody(c, jsonBody, maxBodyBytes)
	if !ok {
		return 0, false
	}
	if quantity, ok := usualQuantity(raw); ok {
		return quantity, true
	}
	quantity, invalid := strictQuantity(raw)
	if invalid != nil {
		refuseInvalid(c, invalid)
	}
	return quantity, invalid == nil
}

func strictQuantity(raw []byte) (int, *service.Invalid) {
	var body struct {
		Quantity *int `json:"quantity"`
	}
	if invalid := decodeObject(raw, &body); invalid != nil {
		return 0, invalid
	}
	if body.Quantity == nil {
		return 0, &service.Invalid{Field: "quantity", Reason: missingField}
	}
	return *body.Quantity, nil
}

// usualQuantity reads the body {"quantity":N} with at most maxUsualDigits digits, and with spaces where JSON allows them. It
// returns the same quantity as strictQuantity. For any other body, right or wrong, ok is false.
func usualQuantity(raw []byte) (quantity int, ok bool) {
	rest := raw
	for _, token := range []string{"{", `"quantity"`, ":"} {
		if rest, ok = bytes.CutPrefix(skipSpace(rest), []byte(token)); !ok {
			return 0, false
		}
	}
	rest = skipSpace(rest)
	digits := 0
	for digits < len(rest) && '0' <= rest[digits] && rest[digits] <= '9' {
		quantity = quantity*10 + int(rest[digits]-'0')
		if digits++; digits > maxUsualDigits {
			return 0, false
		}
	}
	if digits == 0 || digits > 1 && rest[0] == '0' {
		return 0, false
	}
	if rest, ok = bytes.CutPrefix(skipSpace(rest[digits:]), []byte("}")); !ok || len(skipSpace(rest)) > 0 {
		return 0, false
	}
	return quantity, true
}

// maxUsualDigits keeps a quantity far below the largest int of 32 bits.
const maxUsualDigits = 6

func skipSpace(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t' || b[0] == '\r' || b[0] == '\n') {
		b = b[1:]
	}
	return b
}

// parsePrefer reads the preferences respond-async and wait (RFC 7240), without their parameters, and ignores all others. ok is
// false if the value of wait is not a whole number of seconds up to 65,535, plain or in quotes.
func parsePrefer(headers []string) (p service.Preference, ok bool) {
	for _, header := range headers {
		for preference := range strings.SplitSeq(header, ",") {
			preference, _, _ = strings.Cut(preference, ";")
			name, value, _ := strings.Cut(preference, "=")
			switch strings.ToLower(strings.TrimSpace(name)) {
			case "respond-async":
				p.Async = true
			case "wait":
				seconds, err := strconv.ParseUint(strings.Trim(value, " \t\""), 10, 16)
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

func (p *Purchases) issuePath(c *gin.Context) {
	offer, ok := p.offer(c)
	if !ok {
		return
	}
	now := p.Catalog.Now()
	verdict := offer.Judge(now)
	if offer.IsCampaignLine() { // the buyer has to choose one of the campaign's sales
		verdict = model.NotFound
	}
	if verdict != model.Accepted {
		refuse(c, verdict)
		return
	}
	lifetime := min(pathLifetime, offer.EndsAt.Sub(now)+time.Second)
	if offer.Stock.Lined == model.InLine {
		until, rank, verdict, err := p.Lines.Turn(c.Request.Context(), userOf(c), offer, middleware.HeaderOf(c, "Line-Ticket"))
		switch {
		case err != nil:
			middleware.Fail(c, err)
			return
		case verdict != model.Accepted:
			middleware.Refuse(c, middleware.Refusal{Verdict: verdict, Turn: &middleware.Turn{Rank: known(rank), Serving: offer.Line.Serving}})
			return
		}
		lifetime = min(lifetime, max(until.Sub(now), 0)+callGrace)
	}
	path, expiresAt := p.Paths.Issue(userOf(c), offer.ID, lifetime)
	c.JSON(http.StatusOK, gin.H{"path": path, "expires_at": stamp(expiresAt)})
}
