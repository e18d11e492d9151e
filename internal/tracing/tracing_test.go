package tracing

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"flashsale/internal/embedded"
	"flashsale/internal/observe"
	"flashsale/middleware"
	"flashsale/test/kit/check"
)

const (
	traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	sampled = "00-" + traceID + "-00f067aa0ba902b7-01"
)

// newTracing sends spans to a collector.
func newTracing(t *testing.T, endpoint string, ratio float64, log slog.Handler) *Tracing {
	t.Helper()
	return check.Must(New(t.Context(), endpoint, ratio, "here", slog.New(log)))
}

const nobody = "http://127.0.0.1:1" // no collector listens here

// A line about a request has the id of the request, and the id of its trace if the trace is sampled.
func TestLogsNameTheTrace(t *testing.T) {
	tracing := newTracing(t, nobody, 0, slog.DiscardHandler)
	defer func() { _ = tracing.Close() }() // can't send the span
	for header, want := range map[string]string{sampled: traceID, "": ""} {
		var out bytes.Buffer
		log := slog.New(Logs(slog.NewJSONHandler(&out, nil))).With("some", "attribute")
		router := gin.New()
		router.Use(middleware.Trace(tracing.Tracer()), middleware.RequestID(), middleware.AccessLog(log, time.Now), middleware.Deadline(time.Minute))
		router.GET("/", func(c *gin.Context) {
			log.InfoContext(c.Request.Context(), "on the way")
			c.Status(http.StatusOK)
		})
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
		request.Header.Set("traceparent", header)
		request.Header.Set("X-Request-ID", "request-1")
		router.ServeHTTP(httptest.NewRecorder(), request)
		for text := range bytes.Lines(out.Bytes()) {
			var line map[string]any
			check.Done(json.Unmarshal(text, &line))
			got, _ := line["trace_id"].(string)
			if got != want || line["request_id"] != "request-1" || line["some"] != "attribute" || bytes.Count(text, []byte(`"request_id"`)) != 1 {
				t.Errorf("%q: %s", header, text)
			}
		}
		check.Same(t, "lines", bytes.Count(out.Bytes(), []byte("\n")), 2)
	}
}

// However many failures there are, the log has one line in a minute, which counts the failures that were skipped.
func TestFailuresAreToldNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		tracing := newTracing(t, nobody, 0, slog.NewJSONHandler(&out, nil))
		const pause = 700 * time.Millisecond // no failure occurs exactly at the end of a minute
		for range 3 * failurePause / pause {
			otel.Handle(errors.New("the collector is away"))
			time.Sleep(pause)
		}
		check.Done(tracing.Close())
		skipped := []float64{}
		for line := range bytes.Lines(out.Bytes()) {
			var told map[string]any
			if err := json.Unmarshal(line, &told); err != nil || told["error"] != "the collector is away" || told["level"] != "WARN" {
				t.Errorf("%v: %s", err, line)
			}
			n, _ := told["skipped"].(float64)
			skipped = append(skipped, n)
		}
		check.Same(t, "failures that the lines skipped", skipped, []float64{0, 85, 85})
	})
}

// The span of a failed call of Redis has the status of an error, and no text of the error, which may contain anything.
func TestSpansHaveNoWordsOfErrors(t *testing.T) {
	var sent []byte
	var spans []*tracepb.Span
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var request collectorpb.ExportTraceServiceRequest
		body, err := io.ReadAll(r.Body)
		check.Error(t, "request", errors.Join(err, proto.Unmarshal(body, &request)), nil)
		sent = append(sent, body...)
		for _, resource := range request.GetResourceSpans() {
			for _, scope := range resource.GetScopeSpans() {
				spans = append(spans, scope.GetSpans()...)
			}
		}
	}))
	redisServer := check.Must(embedded.StartRedis())
	defer redisServer.Close()
	client := redis.NewClient(check.Must(redis.ParseURL(redisServer.URL())))
	defer func() { _ = client.Close() }()
	tracing := newTracing(t, collector.URL, 1, slog.DiscardHandler)
	check.Done(tracing.WatchRedis(client))
	ctx, request := tracing.Tracer().Start(t.Context(), "request", trace.WithSpanKind(trace.SpanKindServer))
	_, err := client.Eval(ctx, "return redis.error_reply('ERR '..ARGV[1])", []string{"key"}, "ann-whom-nobody-may-know").Result()
	if err == nil || !strings.Contains(err.Error(), "ann-whom") {
		t.Fatalf("the script gave %v", err)
	}
	request.End()
	check.Done(tracing.provider.ForceFlush(t.Context())) // Close gives the collector half a second
	_ = tracing.Close()                                  // nothing is left to send
	collector.Close()                                    // waits for its requests
	failed := slices.ContainsFunc(spans, func(s *tracepb.Span) bool {
		return s.GetName() == "eval" && s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR
	})
	if !failed {
		t.Errorf("the spans are %v", spans)
	}
	for _, word := range []string{"ann-whom", "ERR", "error_reply"} {
		check.Same(t, word+" was sent", bytes.Contains(sent, []byte(word)), false)
	}
}

// For attempts of which none is sampled there is no span, and no order is looked up.
func TestBatchOfNobody(t *testing.T) {
	tracing := newTracing(t, nobody, 0, slog.DiscardHandler)
	defer func() { _ = tracing.Close() }()
	of := func(name string, n int, orderID func(int) string) observe.Step {
		return observe.Step{Name: name, Items: n, OrderID: orderID}
	}
	following, end := tracing.Begin(t.Context(), of(observe.Deduct, 1, func(int) string { return "order" }))
	asked := func(int) string {
		t.Error("an order is looked up although none is followed")
		return ""
	}
	within, endBatch := tracing.Begin(t.Context(), of(observe.Admit, 3, asked))
	if following != t.Context() || within != t.Context() || end != nil || endBatch != nil {
		t.Error("there is a span")
	}
}
