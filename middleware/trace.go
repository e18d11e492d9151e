package middleware

import (
	"net/http"

	"github.com/gin-gonic/gin"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Trace starts a span for each request, named by the method and the route's pattern if a route matches. The ready-made stage for
// gin would also send the clients' addresses, and the paths, which may contain path tokens.
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
		if route := c.FullPath(); route != "" { // without a route, the method may be any text
			span.SetName(c.Request.Method + " " + route)
			span.SetAttributes(attribute.String("http.request.method", c.Request.Method), attribute.String("http.route", route))
		}
		if status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, "")
		}
	}
}
