package lab

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// step is the next step of a comparison: it reports progress, or ends.
type step struct {
	Progress
	over bool
	err  error
}

// sales is a catalog under the clock of the test.
type sales []model.Offer

func (s sales) Live() []model.Offer { return s }

func (sales) Now() time.Time { return time.Now() }

// testDesk is a desk whose comparisons go on in steps of the test.
type testDesk struct {
	*Desk
	t      *testing.T
	folder string // of the reports
	steps  chan step
	plans  []model.LabPlan
	slow   bool // comparisons ignore a stop
	log    bytes.Buffer
}

func newTestDesk(t *testing.T, offers ...model.Offer) *testDesk {
	d := &testDesk{t: t, folder: t.TempDir(), steps: make(chan step)}
	d.Desk = NewDesk(d.run, NewShelf(d.folder), sales(offers), []Strategy{{Name: "one"}, {Name: "two"}}, slog.New(slog.NewTextHandler(&d.log, nil)))
	t.Cleanup(func() { check.Done(d.Close(context.Background())) })
	return d
}

func (d *testDesk) run(ctx context.Context, p model.LabPlan, progress func(Progress)) (*Report, error) {
	d.plans = append(d.plans, p)
	done := ctx.Done()
	if d.slow {
		done = nil
	}
	report := &Report{Stock: p.Stock, Strategies: []*Result{{Strategy: "one"}}}
	for {
		select {
		case s := <-d.steps:
			if s.over {
				return report, s.err
			}
			progress(s.Progress)
		case <-done:
			report.Interrupted = true
			return report, context.Cause(ctx)
		}
	}
}

// begin starts a comparison, which must be accepted.
func (d *testDesk) begin(p model.LabPlan, whileOpen bool) *State {
	d.t.Helper()
	state, verdict, invalid := d.Start(p, whileOpen)
	if verdict != model.Accepted || invalid != nil {
		d.t.Fatalf("%s, %+v", verdict, invalid)
	}
	synctest.Wait()
	return state
}

func (d *testDesk) next(s step) {
	d.steps <- s
	synctest.Wait()
}

func (d *testDesk) progress(strategy string, index, done int, result *Result) {
	d.next(step{Progress: Progress{Strategy: strategy, Index: index, Done: done, Result: result}})
}

// now returns the newest state.
func (d *testDesk) now() *State {
	synctest.Wait()
	state, _ := d.Newest()
	return state
}

// ended compares how the newest comparison ended, and checks that its report is kept.
func (d *testDesk) ended(what string, want State) {
	d.t.Helper()
	now := d.now()
	check.Same(d.t, what, State{Over: now.Over, Failed: now.Failed, Stopped: now.Stopped}, want)
	_, found, err := d.Report(now.ReportID)
	check.Error(d.t, what+": report", err, nil)
	check.Same(d.t, what+": a report is kept", found, want.Over)
}

// from returns a sale that opens after in and is open for a duration.
func from(in, duration time.Duration) model.Offer {
	start := time.Now().Add(in)
	return model.Offer{Sale: model.Sale{ID: model.NewSaleID(), Status: model.SaleLive, StartsAt: start, EndsAt: start.Add(duration)}}
}

var smallPlan = model.LabPlan{Strategies: []string{"two", "one"}, Buyers: 10, Stock: 5, Concurrency: 2}

func TestDeskRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTestDesk(t)
		check.Same(t, "before the first comparison", d.now(), nil)
		first := d.begin(smallPlan, false)
		if first.Strategy != "two" || first.Index != 1 || time.Until(first.StartedAt).Abs() > time.Second || d.now() != first {
			t.Errorf("the comparison starts as %+v", first)
		}
		_, changed := d.Newest()
		d.progress("two", 1, 4, nil)
		<-changed // the progress is announced; otherwise the bubble reports a deadlock
		check.Same(t, "done now and in the first state", []int{d.now().Done, first.Done}, []int{4, 0})
		two, one := &Result{Strategy: "two"}, &Result{Strategy: "one"}
		d.progress("two", 1, 10, two)
		half := d.now()
		d.progress("one", 2, 10, one)
		_, verdict, _ := d.Start(smallPlan, false)
		check.Same(t, "a second comparison", verdict, model.LabRunning)
		d.next(step{over: true})
		check.Same(t, "results after the first strategy", half.Results, []*Result{two})
		check.Same(t, "results at the end", d.now().Results, []*Result{two, one})
		check.Same(t, "last strategy", d.now().Strategy, "one")
		d.ended("the end", State{Over: true})
		d.begin(model.LabPlan{Buyers: 1, Stock: 1, Concurrency: 1}, false)
		if again := d.now(); again.Over || len(again.Results) > 0 || !slices.Equal(again.Strategies, []string{"one", "two"}) {
			t.Errorf("the next comparison starts as %+v", again)
		}
	})
}

func TestDeskRefusesBadPlans(t *testing.T) {
	d := newTestDesk(t)
	for name, tc := range map[string]struct {
		change func(*model.LabPlan)
		field  string
	}{
		"an unknown strategy": {func(p *model.LabPlan) { p.Strategies = []string{"one", "luck"} }, "strategies"},
		"a strategy twice":    {func(p *model.LabPlan) { p.Strategies = []string{"one", "one"} }, "strategies"},
		"no buyers":           {func(p *model.LabPlan) { p.Buyers = 0 }, "buyers"},
		"too many buyers":     {func(p *model.LabPlan) { p.Buyers = MaxBuyers + 1 }, "buyers"},
		"negative stock":      {func(p *model.LabPlan) { p.Stock = -1 }, "stock"},
		"too much stock":      {func(p *model.LabPlan) { p.Stock = MaxStock + 1 }, "stock"},
		"no concurrency":      {func(p *model.LabPlan) { p.Concurrency = 0 }, "concurrency"},
		"too much at once":    {func(p *model.LabPlan) { p.Concurrency = MaxConcurrency + 1 }, "concurrency"},
		"two wrong fields":    {func(p *model.LabPlan) { p.Stock, p.Concurrency = 0, 0 }, "stock"},
	} {
		p := smallPlan
		tc.change(&p)
		state, verdict, invalid := d.Start(p, false)
		if state != nil || verdict != model.BadRequest || invalid == nil || invalid.Field != tc.field {
			t.Errorf("%s: %v, %s, %+v", name, state, verdict, invalid)
		}
	}
	check.Same(t, "comparisons", len(d.plans), 0)
}

// A comparison does not run near an open sale, unless the operator allows that.
func TestDeskKeepsAwayFromSales(t *testing.T) {
	const hour = time.Hour
	type test struct {
		in, duration time.Duration
		status       model.SaleStatus
		want         model.Verdict
	}
	check.EachInBubble(t, map[string]test{
		"open":              {-hour, 2 * hour, model.SaleLive, model.SaleOpen},
		"about to open":     {saleDistance, hour, model.SaleLive, model.SaleOpen},
		"for half a minute": {saleDistance / 2, saleDistance / 4, model.SaleLive, model.SaleOpen},
		"about to end":      {-hour, hour + time.Second, model.SaleLive, model.SaleOpen},
		"later":             {saleDistance + time.Second, hour, model.SaleLive, model.Accepted},
		"much later":        {2 * saleDistance, hour, model.SaleLive, model.Accepted},
		"over":              {-2 * hour, hour, model.SaleLive, model.Accepted},
		"paused":            {-hour, 2 * hour, model.SalePaused, model.Accepted},
		"closed":            {-hour, 2 * hour, model.SaleClosed, model.Accepted},
	}, func(t *testing.T, tc test) {
		offer := from(tc.in, tc.duration) // no units are left: a sale that is sold out is protected as well
		offer.Status = tc.status
		d := newTestDesk(t, from(-9*hour, hour), offer)
		_, verdict, _ := d.Start(smallPlan, false)
		check.Same(t, "verdict", verdict, tc.want)
		if tc.want == model.Accepted {
			return
		}
		d.begin(smallPlan, true)
		d.progress("one", 1, 1, nil)
		d.next(step{over: true})
		d.ended("a comparison that is allowed", State{Over: true})
	})
}

func TestDeskGivesWayToASale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTestDesk(t, from(time.Hour, time.Hour))
		d.begin(smallPlan, false)
		time.Sleep(time.Hour - saleDistance - time.Second)
		d.progress("two", 1, 1, nil)
		d.ended("a second too early", State{})
		time.Sleep(time.Second)
		d.progress("two", 1, 2, nil)
		d.ended("near the sale", State{Over: true, Stopped: StoppedBySale})
	})
}

func TestDeskStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTestDesk(t)
		d.Stop() // nothing runs
		for range 2 {
			d.begin(smallPlan, false)
			d.Stop()
			d.Stop()
			d.ended("stopped by the operator", State{Over: true, Stopped: StoppedByOperator})
		}
		check.Same(t, "the log", d.log.String(), "")
		d.begin(smallPlan, false)
		check.Done(d.Close(t.Context()))
		d.ended("stopped by the server", State{Over: true, Stopped: StoppedByServer})
		_, verdict, _ := d.Start(smallPlan, false)
		check.Same(t, "a start after the close", verdict, model.Unavailable)
	})
}

// Close waits for a comparison until its context ends.
func TestDeskThatDoesNotStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTestDesk(t)
		d.slow = true
		d.begin(smallPlan, false)
		d.Stop()
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		check.Error(t, "close", d.Close(ctx), context.DeadlineExceeded)
		check.Same(t, "duration of the close", time.Since(start), 3*time.Second)
		d.next(step{over: true})
		check.Same(t, "the first reason to stop counts", d.now().Stopped, StoppedByOperator)
	})
}

// The cause of a failure is in the log only.
func TestDeskFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTestDesk(t)
		d.begin(smallPlan, false)
		d.next(step{over: true, err: errBroken})
		d.ended("the end", State{Over: true, Failed: true})
		check.Same(t, "the cause is in the log", strings.Contains(d.log.String(), errBroken.Error()), true)
	})
}

// Without a folder for the report, no comparison runs.
func TestDeskWithoutAFolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTestDesk(t)
		check.Done(errors.Join(os.RemoveAll(d.folder), os.WriteFile(d.folder, nil, 0o600)))
		d.begin(smallPlan, false)
		if now := d.now(); !now.Over || !now.Failed || now.ReportID != "" || len(d.plans) > 0 {
			t.Errorf("%+v after %d comparisons", now, len(d.plans))
		}
	})
}

// Reports that can't be read are left out of the list, and logged.
func TestDeskReports(t *testing.T) {
	d := newTestDesk(t)
	id := save(t, NewShelf(d.folder), &Report{Stock: 1})
	writeFile(filepath.Join(d.folder, strings.Repeat("A", reportIDLength)+reportEnd), "{", time.Now())
	if list := d.Reports(); len(list) != 1 || list[0].ID != id || !strings.Contains(d.log.String(), "reports of the lab can't be read") {
		t.Errorf("%v, logged %q", list, &d.log)
	}
	check.Same(t, "strategies", len(d.Strategies()), 2)
}
