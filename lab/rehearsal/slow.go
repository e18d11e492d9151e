package rehearsal

import (
	"context"
	"net"

	"golang.org/x/time/rate"
)

// A slow connection carries slowBytes a second in each direction, and at most slowPiece bytes at once.
const slowBytes, slowPiece = 8 << 10, 512

// slowConn is a slow connection.
type slowConn struct {
	net.Conn
	reads, writes *rate.Limiter
}

func dialSlowly(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &slowConn{c, rate.NewLimiter(slowBytes, slowPiece), rate.NewLimiter(slowBytes, slowPiece)}, nil
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
