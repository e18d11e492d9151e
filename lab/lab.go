// Package lab runs the strategies on the same load and tells what each did.
package lab

import (
	"context"
	"errors"
	"fmt"
	"time"

	"flashsale/model"
)

// finishTimeout bounds the end of a round, also when the user has had enough: what is on its way needs seconds to
// arrive, and a sale that is not removed would stay in the user's database.
const finishTimeout = time.Minute

// Plan is what the user asked for, already validated.
type Plan struct {
	Strategies  []string
	Buyers      int    // each attempts one unit once
	Stock       int    // units
	Concurrency int    // attempts under way at once
	Instances   int    // buyers are spread over them
	OverHTTP    bool   // through the whole stack, not the strategy alone
	Kill        bool   // the last of two instances or more dies when half of the stock is sold; the others get its buyers
	Seed        uint64 // orders the buyers
}

// Bench gives each strategy a fresh sale and instances to run on.
type Bench interface {
	Start(ctx context.Context, strategy string, p Plan) (Round, error)
}

// Round is one strategy's turn. Buy and Kill are called from many goroutines.
type Round interface {
	// Buy is one attempt of a buyer for one unit at an instance, counted from 0. Accepted means that the order is
	// committed; an error is an attempt that nobody decided. It may come again with the same buyer, after a Kill.
	Buy(ctx context.Context, instance int, buyer string) (model.Verdict, error)
	// Kill ends an instance without a goodbye.
	Kill(instance int)
	// Finish waits until nothing is on its way, reads the books, stops the instances and removes the sale. It is
	// called once, also after a cancelled run.
	Finish(ctx context.Context) (Tally, error)
}

// Tally is what the database says at the end of a round.
type Tally struct {
	Sold    int64 // units in live orders that stand in the database
	Left    int64 // units that the stock row still offers
	Retries int64 // transactions that lost their race
}

// Lesson is what a strategy's own comment says.
type Lesson struct {
	How    string `json:"how"`
	Right  string `json:"right"`
	Breaks string `json:"breaks"`
	Costs  string `json:"costs"`
}

// Setting is what a reader must know to judge the figures.
type Setting struct {
	Machine  Machine
	Database string            // the server and its version
	Redis    string            // the server and its version
	Lessons  map[string]Lesson // by strategy
	Command  string            // repeats the run
	Version  string            // of this program
	Options  map[string]string // settings that bear on the figures
}

// Progress is how far a run has come.
type Progress struct {
	Strategy string
	Index    int // of the strategy, from 0
	Of       int // strategies
	Done     int // buyers who have their answer
	Buyers   int
	Result   *Result // set when the strategy is finished
}

// Run lets one strategy after the other serve the plan's buyers. The clock now is read from many goroutines, progress
// is called from this one.
//
// When ctx ends, the round under way is finished and reported as incomplete, the others are left out, Interrupted
// is set, and there is no error. When a round can't be started or finished, the report ends before it and comes with
// an error that names the strategy.
func Run(ctx context.Context, b Bench, p Plan, s Setting, now func() time.Time, progress func(Progress)) (*Report, error) {
	report := newReport(p, s, now())
	order := buyersInOrder(p)
	for index, strategy := range p.Strategies {
		if ctx.Err() != nil {
			report.Interrupted = true
			break
		}
		step := Progress{Strategy: strategy, Index: index, Of: len(p.Strategies), Buyers: p.Buyers}
		progress(step)
		round, err := b.Start(ctx, strategy, p)
		if err != nil {
			report.Interrupted = ctx.Err() != nil
			return report, startFailure(ctx, strategy, err)
		}
		l := newLoad(p, round, order, now)
		l.run(ctx, func(done int) {
			step.Done = done
			progress(step)
		})
		report.Interrupted = ctx.Err() != nil
		tally, err := finish(ctx, round)
		if err != nil {
			return report, fmt.Errorf("finish %s: %w", strategy, err)
		}
		result := newResult(strategy, p, l, tally, report.Interrupted, s.Lessons[strategy])
		report.Strategies = append(report.Strategies, result)
		step.Done, step.Result = result.Requests, result
		progress(step)
	}
	return report, nil
}

// startFailure is nil if all that failed is that the user had enough.
func startFailure(ctx context.Context, strategy string, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return fmt.Errorf("start %s: %w", strategy, err)
}

func finish(ctx context.Context, r Round) (Tally, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	return r.Finish(ctx)
}
