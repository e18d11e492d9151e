package browser

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"flashsale/test/kit/check"
)

// thanks is a receiver's answer. Its markup must stay text.
const thanks = `<b id="markup">Thank you</b>`

// receiver is an endpoint of the shop that records the messages it receives.
type receiver struct {
	*httptest.Server
	mu         sync.Mutex
	status     int // of its answers
	ids        []string
	signatures []string
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{status: http.StatusOK}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids = append(r.ids, req.Header.Get("webhook-id"))
	r.signatures = append(r.signatures, req.Header.Get("webhook-signature"))
	w.WriteHeader(r.status)
	_, _ = io.WriteString(w, thanks)
}

// answers sets the status of all later answers.
func (r *receiver) answers(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = status
}

// last returns the id and the signatures of the latest message, and how many messages there were.
func (r *receiver) last() (id, signatures string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n = len(r.ids); n > 0 {
		id, signatures = r.ids[n-1], r.signatures[n-1]
	}
	return id, signatures, n
}

// The buttons of the one endpoint in the list, and the newest delivery.
const (
	showDeliveries = "#endpoints button:nth-child(1)"
	switchEndpoint = "#endpoints button:nth-child(2)"
	renewSecret    = "#endpoints button:nth-child(3)"
	removeEndpoint = "#endpoints button:nth-child(4)"
	newestDelivery = "#deliveries tr:first-child "
)

// An operator has events sent to a receiver, sees its answers, sends a message again, gives the receiver a new secret and
// switches it off. A viewer may only look.
func TestConsoleEndpoints(t *testing.T) {
	t.Parallel()
	told := newReceiver(t)
	s := serve(t, "--webhook-private")
	sale, ann := s.sale(fields{"quota": 50, "limit_per_user": 50}), s.buyer("ann")
	w := s.open(desktop, "/console/endpoints", "status of 400", "status of 404", "status of 409")
	w.see("#outside-why", "Log in as the operator")
	w.operate()
	w.see("#endpoints-none", "There is no endpoint yet")
	w.write("#endpoint-url", "ftp://shop.example")
	w.write("#endpoint-rate", "0")
	w.click("#endpoint-send")
	w.see("#endpoint-rate-error", "A whole number from 1 to 100,000")
	w.focused("endpoint-rate")
	w.fill("#endpoint-rate", "500")
	w.click("#endpoint-send")
	w.see("#endpoint-url-error", "500 characters") // the server's own words
	w.lacks("#endpoint-rate-error")
	w.keeps(texts{"#endpoint-url": "ftp://shop.example", "#endpoint-rate": "500"})
	address := told.URL + "/events/of/the/shop?from=the-flash-sale-of-the-eleventh-of-november"
	w.fill("#endpoint-url", address)
	w.click("#endpoint-send")
	w.sees(texts{
		"#made-title": address, "#secret": "whsec_", "#made-more": "verify each message",
		"#endpoints": address, "#endpoints .state": "On", "#log": "Created",
	})
	w.keeps(texts{"#endpoint-url": "", "#endpoint-rate": ""})
	first := w.text("#secret")
	w.show("console-endpoint-made")

	s.buy(sale, ann, 1)
	w.until("the receiver is told", func() (string, bool) { _, _, n := told.last(); return "", n > 0 })
	w.click(showDeliveries)
	w.leave()
	w.sees(texts{"#deliveries-title": "Deliveries to " + address, newestDelivery: "200", newestDelivery + ".long": thanks})
	w.focused("deliveries-title")
	check.Same(t, "elements of the answer", js[int](w, `document.querySelectorAll("#markup").length`), 0)
	w.repeat(told)

	w.confirm(renewSecret, "signed with the old secret as well")
	w.see("#made-more", "For a day")
	w.becomes("the secret is another", fmt.Sprintf(`document.getElementById("secret").textContent.startsWith("whsec_") &&
		document.getElementById("secret").textContent !== %q`, first))
	w.repeat(told)
	_, signatures, _ := told.last()
	check.Same(t, "signatures", len(strings.Fields(signatures)), 2)

	w.viewEndpoints(s)
	w.failures(s, told, func() { s.buy(sale, ann, 1) })
	w.olderDeliveries(s)

	w.confirm(removeEndpoint, "This cannot be undone")
	w.see("#endpoints-none", "There is no endpoint yet")
	w.gone("#deliveries-panel")
	w.focused("endpoints-title")
	w.see("#log", "Removed")
	w.mostEndpoints(s, told)
}

// repeat sends the newest delivery again. The receiver gets the same message.
func (w *window) repeat(told *receiver) {
	w.t.Helper()
	rows := js[int](w, `document.getElementById("deliveries").rows.length`)
	id, _, n := told.last()
	w.confirm(newestDelivery+"button", "the same id")
	w.see("#deliveries-told", "The answer was 200")
	w.has("deliveries", rows+1)
	again, _, sum := told.last()
	check.Same(w.t, "messages", sum, n+1)
	check.Same(w.t, "id of the message", again, id)
}

// viewEndpoints checks that a viewer sees the endpoint and its deliveries, and can change nothing.
func (w *window) viewEndpoints(s *server) {
	w.t.Helper()
	password := text(s.call("POST", "/admin/staff", s.operator, fields{"name": "vera", "role": "viewer"}, http.StatusCreated)["secret"])
	vera := s.open(phone, "/console/endpoints", "status of 404") // her page may read deliveries of an endpoint as it is removed
	vera.click("#outside-enter")
	vera.see("#account-title", "Log in")
	vera.enter("vera", password)
	vera.see("#endpoints", "On")
	vera.click(showDeliveries)
	vera.see(newestDelivery, thanks)
	vera.lacks("#endpoint-form", switchEndpoint, renewSecret, removeEndpoint, newestDelivery+"button")
	vera.see("#log", "Changed")
}

// failures lets the receiver fail, then answer that it is gone. Switched on again, it gets what it missed.
func (w *window) failures(s *server, told *receiver, buy func()) {
	w.t.Helper()
	told.answers(http.StatusInternalServerError)
	buy()
	w.see("#endpoints", "Failed tries:")
	w.click(showDeliveries)
	w.leave() // with the pointer in it, the list stays as it is
	w.see(newestDelivery+".state", "500")
	w.show("console-endpoints")
	told.answers(http.StatusGone)
	w.sees(texts{"#endpoints .state": "Gone", "#endpoints": "It answered 410"})
	told.answers(http.StatusOK)
	w.confirm(switchEndpoint, "all later ones")
	w.see("#endpoints .state", "On")
	w.click(showDeliveries)
	w.leave()
	w.see(newestDelivery+".state", "200") // it has what it missed
	w.confirm(switchEndpoint, "until you switch it on again")
	w.see("#endpoints .state", "Off")
	w.see("#log", ", off")

	// A receiver that can't be reached gives no answer.
	id := js[string](w, `document.querySelector("#endpoints .id").id`)
	s.call("PATCH", "/admin/endpoints/"+id, s.operator, fields{"url": "http://127.0.0.1:1/"}, http.StatusOK)
	w.click(newestDelivery + "button")
	w.see("#confirm-more", "the same id")
	w.show("console-endpoints-ask")
	w.click("#confirm-yes")
	w.see("#deliveries-told", "There was no answer")
	w.sees(texts{newestDelivery + ".state": "No answer", newestDelivery + ".long": "refused"})
	s.call("PATCH", "/admin/endpoints/"+id, s.operator, fields{"url": told.URL}, http.StatusOK)
}

// olderDeliveries fills the list with more deliveries than one page has.
func (w *window) olderDeliveries(s *server) {
	w.t.Helper()
	id := js[string](w, `document.querySelector("#endpoints .id").id`)
	path := "/admin/endpoints/" + id + "/deliveries"
	list, _ := s.call("GET", path, s.operator, nil, http.StatusOK)["deliveries"].([]any)
	delivery, _ := list[0].(map[string]any)
	for range 21 {
		s.call("POST", path+"/"+text(delivery["id"]), s.operator, fields{}, http.StatusOK)
	}
	w.click(showDeliveries)
	w.has("deliveries", 20)
	w.click("#deliveries-more")
	w.has("deliveries", len(list)+21)
	w.lacks("#deliveries-more")
}

// mostEndpoints makes as many endpoints as there may be: the page says that no more can be made. The deliveries to an
// endpoint that somebody else removes can't be sent again.
func (w *window) mostEndpoints(s *server, told *receiver) {
	w.t.Helper()
	for range 100 {
		s.call("POST", "/admin/endpoints", s.operator, fields{"url": told.URL}, http.StatusCreated)
	}
	w.has("endpoints", 100)
	w.write("#endpoint-url", told.URL)
	w.click("#endpoint-send")
	w.see("#endpoint-error", "There are 100 endpoints")
	w.keeps(texts{"#endpoint-url": told.URL})

	s.buy(s.sale(nil), s.logIn("ann"), 1)
	w.click("#endpoints tr:first-child button")
	w.leave()
	w.see(newestDelivery+".state", "200")
	w.click(newestDelivery + "button")
	w.see("#confirm-more", "the same id")
	id := js[string](w, `document.querySelector("#endpoints .id").id`)
	s.call("DELETE", "/admin/endpoints/"+id, s.operator, nil, http.StatusOK)
	w.click("#confirm-yes")
	w.see("#confirm-error", "cannot be sent again")
	w.click("#confirm-no")
	w.gone("#deliveries-panel")
	w.has("endpoints", 99)
}

// choose chooses a value of a list. Typed letters would add up to one search if two choices follow each other quickly.
func (w *window) choose(selector, value string) {
	w.t.Helper()
	js[bool](w, fmt.Sprintf(`{
		const list = document.querySelector(%q);
		list.value = %q;
		list.dispatchEvent(new Event("change", { bubbles: true }));
	}`, selector, value))
}

// Payments that were begun are listed until they are paid. Older ones are on further pages.
func TestConsolePayments(t *testing.T) {
	t.Parallel()
	s := serve(t)
	sale, ann := s.sale(fields{"quota": 50, "limit_per_user": 50}), s.buyer("ann")
	w := s.open(desktop, "/console/payments", "status of 401")
	w.operate()
	w.see("#payments", "No payment is in this state")
	order := s.buy(sale, ann, 3)
	s.call("POST", "/orders/"+order+"/payments", ann, fields{}, http.StatusCreated)
	w.sees(texts{"#payments": order, "#payments .n": "¥29.70", "#payments-told": "1 in all", ".lead": "the shop's own checkout"})
	w.see("#payments", "Sandbox")
	w.show("console-payments")

	paid := s.buy(sale, ann, 1)
	s.pay(paid, ann)
	w.choose("#payments-status", "succeeded")
	w.see("#payments", paid)
	w.has("payments", 1)

	for range 20 {
		s.call("POST", "/orders/"+s.buy(sale, ann, 1)+"/payments", ann, fields{}, http.StatusCreated)
	}
	w.choose("#payments-status", "open")
	w.see("#payments-told", "The newest 20")
	w.click("#payments-more")
	w.has("payments", 21)
	w.see("#payments-told", "21 in all")
	w.see("#payments tr:last-child", order)
	w.lacks("#payments-more")
}
