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

// Bounds of a comparison that an operator starts on a page. They are a tenth of those of the command `lab`, because
// the comparison shares the machine with a shop.
const (
	MaxLabBuyers      = 100_000
	MaxLabStock       = 100_000
	MaxLabConcurrency = 1_000
)

// labDistance is the minimum time between a comparison and the opening of a sale.
const labDistance = time.Minute

// notAStrategy is the general reason for a value that is not one of the choices.
const notAStrategy Reason = "not_a_choice"

// LabPlan is a comparison that an operator asks for.
type LabPlan struct {
	Strategies                 []string // empty: all
	Buyers, Stock, Concurrency int
	WhileOpen                  bool // run even if a sale is open, or opens meanwhile
}

// LabStrategy is a strategy that can be compared, with the texts of its doc comment.
type LabStrategy struct{ Name, How, Right, Breaks, Costs string }

// LabProgress is how far a comparison has come.
type LabProgress struct {
	Strategy string
	Index    int // of the strategy, from 1
	Done     int // buyers who have their answer from this strategy
	Result   any // as in report.json; set when the strategy is finished
}

// LabReport is the summary of a report in a list.
type LabReport struct {
	ID                         string
	At                         time.Time
	Strategies                 []string
	Buyers, Stock, Concurrency int
	Machine, Database, Redis   string
}

// LabBench compares strategies on stores of its own, and keeps the reports.
type LabBench interface {
	// Compare runs a comparison and saves its report. If ctx ends or an error occurs, the report has what was
	// measured until then. reportID is empty if nothing was measured.
	Compare(ctx context.Context, p LabPlan, progress func(LabProgress)) (reportID string, err error)
	// Reports lists the reports, the newest first. It lists the readable ones even if it returns an error, which is
	// about those that can't be read.
	Reports() ([]LabReport, error)
	// WriteReport writes a report as an HTML page or as JSON figures; ok is false if there is no such report.
	WriteReport(w io.Writer, id string, page bool) (ok bool, err error)
}

// LabStop is the reason why a comparison ended early.
type LabStop string

// The reasons for an early end, other than a failure.
const (
	StoppedByOperator LabStop = "operator"
	StoppedBySale     LabStop = "sale_open" // a sale was about to open
	StoppedByServer   LabStop = "server"    // the server was stopped
)

// LabRun is the state of a comparison at one instant.
type LabRun struct {
	LabPlan
	LabProgress // of the strategy under way, or the last one
	StartedAt   time.Time
	Results     []any
	Over        bool
	Stopped     LabStop // empty: not stopped early
	Failed      bool    // the comparison failed; the log has the error
	ReportID    string  // set at the end, unless nothing was measured
}

// Lab lets operators compare the strategies, one comparison at a time on this instance.
type Lab struct {
	bench      LabBench
	catalog    *Catalog
	strategies []LabStrategy
	log        *slog.Logger
	newest     *Newest[*LabRun] // nil before the first run

	mu      sync.Mutex
	stop    context.CancelFunc // stops the run under way; nil if there is none
	why     LabStop            // why stop was called
	closed  bool
	running sync.WaitGroup
}

// NewLab creates a lab for these strategies. The caller must call Close at the end.
func NewLab(bench LabBench, catalog *Catalog, strategies []LabStrategy, log *slog.Logger) *Lab {
	return &Lab{bench: bench, catalog: catalog, strategies: strategies, log: log, newest: NewNewest[*LabRun](nil)}
}

// Strategies lists the strategies that can be compared.
func (l *Lab) Strategies() []LabStrategy { return l.strategies }

// Reports lists the reports, the newest first. Reports that can't be read are left out, and the error is logged.
func (l *Lab) Reports() []LabReport {
	list, err := l.bench.Reports()
	if err != nil {
		l.log.Warn("reports of the lab can't be read", "error", err)
	}
	return list
}

// WriteReport writes a report as an HTML page or as JSON figures; ok is false if there is no such report.
func (l *Lab) WriteReport(w io.Writer, id string, page bool) (ok bool, err error) {
	return l.bench.WriteReport(w, id, page)
}

// Newest returns the run under way, else the last run, else nil, and a channel that closes when a newer state is
// available.
func (l *Lab) Newest() (run *LabRun, changed <-chan struct{}) { return l.newest.Get() }

// Start begins a comparison and returns its first state. The verdict is Accepted; BadRequest with the invalid field;
// LabRunning if another comparison is under way; SaleOpen if a sale is open or about to open, unless the plan sets
// WhileOpen; or Unavailable if the server stops.
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
	ctx, stop := context.WithCancel(context.Background()) // the comparison outlives the request
	l.stop, l.why = stop, ""
	run = &LabRun{LabPlan: p, LabProgress: LabProgress{Strategy: p.Strategies[0], Index: 1}, StartedAt: l.catalog.Now()}
	l.newest.Set(run)
	l.running.Go(func() { l.compare(ctx, *run) })
	return run, model.Accepted, nil
}

// complete fills in all strategies if the plan has none, and returns what is wrong with the plan, or nil.
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

// saleNear reports whether a sale is open, or opens within labDistance. Shadow sales do not count.
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

// compare runs a comparison to its end and publishes its progress.
func (l *Lab) compare(ctx context.Context, run LabRun) {
	id, err := l.bench.Compare(ctx, run.LabPlan, func(p LabProgress) {
		run.LabProgress = p
		if p.Result != nil {
			run.Results = append(run.Results, p.Result)
		}
		now := run // a copy, because followers keep the pointers that they got
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

// end stops the run under way, unless there is none or it has already been stopped.
func (l *Lab) end(why LabStop) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stop != nil && l.why == "" {
		l.why = why
		l.stop()
	}
}

// Stop ends the comparison under way and does not wait for its end. The report has what was measured until then.
func (l *Lab) Stop() { l.end(StoppedByOperator) }

// Close ends the comparison under way and waits for its report until ctx ends. It returns an error if the comparison
// was too slow; then its results are lost.
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
