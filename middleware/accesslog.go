package middleware

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
)

// AccessLog writes one line a request, at warn for a 5xx and else at info. It stands outside of the stage
// that writes the problems, so that it sees the status that was sent. The route is logged as the pattern
// that matched (empty: none did), never as the URL: a purchase URL holds the buyer's path token.
func AccessLog(log *slog.Logger, now func() time.Time) gin.HandlerFunc {
	return func(c *gin.Context) {
		start := now()
		c.Next()

		level := slog.LevelInfo
		if c.Writer.Status() >= http.StatusInternalServerError {
			level = slog.LevelWarn
		}
		ctx := c.Request.Context()
		if !log.Enabled(ctx, level) {
			return
		}
		attrs := []slog.Attr{
			slog.String("method", c.Request.Method),
			slog.String("route", c.FullPath()),
			slog.Int("status", c.Writer.Status()),
			slog.Float64("duration_ms", float64(now().Sub(start))/float64(time.Millisecond)),
			slog.Int("bytes", max(0, c.Writer.Size())), // gin says -1 when no body was written
			slog.String("request_id", RequestIDOf(c)),
			slog.String("client_ip", c.ClientIP()),
		}
		if user := IdentityOf(c).UserID; user != "" {
			attrs = append(attrs, slog.String("user_id", user))
		}
		log.LogAttrs(ctx, level, "request", attrs...)
	}
}
