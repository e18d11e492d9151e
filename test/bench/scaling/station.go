package main

import (
	"container/heap"
	"math/rand/v2"
	"slices"
)

// world is the state of a simulation: its clock, in seconds, and the planned events.
type world struct {
	now    float64
	events eventHeap
	count  int // of events so far; events of the same time run in the order in which they were planned
	rng    *rand.Rand

	stations []*station // in the order of a request's way
}

// addStation adds an idle station to the world.
func (w *world) addStation(name string, servers int) *station {
	s := &station{world: w, name: name, servers: servers}
	w.stations = append(w.stations, s)
	return s
}

type event struct {
	at    float64
	order int
	run   func()
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].order < h[j].order
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(e any)   { *h = append(*h, e.(event)) }

func (h *eventHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	*h = (*h)[:last]
	return e
}

// after plans a call for so many seconds from now.
func (w *world) after(seconds float64, run func()) {
	w.count++
	heap.Push(&w.events, event{w.now + seconds, w.count, run})
}

// runUntil runs the events until none is planned, or the next one is after end.
func (w *world) runUntil(end float64) {
	for len(w.events) > 0 && w.events[0].at <= end {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		e.run()
	}
}

// random returns a random time with this mean, exponentially distributed as the times between Poisson arrivals are.
func (w *world) random(mean float64) float64 { return w.rng.ExpFloat64() * mean }

// station is a queue in front of identical servers. Jobs are served in the order of arrival.
type station struct {
	*world
	name    string
	servers int

	line         []job
	longest      int // greatest length of the line so far
	busy, served int
	spent        []float64 // service time of all servers, by the second of the clock in which the service began
	waits        []float64 // seconds in the line, one value per job
}

type job struct {
	since float64
	cost  func() float64 // service time in seconds, asked when the service begins
	done  func()
}

func (s *station) arrive(cost func() float64, done func()) {
	s.line = append(s.line, job{s.now, cost, done})
	s.longest = max(s.longest, len(s.line))
	s.serve()
}

func (s *station) serve() {
	for s.busy < s.servers && len(s.line) > 0 {
		next := s.line[0]
		s.line = s.line[1:]
		s.busy++
		s.waits = append(s.waits, s.now-next.since)
		seconds := next.cost()
		s.spend(int(s.now), seconds)
		s.after(seconds, func() {
			s.busy--
			s.served++
			next.done()
			s.serve()
		})
	}
}

func (s *station) spend(second int, seconds float64) {
	for second >= len(s.spent) {
		s.spent = append(s.spent, 0)
	}
	s.spent[second] += seconds
}

// gatherer sends jobs in batches. The size of a batch and the number of batches in flight are bounded. Jobs that arrive
// meanwhile form the next batch.
type gatherer struct {
	most     int // jobs in one batch
	calls    int // batches in flight at once
	spare    int // of these calls, those that begin only if a whole batch waits
	capacity int // jobs that may wait; 0: any number
	send     func(batch []int, done func())

	line     []int
	inFlight int
}

// add reports whether the queue had room for the job.
func (g *gatherer) add(job int) bool {
	if g.capacity > 0 && len(g.line) >= g.capacity {
		return false
	}
	g.line = append(g.line, job)
	g.start()
	return true
}

func (g *gatherer) start() {
	for len(g.line) > 0 && (g.inFlight < g.calls-g.spare || g.inFlight < g.calls && len(g.line) >= g.most) {
		n := min(len(g.line), g.most)
		batch := g.line[:n:n]
		g.line = g.line[n:]
		g.inFlight++
		g.send(batch, func() {
			g.inFlight--
			g.start()
		})
	}
}

// bucket is a token bucket, which starts full.
type bucket struct {
	rate, burst, tokens, at float64
}

func (b *bucket) take(now float64) bool {
	b.tokens = min(b.burst, b.tokens+(now-b.at)*b.rate)
	b.at = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// stages returns the sum of the stations of each name; their waits are sorted.
func stages(stations []*station) (list []*station) {
	for _, s := range stations {
		if len(list) == 0 || list[len(list)-1].name != s.name {
			list = append(list, &station{name: s.name})
		}
		sum := list[len(list)-1]
		sum.servers += s.servers
		sum.served += s.served
		sum.longest = max(sum.longest, s.longest)
		sum.waits = append(sum.waits, s.waits...)
		for second, seconds := range s.spent {
			sum.spend(second, seconds)
		}
	}
	for _, sum := range list {
		slices.Sort(sum.waits)
	}
	return list
}
