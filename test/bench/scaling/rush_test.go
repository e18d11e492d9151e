package main

import (
	"bytes"
	"io"
	"math"
	"strings"
	"testing"
)

// planned parses a plan from flags.
func planned(t *testing.T, args ...string) plan {
	t.Helper()
	p, err := parse(args, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func simulated(p plan) *rush {
	r := newRush(p)
	r.run()
	return r
}

// erlangC returns the mean wait in an M/M/c queue with c servers, in seconds, by the Erlang C formula.
func erlangC(arrivals, service float64, c int) float64 {
	load := arrivals * service
	sum, term := 0.0, 1.0 // load^k / k!
	for k := range c {
		sum += term
		term *= load / float64(k+1)
	}
	term *= float64(c) / (float64(c) - load)
	return term / (sum + term) * service / (float64(c) - load)
}

// At a station with Poisson arrivals the mean wait is that of the Erlang C formula.
func TestStationIsErlangs(t *testing.T) {
	if got := erlangC(0.8, 1, 1); math.Abs(got-4) > 1e-9 { // rho/(1-rho) service times, for one server
		t.Fatalf("the formula gives %v for M/M/1 at 0.8, not 4", got)
	}
	for _, tc := range []struct {
		servers int
		load    float64 // utilisation of the servers
	}{{1, 0.5}, {1, 0.8}, {2, 0.7}, {8, 0.85}} {
		const service, jobs = 0.001, 150_000
		arrivals := tc.load * float64(tc.servers) / service
		r := newRush(planned(t, "--seed=7"))
		w := &r.world
		inside, area, since := 0, 0.0, 0.0
		moved := func(by int) {
			area += float64(inside) * (w.now - since)
			inside, since = inside+by, w.now
		}
		began, sojourn := make([]float64, jobs), 0.0
		s := &station{world: w, servers: tc.servers, cost: func(int) float64 { return w.random(service) }, done: func(job int) {
			sojourn += w.now - began[job]
			moved(-1)
		}}
		var arrive func(job int)
		arrive = func(job int) {
			began[job] = w.now
			moved(1)
			s.arrive(job)
			if job+1 < jobs {
				w.after(w.random(1/arrivals), arrive, job+1)
			}
		}
		w.after(0, arrive, 0)
		w.run(math.Inf(1))
		mean := 0.0
		for _, wait := range s.waits {
			mean += wait / jobs
		}
		if want := erlangC(arrivals, service, tc.servers); math.Abs(mean-want) > 0.07*want {
			t.Errorf("%d servers at %v: a wait of %.6f s, Erlang says %.6f", tc.servers, tc.load, mean, want)
		}
		// Little's law: the mean number inside is the arrival rate times the mean time inside.
		if l, lw := area/w.now, float64(jobs)/w.now*(sojourn/jobs); math.Abs(l-lw) > 1e-6*l || s.served != jobs {
			t.Errorf("%d servers at %v: %v inside, Little says %v; %d served", tc.servers, tc.load, l, lw, s.served)
		}
		if busy := sum(s.spent) / float64(tc.servers) / w.now; math.Abs(busy-tc.load) > 0.02 {
			t.Errorf("%d servers at %v: busy %v", tc.servers, tc.load, busy)
		}
	}
}

func sum(values []float64) (s float64) {
	for _, v := range values {
		s += v
	}
	return s
}

// In every plan each buyer receives one answer, each unit is sold once, and Little's law holds for the whole.
func TestEveryBuyerIsAnswered(t *testing.T) {
	for name, args := range map[string][]string{
		"as planned":           {},
		"without keys":         {"--keyed=false"},
		"everybody at once":    {"--rush=0"},
		"more units":           {"--quota=30000"},
		"nothing to sell":      {"--quota=0"},
		"one instance":         {"--instances=1", "--cores=1"},
		"in parts":             {"--parts=6", "--shards=3"},
		"behind a proxy":       {"--front-us=10"},
		"a slow database":      {"--order-us=2000", "--look-up-us=20000"},
		"one by one":           {"--gate-batch=1", "--settle-batch=1", "--quota=400"},
		"limited":              {"--limit-rate=100", "--limit-burst=100", "--tries=3"},
		"Redis is overwhelmed": {"--instances=1", "--cores=100", "--rush=0", "--limit-burst=100000", "--admit-us=1000", "--ask-us=1000", "--tries=2", "--buyers=20000"},
	} {
		t.Run(name, func(t *testing.T) {
			p := planned(t, append([]string{"--buyers=8000", "--quota=400", "--instances=3"}, args...)...)
			r := simulated(p)
			answers := 0
			for end := pending; end < outcomes; end++ {
				answers += len(r.took[end])
			}
			for b := range r.attempts {
				if r.attempts[b].ended == pending {
					t.Fatalf("buyer %d never heard anything", b)
				}
			}
			sold := len(r.took[confirmed]) + len(r.took[queued])
			if answers != p.Buyers || sold+r.left != p.Quota || len(r.took[gaveUp]) == 0 && sold != min(p.Quota, p.Buyers) {
				t.Errorf("%d answers to %d buyers, %d sold and %d left of %d", answers, p.Buyers, sold, r.left, p.Quota)
			}
			if r.inside != 0 || r.settledSizes != sold {
				t.Errorf("%d are inside at the end; %d settled, %d sold", r.inside, r.settledSizes, sold)
			}
			if r.limited+r.busy == 0 { // without pauses between tries all the time is spent inside
				total := 0.0
				for _, took := range r.took {
					total += sum(took)
				}
				if math.Abs(r.insideSum-total) > 1e-6*total {
					t.Errorf("inside for %v buyer seconds, answers took %v", r.insideSum, total)
				}
			}
		})
	}
}

// The plans above reach the situations that they are named for.
func TestPlansReach(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		ok   func(r *rush) bool
	}{
		"the limiter":      {[]string{"--limit-rate=100", "--limit-burst=100", "--tries=1"}, func(r *rush) bool { return len(r.took[gaveUp]) > 4000 }},
		"a full queue":     {[]string{"--instances=1", "--cores=100", "--rush=0", "--limit-burst=100000", "--ask-us=1000", "--buyers=20000"}, func(r *rush) bool { return r.busy > 0 }},
		"the deadline":     {[]string{"--look-up-us=20000"}, func(r *rush) bool { return r.busy > 0 }},
		"answers of 202":   {[]string{"--order-us=5000"}, func(r *rush) bool { return len(r.took[queued]) > 0 }},
		"memory":           {[]string{"--keyed=false"}, func(r *rush) bool { return r.looks.served == 0 && percentile(r.took[soldOut], 0.5) < 0.001 }},
		"the database":     {[]string{}, func(r *rush) bool { return r.looks.served == 7600 }},
		"batches":          {[]string{"--rush=0"}, func(r *rush) bool { return r.meanBatch() > 20 }},
		"all parts":        {[]string{"--parts=6", "--shards=3"}, func(r *rush) bool { return r.shards[0].served > 0 && r.shards[2].served > 0 }},
		"the proxy":        {[]string{"--front-us=10"}, func(r *rush) bool { return r.front.served == 16_000 }},
		"more than enough": {[]string{"--quota=30000"}, func(r *rush) bool { return r.left == 22_000 && len(r.took[soldOut]) == 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			r := simulated(planned(t, append([]string{"--buyers=8000", "--quota=400", "--instances=3"}, tc.args...)...))
			if !tc.ok(r) {
				t.Errorf("not reached: left %d, limited %d, busy %d, looks %d, a transaction has %.1f", r.left, r.limited, r.busy, r.looks.served, r.meanBatch())
			}
		})
	}
}

// Where one server is the bottleneck, the result can be calculated: each full batch takes the settle's service time.
func TestBacklogTakesItsTime(t *testing.T) {
	p := planned(t, "--buyers=51200", "--quota=51200", "--rush=0", "--instances=1", "--cores=100", "--limit-burst=1000000",
		"--engine-us=0", "--path-us=0", "--admit-us=0", "--trip-us=0", "--commit-us=0", "--order-us=25", "--ack-wait=3600")
	r := simulated(p)
	if want := 51200 * 25e-6; math.Abs(r.lastCommit-want) > 1e-3 {
		t.Errorf("settled after %v s, want %v", r.lastCommit, want)
	}
}

// Clients that buy without end keep the slowest stage busy, and the interactive response time law holds.
func TestClients(t *testing.T) {
	p := planned(t, "--clients=100", "--seconds=20", "--instances=1", "--gate-batch=1", "--settle-batch=1")
	r := simulated(p)
	took := r.took[confirmed]
	rate, mean := float64(len(took))/p.Seconds, sum(took)/float64(len(took))
	service := (p.CommitUS + p.OrderUS) * second
	if math.Abs(rate*service-1) > 0.05 {
		t.Errorf("%v orders a second of %v possible", rate, 1/service)
	}
	if math.Abs(rate*mean-100) > 2 {
		t.Errorf("%v a second, each for %v s: %v inside, want 100", rate, mean, rate*mean)
	}
}

// The same seed gives an identical run; another seed gives another run.
func TestSeeds(t *testing.T) {
	shown := func(args ...string) string {
		var out bytes.Buffer
		if err := run(append([]string{"--buyers=5000", "--quota=100"}, args...), &out, io.Discard); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	first := shown()
	if shown() != first {
		t.Error("the same seed gave another run")
	}
	if shown("--seed=2") == strings.Replace(first, "seed 1", "seed 2", 1) {
		t.Error("another seed gave the same run")
	}
	for _, word := range []string{"5000 buyers for 100 units", "confirmed           100", "instances", "Redis", "settle", "look-ups"} {
		if !strings.Contains(first, word) {
			t.Errorf("no %q in\n%s", word, first)
		}
	}
	if clients := shown("--clients=10", "--seconds=0.1"); !strings.Contains(clients, "10 clients for 0.1 s") {
		t.Error(clients)
	}
	if left := shown("--quota=6000"); !strings.Contains(left, "1000 units are left") {
		t.Error(left)
	}
}

func TestBadFlags(t *testing.T) {
	for _, arg := range []string{
		"--buyers=0", "--buyers=many", "--rush=-1", "--rush=NaN", "--instances=0", "--cores=0", "--shards=0", "--parts=0",
		"--limit-rate=0", "--tries=0", "--order-us=-1", "--colour=red", "word",
	} {
		if err := run([]string{arg}, io.Discard, io.Discard); err == nil {
			t.Errorf("%s was taken", arg)
		}
	}
}

func TestBucket(t *testing.T) {
	b := bucket{rate: 10, burst: 2, tokens: 2}
	for i, tc := range []struct {
		now  float64
		want bool
	}{{0, true}, {0, true}, {0, false}, {0.05, false}, {0.1, true}, {0.1, false}, {9, true}, {9, true}, {9, false}} {
		if got := b.take(tc.now); got != tc.want {
			t.Errorf("request %d at %v: %t", i, tc.now, got)
		}
	}
}
