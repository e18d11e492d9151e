package middleware

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"
	"golang.org/x/time/rate"
)

func TestAddressLimit(t *testing.T) {
	type request struct {
		pause time.Duration
		from  string
		want  string
	}
	tests := map[string]struct {
		perSecond float64
		requests  []request
	}{
		"off": {0, []request{{0, "192.0.2.1:1", "ok"}, {0, "192.0.2.1:1", "ok"}}},
		"one address, any port": {1, []request{
			{0, "192.0.2.1:1", "ok"}, {0, "192.0.2.1:2", "rate_limited after 1s"}, {time.Second, "192.0.2.1:3", "ok"},
		}},
		"two addresses": {1, []request{{0, "192.0.2.1:1", "ok"}, {0, "192.0.2.2:1", "ok"}}},
		"one IPv6 customer": {1, []request{
			{0, "[2001:db8::1]:1", "ok"}, {0, "[2001:db8::ffff:1]:1", "rate_limited after 1s"},
		}},
		"two IPv6 customers":     {1, []request{{0, "[2001:db8::1]:1", "ok"}, {0, "[2001:db8:0:1::1]:1", "ok"}}},
		"unreadable ones share":  {1, []request{{0, "@", "ok"}, {0, "", "rate_limited after 1s"}}},
		"a fraction of a second": {0.5, []request{{0, "192.0.2.1:1", "ok"}, {0, "192.0.2.1:1", "rate_limited after 2s"}}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				engine := newEngine(t, AddressLimit(tc.perSecond))
				for i, request := range tc.requests {
					<-time.After(request.pause)
					r := newRequest(t)
					r.RemoteAddr = request.from
					if got := serve(engine, r).Body.String(); got != request.want {
						t.Errorf("request %d from %s: %q, want %q", i, request.from, got, request.want)
					}
				}
			})
		})
	}
}

func TestNetwork(t *testing.T) {
	tests := map[string]struct{ clientIP, want string }{
		"IPv4":                 {"192.0.2.1", "192.0.2.1/32"},
		"IPv4 written as IPv6": {"::ffff:192.0.2.1", "192.0.2.1/32"},
		"IPv6":                 {"2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"},
		"IPv6 with a zone":     {"fe80::1%eth0", "fe80::/64"},
		"a name":               {"localhost", "invalid Prefix"},
		"nothing":              {"", "invalid Prefix"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := network(tc.clientIP).String(); got != tc.want {
				t.Errorf("network of %q: %s, want %s", tc.clientIP, got, tc.want)
			}
		})
	}
}

func TestAddressLimitIgnoresForgedHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := newEngine(t, AddressLimit(5))
		passed := 0
		for i := range 1000 {
			forged := fmt.Sprintf("198.51.%d.%d", i/256, i%256)
			r := newRequest(t, "X-Forwarded-For", forged, "X-Real-Ip", forged, "Forwarded", "for="+forged)
			if serve(engine, r).Body.String() == "ok" {
				passed++
			}
		}
		if passed != 5 {
			t.Errorf("%d of 1,000 forged requests passed, want 5", passed)
		}
	})
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

// The short way to a client's address gives what gin's own gives.
func TestClientNetworkIsGins(t *testing.T) {
	for _, proxies := range [][]string{nil, {"192.0.2.0/24", "2001:db8::/32"}} {
		for _, remote := range []string{
			"192.0.2.1:1234", "198.51.100.7:80", "[2001:db8::1]:80", "[2001:db9::1]:80", "[::ffff:192.0.2.1]:80", "[fe80::1%eth0]:80",
			"192.0.2.1", "", "@", "192.0.2.1:http", "[2001:db8::1]", ":80",
		} {
			for _, header := range []string{"", "X-Forwarded-For", "X-Real-Ip", "Forwarded"} {
				engine := gin.New()
				if err := engine.SetTrustedProxies(proxies); err != nil {
					t.Fatal(err)
				}
				engine.GET("/sales/:sale/:path", func(c *gin.Context) {
					if got, want := clientNetwork(c), network(c.ClientIP()); got != want {
						t.Errorf("%s with %q behind %v: %s, gin says %s", remote, header, proxies, got, want)
					}
				})
				r := newRequest(t)
				r.RemoteAddr = remote
				if header != "" {
					r.Header.Set(header, "203.0.113.9")
				}
				serve(engine, r)
			}
		}
	}
}
