package browser

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
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

// A comparison: with mistakes first, asked back since a sale is open, watched, and its report opened and found again.
func TestLab(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.sale(nil)
	w := s.open(desktop)
	w.allow("status of 409")
	w.visit("/console/lab")
	w.operate()
	w.see("#strategies", "Two buyers at once are sold the same unit")
	w.see("#no-reports", "There is no report yet")
	w.see("#stores", "The shop's own are not touched")
	w.compare(200, 0, 10)
	w.see("#strategies-error", "Choose at least one")
	w.see("#stock-error", "A whole number from 1")
	if w.value("#buyers") != "200" || w.value("#stock") != "0" {
		t.Error("what was typed is lost")
	}

	w.compare(200, 20, 10, "hybrid", "optimistic")
	w.see("#confirm-title", "Measure while a sale is open?")
	w.click("#confirm-no")
	w.until("the question is gone", func() (string, bool) { return "", !w.holds("#confirm") })
	if w.holds("#run") {
		t.Error("it runs though the question was not answered with yes")
	}
	w.click("#start")
	w.click("#confirm-yes")
	w.see("#run-title", "Under way")
	w.see("#run-load", "200 buyers, 20 units, 10 at once")
	w.see("#run-title", "Report of")
	for _, strategy := range []string{"hybrid", "optimistic"} {
		w.see("#results", strategy)
	}
	w.see("#results .state", "Exact")
	if n := js[int](w, `document.getElementById("results").rows.length`); n != 2 {
		t.Errorf("%d results", n)
	}
	report := js[string](w, `document.getElementById("run-report").getAttribute("href")`)
	if !strings.HasPrefix(report, "/lab/reports/") {
		t.Errorf("the report is at %s", report)
	}

	w.visit("/console/lab")
	w.see("#reports", "200")
	if w.holds("#run") {
		t.Error("a report is shown that nobody asked for")
	}
	w.click("#reports button")
	w.see("#results", "optimistic")
	w.click("#run-report")
	w.see("body", "hybrid")
	if w.path() != report {
		t.Errorf("the report is at %s, and was at %s", w.path(), report)
	}
}

// A comparison that is stopped reports what was measured by then; a second window sees it run.
func TestLabIsStopped(t *testing.T) {
	t.Parallel()
	s := serve(t)
	w, other := s.open(desktop), s.open(phone)
	w.visit("/console/lab")
	w.operate()
	w.compare(100_000, 1000, 10, "optimistic", "pessimistic")
	w.see("#run-now", "pessimistic, 1 of 2")
	other.visit("/console/lab")
	other.operate()
	other.see("#run-now", "pessimistic, 1 of 2")
	other.click("#stop")
	other.see("#confirm-more", "What was measured so far becomes the report")
	other.click("#confirm-yes")
	for _, each := range []*window{w, other} {
		each.see("#run-title", "Report of")
		each.see("#results", "Incomplete")
		each.see("#reports", "100,000")
	}
	w.do(chromedp.Navigate(w.url + js[string](w, `document.getElementById("run-report").getAttribute("href")`)))
	w.see("body", "pessimistic")
}

// A connection that breaks while a comparison runs is said and mended, and the report comes.
func TestLabHeals(t *testing.T) {
	s, road := roadTo(t)
	w := s.open(desktop)
	w.allow("status of 503", "ERR_CONNECTION", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_EMPTY_RESPONSE")
	w.visit("/console/lab")
	w.operate()
	w.compare(6_000, 100, 10, "mutex", "hybrid")
	w.see("#run-now", "1 of 2")
	w.see("#line", "Live")
	road.obey(func(r *http.Request) fate {
		if strings.HasSuffix(r.URL.Path, "/lab/events") {
			return fate{status: http.StatusServiceUnavailable}
		}
		return fate{}
	})
	road.CloseClientConnections()
	w.see("#line", "Connection lost")
	road.obey(func(*http.Request) fate { return fate{} })
	w.see("#run-title", "Report of")
	w.see("#results", "hybrid")
}
