package middleware

import (
	"math"
	"net/netip"

	"github.com/gin-gonic/gin"
	"github.com/maypok86/otter/v2"
	"golang.org/x/time/rate"
)

// maxAddresses bounds the memory to some 20 MB. Past it the least used limiters are forgotten, which forgives them a
// burst; a flood from so many addresses is for the instance's token bucket to hold. An idle limiter isn't sought out
// before: that would be a clock, a queue and now and then a goroutine in every request.
const maxAddresses = 1 << 16

// AddressLimit lets perSecond requests a second of each client address through, and as many at once; 0 is
// off. The address is gin's ClientIP, so forwarding headers count only from proxies that the engine trusts.
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

// clientNetwork is network of gin's ClientIP. A request that carries no forwarding header is told from its
// connection alone, without the texts that ClientIP makes; the two headers are those that gin asks.
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

// network is what counts as one client: an IPv4 address, or the /64 of an IPv6 address, since a single
// customer is given at least that many. All that can't be read shares the zero value, and one limiter.
func network(clientIP string) netip.Prefix {
	address, err := netip.ParseAddr(clientIP)
	if err != nil {
		return netip.Prefix{}
	}
	return networkOf(address)
}

func networkOf(address netip.Addr) netip.Prefix {
	address = address.Unmap()
	prefix, _ := address.Prefix(min(address.BitLen(), 64)) // never too many bits for the address
	return prefix
}
