package metrics

import (
	"io"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"flashsale/model"
)

func (m *Metrics) page(t *testing.T) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	body, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// Concurrent callers count under the same labels.
func TestFigures(t *testing.T) {
	const callers, each = 8, 50
	m := New()
	var running sync.WaitGroup
	for range callers {
		running.Go(func() {
			for range each {
				m.Verdict(model.SoldOut)
				m.Stage("deduct", time.Millisecond)
				m.Request("POST", "/sales/:sale", 409, time.Second)
				m.Request("POST", "/sales/:sale", 404, time.Second)
			}
		})
	}
	running.Wait()
	page := m.page(t)
	for _, want := range []string{
		`flashsale_purchases_total{verdict="sold_out"} 400`,
		`flashsale_purchase_stage_seconds_count{stage="deduct"} 400`,
		`flashsale_http_request_seconds_count{method="POST",route="/sales/:sale",status="409"} 400`,
		`flashsale_http_request_seconds_count{method="POST",route="/sales/:sale",status="404"} 400`,
	} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("no line %s", want)
		}
	}
	if got := m.Purchases()["sold_out"]; got != callers*each {
		t.Errorf("%v purchases, want %d", got, callers*each)
	}
}

// Stages returns cumulative counts by bound, so that several readings, or instances, can be combined.
func TestStages(t *testing.T) {
	m := New()
	if got := m.Stages(); len(got) != 1 || slices.Max(got["settle"]) != 0 || len(got["settle"]) != len(Latencies())+1 {
		t.Errorf("before anything: %v", got)
	}
	for _, d := range []time.Duration{time.Microsecond, 2 * time.Millisecond, 3 * time.Millisecond, time.Minute} {
		m.Stage("deduct", d)
	}
	m.Settled(50, time.Second)
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
	m.LostRace()
	if n := m.LostRaces(); n != 1 {
		t.Errorf("%d lost races", n)
	}
}

func BenchmarkRequest(b *testing.B) {
	m := New()
	b.ReportAllocs()
	for b.Loop() {
		m.Request("POST", "/api/v1/sales/:sale/:path/orders", 409, time.Microsecond)
	}
}

func BenchmarkStage(b *testing.B) {
	m := New()
	b.ReportAllocs()
	for b.Loop() {
		m.Stage("token_bucket", time.Microsecond)
	}
}
