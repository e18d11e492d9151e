package main

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
)

// The engine's values (package service), and those of the page (line.js).
const (
	entriesInBatch = 512
	entriesWaiting = 8192 // that an instance keeps for its next transaction
	callBatch      = 500  // ranks that a caller looks at in one transaction
	callerPeriod   = 0.2  // seconds between a caller's looks
	lookPeriod     = 1    // seconds until a page looks at the line again, and up to half as much again
	asksEachSecond = 5000 // pages of all who wait that ask for the own entry when the line is over
)

// entrant is the state of a buyer in a line or a draw.
type entrant struct {
	asked float64 // time of the first try of the present request
	tries int
	spent bool // has an order
}

// desk is an instance, with its queues for the database.
type desk struct {
	cores        *station
	limit        bucket
	enter, sells gatherer
}

// line is one simulation of a line or a draw. Buyers enter while it is open, the start seals it, and then buyers are called,
// or winners drawn, until all units are in orders. Nothing of Redis is needed. The pages' looks at the line itself are left
// out, because caches answer them.
type line struct {
	plan
	world
	front    *station // nil: without a proxy
	desks    []*desk
	database *station // transactions of the line, of which its row lets one pass at a time
	looks    *station // look-ups of own entries

	entrants []entrant
	numbers  []int // the entrants that have entered
	ranks    []int // of numbers, from the seal on: the numbers by rank
	serving  int   // number of ranks that were called or drawn so far
	free     int   // units in no call and no order
	ended    bool  // all units are in orders

	took                         map[string][]float64 // seconds until an answer, by its kind
	limited, busy, gaveUp        int
	lapsed, orders               int
	before                       int // entries before the start
	sealed, firstCall, lastOrder float64
}

func newLine(p plan) *line {
	l := &line{plan: p, free: p.Quota, took: map[string][]float64{}, entrants: make([]entrant, p.Buyers)}
	l.rng = rand.New(rand.NewPCG(p.Seed, 0)) //nolint:gosec // the same seed, the same run
	if p.FrontUS > 0 {
		l.front = l.addStation("proxy", p.FrontCores)
	}
	for range p.Instances {
		l.desks = append(l.desks, &desk{
			cores: l.addStation("instances", p.Cores), limit: bucket{rate: p.LimitRate, burst: p.LimitBurst, tokens: p.LimitBurst},
			enter: gatherer{most: entriesInBatch, calls: 1, capacity: entriesWaiting, send: l.writes(p.EnterUS, l.entered)},
			sells: gatherer{most: p.SettleBatch, calls: 1, capacity: entriesWaiting, send: l.writes(p.OrderUS, l.sold)},
		})
	}
	l.database, l.looks = l.addStation("database", 1), l.addStation("look-ups", p.DatabaseCores)
	return l
}

// simulate runs the plan until all who entered know what became of their entries.
func (l *line) simulate() {
	for who := range l.entrants {
		l.after(l.random(l.Rush), func() { l.ask(who, l.EntryUS, func(d *desk) bool { return d.enter.add(who) }) })
	}
	l.after(l.Opening, l.seal)
	l.runUntil(math.Inf(1))
	for _, took := range l.took {
		slices.Sort(took)
	}
}

// ask sends a request of a buyer to an instance, which spends us of its CPU on it. then goes on there; it returns false if
// the instance has no room for the request. A request that is turned away is tried again, at most Tries times in all.
func (l *line) ask(who int, us float64, then func(d *desk) bool) {
	l.entrants[who].asked, l.entrants[who].tries = l.now, 0
	l.try(who, us, then)
}

func (l *line) try(who int, us float64, then func(d *desk) bool) {
	l.entrants[who].tries++
	turnAway := func(count *int) {
		if *count++; l.entrants[who].tries == l.Tries {
			l.gaveUp++
			return
		}
		l.after(firstPause+l.rng.Float64()*morePause, func() { l.try(who, us, then) })
	}
	arrive := func() {
		d := l.desks[l.rng.IntN(l.Instances)]
		if !d.limit.take(l.now) {
			turnAway(&l.limited)
			return
		}
		d.cores.arrive(func() float64 { return l.random(us * 1e-6) }, func() {
			if !then(d) {
				turnAway(&l.busy)
			}
		})
	}
	if l.front == nil {
		arrive()
		return
	}
	l.front.arrive(func() float64 { return l.random(l.FrontUS * 1e-6) }, arrive)
}

func (l *line) answer(kind string, who int) {
	l.took[kind] = append(l.took[kind], l.now-l.entrants[who].asked)
}

// writes returns a function that writes a batch in one transaction, and then calls end for each of the batch.
func (l *line) writes(rowUS float64, end func(who int)) func(batch []int, done func()) {
	return func(batch []int, done func()) {
		l.transact(len(batch), rowUS, func() {
			for _, who := range batch {
				end(who)
			}
			done()
		})
	}
}

func (l *line) transact(rows int, rowUS float64, done func()) {
	l.database.arrive(func() float64 { return l.random(l.CommitUS*1e-6) + float64(rows)*rowUS*1e-6 }, done)
}

// entered runs when the transaction with a buyer's entry is written. An entry after the start is behind all others in a line,
// and too late for a draw.
func (l *line) entered(who int) {
	if l.now >= l.Opening && l.Mode == "draw" {
		l.answer("too late", who)
		return
	}
	if l.now < l.Opening {
		l.before++
	}
	l.numbers = append(l.numbers, who)
	l.answer("entered", who)
	if l.ended {
		l.after(l.look(), func() { l.askMine(who) })
	}
}

// seal fixes the order of those who have entered, which takes some time for each of them.
func (l *line) seal() {
	n := l.before
	l.after(float64(n)*l.SealUS*1e-6, func() {
		l.sealed = l.now
		l.ranks = l.rng.Perm(n)
		l.call()
	})
}

// call gives the free units to the next ranks, and goes on until all units are in orders, or nobody can come any more.
func (l *line) call() {
	n := min(callBatch, l.free, len(l.numbers)-l.serving)
	switch {
	case l.orders == l.Quota, n == 0 && l.Mode == "draw", n == 0 && len(l.events) == 0: // nobody is on the way
		l.over()
		return
	case n == 0:
		l.after(callerPeriod, l.call)
		return
	}
	l.transact(n, l.OrderUS, func() { // a call is taken to be as dear as an order
		if l.serving == 0 {
			l.firstCall = l.now
		}
		for range n {
			who := l.numbers[l.number(l.serving)]
			l.serving++
			l.free--
			if l.Mode == "draw" {
				l.order(who)
				l.after(l.look(), func() { l.askMine(who) })
			} else {
				l.invite(who)
			}
		}
		l.call()
	})
}

// number returns the number of the entry with a rank.
func (l *line) number(rank int) int {
	if rank < len(l.ranks) {
		return l.ranks[rank]
	}
	return rank
}

// look returns the seconds until a page looks at the line.
func (l *line) look() float64 { return l.rng.Float64() * lookPeriod * (1 + l.rng.Float64()/2) }

// invite begins a buyer's call. A buyer who comes reads the own entry, thinks, and buys. Otherwise the unit is free again at
// the end of the call.
func (l *line) invite(who int) {
	comes := l.rng.Float64() >= l.NoShow
	if comes {
		seen := l.look()
		l.after(seen, func() { l.askMine(who) })
		l.after(seen+min(l.random(l.Think), l.CallSeconds/2), func() { l.buy(who) })
	}
	l.after(l.CallSeconds, func() {
		if !l.entrants[who].spent {
			l.lapsed++
			l.free++
		}
	})
}

// buy is the purchase of a called buyer: a request for the path, then one for the order.
func (l *line) buy(who int) {
	l.ask(who, l.PathUS, func(*desk) bool {
		l.ask(who, l.EngineUS, func(d *desk) bool { return d.sells.add(who) })
		return true
	})
}

// sold runs when the transaction with a buyer's order is written.
func (l *line) sold(who int) {
	l.order(who)
	l.answer("confirmed", who)
}

func (l *line) order(who int) {
	l.entrants[who].spent = true
	l.orders++
	l.lastOrder = l.now
}

// askMine reads the own entry of a buyer.
func (l *line) askMine(who int) {
	l.ask(who, l.PathUS, func(*desk) bool {
		l.looks.arrive(func() float64 { return l.random(l.LookUpUS * 1e-6) }, func() { l.answer("own entry", who) })
		return true
	})
}

// over has the pages of all who were not reached read their entries once.
func (l *line) over() {
	l.ended = true
	for rank := l.serving; rank < len(l.numbers); rank++ {
		who := l.numbers[l.number(rank)]
		l.after(l.look()+l.rng.Float64()*float64(len(l.numbers))/asksEachSecond, func() { l.askMine(who) })
	}
}

// print writes the results of the run.
func (l *line) print(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "%d buyers for %d units by %s, seed %d: %d entries before the start, %d after it\n",
		l.Buyers, l.Quota, l.Mode, l.Seed, l.before, len(l.numbers)-l.before)
	fmt.Fprintf(out, "after the start: sealed %.2f s, first called or drawn %.2f s, the last order %.2f s; %d orders, %d calls were not used\n",
		l.sealed-l.Opening, l.firstCall-l.Opening, l.lastOrder-l.Opening, l.orders, l.lapsed)
	printTurnedAway(out, l.limited, l.busy)
	fmt.Fprintf(out, "requests that were given up: %d\n", l.gaveUp)
	printHead(out)
	for _, kind := range []string{"entered", "too late", "own entry", "confirmed"} {
		printAnswers(out, kind, l.took[kind])
	}
	printStages(out, l.stations)
	return out.Flush()
}
