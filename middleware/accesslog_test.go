package middleware

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// newLog returns a logger, and the buffer with its lines in JSON.
func newLog(level slog.Level) (*slog.Logger, *bytes.Buffer) {
	var out bytes.Buffer
	return slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: level})), &out
}

func TestAccessLog(t *testing.T) {
	type test struct {
		target string // below /sales/S1/
		stage  gin.HandlerFunc
		want   map[string]any
	}
	const route = "/sales/:sale/:path"
	none := func(*gin.Context) {}
	refuse := func(c *gin.Context) { Refuse(c, Refusal{Verdict: model.Unauthenticated}) }
	stranger := func(c *gin.Context) {
		Refuse(c, Refusal{Verdict: model.Unauthenticated, Why: errors.New("expired" + strings.Repeat("!", 1000))})
	}
	fail := func(c *gin.Context) { Fail(c, errors.New("x")) }
	empty := func(c *gin.Context) { c.AbortWithStatus(http.StatusNoContent) }
	check.Each(t, map[string]test{
		"success": {
			"secretpath?secretquery=1", as(buyer), map[string]any{"route": route, "status": 200.0, "bytes": 2.0, "user_id": "u-1"},
		},
		"refusal": {"secretpath", refuse, map[string]any{"route": route, "status": 400.0, "bytes": 24.0}},
		"bad token": {
			"secretpath", stranger, map[string]any{"route": route, "status": 400.0, "bytes": 24.0, "reason": "expired" + strings.Repeat("!", maxReason-8) + "…"},
		},
		"failure":  {"secretpath", fail, map[string]any{"route": route, "status": 500.0, "bytes": 9.0, "level": "WARN"}},
		"no body":  {"secretpath", empty, map[string]any{"route": route, "status": 204.0, "bytes": 0.0}},
		"no route": {"secretpath/orders", none, map[string]any{"route": "", "status": 404.0, "bytes": 0.0}},
	}, func(t *testing.T, tc test) {
		log, out := newLog(slog.LevelInfo)
		now := time.Date(2026, 11, 11, 20, 0, 0, 0, time.UTC)
		clock := func() time.Time { // moves at each reading
			now = now.Add(1500 * time.Microsecond)
			return now
		}
		engine := gin.New()
		engine.Use(RequestID(), AccessLog(log, clock))
		engine.Use(newEngine(tc.stage).Handlers...)
		engine.GET(route, func(c *gin.Context) { c.String(http.StatusOK, "ok") })
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/sales/S1/"+tc.target, nil)
		r.Header.Set("X-Request-ID", "r-1")
		serve(engine, r)
		check.Same(t, "the URL is in the log", strings.Contains(out.String(), "secret"), false)
		var got map[string]any
		check.Done(json.Unmarshal(out.Bytes(), &got)) // fails unless there is one line
		delete(got, "time")
		want := map[string]any{
			"level": "INFO", "msg": "request", "method": "GET", "duration_ms": 1.5, "request_id": "r-1", "client_ip": "192.0.2.1",
		}
		maps.Copy(want, tc.want)
		check.Same(t, "line", got, want)
	})
}

// logged sends requests through the access log, and reads its lines. A request's header X-Status is the answer's status.
type logged struct {
	*testing.T
	engine *gin.Engine
	out    *bytes.Buffer
	now    time.Time
	took   time.Duration // the time that each request takes
}

func newLogged(t *testing.T, level slog.Level) *logged {
	l := &logged{T: t, engine: gin.New(), now: time.Date(2026, 11, 11, 20, 0, 0, 0, time.UTC)}
	var log *slog.Logger
	log, l.out = newLog(level)
	l.engine.Use(AccessLog(log, func() time.Time { return l.now }))
	l.engine.GET("/sales/:sale/:path", func(c *gin.Context) {
		l.now = l.now.Add(l.took)
		status, _ := strconv.Atoi(c.GetHeader("X-Status"))
		c.Status(status)
	})
	return l
}

// requests sends n requests, and returns for each new line the status and the number of skipped lines.
func (l *logged) requests(n, status int) (lines []string) {
	l.Helper()
	l.out.Reset()
	for range n {
		serve(l.engine, newRequest(l.T, "X-Status", strconv.Itoa(status)))
	}
	for line := range bytes.Lines(l.out.Bytes()) {
		var record struct{ Status, Skipped int }
		check.Done(json.Unmarshal(line, &record))
		lines = append(lines, fmt.Sprintf("%d skipped %d", record.Status, record.Skipped))
	}
	return lines
}

func TestAccessLogSamples(t *testing.T) {
	all := func(n int, line string) []string { return slices.Repeat([]string{line}, n) }
	l := newLogged(t, slog.LevelInfo)
	check.Same(t, "a hundred in a second", l.requests(100, 409), all(linesPerSecond, "409 skipped 0"))
	check.Same(t, "another status", l.requests(1, 201), []string{"201 skipped 0"})
	l.now = l.now.Add(time.Second - 1)
	check.Same(t, "in the same second", l.requests(5, 409), nil)
	l.now = l.now.Add(1)
	check.Same(t, "in the next second", l.requests(2, 409), []string{"409 skipped 95", "409 skipped 0"})
	check.Same(t, "failures", l.requests(100, 503), all(100, "503 skipped 0"))
	l.requests(20, 409)
	l.took = slowRequest
	check.Same(t, "a slow request", l.requests(1, 409), []string{"409 skipped 12"})
	l.took = slowRequest - 1
	check.Same(t, "lines of requests that come one or two in a second", len(l.requests(20, 200)), 20)

	check.Same(t, "at level debug", newLogged(t, slog.LevelDebug).requests(100, 409), all(100, "409 skipped 0"))
	check.Same(t, "at level warn", newLogged(t, slog.LevelWarn).requests(1, 409), nil)
}

// Concurrent requests are each written or counted, and no second has too many lines.
func TestAccessLogAtOnce(t *testing.T) {
	const callers, requests = 8, 500
	kinds := newLogBudgets()
	var lines atomic.Int64
	check.Together(callers, func(int) {
		for i := range requests {
			kind := kinds.of(logKind{"/", 400 + i%2})
			if kind.take(int64(i / 250)) {
				lines.Add(1)
			} else {
				kind.skipped.Add(1)
			}
		}
	})
	skipped := kinds.of(logKind{"/", 400}).skipped.Load() + kinds.of(logKind{"/", 401}).skipped.Load()
	check.Same(t, "lines and skipped lines", lines.Load()+skipped, callers*requests)
	if lines.Load() > 2*2*linesPerSecond {
		t.Errorf("%d lines of two kinds in two seconds", lines.Load())
	}
}
