package middleware

import (
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/model"
)

const (
	// linesPerSecond is how many lines each kind of request may write in a second: enough to see what happens, and in a
	// rush negligible compared with the requests themselves.
	linesPerSecond = 10
	// slowRequest is the duration from which on a request is always logged.
	slowRequest = time.Second
	// maxReason is how many characters of the reason for a refusal are logged: the reason may quote the request.
	maxReason = 300
)

// AccessLog writes a line for each request, at warn for a 5xx and otherwise at info. It must be outside of the stage that
// writes the problems, so that it sees the status that was sent. It logs the route as the pattern that matched (empty
// if none did), never as the URL: the URL of a purchase contains the buyer's path token.
//
// Unless the logger's level is debug, at most linesPerSecond lines in a second are written for requests with the same
// route and status. The next line for such a request reports in "skipped" how many lines were left out. A 5xx, and a request that
// took slowRequest or longer, is always written.
func AccessLog(log *slog.Logger, now func() time.Time) gin.HandlerFunc {
	budgets := logBudgets{of: map[logKind]*logBudget{}}
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
		always := level > slog.LevelInfo || took >= slowRequest || log.Enabled(ctx, slog.LevelDebug)
		skipped, ok := budgets.take(logKind{c.FullPath(), status}, stateOf(c).began.Add(took).Unix(), always)
		if !ok {
			return
		}
		attrs := []slog.Attr{
			slog.String("method", c.Request.Method),
			slog.String("route", c.FullPath()),
			slog.Int("status", status),
			slog.Float64("duration_ms", float64(took)/float64(time.Millisecond)),
			slog.Int("bytes", max(0, c.Writer.Size())), // gin returns -1 if no body was written
			slog.String("request_id", RequestIDOf(c)),
			slog.String("client_ip", c.ClientIP()),
		}
		if user := IdentityOf(c).UserID; user != "" {
			attrs = append(attrs, slog.String("user_id", user))
		}
		if why := stateOf(c).refusal.Why; why != nil {
			attrs = append(attrs, slog.String("reason", model.Excerpt(why.Error(), maxReason)))
		}
		if skipped > 0 {
			attrs = append(attrs, slog.Int("skipped", skipped))
		}
		log.LogAttrs(ctx, level, "request", attrs...)
	}
}

// logKind is what the requests that share a budget of lines have in common. Clients can invent neither routes nor statuses, so
// the number of kinds is bounded.
type logKind struct {
	route  string
	status int
}

// logBudgets counts the lines of each kind.
type logBudgets struct {
	mu sync.Mutex
	of map[logKind]*logBudget
}

type logBudget struct {
	second         int64
	lines, skipped int // lines in that second, and lines that were left out since the last line
}

// take takes one line from the budget of a second, or with always a line beside the budget, and returns how many lines of the
// kind were left out since the last one. ok is false if no line is left.
func (b *logBudgets) take(kind logKind, second int64, always bool) (skipped int, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := b.of[kind]
	if k == nil {
		k = &logBudget{}
		b.of[kind] = k
	}
	if k.second < second {
		k.second, k.lines = second, 0
	}
	if !always {
		if k.lines == linesPerSecond {
			k.skipped++
			return 0, false
		}
		k.lines++
	}
	skipped, k.skipped = k.skipped, 0
	return skipped, true
}
