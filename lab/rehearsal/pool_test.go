package rehearsal

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"flashsale/test/kit/check"
)

// poolOf makes a pool to a test server, and counts the connections that the server has got.
func poolOf(t *testing.T, secure bool, handle http.HandlerFunc) (p *pool, s *httptest.Server, opened *atomic.Int64) {
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
	base, err := url.Parse(s.URL)
	check.NoError(t, err)
	p = newPool(base, 4, time.Now)
	if secure {
		p.tls.RootCAs = s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	}
	t.Cleanup(p.close)
	return p, s, opened
}

// post sends a body, and returns the answer's.
func (p *pool) post(ctx context.Context, body string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.address+"/x", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	res, err := p.RoundTrip(req)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(res.Body)
	return string(text), err
}

func echo(w http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	_, _ = w.Write(text)
}

// A connection serves one request after the other, with and without encryption. One that the server has closed is replaced.
func TestPoolKeepsConnections(t *testing.T) {
	t.Parallel()
	for name, secure := range map[string]bool{"plain": false, "encrypted": true} {
		t.Run(name, func(t *testing.T) {
			p, s, opened := poolOf(t, secure, echo)
			ask := func(want int64) {
				t.Helper()
				if got, err := p.post(t.Context(), "hello"); err != nil || got != "hello" || opened.Load() != want {
					t.Fatalf("%q, %v, over %d connections, want %d", got, err, opened.Load(), want)
				}
			}
			for range 5 {
				ask(1)
			}
			s.CloseClientConnections()
			ask(2)
			ask(2)
			s.Close()
			if got, err := p.post(t.Context(), "hello"); err == nil {
				t.Errorf("a server that is gone answers %q", got)
			}
		})
	}
	p, _, opened := poolOf(t, false, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		echo(w, r)
	})
	for want := range int64(3) {
		if got, err := p.post(t.Context(), "hello"); err != nil || got != "hello" || opened.Load() != want+1 {
			t.Fatalf("%q, %v, over %d connections, want %d", got, err, opened.Load(), want+1)
		}
	}
}

// An unknown authority is not trusted.
func TestPoolChecksCertificates(t *testing.T) {
	t.Parallel()
	p, _, _ := poolOf(t, true, echo)
	p.tls = &tls.Config{ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}
	if got, err := p.post(t.Context(), "hello"); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("%q, %v", got, err)
	}
}

// An answer that is cut off or too long is no answer.
func TestPoolWantsWholeAnswers(t *testing.T) {
	t.Parallel()
	for name, handle := range map[string]http.HandlerFunc{
		"cut off": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "half")
		},
		"too long": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, maxAnswer+1)) },
	} {
		p, _, _ := poolOf(t, false, handle)
		if got, err := p.post(t.Context(), ""); err == nil || len(p.idle) > 0 {
			t.Errorf("%s: %d bytes, %v, %d connections are kept", name, len(got), err, len(p.idle))
		}
	}
}

// A buyer who is sent away does not wait for the answer.
func TestPoolIsStopped(t *testing.T) {
	t.Parallel()
	asked, over := make(chan struct{}), make(chan struct{})
	p, _, _ := poolOf(t, false, func(http.ResponseWriter, *http.Request) {
		close(asked)
		<-over
	})
	defer close(over)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := p.post(ctx, "")
		ended <- err
	}()
	check.Receive(t, "the server is asked", asked)
	cancel()
	if err := check.Receive(t, "the buyer leaves", ended); err == nil {
		t.Error("there was an answer")
	}
}

func TestSlowConnections(t *testing.T) {
	t.Parallel()
	p, _, _ := poolOf(t, false, echo)
	p.wrap = newSlowConn
	text := strings.Repeat("x", slowBytes/2)
	began := time.Now()
	got, err := p.post(t.Context(), text)
	if took := time.Since(began); err != nil || got != text || took < 800*time.Millisecond { // 4 KiB there and 4 KiB back, less the first pieces
		t.Errorf("%d bytes within %s, %v", len(got), took, err)
	}
}
