package rehearsal

import (
	"context"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"flashsale/service/auth"
	"flashsale/test/kit/check"
)

// crowdTo makes a crowd before a test server, and counts the connections that the server has got.
func crowdTo(t *testing.T, secure bool, handle http.HandlerFunc) (c *crowd, s *httptest.Server, opened *atomic.Int64) {
	t.Helper()
	opened = new(atomic.Int64)
	s = httptest.NewUnstartedServer(handle)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	c = check.Must(newCrowd(s.URL, minConnections, &Shape{Walk: PurchaseWalk, Slow: 1}, auth.NewTokens([]byte("secret"), time.Now), time.Now))
	if secure {
		c.trust(s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs)
	}
	t.Cleanup(c.close)
	return c, s, opened
}

// trust lets the quick buyers trust these authorities.
func (c *crowd) trust(authorities *x509.CertPool) {
	c.quick.RoundTripper.(*http.Transport).TLSClientConfig.RootCAs = authorities
}

// post sends a text, and returns the text of the answer, which is empty if there is no answer.
func (c *crowd) post(ctx context.Context, b *buyer, text string) string {
	return c.send(ctx, b, request{method: http.MethodPost, path: "/x", body: `{"id":"` + text + `"}`}).doc.ID
}

func echo(w http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text)
}

// A connection serves one request after the other, with and without encryption. One that the server has closed is replaced.
func TestCrowdKeepsConnections(t *testing.T) {
	t.Parallel()
	for name, secure := range map[string]bool{"plain": false, "encrypted": true} {
		t.Run(name, func(t *testing.T) {
			c, s, opened := crowdTo(t, secure, echo)
			ask := func(want int64) {
				t.Helper()
				if got := c.post(t.Context(), &buyer{}, "hello"); got != "hello" || opened.Load() != want {
					t.Fatalf("%q over %d connections, want %d", got, opened.Load(), want)
				}
			}
			for range 5 {
				ask(1)
			}
			s.CloseClientConnections()
			ask(2)
			ask(2)
			s.Close()
			if a := c.send(t.Context(), &buyer{}, request{method: http.MethodPost, path: "/x"}); a.status != 0 {
				t.Errorf("a server that is gone answers %v", a)
			}
		})
	}
	c, _, opened := crowdTo(t, false, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		echo(w, r)
	})
	for want := range int64(3) {
		if got := c.post(t.Context(), &buyer{}, "hello"); got != "hello" || opened.Load() != want+1 {
			t.Fatalf("%q over %d connections, want %d", got, opened.Load(), want+1)
		}
	}
}

// An unknown authority is not trusted.
func TestCrowdChecksCertificates(t *testing.T) {
	t.Parallel()
	c, _, _ := crowdTo(t, true, echo)
	c.trust(nil)
	req := check.Must(c.request(t.Context(), &buyer{}, request{method: http.MethodPost, path: "/x"}))
	res, err := c.quick.RoundTrip(req)
	if err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("%v, %v", res, err)
	}
	if res != nil {
		_ = res.Body.Close()
	}
}

// An answer that is cut off or too long is no answer.
func TestCrowdWantsWholeAnswers(t *testing.T) {
	t.Parallel()
	for name, handle := range map[string]http.HandlerFunc{
		"cut off": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "half")
		},
		"too long":     func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, maxAnswer+1)) },
		"far too long": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 2*maxAnswer)) },
	} {
		c, _, opened := crowdTo(t, false, handle)
		for want := range int64(3) {
			a := c.send(t.Context(), &buyer{}, request{method: http.MethodPost, path: "/x"})
			kept := opened.Load() != want+1
			if a.status != 0 || kept && name != "too long" { // the answer may have been read to its end
				t.Errorf("%s: %v over %d connections, want %d", name, a, opened.Load(), want+1)
			}
		}
	}
}

// A buyer who is sent away does not wait for the answer.
func TestRequestIsStopped(t *testing.T) {
	t.Parallel()
	asked, over := make(chan struct{}), make(chan struct{})
	c, _, _ := crowdTo(t, false, func(http.ResponseWriter, *http.Request) {
		close(asked)
		<-over
	})
	defer close(over)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan answer, 1)
	go func() { ended <- c.send(ctx, &buyer{}, request{method: http.MethodPost, path: "/x"}) }()
	check.Receive(t, "the server is asked", asked)
	cancel()
	if a := check.Receive(t, "the buyer leaves", ended); a.status != 0 {
		t.Errorf("the answer is %v", a)
	}
}

func TestSlowConnections(t *testing.T) {
	t.Parallel()
	c, _, _ := crowdTo(t, false, echo)
	text := strings.Repeat("x", slowBytes/2)
	began := time.Now()
	got := c.post(t.Context(), &buyer{slow: true}, text)
	if took := time.Since(began); got != text || took < 800*time.Millisecond { // 4 KiB there and 4 KiB back, less the first pieces
		t.Errorf("%d bytes within %s", len(got), took)
	}
}
