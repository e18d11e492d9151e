package rehearsal

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/time/rate"
)

const (
	// slowBytes is how many bytes a second a slow connection carries in each direction, as on the edge of a mobile
	// network. slowPiece is how many bytes it carries at a time.
	slowBytes, slowPiece = 8 << 10, 512
	// connBuffer is the size of a connection's buffers. Most requests and answers are smaller.
	connBuffer = 4 << 10
)

// pool is an http.RoundTripper with connections to one host. An http.Transport has two goroutines for each connection, and
// hands each request and answer over to them. Here the buyer's own goroutine writes and reads, which halves the processor time.
type pool struct {
	address string
	tls     *tls.Config // nil: plain HTTP
	wrap    func(net.Conn) net.Conn
	idle    chan *conn
	now     func() time.Time
}

type conn struct {
	net.Conn
	in  *bufio.Reader
	out *bufio.Writer
}

// newPool makes a pool that keeps at most this many idle connections. The caller bounds how many are in use.
func newPool(base *url.URL, connections int, now func() time.Time) *pool {
	p := &pool{wrap: func(c net.Conn) net.Conn { return c }, idle: make(chan *conn, connections), now: now}
	port := "80"
	if base.Scheme == "https" {
		p.tls = &tls.Config{ServerName: base.Hostname(), MinVersion: tls.VersionTLS12, ClientSessionCache: tls.NewLRUClientSessionCache(0)}
		port = "443"
	}
	p.address = net.JoinHostPort(base.Hostname(), cmp.Or(base.Port(), port))
	return p
}

func (p *pool) close() {
	for {
		select {
		case c := <-p.idle:
			_ = c.Close()
		default:
			return
		}
	}
}

// RoundTrip sends a request and returns the answer with its whole body, or an error if the body has maxAnswer bytes or more. If
// an idle connection fails before any answer, as after the server has closed it, the request is sent again on a new connection.
// Usually the server has not read the request; if it has, the engine does nothing twice.
func (p *pool) RoundTrip(req *http.Request) (*http.Response, error) {
	select {
	case c := <-p.idle:
		res, answered, err := p.ask(c, req)
		if err == nil || answered || req.Context().Err() != nil {
			return res, err
		}
		if req.Body, err = req.GetBody(); err != nil {
			return nil, err
		}
	default:
	}
	c, err := p.dial(req.Context())
	if err != nil {
		return nil, err
	}
	res, _, err := p.ask(c, req)
	return res, err
}

func (p *pool) dial(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var d net.Dialer
	plain, err := d.DialContext(ctx, "tcp", p.address)
	if err != nil {
		return nil, err
	}
	c := p.wrap(plain)
	if p.tls != nil {
		secure := tls.Client(c, p.tls)
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c = secure
	}
	return &conn{c, bufio.NewReaderSize(c, connBuffer), bufio.NewWriterSize(c, connBuffer)}, nil
}

// ask sends a request on a connection, and keeps the connection if it can be used again. answered is true if a part of an
// answer has come, or none has come in time: the request is then not sent again.
func (p *pool) ask(c *conn, req *http.Request) (res *http.Response, answered bool, err error) {
	deadline := p.now().Add(patience)
	stop := context.AfterFunc(req.Context(), func() { _ = c.Close() })
	defer func() {
		if !stop() || err != nil || res.Close {
			_ = c.Close()
			return
		}
		select {
		case p.idle <- c:
		default:
			_ = c.Close()
		}
	}()
	if err := errors.Join(c.SetDeadline(deadline), req.Write(c.out), c.out.Flush()); err != nil {
		return nil, false, err
	}
	if _, err := c.in.Peek(1); err != nil {
		var timeout net.Error
		return nil, errors.As(err, &timeout) && timeout.Timeout(), err
	}
	if res, err = http.ReadResponse(c.in, req); err != nil {
		return nil, true, err
	}
	var body bytes.Buffer
	if _, err := io.CopyN(&body, res.Body, maxAnswer); !errors.Is(err, io.EOF) {
		return nil, true, errors.Join(errTooLong, err)
	}
	res.Body = io.NopCloser(&body)
	return res, true, nil
}

var errTooLong = errors.New("the answer is too long, or was cut off")

// slowConn carries few bytes a second.
type slowConn struct {
	net.Conn
	reads, writes *rate.Limiter
}

func newSlowConn(c net.Conn) net.Conn {
	return &slowConn{c, rate.NewLimiter(slowBytes, slowPiece), rate.NewLimiter(slowBytes, slowPiece)}
}

// Read implements net.Conn.
func (s *slowConn) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p[:min(len(p), slowPiece)])
	if n > 0 {
		_ = s.reads.WaitN(context.Background(), n) // it can't fail: n is at most the burst
	}
	return n, err
}

// Write implements net.Conn.
func (s *slowConn) Write(p []byte) (written int, err error) {
	for err == nil && written < len(p) {
		piece := p[written:min(len(p), written+slowPiece)]
		_ = s.writes.WaitN(context.Background(), len(piece))
		n := 0
		n, err = s.Conn.Write(piece)
		written += n
	}
	return written, err
}
