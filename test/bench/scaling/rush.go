package main

import (
	"math"
	"math/rand/v2"
	"slices"
)

// plan holds the parameters of a simulation. Times are in seconds unless their names say otherwise.
type plan struct {
	Buyers, Quota int
	Rush          float64 // mean time from the start to a buyer's click
	Seed          uint64

	Instances, Cores       int // cores of each instance
	Shards, Parts          int // Redis processes, and parts that the sale's stock is in
	Transactions           int // transactions on one sale that the database processes at once
	GateBatch, SettleBatch int
	Keyed                  bool // clicks have a request key, as those of the storefront

	LimitRate, LimitBurst float64 // of each instance
	AckWait               float64
	Tries                 int // tries of a buyer's page in all, with those after 429 and 503

	Clients int     // 0: each buyer comes once; otherwise so many clients buy repeatedly, from endless stock
	Seconds float64 // duration of a run with Clients

	FrontUS    float64 // CPU of the proxy per request; 0: without a proxy
	FrontCores int
	PathUS     float64 // CPU of an instance to issue a path
	RefuseUS   float64 // CPU of an instance to refuse from memory
	EngineUS   float64 // CPU of an instance for an admitted attempt, its settle included
	KeyedUS    float64 // CPU of an instance to refuse a keyed attempt, for which it asks Redis and the database
	TripUS     float64 // round trip to Redis
	AdmitUS    float64 // CPU of Redis for an admitted attempt, its settle included
	AskUS      float64 // CPU of Redis for a refused attempt
	LookUpUS   float64 // CPU of the database to look up a refused key
	LookUps    int     // look-ups that the database processes at once: its cores
	CommitUS   float64 // a transaction without its orders
	OrderUS    float64 // an order in a transaction
}

const (
	second = 1e-6 // one microsecond
	// These four are the engine's values (packages strategy, handler and worker): calls to Redis at once, the deadline
	// of a request, attempts that may wait for a call, and writers of an instance.
	callsUnderWay = 2
	deadline      = 10 // seconds that a request may take
	callsWaiting  = 8192
	writers       = 2
	// A buyer whose try was turned away tries again after firstPause and a random part of morePause.
	firstPause, morePause = 1, 1
	// peakBin is the length of the intervals in which requests are counted for the peak rate.
	peakBin = 0.1
)

// outcome is the result for a buyer.
type outcome uint8

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
	asked    float64 // time of the present try
	tries    int
	hasPath  bool
	fromGate bool // the gate decides, not the instance's memory
	late     bool // the deadline passed before the look-up began
	ended    outcome
}

// rush is one simulation of a plan.
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

	batches [][]int // batches in progress, by number
	dones   []func()
	free    []int

	left         int
	soldOutAt    float64
	lastCommit   float64
	lastAnswer   float64
	requests     map[int]int // number of requests, by tenth of a second
	limited      int         // tries refused by the limiter
	busy         int         // tries refused because a queue was full or the deadline had passed
	inside       int         // attempts without an answer
	insideSum    float64     // integral of inside over time
	insideSince  float64
	took         [outcomes][]float64
	settledSizes int
	settles      int
}

// newRush creates the stations of a plan.
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
			return 0 // past the deadline nobody waits for the answer
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

// run simulates the plan to its end.
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

// keep stores a batch and returns its number, which is the job of a station.
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

// count adds change to the number of attempts that wait for an answer.
func (r *rush) count(change int) {
	r.insideSum += float64(r.inside) * (r.world.now - r.insideSince)
	r.inside, r.insideSince = r.inside+change, r.world.now
}

// again is the next click of a client, which clicks without end.
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

// request simulates one HTTP request: first for the path, then for the order.
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

// turnAway has a buyer's page try again, at most Tries times in all.
func (r *rush) turnAway(b int) {
	if r.Clients == 0 && r.attempts[b].tries >= r.Tries {
		r.answer(b, gaveUp)
		return
	}
	r.count(-1)
	r.world.after(firstPause+r.world.rng.Float64()*morePause, r.try, b)
}

// judged is called when an instance has processed a request.
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

// admitted is called when Redis has judged a batch of an instance.
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

// answer ends an attempt. An attempt answered with 202 ends here when its order is committed.
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

// peak returns the highest rate of requests per second.
func (r *rush) peak() float64 {
	most := 0
	for _, n := range r.requests {
		most = max(most, n)
	}
	return float64(most) / peakBin
}

// meanBatch returns the mean number of orders in a transaction.
func (r *rush) meanBatch() float64 {
	return float64(r.settledSizes) / float64(max(1, r.settles))
}

// stages combines the stations of each kind; their waits are sorted.
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
