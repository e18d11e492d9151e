package stripe

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	api "github.com/stripe/stripe-go/v84"
	"github.com/stripe/stripe-go/v84/webhook"

	"flashsale/model"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
)

func TestMain(m *testing.M) { kit.Main(m) }

const (
	key           = "sk_test_123"
	webhookSecret = "whsec_test"
)

var (
	paymentID = strings.Repeat("P", model.PaymentIDLength)
	orderID   = strings.Repeat("O", model.OrderIDLength)
	made      = time.Date(2026, 11, 11, 20, 0, 0, 0, time.UTC)
	payment   = model.Payment{
		ID: paymentID, OrderID: orderID, UserID: "ann", Quantity: 2, Provider: "stripe", AmountCents: 1980, Currency: "CNY",
		Status: model.PaymentOpen, CreatedAt: made, ExpiresAt: made.Add(15 * time.Minute),
	}
	teapot = model.Sale{ID: "S", Title: "Teapot"}
)

// reported is a report about the payment.
func reported(reference, txn string, result model.PaymentStatus, cents int64, currency string) *model.Report {
	r := model.NewReport(paymentID, reference, txn, result, model.Money{Cents: cents, Currency: currency})
	return &r
}

// spy passes requests on to a server, and notes them.
type spy struct {
	requests []string // method and path
	form     url.Values
	key      string // the last idempotency key
	answer   func(w http.ResponseWriter) bool
}

// through returns a provider whose calls go to a server through a spy.
func through(t *testing.T, server string) (*Provider, *spy) {
	t.Helper()
	s := &spy{}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		check.Error(t, "body", err, nil)
		if form, err := url.ParseQuery(string(body)); err == nil && len(body) > 0 {
			s.form = form
		}
		s.requests, s.key = append(s.requests, r.Method+" "+r.URL.Path), cmp.Or(r.Header.Get("Idempotency-Key"), s.key)
		if s.answer != nil && s.answer(w) {
			return
		}
		on, err := http.NewRequestWithContext(r.Context(), r.Method, server+r.URL.RequestURI(), strings.NewReader(string(body)))
		check.Error(t, "request", err, nil)
		on.Header = r.Header
		res, err := http.DefaultClient.Do(on)
		check.Error(t, "answer", err, nil)
		w.WriteHeader(res.StatusCode)
		_, err = io.Copy(w, res.Body)
		check.Error(t, "body of the answer", err, errors.Join(res.Body.Close()))
	}))
	t.Cleanup(front.Close)
	return New(key, webhookSecret, front.URL, func() string { return "https://shop.example/orders" }, func() time.Time { return made }), s
}

// The calls are those of Stripe's API, which its mock server checks.
func TestCalls(t *testing.T) {
	p, s := through(t, kit.StripeMock(t))
	page, reference, err := p.Open(t.Context(), payment, teapot)
	check.NoError(t, err)
	if !strings.HasPrefix(reference, "cs_") || s.key != "open-"+paymentID+"-0" {
		t.Errorf("opened %q at %q with the key %q", reference, page, s.key)
	}
	for name, want := range map[string]string{
		"mode": "payment", "client_reference_id": paymentID, "line_items[0][price_data][unit_amount]": "1980",
		"line_items[0][price_data][currency]": "cny", "payment_intent_data[metadata][payment]": paymentID,
		"payment_intent_data[description]": "Order " + model.OrderNumber(orderID),
		"adaptive_pricing[enabled]":        "false",
		"expires_at":                       fmt.Sprint(made.Add(46 * time.Minute).Unix()), "success_url": "https://shop.example/orders",
	} {
		check.Same(t, name, s.form.Get(name), want)
	}
	opened := payment
	opened.Reference = reference
	_, _, err = p.Look(t.Context(), opened, false)
	check.NoError(t, err)
	for tries, key := range []string{"refund-" + paymentID + "-0", ""} { // what was tried before is looked for first
		s.key = ""
		done, err := p.Refund(t.Context(), model.Payment{ID: paymentID, OrderID: orderID, ProviderTxnID: "pi_123", Currency: "CNY", Tries: tries})
		check.NoError(t, err)
		check.Same(t, "refund", []any{done, s.form.Get("payment_intent"), s.key}, []any{true, "pi_123", key})
	}
}

// A session ends when Stripe lets it, at the earliest half an hour and at the latest a day after it was made.
func TestEndOfTheSession(t *testing.T) {
	for _, tc := range []struct{ left, age, want time.Duration }{
		{time.Second, 0, 31*time.Minute + time.Second},
		{time.Hour, time.Minute, 91 * time.Minute},
		{7 * 24 * time.Hour, 12 * time.Hour, 24*time.Hour - time.Minute},
		{7 * 24 * time.Hour, 30*time.Hour + time.Minute, 54*time.Hour - time.Minute}, // its first try to open has failed long ago
	} {
		p, s := through(t, "")
		p.now = func() time.Time { return made.Add(tc.age) }
		s.answer = func(w http.ResponseWriter) bool {
			_, _ = io.WriteString(w, `{"id":"cs_1","url":"https://pay"}`)
			return true
		}
		long := payment
		long.ExpiresAt = made.Add(tc.left)
		_, _, err := p.Open(t.Context(), long, teapot)
		check.NoError(t, err)
		check.Same(t, tc.left.String(), s.form.Get("expires_at"), fmt.Sprint(made.Add(tc.want).Unix()))
	}
}

// What the provider knows about a payment follows from its session. When the time is over, an open session is ended.
func TestLook(t *testing.T) {
	const retrieve, end = "GET /v1/checkout/sessions/cs_1", "POST /v1/checkout/sessions/cs_1/expire"
	session := func(status, paid string) string {
		return fmt.Sprintf(`{"id":"cs_1","status":%q,"payment_status":%q,"payment_intent":"pi_1","amount_total":1980,"currency":"cny"}`, status, paid)
	}
	report := func(txn string, result model.PaymentStatus) *model.Report {
		return reported("cs_1", txn, result, 1980, "CNY")
	}
	type row struct {
		over     bool
		answers  map[string]string
		requests []string
		want     *model.Report // nil: nothing is known
	}
	check.Each(t, map[string]row{
		"open":                      {false, map[string]string{retrieve: session("open", "unpaid")}, []string{retrieve}, nil},
		"paid":                      {false, map[string]string{retrieve: session("complete", "paid")}, []string{retrieve}, report("pi_1", model.PaymentSucceeded)},
		"paid at the end":           {true, map[string]string{retrieve: session("complete", "paid")}, []string{retrieve}, report("pi_1", model.PaymentSucceeded)},
		"the bank is slow":          {true, map[string]string{retrieve: session("complete", "unpaid")}, []string{retrieve}, nil},
		"unknown":                   {false, nil, []string{retrieve}, nil},
		"unknown at the end":        {true, nil, []string{retrieve}, reported("cs_1", "ended-"+paymentID, model.PaymentFailed, 1980, "CNY")},
		"ended":                     {false, map[string]string{retrieve: session("expired", "unpaid")}, []string{retrieve}, report("cs_1", model.PaymentFailed)},
		"ended by the engine":       {true, map[string]string{retrieve: session("open", "unpaid"), end: session("expired", "unpaid")}, []string{retrieve, end}, report("cs_1", model.PaymentFailed)},
		"paid just before this end": {true, map[string]string{retrieve: session("open", "unpaid"), end: session("complete", "paid")}, []string{retrieve, end}, report("pi_1", model.PaymentSucceeded)},
	}, func(t *testing.T, tc row) {
		p, s := through(t, "")
		s.answer = func(w http.ResponseWriter) bool {
			answer := tc.answers[s.requests[len(s.requests)-1]]
			if answer == "" {
				w.WriteHeader(http.StatusNotFound)
				answer = `{"error":{"type":"invalid_request_error","code":"resource_missing","message":"no such session"}}`
			}
			_, _ = io.WriteString(w, answer)
			return true
		}
		opened := payment
		opened.Reference = "cs_1"
		got, known, err := p.Look(t.Context(), opened, tc.over)
		check.NoError(t, err)
		check.Same(t, "requests", s.requests, tc.requests)
		check.Same(t, "known", known, tc.want != nil)
		if tc.want != nil {
			check.Same(t, "report", got, *tc.want)
		}
	})
}

// A payment whose session nobody has seen was not paid, and Stripe is not asked.
func TestLookWithoutASession(t *testing.T) {
	p, s := through(t, "")
	_, known, err := p.Look(t.Context(), payment, false)
	check.Same(t, "known before the end", []any{known, err}, []any{false, nil})
	report, known, err := p.Look(t.Context(), payment, true)
	check.Same(t, "known at the end", []any{known, report.Result(), err}, []any{true, model.PaymentFailed, nil})
	check.Same(t, "requests", len(s.requests), 0)
}

// A provider that is away, slow or refuses is an error, and no money counts as sent back.
func TestAway(t *testing.T) {
	p, s := through(t, "")
	opened := payment
	opened.Reference, opened.ProviderTxnID = "cs_1", "pi_1"
	for _, status := range []int{500, 429, 402, 400} {
		s.answer = func(w http.ResponseWriter) bool {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, `{"error":{"type":"api_error","message":"no"}}`)
			return true
		}
		_, _, openErr := p.Open(t.Context(), payment, teapot)
		_, _, lookErr := p.Look(t.Context(), opened, true)
		done, refundErr := p.Refund(t.Context(), opened)
		check.Same(t, fmt.Sprint(status, " would be repeated"), errors.Is(openErr, model.ErrNotOpened), status != 429)
		check.Same(t, fmt.Sprint(status, " refuses the payment"), errors.Is(openErr, model.ErrPaymentRefused), status == 402 || status == 400)
		check.Same(t, fmt.Sprint(status, " is final"), errors.Is(refundErr, model.ErrRefundRefused), status == 402 || status == 400)
		if openErr == nil || lookErr == nil || refundErr == nil || done || strings.Contains(errors.Join(openErr, lookErr, refundErr).Error(), key) {
			t.Errorf("with %d: %v, %v, %v, %t", status, openErr, lookErr, refundErr, done)
		}
	}
	s.answer = func(w http.ResponseWriter) bool {
		w.WriteHeader(http.StatusBadGateway)
		_, _ = io.WriteString(w, "<html>")
		return true
	}
	if _, _, err := p.Open(t.Context(), payment, teapot); err == nil || errors.Is(err, model.ErrNotOpened) {
		t.Errorf("an answer of a proxy: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := p.Open(ctx, payment, teapot); err == nil {
		t.Error("opened without time")
	}
}

// A refund is done when all the money has arrived. Before another one is asked for, Stripe is asked what has become of the others.
func TestRefund(t *testing.T) {
	const list, create = "GET /v1/refunds", "POST /v1/refunds"
	refund := func(status string, amount int) string {
		return fmt.Sprintf(`{"id":"re_1","status":%q,"amount":%d}`, status, amount)
	}
	listed := func(refunds ...string) string {
		return `{"object":"list","data":[` + strings.Join(refunds, ",") + `],"has_more":false}`
	}
	type row struct {
		tries    int
		answers  map[string]string // a refusal begins with its code
		requests []string
		done     bool
		err      error
	}
	check.Each(t, map[string]row{
		"at once":          {0, map[string]string{create: refund("succeeded", 1980), list: listed(refund("succeeded", 1980))}, []string{create, list}, true, nil},
		"later":            {0, map[string]string{create: refund("pending", 1980), list: listed(refund("pending", 1980))}, []string{create, list}, false, nil},
		"the rest":         {0, map[string]string{create: refund("succeeded", 1000), list: listed(refund("pending", 980), refund("succeeded", 1000))}, []string{create, list}, false, nil},
		"not":              {0, map[string]string{create: refund("failed", 1980)}, []string{create}, false, model.ErrRefundRefused},
		"in another way":   {0, map[string]string{create: "charge_already_refunded", list: listed(refund("succeeded", 1980))}, []string{create, list}, true, nil},
		"that way waits":   {0, map[string]string{create: "charge_already_refunded", list: listed(refund("succeeded", 980), refund("pending", 1000))}, []string{create, list}, false, nil},
		"the buyer's turn": {0, map[string]string{create: refund("requires_action", 1980), list: listed(refund("requires_action", 1980))}, []string{create, list}, false, nil},
		"disputed":         {0, map[string]string{create: "charge_disputed"}, []string{create}, false, model.ErrRefundRefused},
		"on the way":       {1, map[string]string{list: listed(refund("pending", 1980))}, []string{list}, false, nil},
		"there":            {1, map[string]string{list: listed(refund("failed", 1980), refund("succeeded", 1980))}, []string{list}, true, nil},
		"in parts":         {1, map[string]string{list: listed(refund("succeeded", 980), refund("succeeded", 1000))}, []string{list}, true, nil},
		"a part under way": {1, map[string]string{list: listed(refund("succeeded", 980), refund("pending", 1000))}, []string{list}, false, nil},
		"lost on the way":  {4, map[string]string{list: listed(refund("failed", 1980)), create: refund("succeeded", 1980)}, []string{list, create, list}, true, nil},
		"failed at once":   {0, map[string]string{create: refund("pending", 1980), list: listed(refund("failed", 1980))}, []string{create, list}, false, nil},
		"a part is left":   {4, map[string]string{list: listed(refund("succeeded", 980)), create: refund("succeeded", 1000)}, []string{list, create, list}, true, nil},
	}, func(t *testing.T, tc row) {
		p, s := through(t, "")
		s.answer = func(w http.ResponseWriter) bool {
			answer := tc.answers[s.requests[len(s.requests)-1]]
			if !strings.HasPrefix(answer, "{") {
				w.WriteHeader(http.StatusBadRequest)
				answer = fmt.Sprintf(`{"error":{"type":"invalid_request_error","code":%q,"message":"no"}}`, answer)
			}
			_, _ = io.WriteString(w, answer)
			return true
		}
		paid := payment
		paid.ProviderTxnID, paid.Tries = "pi_1", tc.tries
		done, err := p.Refund(t.Context(), paid)
		check.Error(t, "refund", err, tc.err)
		check.Same(t, "done", done, tc.done)
		check.Same(t, "requests", s.requests, tc.requests)
		if slices.Contains(tc.requests, create) {
			check.Same(t, "the idempotency key", s.key, fmt.Sprintf("refund-%s-%d", paymentID, tc.tries))
		}
	})
}

// What Stripe takes of a currency, in its smallest unit: https://docs.stripe.com/currencies.
func TestTakes(t *testing.T) {
	p := &Provider{}
	for currency, want := range map[string]model.AmountRange{
		"USD": {Low: 50, High: 99_999_999, Step: 1}, "JPY": {Low: 50, High: 99_999_999, Step: 1}, "MGA": {Low: 100, High: 9_999_999_900, Step: 100},
		"KWD": {Low: 10, High: 99_999_990, Step: 10}, "IDR": {Low: 1, High: 999_999_999_999, Step: 1}, "ISK": {Low: 1, High: 999_999, Step: 1},
	} {
		got, ok := p.Takes(currency)
		check.Same(t, currency, []any{got, ok}, []any{want, true})
		for _, cents := range []int64{want.Low, want.High} {
			amount, err := toStripe(strings.ToLower(currency), cents)
			check.Same(t, currency+" there and back", []any{moneyOf(api.Currency(strings.ToLower(currency)), amount).Cents, err}, []any{cents, nil})
		}
	}
	_, ok := p.Takes("XXQ")
	check.Same(t, "a currency that is none", ok, false)
	for code := range least {
		if _, ok := p.Takes(strings.ToUpper(code)); !ok {
			t.Errorf("%s has a least charge, and is not taken", code)
		}
	}
}

// Notices are believed only with Stripe's signature of exactly these bytes, from the last five minutes.
func TestRead(t *testing.T) {
	type row struct {
		body string
		want *model.Report // nil: it has none
		err  error
	}
	p := New(key, webhookSecret, "", nil, nil)
	event := func(kind, object string) string {
		return fmt.Sprintf(`{"id":"evt_1","object":"event","api_version":"2020-08-27","type":%q,"data":{"object":%s}}`, kind, object)
	}
	session := func(id, paid string) string {
		return fmt.Sprintf(`{"id":"cs_1","object":"checkout.session","client_reference_id":%q,"status":"complete","payment_status":%q,"payment_intent":"pi_1","amount_total":1980,"currency":"cny"}`, id, paid)
	}
	charge := func(refunded bool) string {
		return fmt.Sprintf(`{"id":"ch_1","object":"charge","refunded":%t,"payment_intent":"pi_1","amount":1980,"currency":"cny","metadata":{"payment":%q}}`, refunded, paymentID)
	}
	refund := func(status string) string {
		return fmt.Sprintf(`{"id":"re_1","object":"refund","status":%q,"payment_intent":"pi_1","charge":"ch_1","amount":1980,"currency":"cny","metadata":{}}`, status)
	}
	lost := model.NewReport("", "", "pi_1", model.PaymentRefundDue, model.Money{Cents: 1980, Currency: "CNY"})
	expired := strings.Replace(session(paymentID, "unpaid"), "complete", "expired", 1)
	report := func(txn string, result model.PaymentStatus) *model.Report {
		return reported("cs_1", txn, result, 1980, "CNY")
	}
	foreign := func(body, member string) row {
		return row{strings.Replace(body, `{"id":"evt_1"`, `{"id":"evt_1",`+member, 1), nil, model.ErrForeignNotice}
	}
	paid := event("checkout.session.completed", session(paymentID, "paid"))
	yen := strings.NewReplacer(`"cny"`, `"jpy"`)
	check.Each(t, map[string]row{
		"paid":                 {paid, report("pi_1", model.PaymentSucceeded), nil},
		"the bank is slow":     {event("checkout.session.completed", session(paymentID, "unpaid")), nil, nil},
		"paid after that":      {event("checkout.session.async_payment_succeeded", session(paymentID, "paid")), report("pi_1", model.PaymentSucceeded), nil},
		"failed after that":    {event("checkout.session.async_payment_failed", session(paymentID, "unpaid")), report("cs_1", model.PaymentFailed), nil},
		"ended":                {event("checkout.session.expired", expired), report("cs_1", model.PaymentFailed), nil},
		"nothing was to pay":   {event("checkout.session.completed", session(paymentID, "no_payment_required")), report("cs_1", model.PaymentFailed), nil},
		"in yen":               {yen.Replace(paid), reported("cs_1", "pi_1", model.PaymentSucceeded, 1980, "JPY"), nil},
		"sent back":            {event("charge.refunded", charge(true)), reported("", "pi_1", model.PaymentRefunded, 1980, "CNY"), nil},
		"yen that went back":   {yen.Replace(event("charge.refunded", charge(true))), reported("", "pi_1", model.PaymentRefunded, 1980, "JPY"), nil},
		"partly sent back":     {event("charge.refunded", charge(false)), nil, nil},
		"did not arrive":       {event("refund.failed", refund("failed")), &lost, nil},
		"never left":           {event("charge.refund.updated", refund("canceled")), &lost, nil},
		"on the way back":      {event("refund.updated", refund("pending")), nil, nil},
		"of another use":       {event("checkout.session.completed", session("cart-7", "paid")), nil, nil},
		"another event":        {event("customer.created", `{"id":"cus_1"}`), nil, nil},
		"of another account":   foreign(paid, `"account":"acct_2"`),
		"of live money":        foreign(paid, `"livemode":true`),
		"of another object":    {strings.Replace(paid, `"object":"checkout.session"`, `"object":"payment_link"`, 1), nil, model.ErrForeignNotice},
		"a refund of a refund": {event("charge.refunded", strings.Replace(charge(true), `"object":"charge"`, `"object":"refund"`, 1)), nil, model.ErrForeignNotice},
	}, func(t *testing.T, tc row) {
		signed := webhook.GenerateTestSignedPayload(&webhook.UnsignedPayload{Payload: []byte(tc.body), Secret: webhookSecret})
		header := http.Header{"Stripe-Signature": {signed.Header}}
		got, relevant, err := p.Read(header, signed.Payload)
		check.Error(t, "read", err, tc.err)
		check.Same(t, "relevant", relevant, tc.want != nil)
		if tc.want != nil {
			check.Same(t, "report", got, *tc.want)
		}
		if _, _, err := p.Read(header, append(signed.Payload, ' ')); !errors.Is(err, model.ErrBadNotice) {
			t.Errorf("changed bytes: %v", err)
		}
		for what, wrong := range map[string]webhook.UnsignedPayload{
			"another secret": {Payload: []byte(tc.body), Secret: "whsec_other"},
			"a day old":      {Payload: []byte(tc.body), Secret: webhookSecret, Timestamp: time.Now().Add(-24 * time.Hour)},
		} {
			forged := webhook.GenerateTestSignedPayload(&wrong)
			if _, _, err := p.Read(http.Header{"Stripe-Signature": {forged.Header}}, forged.Payload); !errors.Is(err, model.ErrBadNotice) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if _, _, err := p.Read(http.Header{}, signed.Payload); !errors.Is(err, model.ErrBadNotice) {
			t.Errorf("no signature: %v", err)
		}
	})
}

// What a notice says beside what is read may have any form. If what is read has another form, the notice changes nothing, and
// need not come again.
func TestHole72_OddNotices(t *testing.T) {
	p := New(key, webhookSecret, "", nil, nil)
	read := func(event map[string]any) (model.Report, bool, error) {
		signed := webhook.GenerateTestSignedPayload(&webhook.UnsignedPayload{Payload: check.Must(json.Marshal(event)), Secret: webhookSecret})
		return p.Read(http.Header{"Stripe-Signature": {signed.Header}}, signed.Payload)
	}
	type object = map[string]any
	event := func(kind string, changes object) (event, inner object) {
		inner = object{
			"id": "cs_1", "object": "checkout.session", "client_reference_id": paymentID, "status": "complete", "payment_status": "paid",
			"payment_intent": "pi_1", "amount_total": 1980, "currency": "cny",
		}
		if kind == "charge.refunded" {
			inner = object{"id": "ch_1", "object": "charge", "refunded": true, "payment_intent": "pi_1", "amount": 1980, "currency": "cny", "metadata": object{"payment": paymentID}}
		}
		maps.Copy(inner, changes)
		return object{"id": "evt_1", "object": "event", "type": kind, "data": object{"object": inner}}, inner
	}
	odd := []any{nil, true, 7, -0.5, "x", []any{}, object{"a": object{}}}
	for kind, form := range map[string]reflect.Type{
		"checkout.session.completed": reflect.TypeFor[api.CheckoutSession](), "charge.refunded": reflect.TypeFor[api.Charge](),
	} {
		whole, inner := event(kind, nil)
		want, relevant, err := read(whole)
		check.Same(t, kind, []any{relevant, err}, []any{true, nil})
		for at, of := range map[*object]reflect.Type{&whole: reflect.TypeFor[api.Event](), &inner: form} {
			for i := range of.NumField() {
				name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
				_, given := (*at)[name]
				reads := given || slices.Contains([]string{"account", "livemode"}, name) && at == &whole
				for _, value := range odd {
					changed, inside := event(kind, nil)
					if at == &whole {
						changed[name] = value
					} else {
						inside[name] = value
					}
					got, relevant, err := read(changed)
					if reads && err != nil && !errors.Is(err, model.ErrForeignNotice) || !reads && (!relevant || err != nil || got != want) {
						t.Errorf("%s with %s: %v: %v, %t, %v", kind, name, value, got, relevant, err)
					}
				}
			}
		}
		expanded, _ := event(kind, object{"payment_intent": object{"id": "pi_1", "object": "payment_intent", "amount": "odd"}})
		got, relevant, err := read(expanded)
		check.Same(t, kind+" with the whole intent", []any{got, relevant, err}, []any{want, true, nil})
	}
	_, relevant, err := read(object{"id": "evt_1", "object": "v2.core.event", "type": "v1.billing.meter.error_report_triggered", "data": 7})
	check.Same(t, "a thin event is relevant", relevant, false)
	check.Error(t, "a thin event", err, model.ErrForeignNotice)
}

// A key of live money takes no notices of test money.
func TestLiveKey(t *testing.T) {
	p := New("sk_live_123", webhookSecret, "", nil, nil)
	for live, want := range map[bool]error{true: nil, false: model.ErrForeignNotice} {
		body := fmt.Sprintf(`{"id":"evt_1","object":"event","livemode":%t,"type":"checkout.session.expired","data":{"object":{"id":"cs_1",
			"object":"checkout.session","client_reference_id":%q,"status":"expired","amount_total":1980,"currency":"cny"}}}`, live, paymentID)
		signed := webhook.GenerateTestSignedPayload(&webhook.UnsignedPayload{Payload: []byte(body), Secret: webhookSecret})
		_, relevant, err := p.Read(http.Header{"Stripe-Signature": {signed.Header}}, signed.Payload)
		check.Error(t, fmt.Sprint("live: ", live), err, want)
		check.Same(t, "relevant", relevant, live)
	}
}

// Amounts are those that Stripe means, and come back as they were.
func TestCurrencies(t *testing.T) {
	for currency, want := range map[string]int64{"cny": 1900, "jpy": 1900, "kwd": 1900, "isk": 190_000, "ugx": 190_000, "mga": 19} {
		amount, err := toStripe(currency, 1900)
		check.Same(t, currency, []any{amount, err}, []any{want, nil})
		check.Same(t, currency+" back", moneyOf(api.Currency(currency), amount), model.Money{Cents: 1900, Currency: strings.ToUpper(currency)})
	}
	for currency, smallest := range map[string]int64{"kwd": 1901, "mga": 1950} {
		_, err := toStripe(currency, smallest)
		check.Error(t, "a part of "+currency, err, errFraction)
	}
	check.Same(t, "half a króna", moneyOf("isk", 1950), model.Money{Cents: 19, Currency: "ISK", Rounded: true})
}
