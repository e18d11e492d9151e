package browser

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"flashsale/model"
	"flashsale/repository"
	"flashsale/test/kit/check"
	"flashsale/test/kit/pace"
)

// compare fills in a plan for these strategies and starts it.
func (w *window) compare(buyers, stock, concurrency int, strategies ...string) {
	w.t.Helper()
	w.see("#strategies", "hybrid")
	js[bool](w, `document.querySelectorAll("[name=strategy]:checked").forEach((box) => box.click()), true`)
	for _, name := range strategies {
		w.click("#strategy-" + name)
	}
	w.fill("#buyers", fmt.Sprint(buyers))
	w.fill("#stock", fmt.Sprint(stock))
	w.fill("#concurrency", fmt.Sprint(concurrency))
	w.click("#start")
}

// rehearsed stores the result of a rehearsal, with markup in its texts.
func (s *server) rehearsed(version, verdict string) {
	s.t.Helper()
	db, err := repository.Open(s.t.Context(), s.Database, 1)
	check.NoError(s.t, err)
	defer func() { _ = db.Close() }()
	text, err := json.Marshal(fields{
		"crowd": "20000 buyers for 100 units " + thanks, "url": "https://shop.example", "database": "MariaDB 10.11.19", "limit": "the connections",
		"findings":        []fields{{"kind": "lost order", "count": 1, "found": thanks, "examples": []string{"crowd-1 A"}}},
		"machine":         fields{"os": "linux", "arch": "amd64", "cpu": "AMD EPYC", "cores": 2, "go": "go1.26"},
		"books":           fields{"quota": 100, "left": 0, "held": 60, "paid": 40, "orders": 100},
		"peak_per_second": 4711, "sustained_per_second": 4000, "send_lag": fields{"p50_ms": 0.4, "p99_ms": 31}, "unsent": 0, "no_stream": 12,
		"stages": []fields{{
			"stage": "order", "requests": 20_007, "p50_ms": 2.5, "p99_ms": 40, "max_ms": 90,
			"answers": []fields{{"what": "409 sold_out", "n": 19_900}, {"what": "201", "n": 100}, {"what": "503 unavailable", "n": 7}},
		}},
		"people": []fields{{"what": "sold_out", "n": 19_900}, {"what": "pending", "n": 60}, {"what": "paid", "n": 40}}, "bots": nil, "gave_up": nil,
	})
	check.NoError(s.t, err, db.SaveRehearsal(s.t.Context(), model.Rehearsal{Version: version, Verdict: verdict, Buyers: 20_000, Units: 100, PerSecond: 4711, Report: text}))
}

// reportPath returns the path of the report that is shown.
func (w *window) reportPath() string {
	w.t.Helper()
	return js[string](w, `document.getElementById("run-report").getAttribute("href")`)
}

// A comparison: mistakes are refused, a question is asked since a sale is open, and the report is shown and found again.
func TestLab(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.sale(nil)
	w := s.open(desktop, "/console/lab", "status of 409")
	w.operate()
	w.sees(texts{
		"#strategies": "Two buyers at once are sold the same unit", "#no-reports": "There is no report yet",
		"#stores": "The shop's own are not touched",
	})
	w.compare(200, 0, 10)
	w.sees(texts{"#strategies-error": "Choose at least one", "#stock-error": "A whole number from 1"})
	w.keeps(texts{"#buyers": "200", "#stock": "0"})

	w.compare(200, 20, 10, "hybrid", "optimistic")
	w.see("#confirm-title", "Measure while a sale is open?")
	w.click("#confirm-no")
	w.gone("#confirm")
	w.lacks("#run")
	w.click("#start", "#confirm-yes")
	w.see("#run-title", "Under way")
	w.see("#run-load", "200 buyers, 20 units, 10 at once")
	w.see("#run-title", "Report of")
	w.see("#results", "hybrid")
	w.sees(texts{"#results": "optimistic", "#results .state": "Exact"})
	w.has("results", 2)
	report := w.reportPath()
	check.Same(t, report+" is a report's", strings.HasPrefix(report, "/lab/reports/"), true)

	w.visit("/console/lab")
	w.see("#reports", "200")
	w.lacks("#run")
	w.click("#reports button")
	w.see("#results", "optimistic")
	w.click("#run-report")
	w.see("body", "hybrid")
	check.Same(t, "path of the report", w.path(), report)
}

// The console lists rehearsals, and shows the report of one. Texts in a report stay text.
func TestRehearsals(t *testing.T) {
	t.Parallel()
	s := serve(t)
	w := s.open(desktop, "/console/lab")
	w.operate()
	w.see("#no-rehearsals", "There is no rehearsal yet")
	s.rehearsed("older", "failed")
	w.visit("/console/lab")
	w.has("rehearsals", 1)
	w.sees(texts{"#rehearsals": "20,000", "#rehearsals .state": "Failed", "#rehearsals .below": "Another version"})
	w.focus("#rehearsals button")
	w.press(kb.Enter)
	w.focused("rehearsal-title")
	w.sees(texts{
		"#rehearsal-title": "Rehearsal of", "#rehearsal-findings": "lost order: 1: " + thanks, "#rehearsal-crowd": thanks,
		"#rehearsal-facts": "sold_out: 19,900", "#rehearsal-stages": "503 unavailable: 7",
	})
	w.lacks("#markup")
	w.speak("zh")
	w.sees(texts{"#rehearsals .state": "未通过", "#rehearsal-facts": "顾客得到的答复"})
}

// A second window shows and can stop a comparison. The report then has what was measured so far.
func TestLabIsStopped(t *testing.T) {
	t.Parallel()
	pace.Try(t, func(t *pace.Trial) {
		s := serve(t)
		w := s.open(desktop, "/console/lab")
		w.operate()
		w.compare(100_000, 1000, 10, "optimistic", "pessimistic")
		w.see("#run-now", "pessimistic, 1 of 2")
		other := s.open(phone, "/console/lab")
		other.operate()
		other.see("#run-now", "pessimistic, 1 of 2")
		other.confirm("#stop", "What was measured so far becomes the report")
		for _, each := range []*window{w, other} {
			each.sees(texts{"#run-title": "Report of", "#results": "Incomplete", "#reports": "100,000"})
		}
		w.do(chromedp.Navigate(w.url + w.reportPath()))
		w.see("body", "pessimistic")
	})
}

// When the connection breaks during a comparison, the page says so, connects again and shows the report.
func TestLabHeals(t *testing.T) {
	pace.Try(t, func(t *pace.Trial) {
		s, road := roadTo(t)
		w := s.open(desktop, "/console/lab", brokenRoad...)
		w.operate()
		w.compare(6_000, 100, 10, "mutex", "hybrid")
		w.see("#run-now", "1 of 2")
		w.see("#line", "Live")
		road.closed(func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/lab/events") })
		w.see("#line", "Connection lost")
		road.free()
		w.sees(texts{"#run-title": "Report of", "#results": "hybrid"})
	})
}
