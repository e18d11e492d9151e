package browser

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"flashsale/test/kit/check"
	"flashsale/test/kit/shop"
)

// A description has at most 2,000 characters, also of Chinese, and an address of a picture at most 500.
func TestConsoleLongText(t *testing.T) {
	t.Parallel()
	s := serve(t)
	w := s.open(desktop, "/console", "status of 400")
	w.operate()
	w.describe("茶")
	w.click("#rest summary")
	w.write("#image_url", "https://example.com/"+strings.Repeat("a", 481))
	long := func(characters int) {
		t.Helper()
		js[bool](w, fmt.Sprintf(`document.getElementById("description").value = "茶".repeat(%d), true`, characters))
		w.click("#form-send")
	}
	long(2001)
	w.sees(texts{
		"#description-error": "At most 2,000 characters. These are 2,001",
		"#image_url-error":   "At most 500 characters. These are 501",
	})
	w.fill("#image_url", "")
	long(2000)
	w.see("h1", "茶")
	w.click("#shop-link")
	w.see(".about p", strings.Repeat("茶", 2000))
}

// The console speaks Chinese, including figures, questions and refusals. It changes its language without a reload.
func TestConsoleLanguage(t *testing.T) {
	t.Parallel()
	s := serve(t)
	sale := s.sale(nil)
	s.buy(sale, s.buyer("ann"), 1)
	w := s.open(look{width: 1440, language: "zh-CN,zh,en"}, "/console/sales/"+sale)
	w.see("#outside-why", "请以运营账号登录")
	w.click("#outside-enter")
	w.see("#account-title", "登录")
	w.enter("admin", shop.OperatorPassword)
	w.sees(texts{"#line": "实时", "#tile-held": "预占，待付款", "#verdicts": "成交", "#orders": "待付款", "#log": "创建"})
	w.confirm("#pause", "恢复之前无人可以购买")
	w.sees(texts{"#notice": "场次已暂停", "#state": "暂停中"})
	w.hasNo("main", "Live", "Orders", "Held", "Pause", "Log")
	w.click("button.language[value=en]")
	w.sees(texts{"#state": "Paused", "#tile-held": "Held, unpaid", "#stock-chart .legend": "Available", "#verdicts": "Sold"})

	w.visit("/console")
	w.click("#new-campaign")
	w.see("#campaign-mode", "Rush: first come, first served")
	w.hasNo("#campaign-mode", "抢购")
	w.click("button.language[value=zh]")
	w.see("#campaign-mode", "抢购：先到先得")
	w.hasNo("#campaign-mode", "Rush")
}

// An hour that clocks skip when summer time begins is not taken for the next one.
func TestSkippedHour(t *testing.T) {
	t.Parallel()
	s := serve(t)
	w := s.open(desktop, "/console")
	w.must(chromedp.Call(w.ctx, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Europe/Berlin"}))
	w.operate()
	w.describe("Spring")
	w.write("#starts_at", "03282027"+kb.Tab+"0230AM")
	w.write("#ends_at", "03282027"+kb.Tab+"0500AM")
	w.click("#form-send")
	w.see("#starts_at-error", "03:30 is one")
}

// An unknown path shows a page that says so. Programs get the problem document.
func TestNothingHere(t *testing.T) {
	t.Parallel()
	s := serve(t)
	w := s.open(phone, "", "status of 404")
	for _, path := range []string{"/nothing", "/s/unknown", "/sales/NONE", "/console/nothing"} {
		w.visit(path)
		w.sees(texts{"h1": "There is nothing here", "main a": "To the sales"})
	}
	w.visit("/console/sales/NONE")
	w.operate()
	w.see("#unknown", "The sale may have been taken down")
	check.Same(t, "code for a program", s.call("GET", "/nothing", "", nil, http.StatusNotFound)["code"], any("not_found"))
}

// Long lists show the newest entries first, a page at a time. New entries appear without a reload.
func TestConsolePages(t *testing.T) {
	t.Parallel()
	s := serve(t)
	var sale string
	for i := range 53 {
		sale = s.sale(fields{"title": fmt.Sprintf("Teapot %d", i), "quota": 100, "limit_per_user": 100})
	}
	ann := s.buyer("ann")
	oldest := s.buy(sale, ann, 1)
	for range 53 {
		s.buy(sale, ann, 1)
	}
	for range 11 {
		s.act("pause", sale)
		s.act("resume", sale)
	}
	w := s.open(desktop, "/console")
	w.operate()
	w.has("sales", 50)
	w.see("#sales tr:first-child", "Teapot 52")
	s.sale(fields{"title": "Kettle"})
	w.see("#sales tr:first-child", "Kettle")
	sizes := make([]fields, 50)
	for i := range sizes {
		sizes[i] = fields{"variant": fmt.Sprint(i), "quota": 1, "price_cents": 1}
	}
	s.campaign(fields{"sales": sizes})
	w.see("#sales tr:first-child", "Campaign, 50 variants") // its sales are not among the others
	w.has("sales", 50)
	w.click("#sales-more")
	w.has("sales", 55)
	w.see("#sales tr:last-child", "Teapot 0")
	w.lacks("#sales-more")
	w.write("#filter-q", "TEAPOT 5")
	w.press(kb.Enter)
	w.has("sales", 4) // 5, 50, 51 and 52
	w.fill("#filter-q", "")
	w.choose("#filter-sort", "sold")
	w.see("#sales tr:first-child", "Teapot 52") // which alone was bought
	w.choose("#filter-state", "paused")
	w.see("#sales", "No sale or campaign fits")
	w.choose("#filter-state", "open")
	w.choose("#filter-mode", "draw")
	w.see("#sales", "No sale or campaign fits")

	w.visit("/console/sales/" + sale)
	w.has("orders", 50)
	w.see("#orders-told", "The newest 50")
	w.click("#orders-more")
	w.has("orders", 54)
	w.sees(texts{"#orders tr:last-child": oldest, "#orders-told": "54 in all"})
	w.has("log", 20)
	w.click("#log-more")
	// The creation, 22 changes, and the install of the gate. If the gate missed a change, it was installed again.
	w.becomes("the log is complete", `document.getElementById("log").rows.length >= 24`)
	w.see("#log tr:last-child", "Created")
}

// Support finds an order of any sale from the console's first page, and sees its history and its payments. The order can be ended
// there.
func TestFindAnOrder(t *testing.T) {
	t.Parallel()
	s := serve(t)
	pot := s.sale(fields{"limit_per_user": 5})
	_, shoes := s.campaign(nil)
	ann := s.buyer("ann")
	paid, open := s.buy(pot, ann, 1), s.buy(shoes[0], ann, 1)
	s.pay(paid, ann)
	w := s.open(desktop, "/console", "status of 404")
	w.operate()
	w.write("#find-words", strings.ToLower(paid[16:21]))
	w.press(kb.Enter)
	w.sees(texts{"#orders": paid, "#orders-told": "1 in all", "#payments": "Succeeded", "#history tr:first-child": "Ordered", "#history tr:last-child": "sandbox"})
	w.see("#orders .below:last-child", "Teapot")
	w.show("console-order")
	w.confirm("#orders button", "go back to")
	w.see("#history tr:last-child", "Refunded")

	user := js[string](w, `document.querySelector("#orders td > span .below:nth-of-type(2)").textContent`)
	w.fill("#q", user[:6])
	w.press(kb.Enter)
	w.sees(texts{"#orders tr:first-child": "Running shoe", "#orders tr:last-child": paid})
	w.lacks("#file")
	w.show("console-orders")
	w.click("#orders tr:first-child a")
	w.sees(texts{"#orders": open, "#history": "The buyer", "#payments": "No payment was started"})
	w.fill("#q", "nobody")
	w.press(kb.Enter)
	w.see("#orders-told", "No order fits")
	w.lacks("#file")
	w.visit("/console/orders?q=" + strings.Repeat("A", 48))
	w.see("#orders-told", "No order fits")
	w.visit("/console/payments")
	w.click(`.places [href="/console/orders"]`)
	w.see("#orders-told", "2 in all")
}
