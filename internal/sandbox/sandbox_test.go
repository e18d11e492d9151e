package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"flashsale/model"
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

func (b *bank) SandboxUnreported(_ context.Context, limit int) (list []model.SandboxTransaction, err error) {
	err = b.change(func() {
		for id, t := range b.transactions {
			if !b.reported[id] && len(list) < limit {
				list = append(list, t)
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
	if gotAll, gotReported := b.count(); gotAll != transactions || gotReported != reported {
		t.Errorf("%d transactions, %d reported; want %d, %d", gotAll, gotReported, transactions, reported)
	}
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

var charge = model.Payment{ID: paymentID, OrderID: "ORDER1", AmountCents: 123405, Currency: "CNY", Status: model.PaymentOpen}

func newShop(t *testing.T, statuses ...int) *shop {
	t.Helper()
	s := &shop{bank: &bank{transactions: map[string]model.SandboxTransaction{}, reported: map[string]bool{}}, heard: make(chan heard, 100), payment: charge, found: true}
	var mu sync.Mutex
	merchant := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
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
		Payment:     func(context.Context, string) (model.Payment, bool, error) { return s.payment, s.found, s.broken },
		Sign:        func(timestamp string, body []byte) string { return "signed " + timestamp + " " + string(body) },
		CallbackURL: func() string { return merchant.URL },
		Head:        "<link look>",
		Now:         func() time.Time { return time.Unix(1767225600, 0) },
		Log:         slog.New(slog.DiscardHandler),
	}
	return s
}

func (s *shop) next(t *testing.T) heard {
	t.Helper()
	select {
	case h := <-s.heard:
		return h
	case <-time.After(time.Minute):
		t.Fatal("no callback came")
	}
	return heard{}
}

// The merchant receives a signed callback about each payment and each decline.
func TestCallbacks(t *testing.T) {
	for name, tc := range map[string]struct {
		decline bool
		status  string
	}{
		"a payment": {false, "succeeded"},
		"a decline": {true, "failed"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t, http.StatusOK)
			if err := s.Pay(t.Context(), charge, tc.decline); err != nil {
				t.Fatal(err)
			}
			h := s.next(t)
			var body map[string]any
			if err := json.Unmarshal(h.body, &body); err != nil {
				t.Fatal(err)
			}
			txn, _ := body["provider_txn_id"].(string)
			if len(body) != 4 || body["payment_id"] != paymentID || body["status"] != tc.status || body["amount_cents"] != 123405.0 || !model.ValidUserID(txn) {
				t.Errorf("body %s", h.body)
			}
			if h.timestamp != "1767225600" || h.signature != "signed 1767225600 "+string(h.body) || h.contentType != "application/json" {
				t.Errorf("%+v", h)
			}
			s.bank.wantCount(t, 1, 1)
		})
	}
}

// A final answer ends the callbacks of a transaction; after any other answer the callback is repeated.
func TestAnswersOfTheMerchant(t *testing.T) {
	for status, final := range map[int]bool{
		200: true, 404: true, 409: true, 201: false, 400: false, 401: false, 429: false, 500: false, 503: false,
	} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			s := newShop(t, status)
			if err := s.Pay(t.Context(), charge, false); (err == nil) != final {
				t.Error(err)
			}
			if transactions, reported := s.bank.count(); transactions != 1 || (reported == 1) != final {
				t.Errorf("%d transactions, %d reported", transactions, reported)
			}
		})
	}
}

// A payment that is paid three times is charged once. It can also be declined twice, which is two transactions.
func TestPayIsOnce(t *testing.T) {
	s := newShop(t, http.StatusOK)
	for i, decline := range []bool{false, false, false, true, true} {
		if err := s.Pay(t.Context(), charge, decline); err != nil {
			t.Fatal(err)
		}
		transactions := max(1, i-1)
		s.bank.wantCount(t, transactions, transactions)
	}
}

// A charge that can't be stored is not reported.
func TestBrokenBooks(t *testing.T) {
	s := newShop(t, http.StatusOK)
	s.bank.broken = errors.New("disk full")
	if err := s.Pay(t.Context(), charge, false); !errors.Is(err, s.bank.broken) {
		t.Errorf("%v", err)
	}
	if len(s.heard) != 0 {
		t.Error("a charge was reported that is not stored")
	}
	if err := s.Refund(t.Context(), charge); !errors.Is(err, s.bank.broken) {
		t.Errorf("%v", err)
	}
}

// Run repeats a callback until the merchant has taken it, and ends with its context.
func TestRunRepeats(t *testing.T) {
	s := newShop(t, http.StatusServiceUnavailable, http.StatusInternalServerError, http.StatusOK)
	if err := s.Pay(t.Context(), charge, false); err == nil {
		t.Fatal("a callback that was not taken is no error")
	}
	first := s.next(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(ctx)
	}()
	for range 2 {
		if again := s.next(t); string(again.body) != string(first.body) {
			t.Errorf("first %s, then %s", first.body, again.body)
		}
	}
	deadline := time.After(time.Minute)
	for {
		if _, reported := s.bank.count(); reported == 1 {
			break
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-deadline:
			t.Fatal("the callback that was taken is not stored")
		}
	}
	cancel()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("Run goes on after its context")
	}
	if len(s.heard) != 0 {
		t.Error("a callback that was taken is repeated")
	}
}

func TestRefundIsOfTheTransaction(t *testing.T) {
	s := newShop(t, http.StatusOK)
	paid := charge
	paid.ProviderTxnID = "sbx-" + paymentID
	for range 2 {
		if err := s.Refund(t.Context(), paid); err != nil {
			t.Fatal(err)
		}
	}
	want := model.SandboxTransaction{ID: "sbx-" + paymentID, PaymentID: paymentID, AmountCents: 123405, Status: model.SandboxRefunded}
	if transactions, _ := s.bank.count(); transactions != 1 || s.bank.transactions["sbx-"+paymentID] != want {
		t.Errorf("%+v", s.bank.transactions)
	}
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
	for name, tc := range map[string]struct {
		payment  model.Payment
		choice   string
		answer   int // of the merchant
		want     []string
		wantNot  []string
		callback bool
	}{
		"open":              {charge, "", 200, []string{"1234.05 CNY", `value="pay"`, `value="decline"`, `href="/orders#ORDER1"`, "<link look>"}, []string{`role="alert"`}, false},
		"paid":              {with(charge, model.PaymentSucceeded), "", 200, []string{"Thank you", `href="/orders#ORDER1"`}, []string{"<button"}, false},
		"declined":          {with(charge, model.PaymentFailed), "", 200, []string{"You declined"}, []string{"<button"}, false},
		"to be refunded":    {with(charge, model.PaymentRefundDue), "", 200, []string{"goes back"}, []string{"<button", "Thank you"}, false},
		"refunded":          {with(charge, model.PaymentRefunded), "", 200, []string{"goes back"}, []string{"<button", "Thank you"}, false},
		"the button pay":    {charge, "pay", 200, []string{`role="status"`, "Thank you", `href="/orders#ORDER1"`}, []string{`role="alert"`, "<button"}, true},
		"decline":           {charge, "decline", 200, []string{`role="status"`, "You declined"}, []string{"Thank you", "<button"}, true},
		"paid after all":    {with(charge, model.PaymentFailed), "pay", 200, []string{"Thank you"}, []string{"declined", "<button"}, true},
		"declined too late": {with(charge, model.PaymentSucceeded), "decline", 200, []string{"Thank you"}, []string{"declined", "<button"}, true},
		"paid too late":     {with(charge, model.PaymentRefundDue), "pay", 200, []string{"goes back"}, []string{"Thank you", "<button"}, true},
		"no button":         {charge, "steal", 200, []string{`role="alert"`, "Choose"}, []string{"Thank you"}, false},
		"the shop is away":  {charge, "pay", 503, []string{`role="alert"`, "will be told again"}, []string{"Thank you", "503", "127.0.0.1"}, true},
		"a free payment":    {model.Payment{ID: paymentID, Currency: "EUR", Status: model.PaymentOpen}, "", 200, []string{"0.00 EUR"}, nil, false},
		"an odd currency":   {model.Payment{ID: paymentID, Currency: "<b>", Status: model.PaymentOpen}, "", 200, []string{"0.00 &lt;b&gt;"}, []string{"<b>"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t, tc.answer)
			s.payment = tc.payment
			w := s.page(t, tc.choice)
			if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "text/html; charset=utf-8" || w.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("%d, %v", w.Code, w.Header())
			}
			if policy := w.Header().Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") || !strings.Contains(policy, "form-action 'self'") {
				t.Errorf("Content-Security-Policy: %s", policy)
			}
			for _, text := range tc.want {
				if !strings.Contains(w.Body.String(), text) {
					t.Errorf("no %s in %s", text, w.Body)
				}
			}
			for _, text := range tc.wantNot {
				if strings.Contains(w.Body.String(), text) {
					t.Errorf("%s in %s", text, w.Body)
				}
			}
			if called := len(s.heard) == 1; called != tc.callback {
				t.Errorf("the shop was called: %t", called)
			}
		})
	}
}

func with(p model.Payment, status model.PaymentStatus) model.Payment {
	p.Status = status
	return p
}

// The page of a missing payment, or without a store, shows no details.
func TestPageThatCantBeShown(t *testing.T) {
	for name, tc := range map[string]struct {
		found  bool
		broken error
		want   int
	}{
		"no such payment": {false, nil, http.StatusNotFound},
		"a broken store":  {false, errors.New("SELECT * FROM payments: no such table"), http.StatusServiceUnavailable},
	} {
		for _, choice := range []string{"", "pay"} {
			t.Run(name+" "+choice, func(t *testing.T) {
				s := newShop(t, http.StatusOK)
				s.found, s.broken = tc.found, tc.broken
				w := s.page(t, choice)
				if w.Code != tc.want || strings.Contains(w.Body.String(), "SELECT") {
					t.Errorf("%d %s", w.Code, w.Body)
				}
				if transactions, _ := s.bank.count(); transactions != 0 || len(s.heard) != 0 {
					t.Error("something was charged")
				}
			})
		}
	}
}
