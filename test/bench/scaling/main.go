// Command scaling simulates a rush: buyers who click within seconds of a sale's start, instances, Redis and the settle.
// It is a queueing model with service times that were measured on one small machine. It shows where the next bottleneck
// is; docs/scaling.md describes how reliable it is.
//
//	go run ./test/bench/scaling --buyers 1000000 --quota 10000 --instances 8 --cores 4
package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strconv"

	"github.com/alecthomas/kong"
)

// plan holds the parameters of a simulation, which are the flags. A flag must be at least `least`, or 0, and at most
// `most`, or 1,000: this keeps a run within minutes and a few gigabytes. The default costs were measured: see
// docs/performance.md, docs/microbench.txt and docs/scaling.md.
type plan struct {
	Buyers int     `default:"1000000" least:"1" most:"2e7" help:"Buyers who click once each."`
	Quota  int     `default:"10000" most:"2e7" help:"Units, one for each buyer."`
	Rush   float64 `default:"5" most:"3600" help:"Mean time in seconds from the start to a click; most buyers click earlier."`
	Seed   uint64  `default:"1" most:"2e19" help:"The same seed gives the same run."`

	Instances    int     `default:"8" least:"1" help:"Instances of the engine."`
	Cores        int     `default:"2" least:"1" help:"Cores of each instance."`
	Shards       int     `default:"1" least:"1" help:"Redis processes."`
	Parts        int     `default:"1" least:"1" help:"Parts of the sale's stock, spread over the shards."`
	Transactions int     `default:"1" least:"1" help:"Settles of one sale that the database processes at once."`
	GateBatch    int     `default:"256" least:"1" most:"2e7" help:"Most attempts in one call of Redis."`
	SettleBatch  int     `default:"512" least:"1" most:"2e7" help:"Most orders in one transaction."`
	Keyed        bool    `default:"true" negatable:"" help:"Clicks have an Idempotency-Key: until an instance has seen that all orders are made, a refusal asks Redis and the database."`
	Refresh      float64 `default:"0.25" most:"3600" help:"Seconds between an instance's looks whether all orders are made."`

	LimitRate  float64 `default:"20000" least:"1" most:"1e9" help:"Requests a second that an instance takes."`
	LimitBurst float64 `default:"20000" least:"1" most:"1e9" help:"Requests at once that an instance takes."`
	AckWait    float64 `default:"0.8" most:"3600" help:"Seconds after which a buyer gets 202."`
	Tries      int     `default:"6" least:"1" help:"Tries of a buyer's page in all, with those after 429 and 503."`

	Mode        string  `default:"rush" enum:"rush,line,draw" help:"How buyers get their turn: ${enum}."`
	Opening     float64 `default:"600" most:"1e6" help:"Seconds in which a line or draw takes entries before the start; buyers enter at a mean time of rush after its begin."`
	CallSeconds float64 `default:"120" least:"1" most:"1e6" help:"Seconds of a call in a line."`
	Think       float64 `default:"10" most:"3600" help:"Mean time in seconds until a buyer who is called and comes clicks."`
	NoShow      float64 `default:"0.2" most:"1" help:"Share of called buyers who do not come."`

	Clients int     `most:"2e7" help:"Instead of buyers: so many clients buy repeatedly, from endless stock."`
	Seconds float64 `default:"10" most:"3600" help:"Duration of a run with clients."`

	FrontUS       float64 `name:"front-us" most:"1e7" help:"CPU of the proxy for a request, in µs; 0: no proxy."`
	FrontCores    int     `default:"2" least:"1" help:"Cores of the proxy."`
	PathUS        float64 `name:"path-us" default:"30.6" most:"1e7" help:"CPU of an instance for a path, in µs."`
	RefuseUS      float64 `name:"refuse-us" default:"25.0" most:"1e7" help:"CPU of an instance to refuse from memory."`
	EngineUS      float64 `name:"engine-us" default:"85.1" most:"1e7" help:"CPU of an instance to admit an attempt and settle it."`
	KeyedUS       float64 `name:"keyed-us" default:"103.1" most:"1e7" help:"CPU of an instance to refuse an attempt with a key."`
	TripUS        float64 `name:"trip-us" default:"112" most:"1e7" help:"Round trip to Redis."`
	AdmitUS       float64 `name:"admit-us" default:"22.5" most:"1e7" help:"CPU of Redis for an admitted attempt and its settle."`
	AskUS         float64 `name:"ask-us" default:"11.3" most:"1e7" help:"CPU of Redis for a refused attempt."`
	LookUpUS      float64 `name:"look-up-us" default:"101.7" most:"1e7" help:"CPU of the database to look up a refused key."`
	DatabaseCores int     `default:"2" least:"1" help:"Cores of the database for look-ups."`
	CommitUS      float64 `name:"commit-us" default:"880" most:"1e7" help:"A transaction without its orders."`
	OrderUS       float64 `name:"order-us" default:"20.0" most:"1e7" help:"An order in a transaction."`
	EntryUS       float64 `name:"entry-us" default:"48" most:"1e7" help:"CPU of an instance for an entry in a line or draw."`
	EnterUS       float64 `name:"enter-us" default:"11.6" most:"1e7" help:"An entry in a transaction."`
	SealUS        float64 `name:"seal-us" default:"2.7" most:"1e7" help:"Time to seal one entry."`
}

// Validate is called by kong.
func (p *plan) Validate() (err error) {
	value := reflect.ValueOf(*p)
	for i := range value.NumField() {
		field := value.Type().Field(i)
		number := func(text string) float64 {
			n, _ := strconv.ParseFloat(text, 64)
			return n
		}
		least, most := number(field.Tag.Get("least")), number(cmp.Or(field.Tag.Get("most"), "1000"))
		if n := number(fmt.Sprint(value.Field(i))); !(n >= least && n <= most) {
			err = errors.Join(err, fmt.Errorf("%s: must be %v to %v", field.Name, least, most))
		}
	}
	return err
}

func main() {
	var p plan
	kong.Parse(&p)
	var s interface {
		simulate()
		print(w io.Writer) error
	} = newRush(p)
	if p.Mode != "rush" {
		s = newLine(p)
	}
	s.simulate()
	if err := s.print(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "scaling:", err)
		os.Exit(1)
	}
}

// print writes the results of the run.
func (r *rush) print(w io.Writer) error {
	out := bufio.NewWriter(w)
	if r.Clients > 0 {
		n := len(r.took[confirmed]) + len(r.took[queued])
		fmt.Fprintf(out, "%d clients for %g s, seed %d: %.0f orders a second, %.0f in a transaction\n",
			r.Clients, r.Seconds, r.Seed, float64(n)/r.Seconds, r.meanBatch())
	} else {
		fmt.Fprintf(out, "%d buyers for %d units, seed %d: at the peak %.0f requests a second, the last answer after %.2f s\n",
			r.Buyers, r.Quota, r.Seed, r.peak(), r.lastAnswer)
		if r.left == 0 && r.Quota > 0 {
			fmt.Fprintf(out, "the gate is empty after %.2f s, the last order is committed after %.2f s; %.0f in a transaction\n",
				r.soldOutAt, r.lastCommit, r.meanBatch())
		} else {
			fmt.Fprintf(out, "%d units are left\n", r.left)
		}
	}
	printTurnedAway(out, r.limited, r.busy)
	printHead(out)
	for end, name := range []string{confirmed: "confirmed", queued: "queued", soldOut: "sold out", gaveUp: "gave up"} {
		if name != "" {
			printAnswers(out, name, r.took[end])
		}
	}
	printStages(out, r.stations)
	return out.Flush()
}

func printTurnedAway(out io.Writer, limited, busy int) {
	fmt.Fprintf(out, "tries that were turned away: %d by the limiter (429), %d since too many waited for a store (503)\n", limited, busy)
}

func printHead(out io.Writer) {
	fmt.Fprintf(out, "\n%-12s %10s %9s %9s %9s %9s\n", "answer", "buyers", "p50 ms", "p90 ms", "p99 ms", "most ms")
}

// printAnswers writes how long answers of a kind took, in seconds and sorted.
func printAnswers(out io.Writer, kind string, took []float64) {
	fmt.Fprintf(out, "%-12s %10d %9.1f %9.1f %9.1f %9.1f\n", kind, len(took),
		1e3*percentile(took, 0.5), 1e3*percentile(took, 0.9), 1e3*percentile(took, 0.99), 1e3*percentile(took, 1))
}

func printStages(out io.Writer, stations []*station) {
	fmt.Fprintf(out, "\n%-12s %10s %9s %9s %9s %9s\n", "stage", "jobs", "servers", "busiest s", "p99 ms", "line")
	for _, stage := range stages(stations) {
		busiest := 0.0
		if len(stage.spent) > 0 {
			busiest = slices.Max(stage.spent) / float64(stage.servers)
		}
		fmt.Fprintf(out, "%-12s %10d %9d %8.1f%% %9.1f %9d\n",
			stage.name, stage.served, stage.servers, 100*busiest, 1e3*percentile(stage.waits, 0.99), stage.longest)
	}
}

// percentile returns a percentile of sorted values, or 0 if there are none.
func percentile(sorted []float64, part float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(part*float64(len(sorted))))]
}
