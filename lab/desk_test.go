package lab

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/model"
)

// step is the next step of a comparison: it reports progress, or ends.
type step struct {
	Progress
	over bool
	err  error
}

// sales is a catalog under the clock of the test.
type sales []model.Offer

func (s sales) Live() ([]model.Offer, <-chan struct{}) { return s, nil }

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
	t.Cleanup(func() {
		if err := d.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
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

func same[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %+v, want %+v", what, got, want)
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
	same(d.t, what, State{Over: now.Over, Failed: now.Failed, Stopped: now.Stopped}, want)
	if _, found, err := d.Report(now.ReportID); err != nil || found != want.Over {
		d.t.Errorf("%s: a report: %t, %v", what, found, err)
	}
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
		if state := d.now(); state != nil {
			t.Errorf("before the first comparison: %+v", state)
		}
		first := d.begin(smallPlan, false)
		if first.Strategy != "two" || first.Index != 1 || time.Until(first.StartedAt).Abs() > time.Second || d.now() != first {
			t.Errorf("the comparison starts as %+v", first)
		}
		_, changed := d.Newest()
		d.progress("two", 1, 4, nil)
		select {
		case <-changed:
		default:
			t.Error("the progress is not announced")
		}
		if d.now().Done != 4 || first.Done != 0 {
			t.Errorf("the progress is %+v, at first %+v", d.now(), first)
		}
		two, one := &Result{Strategy: "two"}, &Result{Strategy: "one"}
		d.progress("two", 1, 10, two)
		half := d.now()
		d.progress("one", 2, 10, one)
		_, verdict, _ := d.Start(smallPlan, false)
		same(t, "a second comparison", verdict, model.LabRunning)
		d.next(step{over: true})
		same(t, "results after the first strategy", half.Results, []*Result{two})
		same(t, "results at the end", d.now().Results, []*Result{two, one})
		same(t, "last strategy", d.now().Strategy, "one")
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
	same(t, "comparisons", len(d.plans), 0)
}

// A comparison does not run near an open sale, unless the operator allows that.
func TestDeskKeepsAwayFromSales(t *testing.T) {
	const hour = time.Hour
	for name, tc := range map[string]struct {
		in, duration time.Duration
		status       model.SaleStatus
		want         model.Verdict
	}{
		"open":              {-hour, 2 * hour, model.SaleLive, model.SaleOpen},
		"about to open":     {saleDistance, hour, model.SaleLive, model.SaleOpen},
		"for half a minute": {saleDistance / 2, saleDistance / 4, model.SaleLive, model.SaleOpen},
		"about to end":      {-hour, hour + time.Second, model.SaleLive, model.SaleOpen},
		"later":             {saleDistance + time.Second, hour, model.SaleLive, model.Accepted},
		"much later":        {2 * saleDistance, hour, model.SaleLive, model.Accepted},
		"over":              {-2 * hour, hour, model.SaleLive, model.Accepted},
		"paused":            {-hour, 2 * hour, model.SalePaused, model.Accepted},
		"closed":            {-hour, 2 * hour, model.SaleClosed, model.Accepted},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				offer := from(tc.in, tc.duration) // without units: a sale that is sold out counts as well
				offer.Status = tc.status
				d := newTestDesk(t, from(-9*hour, hour), offer)
				_, verdict, _ := d.Start(smallPlan, false)
				same(t, "verdict", verdict, tc.want)
				if tc.want == model.Accepted {
					return
				}
				d.begin(smallPlan, true)
				d.progress("one", 1, 1, nil)
				d.next(step{over: true})
				d.ended("a comparison that is allowed", State{Over: true})
			})
		})
	}
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
		same(t, "the log", d.log.String(), "")
		d.begin(smallPlan, false)
		if err := d.Close(t.Context()); err != nil {
			t.Error(err)
		}
		d.ended("stopped by the server", State{Over: true, Stopped: StoppedByServer})
		_, verdict, _ := d.Start(smallPlan, false)
		same(t, "a start after the close", verdict, model.Unavailable)
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
		if err := d.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("close: %v", err)
		}
		same(t, "duration of the close", time.Since(start), 3*time.Second)
		d.next(step{over: true})
		same(t, "the first reason to stop counts", d.now().Stopped, StoppedByOperator)
	})
}

// The cause of a failure is in the log only.
func TestDeskFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTestDesk(t)
		d.begin(smallPlan, false)
		d.next(step{over: true, err: errBroken})
		d.ended("the end", State{Over: true, Failed: true})
		same(t, "the cause is in the log", strings.Contains(d.log.String(), errBroken.Error()), true)
	})
}

// Without a folder for the report, no comparison runs.
func TestDeskWithoutAFolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTestDesk(t)
		if err := os.RemoveAll(d.folder); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(d.folder, nil, 0o600); err != nil {
			t.Fatal(err)
		}
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
	writeFile(t, filepath.Join(d.folder, strings.Repeat("A", reportIDLength)+reportEnd), "{", time.Now())
	if list := d.Reports(); len(list) != 1 || list[0].ID != id || !strings.Contains(d.log.String(), "reports of the lab can't be read") {
		t.Errorf("%v, logged %q", list, &d.log)
	}
	same(t, "strategies", len(d.Strategies()), 2)
}
