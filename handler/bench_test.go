package handler

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
)

// sink is a client that reads nothing.
type sink struct {
	header http.Header
	status int
}

func (s *sink) Header() http.Header { return s.header }

func (s *sink) WriteHeader(status int) { s.status = status }

func (s *sink) Write(p []byte) (int, error) { return len(p), nil }

// body is a request's body that can be read again and again.
type body struct{ strings.Reader }

func (b *body) Close() error { return nil }

// benchmark sends the same request again and again.
func benchmark(b *testing.B, handler http.Handler, r *http.Request, content string, status int) {
	again, client := &body{}, &sink{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		again.Reset(content)
		r.Body = again
		clear(client.header)
		handler.ServeHTTP(client, r)
		if client.status != status {
			b.Fatalf("status %d, want %d", client.status, status)
		}
	}
}

// BenchmarkSoldOut is a refusal from memory, BenchmarkAccepted a 201, both through every stage.
func BenchmarkSoldOut(b *testing.B) {
	s := newShop(b).soldOut()
	benchmark(b, s.handler(), s.purchase(oneUnit), oneUnit, http.StatusConflict)
}

func BenchmarkAccepted(b *testing.B) {
	s := newShop(b)
	benchmark(b, s.handler(), s.purchase(oneUnit), oneUnit, http.StatusCreated)
}

// BenchmarkBareGin is the control: it answers as many bytes and does nothing else.
func BenchmarkBareGin(b *testing.B) {
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.POST("/api/v1/sales/:sale/:path/orders", func(c *gin.Context) {
		_, _ = io.Copy(io.Discard, c.Request.Body)
		c.Data(http.StatusConflict, problemJS, make([]byte, 220))
	})
	r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/api/v1/sales/S/p/orders", nil)
	benchmark(b, engine, r, oneUnit, http.StatusConflict)
}

func BenchmarkSale(b *testing.B) {
	s := newShop(b).soldOut()
	benchmark(b, s.handler(), s.request(http.MethodGet, "/api/v1/sales/"+benchSale, ""), "", http.StatusOK)
}
