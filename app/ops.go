package app

import (
	"context"
	"net/http"
	"net/http/pprof"

	"flashsale/metrics"
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
func (a *App) figures() map[string]any {
	return map[string]any{
		"url": a.URL(), "strategy": a.settings.Strategy, "purchases": a.metrics.Purchases(),
		"gate_reachable": a.strategy.Healthy() == nil,
	}
}

// report publishes them for the other instances.
func (a *App) report(ctx context.Context) error {
	return a.gate.Report(ctx, a.catalog.Now(), a.figures())
}

// stats gives the figures of the running instances; of this one alone while Redis is away.
func (a *App) stats(ctx context.Context) (map[string]map[string]any, error) {
	all, err := a.gate.Instances(ctx, a.catalog.Now())
	if err != nil {
		all = map[string]map[string]any{}
	}
	all[a.instance] = a.figures()
	return all, nil
}
