package middleware

import (
	"log/slog"
	"maps"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/model"
)

const (
	linesPerSecond = 10 // for requests of one kind
	slowRequest    = time.Second
	maxReason      = 300 // characters; the reason for a refusal may quote the request
)

// AccessLog logs requests, at warn if the answer is a 5xx and otherwise at info. It must be outside of the stage that writes the
// problems, so that it sees the status that was sent. It logs the route's pattern instead of the URL, which may contain a path
// token.
//
// Unless the logger's level is debug, at most linesPerSecond lines a second are written for a route and status. The next such
// line reports in "skipped" how many were left out. A 5xx, and a request that took slowRequest or longer, is exempt from this
// limit.
func AccessLog(log *slog.Logger, now func() time.Time) gin.HandlerFunc {
	budgets := newLogBudgets()
	return func(c *gin.Context) {
		Begin(c, now)
		c.Next()

		status, level := c.Writer.Status(), slog.LevelInfo
		if status >= http.StatusInternalServerError {
			level = slog.LevelWarn
		}
		ctx := c.Request.Context()
		if !log.Enabled(ctx, level) {
			return
		}
		took := Took(c, now)
		budget := budgets.of(logKind{c.FullPath(), status})
		always := level > slog.LevelInfo || took >= slowRequest
		if !always && !budget.take(stateOf(c).began.Add(took).Unix()) && !log.Enabled(ctx, slog.LevelDebug) {
			budget.skipped.Add(1)
			return
		}
		attrs := []slog.Attr{
			slog.String("method", c.Request.Method), slog.String("route", c.FullPath()), slog.Int("status", status),
			slog.Float64("duration_ms", float64(took)/float64(time.Millisecond)),
			slog.Int("bytes", max(0, c.Writer.Size())), // gin returns -1 if no body was written
			slog.String("request_id", RequestIDOf(c)), slog.String("client_ip", c.ClientIP()),
		}
		if user := IdentityOf(c).UserID; user != "" {
			attrs = append(attrs, slog.String("user_id", user))
		}
		if why := stateOf(c).refusal.Why; why != nil {
			attrs = append(attrs, slog.String("reason", model.Excerpt(why.Error(), maxReason)))
		}
		if skipped := budget.skipped.Swap(0); skipped > 0 {
			attrs = append(attrs, slog.Int64("skipped", skipped))
		}
		log.LogAttrs(ctx, level, "request", attrs...)
	}
}

// logKind names a budget of lines. Clients can invent neither routes nor statuses, so the number of kinds is bounded.
type logKind struct {
	route  string
	status int
}

type logBudget struct {
	lines   atomic.Int64 // the second, and in the low 8 bits the number of lines in that second
	skipped atomic.Int64 // lines that were left out since the last line
}

// take takes one line from the budget of a second. It returns false if no line is left.
func (b *logBudget) take(second int64) bool {
	for {
		old := b.lines.Load()
		next := max(old, second<<8) + 1 // a later second begins anew
		if next&0xff > linesPerSecond {
			return false
		}
		if b.lines.CompareAndSwap(old, next) {
			return true
		}
	}
}

// logBudgets is a map that is read without a lock. It is copied when a kind is added.
type logBudgets struct {
	atomic.Pointer[map[logKind]*logBudget]
}

func newLogBudgets() *logBudgets {
	b := &logBudgets{}
	b.Store(&map[logKind]*logBudget{})
	return b
}

func (b *logBudgets) of(kind logKind) *logBudget {
	for {
		known := b.Load()
		if budget, ok := (*known)[kind]; ok {
			return budget
		}
		next := maps.Clone(*known)
		next[kind] = &logBudget{}
		b.CompareAndSwap(known, &next)
	}
}
