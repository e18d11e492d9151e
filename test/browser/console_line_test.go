package browser

import (
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"flashsale/test/kit/check"
)

// An operator makes a line by the form, removes a bot's entry, lets calls last longer, and sees how many are used.
func TestConsoleOfALine(t *testing.T) {
	t.Parallel()
	s := serve(t)
	w := s.open(desktop, "/console")
	w.operate()
	w.describe("A line for teapots")
	w.fillTime("#starts_at", time.Now().Add(time.Hour))
	w.fillTime("#ends_at", time.Now().Add(2*time.Hour))
	w.do(chromedp.SendKeys(chromedp.CSS("#mode"), "Line"))
	w.click("#rest summary")
	w.fill("#call_seconds", "4")
	w.click("#form-send")
	w.see("#call_seconds-error", "from 5 to 604,800")
	w.fill("#call_seconds", "300")
	w.click("#form-send")
	w.sees(texts{"#line": "Live", "#tile-entered .value": "0", "#tile-entered .note": "Entries are open", "#tile-no_show .note": "No call has ended yet"})
	w.click(`#views [href="#engine"]`)
	w.see("#tile-gate", "Not used")
	w.click(`#views [href="#overview"]`)
	sale := w.path()[len("/console/sales/"):]

	bot, ann, ben := s.buyer("bot"), s.buyer("ann"), s.buyer("ben")
	for _, token := range []string{bot, ann, ben} {
		s.call("POST", "/sales/"+sale+"/entries", token, fields{}, 201)
	}
	w.see("#tile-waiting .value", "3")
	w.confirm("#void", "The proof of the order names their numbers")
	w.see("#confirm-error", "Two numbers such as 0-99")
	w.write("#confirm-value", "0-0")
	w.click("#confirm-yes")
	w.see("#confirm-error", "A reason of 1 to 200 characters")
	w.write("#confirm-reason", "a known bot")
	w.show("console-void")
	w.click("#confirm-yes")
	w.sees(texts{"#notice": "The entries are removed", "#log": "a known bot"})
	check.Same(t, "the bot's entry", text(s.entry(sale, bot)["state"]), "voided")
	page := s.open(phone, "/sales/"+sale)
	page.wakes("#button")
	page.logInAs("bot")
	page.sees(texts{"#place-title": "Your entry was removed", "#place": "Ask the shop for the reason"})

	s.begin(sale)
	w.sees(texts{"#tile-called .value": "2", "#tile-called .note": "1 not called", "#tile-entered .note": "Buyers are called"})
	w.gone("#void")
	w.confirm("#lengthen", "has so much more time")
	w.see("#notice", "The calls end later")
	w.see("#log", "2 calls end 1m0s later")
	s.buy(sale, ann, 1)
	w.sees(texts{"#tile-no_show .value": "0 %", "#tile-no_show .note": "calls that ended: 1", "#tile-called .value": "1"})
	w.click("#edit")
	w.lacks("#mode")
	w.fill("#call_seconds", "60")
	w.click("#form-send")
	w.see("#log", "call_seconds: 300 -> 60")
	w.show("console-line")
}
