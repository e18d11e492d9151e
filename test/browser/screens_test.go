package browser

import (
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"
)

// Every page and stage, small and wide, light and dark, in both languages: build/screenshots is for people to look at.
func TestScreens(t *testing.T) {
	t.Parallel()
	s := serve(t)
	teapot := s.sale(fields{"title": "The last hundred teapots", "limit_per_user": 2, "quota": 100})
	gone := s.sale(fields{"title": "Enamel kettle, 1.5 litres, in the green that was out for years", "quota": 1, "original_price_cents": 0})
	later := s.sale(fields{"title": "Gaiwan 盖碗", "currency": "EUR", "price_cents": 123456, "starts_at": time.Now().Add(26 * time.Hour), "ends_at": time.Now().Add(50 * time.Hour)})
	others := s.buyer("other")
	s.buy(gone, others, 1)
	for range 18 {
		s.buy(teapot, s.buyer(fmt.Sprintf("crowd-%d", time.Now().UnixNano())), 2)
	}

	w := s.open(desktop)
	w.allow("status of 404", "status of 409", "status of 401")
	w.visit("/")
	w.see(".card", "64 of 100 left")
	w.screens("sales")
	w.visit("/sales/" + later)
	w.see("#button", "Starts in")
	w.see("#line", "Live")
	w.screens("sale-upcoming")
	w.visit("/sales/" + gone)
	w.see("#notice", "Units of unpaid orders come back")
	w.see("#line", "Live")
	w.screens("sale-sold-out")
	w.visit("/sales/" + teapot)
	w.see("#line", "Live")
	w.screens("sale-open")
	w.click("#button")
	w.see("#account-title", "Create an account")
	w.write("#name", "ann.who.has.the.longest.of.names")
	w.write("#password", "short")
	w.click("#account-submit")
	w.see("#password-error", "at least 8")
	w.screens("account")
	w.write("#password", " but longer")
	w.click("#account-submit")
	w.see("#yours-title", "Yours until")
	w.screens("yours")
	w.click("#yours-cancel")
	w.see("#ask", "Cancel this order?")
	w.screens("ask")
	w.click("#ask-no")
	w.visit("/orders")
	w.see(".order", "To be paid")
	w.screens("orders")
	w.click(".order .pay")
	w.see(".payment .amount", "9.90 CNY")
	w.screens("payment")
	w.click(`button[value="pay"]`)
	w.see("[role=status]", "Paid. Thank you")
	w.screens("payment-paid")
	w.visit("/sales/NONE")
	w.see("h1", "nothing here")
	w.screens("missing")
}

// full is set by `make browser`: pages are shown in every look, in `make test` as a phone shows them by day.
var full = os.Getenv("SCREENS") == "full"

// screens keeps the page as it is in every look. On a phone, nothing may have to be scrolled sideways.
func (w *window) screens(name string) {
	w.t.Helper()
	for _, language := range []string{"en", "zh"} {
		js[bool](w, fmt.Sprintf(`document.querySelector("button.language[value=%s]")?.click() ?? (document.documentElement.lang = %q), document.querySelector(".language:focus")?.blur(), true`, language, language))
		for _, dark := range []bool{false, true} {
			for _, width := range []int64{375, 1440} {
				if !full && (dark || width != 375) {
					continue
				}
				w.like(look{width: width, dark: dark, language: "en-GB"})
				scheme := map[bool]string{false: "light", true: "dark"}[dark]
				w.shot(fmt.Sprintf("%s-%d-%s-%s", name, width, scheme, language))
				if wide := w.wide(); width < 500 && len(wide) > 0 {
					w.t.Errorf("%s, %s: wider than the screen: %q", name, language, wide)
				}
			}
		}
	}
	w.like(desktop)
	js[bool](w, `document.querySelector("button.language[value=en]")?.click() ?? (document.documentElement.lang = "en"), true`)
}

// wide lists what has to be scrolled sideways to be read.
func (w *window) wide() []string {
	w.t.Helper()
	return js[[]string](w, `[...document.querySelectorAll("*")].filter((e) => e.checkVisibility() && e.scrollWidth > e.clientWidth &&
		(e === document.documentElement || ["auto", "scroll"].includes(getComputedStyle(e).overflowX))).map((e) => e.outerHTML.slice(0, 100))`)
}

// trade buys a unit some times a second, also when nothing is left, and pays each third.
func (s *server) trade(saleID, token string, attempts int) {
	s.t.Helper()
	path := text(s.call("POST", "/sales/"+saleID+"/path", token, fields{}, http.StatusOK)["path"])
	for i := range attempts {
		status, order := s.try("POST", "/sales/"+saleID+"/"+path+"/orders", token, fields{"quantity": 1})
		if status == http.StatusCreated && i%3 == 0 {
			s.pay(text(order["id"]), token)
		}
		time.Sleep(time.Duration(20+i%7*15) * time.Millisecond) // the pace of a small sale
	}
}

// The same of the console.
func TestConsoleScreens(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.sale(fields{"title": "Enamel kettle", "starts_at": time.Now().Add(-50 * time.Hour), "quota": 1})
	s.sale(fields{"title": "Gaiwan 盖碗", "currency": "EUR", "price_cents": 123456, "starts_at": time.Now().Add(26 * time.Hour), "ends_at": time.Now().Add(50 * time.Hour)})
	teapot := s.sale(fields{"title": "The last hundred teapots", "limit_per_user": 500, "quota": 100})
	w := s.open(desktop)
	w.allow("status of 409")
	w.visit("/console")
	w.see("#outside-why", "")
	w.screens("console-outside")
	w.operate()
	w.see("#sales", "Gaiwan")
	w.see("#instances", "hybrid")
	w.screens("console")
	w.click("#new")
	w.write("#title", "A teapot that will never be sold at this price")
	w.write("#price_cents", "12.505")
	w.click("#form-send")
	w.see("#price_cents-error", "")
	w.screens("console-form")
	w.visit("/console/sales/" + teapot)
	w.see("#line", "Live")
	attempts := 180
	if !full {
		attempts = 40
	}
	s.trade(teapot, s.buyer("ann"), attempts)
	w.see("#orders", "Paid")
	w.screens("console-sale")
	w.click("#add")
	w.write("#confirm-value", "50")
	w.screens("console-ask")
	w.click("#confirm-no")

	w.visit("/console/lab")
	w.see("#strategies", "hybrid")
	w.screens("console-lab")
	w.compare(500, 50, 20, "naive", "mutex", "optimistic", "hybrid")
	w.click("#confirm-yes")
	w.see("#run-title", "Report of")
	w.screens("console-lab-report")
}
