package metrics

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"flashsale/internal/observe"
	"flashsale/model"
	"flashsale/test/kit/check"
)

var noon = time.Date(2026, 11, 11, 12, 0, 0, 0, time.UTC)

// sale opens so many minutes after noon, for an hour.
func sale(id string, minutes int) model.Offer {
	start := noon.Add(time.Duration(minutes) * time.Minute)
	return model.Offer{
		Sale:  model.Sale{ID: id, StartsAt: start, EndsAt: start.Add(time.Hour)},
		Stock: model.Stock{Quota: 10, Available: 5, Held: 3, Paid: 2},
	}
}

// sources are those of some sales, whose gates all have one state.
func sources(state model.GateState, sales ...model.Offer) Sources {
	return Sources{
		Build: func() (string, string) { return "v1", "hybrid" },
		Sales: func() []model.Offer { return sales },
		Lines: func() []model.Offer { return slices.Clone(sales) },
		Requests: func() map[string]map[model.Verdict]int64 {
			return map[string]map[model.Verdict]int64{"A": {model.SoldOut: 7}, "unwatched": {model.SoldOut: 1}}
		},
		Peek: func(_ context.Context, gates ...model.GateRef) ([]model.GateState, error) {
			states := make([]model.GateState, len(gates))
			for i := range states {
				states[i] = state
			}
			return states, nil
		},
		QueueAge: func(context.Context, ...model.GateRef) (time.Duration, error) { return 1500 * time.Millisecond, nil },
		Breaker:  func() bool { return true },
		Streams:  func() int { return 3 },
		Bypassed: func() int64 { return 9 },
	}
}

var openGate = model.GateState{Exists: true, Open: true, Epoch: 4, Left: 5, Inflight: 1, Stream: 2}

func TestSources(t *testing.T) {
	m := at(noon)
	m.Watch(sources(openGate, sale("A", 0)))
	m.Note(observe.Event{Name: observe.Drifted, Label: "A", N: -2})
	m.Note(observe.Event{Name: observe.Audited})
	m.now = noon.Add(-2 * time.Second)
	m.Note(observe.Event{Name: observe.NothingOverdue})
	m.now = noon
	m.has(t,
		`flashsale_sales 1`,
		`flashsale_sale_units{sale="A",state="available"} 5`,
		`flashsale_sale_units{sale="A",state="held"} 3`,
		`flashsale_sale_units{sale="A",state="paid"} 2`,
		`flashsale_sale_requests_total{sale="A",verdict="sold_out"} 7`,
		`flashsale_event_streams 3`,
		`flashsale_queue_bypassed_entries_total 9`,
		`flashsale_gate_breaker_closed 1`,
		`flashsale_gate_reachable 1`,
		`flashsale_gate_open{sale="A"} 1`,
		`flashsale_gate_epoch{sale="A"} 4`,
		`flashsale_gate_left_units{sale="A"} 5`,
		`flashsale_gate_inflight_units{sale="A"} 1`,
		`flashsale_gate_stream_entries{sale="A"} 2`,
		`flashsale_queue_age_seconds 1.5`,
		`flashsale_gate_drift_units{sale="A"} -2`,
		`flashsale_auditor_last_look_timestamp_seconds 1.7943984e+09`,
		`flashsale_expiry_lag_seconds 2`,
	)
	page := m.page(t)
	if !regexp.MustCompile(`flashsale_build_info\{go_version="go1[^"]+",strategy="hybrid",version="v1"\} 1\n`).MatchString(page) {
		t.Error("no line of the build")
	}
	check.Same(t, "a sale that isn't watched has figures", strings.Contains(page, "unwatched"), false)
}

// A sale in line has figures of its line. Units are idle only while a caller should call.
func TestLineFigures(t *testing.T) {
	calling := sale("A", 0)
	calling.Stock.Lined, calling.Stock.Reserved, calling.Stock.Called = model.InLine, 3, 2
	calling.Stock.SpentCalls, calling.Stock.LapsedCalls = 7, 4
	calling.Line = model.Line{Phase: model.PhaseCalling, Entries: 20, Serving: 13}
	m := at(noon)
	m.Watch(sources(openGate, calling, sale("rush", 0)))
	m.has(t,
		`flashsale_line_entries{sale="A"} 20`,
		`flashsale_line_serving{sale="A"} 13`,
		`flashsale_line_called_units{sale="A"} 2`,
		`flashsale_line_idle_units{sale="A"} 3`,
		`flashsale_line_ended_calls_total{ended="spent",sale="A"} 7`,
		`flashsale_line_ended_calls_total{ended="lapsed",sale="A"} 4`,
		`flashsale_line_awaits_round{sale="A"} 0`,
	)
	check.Same(t, "a rush has a line", strings.Contains(m.page(t), `flashsale_line_entries{sale="rush"}`), false)
	for name, change := range map[string]func(*model.Offer){
		"paused":        func(o *model.Offer) { o.Status = model.SalePaused },
		"put off":       func(o *model.Offer) { o.Line.Stopped = true },
		"nobody waits":  func(o *model.Offer) { o.Line.Serving = 20 },
		"over":          func(o *model.Offer) { o.Line.Phase = model.PhaseOver },
		"awaits a seed": func(o *model.Offer) { o.Line.Phase, o.Line.Round = model.PhaseSealed, 9 },
	} {
		other := calling
		change(&other)
		m := at(noon)
		m.Watch(sources(openGate, other))
		t.Log(name)
		m.has(t, `flashsale_line_idle_units{sale="A"} 0`, fmt.Sprintf(`flashsale_line_awaits_round{sale="A"} %g`, number(other.Line.Round > 0)))
	}
}

// Without Redis, or without a gate, the page has no figures that look like those of an empty gate or queue.
func TestSourcesWithoutAGate(t *testing.T) {
	away := sources(openGate, sale("A", 0))
	away.QueueAge = func(context.Context, ...model.GateRef) (time.Duration, error) { return 0, errors.New("away") }
	for name, tc := range map[string]struct {
		sources Sources
		has     string
		hasNot  []string
	}{
		"Redis is away": {away, "reachable 0", []string{"queue_age_seconds", "gate_left_units", "gate_open"}},
		"no gate":       {sources(model.GateState{}, sale("A", 0)), "reachable 1", []string{"gate_left_units"}},
	} {
		m := at(noon)
		m.Watch(tc.sources)
		m.has(t, "flashsale_gate_"+tc.has)
		for _, figure := range tc.hasNot {
			check.Same(t, name+": there is a "+figure, strings.Contains(m.page(t), "\nflashsale_"+figure), false)
		}
	}
}

// The number of sales with labels is bounded. Those that are open, or nearest to that, have labels.
func TestSalesAreBounded(t *testing.T) {
	sales := []model.Offer{sale("ended-early", -600), sale("ended-late", -61)}
	for i := range maxSales - 2 {
		sales = append(sales, sale(fmt.Sprintf("later-%02d", i), 100+i))
	}
	sales = append(sales, sale("now", -5))
	m := at(noon)
	m.Watch(sources(openGate, sales...))
	for i := range 2 * maxSales {
		m.Note(observe.Event{Name: observe.Drifted, Label: fmt.Sprintf("wrong-%02d", i), N: 1})
		m.Note(observe.Event{Name: observe.Drifted, Label: fmt.Sprintf("right-%02d", i), N: 0})
	}
	page := m.page(t)
	check.Same(t, "sales", strings.Count(page, "\nflashsale_gate_left_units{"), maxSales)
	for id, want := range map[string]bool{"now": true, "later-00": true, "ended-late": true, "ended-early": false} {
		check.Same(t, id+" is on the page", strings.Contains(page, `flashsale_sale_units{sale="`+id+`"`), want)
	}
	drifts := []int{strings.Count(page, `{sale="wrong-`), strings.Count(page, `{sale="right-`)}
	check.Same(t, "wrong and right gates of sales that aren't shown", drifts, []int{maxSales, 0})
	m.has(t, fmt.Sprint("flashsale_sales ", len(sales)))
}

// A drift that this instance's auditor no longer sees is shown for driftLinger.
func TestDriftIsForgotten(t *testing.T) {
	m := at(noon)
	m.Watch(sources(openGate, sale("A", 0)))
	m.Note(observe.Event{Name: observe.Drifted, Label: "A", N: 5})
	m.now = noon.Add(driftLinger)
	m.has(t, `flashsale_gate_drift_units{sale="A"} 5`)
	m.now = m.now.Add(time.Second)
	check.Same(t, "the drift is still shown", strings.Contains(m.page(t), "flashsale_gate_drift_units{"), false)
	m.Note(observe.Event{Name: observe.Drifted, Label: "B", N: 0})
	check.Same(t, "drifts in memory", len(m.drifts.seen), 1)
}

// The names, units and kinds follow Prometheus' conventions.
func TestLint(t *testing.T) {
	m := at(noon)
	m.Watch(sources(openGate, sale("A", 0)))
	m.Note(observe.Event{Name: observe.Purchase, Label: string(model.Accepted)})
	m.Note(observe.Event{Name: observe.Stage, Label: "deduct", Took: time.Millisecond})
	m.Request("GET", "/", 200, time.Millisecond)
	m.took(0, observe.Step{Name: observe.Rebuild, Label: "preheat"}, nil)
	m.Note(observe.Event{Name: observe.Drifted, Label: "A", N: 1})
	m.Note(observe.Event{Name: observe.NothingOverdue})
	others := func(f *dto.MetricFamily) bool { return !strings.HasPrefix(f.GetName(), "flashsale_") }
	families := slices.DeleteFunc(check.Must(m.registry.Gather()), others)
	if len(families) < 25 {
		t.Errorf("there are only %d", len(families))
	}
	check.Same(t, "problems", check.Must(promlint.NewWithMetricFamilies(families).Lint()), nil)
}
