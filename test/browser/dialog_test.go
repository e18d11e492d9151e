package browser

import (
	"net/http"
	"testing"

	"github.com/chromedp/chromedp/kb"
)

// A dialog may be opened again before the browser has reported that it was closed. The answer to the first dialog must
// not count for the second.
func TestDialogsApart(t *testing.T) {
	t.Parallel()
	s := serve(t)
	sale := s.sale(fields{"limit_per_user": 2})

	w := s.open(phone, "/sales/"+sale)
	w.see("#line", "Live")
	w.click("#button")
	w.see("#account-title", "Create an account")
	w.wakes("#button")
	js[bool](w, `document.getElementById("account-close").click(), document.getElementById("button").click(), true`)
	w.register("ann")
	w.see("#yours-pay", "¥9.90")

	const first, last = "#orders li:first-child ", "#orders li:last-child "
	s.buy(sale, s.logIn("ann"), 1)
	w.visit("/orders")
	w.see(last+".state", "To be paid")
	w.click(first + ".cancel")
	w.see("#ask", "Cancel this order?")
	js[bool](w, `document.getElementById("ask-no").click(), document.querySelector("#orders li:last-child .cancel").click(), true`)
	w.see("#ask", "Cancel this order?")
	w.click("#ask-yes")
	w.sees(texts{last + ".state": "Cancelled", first + ".state": "To be paid"})
	if n := js[int](w, `document.querySelectorAll("#orders li:last-child dt").length`); n != 2 || !w.holds(last+"dl") {
		t.Errorf("a cancelled order still has a time to pay: %q", w.text(last+"dl"))
	}
}

// While the answer to a log-in is awaited, the dialog cannot be closed.
func TestLogInIsAwaited(t *testing.T) {
	t.Parallel()
	s, road := roadTo(t)
	w := s.open(phone, "/sales/"+s.sale(nil))
	w.see("#line", "Live")
	w.click("#button")
	answer := make(chan struct{})
	road.meet(fate{held: answer}, func(r *http.Request) bool { return r.URL.Path == "/api/v1/users" })
	w.register("ann")
	w.becomes("the answer is awaited", `document.getElementById("account-submit").getAttribute("aria-busy") === "true"`)
	w.press(kb.Escape)
	w.click("#account-close")
	w.see("#account-title", "Create an account")
	close(answer)
	w.see("#yours-pay", "¥9.90")
}
