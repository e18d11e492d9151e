package lab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"flashsale/model"
	"flashsale/service"
)

// Bounds of a comparison that runs beside a shop.
const (
	MaxBuyers      = 100_000
	MaxStock       = 100_000
	MaxConcurrency = 1_000
)

// saleDistance is how near the start of a sale must be to prevent a comparison.
const saleDistance = time.Minute

// Strategy is a strategy that can be compared.
type Strategy struct {
	Name string `json:"name"`
	model.Lesson
}

// Runner runs a comparison. After an error or the end of ctx, the report is partial or nil.
type Runner func(ctx context.Context, p model.LabPlan, progress func(Progress)) (*Report, error)

// Catalog knows the sales, which a comparison must not disturb.
type Catalog interface {
	Live() []model.Offer
	Now() time.Time
}

// Stop is the reason why a comparison was stopped.
type Stop string

// The reasons for a stop.
const (
	StoppedByOperator Stop = "operator"
	StoppedBySale     Stop = "sale_open" // see Desk.saleNear
	StoppedByServer   Stop = "server"    // the server was stopped
)

// State is the state of a comparison at one instant.
type State struct {
	model.LabPlan
	Progress            // of the strategy under way, or the last one
	StartedAt time.Time `json:"-"`
	Results   []*Result `json:"results"`
	Over      bool      `json:"-"`
	Stopped   Stop      `json:"-"` // empty: not stopped
	Failed    bool      `json:"-"` // the log has the error
	ReportID  string    `json:"-"` // empty: no report is stored
}

// Desk lets operators compare the strategies, and keeps the reports. It runs one comparison at a time.
type Desk struct {
	run        Runner
	shelf      *Shelf
	catalog    Catalog
	strategies []Strategy
	log        *slog.Logger
	newest     *service.Newest[*State] // has nil before the first comparison

	mu      sync.Mutex
	stop    context.CancelFunc // stops the comparison under way; nil if there is none
	why     Stop               // why the comparison was stopped; empty: not stopped
	closed  bool
	running sync.WaitGroup
}

// NewDesk creates a Desk for these strategies. The caller must call Close at the end.
func NewDesk(run Runner, shelf *Shelf, catalog Catalog, strategies []Strategy, log *slog.Logger) *Desk {
	return &Desk{run: run, shelf: shelf, catalog: catalog, strategies: strategies, log: log, newest: service.NewNewest[*State](nil)}
}

// Strategies lists the strategies that can be compared.
func (d *Desk) Strategies() []Strategy { return d.strategies }

// Reports lists the reports, the newest first. It leaves out reports that can't be read, and logs the error.
func (d *Desk) Reports() []Shelved {
	list, err := d.shelf.List()
	if err != nil {
		d.log.Warn("reports of the lab can't be read", "error", err)
	}
	return list
}

// Report returns the report with an id. If there is none, ok is false and err is nil; if it can't be read, err says why.
func (d *Desk) Report(id string) (r *Report, ok bool, err error) { return d.shelf.Find(id) }

// Newest returns the state of the comparison under way, else of the last one, else nil. "changed" closes at the next state.
func (d *Desk) Newest() (state *State, changed <-chan struct{}) { return d.newest.Get() }

// Start begins a comparison and returns its first state. The verdict is Accepted; BadRequest, with the invalid field; Unavailable
// after Close; LabRunning, if a comparison is under way; or SaleOpen, if whileOpen is false and a sale is near, see saleNear.
func (d *Desk) Start(p model.LabPlan, whileOpen bool) (state *State, verdict model.Verdict, invalid *service.Invalid) {
	if invalid := d.complete(&p); invalid != nil {
		return nil, model.BadRequest, invalid
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return nil, model.Unavailable, nil
	case d.stop != nil:
		return nil, model.LabRunning, nil
	case !whileOpen && d.saleNear():
		return nil, model.SaleOpen, nil
	}
	ctx, stop := context.WithCancel(context.Background()) // the comparison outlives the request
	d.stop, d.why = stop, ""
	first := Progress{Strategy: p.Strategies[0], Index: 1, Of: len(p.Strategies)}
	state = &State{LabPlan: p, Progress: first, StartedAt: d.catalog.Now(), Results: []*Result{}}
	d.newest.Set(state)
	d.running.Go(func() { d.compare(ctx, *state, whileOpen) })
	return state, model.Accepted, nil
}

// complete fills in all strategies if the plan has none, and returns the first invalid field, or nil.
func (d *Desk) complete(p *model.LabPlan) *service.Invalid {
	names := make([]string, len(d.strategies))
	for i, s := range d.strategies {
		names[i] = s.Name
	}
	if len(p.Strategies) == 0 {
		p.Strategies = names
	}
	for i, name := range p.Strategies {
		if !slices.Contains(names, name) || slices.Contains(p.Strategies[:i], name) {
			return &service.Invalid{Field: "strategies", Reason: "not_a_choice", Value: strings.Join(names, ", ")}
		}
	}
	for _, n := range []struct {
		field       string
		value, most int
	}{{"buyers", p.Buyers, MaxBuyers}, {"stock", p.Stock, MaxStock}, {"concurrency", p.Concurrency, MaxConcurrency}} {
		if invalid := service.Outside(n.field, int64(n.value), 1, int64(n.most)); invalid != nil {
			return invalid
		}
	}
	return nil
}

// saleNear reports whether a sale is in its window or will be within saleDistance, and is neither paused nor closed.
// Shadow sales do not count.
func (d *Desk) saleNear() bool {
	now := d.catalog.Now()
	return slices.ContainsFunc(d.catalog.Live(), func(o model.Offer) bool {
		next := now
		if o.StartsAt.After(now) {
			next = o.StartsAt
		}
		return next.Sub(now) <= saleDistance && o.Judge(next) == model.Accepted
	})
}

// compare runs a comparison, publishes its progress, and stores a report that has results.
func (d *Desk) compare(ctx context.Context, state State, whileOpen bool) {
	var report *Report
	err := d.shelf.Ready()
	if err == nil {
		report, err = d.run(ctx, state.LabPlan, func(p Progress) {
			state.Progress = p
			if p.Result != nil {
				state.Results = append(state.Results, p.Result)
			}
			now := state // a copy, because followers keep the pointers that they got
			d.newest.Set(&now)
			if !whileOpen && d.saleNear() {
				d.end(StoppedBySale)
			}
		})
	}
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		err = nil
	}
	if report != nil && len(report.Strategies) > 0 {
		var saveErr error
		state.ReportID, saveErr = d.shelf.Save(report)
		err = errors.Join(err, saveErr)
	}
	if err != nil {
		d.log.Error("the lab's comparison failed", "error", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stop()
	d.stop = nil
	state.Over, state.Stopped, state.Failed = true, d.why, err != nil
	d.newest.Set(&state)
}

// end stops the comparison under way, unless there is none or it has already been stopped.
func (d *Desk) end(why Stop) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stop != nil && d.why == "" {
		d.why = why
		d.stop()
	}
}

// Stop stops the comparison under way, without waiting for its end.
func (d *Desk) Stop() { d.end(StoppedByOperator) }

// Close stops the comparison under way and waits for its end. It returns an error if ctx ends first.
func (d *Desk) Close(ctx context.Context) error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.end(StoppedByServer)
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.running.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the lab has not ended: %w", ctx.Err())
	}
}
