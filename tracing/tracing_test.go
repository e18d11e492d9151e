package tracing

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/middleware"
)

const (
	traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	sampled = "00-" + traceID + "-00f067aa0ba902b7-01"
)

// A line about a request has the request's id, and that of its trace if that is sampled.
func TestLogsNameTheTrace(t *testing.T) {
	tracing, err := New(t.Context(), "http://127.0.0.1:1", 0, "here", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tracing.Close() }() // nobody takes the span
	for name, tc := range map[string]struct{ header, want string }{"sampled": {sampled, traceID}, "not sampled": {"", ""}} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			log := slog.New(Logs(slog.NewJSONHandler(&out, nil))).With("some", "attribute")
			router := gin.New()
			router.Use(middleware.Trace(tracing.Tracer()), middleware.RequestID(), middleware.AccessLog(log, time.Now))
			router.GET("/", func(c *gin.Context) { c.Status(http.StatusOK) })
			request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
			request.Header.Set("traceparent", tc.header)
			request.Header.Set("X-Request-ID", "request-1")
			router.ServeHTTP(httptest.NewRecorder(), request)
			var line map[string]any
			if err := json.Unmarshal(out.Bytes(), &line); err != nil {
				t.Fatal(err)
			}
			if got, _ := line["trace_id"].(string); got != tc.want || line["request_id"] != "request-1" || line["some"] != "attribute" {
				t.Errorf("%s", out.String())
			}
		})
	}
}

// Nothing is done for attempts of which none is sampled.
func TestBatchOfNobody(t *testing.T) {
	tracing, err := New(t.Context(), "http://127.0.0.1:1", 0, "here", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tracing.Close() }()
	following, end := tracing.Follow(t.Context(), "deduct", "order")
	end(nil)
	asked := func(int) string {
		t.Error("it looks for orders although none is followed")
		return ""
	}
	within, end := tracing.Batch(t.Context(), "admit", 3, asked)
	end(nil)
	if following != t.Context() || within != t.Context() {
		t.Error("there is a span")
	}
}

func BenchmarkBatchOfNobody(b *testing.B) {
	tracing, err := New(b.Context(), "http://127.0.0.1:1", 0, "here", slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = tracing.Close() }()
	b.ReportAllocs()
	for b.Loop() {
		_, end := tracing.Batch(b.Context(), "admit", 256, func(int) string { return "" })
		end(nil)
	}
}
