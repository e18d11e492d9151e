package service

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/model"
)

// labStep is what a fake comparison does next: it says something, or ends.
type labStep struct {
	LabProgress
	over bool
	err  error
}

// fakeLab compares as the test says.
type fakeLab struct {
	steps chan labStep
	plans []LabPlan
	slow  bool // it goes on when it is told to stop
}

func (b *fakeLab) Compare(ctx context.Context, p LabPlan, progress func(LabProgress)) (string, error) {
	b.plans = append(b.plans, p)
	done := ctx.Done()
	if b.slow {
		done = nil
	}
	for {
		select {
		case s := <-b.steps:
			if s.over {
				return "report", s.err
			}
			progress(s.LabProgress)
		case <-done:
			return "partial", context.Cause(ctx)
		}
	}
}

func (b *fakeLab) Reports() ([]LabReport, error) {
	return []LabReport{{ID: "report"}}, errors.New("one is broken")
}

func (b *fakeLab) WriteReport(w io.Writer, id string, page bool) (bool, error) {
	if page {
		_, _ = io.WriteString(w, "page of "+id)
	}
	return page, nil
}

// testLab is a lab in a bubble, over a catalog of these sales.
type testLab struct {
	*Lab
	t       *testing.T
	bench   *fakeLab
	catalog *Catalog
	sales   *fakeSales
	log     bytes.Buffer
}

func newTestLab(t *testing.T, offers ...model.Offer) *testLab {
	l := &testLab{t: t, bench: &fakeLab{steps: make(chan labStep)}, sales: newFakeSales(offers...)}
	l.catalog = NewCatalog(l.sales, time.Now)
	l.refresh()
	l.Lab = NewLab(l.bench, l.catalog, []LabStrategy{{Name: "one"}, {Name: "two"}}, slog.New(slog.NewTextHandler(&l.log, nil)))
	t.Cleanup(func() {
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return l
}

func (l *testLab) refresh() {
	l.t.Helper()
	if err := l.catalog.Refresh(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
}

// begin starts a run that may start.
func (l *testLab) begin(p LabPlan) *LabRun {
	l.t.Helper()
	run, verdict, invalid := l.Start(p)
	if verdict != model.Accepted || invalid != nil {
		l.t.Fatalf("%s, %+v", verdict, invalid)
	}
	synctest.Wait()
	return run
}

func (l *testLab) step(s labStep) {
	l.bench.steps <- s
	synctest.Wait()
}

// now is the newest run.
func (l *testLab) now() *LabRun {
	synctest.Wait()
	run, _ := l.Newest()
	return run
}

// from is a sale that opens after so long and is open for so long.
func from(in, long time.Duration) model.Offer {
	now := time.Now()
	return model.Offer{Sale: model.Sale{ID: model.NewSaleID(), Status: model.SaleLive, StartsAt: now.Add(in), EndsAt: now.Add(in + long)}}
}

var smallPlan = LabPlan{Strategies: []string{"two", "one"}, Buyers: 10, Stock: 5, Concurrency: 2}

func TestLabRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLab(t)
		if run := l.now(); run != nil {
			t.Errorf("before the first run: %+v", run)
		}
		began := l.begin(smallPlan)
		if began.Strategy != "two" || began.Index != 1 || time.Until(began.StartedAt).Abs() > time.Second || l.now() != began {
			t.Errorf("began %+v", began)
		}
		_, changed := l.Newest()
		l.step(labStep{LabProgress: LabProgress{Strategy: "two", Index: 1, Done: 4}})
		if !isClosed(changed) || l.now().Done != 4 || began.Done != 0 {
			t.Errorf("now %+v, at first %+v, told %t", l.now(), began, isClosed(changed))
		}
		l.step(labStep{LabProgress: LabProgress{Strategy: "two", Index: 1, Done: 10, Result: "of two"}})
		half := l.now()
		l.step(labStep{LabProgress: LabProgress{Strategy: "one", Index: 2, Done: 10, Result: "of one"}})
		if _, verdict, _ := l.Start(smallPlan); verdict != model.LabRunning {
			t.Errorf("a second run: %s", verdict)
		}
		l.step(labStep{over: true})
		run := l.now()
		if !slices.Equal(half.Results, []any{"of two"}) || !slices.Equal(run.Results, []any{"of two", "of one"}) {
			t.Errorf("results %v, then %v", half.Results, run.Results)
		}
		if !run.Over || run.Failed || run.Stopped != "" || run.ReportID != "report" || run.Strategy != "one" {
			t.Errorf("at last %+v", run)
		}
		l.begin(LabPlan{Buyers: 1, Stock: 1, Concurrency: 1})
		if again := l.now(); again.Over || len(again.Results) > 0 || !slices.Equal(again.Strategies, []string{"one", "two"}) {
			t.Errorf("the next run: %+v", again)
		}
	})
}

func TestLabRefusesBadPlans(t *testing.T) {
	l := newTestLab(t)
	for name, tc := range map[string]struct {
		change func(*LabPlan)
		field  string
	}{
		"an unknown strategy":   {func(p *LabPlan) { p.Strategies = []string{"one", "luck"} }, "strategies"},
		"a strategy twice":      {func(p *LabPlan) { p.Strategies = []string{"one", "one"} }, "strategies"},
		"nobody":                {func(p *LabPlan) { p.Buyers = 0 }, "buyers"},
		"too many buyers":       {func(p *LabPlan) { p.Buyers = MaxLabBuyers + 1 }, "buyers"},
		"nothing to sell":       {func(p *LabPlan) { p.Stock = -1 }, "stock"},
		"too much to sell":      {func(p *LabPlan) { p.Stock = MaxLabStock + 1 }, "stock"},
		"nobody at a time":      {func(p *LabPlan) { p.Concurrency = 0 }, "concurrency"},
		"too many at once":      {func(p *LabPlan) { p.Concurrency = MaxLabConcurrency + 1 }, "concurrency"},
		"wrong in several ways": {func(p *LabPlan) { p.Stock, p.Concurrency = 0, 0 }, "stock"},
	} {
		t.Run(name, func(t *testing.T) {
			p := smallPlan
			tc.change(&p)
			run, verdict, invalid := l.Start(p)
			if run != nil || verdict != model.BadRequest || invalid == nil || invalid.Field != tc.field {
				t.Errorf("%v, %s, %+v", run, verdict, invalid)
			}
		})
	}
	if len(l.bench.plans) > 0 {
		t.Error("something ran")
	}
}

// A comparison keeps away from sales, unless the operator says that it doesn't matter.
func TestLabKeepsAwayFromSales(t *testing.T) {
	const hour = time.Hour
	for name, tc := range map[string]struct {
		sale   func() model.Offer
		change func(*model.Offer)
		want   model.Verdict
	}{
		"open":                {func() model.Offer { return from(-hour, 2*hour) }, nil, model.SaleOpen},
		"sold out":            {func() model.Offer { return from(-hour, 2*hour) }, func(o *model.Offer) { o.Stock.Available = 0 }, model.SaleOpen},
		"about to open":       {func() model.Offer { return from(labDistance, hour) }, nil, model.SaleOpen},
		"for half a minute":   {func() model.Offer { return from(labDistance/2, labDistance/4) }, nil, model.SaleOpen},
		"about to end":        {func() model.Offer { return from(-hour, hour+time.Second) }, nil, model.SaleOpen},
		"later":               {func() model.Offer { return from(labDistance+time.Second, hour) }, nil, model.Accepted},
		"over":                {func() model.Offer { return from(-2*hour, hour) }, nil, model.Accepted},
		"paused":              {func() model.Offer { return from(-hour, 2*hour) }, func(o *model.Offer) { o.Status = model.SalePaused }, model.Accepted},
		"closed":              {func() model.Offer { return from(-hour, 2*hour) }, func(o *model.Offer) { o.Status = model.SaleClosed }, model.Accepted},
		"about to open later": {func() model.Offer { return from(2*labDistance, hour) }, nil, model.Accepted},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				offer := tc.sale()
				if tc.change != nil {
					tc.change(&offer)
				}
				l := newTestLab(t, from(-9*hour, hour), offer)
				if _, verdict, _ := l.Start(smallPlan); verdict != tc.want {
					t.Errorf("%s, want %s", verdict, tc.want)
				}
				if tc.want == model.Accepted {
					return
				}
				plan := smallPlan
				plan.WhileOpen = true
				l.begin(plan)
				l.step(labStep{LabProgress: LabProgress{Done: 1}})
				l.step(labStep{over: true})
				if run := l.now(); !run.Over || run.Stopped != "" {
					t.Errorf("%+v", run)
				}
			})
		})
	}
}

// A sale that comes near while a comparison runs ends it.
func TestLabGivesWayToASale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLab(t, from(time.Hour, time.Hour))
		l.begin(smallPlan)
		<-time.After(time.Hour - labDistance - time.Second)
		l.step(labStep{LabProgress: LabProgress{Done: 1}})
		if run := l.now(); run.Over {
			t.Errorf("ended early: %+v", run)
		}
		<-time.After(time.Second)
		l.step(labStep{LabProgress: LabProgress{Done: 2}})
		if run := l.now(); !run.Over || run.Stopped != StoppedBySale || run.Failed || run.ReportID != "partial" {
			t.Errorf("%+v", run)
		}
	})
}

func TestLabStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLab(t)
		l.Stop() // nothing runs
		for range 2 {
			l.begin(smallPlan)
			l.Stop()
			l.Stop()
			if run := l.now(); !run.Over || run.Stopped != StoppedByOperator || run.Failed || run.ReportID != "partial" {
				t.Errorf("%+v", run)
			}
		}
		if l.log.Len() > 0 {
			t.Errorf("logged %s", &l.log)
		}
		l.begin(smallPlan)
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if run := l.now(); !run.Over || run.Stopped != StoppedByServer {
			t.Errorf("%+v", run)
		}
		if _, verdict, _ := l.Start(smallPlan); verdict != model.Unavailable {
			t.Errorf("after the end: %s", verdict)
		}
	})
}

// Whoever closes the lab waits for it as long as he can.
func TestLabThatDoesNotStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLab(t)
		l.bench.slow = true
		l.begin(smallPlan)
		l.Stop()
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := l.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 3*time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		l.step(labStep{over: true})
		if run := l.now(); run.Stopped != StoppedByOperator { // who was first
			t.Errorf("%+v", run)
		}
	})
}

// What breaks is said to be broken, and why stands in the log alone.
func TestLabFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLab(t)
		l.begin(smallPlan)
		l.step(labStep{over: true, err: errAway})
		if run := l.now(); !run.Over || !run.Failed || run.Stopped != "" || run.ReportID != "report" {
			t.Errorf("%+v", run)
		}
		if !strings.Contains(l.log.String(), errAway.Error()) {
			t.Errorf("logged %q", &l.log)
		}
	})
}

func TestLabReports(t *testing.T) {
	l := newTestLab(t)
	if list := l.Reports(); len(list) != 1 || !strings.Contains(l.log.String(), "one is broken") {
		t.Errorf("%v, logged %q", list, &l.log)
	}
	var page bytes.Buffer
	if ok, err := l.WriteReport(&page, "x", true); !ok || err != nil || page.String() != "page of x" {
		t.Errorf("%q, %t, %v", &page, ok, err)
	}
	if ok, err := l.WriteReport(&page, "x", false); ok || err != nil {
		t.Errorf("%t, %v", ok, err)
	}
	if len(l.Strategies()) != 2 {
		t.Errorf("%v", l.Strategies())
	}
}
