package app

import (
	"context"
	"net/http"
	"net/http/pprof"

	"flashsale/metrics"
	"flashsale/model"
)

// opsHandler answers on the operators' address, which is not for the outside.
func opsHandler(m *metrics.Metrics) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", m.Handler())
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	// Not cmdline: flags may hold secrets.
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

// figures are this instance's own.
func (a *App) figures() model.Instance {
	return model.Instance{
		URL: a.URL(), Version: a.version, Secrets: a.secrets, Strategy: a.settings.Strategy, GateReachable: a.strategy.Healthy() == nil,
		Purchases: a.metrics.Purchases(), Sales: a.tally.Counts(), Stages: a.metrics.Stages(),
		ReportedAtMs: a.catalog.Now().UnixMilli(),
	}
}

// report publishes them for the other instances.
func (a *App) report(ctx context.Context) error { return a.gate.Report(ctx, a.figures()) }

// instances gives the figures of the running instances; of this one alone while Redis is away.
func (a *App) instances(ctx context.Context) map[string]model.Instance {
	all, err := a.gate.Instances(ctx, a.catalog.Now())
	if err != nil {
		all = map[string]model.Instance{}
	}
	all[a.instance] = a.figures()
	return all
}
