// Package tracing sends spans to an OpenTelemetry collector: of requests, of steps for them, and of calls of Redis and the
// database within these. Work for several attempts together has one span, which links to the spans of their requests. A span must
// not contain a user's id or address, a path token, a statement or the text of an error.
package tracing

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/XSAM/otelsql"
	"github.com/redis/go-redis/extra/redisotel/v9"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"

	"flashsale/internal/observe"
	"flashsale/model"
)

const name = "flashsale"

// closeTimeout is how long Close waits for the collector to take the last spans.
const closeTimeout = 500 * time.Millisecond

// Tracing makes spans, and sends them in batches from a bounded queue. Spans that don't fit into the queue are dropped. A nil
// Tracing traces nothing. Only the methods that say so may be called on nil.
type Tracing struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	close    func() error

	followed sync.Map // sampled requests under way: trace.Span by the order's id
	count    atomic.Int64
}

// New makes a Tracing that sends spans to an endpoint, http(s)://host:4318, and logs failures. It samples the fraction "ratio" of
// the requests without a valid traceparent header, which decides for its request. The caller must call Close at the end.
func New(ctx context.Context, endpoint string, ratio float64, instance string, log *slog.Logger) (*Tracing, error) {
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(strings.TrimSuffix(endpoint, "/")+"/v1/traces"))
	if err != nil {
		return nil, fmt.Errorf("--otlp-endpoint: %w", err)
	}
	var skipped atomic.Int64 // failures since the last line
	line := rate.Sometimes{Interval: failurePause}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		skipped.Add(1)
		line.Do(func() { log.Warn("traces are lost", "error", err, "skipped", skipped.Swap(0)-1) })
	}))
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(wordless{exporter}),
		sdktrace.WithSampler(sdktrace.ParentBased(requests{sdktrace.TraceIDRatioBased(ratio)})),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", name), attribute.String("service.instance.id", instance),
		)),
	)
	stop := func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		return provider.Shutdown(ctx)
	}
	return &Tracing{provider: provider, tracer: provider.Tracer(name), close: stop}, nil
}

// failurePause is the least time between two log lines about lost spans.
const failurePause = time.Minute

// wordless removes the texts of errors from spans. An error of Redis may contain arguments, and one of the database a user's id.
type wordless struct{ sdktrace.SpanExporter }

// ExportSpans is part of sdktrace.SpanExporter.
func (w wordless) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	bare := make([]sdktrace.ReadOnlySpan, len(spans))
	for i, span := range spans {
		bare[i] = wordlessSpan{span}
	}
	return w.SpanExporter.ExportSpans(ctx, bare)
}

type wordlessSpan struct{ sdktrace.ReadOnlySpan }

// Status returns whether the span failed, but not the reason.
func (s wordlessSpan) Status() sdktrace.Status {
	return sdktrace.Status{Code: s.ReadOnlySpan.Status().Code}
}

// Events returns nothing, since an event may contain the text of an error.
func (s wordlessSpan) Events() []sdktrace.Event { return nil }

// requests samples only traces that begin with a request.
type requests struct{ sdktrace.Sampler }

// ShouldSample is part of sdktrace.Sampler.
func (r requests) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	if p.Kind != trace.SpanKindServer {
		return sdktrace.NeverSample().ShouldSample(p)
	}
	return r.Sampler.ShouldSample(p)
}

// Close sends the remaining spans if the collector takes them within closeTimeout. It may be called on nil.
func (t *Tracing) Close() error {
	if t == nil {
		return nil
	}
	return t.close()
}

// Tracer returns the tracer for the spans of requests.
func (t *Tracing) Tracer() trace.Tracer { return t.tracer }

// OpenDB is sql.OpenDB with spans for the calls of the database within a recorded span. It may be called on nil.
func (t *Tracing) OpenDB(c driver.Connector) *sql.DB {
	if t == nil {
		return sql.OpenDB(c)
	}
	return otelsql.OpenDB(c, otelsql.WithTracerProvider(t.provider), otelsql.WithSpanOptions(otelsql.SpanOptions{
		DisableQuery: true,
		RecordError:  func(error) bool { return false }, // an error may contain a user's id
		OmitRows:     true, OmitConnResetSession: true, OmitConnectorConnect: true,
		SpanFilter: func(ctx context.Context, _ otelsql.Method, _ string, _ []driver.NamedValue) bool {
			return trace.SpanFromContext(ctx).IsRecording()
		},
	}))
}

// WatchRedis adds spans for the commands and pipelines of a client. It may be called on nil.
func (t *Tracing) WatchRedis(client redis.UniversalClient) error {
	if t == nil {
		return nil
	}
	return redisotel.InstrumentTracing(client, redisotel.WithTracerProvider(t.provider),
		redisotel.WithDBStatement(false), redisotel.WithCallerEnabled(false), redisotel.WithDialFilter(true))
}

// Begin is part of observe.Observer. It begins a span if the step has order ids and belongs to a sampled request.
func (t *Tracing) Begin(ctx context.Context, step observe.Step) (within context.Context, end func(error)) {
	switch {
	case step.OrderID == nil:
		return ctx, nil
	case step.Name == observe.Deduct:
		return t.follow(ctx, step.Name, step.OrderID(0))
	}
	return t.batch(ctx, step.Name, step.Items, step.OrderID)
}

// Note is part of observe.Observer.
func (*Tracing) Note(observe.Event) {}

// follow begins a span within a request, if the request is sampled. While the request runs, batch can find it by the order's id.
func (t *Tracing) follow(ctx context.Context, span, orderID string) (following context.Context, end func(error)) {
	request := trace.SpanFromContext(ctx)
	if !request.IsRecording() {
		return ctx, nil
	}
	if _, twice := t.followed.Swap(orderID, request); !twice {
		t.count.Add(1)
		context.AfterFunc(ctx, func() {
			t.followed.CompareAndDelete(orderID, request) // a repetition of the attempt may be followed now
			t.count.Add(-1)
		})
	}
	request.SetAttributes(attribute.String("flashsale.order_id", orderID))
	return t.start(ctx, span)
}

// batch begins the span of work for n attempts together; orderID returns the ids of their orders. The span is in the trace of the
// first request that is followed, and links to the followed requests, which link back. If there is none, batch begins no span,
// and "end" is nil.
func (t *Tracing) batch(ctx context.Context, span string, n int, orderID func(i int) string) (within context.Context, end func(error)) {
	if t.count.Load() == 0 {
		return ctx, nil
	}
	var sampled []trace.Span
	var links []trace.Link
	for i := range n {
		if found, ok := t.followed.Load(orderID(i)); ok {
			request := found.(trace.Span)
			sampled, links = append(sampled, request), append(links, trace.Link{SpanContext: request.SpanContext()})
		}
	}
	if len(sampled) == 0 {
		return ctx, nil
	}
	within, end = t.start(trace.ContextWithSpan(ctx, sampled[0]), span,
		trace.WithLinks(links...), trace.WithAttributes(attribute.Int("flashsale.attempts", n)))
	for _, request := range sampled {
		request.AddLink(trace.LinkFromContext(within))
	}
	return within, end
}

func (t *Tracing) start(ctx context.Context, name string, opts ...trace.SpanStartOption) (within context.Context, end func(error)) {
	within, span := t.tracer.Start(ctx, name, opts...)
	return within, func(err error) {
		if err != nil && !errors.Is(err, context.Canceled) {
			span.SetStatus(codes.Error, "")
		}
		span.End()
	}
}

// Logs returns a handler that adds the trace_id of a sampled context and, unless the line has one, the context's request_id.
func Logs(to slog.Handler) slog.Handler { return logs{to} }

type logs struct{ slog.Handler }

// Handle is part of slog.Handler.
func (l logs) Handle(ctx context.Context, r slog.Record) error {
	if span := trace.SpanContextFromContext(ctx); span.IsSampled() {
		r.AddAttrs(slog.String("trace_id", span.TraceID().String()))
	}
	if id := model.RequestIDOf(ctx); id != "" && !named(r) {
		r.AddAttrs(slog.String("request_id", id))
	}
	return l.Handler.Handle(ctx, r)
}

// named reports whether a line has a request_id of its own.
func named(r slog.Record) (found bool) {
	r.Attrs(func(a slog.Attr) bool {
		found = found || a.Key == "request_id"
		return !found
	})
	return found
}

// WithAttrs is part of slog.Handler.
func (l logs) WithAttrs(attrs []slog.Attr) slog.Handler { return logs{l.Handler.WithAttrs(attrs)} }

// WithGroup is part of slog.Handler.
func (l logs) WithGroup(name string) slog.Handler { return logs{l.Handler.WithGroup(name)} }
