package middleware

import (
	"log/slog"
	"math"
	"net/netip"
	"strings"
	"sync"

	"github.com/gin-gonic/gin"
	"github.com/maypok86/otter/v2"
	"golang.org/x/time/rate"
)

// maxAddresses bounds the limiters, and so their memory to some 20 MB. An address whose limiter was dropped may send a burst
// again. Limiters have no expiry, since that would make each request cost more.
const maxAddresses = 1 << 16

// AddressLimit lets each client network send perSecond requests a second, and a burst of as many, rounded up; 0 means no limit.
// It refuses a request beyond that as RateLimited, with the time until a token is free.
func AddressLimit(perSecond float64) gin.HandlerFunc {
	if perSecond <= 0 {
		return func(*gin.Context) {}
	}
	limiters := newAddressLimiters()
	fresh := func() (*rate.Limiter, bool) {
		return rate.NewLimiter(rate.Limit(perSecond), int(math.Ceil(perSecond))), false
	}
	return func(c *gin.Context) {
		limiter, _ := limiters.ComputeIfAbsent(clientNetwork(c), fresh)
		if !limiter.Allow() {
			refuseRate(c, limiter)
		}
	}
}

// TrustProxies makes gin believe X-Forwarded-For if a request comes from these addresses or networks. gin reads one line of plain
// addresses. Proxies may also send several lines, ports, brackets and zones, so the header is rewritten first. The error means
// that a proxy is neither an address nor a network.
func TrustProxies(r *gin.Engine, proxies []string, log *slog.Logger) error {
	r.RemoteIPHeaders = []string{"X-Forwarded-For"}
	if len(proxies) > 0 {
		r.Use(forwarded(log))
	}
	return r.SetTrustedProxies(proxies)
}

func forwarded(log *slog.Logger) gin.HandlerFunc {
	var told sync.Once
	return func(c *gin.Context) {
		header := c.Request.Header
		lines := header["X-Forwarded-For"]
		if len(lines) == 0 {
			return
		}
		if address, err := netip.ParseAddr(lines[0]); err == nil && len(lines) == 1 && address.Zone() == "" {
			return // nothing to rewrite
		}
		entries := strings.Split(strings.Join(lines, ","), ",")
		for i, entry := range entries {
			entry = strings.TrimSpace(entry)
			if address, err := bare(entry); err == nil {
				entry = address.String()
			} else {
				told.Do(func() {
					log.Warn("X-Forwarded-For has an entry that is no address; such requests share the proxy's limit; this is said once", "entry", entry)
				})
			}
			entries[i] = entry
		}
		header["X-Forwarded-For"] = []string{strings.Join(entries, ",")}
	}
}

// bare returns the address in a text, without a port, brackets and a zone. The error means that there is no address.
func bare(text string) (netip.Addr, error) {
	if withPort, err := netip.ParseAddrPort(text); err == nil {
		return withPort.Addr().WithZone(""), nil
	}
	address, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"))
	return address.WithZone(""), err
}

func newAddressLimiters() *otter.Cache[netip.Prefix, *rate.Limiter] {
	return otter.Must(&otter.Options[netip.Prefix, *rate.Limiter]{MaximumSize: maxAddresses})
}

// clientNetwork returns the network of c.ClientIP(). If it can, it does not call ClientIP, which allocates strings. Clients
// without a readable address share the zero value.
func clientNetwork(c *gin.Context) netip.Prefix {
	remote, err := netip.ParseAddrPort(c.Request.RemoteAddr)
	address := remote.Addr()
	if err != nil || address.Zone() != "" || len(c.Request.Header["X-Forwarded-For"]) > 0 {
		address, _ = netip.ParseAddr(c.ClientIP())
	}
	return networkOf(address)
}

// networkOf returns the network that counts as one client: an IPv4 address alone, or the /64 of an IPv6 address, since providers
// usually give a customer at least a /64.
func networkOf(address netip.Addr) netip.Prefix {
	address = address.Unmap()
	prefix, _ := address.Prefix(min(address.BitLen(), 64)) // never fails: the address has that many bits
	return prefix
}
