package middleware

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
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
