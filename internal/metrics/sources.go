package metrics

import (
	"context"
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"flashsale/model"
)

const (
	// maxSales is how many sales have figures of their own: more than an operator watches at once. The number is
	// bounded because every sale adds a label value. Sales that have not ended come first, by their start; then those
	// that ended last.
	maxSales = 20
	// collectLimit is how long Redis may take during one scrape, far below the ten seconds that Prometheus waits.
	collectLimit = time.Second
	// driftLinger is how long a drift is shown after the auditor last saw it, which is several rounds of the auditor.
	// A drift that is not seen again is dropped: the sale is over, or the auditor can't judge its gate.
	driftLinger = 10 * time.Second
)

// Sources are functions that supply figures. They are called at each scrape, so they cost nothing while nobody reads
// /metrics.
type Sources struct {
	Build    func() (version, strategy string)
	Sales    func() []model.Offer                      // those that this instance has in memory
	Lines    func() []model.Offer                      // the watched sales that have a line, or may get one
	Requests func() map[string]map[model.Verdict]int64 // by sale
	Peek     func(ctx context.Context, gates ...model.GateRef) ([]model.GateState, error)
	QueueAge func(ctx context.Context, gates ...model.GateRef) (time.Duration, error) // of the oldest entry
	Breaker  func() bool                                                              // true while attempts go to the gate
	Streams  func() int
	Bypassed func() int64 // entries settled without the queue
}

// sourced collects the figures that are read from Sources.
type sourced struct {
	Sources
	m *Metrics

	build, sales, streams, breaker, reachable, queueAge, drift, look, expiryLag *prometheus.Desc
	units, requests, open, epoch, left, inflight, entries, bypassed             *prometheus.Desc
	lineEntries, lineServing, lineCalled, lineIdle, lineCalls, lineRound        *prometheus.Desc
}

// Watch registers the figures of the sources. It may be called once.
func (m *Metrics) Watch(s Sources) {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	m.registry.MustRegister(&sourced{
		Sources: s, m: m,
		build:       desc("flashsale_build_info", "1, with the version, the strategy and Go's version.", "version", "strategy", "go_version"),
		sales:       desc("flashsale_sales", "Sales that this instance watches, of which the first 20 have figures of their own."),
		units:       desc("flashsale_sale_units", "Units of a sale that are available, held or paid, as this instance last read the database.", "sale", "state"),
		requests:    desc("flashsale_sale_requests_total", "Purchase requests of a sale by what became of them, those that the front door refused too.", "sale", "verdict"),
		streams:     desc("flashsale_event_streams", "Open streams of stock events."),
		breaker:     desc("flashsale_gate_breaker_closed", "1 while attempts go to the gate, 0 while the circuit breaker leaves Redis alone."),
		reachable:   desc("flashsale_gate_reachable", "1 if Redis answered when these figures were asked for."),
		open:        desc("flashsale_gate_open", "1 if a sale's gate admits.", "sale"),
		epoch:       desc("flashsale_gate_epoch", "Generation of a sale's gate.", "sale"),
		left:        desc("flashsale_gate_left_units", "Units that a sale's gate may still admit.", "sale"),
		inflight:    desc("flashsale_gate_inflight_units", "Units that were admitted and not settled.", "sale"),
		entries:     desc("flashsale_gate_stream_entries", "Entries in a sale's stream, which wait to be settled.", "sale"),
		bypassed:    desc("flashsale_queue_bypassed_entries_total", "Entries that were settled from the stream itself although a queue should have brought them."),
		lineEntries: desc("flashsale_line_entries", "Entries of a sale's line.", "sale"),
		lineServing: desc("flashsale_line_serving", "Ranks of a sale's line that have been called, or at which a draw has looked.", "sale"),
		lineCalled:  desc("flashsale_line_called_units", "Units behind the calls of a sale's line.", "sale"),
		lineIdle:    desc("flashsale_line_idle_units", "Units that are behind no call although entrants wait for them.", "sale"),
		lineCalls:   desc("flashsale_line_ended_calls_total", "Calls of a sale's line that have ended, by whether with an order.", "sale", "ended"),
		lineRound:   desc("flashsale_line_awaits_round", "1 while a sealed line waits for its round of the beacon.", "sale"),
		queueAge:    desc("flashsale_queue_age_seconds", "Age of the oldest entry in any stream, 0 if there is none."),
		drift:       desc("flashsale_gate_drift_units", "The gate's units minus the database's, as this instance's auditor saw them within the last ten seconds.", "sale"),
		look:        desc("flashsale_auditor_last_look_timestamp_seconds", "When this instance last held the auditor's lease, 0 if it never did: one instance at a time holds it."),
		expiryLag:   desc("flashsale_expiry_lag_seconds", "Time since the expirer last found no order overdue: none waits longer for its end."),
	})
}

// setter adds a gauge to the answer of a scrape.
type setter func(d *prometheus.Desc, value float64, labels ...string)

// Describe is part of prometheus.Collector.
func (s *sourced) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		s.build, s.sales, s.streams, s.breaker, s.reachable, s.queueAge, s.drift, s.look, s.expiryLag,
		s.units, s.requests, s.open, s.epoch, s.left, s.inflight, s.entries, s.bypassed,
		s.lineEntries, s.lineServing, s.lineCalled, s.lineIdle, s.lineCalls, s.lineRound,
	} {
		to <- d
	}
}

// Collect is part of prometheus.Collector.
func (s *sourced) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	version, strategy := s.Build()
	gauge(s.build, 1, version, strategy, runtime.Version())
	gauge(s.streams, float64(s.Streams()))
	gauge(s.breaker, number(s.Breaker()))
	to <- prometheus.MustNewConstMetric(s.bypassed, prometheus.CounterValue, float64(s.Bypassed()))
	now := s.m.now()
	gauge(s.look, seconds(s.m.audited.Load()))
	if emptied := s.m.expired.emptied.Load(); emptied != 0 {
		gauge(s.expiryLag, now.Sub(time.UnixMilli(emptied)).Seconds())
	}

	sales := s.Sales()
	gauge(s.sales, float64(len(sales)))
	slices.SortStableFunc(sales, func(a, b model.Offer) int { return byNeed(a, b, now) })
	shown := sales[:min(len(sales), maxSales)]
	requests := s.Requests()
	for _, sale := range shown {
		gauge(s.units, float64(sale.Stock.Free()), sale.ID, "available")
		gauge(s.units, float64(sale.Stock.Held), sale.ID, "held")
		gauge(s.units, float64(sale.Stock.Paid), sale.ID, "paid")
		for verdict, n := range requests[sale.ID] {
			to <- prometheus.MustNewConstMetric(s.requests, prometheus.CounterValue, float64(n), sale.ID, string(verdict))
		}
	}
	lines := slices.DeleteFunc(s.Lines(), func(o model.Offer) bool { return o.Stock.Lined != model.InLine })
	slices.SortStableFunc(lines, func(a, b model.Offer) int { return byNeed(a, b, now) })
	for _, sale := range lines[:min(len(lines), maxSales)] {
		s.collectLine(to, sale, gauge)
	}
	s.collectDrifts(shown, now, gauge)
	s.collectGates(sales, shown, gauge)
}

// collectLine reports the figures of a sale in line.
func (s *sourced) collectLine(to chan<- prometheus.Metric, sale model.Offer, gauge setter) {
	gauge(s.lineEntries, float64(sale.Line.Entries), sale.ID)
	gauge(s.lineServing, float64(sale.Line.Serving), sale.ID)
	gauge(s.lineCalled, float64(sale.Stock.Called), sale.ID)
	gauge(s.lineIdle, float64(idle(sale)), sale.ID)
	gauge(s.lineRound, number(sale.Line.Phase == model.PhaseSealed && sale.Line.AwaitsSeed()), sale.ID)
	for ended, calls := range map[string]int64{"spent": sale.Stock.SpentCalls, "lapsed": sale.Stock.LapsedCalls} {
		to <- prometheus.MustNewConstMetric(s.lineCalls, prometheus.CounterValue, float64(calls), sale.ID, ended)
	}
}

// idle returns how many units a caller should give to calls now. A paused sale calls nobody.
func idle(sale model.Offer) int64 {
	if sale.Status == model.SalePaused || sale.Line.Phase != model.PhaseCalling || sale.Line.Serving >= sale.Line.Entries {
		return 0
	}
	return sale.Stock.Reserved
}

// collectDrifts reports the drifts of the sales shown and, for at most maxSales of the others, the drifts that are
// not 0.
func (s *sourced) collectDrifts(shown []model.Offer, now time.Time, gauge setter) {
	drifts := s.m.drifts.recent(now)
	for _, sale := range shown {
		if units, judged := drifts[sale.ID]; judged {
			gauge(s.drift, float64(units), sale.ID)
			delete(drifts, sale.ID)
		}
	}
	maps.DeleteFunc(drifts, func(_ string, units int64) bool { return units == 0 })
	wrong := slices.Sorted(maps.Keys(drifts))
	for _, id := range wrong[:min(len(wrong), maxSales)] {
		gauge(s.drift, float64(drifts[id]), id)
	}
}

// collectGates reads the gates from Redis. If Redis does not answer, the figures of the gates are left out;
// flashsale_gate_reachable shows whether it answered the first call.
func (s *sourced) collectGates(sales, shown []model.Offer, gauge setter) {
	ctx, cancel := context.WithTimeout(context.Background(), collectLimit)
	defer cancel()
	age, err := s.QueueAge(ctx, model.GateRefs(sales)...)
	gauge(s.reachable, number(err == nil))
	if err != nil {
		return
	}
	gauge(s.queueAge, age.Seconds())
	states, err := s.Peek(ctx, model.GateRefs(shown)...)
	if err != nil {
		return
	}
	for i, state := range states {
		if !state.Exists {
			continue
		}
		id := shown[i].ID
		gauge(s.open, number(state.Open), id)
		gauge(s.epoch, float64(state.Epoch), id)
		gauge(s.left, float64(state.Left), id)
		gauge(s.inflight, float64(state.Inflight), id)
		gauge(s.entries, float64(state.Stream), id)
	}
}

// byNeed orders sales: first those that have not ended, by their start, then those that ended last.
func byNeed(a, b model.Offer, now time.Time) int {
	endedA, endedB := !a.EndsAt.After(now), !b.EndsAt.After(now)
	switch {
	case endedA && endedB:
		return b.EndsAt.Compare(a.EndsAt)
	case endedA:
		return 1
	case endedB:
		return -1
	}
	return a.StartsAt.Compare(b.StartsAt)
}

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

func seconds(unixMs int64) float64 { return float64(unixMs) / 1000 }
