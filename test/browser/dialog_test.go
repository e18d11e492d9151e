package browser

import (
	"net/http"
	"testing"

	"github.com/chromedp/chromedp/kb"
)

// A dialog that is opened anew before the browser has told of its end: what ended the one says nothing about the other.
func TestDialogsApart(t *testing.T) {
	t.Parallel()
	s := serve(t)
	sale := s.sale(fields{"limit_per_user": 2})

	// Whoever leaves the log-in and wants it again in the same breath still buys.
	w := s.open(phone)
	w.visit("/sales/" + sale)
	w.see("#line", "Live")
	w.click("#button")
	w.see("#account-title", "Create an account")
	w.wakes("#button")
	js[bool](w, `document.getElementById("account-close").click(), document.getElementById("button").click(), true`)
	w.register("ann")
	w.see("#yours-pay", "¥9.90")

	// A no to one question is no answer to the next.
	s.buy(sale, s.logIn("ann", buyersPassword), 1)
	w.visit("/orders")
	w.see("#orders li:last-child .state", "To be paid")
	w.click("#orders li:first-child .cancel")
	w.see("#ask", "Cancel this order?")
	js[bool](w, `document.getElementById("ask-no").click(), document.querySelector("#orders li:last-child .cancel").click(), true`)
	w.see("#ask", "Cancel this order?")
	w.click("#ask-yes")
	w.see("#orders li:last-child .state", "Cancelled")
	if state := w.text("#orders li:first-child .state"); state != "To be paid" {
		t.Errorf("the order that was to be kept is %q", state)
	}
	if times := w.text("#orders li:last-child dl"); times == "" || len(js[[]bool](w, `[...document.querySelectorAll("#orders li:last-child dt")].map(() => true)`)) != 1 {
		t.Errorf("a cancelled order still has a time to pay: %q", times)
	}
}

// While an answer to the log-in is awaited nobody leaves the dialog, so that whoever asked for it hears how it ended.
func TestLogInIsAwaited(t *testing.T) {
	t.Parallel()
	s, road := roadTo(t)
	sale := s.sale(nil)
	w := s.open(phone)
	w.visit("/sales/" + sale)
	w.see("#line", "Live")
	w.click("#button")
	answer := make(chan struct{})
	road.obey(func(r *http.Request) fate {
		if r.URL.Path == "/api/v1/users" {
			return fate{held: answer}
		}
		return fate{}
	})
	w.register("ann")
	w.until("the answer is awaited", func() (string, bool) {
		return "", js[bool](w, `document.getElementById("account-submit").getAttribute("aria-busy") === "true"`)
	})
	w.press(kb.Escape)
	w.click("#account-close")
	w.see("#account-title", "Create an account")
	close(answer)
	w.see("#yours-pay", "¥9.90")
}
