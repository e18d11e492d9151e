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

func (b *bank) SandboxCharge(_ context.Context, t model.SandboxTransaction) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, there := b.transactions[t.ID]; b.broken == nil && !there {
		b.transactions[t.ID] = t
	}
	return b.broken
}

func (b *bank) SandboxUnreported(_ context.Context, limit int) ([]model.SandboxTransaction, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []model.SandboxTransaction
	for id, t := range b.transactions {
		if !b.reported[id] && len(list) < limit {
			list = append(list, t)
		}
	}
	return list, b.broken
}

func (b *bank) SandboxReported(_ context.Context, id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.broken == nil {
		b.reported[id] = true
	}
	return b.broken
}

func (b *bank) SandboxRefund(_ context.Context, t model.SandboxTransaction) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.broken == nil {
		t.Status = model.SandboxRefunded
		b.transactions[t.ID] = t
	}
	return b.broken
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

// shop is a provider with one payment, and a merchant who answers its callbacks with these statuses, the last
// one for ever.
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

// What the merchant hears, and that it can trust it.
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
			if transactions, reported := s.bank.count(); transactions != 1 || reported != 1 {
				t.Errorf("%d transactions, %d reported", transactions, reported)
			}
		})
	}
}

// An answer that settles it ends the reports; after any other one the merchant is told again.
func TestAnswersOfTheMerchant(t *testing.T) {
	for name, tc := range map[string]struct {
		status int
		final  bool
	}{
		"taken": {200, true}, "no such payment": {404, true}, "a conflict": {409, true},
		"created, which is no answer": {201, false}, "malformed": {400, false}, "a wrong signature": {401, false},
		"too many": {429, false}, "broken": {500, false}, "away": {503, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t, tc.status)
			err := s.Pay(t.Context(), charge, false)
			transactions, reported := s.bank.count()
			if (err == nil) != tc.final || transactions != 1 || (reported == 1) != tc.final {
				t.Errorf("%v, %d transactions, %d reported", err, transactions, reported)
			}
		})
	}
}

// Whoever pays twice is charged once; who declines may decline again, and pay after that.
func TestPayIsOnce(t *testing.T) {
	s := newShop(t, http.StatusOK)
	for range 3 {
		if err := s.Pay(t.Context(), charge, false); err != nil {
			t.Fatal(err)
		}
	}
	if transactions, _ := s.bank.count(); transactions != 1 {
		t.Errorf("%d transactions of one payment", transactions)
	}
	for range 2 {
		if err := s.Pay(t.Context(), charge, true); err != nil {
			t.Fatal(err)
		}
	}
	if transactions, _ := s.bank.count(); transactions != 3 {
		t.Errorf("%d transactions, want one charge and two declines", transactions)
	}
}

// A charge that can't be written down is not reported.
func TestBrokenBooks(t *testing.T) {
	s := newShop(t, http.StatusOK)
	s.bank.broken = errors.New("disk full")
	if err := s.Pay(t.Context(), charge, false); !errors.Is(err, s.bank.broken) {
		t.Errorf("%v", err)
	}
	if len(s.heard) != 0 {
		t.Error("a charge was reported that the books don't have")
	}
	if err := s.Refund(t.Context(), charge); !errors.Is(err, s.bank.broken) {
		t.Errorf("%v", err)
	}
}

// What the merchant did not take is told again until it does, and Run ends with its context.
func TestRunRepeats(t *testing.T) {
	s := newShop(t, http.StatusServiceUnavailable, http.StatusInternalServerError, http.StatusOK)
	if err := s.Pay(t.Context(), charge, false); err == nil {
		t.Fatal("an untaken callback was no error")
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
			t.Fatal("what was taken is not noted")
		}
	}
	cancel()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("Run goes on after its context")
	}
	if len(s.heard) != 0 {
		t.Error("told again after it was taken")
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

// page asks for the payment's page, or presses a button on it.
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

// A page that can't be shown says so and no more.
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
