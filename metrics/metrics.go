// Package metrics holds the engine's Prometheus collectors, all in one place so that their names and units
// can be read at a glance. Each app has a registry of its own.
package metrics

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"flashsale/model"
)

// Metrics are the collectors of one app.
type Metrics struct {
	registry     *prometheus.Registry
	purchases    *handles[model.Verdict, prometheus.Counter]
	stages       *handles[string, prometheus.Observer]
	requests     *handles[request, prometheus.Observer]
	settleBatch  prometheus.Histogram
	settleTime   prometheus.Histogram
	lostRaces    prometheus.Counter
	expired      prometheus.Counter
	drift        *prometheus.GaugeVec
	violations   prometheus.Counter
	counterFails prometheus.Counter
}

// latencies reach from a memory look-up to a buyer's patience.
var latencies = []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// New makes the collectors on a new registry.
func New() *Metrics {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	f := promauto.With(registry)
	purchases := f.NewCounterVec(prometheus.CounterOpts{
		Name: "flashsale_purchases_total", Help: "Purchase requests that reached the engine, by verdict.",
	}, []string{"verdict"})
	stages := f.NewHistogramVec(prometheus.HistogramOpts{
		Name: "flashsale_purchase_stage_seconds", Help: "Time in each stage of a purchase.", Buckets: latencies,
	}, []string{"stage"})
	requests := f.NewHistogramVec(prometheus.HistogramOpts{
		Name: "flashsale_http_request_seconds", Help: "Time of HTTP requests by route and status.", Buckets: latencies,
	}, []string{"method", "route", "status"})
	return &Metrics{
		registry:  registry,
		purchases: newHandles(func(v model.Verdict) prometheus.Counter { return purchases.WithLabelValues(string(v)) }),
		stages:    newHandles(func(name string) prometheus.Observer { return stages.WithLabelValues(name) }),
		requests: newHandles(func(r request) prometheus.Observer {
			return requests.WithLabelValues(r.method, r.route, strconv.Itoa(r.status))
		}),
		settleBatch: f.NewHistogram(prometheus.HistogramOpts{
			Name: "flashsale_settle_batch_entries", Help: "Entries settled in one transaction.", Buckets: prometheus.ExponentialBuckets(1, 2, 10),
		}),
		settleTime: f.NewHistogram(prometheus.HistogramOpts{
			Name: "flashsale_settle_seconds", Help: "Time of one settle transaction.", Buckets: latencies,
		}),
		lostRaces: f.NewCounter(prometheus.CounterOpts{
			Name: "flashsale_lost_races_total", Help: "Optimistic transactions that another writer overtook.",
		}),
		expired: f.NewCounter(prometheus.CounterOpts{
			Name: "flashsale_expired_units_total", Help: "Units that unpaid orders gave back when their time was over.",
		}),
		drift: f.NewGaugeVec(prometheus.GaugeOpts{
			Name: "flashsale_gate_drift_units", Help: "The gate's units minus the database's, as the auditor last saw them.",
		}, []string{"sale"}),
		violations: f.NewCounter(prometheus.CounterOpts{
			Name: "flashsale_book_violations_total", Help: "Audits that found sums which disagree.",
		}),
		counterFails: f.NewCounter(prometheus.CounterOpts{
			Name: "flashsale_request_counter_failures_total", Help: "Requests that passed because the user's counter could not be reached.",
		}),
	}
}

// Handler answers /metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry})
}

// Gauge adds a figure that is read when it is asked for.
func (m *Metrics) Gauge(name, help string, read func() float64) {
	promauto.With(m.registry).NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read)
}

// Verdict counts how a purchase ended.
func (m *Metrics) Verdict(v model.Verdict) { m.purchases.of(v).Inc() }

// Stage notes the time of one stage of a purchase.
func (m *Metrics) Stage(name string, d time.Duration) {
	m.stages.of(name).Observe(d.Seconds())
}

// Request notes an HTTP request. The caller bounds the methods and routes.
func (m *Metrics) Request(method, route string, status int, d time.Duration) {
	m.requests.of(request{method, route, status}).Observe(d.Seconds())
}

// Settled notes a settle transaction.
func (m *Metrics) Settled(entries int, d time.Duration) {
	m.settleBatch.Observe(float64(entries))
	m.settleTime.Observe(d.Seconds())
}

// LostRace counts an optimistic transaction that was overtaken.
func (m *Metrics) LostRace() { m.lostRaces.Inc() }

// Expired counts units that expired orders gave back.
func (m *Metrics) Expired(units int) { m.expired.Add(float64(units)) }

// Drift notes how far a sale's gate is from the database.
func (m *Metrics) Drift(saleID string, units int64) {
	m.drift.WithLabelValues(saleID).Set(float64(units))
}

// Violation counts an audit that found sums which disagree.
func (m *Metrics) Violation() { m.violations.Inc() }

// CounterFailed counts a request that could not be counted.
func (m *Metrics) CounterFailed() { m.counterFails.Inc() }

// Purchases gives the number of purchase requests by verdict.
func (m *Metrics) Purchases() map[string]float64 { return m.counts("flashsale_purchases_total") }

// LostRaces gives the number of optimistic transactions that were overtaken.
func (m *Metrics) LostRaces() int64 { return int64(m.counts("flashsale_lost_races_total")[""]) }

// counts reads a counter by the values of its label; without one the value is empty.
func (m *Metrics) counts(name string) map[string]float64 {
	counts := map[string]float64{}
	families, err := m.registry.Gather()
	if err != nil {
		return counts // a collector's failure shows at /metrics
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			value := ""
			for _, label := range metric.GetLabel() {
				value = label.GetValue()
			}
			counts[value] = metric.GetCounter().GetValue()
		}
	}
	return counts
}
