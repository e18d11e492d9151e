package metrics

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"flashsale/internal/observe"
	"flashsale/model"
	"flashsale/test/kit/check"
)

func (m *Metrics) page(t *testing.T) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	return w.Body.String()
}

// has checks that the page has these lines.
func (m *Metrics) has(t *testing.T, lines ...string) {
	t.Helper()
	page := m.page(t)
	for _, line := range lines {
		check.Same(t, "the page has "+line, strings.Contains(page, line+"\n"), true)
	}
}

// Concurrent callers count under the same labels.
func TestFigures(t *testing.T) {
	const callers, each = 8, 50
	m := New(time.Now)
	check.Together(callers, func(int) {
		for range each {
			m.Note(observe.Event{Name: observe.Purchase, Label: string(model.SoldOut)})
			m.Note(observe.Event{Name: observe.Stage, Label: "deduct", Took: time.Millisecond})
			m.Note(observe.Event{Name: observe.Delivery, Label: "failed"})
			m.Request("POST", "/sales/:sale", 409, time.Second)
			m.Request("POST", "/sales/:sale", 404, time.Second)
		}
	})
	m.has(t,
		`flashsale_purchases_total{verdict="sold_out"} 400`,
		`flashsale_purchase_stage_seconds_count{stage="deduct"} 400`,
		`flashsale_deliveries_total{outcome="failed"} 400`,
		`flashsale_http_request_seconds_count{method="POST",route="/sales/:sale",status="409"} 400`,
		`flashsale_http_request_seconds_count{method="POST",route="/sales/:sale",status="404"} 400`,
	)
	check.Same(t, "purchases", m.Purchases()["sold_out"], callers*each)
}

// clocked are metrics under a clock of the test.
type clocked struct {
	*Metrics
	now time.Time
}

func at(now time.Time) *clocked {
	m := &clocked{now: now}
	m.Metrics = New(func() time.Time { return m.now })
	return m
}

// took is a step that takes a while and ends with an error or nil.
func (m *clocked) took(d time.Duration, s observe.Step, err error) {
	_, end := m.Begin(context.Background(), s)
	m.now = m.now.Add(d)
	end(err)
}

// TestSteps has the steps that TestStages has not.
func TestSteps(t *testing.T) {
	m := at(noon)
	m.took(3*time.Second, observe.Step{Name: observe.Admit, Items: 7}, errors.New("no reply"))
	m.took(0, observe.Step{Name: observe.Rebuild, Label: "drift"}, nil)
	m.took(0, observe.Step{Name: observe.Rebuild, Label: "missing"}, model.ErrNewerGate)
	_, end := m.Begin(t.Context(), observe.Step{Name: observe.Acknowledge})
	check.Same(t, "a step without a collector is measured", end != nil, false)
	m.has(t, `flashsale_admit_batch_attempts_sum 7`,
		`flashsale_admit_seconds_sum 3`, `flashsale_gate_rebuilds_total{reason="drift"} 1`)
	check.Same(t, "a gate that was not installed counts", strings.Contains(m.page(t), `reason="missing"`), false)
}

// Stages returns cumulative counts by bound, so that several readings, or instances, can be combined.
func TestStages(t *testing.T) {
	m := at(noon)
	if got := m.Stages(); len(got) != 1 || slices.Max(got["settle"]) != 0 || len(got["settle"]) != len(Latencies())+1 {
		t.Errorf("before anything: %v", got)
	}
	for _, d := range []time.Duration{time.Microsecond, 2 * time.Millisecond, 3 * time.Millisecond, time.Minute} {
		m.Note(observe.Event{Name: observe.Stage, Label: "deduct", Took: d})
	}
	m.took(time.Second, observe.Step{Name: observe.Settle, Items: 50}, nil)
	m.took(time.Second, observe.Step{Name: observe.Settle, Items: 50}, errors.New("not settled"))
	got := m.Stages()
	for name, want := range map[string]map[float64]uint64{
		"deduct": {.00005: 1, .001: 1, .0025: 2, .005: 3, 10: 3}, "settle": {.5: 0, 1: 1, 10: 1},
	} {
		counts := got[name]
		if !slices.IsSorted(counts) || len(counts) != len(Latencies())+1 {
			t.Fatalf("%s: %v", name, counts)
		}
		for bound, n := range want {
			if i := slices.Index(Latencies(), bound); i < 0 || counts[i] != n {
				t.Errorf("%s: %v, want %d within %vs", name, counts, n, bound)
			}
		}
	}
	if all := got["deduct"][len(Latencies())]; all != 4 || got["settle"][len(Latencies())] != 1 {
		t.Errorf("the totals in %v", got)
	}
	m.took(0, observe.Step{Name: observe.DatabaseTakes}, fmt.Errorf("deduct: %w", model.ErrLostRace))
	m.took(0, observe.Step{Name: observe.DatabaseTakes}, nil)
	check.Same(t, "lost races", m.LostRaces(), 1)
}

func BenchmarkRequest(b *testing.B) {
	m := New(time.Now)
	b.ReportAllocs()
	for b.Loop() {
		m.Request("POST", "/api/v1/sales/:sale/:path/orders", 409, time.Microsecond)
	}
}

func BenchmarkStage(b *testing.B) {
	m := New(time.Now)
	b.ReportAllocs()
	for b.Loop() {
		m.Note(observe.Event{Name: observe.Stage, Label: "token_bucket", Took: time.Microsecond})
	}
}
