package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oauth2-proxy/mockoidc"

	"flashsale/test/kit/check"
)

// logInAs logs in through the page.
func (w *window) logInAs(name string) {
	w.t.Helper()
	w.click("#account-button")
	if strings.Contains(w.text("#account-title"), "Create") {
		w.click("#account-switch")
	}
	w.enter(name, buyersPassword)
	w.see("#account-button", name)
}

// enter fills in and sends the form of an account.
func (w *window) enter(name, password string) {
	w.t.Helper()
	js[bool](w, `document.getElementById("name").value = document.getElementById("password").value = "", true`)
	w.write("#name", name)
	w.write("#password", password)
	w.click("#account-submit")
}

// A mistake in a form is explained beside its field, and nothing that was typed is lost. The log-in outlasts the page.
func TestAccount(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.buyer("taken")
	s.sale(nil)
	w := s.open(phone, "/", "status of 401", "status of 409")
	w.see(".card", "Teapot")
	w.click("#account-button")
	w.see("#account-title", "Create an account")
	w.enter("x!", buyersPassword)
	w.see("#name-error", "3 to 32")
	w.keeps(texts{"#name": "x!", "#password": buyersPassword})
	w.focused("name")
	w.becomes("the field is marked", `document.activeElement.getAttribute("aria-invalid") === "true"`)
	typed := texts{"#name": "taken", "#password": "another password"}
	w.enter("taken", "another password")
	w.see("#name-error", "Somebody has this name already")
	w.keeps(typed)
	w.click("#account-switch")
	w.see("#account-title", "Log in")
	w.lacks("#name-error")
	w.keeps(typed)
	w.click("#account-submit")
	w.see("#password-error", "The name or the password is wrong")
	w.enter("taken", buyersPassword)
	w.see("#account-button", "taken")

	w.visit("/orders")
	w.see("#none", "You have no orders yet")
	w.click("#account-button")
	w.see("#account-name", "Logged in as taken")
	w.click("#account-out")
	w.see("#outside", "Log in to see your orders")
	w.click("#enter")
	w.see("#account-title", "Log in") // not "Create an account"
	w.keeps(texts{"#name": "taken"})
}

// When the log-in has expired, the page asks for the password, and the purchase goes on.
func TestLogInIsOver(t *testing.T) {
	t.Parallel()
	s := serve(t)
	w := s.open(phone, "/sales/"+s.sale(nil), "status of 401")
	w.signUp("ann")
	w.wakes("#button")
	w.clickLoggedOut("#button")
	w.see("#account-reason", "Your log-in is over")
	w.write("#password", buyersPassword)
	w.click("#account-submit")
	w.see("#yours-title", "Yours until")
}

// Orders are listed the newest first, a page at a time. An order is cancelled only after a question.
func TestOrders(t *testing.T) {
	t.Parallel()
	s := serve(t)
	sale := s.sale(fields{"quota": 50, "limit_per_user": 50})
	ann := s.buyer("ann")
	oldest := s.buy(sale, ann, 2)
	for range 24 {
		s.buy(sale, ann, 1)
	}
	w := s.open(phone, "/orders")
	w.see("#outside", "Log in to see your orders")
	w.logInAs("ann")
	w.see("#more", "Show more")
	w.becomes("20 orders are listed", `document.querySelectorAll(".order").length === 20`)
	w.click("#more")
	w.becomes("all orders are listed", `document.querySelectorAll(".order").length === 25`)
	w.lacks("#more")
	last := fmt.Sprintf(`.order[id=%q]`, oldest)
	w.see(last, "2 × ¥9.90")
	w.see(last, "¥19.80")

	w.click(last+" .cancel", "#ask-no")
	w.see(last+" .state", "To be paid")
	w.click(last+" .cancel", "#ask-yes")
	w.see(last+" .state", "Cancelled")
	w.lacks(last + " .pay")

	// A link to an order shows the order, however old it is.
	w.visit("/")
	w.visit("/orders#" + oldest)
	w.see(last+" .state", "Cancelled")
	w.becomes("the order is marked", fmt.Sprintf(`document.querySelector(%q).matches(".wanted")`, last))
	w.visit("/")
	w.allowed = append(w.allowed, "status of 404")
	w.visit("/orders#NOBODYS")
	w.see("#notice", "not among yours")
}

// The page of orders follows those that are to be paid by reading the list, however many there are.
func TestOrdersAreFollowedTogether(t *testing.T) {
	t.Parallel()
	s := serve(t)
	sale := s.sale(fields{"quota": 50, "limit_per_user": 50})
	ann := s.buyer("ann")
	oldest := s.buy(sale, ann, 1)
	for range 29 {
		s.buy(sale, ann, 1)
	}
	w := s.open(phone, "/orders")
	w.see("#outside", "Log in to see your orders")
	w.logInAs("ann")
	w.see("#more", "Show more")
	w.click("#more")
	w.becomes("all orders are listed", `document.querySelectorAll(".order").length === 30`)
	const requests = `performance.getEntriesByType("resource").filter((e) => e.name.includes("/api/v1/orders"))`
	begun := js[int](w, requests+`.length`)
	s.pay(oldest, ann)
	w.see(fmt.Sprintf(`.order[id=%q] .state`, oldest), "Paid")
	check.Same(t, "requests for a single order", js[int](w, requests+`.filter((e) => /orders\/\w/.test(e.name)).length`), 0)
	// One request follows all orders, so there is one for each five seconds of the page, or fewer.
	if more, most := js[int](w, requests+`.length`)-begun, 1+js[int](w, `Math.ceil(performance.now() / 5000)`); more < 1 || more > most {
		t.Errorf("%d requests follow the orders, want 1 to %d", more, most)
	}
}

// Buyer and support see the same short number of an order, and support finds the order by it.
func TestOrderNumber(t *testing.T) {
	t.Parallel()
	s := serve(t)
	sale := s.sale(nil)
	id := s.buy(sale, s.buyer("ann"), 1)
	number := id[16:24]
	s.buy(sale, s.buyer("bob"), 1)
	w := s.open(phone, "/orders#"+id)
	w.see("#outside", "Log in to see your orders")
	w.logInAs("ann")
	w.see(".order dl", number)
	w.visit("/sales/" + sale)
	w.see("#yours-number", "Order "+number)
	w.speak("zh")
	w.see("#yours-number", "订单号 "+number)
	w.click("#yours-pay")
	w.see("main", "订单号 "+number)

	desk := s.open(desktop, "/console/sales/"+sale)
	desk.operate()
	desk.has("orders", 2)
	desk.write("#q", strings.ToLower(number))
	desk.click("#search-send")
	desk.has("orders", 1)
	desk.see("#orders", number)
}

// A declined payment leaves the order as it is, and the page does not speak of a failure after a later payment.
func TestDecline(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.buy(s.sale(nil), s.buyer("ann"), 1)
	w := s.open(phone, "/orders")
	w.click("#enter")
	w.see("#account-title", "Create")
	w.press("\x1b")
	w.logInAs("ann")
	w.click(".order .pay", `button[value="decline"]`)
	w.see("[role=status]", "You declined. Nothing was charged.")
	w.click("a.button")
	w.see(".order .state", "To be paid")
	w.click(".order .pay", `button[value="pay"]`)
	w.see("[role=status]", "Paid. Thank you")
	if said := w.text("main"); strings.Contains(strings.ToLower(said), "fail") || strings.Contains(said, "declined") {
		t.Error(said)
	}
}

// A Chinese browser gets Chinese from the first paint. A chosen language is kept.
func TestLanguage(t *testing.T) {
	t.Parallel()
	s := serve(t)
	sale := s.sale(nil)
	w := s.open(look{width: 375, language: "zh-CN,zh,en"}, "/sales/"+sale, "status of 409")
	w.sees(texts{"#button": "立即抢购 ¥9.90", "#left": "剩余 10 / 10", "#line": "实时"})
	check.Same(t, "language", js[string](w, `document.documentElement.lang`), "zh")
	w.click("#button")
	w.see("#account-title", "注册账号")
	w.enter("ann", buyersPassword)
	w.see("#yours-title", "为您保留至")

	w.click("button.language[value=en]")
	w.sees(texts{"#yours-title": "Yours until", "#left": "9 of 10 left", "#state": "On sale now"})
	w.visit("/sales/" + sale)
	w.see("#yours-title", "Yours until")
	w.visit("/orders")
	w.see(".order .state", "To be paid")
	w.click(".order .pay")
	w.see("main", "Pay or decline")
	w.visit("/orders")
	w.click("button.language[value=zh]")
	w.see(".order .state", "待付款")
	w.hasNo("body", "Orders", "Log in", "Paid", "Flash sale")
}

// hasNo fails the test if an element shows one of several words, such as those of another language.
func (w *window) hasNo(selector string, words ...string) {
	w.t.Helper()
	text := w.text(selector)
	for _, word := range words {
		check.Same(w.t, word+" is in: "+text, strings.Contains(text, word), false)
	}
}

// The list of sales shows new sales, what is sold and what is paused, without a reload.
func TestSalesFollow(t *testing.T) {
	t.Parallel()
	s := serve(t)
	w := s.open(desktop, "/")
	w.see("#none", "There is no sale")
	sale := s.sale(nil)
	w.sees(texts{".card h2": "Teapot", ".card .left": "10 of 10 left", ".card .price": "¥49.90"})
	w.lacks("#none")
	s.buy(sale, s.buyer("ann"), 1)
	w.see(".card .left", "9 of 10 left")
	s.act("pause", sale)
	w.see(".card .state", "Paused")
	w.click(".card a")
	w.see("h1", "Teapot")
}

// A long list shows some sales, and more on a click. Only what is on the screen is fetched again, one by one.
func TestManySales(t *testing.T) {
	t.Parallel()
	s := serve(t)
	campaign, sizes := s.campaign(fields{"starts_at": time.Now().Add(-time.Hour)})
	sales := make([]string, 60)
	for i := range sales {
		sales[i] = s.sale(fields{"title": fmt.Sprint("Teapot ", i), "starts_at": time.Now().Add(-time.Hour + time.Duration(i+1)*time.Second)})
	}
	w := s.open(phone, "/")
	shows := func(want int) {
		t.Helper()
		w.becomes(fmt.Sprint(want, " cards"), fmt.Sprintf(`[...document.querySelectorAll(".card")].filter((card) => card.checkVisibility()).length === %d`, want))
	}
	shows(24)
	card := func(id string) string { return fmt.Sprintf(`.card[data-id=%q] `, id) }
	ann := s.buyer("ann")
	s.buy(sizes[0], ann, 1)
	s.buy(sales[1], ann, 1)
	w.sees(texts{card(campaign) + ".left": "13 of 14 left", card(sales[1]) + ".left": "9 of 10 left"})
	w.click("#more")
	shows(48)
	w.becomes("the focus is on the first of them", `document.activeElement.textContent === "Teapot 23"`)
	s.buy(sales[23], ann, 1)
	w.see(card(sales[23])+".left", "9 of 10 left")
	w.click("#more")
	shows(61)
	w.lacks("#more")
	w.becomes("the whole list is seldom fetched", `{
		const fetched = performance.getEntriesByType("resource").map(({name}) => new URL(name).pathname);
		fetched.filter((path) => path === "/api/v1/sales").length * 10 < fetched.filter((path) => /^.api.v1.(sales|campaigns)\/./.test(path)).length;
	}`)
}

// Where the shop has an issuer and nobody registers, a buyer logs in there and comes back to the page, where the purchase goes on
// by itself, once. The staff still has its passwords. The code is not left in the address.
func TestLogInOutside(t *testing.T) {
	t.Parallel()
	issuer, err := mockoidc.Run()
	check.NoError(t, err)
	t.Cleanup(func() { _ = issuer.Shutdown() })
	s := serve(t, "--accounts=closed", "--issuer=shop="+issuer.Issuer(), "--audience=api",
		"--client-id="+issuer.Config().ClientID, "--client-secret="+issuer.Config().ClientSecret)
	sale := s.sale(nil)
	issuer.QueueUser(&mockoidc.MockUser{Subject: "1", PreferredUsername: "ann"})
	w := s.open(phone, "/sales/"+sale)
	w.wakes("#button")
	w.click("#button")
	w.see("#account-issuer", "Log in with the shop's account")
	w.gone("#account-form")
	w.click("#account-issuer")
	w.see("#account-button", "ann")
	check.Same(t, "path", w.path(), "/sales/"+sale)
	w.see("#yours-title", "Yours until")
	w.visit("/sales/" + sale)
	w.see("#yours-title", "Yours until")
	check.Same(t, "units left", s.call("GET", "/admin/sales/"+sale+"/audit", s.operator, nil, http.StatusOK)["available"], any(9.0))
	w.visit("/login?code=x&state=y")
	w.see("#login-why", "This log-in has been used already")
	check.Same(t, "address", js[string](w, `location.search`), "")

	desk := s.open(desktop, "/console")
	desk.operate()
	desk.see("#sales", "Teapot")

	// Whatever the address was, the browser comes back to this server.
	var visits atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { visits.Add(1) }))
	t.Cleanup(elsewhere.Close)
	host := strings.TrimPrefix(elsewhere.URL, "http:")
	for _, path := range []string{host + "/", host + "/..//x?y", "//" + host, "/%09" + host, "/.." + host} {
		issuer.QueueUser(&mockoidc.MockUser{Subject: "2", PreferredUsername: "bob"})
		w := s.open(phone, path, "404")
		before := js[string](w, `location.href`)
		w.click("#account-button", "#account-issuer")
		w.see("#account-button", "bob")
		check.Same(t, path+": the page after the log-in", js[string](w, `location.href`), before)
	}
	const addresses = `//H/|/\\H/|\\\\H/|\t//H/|/\t/H/|\n\\\\H|http://H/|http:/\\H|javascript:alert(1)|data:text/html,x|blob:O/1|http://|O@H/|OH/`
	outside := js[string](w, fmt.Sprintf(`(async () => {
		const { own } = await import(document.querySelector("link[href*='/assets/go.']").href);
		return "%s".replaceAll("H", %q).replaceAll("O", location.origin).split("|").filter((a) => own(a) !== location.origin + "/").join("|");
	})()`, addresses, strings.TrimPrefix(host, "//")))
	check.Same(t, "addresses that are taken for pages of this server", outside, "")
	check.Same(t, "visits elsewhere", visits.Load(), 0)
}
