// Package lab runs the strategies on the same load, reports what each did, and keeps the reports.
package lab

import (
	"context"
	"errors"
	"fmt"
	"time"

	"flashsale/model"
)

// finishTimeout bounds Round.Finish. Admitted attempts may need seconds to settle.
const finishTimeout = time.Minute

// ErrInterrupted means that a run was stopped before its end.
var ErrInterrupted = errors.New("interrupted: the report is partial")

// Bench starts the round of a strategy, with a fresh sale and instances.
type Bench interface {
	Start(ctx context.Context, strategy string, p model.LabPlan) (Round, error)
}

// Round is the round of one strategy. Many goroutines may call Buy at once, and one of them Kill.
type Round interface {
	// Buy makes a buyer's attempt for one unit. "instance" counts from 0. Accepted means that the order is committed. Another
	// verdict is a refusal. An error means that the outcome is not known. After a Kill, the attempt may be repeated.
	Buy(ctx context.Context, instance int, buyer string) (model.Verdict, error)
	// Kill ends an instance abruptly, as a crash does.
	Kill(instance int)
	// Finish waits until admitted attempts are settled, reads the books, stops the instances and removes the sale.
	Finish(ctx context.Context) (Tally, error)
}

// Tally holds the figures of the database and the instances at the end of a round.
type Tally struct {
	Sold    int64 // units in pending and paid orders
	Left    int64 // units that the stock row still offers
	Retries int64 // transactions that another writer overtook
}

// Setting describes the conditions of a run, which a reader needs to judge the figures.
type Setting struct {
	Machine Machine                 `json:"machine"`
	Stores  Stores                  `json:"stores"`
	Lessons map[string]model.Lesson `json:"-"`       // by strategy
	Command string                  `json:"command"` // a command line with the same plan
	Version string                  `json:"version"` // of this program
	Options map[string]string       `json:"options"` // some of the settings
}

// Stores describes the database and the Redis of a run.
type Stores struct {
	Database string `json:"database"`
	Redis    string `json:"redis"`
}

// Progress is how far a run has come.
type Progress struct {
	Strategy string  `json:"strategy"`
	Index    int     `json:"index"` // of the strategy, from 1
	Of       int     `json:"of"`    // how many strategies
	Done     int     `json:"done"`  // buyers whose attempts have ended
	Result   *Result `json:"-"`     // set when the strategy is finished
}

// Run runs a round of each of the plan's strategies. It calls "now" from many goroutines, but "progress" only from the caller's.
//
// When ctx ends, Run finishes the round under way and starts no other; an interrupt is no error. If a round fails, the report
// ends before this round, and the error names the strategy.
func Run(ctx context.Context, b Bench, p model.LabPlan, s Setting, now func() time.Time, progress func(Progress)) (*Report, error) {
	report := &Report{
		Setting: s, Buyers: p.Buyers, Stock: p.Stock, Concurrency: p.Concurrency, StartedAt: now().UTC().Truncate(time.Millisecond),
		Strategies: []*Result{}, Instances: p.Instances, Killed: p.Kill, Seed: p.Seed,
	}
	for index, strategy := range p.Strategies {
		if ctx.Err() != nil {
			report.Interrupted = true
			break
		}
		step := Progress{Strategy: strategy, Index: index + 1, Of: len(p.Strategies)}
		progress(step)
		round, err := b.Start(ctx, strategy, p)
		if err != nil {
			if report.Interrupted = ctx.Err() != nil; report.Interrupted && errors.Is(err, ctx.Err()) {
				return report, nil // the start failed because ctx ended
			}
			return report, fmt.Errorf("start %s: %w", strategy, err)
		}
		l := newLoad(p, round, now)
		l.run(ctx, func(done int) {
			step.Done = done
			progress(step)
		})
		report.Interrupted = ctx.Err() != nil
		finishing, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
		tally, err := round.Finish(finishing)
		cancel()
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
