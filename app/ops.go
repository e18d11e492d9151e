package app

import (
	"context"
	"net/http"
	"net/http/pprof"

	"flashsale/metrics"
	"flashsale/model"
)

// opsRoutes are those of the operators' address, which is not for the outside. The profiles read forms, so that a body
// of parts would be kept in files: nothing is taken but GET, and of a body nothing is read.
func opsRoutes(m *metrics.Metrics) map[string]http.Handler {
	return map[string]http.Handler{
		"/metrics":      m.Handler(),
		"/debug/pprof/": http.HandlerFunc(pprof.Index),
		// Not cmdline: flags may hold secrets.
		"/debug/pprof/profile": http.HandlerFunc(pprof.Profile),
		"/debug/pprof/symbol":  http.HandlerFunc(pprof.Symbol),
		"/debug/pprof/trace":   http.HandlerFunc(pprof.Trace),
	}
}

func opsHandler(m *metrics.Metrics) http.Handler {
	mux := http.NewServeMux()
	for path, h := range opsRoutes(m) {
		mux.Handle("GET "+path, http.MaxBytesHandler(h, 0))
	}
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
