package app

import (
	"context"
	"net/http"
	"net/http/pprof"
	"time"

	"flashsale/internal/metrics"
	"flashsale/model"
)

// opsHandler serves the operators' address, which must not be public. It accepts no body: the pprof handlers parse forms, and
// would store large parts of a multipart body in files.
func opsHandler(m *metrics.Metrics) http.Handler {
	mux := http.NewServeMux()
	for path, h := range map[string]http.Handler{
		"/metrics":      m.Handler(),
		"/debug/pprof/": http.HandlerFunc(pprof.Index),
		// /debug/pprof/cmdline is left out, since flags may hold secrets.
		"/debug/pprof/profile": http.HandlerFunc(pprof.Profile),
		"/debug/pprof/symbol":  http.HandlerFunc(pprof.Symbol),
		"/debug/pprof/trace":   http.HandlerFunc(pprof.Trace),
	} {
		mux.Handle("GET "+path, http.MaxBytesHandler(h, 0))
	}
	return mux
}

func (a *App) figures() model.Instance {
	return model.Instance{
		URL: a.URL(), Version: a.options.Version, Secrets: a.secrets, Strategy: a.settings.Strategy,
		GateReachable: a.Strategy.Healthy() == nil, Purchases: a.metrics.Purchases(), Sales: a.tally.Counts(),
		Stages: a.metrics.Stages(), ReportedAtMs: a.Catalog.Now().UnixMilli(),
	}
}

// running returns the ids of the instances whose last report is at most "within" old, or none if Redis does not answer.
func (a *App) running(ctx context.Context, within time.Duration) (ids []string) {
	now := a.Catalog.Now()
	all, err := a.gate.Running(ctx, now)
	if err != nil {
		a.Log.Debug("can't read the running instances", "error", err)
	}
	for id, figures := range all {
		if now.Sub(time.UnixMilli(figures.ReportedAtMs)) <= within {
			ids = append(ids, id)
		}
	}
	return ids
}

// instances returns the figures of the running instances by their ids. If Redis does not answer, it returns this instance's.
func (a *App) instances(ctx context.Context) map[string]model.Instance {
	all, err := a.gate.Instances(ctx, a.Catalog.Now())
	if err != nil {
		all = map[string]model.Instance{}
	}
	all[a.instance] = a.figures()
	return all
}
