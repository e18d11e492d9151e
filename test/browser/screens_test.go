package browser

import (
	"fmt"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"flashsale/test/kit/check"
)

// axePath is where the Makefile puts axe-core, which judges the accessibility of pages. It is no part of this project.
const axePath = "../../build/axe.min.js"

var axe = sync.OnceValues(func() (string, error) {
	raw, err := os.ReadFile(axePath)
	return string(raw), err
})

// judge fails the test for everything that axe-core finds in the page as it is.
func (w *window) judge(what string) {
	w.t.Helper()
	script, err := axe()
	if err != nil {
		w.t.Fatalf("%v: `make browser` fetches axe-core", err)
	}
	js[bool](w, script+";true")
	for _, finding := range js[[]string](w, `axe.run({resultTypes: ["violations"]}).then(({violations}) => violations.flatMap(
		(v) => v.nodes.map((node) => v.impact + " " + v.id + ": " + v.help + ": " + node.html + " " + node.failureSummary)))`) {
		w.t.Errorf("%s: %s", what, finding)
	}
}

// full is set by `make browser`: only then are pictures taken.
var full = os.Getenv("SCREENS") == "full"

// show judges the page as it is: on a light phone in English and on a dark desktop in Chinese. A phone must not have to
// scroll sideways. `make browser` also keeps pictures in build/screenshots: small and wide, light and dark, in both
// languages.
func (w *window) show(name string) {
	w.t.Helper()
	for _, language := range []string{"en", "zh"} {
		w.speak(language)
		for _, dark := range []bool{false, true} {
			for _, width := range []int64{phone.width, desktop.width} {
				small := width == phone.width
				judged := small && !dark && language == "en" || !small && dark && language == "zh"
				if !full && !judged && (!small || dark) {
					continue
				}
				w.like(look{width: width, dark: dark, language: "en-GB"})
				what := fmt.Sprintf("%s-%d-%s-%s", name, width, map[bool]string{false: "light", true: "dark"}[dark], language)
				if full {
					w.shot(what)
				}
				if judged {
					w.judge(what)
				}
				if wide := w.wide(); small && len(wide) > w.mayScroll {
					w.t.Errorf("%s: wider than the screen: %q", what, wide)
				}
			}
		}
	}
	w.like(desktop)
	w.speak("en")
}

// speak changes the language of the page.
func (w *window) speak(language string) {
	w.t.Helper()
	js[bool](w, fmt.Sprintf(`
		document.querySelector("button.language[value=%[1]s]")?.click() ?? (document.documentElement.lang = %[1]q),
		document.querySelector(".language:focus")?.blur(), true`, language))
}

// wide lists the elements that have to be scrolled sideways.
func (w *window) wide() []string {
	w.t.Helper()
	return js[[]string](w, `[...document.querySelectorAll("*")].filter((e) => e.checkVisibility() && e.scrollWidth > e.clientWidth &&
		(e === document.documentElement || ["auto", "scroll"].includes(getComputedStyle(e).overflowX)),
	).map((e) => e.outerHTML.slice(0, 100))`)
}

// tomorrow is a sale that begins tomorrow.
func tomorrow() fields {
	return fields{
		"title": "Gaiwan 盖碗", "currency": "EUR", "price_cents": 123456,
		"starts_at": time.Now().Add(26 * time.Hour), "ends_at": time.Now().Add(50 * time.Hour),
	}
}

// Every page and stage of the storefront is accessible and fits on a phone.
func TestScreens(t *testing.T) {
	t.Parallel()
	s := serve(t)
	teapot := s.sale(fields{"title": "The last hundred teapots", "limit_per_user": 40, "quota": 100})
	gone := s.sale(fields{
		"title": "Enamel kettle, 1.5 litres, in the green that was out for years", "quota": 1, "original_price_cents": 0,
	})
	later := s.sale(tomorrow())
	other := s.buyer("other")
	s.buy(gone, other, 1)
	s.buy(teapot, other, 36)

	w := s.open(desktop, "/", "status of 404", "status of 409", "status of 401")
	w.see(".card", "64 of 100 left")
	w.show("sales")
	for _, sale := range []struct{ id, name, selector, text string }{
		{later, "upcoming", "#button", "Starts in"},
		{gone, "sold-out", "#notice", "Units of unpaid orders come back"},
		{teapot, "open", "#button", "Buy"},
	} {
		w.visit("/sales/" + sale.id)
		w.sees(texts{sale.selector: sale.text, "#line": "Live"})
		w.show("sale-" + sale.name)
	}
	w.click("#button")
	w.see("#account-title", "Create an account")
	w.write("#name", "ann.who.has.the.longest.of.names")
	w.write("#password", "short")
	w.click("#account-submit")
	w.see("#password-error", "at least 8")
	w.show("account")
	w.write("#password", " but longer")
	w.click("#account-submit")
	w.see("#yours-title", "Yours until")
	w.show("yours")
	w.click("#yours-cancel")
	w.see("#ask", "Cancel this order?")
	w.show("ask")
	w.click("#ask-no")
	w.visit("/orders")
	w.see(".order", "To be paid")
	w.show("orders")
	w.click(".order .pay")
	w.see(".payment .amount", "9.90 CNY")
	w.show("payment")
	w.click(`button[value="pay"]`)
	w.see("[role=status]", "Paid. Thank you")
	w.show("payment-paid")
	w.visit("/sales/NONE")
	w.see("h1", "nothing here")
	w.show("missing")
	w.visit("/api")
	w.see("h1", "")
	w.show("api")
	check.Same(t, "elements of the API's page that are wider than a desktop's screen", len(w.wide()), 0)
}

// trade buys a unit some times a second, also when none is left, and pays each third order.
func (s *server) trade(saleID, token string, attempts int) {
	s.t.Helper()
	path := s.path(saleID, token)
	for i := range attempts {
		status, order, err := s.Call("POST", s.url+"/api/v1"+path, token, fields{"quantity": 1})
		check.NoError(s.t, err)
		if status == http.StatusCreated && i%3 == 0 {
			s.pay(text(order["id"]), token)
		}
		time.Sleep(time.Duration(20+i%7*15) * time.Millisecond) // the pace of a small sale
	}
}

// Every page and stage of the console is accessible and fits on a phone.
func TestConsoleScreens(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.sale(fields{"title": "Enamel kettle", "starts_at": time.Now().Add(-50 * time.Hour), "quota": 1})
	s.sale(tomorrow())
	teapot := s.sale(fields{"title": "The last hundred teapots", "limit_per_user": 500, "quota": 100})
	w := s.open(desktop, "/console", "status of 409")
	w.see("#outside-why", "")
	w.show("console-outside")
	w.operate()
	w.sees(texts{"#sales": "Gaiwan", "#instances": "hybrid"})
	w.show("console")
	w.click("#new")
	w.write("#title", "A teapot that will never be sold at this price")
	w.write("#price_cents", "12.505")
	w.click("#form-send")
	w.see("#price_cents-error", "")
	w.show("console-form")
	w.visit("/console/sales/" + teapot)
	w.see("#line", "Live")
	attempts := 180
	if !full {
		attempts = 40
	}
	s.trade(teapot, s.buyer("ann"), attempts)
	w.sees(texts{"#orders": "Paid", "#orders button": "", "#verdicts td.n": ""})
	w.show("console-sale")
	w.click(`#views [href="#engine"]`)
	w.sees(texts{"#tile-gate": "Open", "#instances": "hybrid"})
	w.show("console-engine")
	w.click(`#views [href="#report"]`)
	w.sees(texts{"#steps": "Attempts to buy", "#refusals": ""})
	w.show("console-report")
	w.click(`#views [href="#overview"]`)
	w.click("#add")
	w.write("#confirm-value", "x")
	w.click("#confirm-yes")
	w.see("#confirm-error", "")
	w.show("console-ask")
	w.click("#confirm-no")

	w.visit("/console/staff")
	w.has("staff", 1)
	w.write("#staff-name", "olga")
	w.click("#staff-send")
	w.see("#secret", "")
	w.has("staff", 2)
	w.show("console-staff")

	s.rehearsed("0.1.0", "failed")
	s.rehearsed("0.1.0", "passed")
	w.visit("/console/lab")
	w.click("#rehearsals button")
	w.see("#rehearsal-title", "Rehearsal of")
	w.compare(500, 0, 20, "naive", "mutex", "optimistic", "hybrid")
	w.see("#stock-error", "")
	w.show("console-lab")
	w.fill("#stock", "50")
	w.click("#start", "#confirm-yes")
	w.see("#run-title", "Report of")
	w.show("console-lab-report")
	w.mayScroll = 1 // the command is one line, to be copied
	w.click("#run-report")
	w.becomes("the report is open, which the console's own table is not", `location.pathname.startsWith("/lab/reports/") && document.readyState === "complete"`)
	w.see("table", "hybrid")
	w.show("console-lab-full-report")
}
