package main

import (
	"math"
	"math/rand/v2"
	"slices"
)

const (
	// These four are the engine's values (packages strategy, handler and worker): calls to Redis at once, attempts that
	// may wait for a call, writers of an instance, of which one works only if a whole batch waits, and seconds that a
	// request may take.
	callsInFlight = 2
	callsWaiting  = 8192
	writers       = 2
	deadline      = 10
	// A buyer whose try was turned away tries again after firstPause and a random part of morePause.
	firstPause, morePause = 1, 1
	// peakBin is the length of the intervals in which requests are counted for the peak rate.
	peakBin = 0.1
)

// outcome is the result for a buyer.
type outcome int

const (
	pending   outcome = iota // no result yet
	confirmed                // 201 within AckWait
	queued                   // 202 first, then an order
	soldOut
	gaveUp // after the last try
	outcomes
)

// attempt is the state of a buyer's attempt.
type attempt struct {
	asked   float64 // time of the present try
	tries   int
	hasPath bool
	ended   outcome
}

type instance struct {
	cores   *station
	limit   bucket
	soldOut bool        // latched
	leased  bool        // refuses requests with a key from memory, too
	gates   []*gatherer // by part
}

// rush is one simulation of a plan.
type rush struct {
	plan
	world
	attempts []attempt

	front         *station // nil: without a proxy
	instances     []*instance
	shards        []*station
	settler       gatherer
	ledger, looks *station // of the database

	left                   int
	soldOutAt              float64
	lastCommit, lastAnswer float64
	requests               map[int]int // number of requests, by peakBin
	limited                int         // tries refused by the limiter
	busy                   int         // tries refused because a queue was full or the deadline had passed
	inside                 int         // attempts without an answer
	insideSum, insideSince float64     // integral of inside over time, and its end
	took                   [outcomes][]float64
	settled, settles       int // orders that were settled, and transactions that settled them
}

// newRush creates the stations of a plan.
func newRush(p plan) *rush {
	r := &rush{plan: p, left: p.Quota, requests: map[int]int{}}
	r.rng = rand.New(rand.NewPCG(p.Seed, 0)) //nolint:gosec // the same seed, the same run
	if p.FrontUS > 0 {
		r.front = r.addStation("proxy", p.FrontCores)
	}
	for range p.Instances {
		i := &instance{
			cores: r.addStation("instances", p.Cores), limit: bucket{rate: p.LimitRate, burst: p.LimitBurst, tokens: p.LimitBurst},
		}
		for part := range p.Parts {
			i.gates = append(i.gates, &gatherer{
				most: p.GateBatch, calls: callsInFlight, capacity: callsWaiting,
				send: func(batch []int, done func()) { r.ask(i, part%p.Shards, batch, done) },
			})
		}
		r.instances = append(r.instances, i)
	}
	for range p.Shards {
		r.shards = append(r.shards, r.addStation("Redis", 1))
	}
	r.settler = gatherer{most: p.SettleBatch, calls: writers * p.Instances, spare: p.Instances, send: r.settle}
	r.ledger, r.looks = r.addStation("settle", p.Transactions), r.addStation("look-ups", p.DatabaseCores)
	return r
}

// us returns a random time with a mean that is given in microseconds.
func (r *rush) us(mean float64) float64 { return r.random(mean * 1e-6) }

// simulate runs the plan to its end.
func (r *rush) simulate() {
	buyers, end := r.Buyers, math.Inf(1)
	first := func(b int) { r.after(r.random(r.Rush), func() { r.try(b) }) }
	if r.Clients > 0 {
		r.left, buyers, end = math.MaxInt, r.Clients, r.Seconds
		first = func(b int) { r.after(0, func() { r.again(b) }) }
	}
	r.attempts = make([]attempt, buyers)
	for b := range r.attempts {
		first(b)
	}
	r.runUntil(end)
	r.count(0)
	for i := range r.took {
		slices.Sort(r.took[i])
	}
}

// count adds change to the number of attempts that wait for an answer.
func (r *rush) count(change int) {
	r.insideSum += float64(r.inside) * (r.now - r.insideSince)
	r.inside, r.insideSince = r.inside+change, r.now
}

// again is the next click of a client, which clicks without end.
func (r *rush) again(b int) {
	r.attempts[b] = attempt{hasPath: true}
	r.try(b)
}

func (r *rush) try(b int) {
	r.attempts[b].asked = r.now
	r.attempts[b].tries++
	r.count(1)
	r.request(b)
}

// request simulates one HTTP request: first for the path, then for the order.
func (r *rush) request(b int) {
	r.requests[int(r.now/peakBin)]++
	if r.front == nil {
		r.enter(b)
		return
	}
	r.front.arrive(func() float64 { return r.us(r.FrontUS) }, func() { r.enter(b) })
}

func (r *rush) enter(b int) {
	a, i := &r.attempts[b], r.instances[r.rng.IntN(r.Instances)]
	if !i.limit.take(r.now) {
		r.limited++
		r.turnAway(b)
		return
	}
	fromMemory := false
	i.cores.arrive(func() float64 {
		fromMemory = a.hasPath && i.soldOut && (!r.Keyed || i.leased)
		switch {
		case !a.hasPath:
			return r.us(r.PathUS)
		case fromMemory:
			return r.us(r.RefuseUS)
		case r.left > 0:
			return r.us(r.EngineUS)
		}
		return r.us(r.KeyedUS)
	}, func() {
		switch {
		case !a.hasPath:
			a.hasPath = true
			r.request(b)
		case fromMemory:
			r.answer(b, soldOut)
		case !i.gates[b%r.Parts].add(b):
			r.busy++
			r.turnAway(b)
		}
	})
}

// turnAway has a buyer's page try again, at most Tries times in all.
func (r *rush) turnAway(b int) {
	if r.Clients == 0 && r.attempts[b].tries >= r.Tries {
		r.answer(b, gaveUp)
		return
	}
	r.count(-1)
	r.after(firstPause+r.rng.Float64()*morePause, func() { r.try(b) })
}

// ask has Redis judge a batch of an instance.
func (r *rush) ask(i *instance, shard int, batch []int, done func()) {
	cost := func() float64 {
		admitted := min(len(batch), r.left)
		return float64(admitted)*r.AdmitUS*1e-6 + float64(len(batch)-admitted)*r.AskUS*1e-6
	}
	r.after(r.us(r.TripUS), func() {
		r.shards[shard].arrive(cost, func() {
			for _, b := range batch {
				r.judge(i, b)
			}
			done()
		})
	})
}

func (r *rush) judge(i *instance, b int) {
	if r.left > 0 {
		if r.left--; r.left == 0 {
			r.soldOutAt = r.now
		}
		r.settler.add(b)
		return
	}
	i.soldOut = true
	if !r.Keyed {
		r.answer(b, soldOut)
		return
	}
	late := false
	r.looks.arrive(func() float64 {
		if late = r.now-r.attempts[b].asked > deadline; late {
			return 0 // past the deadline nobody waits for the answer
		}
		return r.us(r.LookUpUS)
	}, func() {
		if late {
			r.busy++
			r.turnAway(b)
			return
		}
		r.answer(b, soldOut)
	})
}

func (r *rush) settle(batch []int, done func()) {
	r.ledger.arrive(func() float64 { return r.us(r.CommitUS) + float64(len(batch))*r.OrderUS*1e-6 }, func() {
		r.lastCommit = r.now
		r.settles++
		r.settled += len(batch)
		if r.left == 0 && r.settled == r.Quota {
			r.lease()
		}
		for _, b := range batch {
			end := confirmed
			if r.now-r.attempts[b].asked > r.AckWait {
				end = queued
			}
			r.answer(b, end)
		}
		done()
	})
}

// lease lets each instance refuse requests with a key from memory, from its next look at the database on.
func (r *rush) lease() {
	for _, i := range r.instances {
		r.after(r.rng.Float64()*r.Refresh, func() { i.soldOut, i.leased = true, true })
	}
}

// answer ends an attempt. An attempt answered with 202 ends here when its order is committed.
func (r *rush) answer(b int, end outcome) {
	a := &r.attempts[b]
	a.ended = end
	r.took[end] = append(r.took[end], r.now-a.asked)
	r.lastAnswer = r.now
	r.count(-1)
	if r.Clients > 0 {
		r.again(b)
	}
}

// peak returns the highest rate of requests per second.
func (r *rush) peak() float64 {
	most := 0
	for _, n := range r.requests {
		most = max(most, n)
	}
	return float64(most) / peakBin
}

// meanBatch returns the mean number of orders in a transaction.
func (r *rush) meanBatch() float64 { return float64(r.settled) / float64(max(1, r.settles)) }
