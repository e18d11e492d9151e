package shop

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
)

// Address is the n-th of those of this machine that stand for the addresses of buyers. No two share their first three
// bytes, by which some proxies tell clients apart.
func Address(n int) string { return fmt.Sprintf("127.%d.%d.1", 1+n>>8, n&255) }

// Spread has the shop's requests come from so many addresses, connection by connection, as those of buyers do: who
// stands in front of the instances counts by address.
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
