package middleware

import (
	"math"
	"net/netip"

	"github.com/gin-gonic/gin"
	"github.com/maypok86/otter/v2"
	"golang.org/x/time/rate"
)

// maxAddresses bounds the number of limiters, and so their memory to some 20 MB. When there are more, the least used
// limiters are dropped, and their addresses may send a burst again. The instance's token bucket bounds a flood from so
// many addresses. Limiters have no expiry: it would cost each request a clock reading, a queue and now and then a
// goroutine.
const maxAddresses = 1 << 16

// AddressLimit lets perSecond requests a second of each client address pass, and as many at once; 0 turns it off. The
// address is gin's ClientIP, so forwarding headers count only if they come from a proxy that the engine trusts.
// Outcomes: the next stage, or RateLimited with the time until a token is free.
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

func newAddressLimiters() *otter.Cache[netip.Prefix, *rate.Limiter] {
	return otter.Must(&otter.Options[netip.Prefix, *rate.Limiter]{MaximumSize: maxAddresses})
}

// clientNetwork returns network(c.ClientIP()). If the request has neither of the two forwarding headers that gin reads,
// it parses the address of the connection itself, and so avoids the strings that ClientIP allocates.
func clientNetwork(c *gin.Context) netip.Prefix {
	header := c.Request.Header
	if len(header["X-Forwarded-For"]) == 0 && len(header["X-Real-Ip"]) == 0 {
		remote, err := netip.ParseAddrPort(c.Request.RemoteAddr)
		if err == nil && remote.Addr().Zone() == "" {
			return networkOf(remote.Addr())
		}
	}
	return network(c.ClientIP())
}

// network returns the addresses that count as one client: an IPv4 address, or the /64 of an IPv6 address, since a
// single customer is given at least that many. All texts that are not an address share the zero value, and so one
// limiter.
func network(clientIP string) netip.Prefix {
	address, err := netip.ParseAddr(clientIP)
	if err != nil {
		return netip.Prefix{}
	}
	return networkOf(address)
}

func networkOf(address netip.Addr) netip.Prefix {
	address = address.Unmap()
	prefix, _ := address.Prefix(min(address.BitLen(), 64)) // never fails: the address has that many bits
	return prefix
}
