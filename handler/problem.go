package handler

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"

	"flashsale/middleware"
	"flashsale/model"
)

// Codes of answers that are not among the model's verdicts.
const (
	internalError    model.Verdict = "internal"
	methodNotAllowed model.Verdict = "method_not_allowed"
)

// statusClientGone is the status, in logs and metrics, of a request that got no answer because its client disconnected.
const statusClientGone = 499

// Problems answers requests that ended in a refusal or an error, unless an answer has begun, and logs the errors. An error is
// answered as 503 unavailable or 500 internal, without its text. If it only means that the client has disconnected (see
// clientLeft), it is neither answered nor logged.
func Problems(log *slog.Logger) gin.HandlerFunc {
	return func(c *gin.Context) {
		c.Next()
		refusal, refused := middleware.RefusalOf(c)
		err := middleware.FailureOf(c)
		if err == nil && !refused {
			return
		}
		if _, known := problems[refusal.Verdict]; refused && !known {
			err = fmt.Errorf("refused with %q, which no problem describes", refusal.Verdict)
		}
		switch {
		case err != nil && clientLeft(c, err):
			c.Status(statusClientGone)
			return
		case err != nil:
			refusal = middleware.Refusal{Verdict: logFailure(c, log, err)}
		}
		if !c.Writer.Written() {
			writeProblem(c, refusal)
		}
	}
}

// clientLeft reports whether err only means that the client's connection has ended: the work was cancelled with the request, or
// an answer that had begun could not be finished.
func clientLeft(c *gin.Context, err error) bool {
	return errors.Is(c.Request.Context().Err(), context.Canceled) && (errors.Is(err, context.Canceled) || c.Writer.Written())
}

// logFailure logs err and returns the verdict to answer with.
func logFailure(c *gin.Context, log *slog.Logger, err error) model.Verdict {
	level, verdict := slog.LevelError, internalError
	// A context.Canceled comes from a shutdown here; for clients that disconnect see clientLeft.
	if errors.Is(err, model.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		level, verdict = slog.LevelWarn, model.Unavailable
	}
	log.LogAttrs(c.Request.Context(), level, "request failed",
		slog.String("route", c.FullPath()), slog.String("request_id", middleware.RequestIDOf(c)), slog.Any("error", err))
	return verdict
}

// All requests share these values of headers, and nothing writes into them: Set replaces a slice, and Add copies a slice that is
// full, as these are.
var (
	languages   = [2][]string{{"en"}, {"zh"}}
	byLanguage  = []string{"Accept-Language"}
	noStore     = []string{"no-store"}
	bearer      = []string{"Bearer"}
	problemType = []string{"application/problem+json"}
)

// behindID is the end of a problem's JSON, after the request id. A request id needs no escaping.
const behindID = `"}`

// encodeProblem returns a problem's JSON up to the request id. An empty field and a nil turn are left out.
func encodeProblem(verdict model.Verdict, status int, title, detail, field string, turn *middleware.Turn) []byte {
	body, _ := json.Marshal(struct { // strings and numbers always encode
		Type   string        `json:"type"`
		Title  string        `json:"title"`
		Status int           `json:"status"`
		Detail string        `json:"detail"`
		Code   model.Verdict `json:"code"`
		Field  string        `json:"field,omitempty"`
		*middleware.Turn
		RequestID string `json:"request_id"`
	}{"/problems/" + string(verdict), title, status, detail, verdict, field, turn, ""})
	return bytes.TrimSuffix(body, []byte(behindID))
}

func writeProblem(c *gin.Context, r middleware.Refusal) {
	language, p := languageOf(middleware.HeaderOf(c, "Accept-Language")), problems[r.Verdict]
	body := p.bodies[language]
	if detail, field := p.Detail[language], ""; r.Invalid != nil || r.Turn != nil {
		if r.Invalid != nil {
			detail, field = word(r.Invalid, language), r.Invalid.Field
		}
		body = encodeProblem(r.Verdict, p.Status, p.Title[language], detail, field, r.Turn)
	}
	header := c.Writer.Header()
	header["Content-Language"] = languages[language]
	header["Cache-Control"] = noStore // the handler may have set another before it failed
	if len(header["Vary"]) == 0 {
		header["Vary"] = byLanguage
	} else {
		header.Add("Vary", "Accept-Language")
	}
	if len(header["Content-Type"]) == 0 {
		header["Content-Type"] = problemType
	}
	switch p.Status {
	case http.StatusUnauthorized:
		header["Www-Authenticate"] = bearer
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		header.Set("Retry-After", strconv.Itoa(max(1, int(math.Ceil(r.RetryAfter.Seconds())))))
	}
	c.Status(p.Status)
	_, _ = c.Writer.Write(body) // an error means that the client has disconnected or is too slow
	_, _ = c.Writer.WriteString(middleware.RequestIDOf(c))
	_, _ = c.Writer.WriteString(behindID)
}

// languageOf returns the language that an Accept-Language header ranks higher, Chinese or English, whatever the region. The
// wildcard stands for English, the default. Of equal weights, the first wins.
func languageOf(header string) (language int) {
	if header == "" {
		return english
	}
	best := 0.0
	for choice := range strings.SplitSeq(strings.ToLower(header), ",") {
		tag, weight, weighted := strings.Cut(choice, ";")
		name, _, _ := strings.Cut(strings.TrimSpace(tag), "-")
		if name != "zh" && name != "en" && name != "*" {
			continue
		}
		q := 1.0
		if weighted {
			value, _ := strings.CutPrefix(strings.TrimSpace(weight), "q=")
			q, _ = strconv.ParseFloat(value, 64) // 0 if it is no number
		}
		if q > best {
			best, language = q, english
			if name == "zh" {
				language = chinese
			}
		}
	}
	return language
}
