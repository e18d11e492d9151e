package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// bank keeps the provider's books in memory. broken makes every call fail.
type bank struct {
	mu           sync.Mutex
	transactions map[string]model.SandboxTransaction
	reported     map[string]bool
	broken       error
}

func (b *bank) change(fn func()) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.broken == nil {
		fn()
	}
	return b.broken
}

func (b *bank) SandboxCharge(_ context.Context, t model.SandboxTransaction) error {
	return b.change(func() {
		if _, there := b.transactions[t.ID]; !there {
			b.transactions[t.ID] = t
		}
	})
}

func (b *bank) SandboxUnreported(_ context.Context, after string, limit int) (list []model.SandboxTransaction, err error) {
	err = b.change(func() {
		for _, id := range slices.Sorted(maps.Keys(b.transactions)) {
			if !b.reported[id] && id > after && len(list) < limit {
				list = append(list, b.transactions[id])
			}
		}
	})
	return list, err
}

func (b *bank) SandboxReported(_ context.Context, id string) error {
	return b.change(func() { b.reported[id] = true })
}

func (b *bank) SandboxRefund(_ context.Context, t model.SandboxTransaction) error {
	t.Status = model.SandboxRefunded
	return b.change(func() { b.transactions[t.ID] = t })
}

// wantCount compares how many transactions there are, and how many of them were reported.
func (b *bank) wantCount(t *testing.T, transactions, reported int) {
	t.Helper()
	gotAll, gotReported := b.count()
	check.Same(t, "transactions, reported", []int{gotAll, gotReported}, []int{transactions, reported})
}

func (b *bank) count() (transactions, reported int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.transactions), len(b.reported)
}

// heard is a callback as the shop received it.
type heard struct {
	timestamp, signature, contentType string
	body                              []byte
}

// shop is a provider with one payment, and a merchant who answers callbacks with these statuses, and then always with the
// last.
type shop struct {
	*Provider
	bank    *bank
	heard   chan heard
	payment model.Payment
	found   bool
	broken  error
}

// paymentID has the form of the ids that payments are given.
var paymentID = strings.Repeat("P", model.PaymentIDLength)

const orderID = "AAAAAAAAAAAAAAAASIOBO2FFJ5N57W7J664USJFSISHZQU7F"

var charge = model.Payment{ID: paymentID, OrderID: orderID, AmountCents: 123405, Currency: "CNY", Status: model.PaymentOpen}

func newShop(t *testing.T, statuses ...int) *shop {
	t.Helper()
	s := &shop{bank: &bank{transactions: map[string]model.SandboxTransaction{}, reported: map[string]bool{}}, heard: make(chan heard, 100), payment: charge, found: true}
	var mu sync.Mutex
	merchant := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		check.Error(t, "body", err, nil)
		mu.Lock()
		status := statuses[0]
		if len(statuses) > 1 {
			statuses = statuses[1:]
		}
		mu.Unlock()
		w.WriteHeader(status)
		s.heard <- heard{r.Header.Get("X-Timestamp"), r.Header.Get("X-Signature"), r.Header.Get("Content-Type"), body}
	}))
	t.Cleanup(merchant.Close)
	s.Provider = &Provider{
		Books:       s.bank,
		Read:        func(context.Context, string) (model.Payment, bool, error) { return s.payment, s.found, s.broken },
		Secret:      callbackSecret,
		PublicURL:   func() string { return "https://shop.example" },
		CallbackURL: func() string { return merchant.URL },
		Head:        "<link look>",
		Now:         func() time.Time { return time.Unix(1767225600, 0) },
		Log:         slog.New(slog.DiscardHandler),
	}
	return s
}

// The merchant receives a signed callback about each payment and each decline.
func TestCallbacks(t *testing.T) {
	for status, decline := range map[string]bool{"succeeded": false, "failed": true} {
		s := newShop(t, http.StatusOK)
		check.Done(s.Pay(t.Context(), charge, decline))
		h := check.Receive(t, "a callback", s.heard)
		var body map[string]any
		check.Done(json.Unmarshal(h.body, &body))
		txn, _ := body["provider_txn_id"].(string)
		check.Same(t, txn+" is valid", model.ValidUserID(txn), true)
		check.Same(t, "body", body, map[string]any{
			"payment_id": paymentID, "provider_txn_id": txn, "status": status, "amount_cents": 123405.0,
		})
		check.Same(t, "callback", h, heard{"1767225600", Sign(callbackSecret, "1767225600", h.body), "application/json", h.body})
		s.bank.wantCount(t, 1, 1)
	}
}

// A final answer ends the callbacks of a transaction; after any other answer the callback is repeated.
func TestAnswersOfTheMerchant(t *testing.T) {
	for status, final := range map[int]bool{
		200: true, 404: true, 409: true, 201: false, 400: false, 401: false, 429: false, 500: false, 503: false,
	} {
		s := newShop(t, status)
		check.Same(t, fmt.Sprint(status, " is final"), s.Pay(t.Context(), charge, false) == nil, final)
		transactions, reported := s.bank.count()
		check.Same(t, "transactions", transactions, 1)
		check.Same(t, fmt.Sprint(status, " is reported"), reported == 1, final)
	}
}

// A payment that is paid three times is charged once. It can also be declined twice, which is two transactions.
func TestPayIsOnce(t *testing.T) {
	s := newShop(t, http.StatusOK)
	for i, decline := range []bool{false, false, false, true, true} {
		check.Done(s.Pay(t.Context(), charge, decline))
		transactions := max(1, i-1)
		s.bank.wantCount(t, transactions, transactions)
	}
}

// A charge that can't be stored is not reported.
func TestBrokenBooks(t *testing.T) {
	s := newShop(t, http.StatusOK)
	s.bank.broken = errors.New("disk full")
	check.Error(t, "payment", s.Pay(t.Context(), charge, false), s.bank.broken)
	check.Same(t, "callbacks", len(s.heard), 0)
	_, err := s.Refund(t.Context(), charge)
	check.Error(t, "refund", err, s.bank.broken)
}

// Run repeats a callback until the merchant has taken it, and ends with its context.
func TestRunRepeats(t *testing.T) {
	s := newShop(t, http.StatusServiceUnavailable, http.StatusInternalServerError, http.StatusOK)
	check.Same(t, "a callback that was not taken is an error", s.Pay(t.Context(), charge, false) != nil, true)
	first := check.Receive(t, "the first callback", s.heard)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(ctx)
	}()
	for range 2 {
		check.Same(t, "repeated callback", check.Receive(t, "a repeated callback", s.heard), first)
	}
	check.Eventually(t, "the callback that was taken is stored", func() bool {
		_, reported := s.bank.count()
		return reported == 1
	})
	cancel()
	check.Receive(t, "the end of Run", ended)
	check.Same(t, "callbacks after one was taken", len(s.heard), 0)
}

// Callbacks that always fail keep no other one waiting for ever.
func TestRunGoesOn(t *testing.T) {
	s := newShop(t, http.StatusInternalServerError)
	for i := range 2*reportBatch + 1 {
		id := fmt.Sprintf("t-%03d", i)
		check.Done(s.bank.SandboxCharge(t.Context(), model.SandboxTransaction{ID: id, PaymentID: paymentID, Status: model.SandboxCharged}))
	}
	good := make(chan struct{})
	merchant := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		check.Error(t, "body", err, nil)
		if !strings.Contains(string(body), fmt.Sprintf("t-%03d", 2*reportBatch)) {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		close(good) // once, since it is taken
	}))
	t.Cleanup(merchant.Close)
	s.CallbackURL = func() string { return merchant.URL }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(ctx)
	}()
	check.Receive(t, "the good callback", good)
	cancel()
	check.Receive(t, "the end of Run", ended)
}

func TestRefundIsOfTheTransaction(t *testing.T) {
	s := newShop(t, http.StatusOK)
	paid := charge
	paid.ProviderTxnID = "sbx-" + paymentID
	for range 2 {
		_, err := s.Refund(t.Context(), paid)
		check.Done(err)
	}
	want := model.SandboxTransaction{ID: "sbx-" + paymentID, PaymentID: paymentID, AmountCents: 123405, Status: model.SandboxRefunded}
	check.Same(t, "transactions", s.bank.transactions, map[string]model.SandboxTransaction{want.ID: want})
}

// page requests the payment's page, or submits a choice.
func (s *shop) page(t *testing.T, choice string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/pay/"+paymentID, nil)
	if choice != "" {
		form := url.Values{"choice": {choice}}.Encode()
		r = httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/pay/"+paymentID+"?choice=pay", strings.NewReader(form))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

func TestPage(t *testing.T) {
	type test struct {
		payment  model.Payment
		choice   string
		answer   int // of the merchant
		want     []string
		wantNot  []string
		callback bool
	}
	check.Each(t, map[string]test{
		"open":              {charge, "", 200, []string{"1234.05 CNY", "SIOBO2FF</p>", `value="pay"`, `value="decline"`, `href="/orders#` + orderID + `"`, "<link look>"}, []string{`role="alert"`}, false},
		"paid":              {with(charge, model.PaymentSucceeded), "", 200, []string{"Thank you", `href="/orders#` + orderID + `"`}, []string{"<button"}, false},
		"declined":          {with(charge, model.PaymentFailed), "", 200, []string{"You declined"}, []string{"<button"}, false},
		"to be refunded":    {with(charge, model.PaymentRefundDue), "", 200, []string{"goes back"}, []string{"<button", "Thank you"}, false},
		"refunded":          {with(charge, model.PaymentRefunded), "", 200, []string{"goes back"}, []string{"<button", "Thank you"}, false},
		"the button pay":    {charge, "pay", 200, []string{`role="status"`, "Thank you", `href="/orders#` + orderID + `"`}, []string{`role="alert"`, "<button"}, true},
		"decline":           {charge, "decline", 200, []string{`role="status"`, "You declined"}, []string{"Thank you", "<button"}, true},
		"paid after all":    {with(charge, model.PaymentFailed), "pay", 200, []string{"Thank you"}, []string{"declined", "<button"}, true},
		"declined too late": {with(charge, model.PaymentSucceeded), "decline", 200, []string{"Thank you"}, []string{"declined", "<button"}, true},
		"paid too late":     {with(charge, model.PaymentRefundDue), "pay", 200, []string{"goes back"}, []string{"Thank you", "<button"}, true},
		"no button":         {charge, "steal", 200, []string{`role="alert"`, "Choose"}, []string{"Thank you"}, false},
		"the shop is away":  {charge, "pay", 503, []string{`role="alert"`, "will be told again"}, []string{"Thank you", "503", "127.0.0.1"}, true},
		"a free payment":    {model.Payment{ID: paymentID, Currency: "EUR", Status: model.PaymentOpen}, "", 200, []string{"0.00 EUR"}, nil, false},
		"an odd currency":   {model.Payment{ID: paymentID, Currency: "<b>", Status: model.PaymentOpen}, "", 200, []string{"0.00 &lt;b&gt;"}, []string{"<b>"}, false},
	}, func(t *testing.T, tc test) {
		s := newShop(t, tc.answer)
		s.payment = tc.payment
		w := s.page(t, tc.choice)
		check.Same(t, "status", w.Code, http.StatusOK)
		check.Same(t, "content type", w.Header().Get("Content-Type"), "text/html; charset=utf-8")
		check.Same(t, "caching", w.Header().Get("Cache-Control"), "no-store")
		policy := w.Header().Get("Content-Security-Policy")
		for _, rule := range []string{"default-src 'none'", "form-action 'self'"} {
			check.Same(t, "the policy has "+rule, strings.Contains(policy, rule), true)
		}
		for i, text := range slices.Concat(tc.want, tc.wantNot) {
			check.Same(t, "the page has "+text, strings.Contains(w.Body.String(), text), i < len(tc.want))
		}
		check.Same(t, "the shop was called", len(s.heard) == 1, tc.callback)
	})
}

func with(p model.Payment, status model.PaymentStatus) model.Payment {
	p.Status = status
	return p
}

// The page of a missing payment, or without a store, shows no details.
func TestPageThatCantBeShown(t *testing.T) {
	for status, broken := range map[int]error{
		http.StatusNotFound: nil, http.StatusServiceUnavailable: errors.New("SELECT * FROM payments: no such table"),
	} {
		for _, choice := range []string{"", "pay"} {
			s := newShop(t, http.StatusOK)
			s.found, s.broken = false, broken
			w := s.page(t, choice)
			check.Same(t, "status", w.Code, status)
			check.Same(t, "the error is on the page", strings.Contains(w.Body.String(), "SELECT"), false)
			s.bank.wantCount(t, 0, 0)
			check.Same(t, "callbacks", len(s.heard), 0)
		}
	}
}
