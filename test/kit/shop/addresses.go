package shop

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
)

// Address returns the n-th loopback address that stands for a buyer's address. No two addresses share their first three
// bytes, because some proxies tell clients apart by these.
func Address(n int) string { return fmt.Sprintf("127.%d.%d.1", 1+n>>8, n&255) }

// Spread makes the shop's connections come from that many addresses in turn, as those of buyers do: a proxy in front of
// the instances counts by address.
func (s *Shop) Spread(addresses int) {
	var next atomic.Int64
	client := *s.client
	transport := client.Transport.(*http.Transport).Clone()
	transport.DialContext = func(ctx context.Context, network, to string) (net.Conn, error) {
		from := Address(int(next.Add(1)) % addresses)
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		return dialer.DialContext(ctx, network, to)
	}
	client.Transport = transport
	s.client = &client
	s.t.Cleanup(transport.CloseIdleConnections)
}
