package browser

import (
	"encoding/csv"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	downloads "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// operate logs in as the operator, in place.
func (w *window) operate() {
	w.t.Helper()
	w.click("#outside-enter")
	w.see("#account-title", "")
	w.fill("#name", "admin")
	w.write("#password", operatorPassword)
	w.click("#account-submit")
	w.see("#account-button", "admin")
}

// fill types into a field in place of what it holds.
func (w *window) fill(selector, text string) {
	w.t.Helper()
	js[bool](w, fmt.Sprintf(`document.querySelector(%q).select(), true`, selector))
	w.write(selector, kb.Backspace+text)
}

// fillTime types a moment in the windows' time zone into a field, as Chromium takes it.
func (w *window) fillTime(selector string, at time.Time) {
	w.t.Helper()
	at = at.In(time.FixedZone("Asia/Shanghai", 8*3600))
	w.write(selector, at.Format("01022006")+kb.Tab+at.Format("0304PM"))
}

func (w *window) value(selector string) string {
	w.t.Helper()
	return js[string](w, fmt.Sprintf(`document.querySelector(%q).value`, selector))
}

// pay pays an order without a browser, at the sandbox.
func (s *server) pay(orderID, token string) {
	s.t.Helper()
	page := text(s.call("POST", "/orders/"+orderID+"/payments", token, fields{}, http.StatusCreated)["pay_url"])
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, page, strings.NewReader("choice=pay"))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	_ = res.Body.Close()
	if order := s.call("GET", "/orders/"+orderID, token, fields{}, http.StatusOK); order["status"] != "paid" {
		s.t.Fatalf("the order is %s after %s", order["status"], res.Status)
	}
}

// The life of a sale by an operator's clicks and keys, and what a buyer sees of it meanwhile.
func TestConsole(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.buyer("ann")
	w := s.open(desktop)
	w.allow("status of 401", "status of 400")
	w.visit("/")
	w.click("footer a")
	w.see("#outside-why", "Log in as the operator")
	if w.holds("#desk") {
		t.Error("anybody may see the console")
	}

	// A buyer's account opens nothing.
	w.click("#outside-enter")
	w.see("#account-title", "Log in")
	w.write("#name", "ann")
	w.write("#password", buyersPassword)
	w.click("#account-submit")
	w.see("#outside-why", "ann is a buyer's account. The console needs the operator's")
	if w.holds("#desk") {
		t.Error("a buyer may see the console")
	}
	w.click("#account-button")
	w.click("#account-out")
	w.see("#outside-why", "Log in as the operator")
	w.operate()
	w.see("#sales-title", "All sales")
	w.see("#none", "There is no sale yet")
	w.see("#instances", "hybrid")

	sale := w.create(t)

	// It is live, and a second window buys.
	w.see("#line", "Live")
	w.see("#tile-available .value", "20")
	w.see("#tile-gate", "Open")
	buyer := s.open(phone)
	buyer.visit("/sales/" + sale)
	buyer.see("#line", "Live")
	buyer.click("#button")
	buyer.register("ben")
	buyer.see("#yours-pay", "¥12.50")
	w.see("#tile-available .value", "19")
	w.see("#tile-held .value", "1")
	w.see("#tile-requests .note", "1 in all")
	w.see("#verdicts", "Sold")
	w.see("#books", "To be paid\t1\t1")
	w.see("#orders .state", "To be paid")
	buyer.click("#yours-pay")
	buyer.click(`button[value="pay"]`)
	buyer.see("[role=status]", "Paid. Thank you")
	w.see("#tile-paid .value", "1")
	w.see("#orders .state", "Paid")

	w.until("the short link is a picture, too", func() (string, bool) {
		return w.text("#short"), js[bool](w, `document.getElementById("qr").naturalWidth > 0 && document.getElementById("qr-download").download.endsWith(".svg")`)
	})

	// Paused, by keys; the question is asked back, and says what will happen.
	buyer.visit("/sales/" + sale)
	buyer.see("#line", "Live")
	buyer.click("#yours-back")
	w.focus("#pause")
	w.press(kb.Enter)
	w.see("#confirm-more", "nobody can buy until you resume")
	w.press(kb.Enter) // on the button that leaves it
	w.until("the question is gone", func() (string, bool) { return "", !w.holds("#confirm") })
	w.see("#state", "On sale now")
	w.press(kb.Enter)
	w.see("#confirm-title", "Pause the sale?")
	w.press(kb.Tab)
	w.press(kb.Enter)
	w.see("#state", "Paused")
	w.see("#notice", "The sale is paused")
	buyer.see("#state", "Paused")
	buyer.rests("#button")
	w.becomes("the keyboard is at the button that took the place of Pause", `document.activeElement.id === "resume"`)
	w.press(kb.Enter)
	w.see("#confirm-more", "19 units are available")
	w.press(kb.Tab)
	w.press(kb.Enter)
	w.see("#state", "On sale now")
	buyer.see("#state", "On sale now")

	// Stock is added, after a mistake.
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

	// The end is put off; what the server refuses stands in the question.
	w.click("#extend")
	w.fillTime("#confirm-value", time.Now().Add(-48*time.Hour))
	w.click("#confirm-yes")
	w.see("#confirm-error", "The end must come after the start")
	w.fillTime("#confirm-value", time.Now().Add(50*time.Hour))
	w.click("#confirm-yes")
	w.see("#notice", "The end is changed")
	buyer.visit("/sales/" + sale)
	buyer.see("#clock", "2 d")

	// Texts are edited; only what was changed is sent.
	w.click("#edit")
	w.see("#form-title", "Edit the sale")
	if w.holds("#price_cents") || w.holds("#quota") {
		t.Error("what can't be changed can be typed")
	}
	w.fill("#title", "Two teapots")
	w.click("#form-send")
	w.see("h1", "Two teapots")
	w.see("#log", `"The last teapots" -> "Two teapots"`)
	if log := w.text("#log"); !strings.Contains(log, "Paused") || !strings.Contains(log, "Resumed") || !strings.Contains(log, "Created") {
		t.Errorf("the log lacks something: %s", log)
	}

	w.orders(t, s, sale)

	// Closed for good.
	w.click("#close")
	w.see("#confirm-more", "it cannot be opened again")
	w.click("#confirm-yes")
	w.see("#state", "Over")
	buyer.see("#state", "Over")
	for _, action := range []string{"pause", "resume", "add", "extend", "close"} {
		w.until("there is no action "+action, func() (string, bool) { return action, !w.holds("#" + action) })
	}
	w.see("#log", "Closed")
	w.click(".bar nav a")
	w.see("#sales", "Two teapots")
	w.see("#sales .state", "Over")
}

// create makes a sale by the form, with mistakes at first, and gives its id.
func (w *window) create(t *testing.T) string {
	t.Helper()
	w.click("#new")
	w.see("#zone", "Asia/Shanghai (UTC+08:00)")
	w.write("#title", "The last teapots")
	w.write("#description", "Cast iron.")
	w.write("#image_url", "http://example.com/teapot.jpg")
	w.write("#price_cents", "12.505")
	w.write("#original_price_cents", "10")
	w.write("#quota", "twenty")
	w.fill("#limit_per_user", "2")
	w.fillTime("#starts_at", time.Now().Add(time.Hour))
	w.fillTime("#ends_at", time.Now())
	w.click("#form-send")
	w.see("#image_url-error", "https://")
	w.see("#price_cents-error", "An amount such as 12.50")
	w.see("#quota-error", "A whole number from 1 to 100,000,000")
	w.see("#ends_at-error", "The end must come after the start")
	w.becomes("the keyboard is in the first field that is wrong", `document.activeElement.id === "image_url" && document.activeElement.getAttribute("aria-invalid") === "true"`)
	for selector, want := range map[string]string{"#title": "The last teapots", "#price_cents": "12.505", "#quota": "twenty", "#limit_per_user": "2"} {
		if got := w.value(selector); got != want {
			t.Errorf("%s is %q, not %q any more", selector, got, want)
		}
	}

	w.fill("#price_cents", "12.50")
	w.fill("#quota", "20")
	w.fillTime("#starts_at", time.Now().Add(-time.Hour))
	w.fillTime("#ends_at", time.Now().Add(time.Hour))
	w.fill("#image_url", "https://example.com/%zz") // which the browser takes for an address
	w.click("#form-send")
	w.see("#original_price_cents-error", "more than the price")
	if w.holds("#price_cents-error") || w.holds("#quota-error") || w.holds("#ends_at-error") {
		t.Error("what is right now is still said to be wrong")
	}
	w.fill("#original_price_cents", "49.9")
	w.click("#form-send")
	w.see("#image_url-error", "500") // the server's own words
	if w.value("#title") != "The last teapots" || w.value("#original_price_cents") != "49.9" {
		t.Error("a refusal has lost what was typed")
	}

	// A reload loses nothing, and neither does a log-in that is over.
	w.visit("/console")
	w.see("#form-title", "New sale")
	if w.value("#title") != "The last teapots" || w.value("#quota") != "20" {
		t.Errorf("a reload has lost what was typed: %q, %q", w.value("#title"), w.value("#quota"))
	}
	w.fill("#image_url", "")
	js[bool](w, `{ const s = JSON.parse(localStorage.session); s.token = s.token.slice(0, -4) + "AAAA"; localStorage.session = JSON.stringify(s); true }`)
	w.click("#form-send")
	w.see("#account-reason", "Your log-in is over")
	w.write("#password", operatorPassword)
	w.click("#account-submit")
	w.see("h1", "The last teapots")
	return w.path()[strings.LastIndex(w.path(), "/")+1:]
}

func (w *window) path() string {
	w.t.Helper()
	return js[string](w, `location.pathname`)
}

func (w *window) focus(selector string) {
	w.t.Helper()
	js[bool](w, fmt.Sprintf(`document.querySelector(%q).focus(), true`, selector))
}

// orders looks for an order, refunds it and reads the file of all.
func (w *window) orders(t *testing.T, s *server, sale string) {
	t.Helper()
	ann := s.logIn("ann", buyersPassword)
	mine := s.buy(sale, ann, 2)
	s.pay(s.buy(sale, s.buyer("carol"), 1), s.logIn("carol", buyersPassword))

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

	w.click("#orders tr:first-child button")
	w.see("#confirm-more", "¥12.50 go back to")
	w.click("#confirm-yes")
	w.see("#orders tr:first-child .state", "Refunded")
	w.see("#tile-paid .value", "1")
	w.see("#log", "Refunded")

	folder := t.TempDir()
	w.must(chromedp.CallBrowser(w.ctx, downloads.SetDownloadBehavior, downloads.SetDownloadBehaviorParams{
		Behavior: downloads.SetDownloadBehaviorBehaviorAllow, DownloadPath: folder, BrowserContextID: chromedp.FromContext(w.ctx).BrowserContextID,
	}))
	js[bool](w, `document.getElementById("status").value = "", document.getElementById("status").dispatchEvent(new Event("change"))`)
	w.has("orders", 3)
	w.click("#csv")
	w.see("#csv-told", "is downloaded")
	file := filepath.Join(folder, "orders-"+sale+".csv")
	w.until("the file is there", func() (string, bool) {
		_, err := os.Stat(file)
		return fmt.Sprint(err), err == nil
	})
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	lines, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if len(lines) != 4 || lines[0][0] != "order_id" || !strings.Contains(fmt.Sprint(lines), mine) || !strings.Contains(fmt.Sprint(lines), "refunded") {
		t.Errorf("the file holds %q", lines)
	}
}

// The console says when it isn't live, and what was sent without an answer; it mends itself, and nothing is lost.
func TestConsoleHeals(t *testing.T) {
	t.Parallel()
	s, road := roadTo(t)
	sale := s.sale(nil)
	w := s.open(desktop)
	w.allow("status of 503", "ERR_CONNECTION", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_EMPTY_RESPONSE")
	w.visit("/console/sales/" + sale)
	w.operate()
	w.see("#line", "Live")
	w.see("#tile-available .value", "10")
	road.obey(func(r *http.Request) fate {
		if strings.HasPrefix(r.URL.Path, "/api/") {
			return fate{status: http.StatusServiceUnavailable}
		}
		return fate{}
	})
	road.CloseClientConnections()
	w.see("#line", "Not live since")
	w.becomes("old figures do not look like new ones", `document.getElementById("figures").matches(".stale")`)
	road.obey(func(*http.Request) fate { return fate{} })
	s.buy(sale, s.buyer("ben"), 1)
	w.see("#line", "Live")
	w.see("#tile-available .value", "9")

	// A lost answer: the page doesn't claim to know. The second try does no harm that isn't seen before.
	patches := 0
	road.obey(func(r *http.Request) fate {
		if r.Method != http.MethodPatch {
			return fate{}
		}
		patches++
		return fate{unheard: patches == 1, lost: patches > 1} // Chromium sends it again by itself
	})
	w.click("#add")
	w.write("#confirm-value", "7")
	w.click("#confirm-yes")
	w.see("#confirm-error", "may have been done or not")
	w.see("#tile-available .note", "of 17")
	w.see("#confirm-hint", "The quota of 17 becomes 24") // behind the question as well
	if w.value("#confirm-value") != "7" {
		t.Error("what was typed is lost")
	}
	w.press(kb.Escape)
	w.until("the question is gone", func() (string, bool) { return "", !w.holds("#confirm") })

	// A form, too, keeps what was typed.
	road.obey(func(r *http.Request) fate { return fate{lost: r.Method == http.MethodPost} })
	w.visit("/console")
	w.click("#new")
	w.write("#title", "Kettle")
	w.write("#price_cents", "1")
	w.write("#quota", "3")
	w.click("#form-send")
	w.see("#form-error", "may have been done or not")
	road.obey(func(*http.Request) fate { return fate{} })
	w.click("#form-send")
	w.see("h1", "Kettle")
}

// A server that stands still breaks no connection, and still the console doesn't call its figures live.
func TestConsoleServerStandsStill(t *testing.T) {
	t.Parallel()
	s := serve(t)
	sale := s.sale(nil)
	w := s.open(desktop)
	w.visit("/console/sales/" + sale)
	w.operate()
	w.see("#tile-available .value", "10")
	send := func(signal os.Signal) {
		t.Helper()
		if err := s.process.Signal(signal); err != nil {
			t.Fatal(err)
		}
	}
	send(syscall.SIGSTOP)
	defer send(syscall.SIGCONT)
	w.see("#line", "Not live since")
	send(syscall.SIGCONT)
	w.see("#line", "Live")
}

// Exactly one of Pause and Resume is offered, and before the start as well, when buyers see no difference.
func TestConsolePausesEarly(t *testing.T) {
	t.Parallel()
	s := serve(t)
	sale := s.sale(fields{"starts_at": time.Now().Add(time.Hour), "ends_at": time.Now().Add(2 * time.Hour)})
	w, buyer := s.open(desktop), s.open(phone)
	offers := func(want, not, state string) {
		t.Helper()
		w.see("#"+want, "")
		w.see("#state", state)
		if w.holds("#" + not) {
			t.Errorf("%s is offered beside %s", not, want)
		}
	}
	w.visit("/console/sales/" + sale)
	w.operate()
	offers("pause", "resume", "Coming")
	w.click("#pause")
	w.click("#confirm-yes")
	w.see("#notice", "The sale is paused")
	offers("resume", "pause", "Paused")
	w.visit("/console/sales/" + sale)
	offers("resume", "pause", "Paused")
	buyer.visit("/sales/" + sale)
	buyer.see("#button", "Starts in")
	w.visit("/console")
	w.see("#sales .state", "Paused")
	w.click("#sales a")
	w.click("#resume")
	w.click("#confirm-yes")
	w.see("#notice", "The sale goes on")
	offers("pause", "resume", "Coming")

	// What another operator does shows as well, and takes the keyboard from no one.
	w.focus("#pause")
	s.call("POST", "/admin/sales/"+sale+"/pause", s.operator, fields{}, http.StatusOK)
	offers("resume", "pause", "Paused")
	w.becomes("the keyboard is at the button that took the place of Pause", `document.activeElement.id === "resume"`)
}

// Many clicks and keys on the button that makes a sale make one.
func TestConsoleMakesOneSale(t *testing.T) {
	t.Parallel()
	s, road := roadTo(t)
	w := s.open(desktop)
	w.visit("/console")
	w.operate()
	w.click("#new")
	w.write("#title", "Kettle")
	w.write("#price_cents", "1")
	w.write("#quota", "3")
	answer := make(chan struct{})
	var mu sync.Mutex
	made := 0
	road.obey(func(r *http.Request) fate {
		if r.Method != http.MethodPost {
			return fate{}
		}
		mu.Lock()
		defer mu.Unlock()
		made++
		return fate{held: answer}
	})
	w.click("#form-send")
	w.rests("#form-send")
	w.click("#form-send")
	w.focus("#form-send")
	w.press(kb.Enter)
	w.click("#form-leave")
	w.see("#form-title", "New sale") // or nobody would hear how it ended
	close(answer)
	w.see("h1", "Kettle")
	mu.Lock()
	defer mu.Unlock()
	if list, _ := s.call("GET", "/admin/sales", s.operator, nil, http.StatusOK)["sales"].([]any); made != 1 || len(list) != 1 {
		t.Errorf("%d requests made %d sales", made, len(list))
	}
}

// Whoever asks again because no answer came gets the sale that was made.
func TestConsoleLostSale(t *testing.T) {
	t.Parallel()
	s, road := roadTo(t)
	w := s.open(desktop)
	w.allow("ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE")
	w.visit("/console")
	w.operate()
	w.click("#new")
	w.write("#title", "Kettle")
	w.write("#price_cents", "1")
	w.write("#quota", "3")
	road.obey(func(r *http.Request) fate { return fate{unheard: r.Method == http.MethodPost} })
	w.click("#form-send")
	w.see("#form-error", "No answer came")
	road.obey(func(*http.Request) fate { return fate{} })
	w.click("#form-send")
	w.see("h1", "Kettle")
	if list, _ := s.call("GET", "/admin/sales", s.operator, nil, http.StatusOK)["sales"].([]any); len(list) != 1 {
		t.Errorf("there are %d sales", len(list))
	}
}

// The longest description can be sold with in Chinese, one more character is a mistake, and bodies have their bounds.
func TestConsoleLongText(t *testing.T) {
	t.Parallel()
	s := serve(t)
	w := s.open(desktop)
	w.allow("status of 400")
	w.visit("/console")
	w.operate()
	w.click("#new")
	describe := func(characters int) {
		t.Helper()
		js[bool](w, fmt.Sprintf(`document.getElementById("description").value = "茶".repeat(%d), true`, characters))
	}
	w.write("#title", "茶")
	w.write("#price_cents", "1")
	w.write("#quota", "3")
	describe(2001)
	w.write("#image_url", "https://example.com/"+strings.Repeat("a", 481))
	w.click("#form-send")
	w.see("#description-error", "At most 2,000 characters. These are 2,001")
	w.see("#image_url-error", "At most 500 characters. These are 501")
	describe(2000)
	w.fill("#image_url", "")
	w.click("#form-send")
	w.see("h1", "茶")
	w.click("#shop-link")
	w.see(".about p", strings.Repeat("茶", 2000))

	refused := func(path, token string, characters int) (status int, refusal string) {
		status, doc := s.try("POST", path, token, fields{"title": "Kettle", "description": strings.Repeat("a", characters)})
		return status, fmt.Sprint(doc["code"], " ", doc["field"], " ", doc["detail"])
	}
	for _, tc := range []struct {
		path, token string
		characters  int
		status      int
		refusal     string
	}{
		{"/admin/sales", s.operator, 2001, http.StatusBadRequest, "bad_request quota"}, // the first that is wrong
		{"/admin/sales", s.operator, 16 << 10, http.StatusRequestEntityTooLarge, "16 KiB"},
		{"/users", "", 2001, http.StatusBadRequest, "bad_request description"},
		{"/users", "", 4 << 10, http.StatusRequestEntityTooLarge, "4 KiB"},
	} {
		if status, refusal := refused(tc.path, tc.token, tc.characters); status != tc.status || !strings.Contains(refusal, tc.refusal) {
			t.Errorf("%s with %d characters: %d %s", tc.path, tc.characters, status, refusal)
		}
	}
}

// Texts of operators and buyers are texts, wherever the console shows them; what is looked for, too.
func TestConsoleMarkupIsText(t *testing.T) {
	t.Parallel()
	s := serve(t)
	const nasty = `<img src=x onerror="document.title='broken in'"><b>bold</b>`
	sale := s.sale(fields{"title": nasty, "description": nasty})
	w := s.open(desktop)
	w.visit("/console")
	w.operate()
	w.see("#sales", nasty)
	w.click("#sales a")
	w.see("h1", nasty)
	w.see("#log", "onerror")
	w.click("#edit")
	if w.value("#title") != nasty || w.value("#description") != nasty {
		t.Errorf("%q, %q", w.value("#title"), w.value("#description"))
	}
	w.click("#form-leave")
	w.write("#q", nasty)
	w.press(kb.Enter)
	w.see("#orders-told", "No order fits")
	if !strings.Contains(w.path(), sale) || js[bool](w, `document.title === "broken in" || document.querySelector("main b, main img[src=x]") !== null`) {
		t.Error("markup was taken for markup")
	}
}

// The console speaks Chinese, figures, questions and refusals included, and changes its language as it stands.
func TestConsoleLanguage(t *testing.T) {
	t.Parallel()
	s := serve(t)
	sale := s.sale(nil)
	s.buy(sale, s.buyer("ann"), 1)
	w := s.open(look{width: 1440, language: "zh-CN,zh,en"})
	w.visit("/console/sales/" + sale)
	w.see("#outside-why", "请以运营账号登录")
	w.click("#outside-enter")
	w.see("#account-title", "登录")
	w.write("#name", "admin")
	w.write("#password", operatorPassword)
	w.click("#account-submit")
	w.see("#line", "实时")
	w.see("#tile-held", "预占，待付款")
	w.see("#verdicts", "成交")
	w.see("#orders", "待付款")
	w.see("#log", "创建")
	w.click("#pause")
	w.see("#confirm-more", "恢复之前无人可以购买")
	w.click("#confirm-yes")
	w.see("#notice", "场次已暂停")
	w.see("#state", "暂停中")
	for _, word := range []string{"Live", "Orders", "Held", "Pause", "Log"} {
		if strings.Contains(w.text("main"), word) {
			t.Errorf("%q among Chinese: %s", word, w.text("main"))
		}
	}
	w.click("button.language[value=en]")
	w.see("#state", "Paused")
	w.see("#tile-held", "Held, unpaid")
	w.see("#stock-chart .legend", "Available")
	w.see("#verdicts", "Sold")
}

// Who comes for a page that isn't there gets a page that says so; programs get the problem.
func TestNothingHere(t *testing.T) {
	t.Parallel()
	s := serve(t)
	w := s.open(phone)
	w.allow("status of 404")
	for _, path := range []string{"/nothing", "/s/unknown", "/sales/NONE", "/console/nothing"} {
		w.visit(path)
		w.see("h1", "There is nothing here")
		w.see("main a", "To the sales")
	}
	w.visit("/console/sales/NONE")
	w.operate()
	w.see("#unknown", "The sale may have been taken down")
	if code := s.call("GET", "/nothing", "", nil, http.StatusNotFound)["code"]; code != "not_found" {
		t.Errorf("a program is told %v", code)
	}
}

// Long lists come a page at a time, the newest first; what is new comes by itself.
func TestConsolePages(t *testing.T) {
	t.Parallel()
	s := serve(t)
	var sale string
	for i := range 33 {
		sale = s.sale(fields{"title": fmt.Sprintf("Teapot %d", i), "quota": 100, "limit_per_user": 100})
	}
	ann := s.buyer("ann")
	oldest := s.buy(sale, ann, 1)
	for range 53 {
		s.buy(sale, ann, 1)
	}
	for range 11 {
		s.call("POST", "/admin/sales/"+sale+"/pause", s.operator, fields{}, http.StatusOK)
		s.call("POST", "/admin/sales/"+sale+"/resume", s.operator, fields{}, http.StatusOK)
	}
	w := s.open(desktop)
	w.visit("/console")
	w.operate()
	w.has("sales", 30)
	w.see("#sales tr:first-child", "Teapot 32")
	s.sale(fields{"title": "Kettle"})
	w.see("#sales tr:first-child", "Kettle")
	w.has("sales", 31)
	w.click("#more")
	w.has("sales", 34)
	w.see("#sales tr:last-child", "Teapot 0")
	if w.holds("#more") {
		t.Error("there is still more")
	}

	w.visit("/console/sales/" + sale)
	w.has("orders", 50)
	w.see("#orders-told", "The newest 50")
	w.click("#orders-more")
	w.has("orders", 54)
	w.see("#orders tr:last-child", oldest)
	w.see("#orders-told", "54 in all")
	w.has("log", 20)
	w.click("#log-more")
	w.until("log has the pauses, the install and the making of the sale", func() (string, bool) {
		n := js[int](w, `document.getElementById("log").rows.length`)
		return fmt.Sprint(n), n >= 24 // a gate that missed a change on a busy machine was installed again
	})
	w.see("#log tr:last-child", "Created")
}

// has waits until a table has so many rows.
func (w *window) has(id string, rows int) {
	w.t.Helper()
	w.until(fmt.Sprintf("%s has %d rows", id, rows), func() (string, bool) {
		n := js[int](w, fmt.Sprintf(`document.getElementById(%q).rows.length`, id))
		return fmt.Sprint(n), n == rows
	})
}
