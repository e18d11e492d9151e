package metrics

import (
	"context"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"flashsale/model"
)

const (
	// maxSales bounds the sales, and the lines, that have figures of their own, since each adds a label value.
	maxSales = 20
	// collectLimit bounds how long Redis may take during one scrape.
	collectLimit = time.Second
	// driftLinger is how long a drift is shown after the auditor last saw it.
	driftLinger = 10 * time.Second
)

// Sources are functions that supply figures. Collect calls them at each scrape.
type Sources struct {
	Build    func() (version, strategy string)
	Sales    func() []model.Offer                      // the watched sales, without shadow sales and the lines of campaigns
	Lines    func() []model.Offer                      // the watched sales that have a line, or may get one
	Requests func() map[string]map[model.Verdict]int64 // by sale
	Peek     func(ctx context.Context, gates ...model.GateRef) ([]model.GateState, error)
	QueueAge func(ctx context.Context, gates ...model.GateRef) (time.Duration, error) // of the oldest entry
	Breaker  func() bool                                                              // false while Redis is left alone
	Streams  func() int
	Bypassed func() int64 // entries settled without the queue
}

type sourced struct {
	Sources
	m *Metrics
}

// Watch registers the figures of the sources. It may be called once.
func (m *Metrics) Watch(s Sources) { m.registry.MustRegister(&sourced{s, m}) }

// Describe is part of prometheus.Collector. It describes nothing, because the figures vary.
func (s *sourced) Describe(chan<- *prometheus.Desc) {}

// setter adds a figure to the answer of a scrape. "labels" has the name of each label, followed by the label's value.
type setter func(name, help string, value float64, labels ...string)

// Collect is part of prometheus.Collector.
func (s *sourced) Collect(to chan<- prometheus.Metric) {
	show := func(name, help string, value float64, labels ...string) {
		kind := prometheus.GaugeValue
		if strings.HasSuffix(name, "_total") { // no gauge's name ends so
			kind = prometheus.CounterValue
		}
		var names, values []string
		for label := range slices.Chunk(labels, 2) {
			names, values = append(names, label[0]), append(values, label[1])
		}
		to <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, names, nil), kind, value, values...)
	}
	version, strategy := s.Build()
	show("flashsale_build_info", "1, with the version, the strategy and Go's version.", 1,
		"version", version, "strategy", strategy, "go_version", runtime.Version())
	show("flashsale_event_streams", "Open streams of stock events.", float64(s.Streams()))
	show("flashsale_gate_breaker_closed",
		"1 while attempts go to the gate, 0 while the circuit breaker leaves Redis alone.", number(s.Breaker()))
	show("flashsale_queue_bypassed_entries_total",
		"Entries that were settled from the stream itself although a queue should have brought them.", float64(s.Bypassed()))
	show("flashsale_auditor_last_look_timestamp_seconds",
		"When this instance last held the auditor's lease, 0 if it never did: one instance at a time holds it.",
		float64(s.m.audited.Load())/1000)
	now := s.m.now()
	if emptied := s.m.emptied.Load(); emptied != 0 {
		show("flashsale_expiry_lag_seconds",
			"Time since the expirer last found no order overdue: none waits longer for its end.", now.Sub(time.UnixMilli(emptied)).Seconds())
	}

	sales := s.Sales()
	show("flashsale_sales",
		"Sales that this instance watches, of which the first 20 have figures of their own.", float64(len(sales)))
	slices.SortStableFunc(sales, func(a, b model.Offer) int { return byNeed(a, b, now) })
	shown := sales[:min(len(sales), maxSales)]
	requests := s.Requests()
	for _, sale := range shown {
		stock := sale.Stock
		for state, units := range map[string]int64{"available": stock.Free(), "held": stock.Held, "paid": stock.Paid} {
			show("flashsale_sale_units",
				"Units of a sale that are available, held or paid, as this instance last read the database.",
				float64(units), "sale", sale.ID, "state", state)
		}
		for verdict, n := range requests[sale.ID] {
			show("flashsale_sale_requests_total",
				"Purchase requests of a sale by what became of them, those that the front door refused too.",
				float64(n), "sale", sale.ID, "verdict", string(verdict))
		}
	}
	lines := slices.DeleteFunc(s.Lines(), func(o model.Offer) bool { return o.Stock.Lined != model.InLine })
	slices.SortStableFunc(lines, func(a, b model.Offer) int { return byNeed(a, b, now) })
	for _, sale := range lines[:min(len(lines), maxSales)] {
		s.collectLine(sale, show)
	}
	s.collectDrifts(shown, now, show)
	s.collectGates(sales, shown, show)
}

func (s *sourced) collectLine(sale model.Offer, show setter) {
	line := func(name, help string, value float64) { show(name, help, value, "sale", sale.ID) }
	line("flashsale_line_entries", "Entries of a sale's line.", float64(sale.Line.Entries))
	line("flashsale_line_serving",
		"Ranks of a sale's line that have been called, or at which a draw has looked.", float64(sale.Line.Serving))
	line("flashsale_line_called_units", "Units behind the calls of a sale's line.", float64(sale.Stock.Called))
	line("flashsale_line_idle_units",
		"Units that are behind no call although entrants wait for them.", float64(idle(sale)))
	line("flashsale_line_awaits_round", "1 while a sealed line waits for its round of the beacon.",
		number(sale.Line.Phase == model.PhaseSealed && sale.Line.AwaitsSeed()))
	for ended, calls := range map[string]int64{"spent": sale.Stock.SpentCalls, "lapsed": sale.Stock.LapsedCalls} {
		show("flashsale_line_ended_calls_total", "Calls of a sale's line that have ended, by whether with an order.",
			float64(calls), "sale", sale.ID, "ended", ended)
	}
}

// idle returns how many units are reserved, or 0 if the line does not go on or no entrant waits for a call.
func idle(sale model.Offer) int64 {
	if sale.Status == model.SalePaused || sale.Line.Stopped || sale.Line.Phase != model.PhaseCalling || sale.Line.Serving >= sale.Line.Entries {
		return 0
	}
	return sale.Stock.Reserved
}

// collectDrifts shows the drifts of these sales, and of at most maxSales other sales whose drift is not 0.
func (s *sourced) collectDrifts(shown []model.Offer, now time.Time, show setter) {
	drift := func(saleID string, units int64) {
		show("flashsale_gate_drift_units",
			"The gate's units minus the database's, as this instance's auditor saw them within the last ten seconds.",
			float64(units), "sale", saleID)
	}
	drifts := s.m.drifts.recent(now)
	for _, sale := range shown {
		if units, judged := drifts[sale.ID]; judged {
			drift(sale.ID, units)
			delete(drifts, sale.ID)
		}
	}
	maps.DeleteFunc(drifts, func(_ string, units int64) bool { return units == 0 })
	wrong := slices.Sorted(maps.Keys(drifts))
	for _, id := range wrong[:min(len(wrong), maxSales)] {
		drift(id, drifts[id])
	}
}

// collectGates reads the gates from Redis. If Redis does not answer, it leaves the figures of the gates out.
func (s *sourced) collectGates(sales, shown []model.Offer, show setter) {
	ctx, cancel := context.WithTimeout(context.Background(), collectLimit)
	defer cancel()
	age, err := s.QueueAge(ctx, model.GateRefs(sales)...)
	show("flashsale_gate_reachable", "1 if Redis answered when these figures were asked for.", number(err == nil))
	if err != nil {
		return
	}
	show("flashsale_queue_age_seconds", "Age of the oldest entry in any stream, 0 if there is none.", age.Seconds())
	states, err := s.Peek(ctx, model.GateRefs(shown)...)
	if err != nil {
		return
	}
	for i, state := range states {
		if !state.Exists {
			continue
		}
		gate := func(name, help string, value float64) { show(name, help, value, "sale", shown[i].ID) }
		gate("flashsale_gate_open", "1 if a sale's gate admits.", number(state.Open))
		gate("flashsale_gate_epoch", "Generation of a sale's gate.", float64(state.Epoch))
		gate("flashsale_gate_left_units", "Units that a sale's gate may still admit.", float64(state.Left))
		gate("flashsale_gate_inflight_units", "Units that were admitted and not settled.", float64(state.Inflight))
		gate("flashsale_gate_stream_entries", "Entries in a sale's stream, which wait to be settled.", float64(state.Stream))
	}
}

// byNeed compares sales. Those whose end is to come are first, by their start. The others follow, the latest end first.
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
