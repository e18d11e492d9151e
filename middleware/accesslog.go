package middleware

import (
	"log/slog"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"
)

const (
	// linesPerSecond is how many lines a second each kind of request may write: enough to see what goes on, and
	// in a rush nothing beside the requests themselves.
	linesPerSecond = 10
	// slowRequest is always worth a line.
	slowRequest = time.Second
)

// AccessLog writes a line a request, at warn for a 5xx and else at info. It stands outside of the stage
// that writes the problems, so that it sees the status that was sent. The route is logged as the pattern
// that matched (empty: none did), never as the URL: a purchase URL holds the buyer's path token.
//
// Unless the logger takes debug, of the requests to one route that were answered with one status at most
// linesPerSecond are written in a second; the next line of that kind says in "skipped" how many were not. A 5xx
// and what took slowRequest or longer is always written.
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
			slog.Int("bytes", max(0, c.Writer.Size())), // gin says -1 when no body was written
			slog.String("request_id", RequestIDOf(c)),
			slog.String("client_ip", c.ClientIP()),
		}
		if user := IdentityOf(c).UserID; user != "" {
			attrs = append(attrs, slog.String("user_id", user))
		}
		if skipped := kind.skipped.Swap(0); skipped > 0 {
			attrs = append(attrs, slog.Int64("skipped", skipped))
		}
		log.LogAttrs(ctx, level, "request", attrs...)
	}
}

// logKind is what shares a budget of lines. Nothing of it is for strangers to choose, which bounds the kinds.
type logKind struct {
	route  string
	status int
}

// logBudget counts the lines of one kind.
type logBudget struct {
	lines   atomic.Uint64 // the second, and in the low 8 bits how many lines it has
	skipped atomic.Int64  // since the last line
}

// take reports whether this second has a line left, and takes it.
func (b *logBudget) take(second int64) bool {
	this := uint64(second) << 8 //nolint:gosec // a clock before 1970 makes another second, no worse
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

// logKinds finds budgets without a lock. A kind that comes for the first time copies the map.
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
