package middleware

import (
	"net/netip"
	"sync"

	"github.com/gin-gonic/gin"

	"flashsale/model"
)

// Places bounds how many requests may do something costly at the same time: all of them together, and those of one client
// address. Others are refused at once, so that nobody waits in a line that strangers fill.
type Places struct {
	all, each int

	mu    sync.Mutex
	taken map[netip.Prefix]int // by address; an address without a place is not in it
	sum   int
}

// NewPlaces creates places for at most all requests, and for at most each of one address.
func NewPlaces(all, each int) *Places {
	return &Places{all: all, each: each, taken: map[netip.Prefix]int{}}
}

// Take takes a place for a request. If there is none, it refuses the request as RateLimited, and ok is false. Otherwise the
// caller must call leave after the costly part. A caller takes the place when it has read the request, so that slow
// senders hold none.
func (p *Places) Take(c *gin.Context) (leave func(), ok bool) {
	client := clientNetwork(c)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sum >= p.all || p.taken[client] >= p.each {
		Refuse(c, Refusal{Verdict: model.RateLimited})
		return nil, false
	}
	p.sum++
	p.taken[client]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.sum--
		if p.taken[client]--; p.taken[client] == 0 {
			delete(p.taken, client)
		}
	}, true
}
