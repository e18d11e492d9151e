package browser

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"flashsale/test/kit/check"
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

// A second window shows and can stop a comparison. The report then has what was measured so far.
func TestLabIsStopped(t *testing.T) {
	t.Parallel()
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
}

// When the connection breaks during a comparison, the page says so, connects again and shows the report.
func TestLabHeals(t *testing.T) {
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
}
