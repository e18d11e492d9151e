package main

import (
	"math"
	"math/rand/v2"
	"slices"
)

// plan is what is simulated. Times are in seconds unless their names say otherwise.
type plan struct {
	Buyers, Quota int
	Rush          float64 // mean time from the start to a buyer's click
	Seed          uint64

	Instances, Cores       int // cores of each instance
	Shards, Parts          int // Redis processes, and parts that the sale's stock is in
	Transactions           int // on one sale, that the database works on at once
	GateBatch, SettleBatch int
	Keyed                  bool // clicks come with a key, as those of the storefront do

	LimitRate, LimitBurst float64 // of each instance
	AckWait               float64
	Tries                 int // that a buyer's page makes in all after 429 and 503

	Clients int     // 0: buyers come once each; else so many ask over and over, of endless stock
	Seconds float64 // for how long they do

	FrontUS    float64 // of CPU in the proxy, for a request; 0: left out
	FrontCores int
	PathUS     float64 // of CPU in an instance, to hand out a path
	RefuseUS   float64 // to refuse from memory
	EngineUS   float64 // for an attempt that is admitted, what its settle costs there included
	KeyedUS    float64 // to refuse one with a key: Redis and the database are asked
	TripUS     float64 // on the way to Redis and back
	AdmitUS    float64 // of Redis, for an attempt that is admitted, what its settle costs there included
	AskUS      float64 // of Redis, for one that is refused
	LookUpUS   float64 // of the database, for a look whether a refused key is known
	LookUps    int     // that it does at once: its cores
	CommitUS   float64 // of a transaction by itself
	OrderUS    float64 // of an order in it
}

const (
	second = 1e-6 // of a microsecond
	// callsUnderWay to Redis, attempts that wait for them, the deadline of a request and the writers of an instance: as in
	// the engine (packages strategy, handler and worker).
	callsUnderWay = 2
	deadline      = 10 // seconds that a request may take
	callsWaiting  = 8192
	writers       = 2
	// firstPause and morePause: a buyer whose try was turned away comes again after the first, and up to the second more.
	firstPause, morePause = 1, 1
	// peakBin is the time over which the peak rate is counted.
	peakBin = 0.1
)

// outcome is how it ended for a buyer.
type outcome uint8

const (
	pending   outcome = iota // not yet
	confirmed                // 201 within the wait
	queued                   // 202, and an order after that
	soldOut
	gaveUp // after so many tries
	outcomes
)

// attempt is what a buyer is doing.
type attempt struct {
	asked    float64 // the try that it is at
	tries    int
	hasPath  bool
	fromGate bool // the answer comes from the gate, not from memory
	late     bool // the deadline was over before its turn had come
	ended    outcome
}

// rush is a run of a plan.
type rush struct {
	plan
	world    world
	attempts []attempt

	front  *station
	cores  []*station
	limits []bucket
	latch  []bool
	gates  [][]*gatherer // by instance and part
	shards []*station
	settle *gatherer
	looks  *station
	ledger *station

	batches [][]int // under way, by number
	dones   []func()
	free    []int

	left         int
	soldOutAt    float64
	lastCommit   float64
	lastAnswer   float64
	requests     map[int]int // that came, by tenth of a second
	limited      int         // tries turned away by the limiter
	busy         int         // tries turned away since too many waited for a store
	inside       int         // attempts that wait for an answer
	insideSum    float64     // integral of inside over time
	insideSince  float64
	took         [outcomes][]float64
	settledSizes int
	settles      int
}

// newRush makes the stations of a plan.
func newRush(p plan) *rush {
	r := &rush{plan: p, left: p.Quota, requests: map[int]int{}}
	r.world.rng = rand.New(rand.NewPCG(p.Seed, 0)) //nolint:gosec // the same seed, the same run
	w := &r.world
	exponential := func(us float64) float64 { return w.random(us * second) }
	if p.FrontUS > 0 {
		r.front = &station{name: "proxy", world: w, servers: p.FrontCores, cost: func(int) float64 { return exponential(p.FrontUS) }, done: r.enter}
	}
	for i := range p.Instances {
		r.cores = append(r.cores, &station{name: "instances", world: w, servers: p.Cores, done: func(b int) { r.judged(i, b) }, cost: func(b int) float64 {
			a := &r.attempts[b]
			a.fromGate = a.hasPath && (p.Keyed || !r.latch[i])
			switch {
			case !a.hasPath:
				return exponential(p.PathUS)
			case !a.fromGate:
				return exponential(p.RefuseUS)
			case r.left > 0:
				return exponential(p.EngineUS)
			}
			return exponential(p.KeyedUS)
		}})
		r.limits = append(r.limits, bucket{rate: p.LimitRate, burst: p.LimitBurst, tokens: p.LimitBurst})
		parts := make([]*gatherer, p.Parts)
		for part := range parts {
			parts[part] = &gatherer{world: w, most: p.GateBatch, calls: callsUnderWay, capacity: callsWaiting, send: func(batch []int, done func()) {
				w.after(exponential(p.TripUS), r.shards[part%p.Shards].arrive, r.keep(batch, func() { r.admitted(i, batch); done() }))
			}}
		}
		r.gates = append(r.gates, parts)
	}
	r.latch = make([]bool, p.Instances)
	for range p.Shards {
		r.shards = append(r.shards, &station{name: "Redis", world: w, servers: 1, done: r.finish, cost: func(n int) float64 {
			admitted := min(len(r.batches[n]), r.left)
			return float64(admitted)*p.AdmitUS*second + float64(len(r.batches[n])-admitted)*p.AskUS*second
		}})
	}
	r.settle = &gatherer{world: w, most: p.SettleBatch, calls: writers * p.Instances, send: func(batch []int, done func()) {
		r.ledger.arrive(r.keep(batch, func() { r.committed(batch); done() }))
	}}
	r.ledger = &station{name: "settle", world: w, servers: p.Transactions, done: r.finish, cost: func(n int) float64 {
		return exponential(p.CommitUS) + float64(len(r.batches[n]))*p.OrderUS*second
	}}
	late := func(b int) bool { return w.now-r.attempts[b].asked > deadline }
	r.looks = &station{name: "look-ups", world: w, servers: p.LookUps, cost: func(b int) float64 {
		if r.attempts[b].late = late(b); r.attempts[b].late {
			return 0 // nobody waits for it any more
		}
		return exponential(p.LookUpUS)
	}, done: func(b int) {
		if r.attempts[b].late {
			r.busy++
			r.turnAway(b)
			return
		}
		r.answer(b, soldOut)
	}}
	return r
}

// run lets all of it happen.
func (r *rush) run() {
	if r.Clients > 0 {
		r.left = math.MaxInt
		r.attempts = make([]attempt, r.Clients)
		for b := range r.attempts {
			r.world.after(0, r.again, b)
		}
		r.world.run(r.Seconds)
	} else {
		r.attempts = make([]attempt, r.Buyers)
		for b := range r.attempts {
			r.world.after(r.world.random(r.Rush), r.try, b)
		}
		r.world.run(math.Inf(1))
	}
	r.count(0)
	for i := range r.took {
		slices.Sort(r.took[i])
	}
}

// keep gives a batch a number, under which a station can have it.
func (r *rush) keep(batch []int, done func()) int {
	if len(r.free) == 0 {
		r.batches, r.dones = append(r.batches, nil), append(r.dones, nil)
		r.free = append(r.free, len(r.batches)-1)
	}
	n := r.free[len(r.free)-1]
	r.free = r.free[:len(r.free)-1]
	r.batches[n], r.dones[n] = batch, done
	return n
}

func (r *rush) finish(n int) {
	done := r.dones[n]
	r.batches[n], r.dones[n] = nil, nil
	r.free = append(r.free, n)
	done()
}

// count notes that there are so many more, or fewer, who wait for an answer.
func (r *rush) count(change int) {
	r.insideSum += float64(r.inside) * (r.world.now - r.insideSince)
	r.inside, r.insideSince = r.inside+change, r.world.now
}

// again is another click of a client that never stops.
func (r *rush) again(b int) {
	r.attempts[b] = attempt{hasPath: true}
	r.try(b)
}

func (r *rush) try(b int) {
	r.attempts[b].asked = r.world.now
	r.attempts[b].tries++
	r.count(1)
	r.request(b)
}

// request is one HTTP request: for the path at first, then for the order.
func (r *rush) request(b int) {
	r.requests[int(r.world.now/peakBin)]++
	if r.front != nil {
		r.front.arrive(b)
		return
	}
	r.enter(b)
}

func (r *rush) enter(b int) {
	i := r.world.rng.IntN(r.Instances)
	if !r.limits[i].take(r.world.now) {
		r.limited++
		r.turnAway(b)
		return
	}
	r.cores[i].arrive(b)
}

// turnAway has a buyer's page try again, so many times.
func (r *rush) turnAway(b int) {
	if r.Clients == 0 && r.attempts[b].tries >= r.Tries {
		r.answer(b, gaveUp)
		return
	}
	r.count(-1)
	r.world.after(firstPause+r.world.rng.Float64()*morePause, r.try, b)
}

// judged is where an instance is done with a request.
func (r *rush) judged(instance, b int) {
	a := &r.attempts[b]
	switch {
	case !a.hasPath:
		a.hasPath = true
		r.request(b)
	case !a.fromGate:
		r.answer(b, soldOut)
	case !r.gates[instance][b%r.Parts].add(b):
		r.busy++
		r.turnAway(b)
	}
}

// admitted is where Redis has judged a batch of an instance's.
func (r *rush) admitted(instance int, batch []int) {
	for _, b := range batch {
		if r.left > 0 {
			if r.left--; r.left == 0 {
				r.soldOutAt = r.world.now
			}
			r.settle.add(b)
			continue
		}
		r.latch[instance] = true
		if r.Keyed {
			r.looks.arrive(b)
			continue
		}
		r.answer(b, soldOut)
	}
}

func (r *rush) committed(batch []int) {
	r.lastCommit = r.world.now
	r.settles++
	r.settledSizes += len(batch)
	for _, b := range batch {
		end := confirmed
		if r.world.now-r.attempts[b].asked > r.AckWait {
			end = queued
		}
		r.answer(b, end)
	}
}

// answer ends an attempt. Who heard 202 is counted until the order is there.
func (r *rush) answer(b int, end outcome) {
	a := &r.attempts[b]
	a.ended = end
	r.took[end] = append(r.took[end], r.world.now-a.asked)
	r.lastAnswer = r.world.now
	r.count(-1)
	if r.Clients > 0 {
		r.again(b)
	}
}

// peak is the highest rate of requests, a second.
func (r *rush) peak() float64 {
	most := 0
	for _, n := range r.requests {
		most = max(most, n)
	}
	return float64(most) / peakBin
}

// meanBatch is the mean number of orders in a transaction.
func (r *rush) meanBatch() float64 {
	return float64(r.settledSizes) / float64(max(1, r.settles))
}

// stages sums up the stations of each kind; their waits are sorted.
func (r *rush) stages() (list []station) {
	add := func(stations ...*station) {
		sum := station{name: stations[0].name}
		for _, s := range stations {
			sum.servers += s.servers
			sum.served += s.served
			for i, seconds := range s.spent {
				if i == len(sum.spent) {
					sum.spent = append(sum.spent, 0)
				}
				sum.spent[i] += seconds
			}
			sum.line.most = max(sum.line.most, s.line.most)
			sum.waits = append(sum.waits, s.waits...)
		}
		slices.Sort(sum.waits)
		list = append(list, sum)
	}
	if r.front != nil {
		add(r.front)
	}
	add(r.cores...)
	add(r.shards...)
	add(r.ledger)
	add(r.looks)
	return list
}
