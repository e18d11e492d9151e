package browser

import (
	"encoding/csv"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	downloads "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"flashsale/test/kit/check"
	"flashsale/test/kit/shop"
)

// fillTime types a moment in the windows' time zone into a field, as Chromium expects it.
func (w *window) fillTime(selector string, at time.Time) {
	w.t.Helper()
	at = at.In(time.FixedZone("Asia/Shanghai", 8*3600))
	w.write(selector, at.Format("01022006")+kb.Tab+at.Format("0304PM"))
}

func (w *window) path() string {
	w.t.Helper()
	return js[string](w, `location.pathname`)
}

// has waits until a table has a number of rows.
func (w *window) has(id string, rows int) {
	w.t.Helper()
	w.becomes(fmt.Sprintf("%s has %d rows", id, rows), fmt.Sprintf(`document.getElementById(%q).rows.length === %d`, id, rows))
}

// describe fills in the form of a sale as far as necessary.
func (w *window) describe(title string) {
	w.t.Helper()
	w.click("#new")
	w.write("#title", title)
	w.write("#price_cents", "1")
	w.write("#quota", "3")
}

// The life of a sale in the console, while a buyer watches and buys.
func TestConsole(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ann := s.buyer("ann")
	w := s.open(desktop, "/", "status of 401", "status of 400")
	w.click("footer a")
	w.see("#outside-why", "Log in as the operator")
	w.lacks("#desk")
	w.click("#outside-enter")
	w.see("#account-title", "Log in")
	w.enter("ann", buyersPassword)
	w.see("#outside-why", "ann is a buyer's account. The console needs an account that may look")
	w.lacks("#desk")
	w.click("#account-button", "#account-out")
	w.see("#outside-why", "Log in as the operator")
	w.operate()
	w.sees(texts{"#sales-title": "Sales and campaigns", "#sales": "There is no sale yet", "#instances": "hybrid"})

	sale := w.create()
	w.sees(texts{"#line": "Live", "#tile-available .value": "20", "#tile-time .note": "until the end"})
	w.lacks("#tile-gate", "#stages", "#instances")
	buyer := s.open(phone, "/sales/"+sale)
	buyer.see("#line", "Live")
	buyer.buyAs("ben")
	buyer.see("#yours-pay", "¥12.50")
	w.sees(texts{
		"#tile-available .value": "19", "#tile-held .value": "1", "#tile-sold .value": "1", "#tile-revenue .value": "¥0.00",
		"#tile-revenue .note": "¥12.50 to be paid", "#verdicts": "Sold", "#books": "To be paid\t1\t1", "#orders .state": "To be paid",
	})
	buyer.click("#yours-pay", `button[value="pay"]`)
	buyer.see("[role=status]", "Paid. Thank you")
	w.sees(texts{"#tile-paid .value": "1", "#tile-revenue .value": "¥12.50", "#orders .state": "Paid"})
	w.becomes("the short link has a picture", `document.getElementById("qr").naturalWidth > 0 &&
		document.getElementById("qr-download").download.endsWith(".svg")`)

	buyer.visit("/sales/" + sale)
	buyer.see("#line", "Live")
	buyer.click("#yours-back")
	w.pauseByKeys(buyer)
	w.changeTerms(buyer, sale)

	// Only the fields that were changed are sent.
	w.click("#edit")
	w.see("#form-title", "Edit the sale")
	w.lacks("#price_cents", "#quota")
	w.fill("#title", "Two teapots")
	w.click("#form-send")
	w.sees(texts{"h1": "Two teapots", "#log": `"The last teapots" -> "Two teapots"`})
	for _, action := range []string{"Paused", "Resumed", "Created"} {
		w.see("#log", action)
	}

	w.findOrders(s, sale, ann)
	w.seesEngine()

	w.confirm("#close", "it cannot be opened again")
	w.see("#state", "Over")
	buyer.see("#state", "Over")
	w.gone("#pause", "#resume", "#add", "#extend", "#close")
	w.see("#log", "Closed")
	w.click(".bar nav a")
	w.sees(texts{"#sales": "Two teapots", "#sales .state": "Over"})
}

// seesEngine looks at the view for engineers, which a reload keeps, and goes back to the overview.
func (w *window) seesEngine() {
	w.t.Helper()
	w.click(`#views [href="#engine"]`)
	w.gone("#owner", "#orders", "#stock-chart") // the browser tells the page of the fragment after the click
	engine := texts{"#tile-gate .value": "Open", "#tile-drift .value": "0", "#tile-drift .note": "the books balance", "#stages": "deduct", "#instances": "hybrid"}
	w.sees(engine)
	js[bool](w, `location.reload(), true`)
	w.sees(engine)
	w.lacks("#owner", "#unbalanced")
	js[bool](w, `history.back(), true`)
	w.sees(texts{"#owner": "Revenue", "#stock-chart .legend": "Available"})
	w.gone("#engine")
}

// create makes a sale by the form, with mistakes at first, and returns its id.
func (w *window) create() string {
	w.t.Helper()
	w.click("#new")
	w.see("#zone", "Asia/Shanghai (UTC+08:00)")
	w.click("#rest summary")
	typed := texts{
		"#title": "The last teapots", "#description": "Cast iron.", "#image_url": "http://example.com/teapot.jpg",
		"#price_cents": "12.505", "#original_price_cents": "10", "#quota": "twenty",
	}
	for selector, text := range typed {
		w.write(selector, text)
	}
	w.fill("#limit_per_user", "2")
	w.fillTime("#starts_at", time.Now().Add(time.Hour))
	w.fillTime("#ends_at", time.Now())
	w.click("#form-send")
	w.sees(texts{
		"#image_url-error": "https://", "#price_cents-error": "An amount such as 12.50",
		"#quota-error": "A whole number from 1 to 100,000,000", "#ends_at-error": "The end must come after the start",
	})
	w.focused("price_cents") // the first field with a mistake
	w.becomes("the field is marked", `document.activeElement.getAttribute("aria-invalid") === "true"`)
	w.keeps(typed)
	w.keeps(texts{"#limit_per_user": "2"})

	w.fill("#price_cents", "12.50")
	w.fill("#quota", "20")
	w.fillTime("#starts_at", time.Now().Add(-time.Hour))
	w.fillTime("#ends_at", time.Now().Add(time.Hour))
	w.fill("#image_url", "https://example.com/%zz") // an address for the browser, but not for the server
	w.click("#form-send")
	w.see("#original_price_cents-error", "more than the price")
	w.lacks("#price_cents-error", "#quota-error", "#ends_at-error")
	w.fill("#original_price_cents", "49.9")
	w.click("#form-send")
	w.see("#image_url-error", "500") // the server's own words
	kept := texts{"#title": "The last teapots", "#original_price_cents": "49.9", "#quota": "20"}
	w.keeps(kept)

	// Neither a reload nor an expired log-in loses what was typed.
	w.visit("/console")
	w.see("#form-title", "New sale")
	w.keeps(kept)
	w.fill("#image_url", "")
	w.clickLoggedOut("#form-send")
	w.see("#account-reason", "Your log-in is over")
	w.write("#password", shop.OperatorPassword)
	w.click("#account-submit")
	w.see("h1", "The last teapots")
	return w.path()[strings.LastIndex(w.path(), "/")+1:]
}

// pauseByKeys pauses and resumes a sale by keys. Each action asks a question, whose first button changes nothing.
func (w *window) pauseByKeys(buyer *window) {
	w.t.Helper()
	w.focus("#pause")
	w.press(kb.Enter)
	w.see("#confirm-more", "nobody can buy until you resume")
	w.press(kb.Enter)
	w.gone("#confirm")
	w.see("#state", "On sale now")
	w.press(kb.Enter)
	w.see("#confirm-title", "Pause the sale?")
	w.press(kb.Tab, kb.Enter)
	w.sees(texts{"#state": "Paused", "#notice": "The sale is paused"})
	buyer.see("#state", "Paused")
	buyer.rests("#button")
	w.focused("resume") // which has replaced Pause
	w.press(kb.Enter)
	w.see("#confirm-more", "19 units are available")
	w.press(kb.Tab, kb.Enter)
	w.see("#state", "On sale now")
	buyer.see("#state", "On sale now")
}

// changeTerms adds stock and puts the end off, after a mistake in each.
func (w *window) changeTerms(buyer *window, sale string) {
	w.t.Helper()
	w.click("#add")
	w.see("#confirm-hint", "The quota is 20")
	w.write("#confirm-value", "0")
	w.click("#confirm-yes")
	w.see("#confirm-error", "A whole number from 1")
	w.fill("#confirm-value", "5")
	w.see("#confirm-hint", "The quota of 20 becomes 25")
	w.click("#confirm-yes")
	w.see("#tile-available .note", "of 25")
	buyer.see("#left", "24 of 25 left")

	w.click("#extend")
	w.fillTime("#confirm-value", time.Now().Add(-48*time.Hour))
	w.click("#confirm-yes")
	w.see("#confirm-error", "The end must come after the start") // the server's refusal
	w.fillTime("#confirm-value", time.Now().Add(50*time.Hour))
	w.click("#confirm-yes")
	w.see("#notice", "The end is changed")
	buyer.visit("/sales/" + sale)
	buyer.see("#clock", "2 d")
}

// findOrders finds an order, refunds an order and reads the file of all orders.
func (w *window) findOrders(s *server, sale, ann string) {
	w.t.Helper()
	mine, carol := s.buy(sale, ann, 2), s.buyer("carol")
	s.pay(s.buy(sale, carol, 1), carol)

	w.write("#q", "nobody")
	w.press(kb.Enter)
	w.see("#orders-told", "No order fits")
	w.fill("#q", mine)
	w.press(kb.Enter)
	w.see("#orders", mine)
	w.has("orders", 1)
	w.see("#orders", "¥25.00")
	w.fill("#q", "")
	w.do(chromedp.SendKeys(chromedp.CSS("#status"), "Paid"))
	w.has("orders", 2)

	w.confirm("#orders tr:first-child button", "¥12.50 go back to")
	w.sees(texts{"#orders tr:first-child .state": "Refunded", "#tile-paid .value": "1", "#log": "Refunded"})

	js[bool](w, `document.getElementById("status").value = "", document.getElementById("status").dispatchEvent(new Event("change"))`)
	w.has("orders", 3)
	lines := w.download("orders-"+sale+".csv", "#csv", "#csv-told")
	if all := fmt.Sprint(lines); len(lines) != 4 || lines[0][0] != "order_id" || !strings.Contains(all, mine) || !strings.Contains(all, "refunded") {
		w.t.Errorf("the file holds %q", lines)
	}
}

// download clicks on a button that saves a file in CSV, waits for an element to say that it is saved, and returns its rows.
func (w *window) download(name, button, told string) (lines [][]string) {
	w.t.Helper()
	folder := w.t.TempDir()
	w.must(chromedp.CallBrowser(w.ctx, downloads.SetDownloadBehavior, downloads.SetDownloadBehaviorParams{
		Behavior: downloads.SetDownloadBehaviorBehaviorAllow, DownloadPath: folder,
		BrowserContextID: chromedp.FromContext(w.ctx).BrowserContextID,
	}))
	w.click(button)
	w.see(told, "is downloaded")
	w.until("the file is there", func() (string, bool) {
		content, err := os.ReadFile(filepath.Join(folder, name))
		if err == nil {
			lines, err = csv.NewReader(strings.NewReader(strings.TrimPrefix(string(content), "\ufeff"))).ReadAll() // which Excel needs
		}
		return fmt.Sprint(err), err == nil && len(lines) > 0
	})
	return lines
}

// An operator makes an account for support, which may refund an order but not change a sale, and a key. Both are removed.
func TestConsoleStaff(t *testing.T) {
	t.Parallel()
	s := serve(t)
	sale, ann := s.sale(nil), s.buyer("ann")
	s.pay(s.buy(sale, ann, 1), ann)
	w := s.open(desktop, "/console/staff", "status of 401", "status of 409")
	w.see("#outside-why", "Log in as the operator")
	w.operate()
	w.has("staff", 1)
	w.write("#staff-name", "admin")
	w.click("#staff-send")
	w.see("#staff-error", "Somebody has this name already")
	w.fill("#staff-name", "olga")
	w.do(chromedp.SendKeys(chromedp.CSS("#staff-role"), "Support"))
	w.click("#staff-send")
	w.see("#made-title", "The secret of olga")
	password := w.text("#secret")
	w.has("staff", 2)

	olga := s.open(phone, "/console", "status of 401")
	olga.click("#outside-enter")
	olga.see("#account-title", "Log in")
	olga.enter("olga", password)
	olga.see("#sales", "Teapot")
	olga.gone("#new")
	olga.visit("/console/sales/" + sale)
	olga.see("#line", "Live")
	olga.gone("#actions")
	olga.confirm("#orders tr:first-child button", "¥9.90 go back to")
	olga.see("#orders tr:first-child .state", "Refunded")
	olga.see("#log", "operator:olga")

	w.confirm("#staff tr:last-child button:last-child", "olga is refused everywhere")
	w.has("staff", 1)
	w.see("#log", "operator:olga")
	olga.visit("/console")
	olga.see("#outside-why", "Log in")
	w.write("#staff-name", "checkout")
	w.do(chromedp.SendKeys(chromedp.CSS("#staff-kind"), "Key"))
	w.click("#staff-send")
	w.see("#secret", "fs_checkout_")
	first := w.text("#secret")
	w.confirm("#staff tr:last-child button:first-child", "password or key of checkout")
	w.becomes("the key is another", fmt.Sprintf(`document.getElementById("secret").textContent !== %q && !document.getElementById("confirm").open`, first))
	w.confirm("#staff tr:last-child button:last-child", "checkout is refused")
	w.has("staff", 1)
}

// The console says when its figures are not live, and when the outcome of a change is unknown. It connects again, and
// the dialog keeps what was typed.
func TestConsoleHeals(t *testing.T) {
	t.Parallel()
	s, road := roadTo(t)
	sale := s.sale(nil)
	w := s.open(desktop, "/console/sales/"+sale, brokenRoad...)
	w.operate()
	w.sees(texts{"#line": "Live", "#tile-available .value": "10", "#books": "Paid"}) // the first figures have come
	road.closed(func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/api/") })
	w.see("#line", "Not live since")
	w.becomes("the old figures are greyed out", `document.getElementById("figures").matches(".stale")`)
	road.free()
	s.buy(sale, s.buyer("ben"), 1)
	w.sees(texts{"#line": "Live", "#tile-available .value": "9"})

	// The answer is lost. The dialog shows what has changed before the operator repeats the change.
	patches := 0
	road.obey(func(r *http.Request) fate {
		if r.Method != http.MethodPatch {
			return fate{}
		}
		patches++
		return fate{unheard: patches == 1, lost: patches > 1} // Chromium itself repeats the request
	})
	w.click("#add")
	w.write("#confirm-value", "7")
	w.click("#confirm-yes")
	w.sees(texts{
		"#confirm-error": "may have been done or not", "#tile-available .note": "of 17",
		"#confirm-hint": "The quota of 17 becomes 24",
	})
	w.keeps(texts{"#confirm-value": "7"})
	w.press(kb.Escape)
	w.gone("#confirm")
}

// A frozen server breaks no connection. Nevertheless the console does not call its figures live.
func TestConsoleServerStandsStill(t *testing.T) {
	t.Parallel()
	s := serve(t)
	w := s.open(desktop, "/console/sales/"+s.sale(nil))
	w.operate()
	w.see("#books", "Paid") // the first figures have come
	s.instance.Signal(syscall.SIGSTOP)
	defer s.instance.Signal(syscall.SIGCONT)
	w.see("#line", "Not live since")
	s.instance.Signal(syscall.SIGCONT)
	w.see("#line", "Live")
}

// Exactly one of Pause and Resume is offered, also before the start, when buyers see no difference.
func TestConsolePausesEarly(t *testing.T) {
	t.Parallel()
	s := serve(t)
	sale := s.sale(tomorrow())
	w := s.open(desktop, "/console/sales/"+sale)
	offers := func(want, not, state string) {
		t.Helper()
		w.sees(texts{"#" + want: "", "#state": state})
		w.lacks("#" + not)
	}
	w.operate()
	offers("pause", "resume", "Coming")
	w.click("#pause", "#confirm-yes")
	w.see("#notice", "The sale is paused")
	offers("resume", "pause", "Paused")
	w.visit("/console/sales/" + sale)
	offers("resume", "pause", "Paused")
	s.open(phone, "/sales/"+sale).see("#button", "Starts in")
	w.visit("/console")
	w.see("#sales .state", "Paused")
	w.click("#sales a", "#resume", "#confirm-yes")
	w.see("#notice", "The sale goes on")
	offers("pause", "resume", "Coming")

	// Another operator pauses the sale. The focus moves to the button that replaces Pause.
	w.focus("#pause")
	s.act("pause", sale)
	offers("resume", "pause", "Paused")
	w.focused("resume")
}

// What the server said of a sale, or of a campaign, before an operator's action does not replace what the action made of it,
// although it comes later.
func TestConsoleOlderNews(t *testing.T) {
	t.Parallel()
	s, road := roadTo(t)
	campaign, _ := s.campaign(nil)
	var repeats atomic.Int64
	road.meet(fate{repeats: &repeats}, func(r *http.Request) bool {
		return strings.HasSuffix(r.URL.Path, "/live")
	})
	w := s.open(desktop, "/console")
	w.operate()
	for page, events := range map[string]int64{ // after the action
		"/console/sales/" + s.sale(nil):  3,
		"/console/campaigns/" + campaign: 3,
	} {
		w.visit(page)
		w.sees(texts{"#line": "Live", "#state": "On sale now"})
		before := repeats.Load()
		w.click("#pause", "#confirm-yes")
		w.see("#notice", "is paused")
		w.until("the old news", func() (string, bool) { return page, repeats.Load() >= before+events })
		w.see("#state", "Paused")
		w.lacks("#pause")
	}
}

// A copy of a sale begins with its values, at the next full hour if the sale has started. What was changed survives a reload. A
// sale of a campaign has no copy of its own.
func TestConsoleDuplicate(t *testing.T) {
	t.Parallel()
	s := serve(t)
	w := s.open(desktop, "/console/sales/"+s.sale(fields{"limit_per_user": 3, "parts": 2, "waiting_list": true}))
	w.operate()
	w.see("#line", "Live")
	w.click("#duplicate")
	w.see("#form-title", "New sale")
	copied := texts{"#price_cents": "9.90", "#original_price_cents": "49.90", "#quota": "10", "#limit_per_user": "3", "#parts": "2", "#waiting_list": "true", "#pay_timeout_seconds": "10"}
	w.keeps(copied)
	w.keeps(texts{"#title": "Teapot"})
	w.fill("#title", "Teapot, once more")
	w.visit(w.path())
	w.see("#form-title", "New sale")
	w.keeps(copied)
	w.keeps(texts{"#title": "Teapot, once more"})
	w.click("#form-send")
	w.sees(texts{"h1": "Teapot, once more", "#line": "Live", "#state": "Coming", "#tile-time .note": "until the start"})
	s.hasSales(2)

	id, sales := s.campaign(nil)
	w.visit("/console/sales/" + sales[0])
	w.see("#line", "Live")
	w.lacks("#duplicate")
	w.visit("/console/campaigns/" + id)
	w.see("#line", "Live")
	w.click("#duplicate")
	w.see("#campaign-form-title", "New campaign")
	w.keeps(texts{`[id="campaign-sales[2].variant"]`: "EU 43", `[id="campaign-sales[2].price_cents"]`: "219.00", `[id="campaign-sales[2].limit_per_user"]`: "", "#campaign-limit_per_user": "2"})
	w.click("fieldset:nth-of-type(1) button")
	w.fill("#campaign-title", "Running shoe, again")
	w.click("#campaign-form-send")
	w.sees(texts{"h1": "Running shoe, again", "#line": "Live", "#state": "Coming", "#variants": "EU 42"})
	w.has("variants", 2)
}

// Several clicks and keys on the button that makes a sale make one sale. An operator who repeats a request without an
// answer gets the sale that the first request made.
func TestConsoleMakesOneSale(t *testing.T) {
	t.Parallel()
	s, road := roadTo(t)
	w := s.open(desktop, "/console", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE")
	w.operate()
	w.describe("Kettle")
	answer := make(chan struct{})
	var requests atomic.Int64
	road.obey(func(r *http.Request) fate {
		if !isPost(r) {
			return fate{}
		}
		requests.Add(1)
		return fate{held: answer}
	})
	w.click("#form-send")
	w.rests("#form-send")
	w.click("#form-send")
	w.focus("#form-send")
	w.press(kb.Enter)
	w.click("#form-leave")
	w.see("#form-title", "New sale") // the form stays until the answer comes
	close(answer)
	w.see("h1", "Kettle")
	check.Same(t, "requests", requests.Load(), 1)
	s.hasSales(1)

	w.visit("/console")
	w.describe("Teapot")
	road.meet(fate{unheard: true}, isPost)
	w.click("#form-send")
	w.see("#form-error", "No answer came")
	w.see("#form-error", "may have been done or not")
	road.free()
	w.click("#form-send")
	w.see("h1", "Teapot")
	s.hasSales(2)
}
