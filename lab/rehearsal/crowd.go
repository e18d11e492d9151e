package rehearsal

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"flashsale/internal/pause"
	"flashsale/service/auth"
)

const (
	// mostUnderWay bounds the buyers who are under way, and so the memory: each takes some 30 KB. A buyer who would exceed the
	// bound does not come, and is counted.
	mostUnderWay = 50_000
	// linger is how long buyers may go on after the time of the arrivals: long enough for several tries.
	linger = time.Minute
)

// crowd is an open loop: up to mostUnderWay, the buyers arrive when the shape says, however slow the answers to others are.
type crowd struct {
	shape    *Shape
	base     string // the URL without a slash at the end
	saleID   string
	startsAt time.Time // the start of the arrivals, by the clock of this machine
	tokens   *auth.Tokens
	visitor  string // the token of public requests
	quick    lane
	slow     lane
	streams  lane
	tally    *tally
	now      func() time.Time

	underWay atomic.Int64
	mu       sync.Mutex
	told     []told
}

// run lets the crowd arrive, and returns when all buyers are done. The buyers give up when ctx ends, or when "linger" is over.
func (c *crowd) run(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.startsAt.Sub(c.now())+c.shape.Lasts+linger)
	defer cancel()
	var walking sync.WaitGroup
	defer walking.Wait()
	for n, at := range c.shape.at {
		due := c.startsAt.Add(at)
		if !pause.For(ctx, due.Sub(c.now())) {
			return
		}
		if c.underWay.Load() >= mostUnderWay {
			c.tally.unsent.Add(1)
			continue
		}
		c.underWay.Add(1)
		walking.Go(func() {
			defer c.underWay.Add(-1)
			c.walk(ctx, n, due)
		})
	}
}

// walk makes a buyer, sends the buyer's requests, and records what the buyer was told.
func (c *crowd) walk(ctx context.Context, n int, due time.Time) {
	b := c.newBuyer(n)
	c.tally.arrived(due.Sub(c.startsAt), c.now().Sub(due))
	var list []told
	if b.bot {
		list = c.bot(ctx, b, due)
	} else {
		list = []told{c.person(ctx, b, due)}
	}
	c.tally.done(c.now().Sub(c.startsAt))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = append(c.told, list...)
}
