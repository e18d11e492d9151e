package middleware

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"golang.org/x/time/rate"

	"flashsale/test/kit/check"
)

// Each address has its limit. The headers that inSteps forges do not count.
func TestAddressLimit(t *testing.T) {
	type test struct {
		perSecond float64
		steps     []step
	}
	const second, limited = time.Second, "rate_limited after 1s"
	check.Each(t, map[string]test{
		"off": {0, []step{{"first", 0, "ok", "192.0.2.1:1"}, {"second", 0, "ok", "192.0.2.1:1"}}},
		"one address": {1, []step{
			{"first", 0, "ok", "192.0.2.1:1"}, {"another port", 0, limited, "192.0.2.1:2"}, {"later", second, "ok", "192.0.2.1:3"},
		}},
		"two addresses":        {1, []step{{"first", 0, "ok", "192.0.2.1:1"}, {"second", 0, "ok", "192.0.2.2:1"}}},
		"one IPv6 network":     {1, []step{{"first", 0, "ok", "[2001:db8::1]:1"}, {"second", 0, limited, "[2001:db8::ffff:1]:1"}}},
		"two IPv6 networks":    {1, []step{{"first", 0, "ok", "[2001:db8::1]:1"}, {"second", 0, "ok", "[2001:db8:0:1::1]:1"}}},
		"unreadable addresses": {1, []step{{"first", 0, "ok", "@"}, {"second", 0, limited, "?"}}},
		"half a request":       {0.5, []step{{"first", 0, "ok", "192.0.2.1:1"}, {"second", 0, "rate_limited after 2s", "192.0.2.1:1"}}},
	}, func(t *testing.T, tc test) {
		inSteps(t, func() gin.HandlerFunc { return AddressLimit(tc.perSecond) }, tc.steps)
	})
}

// network returns the network of an address, or of a text that is no address.
func network(clientIP string) netip.Prefix {
	address, _ := netip.ParseAddr(clientIP)
	return networkOf(address)
}

func TestNetwork(t *testing.T) {
	for clientIP, want := range map[string]string{
		"192.0.2.1": "192.0.2.1/32", "::ffff:192.0.2.1": "192.0.2.1/32",
		"2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64", "fe80::1%eth0": "fe80::/64",
		"localhost": "invalid Prefix", "": "invalid Prefix",
	} {
		check.Same(t, "network of "+clientIP, network(clientIP).String(), want)
	}
}

func TestAddressLimitersAreBounded(t *testing.T) {
	limiters := newAddressLimiters()
	for i := range uint32(2 * maxAddresses) {
		address := netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, i)))
		limiters.Set(network(address.String()), rate.NewLimiter(1, 1))
	}
	limiters.CleanUp()
	if size := limiters.EstimatedSize(); size > maxAddresses {
		t.Errorf("%d limiters are kept, want at most %d", size, maxAddresses)
	}
}

// Proxies write the header in several forms. Only the documented one counts.
func TestForwarded(t *testing.T) {
	type header map[string][]string
	type row struct {
		header header
		want   string
	}
	check.Each(t, map[string]row{
		"one address":           {header{"X-Forwarded-For": {"203.0.113.9"}}, "203.0.113.9/32"},
		"with a port":           {header{"X-Forwarded-For": {"203.0.113.9:5678"}}, "203.0.113.9/32"},
		"IPv6 with a port":      {header{"X-Forwarded-For": {"[2001:db8:1:2::3]:80"}}, "2001:db8:1:2::/64"},
		"IPv6 in brackets":      {header{"X-Forwarded-For": {"[2001:db8:1:2::3]"}}, "2001:db8:1:2::/64"},
		"IPv6 with a zone":      {header{"X-Forwarded-For": {"2001:db8:1:2::3%eth0"}}, "2001:db8:1:2::/64"},
		"behind a proxy":        {header{"X-Forwarded-For": {"198.51.100.1:1, 203.0.113.9:2, 192.0.2.7:3"}}, "203.0.113.9/32"},
		"a second line":         {header{"X-Forwarded-For": {"198.51.100.1", "203.0.113.9"}}, "203.0.113.9/32"},
		"no address":            {header{"X-Forwarded-For": {"unknown"}}, "192.0.2.1/32"},
		"no address in between": {header{"X-Forwarded-For": {"203.0.113.9, unknown, 192.0.2.7"}}, "192.0.2.1/32"},
		"another header":        {header{"X-Real-Ip": {"203.0.113.9"}, "Forwarded": {"for=203.0.113.9"}}, "192.0.2.1/32"},
	}, func(t *testing.T, tc row) {
		var log bytes.Buffer
		engine := gin.New()
		check.NoError(t, TrustProxies(engine, []string{"192.0.2.0/24"}, slog.New(slog.NewTextHandler(&log, nil))))
		engine.GET("/sales/:sale/:path", func(c *gin.Context) { check.Same(t, "network", clientNetwork(c).String(), tc.want) })
		for range 2 {
			r := newRequest(t)
			r.RemoteAddr, r.Header = "192.0.2.1:80", http.Header(tc.header).Clone()
			serve(engine, r)
		}
		unread := strings.Contains(fmt.Sprint(tc.header), "unknown")
		check.Same(t, "lines of the log", strings.Count(log.String(), "no address"), map[bool]int{true: 1}[unread])
	})
}

// Only a trusted proxy says who asks, and the fast way to a client's address gives the address that gin gives.
func FuzzForwarded(f *testing.F) {
	for _, remote := range []string{
		"192.0.2.1:1234", "198.51.100.7:80", "[2001:db8::1]:80", "[2001:db9::1]:80", "[::ffff:192.0.2.1]:80", "[fe80::1%eth0]:80",
		"192.0.2.1", "", "@", "192.0.2.1:http", "[2001:db8::1]", ":80",
	} {
		f.Add(remote, "", "", "")
		f.Add(remote, "203.0.113.9", "", "")
		f.Add(remote, "", "203.0.113.9", "")
		f.Add(remote, "10.0.0.1, 192.0.2.9", "10.0.0.2", "for=10.0.0.3")
		f.Add(remote, "\x00, ,", "::ffff:10.0.0.1", "for=\"[::1]\"")
	}
	f.Fuzz(func(t *testing.T, remote, forwarded, real, standard string) {
		var got netip.Prefix
		send := func(forwarded, real, standard string, proxies ...string) {
			engine := gin.New()
			check.Done(TrustProxies(engine, proxies, slog.New(slog.DiscardHandler)))
			engine.GET("/sales/:sale/:path", func(c *gin.Context) {
				got = clientNetwork(c)
				check.Same(t, "gin's network", network(c.ClientIP()), got)
			})
			r := newRequest(t)
			r.RemoteAddr = remote
			for name, value := range map[string]string{"X-Forwarded-For": forwarded, "X-Real-Ip": real, "Forwarded": standard} {
				if value != "" {
					r.Header[name] = []string{value}
				}
			}
			serve(engine, r)
		}
		send(forwarded, real, standard, "192.0.2.0/24", "2001:db8::/32")
		send("", "", "")
		direct := got
		send(forwarded, real, standard)
		check.Same(t, "network without a trusted proxy", got, direct)
	})
}
