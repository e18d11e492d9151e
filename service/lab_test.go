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

// labStep is the next step of a fake comparison: it reports progress, or ends.
type labStep struct {
	LabProgress
	over bool
	err  error
}

// fakeLab compares in steps of the test.
type fakeLab struct {
	steps chan labStep
	plans []LabPlan
	slow  bool // it ignores a stop
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

// testLab is a lab over a catalog of sales, under a fake clock.
type testLab struct {
	*Lab
	t     *testing.T
	bench *fakeLab
	log   bytes.Buffer
}

func newTestLab(t *testing.T, offers ...model.Offer) *testLab {
	l := &testLab{t: t, bench: &fakeLab{steps: make(chan labStep)}}
	strategies := []LabStrategy{{Name: "one"}, {Name: "two"}}
	l.Lab = NewLab(l.bench, refreshed(t, newFakeStores(offers...)), strategies, slog.New(slog.NewTextHandler(&l.log, nil)))
	t.Cleanup(func() { done(l.Close(context.Background())) })
	return l
}

// begin starts a run, which must be accepted.
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

func (l *testLab) progress(strategy string, index, done int, result any) {
	l.step(labStep{LabProgress: LabProgress{Strategy: strategy, Index: index, Done: done, Result: result}})
}

// now returns the newest run.
func (l *testLab) now() *LabRun {
	synctest.Wait()
	run, _ := l.Newest()
	return run
}

// ended compares how the newest run ended.
func (l *testLab) ended(what string, want LabRun) {
	l.t.Helper()
	run := l.now()
	got := LabRun{Over: run.Over, Failed: run.Failed, Stopped: run.Stopped, ReportID: run.ReportID}
	same(l.t, what, got, want)
}

// from returns a sale that opens after in and is open for a duration.
func from(in, duration time.Duration) model.Offer {
	start := time.Now().Add(in)
	return model.Offer{Sale: model.Sale{ID: model.NewSaleID(), Status: model.SaleLive, StartsAt: start, EndsAt: start.Add(duration)}}
}

var smallPlan = LabPlan{Strategies: []string{"two", "one"}, Buyers: 10, Stock: 5, Concurrency: 2}

func TestLabRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLab(t)
		if run := l.now(); run != nil {
			t.Errorf("before the first run: %+v", run)
		}
		first := l.begin(smallPlan)
		if first.Strategy != "two" || first.Index != 1 || time.Until(first.StartedAt).Abs() > time.Second || l.now() != first {
			t.Errorf("the run starts as %+v", first)
		}
		_, changed := l.Newest()
		l.progress("two", 1, 4, nil)
		if !isClosed(changed) || l.now().Done != 4 || first.Done != 0 {
			t.Errorf("the progress is %+v, at first %+v, announced: %t", l.now(), first, isClosed(changed))
		}
		l.progress("two", 1, 10, "of two")
		half := l.now()
		l.progress("one", 2, 10, "of one")
		_, verdict, _ := l.Start(smallPlan)
		same(t, "a second run", verdict, model.LabRunning)
		l.step(labStep{over: true})
		same(t, "results after the first strategy", half.Results, []any{"of two"})
		same(t, "results at the end", l.now().Results, []any{"of two", "of one"})
		same(t, "last strategy", l.now().Strategy, "one")
		l.ended("the end", LabRun{Over: true, ReportID: "report"})
		l.begin(LabPlan{Buyers: 1, Stock: 1, Concurrency: 1})
		if again := l.now(); again.Over || len(again.Results) > 0 || !slices.Equal(again.Strategies, []string{"one", "two"}) {
			t.Errorf("the next run starts as %+v", again)
		}
	})
}

func TestLabRefusesBadPlans(t *testing.T) {
	l := newTestLab(t)
	type test struct {
		change func(*LabPlan)
		field  string
	}
	each(t, map[string]test{
		"an unknown strategy": {func(p *LabPlan) { p.Strategies = []string{"one", "luck"} }, "strategies"},
		"a strategy twice":    {func(p *LabPlan) { p.Strategies = []string{"one", "one"} }, "strategies"},
		"no buyers":           {func(p *LabPlan) { p.Buyers = 0 }, "buyers"},
		"too many buyers":     {func(p *LabPlan) { p.Buyers = MaxLabBuyers + 1 }, "buyers"},
		"negative stock":      {func(p *LabPlan) { p.Stock = -1 }, "stock"},
		"too much stock":      {func(p *LabPlan) { p.Stock = MaxLabStock + 1 }, "stock"},
		"no concurrency":      {func(p *LabPlan) { p.Concurrency = 0 }, "concurrency"},
		"too much at once":    {func(p *LabPlan) { p.Concurrency = MaxLabConcurrency + 1 }, "concurrency"},
		"two wrong fields":    {func(p *LabPlan) { p.Stock, p.Concurrency = 0, 0 }, "stock"},
	}, func(t *testing.T, tc test) {
		p := smallPlan
		tc.change(&p)
		run, verdict, invalid := l.Start(p)
		if run != nil || verdict != model.BadRequest || invalid == nil || invalid.Field != tc.field {
			t.Errorf("%v, %s, %+v", run, verdict, invalid)
		}
	})
	same(t, "runs", len(l.bench.plans), 0)
}

// A comparison does not run near an open sale, unless the operator allows that.
func TestLabKeepsAwayFromSales(t *testing.T) {
	const hour = time.Hour
	type test struct {
		in, duration time.Duration
		status       model.SaleStatus
		want         model.Verdict
	}
	eachInBubble(t, map[string]test{
		"open":              {-hour, 2 * hour, model.SaleLive, model.SaleOpen},
		"about to open":     {labDistance, hour, model.SaleLive, model.SaleOpen},
		"for half a minute": {labDistance / 2, labDistance / 4, model.SaleLive, model.SaleOpen},
		"about to end":      {-hour, hour + time.Second, model.SaleLive, model.SaleOpen},
		"later":             {labDistance + time.Second, hour, model.SaleLive, model.Accepted},
		"much later":        {2 * labDistance, hour, model.SaleLive, model.Accepted},
		"over":              {-2 * hour, hour, model.SaleLive, model.Accepted},
		"paused":            {-hour, 2 * hour, model.SalePaused, model.Accepted},
		"closed":            {-hour, 2 * hour, model.SaleClosed, model.Accepted},
	}, func(t *testing.T, tc test) {
		offer := from(tc.in, tc.duration) // without units: a sale that is sold out counts as well
		offer.Status = tc.status
		l := newTestLab(t, from(-9*hour, hour), offer)
		_, verdict, _ := l.Start(smallPlan)
		same(t, "verdict", verdict, tc.want)
		if tc.want == model.Accepted {
			return
		}
		plan := smallPlan
		plan.WhileOpen = true
		l.begin(plan)
		l.progress("one", 1, 1, nil)
		l.step(labStep{over: true})
		l.ended("a run that is allowed", LabRun{Over: true, ReportID: "report"})
	})
}

func TestLabGivesWayToASale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLab(t, from(time.Hour, time.Hour))
		l.begin(smallPlan)
		time.Sleep(time.Hour - labDistance - time.Second)
		l.progress("two", 1, 1, nil)
		l.ended("a second too early", LabRun{})
		time.Sleep(time.Second)
		l.progress("two", 1, 2, nil)
		l.ended("near the sale", LabRun{Over: true, Stopped: StoppedBySale, ReportID: "partial"})
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
			l.ended("stopped by the operator", LabRun{Over: true, Stopped: StoppedByOperator, ReportID: "partial"})
		}
		same(t, "the log", l.log.String(), "")
		l.begin(smallPlan)
		done(l.Close(t.Context()))
		l.ended("stopped by the server", LabRun{Over: true, Stopped: StoppedByServer, ReportID: "partial"})
		_, verdict, _ := l.Start(smallPlan)
		same(t, "a start after the close", verdict, model.Unavailable)
	})
}

// Close waits for a run until its context ends.
func TestLabThatDoesNotStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLab(t)
		l.bench.slow = true
		l.begin(smallPlan)
		l.Stop()
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		failed(t, "close", l.Close(ctx), context.DeadlineExceeded)
		same(t, "duration of the close", time.Since(start), 3*time.Second)
		l.step(labStep{over: true})
		same(t, "the first reason to stop counts", l.now().Stopped, StoppedByOperator)
	})
}

// The cause of a failure is in the log only.
func TestLabFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLab(t)
		l.begin(smallPlan)
		l.step(labStep{over: true, err: errAway})
		l.ended("the end", LabRun{Over: true, Failed: true, ReportID: "report"})
		same(t, "the cause is in the log", strings.Contains(l.log.String(), errAway.Error()), true)
	})
}

func TestLabReports(t *testing.T) {
	l := newTestLab(t)
	if list := l.Reports(); len(list) != 1 || !strings.Contains(l.log.String(), "one is broken") {
		t.Errorf("%v, logged %q", list, &l.log)
	}
	var page bytes.Buffer
	same(t, "the page exists", must(l.WriteReport(&page, "x", true)), true)
	same(t, "the page", page.String(), "page of x")
	same(t, "the data exist", must(l.WriteReport(&page, "x", false)), false)
	same(t, "strategies", len(l.Strategies()), 2)
}
