// Command scaling simulates a rush: buyers who click within seconds of a sale's start, instances, Redis and the settle.
// It is a queueing model with service times that were measured on one small machine. It shows where the next bottleneck
// is; docs/scaling.md describes how reliable it is.
//
//	go run ./test/bench/scaling -buyers 1000000 -quota 10000 -instances 8 -cores 4
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "scaling:", err)
		}
		os.Exit(2)
	}
}

func run(args []string, stdout, stderr io.Writer) error {
	p, err := parse(args, stderr)
	if err != nil {
		return err
	}
	r := newRush(p)
	r.run()
	return r.print(stdout)
}

// parse reads the flags. The defaults were measured: see docs/performance.md, docs/microbench.txt, and TestMeasure as
// described in docs/scaling.md.
func parse(args []string, stderr io.Writer) (p plan, err error) {
	f := flag.NewFlagSet("scaling", flag.ContinueOnError)
	f.SetOutput(stderr)
	whole := func(at *int, name string, value int, help string) { f.IntVar(at, name, value, help) }
	number := func(at *float64, name string, value float64, help string) { f.Float64Var(at, name, value, help) }
	whole(&p.Buyers, "buyers", 1_000_000, "buyers who click once each")
	whole(&p.Quota, "quota", 10_000, "units, one for each buyer")
	number(&p.Rush, "rush", 5, "seconds after the start at which a buyer clicks, on average; most click earlier")
	f.Uint64Var(&p.Seed, "seed", 1, "the same seed, the same run")
	whole(&p.Instances, "instances", 8, "instances of the engine")
	whole(&p.Cores, "cores", 2, "cores of each")
	whole(&p.Shards, "shards", 1, "Redis processes")
	whole(&p.Parts, "parts", 1, "parts that the sale's stock is in, over the shards")
	whole(&p.Transactions, "transactions", 1, "settles of one sale that the database works on at once; its stock row lets one pass at a time")
	whole(&p.GateBatch, "gate-batch", 256, "most attempts in one call of Redis")
	whole(&p.SettleBatch, "settle-batch", 512, "most orders in one transaction")
	f.BoolVar(&p.Keyed, "keyed", true, "clicks have an Idempotency-Key, as those of the storefront: a refusal asks Redis and the database; false: memory")
	number(&p.LimitRate, "limit-rate", 20_000, "requests a second that an instance takes")
	number(&p.LimitBurst, "limit-burst", 20_000, "requests that it takes at once")
	number(&p.AckWait, "ack-wait", 0.8, "seconds after which a buyer hears 'queued'")
	whole(&p.Tries, "tries", 6, "tries of a page after 429 and 503")
	whole(&p.Clients, "clients", 0, "instead of buyers: so many clients who ask over and over, of endless stock")
	number(&p.Seconds, "seconds", 10, "for how long they do")
	number(&p.FrontUS, "front-us", 0, "CPU of a request in the proxy, in microseconds; not measured, 0 leaves it out")
	whole(&p.FrontCores, "front-cores", 2, "cores of the proxy")
	number(&p.PathUS, "path-us", 31.4, "CPU of an instance for a path, in microseconds (TestMeasure)")
	number(&p.RefuseUS, "refuse-us", 28.1, "to refuse an attempt from memory (TestMeasure, sold out, without a key)")
	number(&p.EngineUS, "engine-us", 82.5, "for an attempt that is admitted, its settle included (TestMeasure; performance.md says 75)")
	number(&p.KeyedUS, "keyed-us", 103.1, "to refuse one with a key (TestMeasure, sold out, with a key)")
	number(&p.TripUS, "trip-us", 94.7, "way to Redis and back (microbench.txt, BenchmarkScripts/redis=server/admit-sold-out, median)")
	number(&p.AdmitUS, "admit-us", 22.6, "CPU of Redis for an admitted attempt, its settle included (TestMeasure; performance.md says 23)")
	number(&p.AskUS, "ask-us", 11.3, "CPU of Redis for one that is refused (TestMeasure, sold out, with a key)")
	number(&p.LookUpUS, "look-up-us", 101.7, "CPU of the database to look whether a refused key is known (TestMeasure, the same)")
	whole(&p.LookUps, "database-cores", 2, "cores of the database for that")
	number(&p.CommitUS, "commit-us", 1190, "a transaction by itself (microbench.txt, BenchmarkWrites/database=mariadb/settle, line through the medians)")
	number(&p.OrderUS, "order-us", 24.2, "an order in it (the same)")
	if err := f.Parse(args); err != nil {
		return p, err
	}
	if f.NArg() > 0 {
		return p, fmt.Errorf("what is %q?", f.Arg(0))
	}
	return p, p.validate()
}

// Bounds keep a run within minutes and a few gigabytes.
const (
	mostBuyers   = 20_000_000
	mostParts    = 1000
	mostUS       = 1e7
	mostSeconds  = 3600
	mostRequests = 1e9
)

func (p *plan) validate() error {
	within := func(name string, value, least, most float64) error {
		if !(value >= least && value <= most) {
			return fmt.Errorf("-%s: must be %v to %v", name, least, most)
		}
		return nil
	}
	return errors.Join(
		within("buyers", float64(p.Buyers), 1, mostBuyers), within("quota", float64(p.Quota), 0, mostBuyers),
		within("rush", p.Rush, 0, mostSeconds), within("instances", float64(p.Instances), 1, mostParts),
		within("cores", float64(p.Cores), 1, mostParts), within("shards", float64(p.Shards), 1, mostParts),
		within("parts", float64(p.Parts), 1, mostParts), within("transactions", float64(p.Transactions), 1, mostParts),
		within("gate-batch", float64(p.GateBatch), 1, mostBuyers), within("settle-batch", float64(p.SettleBatch), 1, mostBuyers),
		within("limit-rate", p.LimitRate, 1, mostRequests), within("limit-burst", p.LimitBurst, 1, mostRequests),
		within("ack-wait", p.AckWait, 0, mostSeconds), within("tries", float64(p.Tries), 1, mostParts),
		within("clients", float64(p.Clients), 0, mostBuyers), within("seconds", p.Seconds, 0, mostSeconds),
		within("front-us", p.FrontUS, 0, mostUS), within("front-cores", float64(p.FrontCores), 1, mostParts),
		within("path-us", p.PathUS, 0, mostUS), within("refuse-us", p.RefuseUS, 0, mostUS), within("engine-us", p.EngineUS, 0, mostUS), within("keyed-us", p.KeyedUS, 0, mostUS),
		within("trip-us", p.TripUS, 0, mostUS), within("admit-us", p.AdmitUS, 0, mostUS), within("ask-us", p.AskUS, 0, mostUS),
		within("look-up-us", p.LookUpUS, 0, mostUS), within("database-cores", float64(p.LookUps), 1, mostParts),
		within("commit-us", p.CommitUS, 0, mostUS), within("order-us", p.OrderUS, 0, mostUS),
	)
}

// print writes the results of the run.
func (r *rush) print(w io.Writer) error {
	out := bufio.NewWriter(w)
	if r.Clients > 0 {
		n := len(r.took[confirmed]) + len(r.took[queued])
		fmt.Fprintf(out, "%d clients for %g s, seed %d: %.0f orders a second, %.0f in a transaction\n", r.Clients, r.Seconds, r.Seed, float64(n)/r.Seconds, r.meanBatch())
	} else {
		fmt.Fprintf(out, "%d buyers for %d units, seed %d: at the peak %.0f requests a second, the last answer after %.2f s\n", r.Buyers, r.Quota, r.Seed, r.peak(), r.lastAnswer)
		if r.left == 0 && r.Quota > 0 {
			fmt.Fprintf(out, "the gate is empty after %.2f s, the last order is committed after %.2f s; %.0f in a transaction\n", r.soldOutAt, r.lastCommit, r.meanBatch())
		} else {
			fmt.Fprintf(out, "%d units are left\n", r.left)
		}
	}
	fmt.Fprintf(out, "tries that were turned away: %d by the limiter (429), %d since too many waited for a store (503)\n", r.limited, r.busy)

	fmt.Fprintf(out, "\n%-12s %10s %9s %9s %9s %9s\n", "answer", "buyers", "p50 ms", "p90 ms", "p99 ms", "most ms")
	for end := confirmed; end < outcomes; end++ {
		t := r.took[end]
		fmt.Fprintf(out, "%-12s %10d %9.1f %9.1f %9.1f %9.1f\n", end, len(t), inMS(percentile(t, 0.5)), inMS(percentile(t, 0.9)), inMS(percentile(t, 0.99)), inMS(percentile(t, 1)))
	}
	fmt.Fprintf(out, "\n%-12s %10s %9s %9s %9s %9s\n", "stage", "jobs", "servers", "busiest s", "p99 ms", "line")
	for _, stage := range r.stages() {
		busiest := 0.0
		if len(stage.spent) > 0 {
			busiest = slices.Max(stage.spent) / float64(stage.servers)
		}
		fmt.Fprintf(out, "%-12s %10d %9d %8.1f%% %9.1f %9d\n", stage.name, stage.served, stage.servers, 100*busiest, inMS(percentile(stage.waits, 0.99)), stage.line.most)
	}
	return out.Flush()
}

func inMS(seconds float64) float64 { return seconds * 1000 }

func (o outcome) String() string {
	return [...]string{"pending", "confirmed", "queued", "sold out", "gave up"}[o]
}
