package middleware

import (
	"log/slog"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
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
	kinds := newLogKinds()
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
		kind := kinds.of(logKind{c.FullPath(), status})
		always := level > slog.LevelInfo || took >= slowRequest
		if !always && !kind.take(stateOf(c).began.Add(took).Unix()) && !log.Enabled(ctx, slog.LevelDebug) {
			kind.skipped.Add(1)
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
		if skipped := kind.skipped.Swap(0); skipped > 0 {
			attrs = append(attrs, slog.Int64("skipped", skipped))
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

// logBudget counts the lines of one kind.
type logBudget struct {
	lines   atomic.Uint64 // the second, and in the low 8 bits the number of lines in that second
	skipped atomic.Int64  // lines that were left out since the last line
}

// take takes one line from the budget of a second. It returns false if no line is left.
func (b *logBudget) take(second int64) bool {
	this := uint64(second) << 8 //nolint:gosec // a time before 1970 only becomes another number
	for {
		old := b.lines.Load()
		next := old + 1
		switch {
		case old>>8 < this>>8:
			next = this + 1
		case old&0xff >= linesPerSecond:
			return false
		}
		if b.lines.CompareAndSwap(old, next) {
			return true
		}
	}
}

// logKinds is a map of budgets that is read without a lock. To add a kind, it copies the map.
type logKinds struct {
	mu    sync.Mutex
	known atomic.Pointer[map[logKind]*logBudget]
}

func newLogKinds() *logKinds {
	k := &logKinds{}
	k.known.Store(&map[logKind]*logBudget{})
	return k
}

func (k *logKinds) of(kind logKind) *logBudget {
	if budget, ok := (*k.known.Load())[kind]; ok {
		return budget
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	known := *k.known.Load()
	if budget, ok := known[kind]; ok {
		return budget
	}
	budget := &logBudget{}
	next := maps.Clone(known)
	next[kind] = budget
	k.known.Store(&next)
	return budget
}
