package main

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"flashsale/test/kit/check"
)

func parse(flags string) (p plan, err error) {
	parser, err := kong.New(&p)
	if err == nil {
		_, err = parser.Parse(strings.Fields(flags))
	}
	return p, err
}

func planned(flags string) plan { return check.Must(parse(flags)) }

func simulated(p plan) *rush {
	r := newRush(p)
	r.simulate()
	return r
}

func sum(values []float64) (s float64) {
	for _, v := range values {
		s += v
	}
	return s
}

// erlangC returns the mean wait in an M/M/c queue with c servers, in service times, by the Erlang C formula. load is the
// arrival rate times the service time.
func erlangC(load float64, c int) float64 {
	sum, term := 0.0, 1.0 // load^k / k!
	for k := range c {
		sum += term
		term *= load / float64(k+1)
	}
	term *= float64(c) / (float64(c) - load)
	return term / (sum + term) / (float64(c) - load)
}

// At a station with Poisson arrivals the mean wait is that of the Erlang C formula.
func TestStationIsErlangs(t *testing.T) {
	if got := erlangC(0.8, 1); math.Abs(got-4) > 1e-9 { // rho/(1-rho), for one server
		t.Fatalf("the formula gives %v for M/M/1 at 0.8, not 4", got)
	}
	for _, tc := range []struct {
		servers int
		load    float64 // utilisation of the servers
	}{{1, 0.5}, {1, 0.8}, {2, 0.7}, {8, 0.85}} {
		const jobs = 150_000
		load := tc.load * float64(tc.servers)
		r := newRush(planned("--seed=7"))
		s := &station{world: &r.world, servers: tc.servers}
		left := jobs
		var arrive func()
		arrive = func() {
			s.arrive(func() float64 { return r.random(1) }, func() {})
			if left--; left > 0 {
				r.after(r.random(1/load), arrive)
			}
		}
		arrive()
		r.runUntil(math.Inf(1))
		if mean, want := sum(s.waits)/jobs, erlangC(load, tc.servers); math.Abs(mean-want) > 0.07*want {
			t.Errorf("%d servers at %v: the wait is %.6f, by Erlang's formula %.6f", tc.servers, tc.load, mean, want)
		}
		if busy := sum(s.spent) / float64(tc.servers) / r.now; math.Abs(busy-tc.load) > 0.02 || s.served != jobs {
			t.Errorf("%d servers at %v: busy %v, %d served", tc.servers, tc.load, busy, s.served)
		}
	}
}

// In every plan each buyer receives one answer, each unit is sold once, Little's law holds for the whole, and the plan
// reaches the situation that it is named for.
func TestEveryBuyerIsAnswered(t *testing.T) {
	always := func(*rush) bool { return true }
	waited := func(r *rush) bool { return r.busy > 0 }
	limited := "--limit-rate=100 --limit-burst=100"
	overloaded := "--instances=1 --cores=100 --rush=0 --limit-burst=100000 --ask-us=1000 --buyers=20000"
	type test struct {
		flags   string
		reached func(r *rush) bool
	}
	check.Each(t, map[string]test{
		"as planned":           {"", func(r *rush) bool { return r.looks.served > 50 && r.looks.served < 500 }},
		"without leases":       {"--refresh=3600", func(r *rush) bool { return r.looks.served == 7600 }},
		"without keys":         {"--no-keyed", func(r *rush) bool { return r.looks.served == 0 && r.took[soldOut][3800] < 0.001 }},
		"everybody at once":    {"--rush=0", func(r *rush) bool { return r.meanBatch() > 20 }},
		"more units":           {"--quota=30000", func(r *rush) bool { return r.left == 22_000 && len(r.took[soldOut]) == 0 }},
		"nothing to sell":      {"--quota=0", always},
		"one instance":         {"--instances=1 --cores=1", always},
		"in parts":             {"--parts=6 --shards=3", func(r *rush) bool { return min(r.shards[0].served, r.shards[2].served) > 0 }},
		"behind a proxy":       {"--front-us=10", func(r *rush) bool { return r.front.served == 16_000 }},
		"queued":               {"--order-us=5000", func(r *rush) bool { return len(r.took[queued]) > 0 }},
		"past the deadline":    {"--look-up-us=20000 --refresh=3600", waited},
		"one by one":           {"--gate-batch=1 --settle-batch=1", func(r *rush) bool { return r.meanBatch() == 1 }},
		"limited":              {limited + " --tries=1", func(r *rush) bool { return len(r.took[gaveUp]) > 4000 }},
		"limited, three tries": {limited + " --tries=3", func(r *rush) bool { return r.limited > 8000 }},
		"a full queue":         {overloaded, waited},
		"Redis is overwhelmed": {overloaded + " --admit-us=1000 --tries=2", waited},
	}, func(t *testing.T, tc test) {
		p := planned("--buyers=8000 --quota=400 --instances=3 " + tc.flags)
		r := simulated(p)
		answers, total := 0, 0.0
		for _, took := range r.took[confirmed:] {
			answers += len(took)
			total += sum(took)
		}
		unanswered := func(a attempt) bool { return a.ended == pending }
		check.Same(t, "a buyer got no answer", slices.ContainsFunc(r.attempts, unanswered), false)
		sold := len(r.took[confirmed]) + len(r.took[queued])
		if answers != p.Buyers || sold+r.left != p.Quota || len(r.took[gaveUp]) == 0 && sold != min(p.Quota, p.Buyers) {
			t.Errorf("%d answers to %d buyers, %d sold and %d left of %d", answers, p.Buyers, sold, r.left, p.Quota)
		}
		check.Same(t, "inside at the end, settled", []int{r.inside, r.settled}, []int{0, sold})
		// Without pauses between tries all the time is spent inside.
		if r.limited+r.busy == 0 && math.Abs(r.insideSum-total) > 1e-6*total {
			t.Errorf("inside for %v buyer seconds, answers took %v", r.insideSum, total)
		}
		if !tc.reached(r) {
			t.Errorf("not reached: left %d, limited %d, busy %d, looks %d, a transaction has %.1f",
				r.left, r.limited, r.busy, r.looks.served, r.meanBatch())
		}
	})
}

// Where one server is the bottleneck, the result can be calculated: each full batch takes the settle's service time.
func TestBacklogTakesItsTime(t *testing.T) {
	r := simulated(planned("--buyers=51200 --quota=51200 --rush=0 --instances=1 --cores=100 --limit-burst=1000000 " +
		"--engine-us=0 --path-us=0 --admit-us=0 --trip-us=0 --commit-us=0 --order-us=25 --ack-wait=3600"))
	if want := 51200 * 25e-6; math.Abs(r.lastCommit-want) > 1e-3 {
		t.Errorf("settled after %v s, want %v", r.lastCommit, want)
	}
}

// Clients that buy without end keep the slowest stage busy, and the interactive response time law holds.
func TestClients(t *testing.T) {
	p := planned("--clients=100 --seconds=20 --instances=1 --gate-batch=1 --settle-batch=1")
	took := simulated(p).took[confirmed]
	rate, mean := float64(len(took))/p.Seconds, sum(took)/float64(len(took))
	if possible := 1e6 / (p.CommitUS + p.OrderUS); math.Abs(rate/possible-1) > 0.05 {
		t.Errorf("%v orders a second of %v possible", rate, possible)
	}
	if math.Abs(rate*mean-100) > 2 {
		t.Errorf("%v a second, each for %v s: %v inside, want 100", rate, mean, rate*mean)
	}
}

// The same seed gives an identical run; another seed gives another run.
func TestSeeds(t *testing.T) {
	shown := func(flags string) string {
		var out bytes.Buffer
		check.Done(simulated(planned("--buyers=5000 --quota=100 " + flags)).print(&out))
		return out.String()
	}
	first := shown("")
	check.Same(t, "a run with the same seed", shown(""), first)
	again := shown("--seed=2") == strings.Replace(first, "seed 1", "seed 2", 1)
	check.Same(t, "another seed gives the same run", again, false)
	texts := first + shown("--clients=10 --seconds=0.1") + shown("--quota=6000")
	for _, want := range []string{
		"5000 buyers for 100 units", "confirmed           100", "instances", "Redis", "settle", "look-ups",
		"10 clients for 0.1 s", "1000 units are left",
	} {
		check.Same(t, "the texts have "+want, strings.Contains(texts, want), true)
	}
}

func TestBadFlags(t *testing.T) {
	for _, flag := range []string{
		"--buyers=0", "--buyers=many", "--rush=-1", "--rush=NaN", "--instances=0", "--cores=0", "--shards=0", "--parts=1001",
		"--limit-rate=0", "--tries=0", "--order-us=-1", "--colour=red", "word",
	} {
		_, err := parse(flag)
		check.Same(t, flag+" is accepted", err == nil, false)
	}
}

func TestBucket(t *testing.T) {
	b := bucket{rate: 10, burst: 2, tokens: 2}
	for i, tc := range []struct {
		now  float64
		want bool
	}{{0, true}, {0, true}, {0, false}, {0.05, false}, {0.1, true}, {0.1, false}, {9, true}, {9, true}, {9, false}} {
		check.Same(t, fmt.Sprint("request ", i, " at ", tc.now), b.take(tc.now), tc.want)
	}
}
