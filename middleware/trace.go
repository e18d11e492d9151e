package middleware

import (
	"net/http"

	"github.com/gin-gonic/gin"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Trace gives each request a span, named by its method and the route's pattern. A client's traceparent says whether
// the request is sampled and what its span belongs to, and nothing else. The ready-made stage for gin would also send
// addresses, and paths, which hold purchase tokens.
func Trace(tracer trace.Tracer) gin.HandlerFunc {
	return func(c *gin.Context) {
		ctx := propagation.TraceContext{}.Extract(c.Request.Context(), propagation.HeaderCarrier(c.Request.Header))
		ctx, span := tracer.Start(ctx, "request", trace.WithSpanKind(trace.SpanKindServer))
		defer span.End()
		if !span.IsRecording() {
			return
		}
		c.Request = c.Request.WithContext(ctx)
		c.Next()
		status := c.Writer.Status()
		span.SetAttributes(attribute.Int("http.response.status_code", status), attribute.String("flashsale.request_id", RequestIDOf(c)))
		if route := c.FullPath(); route != "" { // else the method may be anything, too
			span.SetName(c.Request.Method + " " + route)
			span.SetAttributes(attribute.String("http.request.method", c.Request.Method), attribute.String("http.route", route))
		}
		if status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, "")
		}
	}
}
