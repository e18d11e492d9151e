package middleware

import (
	"sync"

	"github.com/gin-gonic/gin"

	"flashsale/model"
)

// Places bounds how many requests may do something costly at the same time: all of them together, and those of one client.
// Further requests are refused at once, so that nobody waits in a queue that strangers fill.
type Places struct {
	all, each int

	mu    sync.Mutex
	taken map[any]int // by client; a client without a place is not in it
	sum   int
}

// NewPlaces creates as many places as "all" says. One client may have at most as many of them at a time as "each" says.
func NewPlaces(all, each int) *Places {
	return &Places{all: all, each: each, taken: map[any]int{}}
}

// Enter takes a place for a client. The verdict is Accepted, and then the caller must call leave after the costly part;
// RateLimited if the client has as many places as it may have; or Unavailable if all places are taken.
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

// Take takes a place for a request; the client is its clientNetwork. The caller must call leave after the costly part. If Enter
// gives no place, Take refuses the request as RateLimited, and ok is false. Callers read the request's body before they call
// Take, so that slow senders hold no place.
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
