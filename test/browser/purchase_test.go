package browser

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"flashsale/test/kit/check"
	"flashsale/test/kit/pace"
)

// A whole purchase by clicks: the list, the sale, an account, the payment, and back to the order.
func TestPurchase(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.sale(nil)
	w := s.open(phone, "/")
	w.see(".card", "Teapot")
	w.click(".card a")
	w.sees(texts{"#left": "10 of 10 left", "#button": "Buy for ¥9.90", "#line": "Live"})
	w.buyAs("ann")
	w.sees(texts{"#yours-title": "Yours until", "#yours-more": "left to pay", "#left": "9 of 10 left", "#account-button": "ann"})
	w.click("#yours-pay")
	w.see(".payment .amount", "9.90 CNY")
	w.click(`button[value="pay"]`)
	w.see("[role=status]", "Paid. Thank you")
	w.click("a.button")
	w.sees(texts{".order .state": "Paid", ".order h2": "Teapot", ".order dl": "Paid"})
	w.lacks(".order .pay", ".order .cancel")
	w.click(".order h2 a")
	w.see("#yours-title", "Paid. It is yours.")
}

// The same purchase, and a cancellation, by keys alone.
func TestPurchaseByKeys(t *testing.T) {
	t.Parallel()
	s := serve(t)
	w := s.open(desktop, "/sales/"+s.sale(nil))
	w.see("#button", "Buy for")
	w.wakes("#button") // by the scripts of the page
	tabTo := func(selector string) {
		w.t.Helper()
		for range 30 {
			if js[bool](w, fmt.Sprintf(`document.activeElement.matches(%q)`, selector)) {
				check.Same(t, selector+" shows its focus", js[bool](w, `document.activeElement.matches(":focus-visible")`), true)
				return
			}
			w.press(kb.Tab)
		}
		t.Fatalf("the tab key does not reach %s", selector)
	}
	tabTo(".skip")
	tabTo("#button")
	w.press(kb.Enter)
	w.see("#account-title", "Create an account")
	w.press(kb.Escape)
	w.gone("#account")
	w.focused("button")
	w.wakes("#button") // it rests after a click
	w.press(kb.Enter)
	w.see("#account-title", "Create an account")
	w.press("ann", kb.Tab, buyersPassword, kb.Enter)
	w.see("#yours-title", "Yours until")
	w.focused("yours-title")
	tabTo("#yours-cancel")
	w.press(kb.Enter)
	w.see("#ask-title", "Cancel this order?")
	w.press(kb.Enter) // on the button that keeps the order
	w.gone("#ask")
	w.wakes("#yours-cancel")
	w.see("#yours-title", "Yours until")
	w.press(kb.Enter)
	w.see("#ask-title", "Cancel this order?")
	w.press(kb.Tab, kb.Enter)
	w.sees(texts{"#notice": "The order is cancelled", "#left": "10 of 10 left"})
}

// On a small phone and at 200% zoom, the button to buy is in sight on every page, and so is the button to pay after the purchase.
func TestButtonIsInSight(t *testing.T) {
	t.Parallel()
	s := serve(t)
	long := fields{
		"title":       "Enamel kettle, 1.5 litres, in the green that was out for years, with a lid of beech and a long spout",
		"description": strings.Repeat("Keeps tea warm for an hour.\n", 40), "limit_per_user": 3,
	}
	made := func(changes fields) string {
		all := maps.Clone(long)
		maps.Copy(all, changes)
		return "/sales/" + s.sale(all)
	}
	var sizes []fields
	for n := range 64 {
		sizes = append(sizes, fields{"variant": fmt.Sprintf("EU %d", 20+n), "quota": 5, "price_cents": 19900})
	}
	later := fields{"starts_at": time.Now().Add(time.Hour), "ends_at": time.Now().Add(2 * time.Hour)}
	queue := func(mode string) fields {
		all := maps.Clone(later)
		all["mode"] = mode
		return all
	}
	campaign, _ := s.campaign(fields{"sales": sizes})
	lined := queue("line")
	lined["sales"] = sizes
	campaignLine, _ := s.campaign(lined)
	w := s.open(phone, "")
	for path, button := range map[string]string{
		made(nil): "Buy for", made(later): "Starts in", made(queue("line")): "Enter the line", made(queue("draw")): "Enter the draw",
		"/campaigns/" + campaign: "Choose one first", "/campaigns/" + campaignLine: "Enter the line",
	} {
		w.visit(path)
		w.sees(texts{"#button": button, "#line": "Live"})
		w.inSight("#button")
	}
	w.visit(made(nil))
	w.buyAs("ann")
	w.see("#yours-title", "Yours until")
	w.do(chromedp.EmulateViewport(375, 553, chromedp.EmulateMobile, chromedp.EmulateTouch))
	w.see("#yours-pay", "Pay")
	w.becomes("the button to pay is in sight", `(({ top, bottom }) => top >= 0 && bottom <= innerHeight)(document.querySelector("#yours-pay").getBoundingClientRect())`)
}

// inSight checks that a button can be clicked without scrolling on small phones, and on a desktop at 200% and 400% zoom.
func (w *window) inSight(selector string) {
	w.t.Helper()
	for _, size := range [][2]int64{{375, 553}, {320, 480}, {720, 450}, {360, 225}} {
		w.do(chromedp.EmulateViewport(size[0], size[1]))
		w.becomes(fmt.Sprintf("%s is in sight at %v", selector, size), fmt.Sprintf(`(() => {
			const button = document.querySelector(%q);
			const { top, bottom, left, width } = button.getBoundingClientRect();
			return scrollY === 0 && top >= 0 && bottom <= innerHeight && document.elementFromPoint(left + width / 2, (top + bottom) / 2) === button;
		})()`, selector))
	}
}

// Buyers choose how many while units can be bought, a free unit is not bought "for 0.00", and times have a zone.
func TestWordsOfTheButton(t *testing.T) {
	t.Parallel()
	s := serve(t, "--payment=handoff", "--checkout-url=https://shop.example/checkout") // the sandbox takes no free orders
	free := s.sale(fields{"price_cents": 0, "original_price_cents": 0, "limit_per_user": 2})
	w := s.open(phone, "/sales/"+free)
	w.sees(texts{"#button": "Get it for free", "#choice": "How many"})
	s.act("pause", free)
	w.see("#button", "Paused")
	w.lacks("#choice")
	s.act("resume", free)
	w.see("#choice", "How many")
	w.buyAs("ann")
	w.see("#yours-pay", "Confirm the order")
	w.visit("/orders")
	w.see(".order .pay", "Confirm the order")
	w.see(".order dl", "GMT+8")
	w.speak("zh")
	w.see(".order .pay", "确认订单")

	w.visit("/sales/" + s.sale(fields{"starts_at": time.Now().Add(time.Hour), "ends_at": time.Now().Add(2 * time.Hour), "limit_per_user": 2}))
	w.speak("en")
	w.sees(texts{"#clock": "GMT+8", "#button": "Starts in"})
	w.lacks("#choice")
}

// The button is grey until the start by the server's clock, whatever the clock of the device shows. The page requests
// the hidden path only then.
func TestStart(t *testing.T) {
	t.Parallel()
	pace.Try(t, func(t *pace.Trial) {
		s := serve(t)
		begins := time.Now().Add(soon(t, 10*time.Second)) // the steps before the start take some seconds on a busy machine
		sale := s.sale(fields{"starts_at": begins})
		// The page knows the server's clock only to the time that an answer takes, so a purchase may come too early.
		w := s.open(phone, "", "status of 409")
		// The device's clock is 25 hours ahead. The script notes when the button wakes, and when a plain timer ends.
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
		w.visit("/sales/" + sale)
		w.see("#button", "Starts in 00:")
		grey := w.grey("#button")
		early(t, begins)
		check.Same(t, "the button is grey before the start", grey, true)
		w.see("#early", "Log in now")
		w.click("#early-button")
		w.register("ann")
		w.see("#account-button", "ann")
		w.click("#button")
		asked := requests()
		early(t, begins.Add(-time.Second))
		if strings.Contains(asked, "/path") || strings.Contains(asked, "/orders") {
			t.Errorf("before the start: %s", asked)
		}
		w.wakes("#button")
		w.becomes("the timer has ended", `"timerLate" in window`)
		button, timer := js[int](w, `window.buttonLate`), js[int](w, `window.timerLate`)
		t.Logf("the button woke %d ms after the start, a timer ended %d ms after it", button, timer)
		if button < -500 || button > timer+500 {
			t.FatalSlowf("the button woke %d ms after the start; a timer ended %d ms after it", button, timer)
		}
		w.see("#notice", "It has started")
		w.until("the path is requested", func() (string, bool) { return requests(), strings.Contains(requests(), "/path") })
		w.click("#button")
		w.see("#yours-title", "Yours until")
		if asked = requests(); strings.Count(asked, "/path") > 2 || button >= 0 && strings.Count(asked, "/path") != 1 {
			t.Errorf("the path was requested too often: %s", asked)
		}
	})
}

// requests starts a record of the window's requests, and returns a function that returns the record so far.
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

// Twenty clicks at once make one order: the button rests for a second, and until the answer.
func TestOneClickASecond(t *testing.T) {
	t.Parallel()
	s := serve(t)
	w := s.open(desktop, "/sales/"+s.sale(fields{"limit_per_user": 10}))
	w.signUp("ann")
	check.Same(t, "the button is grey right after a click", js[bool](w, `{
		const button = document.getElementById("button");
		for (let i = 0; i < 20; i++) button.click();
		button.getAttribute("aria-disabled") === "true";
	}`), true)
	w.see("#yours-title", "Yours until")
	s.hasOrders("ann", 1)
}

// When a buyer takes the last unit, or gives it back, other buyers' pages show it at once.
func TestSoldOutLive(t *testing.T) {
	t.Parallel()
	s := serve(t)
	sale := s.sale(fields{"quota": 1})
	ann, ben := s.open(phone, "/sales/"+sale), s.open(desktop, "/sales/"+sale)
	for _, w := range []*window{ann, ben} {
		w.sees(texts{"#line": "Live", "#button": "Buy for"})
	}
	ann.buyAs("ann")
	ann.see("#yours-title", "Yours until")
	ben.sees(texts{"#state": "Sold out", "#left": "0 of 1 left", "#notice": "Keep this page open"})
	ben.rests("#button")

	ann.click("#yours-cancel", "#ask-yes")
	ann.see("#notice", "The order is cancelled")
	ben.see("#notice", "It is back: 1 left")
	ben.buyAs("ben")
	ben.see("#yours-title", "Yours until")
	ann.see("#state", "Sold out")
}

// chooseTwo sets the quantity to two.
func (w *window) chooseTwo() {
	w.t.Helper()
	js[bool](w, `document.getElementById("quantity").value = "2",
		document.getElementById("quantity").dispatchEvent(new Event("change"))`)
}

// A refusal is shown with its reason and with what the buyer can do.
func TestRefusals(t *testing.T) {
	t.Parallel()
	s := serve(t)
	sale := s.sale(fields{"quota": 3, "limit_per_user": 2})
	at := "/sales/" + sale
	ann := s.open(phone, at)
	ann.sees(texts{"#button": "Buy for ¥9.90", "#line": "Live"})
	ann.chooseTwo()
	ann.see("#button", "Buy for ¥19.80")
	ann.buyAs("ann")
	ann.see("#yours-amount", "¥19.80")

	ben := s.open(phone, at, "status of 409")
	ben.sees(texts{"#left": "1 of 3 left", "#line": "Live"})
	ben.chooseTwo()
	ben.buyAs("ben")
	ben.see("#notice", "Only 1 left. Choose fewer.")

	token := s.buyer("carol")
	carol := s.open(desktop, at, "status of 409")
	s.buy(sale, token, 1) // as in another tab
	carol.see("#state", "Sold out")
	s.call("PATCH", "/admin"+at, s.operator, fields{"add_quota": 5}, http.StatusOK)
	carol.see("#left", "5 of 8 left")
	carol.logInAs("carol")
	carol.chooseTwo()
	carol.click("#button")
	carol.sees(texts{"#notice": "as many as one buyer may have", "#notice a": "See your orders"})

	s.act("pause", sale)
	carol.sees(texts{"#state": "Paused", "#notice": "It goes on here by itself"})
	s.act("close", sale)
	carol.sees(texts{"#state": "Over", "#button": "Over"})
}

// An open page shows a later end, at the latest when the former end has come.
func TestEndIsPutOff(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ends := time.Now().Add(50 * time.Second) // the page shows a change at once
	sale := s.sale(fields{"ends_at": ends})
	w := s.open(phone, "/sales/"+sale)
	w.sees(texts{"#line": "Live", "#clock": "Ends in 00:"})
	s.call("PATCH", "/admin/sales/"+sale, s.operator, fields{"ends_at": ends.Add(61 * time.Minute)}, http.StatusOK)
	w.see("#clock", "Ends in 01:0") // 01:01 or 01:00, depending on when the page asks
	w.see("#button", "Buy for")
	w.wakes("#button")
}

// The page says that an order has expired, and its unit is for sale again.
func TestExpiry(t *testing.T) {
	t.Parallel()
	pace.Try(t, func(t *pace.Trial) {
		s := serve(t, "--pay-grace=0s")
		w := s.open(phone, "/sales/"+s.sale(fields{"quota": 1, "pay_timeout_seconds": soon(t, 5*time.Second).Seconds()})) // enough to see the order
		w.buyAs("ann")
		w.see("#yours-title", "Yours until")
		w.see("#yours-title", "The time to pay is over")
		w.lacks("#yours-pay")
		w.sees(texts{"#yours-title": "Expired", "#left": "1 of 1 left"})
		w.click("#yours-back")
		w.see("#button", "Buy for")
		w.wakes("#button")
	})
}

// nasty is a text that would change a page that took it for markup.
const nasty = `<img src=x onerror="document.title='broken in'"><b>bold</b>`

// Texts of the operator and searched texts are texts on every page, and not markup.
func TestMarkupIsText(t *testing.T) {
	t.Parallel()
	s := serve(t)
	sale := s.sale(fields{"title": nasty, "description": nasty})
	s.buy(sale, s.buyer("ann"), 1)
	w := s.open(phone, "/")
	harmless := func() {
		t.Helper()
		is := js[bool](w, `document.title === "broken in" || document.querySelector("main b, main img[src=x]") !== null`)
		check.Same(t, w.path()+": a text is taken for markup", is, false)
	}
	w.see(".card h2", nasty)
	harmless()
	w.visit("/sales/" + sale)
	w.sees(texts{"h1": nasty, ".about p": nasty})
	harmless()
	w.logInAs("ann")
	w.visit("/orders")
	w.see(".order h2", nasty)
	harmless()

	w = s.open(desktop, "/console")
	w.operate()
	w.see("#sales", nasty)
	w.click("#sales a")
	w.sees(texts{"h1": nasty, "#log": "onerror"})
	w.click("#edit")
	w.keeps(texts{"#title": nasty, "#description": nasty})
	w.click("#form-leave")
	w.write("#q", nasty)
	w.press(kb.Enter)
	w.see("#orders-told", "No order fits")
	harmless()
	check.Same(t, "path", w.path(), "/console/sales/"+sale)
}

// The short link leads to the sale, and can be copied.
func TestShortLink(t *testing.T) {
	t.Parallel()
	s := serve(t)
	w := s.open(phone, "/sales/"+s.sale(nil))
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

// A picture that can't be loaded is replaced, on each page that shows it.
func TestMissingPicture(t *testing.T) {
	t.Parallel()
	s := serve(t)
	sale := s.sale(fields{"image_url": "/none.png"})
	w := s.open(phone, "/", "status of 404")
	for _, page := range []string{"/", "/sales/" + sale} {
		w.visit(page)
		w.becomes("the pictures of "+page, `[...document.images].every((i) => i.naturalWidth > 0) && document.querySelector("img[src*=picture]") !== null`)
	}
}

// An order that is to be paid is shown wherever its buyer is: in a tab that was open, in a new one, and in the head of each page.
func TestUnpaidOrderIsShownEverywhere(t *testing.T) {
	t.Parallel()
	s := serve(t)
	sale := s.sale(nil)
	w := s.open(phone, "/sales/"+sale)
	w.signUp("ann")
	other := s.tab(w, phone, "/sales/"+sale)
	other.see("#button", "Buy")
	other.lacks("#unpaid")
	w.click("#button")
	w.sees(texts{"#yours-title": "Yours until", "#unpaid": "1 to pay"})
	other.sees(texts{"#yours-title": "Yours until", "#yours-pay": "Pay", "#unpaid": "1 to pay"})
	third := s.tab(w, phone, "/")
	third.see("#unpaid", "1 to pay")
	third.visit("/sales/" + sale)
	third.see("#yours-title", "Yours until")
	w.visit("/orders")
	w.click(".order .pay", `button[value="pay"]`)
	w.see("[role=status]", "Paid. Thank you")
	w.click("a.button")
	w.see(".order .state", "Paid")
	w.gone("#unpaid")
	third.gone("#unpaid")
}
