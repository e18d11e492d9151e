package browser

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// A whole purchase by clicks: from the list to the sale, an account on the way, the payment, and back to the order.
func TestPurchase(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.sale(nil)
	w := s.open(phone)
	w.visit("/")
	w.see(".card", "Teapot")
	w.click(".card a")
	w.see("#left", "10 of 10 left")
	w.see("#button", "Buy for ¥9.90")
	w.see("#line", "Live")
	w.click("#button")
	w.register("ann")
	w.see("#yours-title", "Yours until")
	w.see("#yours-more", "left to pay")
	w.see("#left", "9 of 10 left")
	w.see("#account-button", "ann")
	w.click("#yours-pay")
	w.see(".payment .amount", "9.90 CNY")
	w.click(`button[value="pay"]`)
	w.see("[role=status]", "Paid. Thank you")
	w.click("a.button")
	w.see(".order .state", "Paid")
	w.see(".order h2", "Teapot")
	w.see(".order dl", "Paid")
	if w.holds(".order .pay") || w.holds(".order .cancel") {
		t.Error("a paid order can be paid or cancelled")
	}
	w.click(".order h2 a")
	w.see("#yours-title", "Paid. It is yours.")
}

// The same with keys alone.
func TestPurchaseByKeys(t *testing.T) {
	t.Parallel()
	s := serve(t)
	sale := s.sale(nil)
	w := s.open(desktop)
	w.visit("/sales/" + sale)
	w.see("#button", "Buy for")
	tabTo := func(selector string) {
		w.t.Helper()
		for range 30 {
			if js[bool](w, fmt.Sprintf(`document.activeElement.matches(%q)`, selector)) {
				if !js[bool](w, `document.activeElement.matches(":focus-visible")`) {
					t.Errorf("%s: the keyboard can't be seen", selector)
				}
				return
			}
			w.press(kb.Tab)
		}
		t.Fatalf("the keyboard does not reach %s", selector)
	}
	tabTo(".skip")
	tabTo("#button")
	w.press(kb.Enter)
	w.see("#account-title", "Create an account")
	w.press(kb.Escape)
	w.until("the dialog is gone", func() (string, bool) { return "", !w.holds("#account") })
	w.becomes("the keyboard is back where it was", `document.activeElement.id === "button"`)
	w.wakes("#button") // after it has rested for the click
	w.press(kb.Enter)
	w.see("#account-title", "Create an account")
	w.press("ann")
	w.press(kb.Tab)
	w.press(buyersPassword)
	w.press(kb.Enter)
	w.see("#yours-title", "Yours until")
	w.until("the keyboard is at the order", func() (string, bool) {
		got := js[string](w, `document.activeElement.id`)
		return got, got == "yours-title"
	})
	tabTo("#yours-cancel")
	w.press(kb.Enter)
	w.see("#ask-title", "Cancel this order?")
	w.press(kb.Enter) // on the button that keeps it
	w.until("the question is gone", func() (string, bool) { return "", !w.holds("#ask") && !w.grey("#yours-cancel") })
	w.see("#yours-title", "Yours until")
	w.press(kb.Enter)
	w.see("#ask-title", "Cancel this order?")
	w.press(kb.Tab)
	w.press(kb.Enter)
	w.see("#notice", "The order is cancelled")
	w.see("#left", "10 of 10 left")
}

// The button is grey until the start by the server's clock, whatever the device's says; the hidden path is asked for
// only then.
func TestStart(t *testing.T) {
	t.Parallel()
	s := serve(t)
	begins := time.Now().Add(10 * time.Second) // what comes before takes some seconds on a busy machine
	sale := s.sale(fields{"starts_at": begins})
	w := s.open(phone)
	// A device whose clock is a day and an hour ahead. It notes when the button turns, and when a plain timer ends.
	w.must(chromedp.Call(w.ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
		Source: fmt.Sprintf(`{
			const real = Date.now, late = () => real() - %d;
			Date.now = () => real() + 25 * 3600_000;
			setTimeout(() => { window.timerLate = late(); }, -late());
			new MutationObserver(() => {
				if (document.getElementById("button")?.getAttribute("aria-disabled") === "false") window.buttonLate ??= late();
			}).observe(document, {subtree: true, attributeFilter: ["aria-disabled"]});
		}`, begins.UnixMilli()),
	}))
	requests := w.requests()
	w.allow("status of 409") // the page knows the server's clock but for the time that an answer takes, long on a busy machine
	w.visit("/sales/" + sale)
	w.see("#button", "Starts in 00:0")
	if !w.grey("#button") {
		t.Error("the button is live before the start")
	}
	w.see("#early", "Log in now")
	w.click("#early-button")
	w.register("ann")
	w.see("#account-button", "ann")
	w.click("#button")
	if time.Now().Before(begins.Add(-time.Second)) {
		if asked := requests(); strings.Contains(asked, "/path") || strings.Contains(asked, "/orders") {
			t.Errorf("before the start: %s", asked)
		}
	}
	w.wakes("#button")
	w.until("the timer has ended", func() (string, bool) { return "", js[bool](w, `"timerLate" in window`) })
	button, timer := js[int](w, `window.buttonLate`), js[int](w, `window.timerLate`)
	t.Logf("the button turned %d ms after the start, a timer %d ms", button, timer)
	if button < -500 || button > timer+500 {
		t.Errorf("the button turned %d ms after the start; a timer ended %d ms after it", button, timer)
	}
	w.see("#notice", "It has started")
	w.until("the path is asked for", func() (string, bool) { return requests(), strings.Contains(requests(), "/path") })
	w.click("#button")
	w.see("#yours-title", "Yours until")
	if asked := requests(); strings.Count(asked, "/path") > 2 || button >= 0 && strings.Count(asked, "/path") != 1 {
		t.Errorf("the path was asked for too often: %s", asked)
	}
}

// requests begins to note the window's requests and gives what was noted so far.
func (w *window) requests() func() string {
	w.t.Helper()
	w.must(chromedp.Call(w.ctx, network.Enable, network.EnableParams{}))
	var list []string
	events := chromedp.Events(w.ctx, network.RequestWillBeSent)
	go func() {
		for e, err := range events {
			if err != nil {
				return
			}
			w.mu.Lock()
			list = append(list, e.Request.Method+" "+e.Request.URL)
			w.mu.Unlock()
		}
	}()
	return func() string {
		w.mu.Lock()
		defer w.mu.Unlock()
		return strings.Join(list, "\n")
	}
}

// Who hammers on the button buys once a second at most, and while there is no answer not at all.
func TestOneClickASecond(t *testing.T) {
	t.Parallel()
	s := serve(t)
	sale := s.sale(fields{"limit_per_user": 10})
	w := s.open(desktop)
	w.visit("/sales/" + sale)
	w.see("#button", "Buy")
	w.click("#account-button")
	w.register("ann")
	w.see("#account-button", "ann")
	grey := js[bool](w, `{
		const button = document.getElementById("button");
		for (let i = 0; i < 20; i++) button.click();
		button.getAttribute("aria-disabled") === "true";
	}`)
	if !grey {
		t.Error("the button is live right after a click")
	}
	w.see("#yours-title", "Yours until")
	if orders := s.orders("ann"); len(orders) != 1 {
		t.Errorf("%d orders", len(orders))
	}
}

// What one buys, others see without doing anything; and what one gives back, too.
func TestSoldOutLive(t *testing.T) {
	t.Parallel()
	s := serve(t)
	sale := s.sale(fields{"quota": 1})
	ann, ben := s.open(phone), s.open(desktop)
	for _, w := range []*window{ann, ben} {
		w.visit("/sales/" + sale)
		w.see("#line", "Live")
		w.see("#button", "Buy for")
	}
	ann.click("#button")
	ann.register("ann")
	ann.see("#yours-title", "Yours until")

	ben.see("#state", "Sold out")
	ben.see("#left", "0 of 1 left")
	ben.see("#notice", "Keep this page open")
	ben.rests("#button")
	ann.click("#yours-cancel")
	ann.click("#ask-yes")
	ann.see("#notice", "The order is cancelled")

	ben.see("#notice", "It is back: 1 left")
	ben.wakes("#button")
	ben.click("#button")
	ben.register("ben")
	ben.see("#yours-title", "Yours until")
	ann.see("#state", "Sold out")
}

// A no comes with its reason and with what to do.
func TestRefusals(t *testing.T) {
	t.Parallel()
	s := serve(t)
	sale := s.sale(fields{"quota": 3, "limit_per_user": 2})
	w := s.open(phone)
	w.allow("status of 409")
	w.visit("/sales/" + sale)
	w.see("#button", "Buy for ¥9.90")
	w.do(chromedp.SetValue(chromedp.CSS("#quantity"), "2"))
	js[bool](w, `document.getElementById("quantity").dispatchEvent(new Event("change"))`)
	w.see("#button", "Buy for ¥19.80")
	w.click("#button")
	w.register("ann")
	w.see("#yours-amount", "¥19.80")

	ben := s.open(phone)
	ben.allow("status of 409")
	ben.visit("/sales/" + sale)
	ben.see("#left", "1 of 3 left")
	ben.see("#line", "Live") // the scripts are there
	js[bool](ben, `document.getElementById("quantity").value = "2", document.getElementById("quantity").dispatchEvent(new Event("change"))`)
	ben.click("#button")
	ben.register("ben")
	ben.see("#notice", "Only 1 left. Choose fewer.")

	// In another tab Ann has as many as she may.
	token := s.buyer("carol")
	carol := s.open(desktop)
	carol.allow("status of 409")
	carol.visit("/sales/" + sale)
	s.buy(sale, token, 1)
	carol.see("#state", "Sold out")
	s.call("PATCH", "/admin/sales/"+sale, s.operator, fields{"add_quota": 5}, 200)
	carol.see("#left", "5 of 8 left")
	carol.logInAs("carol")
	js[bool](carol, `document.getElementById("quantity").value = "2", document.getElementById("quantity").dispatchEvent(new Event("change"))`)
	carol.click("#button")
	carol.see("#notice", "as many as one buyer may have")
	carol.see("#notice a", "See your orders")

	s.call("POST", "/admin/sales/"+sale+"/pause", s.operator, fields{}, 200)
	carol.see("#state", "Paused")
	carol.see("#notice", "It goes on here by itself")
	s.call("POST", "/admin/sales/"+sale+"/close", s.operator, fields{}, 200)
	carol.see("#state", "Over")
	carol.see("#button", "Over")
}

// A page that is open finds out that the end was put off, at the latest when it would have come.
func TestEndIsPutOff(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ends := time.Now().Add(10 * time.Second)
	sale := s.sale(fields{"ends_at": ends})
	w := s.open(phone)
	w.visit("/sales/" + sale)
	w.see("#line", "Live")
	w.see("#clock", "Ends in 00:0")
	s.call("PATCH", "/admin/sales/"+sale, s.operator, fields{"ends_at": ends.Add(61 * time.Minute)}, 200)
	w.see("#clock", "Ends in 01:0") // 01:01 or 01:00, by when the page looks
	w.see("#button", "Buy for")
	w.wakes("#button")
}

// An order that isn't paid in time says so, and its unit comes back.
func TestExpiry(t *testing.T) {
	t.Parallel()
	s := serve(t, "--pay-grace=0s")
	sale := s.sale(fields{"quota": 1, "pay_timeout_seconds": 5}) // in which the order has to be seen
	w := s.open(phone)
	w.visit("/sales/" + sale)
	w.wakes("#button")
	w.click("#button")
	w.register("ann")
	w.see("#yours-title", "Yours until")
	w.see("#yours-title", "The time to pay is over")
	if w.holds("#yours-pay") {
		t.Error("it can still be paid")
	}
	w.see("#yours-title", "Expired")
	w.see("#left", "1 of 1 left")
	w.click("#yours-back")
	w.see("#button", "Buy for")
	w.wakes("#button")
}

// Texts of the operator's are texts on every page.
func TestMarkupIsText(t *testing.T) {
	t.Parallel()
	s := serve(t)
	const nasty = `<img src=x onerror="document.title='broken in'"><b>bold</b>`
	sale := s.sale(fields{"title": nasty, "description": nasty})
	s.buy(sale, s.buyer("ann"), 1)
	w := s.open(phone)
	w.visit("/")
	w.see(".card h2", nasty)
	w.visit("/sales/" + sale)
	w.see("h1", nasty)
	w.see(".about p", nasty)
	w.logInAs("ann")
	w.visit("/orders")
	w.see(".order h2", nasty)
	if title := js[string](w, `document.title`); strings.Contains(title, "broken in") {
		t.Error(title)
	}
}

// The short link leads to the sale, and can be copied.
func TestShortLink(t *testing.T) {
	t.Parallel()
	s := serve(t)
	sale := s.sale(nil)
	w := s.open(phone)
	w.visit("/sales/" + sale)
	w.see("#line", "Live")
	short := w.text("#short")
	w.click("#copy")
	w.until("the button has answered", func() (string, bool) {
		got := w.text("#copy")
		return got, got == "Copied" || got == "Selected: copy it"
	})
	if got := js[string](w, `getSelection().toString()`); got != short || !strings.Contains(short, "/s/") {
		t.Errorf("%q is selected of %q", got, short)
	}
	w.do(chromedp.Navigate(short))
	w.see("h1", "Teapot")
}
