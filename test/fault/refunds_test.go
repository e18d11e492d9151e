package fault

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"

	"flashsale/test/kit/shop"
)

// refundRows are faults of refunds.
var refundRows = []row{
	{92, "100 refunds that Stripe refuses, or never answers, stand before good ones", "the good ones go back in time, the others are tried less and less", refundsPastRefusals},
}

const (
	// badRefunds is as many refunds as the engine reads at a time.
	badRefunds = 100
	// inTime is how soon good money goes back: the bad refunds of a round that hang are given up one wave after the other.
	inTime = time.Minute
)

// stubborn is a bank that fails otherwise only in that it refuses to send some money back, and does not answer about some.
type stubborn struct {
	*bank
	mu    sync.Mutex
	bad   []string       // intents whose money does not go back; every fifth hangs
	tries map[string]int // by bad intent
}

func newStubborn(d *drill) *stubborn {
	s := &stubborn{bank: newBank(d), tries: map[string]int{}}
	s.calm = true
	s.Server = httptest.NewServer(s)
	d.Cleanup(s.Close)
	return s
}

func (s *stubborn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm() // an unreadable form has no fields
	s.mu.Lock()
	bad := slices.Index(s.bad, r.Form.Get("payment_intent"))
	if bad >= 0 {
		s.tries[s.bad[bad]]++
	}
	s.mu.Unlock()
	if bad >= 0 && bad%5 == 0 {
		<-r.Context().Done()
		return
	}
	s.bank.ServeHTTP(w, r)
}

// tried returns how many bad refunds were tried, and how often in all.
func (s *stubborn) tried() (refunds, tries int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.tries {
		tries += n
	}
	return len(s.tries), tries
}

// refundsPastRefusals has support refund orders whose money the bank does not send back, and then others. The money of the
// others goes back in time, and that of the bad ones stays due.
func refundsPastRefusals(d *drill) {
	d.stores()
	b := newStubborn(d)
	stripe := []string{"--payment", "stripe", "--stripe-key", "sk_test_1", "--stripe-webhook-secret", stripeSecret, "--stripe-url", b.URL}
	first, second := d.Start(stripe...), d.Start(stripe...)
	good := size(5, 50)
	d.quota, d.urls = badRefunds+good, []string{first.URL, second.URL}
	d.sale = d.SaleToPay(first.URL, d.quota, 600)
	d.attempts = d.Rush(d.sale, "u", d.quota, nil, d.urls...)
	d.told(d.attempts, "201")
	intents := make([]string, d.quota)
	inParallel(4, d.quota, func(i int) {
		a := d.attempts[i]
		status, doc, err := d.Call(http.MethodPost, d.urls[i%2]+"/api/v1/orders/"+a.OrderID+"/payments", d.Token(a.User), nil)
		if err != nil || status != http.StatusCreated {
			d.wrong(status)("order %s can't be paid: %d %v, %v", a.OrderID, status, doc, err)
			return
		}
		page := text(doc, "pay_url")
		paid, _ := b.pay(page[strings.LastIndex(page, "/")+1:])
		d.want(http.StatusOK, "", "a notice")(d.says(d.urls[i%2], paid))
		intents[i] = paid.Intent
	})
	if slices.Contains(intents, "") {
		d.FatalSlowf("not every order was paid")
	}
	b.mu.Lock()
	b.bad = intents[:badRefunds]
	b.mu.Unlock()
	b.bank.mu.Lock()
	for _, intent := range b.bad {
		b.refuses[intent] = true
	}
	b.bank.mu.Unlock()
	refund := func(attempts []shop.Attempt) {
		for _, a := range attempts {
			d.Must(http.StatusOK, http.MethodPost, first.URL+"/api/v1/admin/orders/"+a.OrderID+"/refund", d.Operator(first.URL), nil)
		}
	}
	refund(d.attempts[:badRefunds])
	d.until(inTime, "the bad refunds are tried", func() (bool, error) {
		refunds, _ := b.tried()
		return refunds == badRefunds, nil
	})
	refund(d.attempts[badRefunds:])
	began := time.Now()
	d.until(inTime, "the good money goes back", func() (bool, error) {
		back, err := d.count("SELECT COUNT(*) FROM payments WHERE status = 'refunded'")
		return back == good, err
	})
	took := time.Since(began)
	for i, intent := range intents {
		b.bank.mu.Lock()
		times := b.charges[intent]
		b.bank.mu.Unlock()
		if want := map[bool]int{true: 1}[i >= badRefunds]; times != want {
			d.Errorf("the money of %s went back %d times, want %d", intent, times, want)
		}
	}
	due, err := d.count("SELECT COUNT(*) FROM payments WHERE status = 'refund_due'")
	if err != nil || due != badRefunds {
		d.Errorf("%d refunds are due, want the %d that fail: %v", due, badRefunds, err)
	}
	// The pauses double from 5 s, so ten minutes have room for 8 tries. A call that hangs is repeated once by the client.
	_, tries := b.tried()
	if tries > 2*8*badRefunds {
		d.Errorf("the %d bad refunds were tried %d times", badRefunds, tries)
	}
	d.finish("%d refunds that fail were tried %d times; %d others went back within %s", badRefunds, tries, good, took.Round(100*time.Millisecond))
}
