package browser

import (
	"fmt"
	"strings"
	"testing"
)

// logInAs logs in through the page.
func (w *window) logInAs(name string) {
	w.t.Helper()
	w.click("#account-button")
	if strings.Contains(w.text("#account-title"), "Create") {
		w.click("#account-switch")
	}
	js[bool](w, `document.getElementById("name").value = "", true`)
	w.write("#name", name)
	w.write("#password", buyersPassword)
	w.click("#account-submit")
	w.see("#account-button", name)
}

// orders are those of a buyer, as the server has them.
func (s *server) orders(name string) []any {
	s.t.Helper()
	list, _ := s.call("GET", "/orders", s.logIn(name, buyersPassword), fields{}, 200)["orders"].([]any)
	return list
}

// What is wrong with a form stands beside its field, and nothing that was typed is lost.
func TestAccount(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.buyer("taken")
	s.sale(nil)
	w := s.open(phone)
	w.allow("status of 401", "status of 409")
	w.visit("/")
	w.see(".card", "Teapot")
	value := func(selector string) string {
		return js[string](w, fmt.Sprintf(`document.querySelector(%q).value`, selector))
	}
	fill := func(name, password string) {
		t.Helper()
		js[bool](w, `document.getElementById("name").value = document.getElementById("password").value = "", true`)
		w.write("#name", name)
		w.write("#password", password)
		w.click("#account-submit")
	}

	w.click("#account-button")
	w.see("#account-title", "Create an account")
	fill("x!", buyersPassword)
	w.see("#name-error", "3 to 32")
	if value("#name") != "x!" || value("#password") != buyersPassword {
		t.Errorf("what was typed is lost: %q %q", value("#name"), value("#password"))
	}
	w.becomes("the keyboard is in the field that is wrong", `document.activeElement.id === "name" && document.activeElement.getAttribute("aria-invalid") === "true"`)
	fill("taken", "another password")
	w.see("#name-error", "Somebody has this name already")
	if value("#name") != "taken" || value("#password") != "another password" {
		t.Error("what was typed is lost")
	}
	w.click("#account-switch")
	w.see("#account-title", "Log in")
	if w.holds("#name-error") || value("#name") != "taken" || value("#password") != "another password" {
		t.Error("the switch to logging in has lost what was typed, or kept the reason")
	}
	w.click("#account-submit")
	w.see("#password-error", "The name or the password is wrong")
	fill("taken", buyersPassword)
	w.see("#account-button", "taken")

	// It lasts: on another page, and after a reload.
	w.visit("/orders")
	w.see("#none", "You have no orders yet")
	w.click("#account-button")
	w.see("#account-name", "Logged in as taken")
	w.click("#account-out")
	w.see("#outside", "Log in to see your orders")
	w.click("#enter")
	w.see("#account-title", "Log in") // and not: create an account
	if value("#name") != "taken" {
		t.Error("the name is forgotten")
	}
}

// A log-in that is over is asked for anew, in place, and the purchase goes on.
func TestLogInIsOver(t *testing.T) {
	t.Parallel()
	s := serve(t)
	sale := s.sale(nil)
	w := s.open(phone)
	w.allow("status of 401")
	w.visit("/sales/" + sale)
	w.see("#button", "Buy")
	w.click("#account-button")
	w.register("ann")
	w.see("#account-button", "ann")
	js[bool](w, `{ const s = JSON.parse(localStorage.session); s.token = s.token.slice(0, -4) + "AAAA"; localStorage.session = JSON.stringify(s); true }`)
	w.click("#button")
	w.see("#account-reason", "Your log-in is over")
	w.write("#password", buyersPassword)
	w.click("#account-submit")
	w.see("#yours-title", "Yours until")
}

// The orders of a buyer: the newest first, a page at a time, cancelled only when asked back.
func TestOrders(t *testing.T) {
	t.Parallel()
	s := serve(t)
	sale := s.sale(fields{"quota": 50, "limit_per_user": 50})
	ann := s.buyer("ann")
	oldest := s.buy(sale, ann, 2)
	for range 24 {
		s.buy(sale, ann, 1)
	}
	w := s.open(phone)
	w.visit("/orders")
	w.see("#outside", "Log in to see your orders")
	w.logInAs("ann")
	count := func() int { return js[int](w, `document.querySelectorAll(".order").length`) }
	w.see("#more", "Show more")
	if n := count(); n != 20 {
		t.Errorf("%d orders at first", n)
	}
	w.click("#more")
	w.until("all are there", func() (string, bool) { return fmt.Sprint(count()), count() == 25 })
	if w.holds("#more") {
		t.Error("there is still more")
	}
	last := fmt.Sprintf(`.order[id=%q]`, oldest)
	w.see(last, "2 × ¥9.90")
	w.see(last, "¥19.80")

	w.click(last + " .cancel")
	w.click("#ask-no")
	w.see(last+" .state", "To be paid")
	w.click(last + " .cancel")
	w.click("#ask-yes")
	w.see(last+" .state", "Cancelled")
	if w.holds(last + " .pay") {
		t.Error("a cancelled order can be paid")
	}

	// Back from a payment, the order that it was for is shown, however old.
	w.visit("/orders#" + oldest)
	w.do()
	w.visit("/")
	w.visit("/orders#" + oldest)
	w.see(last+" .state", "Cancelled")
	w.becomes("the order is marked", fmt.Sprintf(`document.querySelector(%q).matches(".wanted")`, last))
	w.visit("/")
	w.visit("/orders#NOBODYS")
	w.allow("status of 404")
	w.see("#notice", "not among yours")
}

// A payment that is declined leaves the order as it is; what the page says is what happened.
func TestDecline(t *testing.T) {
	t.Parallel()
	s := serve(t)
	sale := s.sale(nil)
	s.buy(sale, s.buyer("ann"), 1)
	w := s.open(phone)
	w.visit("/orders")
	w.click("#enter")
	w.see("#account-title", "Create")
	w.press("\x1b")
	w.logInAs("ann")
	w.click(".order .pay")
	w.click(`button[value="decline"]`)
	w.see("[role=status]", "You declined. Nothing was charged.")
	w.click("a.button")
	w.see(".order .state", "To be paid")
	w.click(".order .pay")
	w.click(`button[value="pay"]`)
	w.see("[role=status]", "Paid. Thank you")
	if said := w.text("main"); strings.Contains(strings.ToLower(said), "fail") || strings.Contains(said, "declined") {
		t.Error(said)
	}
}

// A Chinese browser gets Chinese from the first paint on; who chooses another language keeps it.
func TestLanguage(t *testing.T) {
	t.Parallel()
	s := serve(t)
	sale := s.sale(nil)
	w := s.open(look{width: 375, language: "zh-CN,zh,en"})
	w.allow("status of 409")
	w.visit("/sales/" + sale)
	w.see("#button", "立即抢购 ¥9.90")
	w.see("#left", "剩余 10 / 10")
	w.see("#line", "实时")
	if language := js[string](w, `document.documentElement.lang`); language != "zh" {
		t.Errorf("lang=%s", language)
	}
	w.click("#button")
	w.see("#account-title", "注册账号")
	w.write("#name", "ann")
	w.write("#password", buyersPassword)
	w.click("#account-submit")
	w.see("#yours-title", "为您保留至")

	w.click("button.language[value=en]")
	w.see("#yours-title", "Yours until")
	w.see("#left", "9 of 10 left")
	w.see("#state", "On sale now")
	w.visit("/sales/" + sale)
	w.see("#yours-title", "Yours until")
	w.visit("/orders")
	w.see(".order .state", "To be paid")
	w.click(".order .pay")
	w.see("main", "Pay or decline")
	w.visit("/orders")
	w.click("button.language[value=zh]")
	w.see(".order .state", "待付款")
	for _, text := range []string{"Orders", "Log in", "Paid", "Flash sale"} {
		if strings.Contains(w.text("body"), text) {
			t.Errorf("%q among Chinese: %s", text, w.text("body"))
		}
	}
}

// The list follows what is sold, what comes and what goes.
func TestSalesFollow(t *testing.T) {
	t.Parallel()
	s := serve(t)
	w := s.open(desktop)
	w.visit("/")
	w.see("#none", "There is no sale")
	sale := s.sale(nil)
	w.see(".card h2", "Teapot")
	w.see(".card .left", "10 of 10 left")
	if w.holds("#none") {
		t.Error("there is a sale, and none")
	}
	w.see(".card .price", "¥49.90")
	s.buy(sale, s.buyer("ann"), 1)
	w.see(".card .left", "9 of 10 left")
	s.call("POST", "/admin/sales/"+sale+"/pause", s.operator, fields{}, 200)
	w.see(".card .state", "Paused")
	w.click(".card a")
	w.see("h1", "Teapot")
}
