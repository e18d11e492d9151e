// Package metrics holds the engine's Prometheus collectors.
package metrics

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"flashsale/internal/observe"
	"flashsale/model"
)

// Metrics are the collectors of one app.
type Metrics struct {
	now          func() time.Time
	registry     *prometheus.Registry
	purchases    *handles[model.Verdict, prometheus.Counter]
	stages       *handles[string, prometheus.Histogram]
	requests     *handles[request, prometheus.Observer]
	admitBatch   prometheus.Histogram
	admitTime    prometheus.Histogram
	settleBatch  prometheus.Histogram
	settleTime   prometheus.Histogram
	lostRaces    prometheus.Counter
	rebuilds     *prometheus.CounterVec
	expired      prometheus.Counter
	refundsDue   prometheus.Gauge
	deliveries   *prometheus.CounterVec
	violations   prometheus.Counter
	counterFails prometheus.Counter

	drifts  drifts
	audited atomic.Int64 // unix ms of the last observe.Audited
	emptied atomic.Int64 // unix ms of the last observe.NothingOverdue
}

// maxScrapes is how many requests for /metrics are answered at once. Further ones get 503, since each request reads Redis.
const maxScrapes = 8

// latencies are the bounds, in seconds, of the histograms of times.
var latencies = []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// New makes the collectors on a registry of their own. "now" is the clock.
func New(now func() time.Time) *Metrics {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	f := promauto.With(registry)
	counter := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	counters := func(name, help, label string) *prometheus.CounterVec {
		return f.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	histogram := func(name, help string, bounds []float64) prometheus.Histogram {
		return f.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: bounds})
	}
	histograms := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return f.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: latencies}, labels)
	}
	purchases := counters("flashsale_purchases_total", "Purchase requests that reached the engine, by verdict.", "verdict")
	stages := histograms("flashsale_purchase_stage_seconds", "Time in each stage of a purchase; those in front of the routes are of all requests.", "stage")
	requests := histograms("flashsale_http_request_seconds", "Time of HTTP requests by route and status.", "method", "route", "status")
	deliveries := counters("flashsale_deliveries_total", "Messages that this instance sent to endpoints, by outcome: delivered or failed.", "outcome")
	for _, outcome := range []string{observe.Delivered, observe.Undelivered} {
		deliveries.WithLabelValues(outcome) // so that a rate can be computed from the first message on
	}
	return &Metrics{
		now:       now,
		registry:  registry,
		purchases: newHandles(func(v model.Verdict) prometheus.Counter { return purchases.WithLabelValues(string(v)) }),
		stages:    newHandles(func(name string) prometheus.Histogram { return stages.WithLabelValues(name).(prometheus.Histogram) }),
		requests: newHandles(func(r request) prometheus.Observer {
			return requests.WithLabelValues(r.method, r.route, strconv.Itoa(r.status))
		}),
		admitBatch:  histogram("flashsale_admit_batch_attempts", "Attempts that went to the gate in one call.", prometheus.ExponentialBuckets(1, 2, 9)),
		admitTime:   histogram("flashsale_admit_seconds", "Time of one call of the gate.", latencies),
		settleBatch: histogram("flashsale_settle_batch_entries", "Entries settled in one transaction.", prometheus.ExponentialBuckets(1, 2, 10)),
		settleTime:  histogram("flashsale_settle_seconds", "Time of one settle transaction.", latencies),
		lostRaces:   counter("flashsale_lost_races_total", "Optimistic transactions that another writer overtook."),
		rebuilds:    counters("flashsale_gate_rebuilds_total", "Gates that this instance installed, by why.", "reason"),
		expired:     counter("flashsale_expired_units_total", "Units that unpaid orders gave back when their time was over."),
		refundsDue: f.NewGauge(prometheus.GaugeOpts{
			Name: "flashsale_refunds_due", Help: "Payments whose money is to go back, as this instance's refunder last saw; 100 stands for that many or more.",
		}),
		deliveries:   deliveries,
		drifts:       drifts{seen: map[string]sighting{}},
		violations:   counter("flashsale_book_violations_total", "Audits that found sums which disagree, and sales whose books did not let their orders expire."),
		counterFails: counter("flashsale_uncounted_requests_total", "Requests that passed because the user's counter could not be reached."),
	}
}

// Handler returns the handler of /metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry, MaxRequestsInFlight: maxScrapes})
}

// WatchPool adds the figures of a pool of SQL connections under the pool's name.
func (m *Metrics) WatchPool(name string, pool *sql.DB) {
	m.registry.MustRegister(collectors.NewDBStatsCollector(pool, name))
}

// Begin measures the steps that have collectors. It is part of observe.Observer.
func (m *Metrics) Begin(ctx context.Context, step observe.Step) (within context.Context, end func(error)) {
	if !slices.Contains([]string{observe.Admit, observe.Settle, observe.DatabaseTakes, observe.Rebuild}, step.Name) {
		return ctx, nil
	}
	began := m.now()
	return ctx, func(err error) {
		switch {
		case step.Name == observe.Admit:
			m.admitBatch.Observe(float64(step.Items))
			m.admitTime.Observe(m.now().Sub(began).Seconds())
		case step.Name == observe.Settle && err == nil:
			m.settleBatch.Observe(float64(step.Items))
			m.settleTime.Observe(m.now().Sub(began).Seconds())
		case step.Name == observe.DatabaseTakes && errors.Is(err, model.ErrLostRace):
			m.lostRaces.Inc()
		case step.Name == observe.Rebuild && err == nil:
			m.rebuilds.WithLabelValues(step.Label).Inc()
		}
	}
}

// Note records an event. It is part of observe.Observer.
func (m *Metrics) Note(e observe.Event) {
	switch e.Name {
	case observe.Purchase:
		m.purchases.of(model.Verdict(e.Label)).Inc()
	case observe.Stage:
		m.stages.of(e.Label).Observe(e.Took.Seconds())
	case observe.Uncounted:
		m.counterFails.Inc()
	case observe.Expired:
		m.expired.Add(float64(e.N))
	case observe.NothingOverdue:
		m.emptied.Store(m.now().UnixMilli())
	case observe.RefundsDue:
		m.refundsDue.Set(float64(e.N))
	case observe.Delivery:
		m.deliveries.WithLabelValues(e.Label).Inc()
	case observe.Audited:
		m.audited.Store(m.now().UnixMilli())
	case observe.Drifted:
		m.drifts.note(e.Label, e.N, m.now())
	case observe.Violated:
		m.violations.Inc()
	}
}

// Request records an HTTP request. The caller must bound the numbers of methods and routes.
func (m *Metrics) Request(method, route string, status int, d time.Duration) {
	m.requests.of(request{method, route, status}).Observe(d.Seconds())
}

// Purchases returns, by verdict, the number of the observe.Purchase events.
func (m *Metrics) Purchases() map[model.Verdict]int64 {
	counts := map[model.Verdict]int64{}
	for verdict, counter := range m.purchases.all() {
		counts[verdict] = int64(read(counter).GetCounter().GetValue())
	}
	return counts
}

// LostRaces returns the number of optimistic transactions that another writer overtook.
func (m *Metrics) LostRaces() int64 { return int64(read(m.lostRaces).GetCounter().GetValue()) }

// Stages returns cumulative histograms of latency: by the stages of observe.Stage and, under "settle", of the transactions that
// settle. Each list has the count up to each bound of Latencies, and at the end the count of all.
func (m *Metrics) Stages() map[string][]uint64 {
	stages := map[string][]uint64{"settle": cumulated(m.settleTime)}
	for name, stage := range m.stages.all() {
		stages[name] = cumulated(stage)
	}
	return stages
}

// Latencies are the bounds of Stages in seconds.
func Latencies() []float64 { return slices.Clone(latencies) }

func cumulated(h prometheus.Histogram) []uint64 {
	counts := make([]uint64, 0, len(latencies)+1)
	state := read(h).GetHistogram()
	for _, bucket := range state.GetBucket() {
		counts = append(counts, bucket.GetCumulativeCount())
	}
	return append(counts, state.GetSampleCount())
}

// read returns the value of a collector as /metrics shows it.
func read(m prometheus.Metric) *dto.Metric {
	var state dto.Metric
	_ = m.Write(&state) // Write does not fail for the collectors of this package
	return &state
}
