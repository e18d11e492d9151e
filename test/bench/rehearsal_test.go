//go:build bench && linux

package bench

import (
	"encoding/json"
	"testing"

	"flashsale/lab/rehearsal"
	"flashsale/test/kit/check"
)

const (
	// mostCrowds is the most rehearsals of the row: each takes half a minute.
	mostCrowds = 2
	// wantedArrivals and mostLagMS are how many arrivals a second a rehearsal should sustain, and how late it may send.
	wantedArrivals, mostLagMS = 20_000, 10
)

// rehearsed lets a crowd come that grows in steps to the arrivals wanted. Sustained means that 99 in a hundred requests were sent
// within 10 ms of their time. The values are the sustained arrivals of each rehearsal.
func rehearsed(t *testing.T, b *run, r *Result) {
	r.Unit = "arrivals/s"
	lag := 0.0
	for range min(b.rounds, mostCrowds) {
		e := start(t, r, false, "--trusted-proxies=127.0.0.1")
		raw, _ := e.Rehearse(e.url, "../load/rehearsal/steps.yaml")
		var report rehearsal.Report
		check.NoError(t, json.Unmarshal(raw, &report))
		if len(report.Findings) > 0 {
			r.void("the rehearsal has found %+v", report.Findings)
		}
		r.Values = append(r.Values, float64(report.Sustained))
		lag = max(lag, report.SendLag.P99MS)
		r.note("%s; at most %d arrivals in a second; what limits it: %s", report.Verdict, report.Peak, report.Limit)
	}
	r.least(spreadOf(r.Values).median, wantedArrivals, r.Unit)
	r.most(lag, mostLagMS, "ms p99")
}
