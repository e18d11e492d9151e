package browsertest

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// axePath is where `make browser` puts axe-core, which judges whether pages can be used without eyes or a mouse. It is
// no part of this project.
const axePath = "../build/axe.min.js"

// Every page and stage passes axe-core, in light and dark and in both languages.
func TestAccessible(t *testing.T) {
	axe, err := os.ReadFile(axePath)
	if err != nil {
		t.Fatalf("%v: `make browser` fetches it", err)
	}
	s := serve(t)
	teapot := s.sale(fields{"limit_per_user": 2})
	gone := s.sale(fields{"title": "Kettle", "quota": 1})
	later := s.sale(fields{"title": "Gaiwan", "starts_at": time.Now().Add(26 * time.Hour), "ends_at": time.Now().Add(50 * time.Hour)})
	s.buy(gone, s.buyer("other"), 1)
	for i, how := range []look{{375, false, "en"}, {375, true, "zh-CN"}, {1440, true, "en"}} {
		t.Run(fmt.Sprintf("%d %s dark=%t", how.width, how.language, how.dark), func(t *testing.T) {
			s := *s
			s.t = t
			w := s.open(how)
			w.allow("status of 404")
			judge := func(what string) {
				t.Helper()
				js[bool](w, string(axe)+";true")
				for _, finding := range js[[]string](w, `axe.run({resultTypes: ["violations"]}).then(({violations}) => violations.flatMap(
					(v) => v.nodes.map((node) => v.impact + " " + v.id + ": " + v.help + ": " + node.html + " " + node.failureSummary)))`) {
					t.Errorf("%s: %s", what, finding)
				}
			}
			w.visit("/")
			w.see(".card", "10")
			judge("the sales")
			w.visit("/sales/" + later)
			w.see("#line[data-line=live]", "")
			judge("a sale that comes")
			w.visit("/sales/" + gone)
			w.see("#notice", "")
			judge("a sale that is sold out")
			w.visit("/sales/" + teapot)
			w.see("#line[data-line=live]", "")
			judge("a sale")
			w.click("#button")
			w.write("#name", "x")
			w.click("#account-submit")
			w.see("#name-error", "")
			judge("a form with an error")
			w.write("#name", fmt.Sprintf("-buyer-%d", i))
			w.write("#password", buyersPassword)
			w.click("#account-submit")
			w.see("#yours-pay", "")
			judge("an order")
			w.click("#yours-cancel")
			w.see("#ask-yes", "")
			judge("a question")
			w.click("#ask-no")
			w.visit("/orders")
			w.see(".order .pay", "")
			judge("the orders")
			w.click(".order .pay")
			w.see(".payment .amount", "")
			judge("a payment")
			w.click(`button[value="pay"]`)
			w.see("a.button", "")
			judge("a paid payment")
			w.visit("/sales/NONE")
			w.see("h1", "")
			judge("nothing")
		})
	}
}
