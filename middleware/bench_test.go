package middleware

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// BenchmarkStages measures each stage alone, gin's own work included (see "none").
func BenchmarkStages(b *testing.B) {
	log := slog.New(slog.NewJSONHandler(io.Discard, nil))
	for name, stages := range map[string][]gin.HandlerFunc{
		"none":          nil,
		"request_id":    {RequestID()},
		"access_log":    {AccessLog(log, time.Now)},
		"headers":       {Headers()},
		"deadline":      {Deadline(time.Second)},
		"token_bucket":  {TokenBucket(1e9, 1e9, 0)},
		"address_limit": {AddressLimit(1e9)},
		"authenticate":  {Authenticate(tokens{"good": buyer})},
		"user_counter":  {UserCounter(model.Frequency{Limit: 1, Window: time.Second}, nil, nil)},
		"refuse":        {func(c *gin.Context) { Refuse(c, Refusal{Verdict: model.SoldOut}) }},
	} {
		b.Run(name, func(b *testing.B) {
			engine := gin.New()
			check.Done(engine.SetTrustedProxies(nil))
			engine.Use(stages...)
			engine.GET("/", func(*gin.Context) {})
			r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/", nil)
			r.Header.Set("Authorization", "Bearer good")
			w := httptest.NewRecorder()
			b.ReportAllocs()
			for b.Loop() {
				engine.ServeHTTP(w, r)
			}
		})
	}
}
