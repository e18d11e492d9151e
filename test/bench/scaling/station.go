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
}

type event struct {
	at    float64
	order int
	run   func(arg int)
	arg   int
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

// after plans run(arg) for so many seconds from now.
func (w *world) after(seconds float64, run func(arg int), arg int) {
	w.count++
	heap.Push(&w.events, event{w.now + seconds, w.count, run, arg})
}

// run runs the events until none is planned, or the next one is after end.
func (w *world) run(end float64) {
	for len(w.events) > 0 && w.events[0].at <= end {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		e.run(e.arg)
	}
}

// random returns a random time with this mean, exponentially distributed as the times between Poisson arrivals are.
func (w *world) random(mean float64) float64 { return w.rng.ExpFloat64() * mean }

// station is a queue in front of identical servers. Jobs are served in the order of arrival.
type station struct {
	name    string
	world   *world
	servers int
	cost    func(job int) float64 // service time in seconds
	done    func(job int)

	line   fifo
	busy   int
	served int
	spent  []float64 // service time of all servers, by the second of the clock in which the service began
	waits  []float64 // seconds in the queue, one value per job
}

type waiting struct {
	job   int
	since float64
}

// fifo is a queue that reuses its memory.
type fifo struct {
	items []waiting
	head  int
	most  int // greatest length so far
}

func (f *fifo) len() int { return len(f.items) - f.head }

func (f *fifo) push(w waiting) {
	f.items = append(f.items, w)
	f.most = max(f.most, f.len())
}

func (f *fifo) pop() waiting {
	w := f.items[f.head]
	if f.head++; f.head == len(f.items) {
		f.items, f.head = f.items[:0], 0
	}
	return w
}

func (s *station) arrive(job int) {
	s.line.push(waiting{job, s.world.now})
	s.serve()
}

func (s *station) serve() {
	for s.busy < s.servers && s.line.len() > 0 {
		next := s.line.pop()
		s.busy++
		s.waits = append(s.waits, s.world.now-next.since)
		seconds := s.cost(next.job)
		for int(s.world.now) >= len(s.spent) {
			s.spent = append(s.spent, 0)
		}
		s.spent[int(s.world.now)] += seconds
		s.world.after(seconds, s.finish, next.job)
	}
}

func (s *station) finish(job int) {
	s.busy--
	s.served++
	s.done(job)
	s.serve()
}

// gatherer sends jobs in batches. The size of a batch and the number of batches in flight are bounded. Jobs that arrive
// meanwhile form the next batch.
type gatherer struct {
	world    *world
	most     int // jobs in one batch
	calls    int // batches in flight at once
	capacity int // jobs that may wait; 0: any number
	send     func(batch []int, done func())

	line  []int
	under int
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
	for g.under < g.calls && len(g.line) > 0 {
		n := min(len(g.line), g.most)
		batch := slices.Clone(g.line[:n])
		g.line = append(g.line[:0], g.line[n:]...)
		g.under++
		g.send(batch, func() {
			g.under--
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

// percentile returns a percentile of sorted values, or 0 if there are none.
func percentile(sorted []float64, part float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(part*float64(len(sorted))))]
}
