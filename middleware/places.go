package middleware

import (
	"sync"

	"github.com/gin-gonic/gin"

	"flashsale/model"
)

// Places bounds how many requests may do something costly at the same time: all together, and those of one client. Further
// requests are refused at once, so that they need not wait behind those of strangers.
type Places struct {
	all, each int

	mu    sync.Mutex
	taken map[any]int // by client; a client without a place is not in it
	sum   int
}

// NewPlaces makes as many places as "all" says. A client may have at most "each" of them at a time.
func NewPlaces(all, each int) *Places {
	return &Places{all: all, each: each, taken: map[any]int{}}
}

// Enter takes a place for a client. With Accepted, the caller must call leave once, after the costly part. The other verdicts are
// RateLimited, if the client has as many places as it may have, and Unavailable, if all places are taken.
func (p *Places) Enter(client any) (leave func(), verdict model.Verdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.taken[client] >= p.each:
		return nil, model.RateLimited
	case p.sum >= p.all:
		return nil, model.Unavailable
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
	}, model.Accepted
}

// Take takes a place for a request, whose client is its clientNetwork. The caller must call leave once, after the costly part. If
// ok is false, Take has refused the request as RateLimited. Read the request's body before Take, so that slow senders hold no
// place.
func (p *Places) Take(c *gin.Context) (leave func(), ok bool) {
	leave, verdict := p.Enter(clientNetwork(c))
	if verdict != model.Accepted {
		Refuse(c, Refusal{Verdict: model.RateLimited})
	}
	return leave, verdict == model.Accepted
}

func (p *Places) Taken() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sum
}
