package fault

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"flashsale/model"
	"flashsale/service/auth"
	"flashsale/test/kit/shop"
)

// moneyRows are faults of clocks and payments.
var moneyRows = []row{
	{15, "the app's clock is an hour off, either way", "windows and expiry unchanged", wrongClocks},
	{16, "payment and expiry race; callbacks replayed or in conflict", "one outcome; refunds", payAgainstExpiry},
}

// wrongClocks sells on an instance whose clock is right, one whose clock is an hour ahead and one whose clock is an
// hour behind. On all three, sales must begin and end, orders expire and payments be accepted by the stores' clocks.
func wrongClocks(d *drill) {
	s := shop.New(d)
	s.Binary = shop.Build(d, "-tags", "failpoints")
	right := s.Start("--pay-grace", "0s")
	ahead := s.StartWith([]string{"FLASHSALE_CLOCK_OFFSET=1h"}, "--pay-grace", "0s")
	behind := s.StartWith([]string{"FLASHSALE_CLOCK_OFFSET=-1h"}, "--pay-grace", "0s")
	instances := map[string]string{"right": right.URL, "an hour ahead": ahead.URL, "an hour behind": behind.URL}
	// Only bearer tokens are judged by an instance's own clock, so they show that the clocks are off.
	for url, want := range map[string]int{right.URL: http.StatusOK, ahead.URL: http.StatusUnauthorized, behind.URL: http.StatusOK} {
		status, doc, err := s.Call(http.MethodGet, url+"/api/v1/orders", tokenFor(d, "ann", time.Hour), nil)
		if err != nil || status != want {
			d.Fatalf("a token of an hour: status %d, want %d: %v %v", status, want, doc, err)
		}
	}
	quota := size(60, 600)
	sale := s.Sale(right.URL, quota)
	d.windows(s, right.URL, instances)
	d.expiry(s, right.URL, instances)

	var mu sync.Mutex
	var attempts []shop.Attempt
	var buyers sync.WaitGroup
	for name, url := range instances {
		buyers.Go(func() {
			for i := range quota / 6 {
				a := d.visit(s, sale, fmt.Sprint(strings.ReplaceAll(name, " ", "-"), "-", i), "", url)
				if !a.Confirmed() {
					d.Errorf("clock %s: %d %s", name, a.Status, a.Code)
				}
				mu.Lock()
				attempts = append(attempts, a)
				mu.Unlock()
			}
		})
	}
	buyers.Wait()
	for i, a := range attempts {
		d.pay(s, a, fmt.Sprint("txn-", i))
	}
	d.result.Happened = fmt.Sprintf("windows and expiry to the second on all three; %s", d.tally(attempts))
	d.recovered(s, sale, int64(quota), attempts, right.URL, behind.URL)
}

// longLife is the life of a token that is also valid on an instance whose clock is an hour ahead.
const longLife = 24 * time.Hour

// tokenFor returns a buyer's token that is valid for life.
func tokenFor(d *drill, user string, life time.Duration) string {
	d.Helper()
	token, _, err := auth.NewTokens([]byte(shop.Secret), time.Now).Sign(model.Identity{UserID: user, Role: model.RoleBuyer}, life)
	if err != nil {
		d.Error(err)
	}
	return token
}

// visit makes a purchase with a token of longLife. If path is empty, it requests one first.
func (d *drill) visit(s *shop.Shop, sale, user, path, url string) shop.Attempt {
	a := shop.Attempt{User: user, Key: "key-" + user, URL: url, Invoked: time.Now()}
	token := tokenFor(d, user, longLife)
	status, doc, err := http.StatusOK, shop.Document{"path": path}, error(nil)
	if path == "" {
		status, doc, err = s.Call(http.MethodPost, url+"/api/v1/sales/"+sale+"/path", token, nil)
	}
	if err == nil && status == http.StatusOK {
		path, _ = doc["path"].(string)
		status, doc, err = s.Call(http.MethodPost, url+"/api/v1/sales/"+sale+"/"+path+"/orders", token, shop.Document{"quantity": 1}, "Idempotency-Key", a.Key)
	}
	a.Answered = time.Now()
	if err != nil {
		d.Error(err)
		return a
	}
	a.Status = status
	a.OrderID, _ = doc["id"].(string)
	a.Code, _ = doc["code"].(string)
	return a
}

// judged is how far an answer may be from the stores' clocks, since the machine may be busy: far below an hour.
const judged = time.Second

// windows has buyers try to buy at every instance from before a sale begins until after it ends. Half of them request a
// path; the others have one, so that only the gate checks the window.
func (d *drill) windows(s *shop.Shop, operator string, instances map[string]string) {
	d.Helper()
	starts := time.Now().Add(4 * time.Second).UTC().Truncate(time.Millisecond)
	ends := starts.Add(2 * time.Second)
	doc := s.Must(http.StatusCreated, http.MethodPost, operator+"/api/v1/admin/sales", s.Operator(operator), shop.Document{
		"title": "window", "price_cents": shop.PriceCents, "quota": 10_000,
		"starts_at": starts.Format(time.RFC3339Nano), "ends_at": ends.Format(time.RFC3339Nano),
	})
	sale, _ := doc["id"].(string)
	paths := auth.NewPaths([]byte(shop.Secret), time.Now)
	var knocking sync.WaitGroup
	for name, url := range instances {
		knocking.Go(func() {
			ticker := time.NewTicker(20 * time.Millisecond)
			defer ticker.Stop()
			heard := map[string]int{}
			for n := 0; heard["ended"] < 2 && time.Now().Before(ends.Add(shop.Recovery)); n++ {
				user, path := fmt.Sprint(strings.ReplaceAll(name, " ", "-"), "-w", n), ""
				if n%2 == 1 {
					path, _ = paths.Issue(user, sale, time.Hour)
				}
				a := d.visit(s, sale, user, path, url)
				wrong := false
				switch {
				case a.Code == "not_started":
					wrong = a.Invoked.After(starts.Add(judged))
				case a.Confirmed():
					wrong = a.Answered.Before(starts.Add(-judged)) || a.Invoked.After(ends.Add(judged))
				case a.Code == "ended":
					wrong = a.Answered.Before(ends.Add(-judged))
				default:
					wrong = true
				}
				if wrong {
					d.Errorf("clock %s: %d %s at %s, of a sale from %s to %s", name, a.Status, a.Code, a.Answered.UTC(), starts, ends)
				}
				heard[a.Code]++
				<-ticker.C
			}
			if heard["not_started"] == 0 || heard[""] == 0 || heard["ended"] < 2 {
				d.Errorf("clock %s: of a sale from before it began to its end, buyers heard %v", name, heard)
			}
		})
	}
	knocking.Wait()
	s.Books(sale)
}

// expiry lets one order on each instance expire.
func (d *drill) expiry(s *shop.Shop, operator string, instances map[string]string) {
	d.Helper()
	const paySeconds = 2
	sale := s.SaleToPay(operator, 10, paySeconds)
	var waiting sync.WaitGroup
	for name, url := range instances {
		waiting.Go(func() {
			a := d.visit(s, sale, strings.ReplaceAll(name, " ", "-")+"-e", "", url)
			earliest, latest := a.Invoked.Add(paySeconds*time.Second), a.Answered.Add(paySeconds*time.Second)
			ticker := time.NewTicker(20 * time.Millisecond)
			defer ticker.Stop()
			for {
				asked := time.Now()
				status, doc, err := s.Call(http.MethodGet, url+"/api/v1/orders/"+a.OrderID, tokenFor(d, a.User, longLife), nil)
				text, _ := doc["expires_at"].(string)
				shown, shownErr := time.Parse(time.RFC3339, text)
				switch {
				case err != nil || shownErr != nil || status != http.StatusOK:
					d.Errorf("clock %s: status %d: %v %v", name, status, doc, err)
					return
				case shown.Before(earliest.Add(-judged)) || shown.After(latest.Add(judged)):
					d.Errorf("clock %s: to be paid until %s, want %s to %s", name, shown, earliest.UTC(), latest.UTC())
					return
				case doc["status"] == "expired":
					if time.Now().Before(shown) {
						d.Errorf("clock %s: expired before %s", name, shown)
					}
					return
				case asked.After(latest.Add(shop.Recovery)):
					d.Errorf("clock %s: %v %s after the time to pay", name, doc["status"], shop.Recovery)
					return
				}
				<-ticker.C
			}
		})
	}
	waiting.Wait()
	if books := s.Books(sale); books.Stock.Available != books.Stock.Quota {
		d.Errorf("not every order has expired: %+v", books.Stock)
	}
}

// pay pays an order by a callback with the right timestamp. Callbacks with the time of a wrong clock must be refused.
func (d *drill) pay(s *shop.Shop, a shop.Attempt, txn string) {
	d.Helper()
	doc := s.Must(http.StatusCreated, http.MethodPost, a.URL+"/api/v1/orders/"+a.OrderID+"/payments", tokenFor(d, a.User, longLife), nil)
	payment, _ := doc["payment_id"].(string)
	for _, off := range []time.Duration{time.Hour, -time.Hour} {
		if status, doc, err := s.CallbackAt(time.Now().Add(off), shop.Secret, a.URL, payment, txn, shop.PriceCents); err != nil || status != http.StatusUnauthorized {
			d.Errorf("a callback %s off: status %d: %v %v", off, status, doc, err)
		}
	}
	if status, doc, err := s.Callback(a.URL, payment, txn, shop.PriceCents); err != nil || status != http.StatusOK {
		d.Errorf("a callback: status %d: %v %v", status, doc, err)
	}
}

// payAgainstExpiry races payments against expiry. Then it repeats every callback and sends others that are in conflict
// with them, forged or stale: nothing may change. One paid order is refunded, and its unit sold again.
func payAgainstExpiry(d *drill) {
	orders := size(100, 1_000)
	s := shop.New(d)
	a, b := s.Start("--pay-grace", "0s"), s.Start("--pay-grace", "0s")
	sale := s.SaleToPay(a.URL, orders, size(10, 15)) // long enough to start all payments on a slow machine
	books := d.watch(s, sale)
	attempts := s.Rush(sale, "u", orders, nil, a.URL, b.URL)
	d.told(attempts, "201")
	urls := [2]string{a.URL, b.URL}
	payments, resold := s.RacePayments(sale, attempts, urls)
	paid := s.OneOutcome(sale, attempts)

	expect := func(want int, code, what string, status int, doc shop.Document, err error) {
		d.Helper()
		if got, _ := doc["code"].(string); err != nil || status != want || got != code {
			d.Errorf("%s: %d %s, want %d %s: %v", what, status, got, want, code, err)
		}
	}
	for i, p := range payments {
		for n := range urls {
			status, doc, err := s.Callback(urls[1-n], p.ID, shop.Transaction(i, n), shop.PriceCents)
			expect(http.StatusOK, "", "a callback again, elsewhere", status, doc, err)
		}
		other := payments[(i+1)%len(payments)]
		status, doc, err := s.Callback(a.URL, other.ID, shop.Transaction(i, 0), shop.PriceCents)
		expect(http.StatusConflict, "not_payable", "a transaction for another payment", status, doc, err)
		status, doc, err = s.Callback(b.URL, p.ID, fmt.Sprint("more-", i), shop.PriceCents+1)
		expect(http.StatusConflict, "amount_mismatch", "another amount", status, doc, err)
		status, doc, err = s.CallbackAt(time.Now(), strings.Repeat("another ", 4), a.URL, p.ID, fmt.Sprint("forged-", i), shop.PriceCents)
		expect(http.StatusUnauthorized, "bad_signature", "a forged callback", status, doc, err)
		status, doc, err = s.CallbackAt(time.Now().Add(-time.Hour), shop.Secret, b.URL, p.ID, shop.Transaction(i, 0), shop.PriceCents)
		expect(http.StatusUnauthorized, "bad_signature", "a stale callback", status, doc, err)
	}
	if again := s.OneOutcome(sale, attempts); again != paid {
		d.Errorf("%d orders were paid, %d are after the callbacks came again", paid, again)
	}
	d.refund(s, attempts, payments, urls)
	books()
	d.result.Happened = fmt.Sprintf("%d orders raced: %d paid, the money of the others due back; %d callbacks repeated, in conflict, forged or stale", orders, paid, 6*orders)
	d.recovered(s, sale, int64(orders), slices.Concat(attempts, resold), a.URL, b.URL)
}

// refund refunds the first paid order. A second refund is refused, and repeated callbacks change nothing.
func (d *drill) refund(s *shop.Shop, attempts []shop.Attempt, payments []shop.Payment, urls [2]string) {
	d.Helper()
	for i, a := range attempts {
		order, ok, err := s.DB.Order(d.Context(), a.OrderID)
		if err != nil || !ok {
			d.Fatalf("order %s: found %t, %v", a.OrderID, ok, err)
		}
		if order.Status != model.OrderPaid {
			continue
		}
		path := "/api/v1/admin/orders/" + a.OrderID + "/refund"
		s.Must(http.StatusOK, http.MethodPost, urls[0]+path, s.Operator(urls[0]), nil)
		s.Must(http.StatusConflict, http.MethodPost, urls[1]+path, s.Operator(urls[1]), nil)
		for n := range urls {
			if status, doc, err := s.Callback(urls[n], payments[i].ID, shop.Transaction(i, n), shop.PriceCents); err != nil || status != http.StatusOK {
				d.Errorf("a callback of a refunded order: status %d: %v %v", status, doc, err)
			}
		}
		order, _, err = s.DB.Order(d.Context(), a.OrderID)
		if due := s.Refunds()[a.OrderID]; err != nil || order.Status != model.OrderRefunded || due != 2 {
			d.Errorf("order %s is %s after its refund, and %d of its two transactions are due back: %v", a.OrderID, order.Status, due, err)
		}
		return
	}
	d.Error("no order was paid")
}
