package fault

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/stripe/stripe-go/v84/webhook"

	"flashsale/test/kit/shop"
)

// providerRows are faults of the payment provider.
var providerRows = []row{
	{65, "Stripe is down, slow and answers twice; its notices come before the reply, twice, with another amount, or never", "each charge pays one order or goes back once", providerFaults},
}

const stripeSecret = "whsec_of_the_drill"

// session is a checkout session at the bank.
type session struct {
	ID            string            `json:"id"`
	Object        string            `json:"object"`
	URL           string            `json:"url"`
	Payment       string            `json:"client_reference_id"`
	Status        string            `json:"status"`
	PaymentStatus string            `json:"payment_status"`
	Intent        string            `json:"payment_intent,omitempty"`
	Amount        int64             `json:"amount_total"`
	Currency      string            `json:"currency"`
	Metadata      map[string]string `json:"metadata"`
}

// bank does what the engine calls at Stripe. As Stripe does, it repeats the answer to an idempotency key, also if that was an
// error; refuses other words under the same key; and sends the money of a charge back once. Unless it is calm, every third
// call fails before it is done, or its answer is lost after that. The repeat of such a call does not fail, however many calls
// come between.
type bank struct {
	*httptest.Server
	calm     bool
	mu       sync.Mutex
	answers  map[string]bankAnswer // by idempotency key
	sessions map[string]*session   // by id
	charges  map[string]int        // by payment intent: how often the money was sent back
	refuses  map[string]bool       // intents whose money does not go back
	calls    int
	failed   map[string]bool // calls whose repeat does not fail
	early    func(s session) // called before the reply to a new session
}

type bankAnswer struct {
	form   string // of the request
	status int
	body   any
}

func newBank(d *drill) *bank {
	b := &bank{answers: map[string]bankAnswer{}, sessions: map[string]*session{}, charges: map[string]int{}, refuses: map[string]bool{}, failed: map[string]bool{}}
	b.Server = httptest.NewServer(b)
	d.Cleanup(b.Close)
	return b
}

func (b *bank) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm() // an unreadable form has no fields
	b.mu.Lock()
	b.calls++
	key, form := r.Header.Get("Idempotency-Key"), r.Form.Encode()
	// The payment or its charge, since a call that fails may be repeated under another key.
	fault, call := b.calls%6, r.Method+r.URL.Path+r.Form.Get("client_reference_id")+r.Form.Get("payment_intent")
	if b.calm || b.failed[call] {
		fault = 0
	}
	b.failed[call] = fault == 3 || fault == 5
	answer, known := b.answers[key]
	switch {
	case known && answer.form != form:
		answer = refusal("idempotency_error", "")
	case known:
		w.Header().Set("Idempotent-Replayed", "true")
	default:
		if answer = (bankAnswer{status: http.StatusInternalServerError, body: bankError("api_error", "")}); fault != 3 {
			answer = b.do(r)
		}
		if answer.form = form; key != "" {
			b.answers[key] = answer
		}
	}
	b.mu.Unlock()
	if fault == 5 { // it is done, and the answer is lost
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	w.WriteHeader(answer.status)
	_ = json.NewEncoder(w).Encode(answer.body)
}

func bankError(kind, code string) any {
	return map[string]any{"error": map[string]string{"type": kind, "code": code, "message": "no"}}
}

func refusal(kind, code string) bankAnswer {
	return bankAnswer{status: http.StatusBadRequest, body: bankError(kind, code)}
}

func (b *bank) do(r *http.Request) bankAnswer {
	path, intent := strings.Split(strings.TrimPrefix(r.URL.Path, "/v1/"), "/"), r.Form.Get("payment_intent")
	switch {
	case r.Method == http.MethodGet && path[0] == "refunds":
		list := []any{}
		if b.charges[intent] > 0 {
			list = append(list, map[string]any{"id": "re_1", "status": "succeeded", "amount": b.sessions[strings.TrimPrefix(intent, "pi_")].Amount})
		}
		return bankAnswer{status: http.StatusOK, body: map[string]any{"object": "list", "data": list, "has_more": false}}
	case path[0] == "refunds" && b.refuses[intent]:
		return refusal("invalid_request_error", "charge_disputed")
	case path[0] == "refunds" && b.charges[intent] > 0:
		return refusal("invalid_request_error", "charge_already_refunded")
	case path[0] == "refunds":
		b.charges[intent]++
		return bankAnswer{status: http.StatusOK, body: map[string]string{"id": "re_1", "status": "succeeded"}}
	case len(path) == 2: // a new session
		id := fmt.Sprintf("cs_%d", len(b.sessions))
		made := &session{
			ID: id, Object: "checkout.session", URL: b.URL + "/" + id, Payment: r.Form.Get("client_reference_id"), Status: "open", PaymentStatus: "unpaid",
			Amount: int64(number(r.Form.Get("line_items[0][price_data][unit_amount]"))), Currency: r.Form.Get("line_items[0][price_data][currency]"),
			Metadata: map[string]string{"order": r.Form.Get("metadata[order]")},
		}
		b.sessions[id] = made
		if b.early != nil {
			b.early(*made)
		}
		return bankAnswer{status: http.StatusOK, body: *made}
	case len(path) == 4 && b.sessions[path[2]].Status == "open": // its end
		b.sessions[path[2]].Status = "expired"
	}
	return bankAnswer{status: http.StatusOK, body: *b.sessions[path[2]]}
}

// pay lets the buyer of a session pay; ok is false if the session has ended.
func (b *bank) pay(id string) (paid session, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.sessions[id]
	if s.Status != "open" {
		return *s, false
	}
	s.Status, s.PaymentStatus, s.Intent = "complete", "paid", "pi_"+id
	b.charges[s.Intent] = 0
	return *s, true
}

// says sends a notice of a session to an instance, as Stripe does.
func (d *drill) says(url string, s session) (status int, doc shop.Document, err error) {
	raw, err := json.Marshal(map[string]any{"id": "evt_1", "object": "event", "type": "checkout.session.completed", "data": map[string]any{"object": s}})
	if err != nil {
		return 0, nil, err
	}
	signed := webhook.GenerateTestSignedPayload(&webhook.UnsignedPayload{Payload: raw, Secret: stripeSecret})
	return d.Call(http.MethodPost, url+"/api/v1/payments/notices", "", json.RawMessage(raw), "Stripe-Signature", signed.Header)
}

// providerFaults has buyers pay at a bank whose every third call fails, or whose answer is lost. Its notices come as the fault
// says. In the end each charge has paid one order, or its money went back once, and no session can still be paid.
func providerFaults(d *drill) {
	d.stores()
	b := newBank(d)
	stripe := []string{"--payment", "stripe", "--stripe-key", "sk_test_1", "--stripe-webhook-secret", stripeSecret, "--stripe-url", b.URL, "--pay-grace", "5s"}
	first, second := d.Start(stripe...), d.Start(stripe...)
	d.quota, d.urls = size(42, 168), []string{first.URL, second.URL}
	b.early = func(s session) { // a notice before the reply, which says nothing yet
		if status, _, err := d.says(second.URL, s); err != nil || status != http.StatusOK {
			d.wrong(status)("a notice before the reply: %d, %v", status, err)
		}
	}
	d.sale = d.SaleToPay(first.URL, d.quota, size(15, 60)) // the buyers begin to pay one after another, within this time
	d.watched = d.watch(d.sale)
	d.attempts = d.Rush(d.sale, "u", d.quota, nil, d.urls...)
	d.told(d.attempts, "201")
	kinds, mismatched := map[string]int{}, []shop.Attempt(nil)
	for i, a := range d.attempts {
		var page shop.Document
		d.until(time.Minute, "a payment is opened", func() (bool, error) {
			status, doc, err := d.Call(http.MethodPost, d.urls[i%2]+"/api/v1/orders/"+a.OrderID+"/payments", d.Token(a.User), nil)
			page = doc
			return status == http.StatusCreated, err
		})
		id := text(page, "pay_url")[strings.LastIndex(text(page, "pay_url"), "/")+1:]
		kind := []string{"told twice", "never told", "another amount first", "not paid"}[i%4]
		kinds[kind]++
		if kind == "not paid" {
			continue
		}
		paid, ok := b.pay(id)
		if !ok {
			d.FatalSlowf("the session %s has ended, as its order may have", id)
		}
		switch kind {
		case "told twice":
			for _, url := range []string{first.URL, second.URL} {
				d.want(http.StatusOK, "", "a notice")(d.says(url, paid))
			}
		case "another amount first":
			wrong := paid
			wrong.Amount++
			d.want(http.StatusOK, "", "a notice with another amount")(d.says(first.URL, wrong))
			d.want(http.StatusOK, "", "a notice")(d.says(second.URL, paid))
			mismatched = append(mismatched, a)
		}
	}
	listed := func(status string) int {
		doc := d.Must(http.StatusOK, http.MethodGet, first.URL+"/api/v1/admin/payments?limit=500&status="+status, d.Operator(first.URL), nil)
		list, _ := doc["payments"].([]any)
		return len(list)
	}
	d.until(3*time.Minute, "every payment has ended, and no money is due", func() (bool, error) {
		return listed("open")+listed("refund_due") == 0, nil
	})
	for _, a := range mismatched {
		if status := d.orderStatus(first.URL, a); status != "expired" {
			d.Errorf("order %s, for which other money came first, is %s", a.OrderID, status)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	kept, back := 0, 0
	for intent, times := range maps.All(b.charges) {
		switch times {
		case 0:
			kept++
		case 1:
			back++
		default:
			d.Errorf("the money of %s went back %d times", intent, times)
		}
	}
	for id, s := range b.sessions {
		if s.Status == "open" {
			d.Errorf("the session %s can still be paid", id)
		}
	}
	if books := d.Books(d.sale); int(books.Stock.Paid) != kept || listed("succeeded") != kept {
		d.Errorf("%d charges were kept, %d units are paid", kept, books.Stock.Paid)
	}
	d.stop()
	d.finish("%v; %d charges kept, %d sent back; %d calls of the provider, a third of them failed", kinds, kept, back, b.calls)
}
