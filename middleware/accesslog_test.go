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
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/model"
)

// newLog gives a logger and what it wrote, one JSON line a record.
func newLog(level slog.Level) (*slog.Logger, *bytes.Buffer) {
	var out bytes.Buffer
	return slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: level})), &out
}

// clock moves on by step each time it is read.
func clock(step time.Duration) func() time.Time {
	now := time.Date(2026, 11, 11, 20, 0, 0, 0, time.UTC)
	return func() time.Time {
		now = now.Add(step)
		return now
	}
}

func TestAccessLog(t *testing.T) {
	buyer := model.Identity{UserID: "u-1", Role: model.RoleBuyer}
	tests := map[string]struct {
		target string
		stage  gin.HandlerFunc
		want   map[string]any
	}{
		"a good answer": {
			target: "/sales/S1/secretpath?secretquery=1",
			stage:  as(buyer),
			want:   map[string]any{"level": "INFO", "route": "/sales/:sale/:path", "status": 200.0, "bytes": 2.0, "user_id": "u-1"},
		},
		"nobody known": {
			target: "/sales/S1/secretpath",
			stage:  func(c *gin.Context) { Refuse(c, Refusal{Verdict: model.Unauthenticated}) },
			want:   map[string]any{"level": "INFO", "route": "/sales/:sale/:path", "status": 400.0, "bytes": float64(len("unauthenticated after 0s"))},
		},
		"a failure": {
			target: "/sales/S1/secretpath",
			stage:  func(c *gin.Context) { Fail(c, errors.New("x")) },
			want:   map[string]any{"level": "WARN", "route": "/sales/:sale/:path", "status": 500.0, "bytes": float64(len("failed: x"))},
		},
		"no body": {
			target: "/sales/S1/secretpath",
			stage:  func(c *gin.Context) { c.AbortWithStatus(http.StatusNoContent) },
			want:   map[string]any{"level": "INFO", "route": "/sales/:sale/:path", "status": 204.0, "bytes": 0.0},
		},
		"no route": {
			target: "/sales/S1/secretpath/orders",
			stage:  func(*gin.Context) {},
			want:   map[string]any{"level": "INFO", "route": "", "status": 404.0, "bytes": 0.0},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			log, out := newLog(slog.LevelInfo)
			inner := newEngine(t, tc.stage)
			engine := gin.New()
			engine.Use(RequestID(), AccessLog(log, clock(1500*time.Microsecond)))
			engine.Use(inner.Handlers...)
			engine.GET("/sales/:sale/:path", func(c *gin.Context) { c.String(http.StatusOK, "ok") })
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, tc.target, nil)
			r.Header.Set("X-Request-ID", "r-1")
			serve(engine, r)

			if strings.Contains(out.String(), "secret") {
				t.Errorf("the URL reached the log: %s", out)
			}
			var got map[string]any
			if err := json.Unmarshal(out.Bytes(), &got); err != nil {
				t.Fatalf("not one line: %v in %q", err, out)
			}
			delete(got, "time")
			maps.Copy(tc.want, map[string]any{
				"msg": "request", "method": "GET", "duration_ms": 1.5, "request_id": "r-1", "client_ip": "192.0.2.1",
			})
			if !maps.Equal(got, tc.want) {
				t.Errorf("logged %v, want %v", got, tc.want)
			}
		})
	}
}

func TestAccessLogBelowLevel(t *testing.T) {
	log, out := newLog(slog.LevelWarn)
	serve(newEngine(t, AccessLog(log, clock(0))), newRequest(t))
	if out.Len() != 0 {
		t.Errorf("logged %q", out)
	}
}

// logged has requests pass the access log, each answered with the status that its X-Status says, and gives the lines.
type logged struct {
	engine *gin.Engine
	out    *bytes.Buffer
	now    time.Time
	took   time.Duration
}

func newLogged(level slog.Level) *logged {
	l := &logged{engine: gin.New(), now: time.Date(2026, 11, 11, 20, 0, 0, 0, time.UTC)}
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

func (l *logged) requests(t *testing.T, n, status int) {
	t.Helper()
	for range n {
		serve(l.engine, newRequest(t, "X-Status", strconv.Itoa(status)))
	}
}

// lines gives the status of each line since the last call, with what it says was skipped.
func (l *logged) lines(t *testing.T) (lines []string) {
	t.Helper()
	for line := range bytes.Lines(l.out.Bytes()) {
		var record struct{ Status, Skipped int }
		if err := json.Unmarshal(line, &record); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("%d skipped %d", record.Status, record.Skipped))
	}
	l.out.Reset()
	return lines
}

func (l *logged) expect(t *testing.T, want ...string) {
	t.Helper()
	if got := l.lines(t); !slices.Equal(got, want) {
		t.Errorf("lines %q, want %q", got, want)
	}
}

func TestAccessLogSamples(t *testing.T) {
	all := func(n int, line string) []string { return slices.Repeat([]string{line}, n) }
	l := newLogged(slog.LevelInfo)
	l.requests(t, 100, 409)
	l.expect(t, all(linesPerSecond, "409 skipped 0")...)
	l.requests(t, 1, 201) // another kind
	l.expect(t, "201 skipped 0")
	l.now = l.now.Add(time.Second - 1)
	l.requests(t, 5, 409)
	l.expect(t)
	l.now = l.now.Add(1)
	l.requests(t, 2, 409)
	l.expect(t, "409 skipped 95", "409 skipped 0")
	l.requests(t, 100, 503)
	l.expect(t, all(100, "503 skipped 0")...)

	l.requests(t, 20, 409)
	l.lines(t)
	l.took = slowRequest
	l.requests(t, 1, 409)
	l.expect(t, "409 skipped 12")
	l.took = slowRequest - 1
	l.requests(t, 20, 200)
	if n := len(l.lines(t)); n != 20 { // one to two in each second
		t.Errorf("%d lines of requests that came slowly, want 20", n)
	}
}

func TestAccessLogAtDebug(t *testing.T) {
	l := newLogged(slog.LevelDebug)
	l.requests(t, 100, 409)
	l.expect(t, slices.Repeat([]string{"409 skipped 0"}, 100)...)
}

// Every request is either written or counted, however many come at once, and no second has a line too many.
func TestAccessLogAtOnce(t *testing.T) {
	const callers, each = 8, 500
	kinds := newLogKinds()
	var lines atomic.Int64
	var running sync.WaitGroup
	for range callers {
		running.Go(func() {
			for i := range each {
				kind := kinds.of(logKind{"/", 400 + i%2})
				if kind.take(int64(i / 250)) {
					lines.Add(1)
				} else {
					kind.skipped.Add(1)
				}
			}
		})
	}
	running.Wait()
	skipped := kinds.of(logKind{"/", 400}).skipped.Load() + kinds.of(logKind{"/", 401}).skipped.Load()
	if lines.Load()+skipped != callers*each {
		t.Errorf("%d lines and %d skipped of %d requests", lines.Load(), skipped, callers*each)
	}
	if lines.Load() > 2*2*linesPerSecond {
		t.Errorf("%d lines of two kinds in two seconds", lines.Load())
	}
}
