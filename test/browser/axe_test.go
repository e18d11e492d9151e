package browser

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"time"
)

// axePath is where `make browser` puts axe-core, which judges whether pages can be used without eyes or a mouse. It is
// no part of this project.
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
		w.t.Fatalf("%v: `make browser` fetches it", err)
	}
	js[bool](w, script+";true")
	for _, finding := range js[[]string](w, `axe.run({resultTypes: ["violations"]}).then(({violations}) => violations.flatMap(
		(v) => v.nodes.map((node) => v.impact + " " + v.id + ": " + v.help + ": " + node.html + " " + node.failureSummary)))`) {
		w.t.Errorf("%s: %s", what, finding)
	}
}

// looks are those in which pages are judged: each width, each colour scheme and each language.
var looks = []look{{375, false, "en"}, {1440, true, "zh-CN"}}

func (l look) String() string { return fmt.Sprintf("%d %s dark=%t", l.width, l.language, l.dark) }

// Every page and stage passes axe-core, in light and dark and in both languages.
func TestAccessible(t *testing.T) {
	t.Parallel()
	s := serve(t)
	teapot := s.sale(fields{"limit_per_user": 2})
	gone := s.sale(fields{"title": "Kettle", "quota": 1})
	later := s.sale(fields{"title": "Gaiwan", "starts_at": time.Now().Add(26 * time.Hour), "ends_at": time.Now().Add(50 * time.Hour)})
	s.buy(gone, s.buyer("other"), 1)
	for i, how := range looks {
		t.Run(how.String(), func(t *testing.T) {
			s := *s
			s.t = t
			w := s.open(how)
			w.allow("status of 404")
			w.visit("/")
			w.see(".card", "10")
			w.judge("the sales")
			w.visit("/sales/" + later)
			w.see("#line[data-line=live]", "")
			w.judge("a sale that comes")
			w.visit("/sales/" + gone)
			w.see("#notice", "")
			w.judge("a sale that is sold out")
			w.visit("/sales/" + teapot)
			w.see("#line[data-line=live]", "")
			w.judge("a sale")
			w.click("#button")
			w.write("#name", "x")
			w.click("#account-submit")
			w.see("#name-error", "")
			w.judge("a form with an error")
			w.write("#name", fmt.Sprintf("-buyer-%d", i))
			w.write("#password", buyersPassword)
			w.click("#account-submit")
			w.see("#yours-pay", "")
			w.judge("an order")
			w.click("#yours-cancel")
			w.see("#ask-yes", "")
			w.judge("a question")
			w.click("#ask-no")
			w.visit("/orders")
			w.see(".order .pay", "")
			w.judge("the orders")
			w.click(".order .pay")
			w.see(".payment .amount", "")
			w.judge("a payment")
			w.click(`button[value="pay"]`)
			w.see("a.button", "")
			w.judge("a paid payment")
			w.visit("/sales/NONE")
			w.see("h1", "")
			w.judge("nothing")
			w.visit("/api")
			w.see("h1", "")
			w.judge("the API")
			if wide := w.wide(); len(wide) > 0 {
				t.Errorf("the API's page is wider than the screen: %q", wide)
			}
		})
	}
}

// So does the console.
func TestConsoleAccessible(t *testing.T) {
	t.Parallel()
	s := serve(t)
	sale := s.sale(fields{"limit_per_user": 100})
	ann := s.buyer("ann")
	s.pay(s.buy(sale, ann, 2), ann)
	s.buy(sale, ann, 1)
	for _, how := range looks {
		t.Run(how.String(), func(t *testing.T) {
			s := *s
			s.t = t
			w := s.open(how)
			w.allow("status of 409")
			w.visit("/console")
			w.see("#outside-why", "")
			w.judge("the console, seen from outside")
			w.operate()
			w.see("#sales", "Teapot")
			w.judge("the console")
			w.click("#new")
			w.click("#form-send")
			w.see("#title-error", "")
			w.judge("the form, with mistakes")
			w.visit("/console/sales/" + sale)
			w.see("#line[data-line=live]", "")
			w.see("#verdicts td.n", "")
			w.see("#orders button", "")
			w.judge("a sale in the console")
			w.click("#add")
			w.write("#confirm-value", "x")
			w.click("#confirm-yes")
			w.see("#confirm-error", "")
			w.judge("a question")
			w.visit("/console/lab")
			w.compare(100, 0, 10, "redis", "hybrid")
			w.see("#stock-error", "")
			w.judge("the lab, with a mistake")
			w.fill("#stock", "10")
			w.click("#start")
			w.click("#confirm-yes")
			w.see("#run-report", "")
			w.judge("a report in the lab")
			w.click("#run-report")
			w.see("table", "hybrid")
			w.judge("the full report")
			if wide := w.wide(); how.width < 500 && len(wide) > 1 { // but the command, which is one line to be copied
				t.Errorf("the full report is wider than the screen: %q", wide)
			}
		})
	}
}
