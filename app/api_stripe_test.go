package app_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v84/webhook"

	"flashsale/internal/config"
	"flashsale/test/kit/check"
)

const stripeWebhookSecret = "whsec_of_the_tests"

// takesStripe lets Stripe, or a server in its place, take the money.
func takesStripe(url string) func(*config.Settings) {
	return func(s *config.Settings) {
		s.Payment, s.StripeKey, s.StripeWebhookSecret, s.StripeURL = "stripe", "sk_test_123", stripeWebhookSecret, url
	}
}

// stripeAccount is Stripe with one account, as far as the engine calls it. As Stripe does, it repeats the answer to an
// idempotency key, also if that was an error; refuses other words under the same key, and a call while another one with the
// same key is under way; and sends the money of a charge back once.
type stripeAccount struct {
	*httptest.Server
	mu       sync.Mutex
	underWay map[string]bool         // by idempotency key
	answers  map[string]stripeAnswer // by idempotency key
	sessions int
	refunds  map[string][]string // by intent: the statuses of its refunds
	becomes  string              // the status of the next refund
	refused  chan struct{}       // the first new session waits until three calls with its key were refused; nil: it does not
	fails    []int               // the statuses of the next answers that are not repeated
	loses    bool                // whether answers to what has a key are lost
}

type stripeAnswer struct {
	form   string // of the request
	status int
	body   string
}

func newStripeAccount(t *testing.T) *stripeAccount {
	t.Helper()
	a := &stripeAccount{underWay: map[string]bool{}, answers: map[string]stripeAnswer{}, refunds: map[string][]string{}, becomes: "succeeded"}
	a.Server = httptest.NewServer(a)
	t.Cleanup(a.Close)
	return a
}

func (a *stripeAccount) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	check.Done(r.ParseForm())
	a.mu.Lock()
	defer a.mu.Unlock()
	key, form := r.Header.Get("Idempotency-Key"), r.Form.Encode()
	answer, known := a.answers[key]
	switch {
	case a.underWay[key]:
		a.refused <- struct{}{}
		answer.status, answer.body = http.StatusConflict, `{"error":{"type":"idempotency_error","code":"idempotency_key_in_use","message":"again"}}`
	case known && answer.form != form:
		answer.status, answer.body = http.StatusBadRequest, `{"error":{"type":"idempotency_error","message":"other parameters"}}`
	case known:
		w.Header().Set("Idempotent-Replayed", "true")
	default:
		answer = stripeAnswer{form, http.StatusOK, ""}
		a.do(r, &answer)
		if key != "" {
			a.answers[key] = answer
		}
	}
	if key != "" && a.loses {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(answer.status)
	_, _ = io.WriteString(w, answer.body)
}

// do does what a request asks for, once for each key.
func (a *stripeAccount) do(r *http.Request, answer *stripeAnswer) {
	id, intent := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:], r.Form.Get("payment_intent")
	switch {
	case len(a.fails) > 0:
		answer.status, a.fails = a.fails[0], a.fails[1:]
		answer.body = `{"error":{"type":"api_error","message":"no"}}`
		return
	case id == "refunds" && r.Method == http.MethodGet:
		list := []fields{} // each one has all the money of the charge, whatever that was
		for _, status := range a.refunds[intent] {
			list = append(list, fields{"id": "re_1", "object": "refund", "status": status, "amount": 1 << 40})
		}
		answer.body = text(fields{"object": "list", "data": list, "has_more": false})
		return
	case id == "refunds" && a.notFailed(intent) > 0:
		answer.status, answer.body = http.StatusBadRequest, `{"error":{"type":"invalid_request_error","code":"charge_already_refunded","message":"no"}}`
		return
	case id == "refunds":
		a.refunds[intent] = append(a.refunds[intent], a.becomes)
		answer.body = text(fields{"id": "re_1", "object": "refund", "status": a.becomes})
		return
	case id == "sessions":
		id = fmt.Sprint("cs_test_", a.sessions)
		a.sessions++
		key := r.Header.Get("Idempotency-Key")
		a.underWay[key] = true
		a.mu.Unlock()
		for range cap(a.refused) {
			<-a.refused
		}
		a.mu.Lock()
		delete(a.underWay, key)
	}
	answer.body = fmt.Sprintf(`{"id":%q,"object":"checkout.session","url":"https://checkout.stripe.com/%s","status":"open","payment_status":"unpaid"}`, id, id)
}

// notFailed returns how many refunds of an intent have not failed.
func (a *stripeAccount) notFailed(intent string) (n int) {
	for _, status := range a.refunds[intent] {
		if status != "failed" {
			n++
		}
	}
	return n
}

// sent returns how often the money of an intent went back.
func (a *stripeAccount) sent(intent string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.notFailed(intent)
}

// refund sets what becomes of all refunds of an intent, and of the next ones.
func (a *stripeAccount) refund(intent, all, next string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.refunds[intent] {
		a.refunds[intent][i] = all
	}
	a.becomes = next
}

// session returns the id of the session of a started payment.
func (p payment) session() string { return p.PayURL[strings.LastIndex(p.PayURL, "/")+1:] }

// paidSession is a session as it is in Stripe's notice that a payment was paid, with changes to it.
func paidSession(p payment, intent string, changes fields) string {
	return text(fields{
		"id": p.session(), "object": "checkout.session", "client_reference_id": p.PaymentID, "mode": "payment", "livemode": false,
		"status": "complete", "payment_status": "paid", "payment_intent": intent, "amount_total": 990, "currency": "cny",
	}.changed(changes))
}

// refundedCharge is the charge of a payment as it is in Stripe's notice that its money went back, with changes to it.
func refundedCharge(p payment, intent string, changes fields) string {
	return text(fields{
		"id": "ch_1", "object": "charge", "refunded": true, "payment_intent": intent, "amount": 990, "currency": "cny",
		"metadata": fields{"payment": p.PaymentID},
	}.changed(changes))
}

func text(object fields) string {
	raw, err := json.Marshal(object)
	check.Done(err)
	return string(raw)
}

// stripeSays sends a notice as Stripe does.
func (s *server) stripeSays(at time.Time, kind, object string) *answer {
	s.t.Helper()
	return s.stripeSends(at, fields{"type": kind, "data": fields{"object": json.RawMessage(object)}})
}

// stripeSends sends a notice with changes to an event.
func (s *server) stripeSends(at time.Time, changes fields) *answer {
	s.t.Helper()
	body := text(fields{"id": "evt_1", "object": "event", "livemode": false}.changed(changes))
	signed := webhook.GenerateTestSignedPayload(&webhook.UnsignedPayload{Payload: []byte(body), Secret: stripeWebhookSecret, Timestamp: at})
	return s.anyone().call("POST", "/api/v1/payments/notices", body, "Stripe-Signature", signed.Header)
}

// A purchase that Stripe takes the money for. The buyer pays at Stripe, which tells of it, once or more often; later the
// merchant sends the money back from Stripe's own pages.
func TestStripe(t *testing.T) {
	t.Parallel()
	account := newStripeAccount(t)
	s := start(t, takesStripe(account.URL))
	saleID, ann := s.createSale(nil).ID, s.buyer("ann")
	made := ann.buy(saleID, 1)
	payment := ann.startPayment(made.ID)
	if again := ann.startPayment(made.ID); again != payment || !strings.HasPrefix(payment.PayURL, "https://checkout.stripe.com/") {
		t.Errorf("started %+v, then %+v", payment, again)
	}
	notice, now := paidSession(payment, "pi_1", nil), time.Now()
	s.stripeSays(now.Add(-24*time.Hour), "checkout.session.completed", notice).refused(401, "bad_signature")
	refunded := refundedCharge(payment, "pi_1", nil)
	s.stripeSays(now, "charge.refunded", refunded).refused(404, "not_found") // it came before the payment; Stripe repeats it
	ann.wantStatus(made.ID, "pending")
	for range 3 {
		s.stripeSays(now, "checkout.session.completed", notice).want(200)
	}
	ann.wantStatus(made.ID, "paid")
	s.stripeSays(now, "invoice.created", text(fields{"id": "in_1", "lines": strings.Repeat("x", 200<<10)})).want(200)
	for range 2 {
		s.stripeSays(now, "charge.refunded", refunded).want(200)
	}
	ann.wantStatus(made.ID, "refunded")
	s.wantStock(saleID, stock{available: 10})
	s.operator().get(adminSales + "/" + saleID + "/operations").contains(`"actor":"stripe"`)
	callback := paid(payment.PaymentID, nil)
	s.signed(callback).call("POST", callbackURL, callback).refused(404, "not_found")
	s.anyone().call("GET", "/pay/"+payment.PaymentID, nil).refused(404, "not_found")

	// Support refunds another order: Stripe is asked to send the money back.
	other := ann.buy(saleID, 1)
	payment = ann.startPayment(other.ID)
	s.stripeSays(now, "checkout.session.completed", paidSession(payment, "pi_2", nil)).want(200)
	s.refund(other.ID).want(200)
	s.eventually("the money is sent back", func() bool {
		return strings.Contains(string(s.operator().get("/api/v1/admin/payments?status=refunded").body), "pi_2")
	})
	check.Same(t, "how often the money went back", account.sent("pi_2"), 1)
}

// Notices with the right number and something else that is different: they never pay an order. Money that came by the order's
// session is recorded as it came, and goes back; what is not the engine's changes nothing, and is not sent again.
func TestStripeReportsOtherMoney(t *testing.T) {
	t.Parallel()
	account := newStripeAccount(t)
	s := start(t, takesStripe(account.URL))
	saleID, ann := s.createSale(fields{"price_cents": 55_300, "quota": 100, "limit_per_user": 100}).ID, s.buyer("ann")
	type row struct {
		session, event fields
		back           string // the money that goes back; empty: nothing is recorded
	}
	asked := fields{"amount_total": 55_300}
	for name, tc := range map[string]row{
		"yen":               {asked.changed(fields{"amount_total": 553, "currency": "jpy"}), nil, `"amount_cents":553,"currency":"JPY"`},
		"dinars":            {asked.changed(fields{"amount_total": 553_000, "currency": "kwd"}), nil, `"amount_cents":553000,"currency":"KWD"`},
		"dollars":           {asked.changed(fields{"currency": "usd"}), nil, `"amount_cents":55300,"currency":"USD"`},
		"a cent too little": {asked.changed(fields{"amount_total": 55_299}), nil, `"amount_cents":55299,"currency":"CNY"`},
		"a cent too much":   {asked.changed(fields{"amount_total": 55_301}), nil, `"amount_cents":55301,"currency":"CNY"`},
		"another session":   {asked.changed(fields{"id": "cs_of_a_payment_link"}), nil, ""},
		"its yen":           {asked.changed(fields{"id": "cs_of_a_payment_link", "amount_total": 553, "currency": "jpy"}), nil, ""},
		"no session":        {asked.changed(fields{"id": ""}), nil, ""},
		"another account":   {asked, fields{"account": "acct_2"}, ""},
		"live money":        {asked, fields{"livemode": true}, ""},
		"another object":    {asked.changed(fields{"object": "payment_link"}), nil, ""},
		"another engine's":  {asked.changed(fields{"client_reference_id": strings.Repeat("A", 26)}), nil, ""},
	} {
		made := ann.buy(saleID, 1)
		payment, intent := ann.startPayment(made.ID), "pi_"+strings.ReplaceAll(name, " ", "_")
		for range 2 {
			object := fields{"object": json.RawMessage(paidSession(payment, intent, tc.session))}
			s.stripeSends(time.Now(), fields{"type": "checkout.session.completed", "data": object}.changed(tc.event)).want(200)
		}
		ann.wantStatus(made.ID, "pending")
		if tc.back == "" {
			s.operator().get("/api/v1/admin/payments?status=open").contains(payment.PaymentID)
		} else {
			s.eventually(name+": the money is sent back", func() bool {
				listed := string(s.operator().get("/api/v1/admin/payments?status=refunded").body)
				return strings.Contains(listed, `"`+intent+`",`+tc.back)
			})
			payment = ann.startPayment(made.ID)
		}
		check.Same(t, name+": how often the money went back", account.sent(intent), map[bool]int{true: 1}[tc.back != ""])

		// The order can still be paid. A refund counts if it is of all of that money.
		s.stripeSays(time.Now(), "checkout.session.completed", paidSession(payment, intent+"_right", asked)).want(200)
		ann.wantStatus(made.ID, "paid")
		yen := refundedCharge(payment, intent+"_right", fields{"amount": 553, "currency": "jpy"})
		s.stripeSays(time.Now(), "charge.refunded", yen).want(200)
		ann.wantStatus(made.ID, "paid")
	}
	unknown := payment{PaymentID: strings.Repeat("B", 26)}
	s.stripeSays(time.Now(), "charge.refunded", refundedCharge(unknown, "pi_9", nil)).want(200)
}

// Stripe repeats what it has answered under a key for a day, so the next try has another key. A try whose answer was lost has
// the same one, and opens no second page.
func TestHole73_StripeIsTriedAnew(t *testing.T) {
	t.Parallel()
	account := newStripeAccount(t)
	s := start(t, takesStripe(account.URL))
	sold, ann := s.createSale(nil), s.buyer("ann")
	made := ann.buy(sold.ID, 1)
	pays := func() *answer { return ann.call("POST", "/api/v1/orders/"+made.ID+"/payments", nil) }
	is := func(fails []int, loses bool) {
		account.mu.Lock()
		defer account.mu.Unlock()
		account.fails, account.loses = fails, loses
	}
	is([]int{500, 402, 400}, false)
	pays().refused(503, "unavailable")
	pays().refused(409, "payment_refused")
	pays().refused(409, "payment_refused")
	is(nil, true)
	pays().refused(503, "unavailable")
	is(nil, false)
	s.patchSale(sold.ID, fields{"title": "Another name"})
	s.eventually("the title has changed", func() bool { return s.sale(sold.ID).Title == "Another name" })
	pays().refused(503, "unavailable") // since the lost session has another title
	started := ann.startPayment(made.ID)
	check.Same(t, "sessions", account.sessions, 2)
	s.stripeSays(time.Now(), "checkout.session.completed", paidSession(started, "pi_1", nil)).want(200)
	ann.wantStatus(made.ID, "paid")

	is([]int{400}, false) // the account has no money yet
	s.refund(made.ID).want(200)
	s.eventually("the money is sent back", func() bool {
		return strings.Contains(string(s.operator().get("/api/v1/admin/payments?status=refunded").body), "pi_1")
	})
	check.Same(t, "how often the money went back", account.sent("pi_1"), 1)
}

// Money that Stripe sends back later is not back yet. If it does not arrive it is due again, and it is sent once more.
func TestStripeRefundFails(t *testing.T) {
	t.Parallel()
	account := newStripeAccount(t)
	s := start(t, takesStripe(account.URL))
	ann := s.buyer("ann")
	made := ann.buy(s.createSale(nil).ID, 1)
	started := ann.startPayment(made.ID)
	s.stripeSays(time.Now(), "checkout.session.completed", paidSession(started, "pi_1", nil)).want(200)
	account.refund("pi_1", "", "pending")
	s.refund(made.ID).want(200)
	payments := func(status string) string {
		return string(s.operator().get("/api/v1/admin/payments?status=" + status).body)
	}
	s.eventually("the money is on its way", func() bool { return account.sent("pi_1") == 1 })
	if !strings.Contains(payments("refund_due"), "pi_1") {
		t.Error("money that is on its way counts as sent back")
	}
	account.refund("pi_1", "failed", "succeeded")
	s.eventually("the money is sent again", func() bool { return strings.Contains(payments("refunded"), "pi_1") })
	account.mu.Lock()
	check.Same(t, "refunds", account.refunds["pi_1"], []string{"failed", "succeeded"})
	account.mu.Unlock()
	lost := text(fields{"id": "re_2", "object": "refund", "status": "failed", "payment_intent": "pi_1", "amount": 990, "currency": "cny"})
	for range 2 {
		s.stripeSays(time.Now(), "refund.failed", lost).want(200)
	}
	if !strings.Contains(payments("refund_due"), "pi_1") {
		t.Error("money that did not arrive is not due")
	}
	s.stripeSays(time.Now(), "refund.failed", strings.ReplaceAll(lost, "pi_1", "pi_of_another_use")).want(200)
	ann.wantStatus(made.ID, "refunded")
}

// Sales that Stripe could take no money for are refused when they are made. Free orders are paid without it.
func TestStripeAmounts(t *testing.T) {
	t.Parallel()
	s := start(t, takesStripe("http://127.0.0.1:1"))
	op := s.operator()
	for currency, prices := range map[string][2][]int{ // those that are refused, and those that are taken
		"JPY": {{49, 100_000_000}, {50, 553}}, "USD": {{30, 100_000_000}, {50, 99_999_999, 0}}, "XXQ": {{100}, {}}, "IRR": {{100}, {0}},
		"KWD": {{100_000_000, 1255}, {1250}}, "MGA": {{150}, {200}}, "ISK": {{1_000_000}, {1, 999_999}},
	} {
		for i, status := range []int{400, 201} {
			for _, price := range prices[i] {
				op.call("POST", adminSales, newSale(fields{"currency": currency, "price_cents": price, "original_price_cents": 0, "limit_per_user": 1})).want(status)
			}
		}
	}
	for field, changes := range map[string]fields{
		"price_cents":    {"currency": "USD", "price_cents": 100_000_000, "limit_per_user": 1},
		"currency":       {"currency": "IRR", "price_cents": 100, "limit_per_user": 1},
		"limit_per_user": {"currency": "USD", "price_cents": 50_000_000, "limit_per_user": 2},
	} {
		check.Same(t, "the field", op.call("POST", adminSales, newSale(changes)).refused(400, "bad_request").Field, field)
	}
	one := s.createSale(fields{"currency": "USD", "price_cents": 50_000_000, "limit_per_user": 1})
	op.call("PATCH", adminSales+"/"+one.ID, fields{"limit_per_user": 2}).refused(400, "bad_request")

	ann := s.buyer("ann")
	made := ann.buy(s.createSale(fields{"price_cents": 0}).ID, 1)
	started := ann.startPayment(made.ID)
	check.Same(t, "the page of a free order", started.PayURL, s.url+"/orders")
	ann.wantStatus(made.ID, "paid")
	s.refund(made.ID).want(200)
	s.eventually("nothing is due", func() bool {
		return strings.Contains(string(op.get("/api/v1/admin/payments?status=refunded").body), made.ID)
	})
}

// A buyer who clicks several times gets the same page each time.
func TestStripeClicksAtOnce(t *testing.T) {
	t.Parallel()
	account := newStripeAccount(t)
	account.refused = make(chan struct{}, 3)
	s := start(t, takesStripe(account.URL))
	ann := s.buyer("ann")
	made := ann.buy(s.createSale(nil).ID, 1)
	started := check.Collect(4, func(int) payment { return ann.startPayment(made.ID) })
	for _, p := range started {
		check.Same(t, "a page", p, started[0])
	}
}

// While Stripe is away, buyers hear that they may try again, and the order waits.
func TestStripeIsAway(t *testing.T) {
	t.Parallel()
	s := start(t, takesStripe("http://127.0.0.1:1"))
	ann := s.buyer("ann")
	made := ann.buy(s.createSale(nil).ID, 1)
	ann.call("POST", "/api/v1/orders/"+made.ID+"/payments", nil).refused(503, "unavailable")
	ann.wantStatus(made.ID, "pending")
	s.operator().get("/api/v1/admin/payments").contains(made.ID, `"open"`)
}
