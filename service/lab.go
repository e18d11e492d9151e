package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"flashsale/model"
)

// Bounds of a comparison that a page asks for. They are a tenth of the command's: it shares the machine with a shop.
const (
	MaxLabBuyers      = 100_000
	MaxLabStock       = 100_000
	MaxLabConcurrency = 1_000
)

// labDistance is how far away from a sale a comparison has to be.
const labDistance = time.Minute

// notAStrategy is worded as any other choice.
const notAStrategy Reason = "not_a_choice"

// LabPlan is a comparison that an operator asks for.
type LabPlan struct {
	Strategies                 []string // none: all
	Buyers, Stock, Concurrency int
	WhileOpen                  bool // even if a sale is open, or opens meanwhile
}

// LabStrategy is what can be compared, with what its own comment says.
type LabStrategy struct{ Name, How, Right, Breaks, Costs string }

// LabProgress is how far a comparison has come.
type LabProgress struct {
	Strategy string
	Index    int // of the strategy, from 1
	Done     int // buyers who have their answer from it
	Result   any // as in report.json; set when the strategy is finished
}

// LabReport is what a list says of a report.
type LabReport struct {
	ID                         string
	At                         time.Time
	Strategies                 []string
	Buyers, Stock, Concurrency int
	Machine, Database, Redis   string
}

// LabBench compares strategies on stores of its own, and keeps the reports.
type LabBench interface {
	// Compare reports also what was measured until ctx ended, or until something broke. reportID is empty if that is
	// nothing.
	Compare(ctx context.Context, p LabPlan, progress func(LabProgress)) (reportID string, err error)
	// Reports lists them, the newest first. The error is about those that can't be read.
	Reports() ([]LabReport, error)
	// WriteReport writes a report as a page or as figures; ok is false if there is none.
	WriteReport(w io.Writer, id string, page bool) (ok bool, err error)
}

// LabStop is why a comparison ended early.
type LabStop string

// The reasons, beside a failure.
const (
	StoppedByOperator LabStop = "operator"
	StoppedBySale     LabStop = "sale_open" // a sale was about to open
	StoppedByServer   LabStop = "server"    // it was stopped
)

// LabRun is a comparison at one instant.
type LabRun struct {
	LabPlan
	LabProgress // of the strategy under way, or the last one
	StartedAt   time.Time
	Results     []any
	Over        bool
	Stopped     LabStop // empty: it ran, or runs, to its end
	Failed      bool    // it broke off; the log says why
	ReportID    string  // once it is over, unless nothing was measured
}

// Lab lets operators compare the strategies, one comparison at a time on this instance.
type Lab struct {
	bench      LabBench
	catalog    *Catalog
	strategies []LabStrategy
	log        *slog.Logger
	newest     *Newest[*LabRun] // nil before the first run

	mu      sync.Mutex
	stop    context.CancelFunc // of the run under way, else nil
	why     LabStop            // it was called
	closed  bool
	running sync.WaitGroup
}

// NewLab makes a lab for these strategies; Close must follow.
func NewLab(bench LabBench, catalog *Catalog, strategies []LabStrategy, log *slog.Logger) *Lab {
	return &Lab{bench: bench, catalog: catalog, strategies: strategies, log: log, newest: NewNewest[*LabRun](nil)}
}

// Strategies lists what can be compared.
func (l *Lab) Strategies() []LabStrategy { return l.strategies }

// Reports lists the reports, the newest first. Those that can't be read are left out, and the log says so.
func (l *Lab) Reports() []LabReport {
	list, err := l.bench.Reports()
	if err != nil {
		l.log.Warn("reports of the lab can't be read", "error", err)
	}
	return list
}

// WriteReport writes a report as a page or as figures; ok is false if there is none.
func (l *Lab) WriteReport(w io.Writer, id string, page bool) (ok bool, err error) {
	return l.bench.WriteReport(w, id, page)
}

// Newest gives the run under way, else the last one, else nil; and a channel that closes when there is news of it.
func (l *Lab) Newest() (run *LabRun, changed <-chan struct{}) { return l.newest.Get() }

// Start begins a comparison and gives it. BadRequest with what is wrong; LabRunning; SaleOpen if a sale is open or about
// to open, unless the plan says that it doesn't matter; Unavailable when the server stops.
func (l *Lab) Start(p LabPlan) (run *LabRun, verdict model.Verdict, invalid *Invalid) {
	if invalid := l.complete(&p); invalid != nil {
		return nil, model.BadRequest, invalid
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return nil, model.Unavailable, nil
	case l.stop != nil:
		return nil, model.LabRunning, nil
	case !p.WhileOpen && l.saleNear():
		return nil, model.SaleOpen, nil
	}
	ctx, stop := context.WithCancel(context.Background()) // it outlives the request
	l.stop, l.why = stop, ""
	run = &LabRun{LabPlan: p, LabProgress: LabProgress{Strategy: p.Strategies[0], Index: 1}, StartedAt: l.catalog.Now()}
	l.newest.Set(run)
	l.running.Go(func() { l.compare(ctx, *run) })
	return run, model.Accepted, nil
}

// complete puts all strategies in place of none, and gives what is wrong with a plan.
func (l *Lab) complete(p *LabPlan) *Invalid {
	names := make([]string, len(l.strategies))
	for i, s := range l.strategies {
		names[i] = s.Name
	}
	if len(p.Strategies) == 0 {
		p.Strategies = names
	}
	for i, name := range p.Strategies {
		if !slices.Contains(names, name) || slices.Contains(p.Strategies[:i], name) {
			return &Invalid{Field: "strategies", Reason: notAStrategy, Value: strings.Join(names, ", ")}
		}
	}
	for _, n := range []struct {
		field       string
		value, most int
	}{{"buyers", p.Buyers, MaxLabBuyers}, {"stock", p.Stock, MaxLabStock}, {"concurrency", p.Concurrency, MaxLabConcurrency}} {
		if invalid := outside(n.field, int64(n.value), 1, int64(n.most)); invalid != nil {
			return invalid
		}
	}
	return nil
}

// saleNear reports whether a sale is open, or opens within labDistance.
func (l *Lab) saleNear() bool {
	sales, _ := l.catalog.Live()
	now := l.catalog.Now()
	return slices.ContainsFunc(sales, func(o model.Offer) bool {
		next := now
		if o.StartsAt.After(now) {
			next = o.StartsAt
		}
		return next.Sub(now) <= labDistance && o.Judge(next) == model.Accepted
	})
}

// compare runs a comparison to its end and tells of its progress.
func (l *Lab) compare(ctx context.Context, run LabRun) {
	id, err := l.bench.Compare(ctx, run.LabPlan, func(p LabProgress) {
		run.LabProgress = p
		if p.Result != nil {
			run.Results = append(run.Results, p.Result)
		}
		now := run // those who follow keep what they got
		l.newest.Set(&now)
		if !run.WhileOpen && l.saleNear() {
			l.end(StoppedBySale)
		}
	})
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		err = nil
	}
	if err != nil {
		l.log.Error("the lab broke off", "error", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stop()
	l.stop = nil
	run.Over, run.Stopped, run.Failed, run.ReportID = true, l.why, err != nil, id
	l.newest.Set(&run)
}

// end stops the run under way, if there is one that nobody has stopped.
func (l *Lab) end(why LabStop) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stop != nil && l.why == "" {
		l.why = why
		l.stop()
	}
}

// Stop ends the comparison under way; what was measured by then is reported. It doesn't wait for that.
func (l *Lab) Stop() { l.end(StoppedByOperator) }

// Close ends the comparison under way and waits for its report, as long as ctx lets it. The error says that it was too
// slow; nothing of it is kept then.
func (l *Lab) Close(ctx context.Context) error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.end(StoppedByServer)
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.running.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the lab has not ended: %w", ctx.Err())
	}
}
