package fault

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"flashsale/model"
	"flashsale/test/kit/shop"
)

// moneyRows are faults of clocks and payments.
var moneyRows = []row{
	{15, "the app's clock is an hour off, either way", "windows and expiry unchanged", wrongClocks},
	{16, "payment and expiry race; callbacks replayed or in conflict", "one outcome; refunds", payAgainstExpiry},
}

// clocks are instances with different clocks.
type clocks struct {
	*drill
	urls map[string]string // by what is wrong with the clock
}

// wrongClocks sells on an instance whose clock is right, one whose clock is an hour ahead and one whose clock is an
// hour behind. On all three, sales must begin and end, orders expire and payments be accepted by the stores' clocks.
func wrongClocks(d *drill) {
	d.stores()
	d.failpoints()
	c := &clocks{d, map[string]string{}}
	for name, offset := range map[string]string{"right": "0s", "ahead": "1h", "behind": "-1h"} {
		c.urls[name] = d.StartWith([]string{"FLASHSALE_CLOCK_OFFSET=" + offset}, "--pay-grace", "0s").URL
		// Only bearer tokens are judged by an instance's own clock, so they show that the clocks are off.
		want := map[string]int{"right": http.StatusOK, "ahead": http.StatusUnauthorized, "behind": http.StatusOK}[name]
		minute := signedToken(sha256.New, `{"alg":"HS256","typ":"JWT"}`, claimsOf("ann", "buyer", time.Now().Add(time.Minute)), shop.Secret)
		d.Must(want, http.MethodGet, c.urls[name]+"/api/v1/orders", minute, nil)
	}
	d.urls = []string{c.urls["right"], c.urls["behind"]}
	d.quota = size(60, 600)
	d.sale = d.Sale(d.urls[0], d.quota)
	c.windows()
	c.expiry()

	var mu sync.Mutex
	c.each(func(name, url string) {
		for i := range d.quota / 6 {
			user := fmt.Sprint(name, "-", i)
			a := d.buy(user, "key-"+user, url)
			if !a.Confirmed() {
				d.wrong(a.Status)("clock %s: %d %s", name, a.Status, a.Code)
			}
			mu.Lock()
			d.attempts = append(d.attempts, a)
			mu.Unlock()
		}
	})
	for i, a := range d.attempts {
		d.payOnTime(a, fmt.Sprint("txn-", i))
	}
	d.finish("windows and expiry to the second on all three; %s", tally(d.attempts))
}

// each calls do for all instances at once.
func (c *clocks) each(do func(name, url string)) {
	var work sync.WaitGroup
	for name, url := range c.urls {
		work.Go(func() { do(name, url) })
	}
	work.Wait()
}

// judged is how far an answer may be from the stores' clocks, since the machine may be busy: far below an hour.
const judged = time.Second

// windows has buyers try to buy at every instance from before a sale begins until after it ends. Half of them request a
// path; the others have one, so that only the gate checks the window.
func (c *clocks) windows() {
	c.Helper()
	starts := time.Now().Add(4 * time.Second).UTC().Truncate(time.Millisecond)
	ends := starts.Add(2 * time.Second)
	sale := c.SaleWith(c.urls["right"], shop.Document{
		"quota": 10_000, "starts_at": starts.Format(time.RFC3339Nano), "ends_at": ends.Format(time.RFC3339Nano),
	})
	client := c.manyConnections()
	c.each(func(name, url string) {
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		heard := map[string]int{}
		for n := 0; heard["ended"] < 2 && time.Now().Before(ends.Add(shop.Recovery)); n++ {
			a := shop.Attempt{User: fmt.Sprint(name, "-w", n), Key: "key", URL: url}
			if n%2 == 0 {
				c.Buy(&a, sale)
			} else if _, err := c.knock(client, &a, sale); err != nil {
				c.Slowf("%v", err)
			}
			wrong, failed := true, c.Slowf
			switch {
			case a.Code == "not_started":
				wrong = a.Invoked.After(starts.Add(judged))
			case a.Confirmed():
				wrong = a.Answered.Before(starts.Add(-judged)) || a.Invoked.After(ends.Add(judged))
			case a.Code == "ended":
				wrong = a.Answered.Before(ends.Add(-judged))
			default:
				failed = c.wrong(a.Status)
			}
			if wrong {
				failed("clock %s: %d %s at %s, of a sale from %s to %s", name, a.Status, a.Code, a.Answered.UTC(), starts, ends)
			}
			heard[a.Code]++
			<-ticker.C
		}
		if heard["not_started"] == 0 || heard[""] == 0 || heard["ended"] < 2 {
			c.Slowf("clock %s: of a sale from before it began to its end, buyers heard %v", name, heard)
		}
	})
	c.Books(sale)
}

// expiry lets one order on each instance expire.
func (c *clocks) expiry() {
	c.Helper()
	const paySeconds = 2
	sale := c.SaleToPay(c.urls["right"], 10, paySeconds)
	c.each(func(name, url string) {
		a := shop.Attempt{User: name + "-e", Key: "key", URL: url}
		if c.Buy(&a, sale); !a.Confirmed() {
			c.wrong(a.Status)("clock %s: %d %s", name, a.Status, a.Code)
			return
		}
		earliest, latest := a.Invoked.Add(paySeconds*time.Second), a.Answered.Add(paySeconds*time.Second)
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for ; ; <-ticker.C {
			asked := time.Now()
			status, doc, err := c.Call(http.MethodGet, url+"/api/v1/orders/"+a.OrderID, c.Token(a.User), nil)
			shown, shownErr := time.Parse(time.RFC3339, text(doc, "expires_at"))
			switch {
			case err != nil || shownErr != nil || status != http.StatusOK:
				c.wrong(status)("clock %s: status %d: %v %v", name, status, doc, err)
			case shown.Before(earliest.Add(-judged)) || shown.After(latest.Add(judged)):
				c.Errorf("clock %s: to be paid until %s, want %s to %s", name, shown, earliest.UTC(), latest.UTC())
			case doc["status"] == "expired" && time.Now().Before(shown):
				c.Errorf("clock %s: expired before %s", name, shown)
			case doc["status"] == "expired":
			case asked.After(latest.Add(shop.Recovery)):
				c.Slowf("clock %s: %v %s after the time to pay", name, doc["status"], shop.Recovery)
			default:
				continue
			}
			return
		}
	})
	if books := c.Books(sale); books.Stock.Available != books.Stock.Quota && !c.Failed() {
		c.Errorf("not every order has expired: %+v", books.Stock)
	}
}

// want fails the row unless an answer has a status and a code.
func (d *drill) want(want int, code, what string) func(status int, doc shop.Document, err error) {
	return func(status int, doc shop.Document, err error) {
		d.Helper()
		if err != nil || status != want || text(doc, "code") != code {
			d.wrong(status)("%s: %d %v, want %d %s: %v", what, status, doc, want, code, err)
		}
	}
}

// payOnTime pays an order by a callback with the right timestamp. Callbacks with the time of a wrong clock must be refused.
func (d *drill) payOnTime(a shop.Attempt, txn string) {
	d.Helper()
	payment := d.StartPayment(a).ID
	for _, off := range []time.Duration{time.Hour, -time.Hour} {
		d.want(http.StatusUnauthorized, "bad_signature", "a callback an hour off")(
			d.CallbackAt(time.Now().Add(off), shop.Secret, a.URL, payment, txn, shop.PriceCents))
	}
	d.want(http.StatusOK, "", "a callback")(d.Callback(a.URL, payment, txn, shop.PriceCents))
}

// payAgainstExpiry races payments against expiry. Then it repeats every callback and sends others that are in conflict
// with them, forged or stale: nothing may change. One paid order is refunded, and its unit sold again.
func payAgainstExpiry(d *drill) {
	d.stores()
	a, b := d.Start("--pay-grace", "0s"), d.Start("--pay-grace", "0s")
	d.quota, d.urls = size(100, 1_000), []string{a.URL, b.URL}
	d.sale = d.SaleToPay(a.URL, d.quota, size(10, 15)) // long enough to start all payments on a slow machine
	d.watched = d.watch(d.sale)
	attempts := d.Rush(d.sale, "u", d.quota, nil, d.urls...)
	d.told(attempts, "201")
	payments, resold := d.RacePayments(d.sale, attempts, [2]string(d.urls))
	paid := d.OneOutcome(d.sale, attempts)

	again := d.want(http.StatusOK, "", "a callback again, elsewhere")
	elsewhere := d.want(http.StatusConflict, "not_payable", "a transaction for another payment")
	amount := d.want(http.StatusConflict, "amount_mismatch", "another amount")
	forged := d.want(http.StatusUnauthorized, "bad_signature", "a forged or stale callback")
	for i, p := range payments {
		for n := range d.urls {
			again(d.Callback(d.urls[1-n], p.ID, shop.Transaction(i, n), shop.PriceCents))
		}
		other := payments[(i+1)%len(payments)]
		elsewhere(d.Callback(a.URL, other.ID, shop.Transaction(i, 0), shop.PriceCents))
		amount(d.Callback(b.URL, p.ID, fmt.Sprint("more-", i), shop.PriceCents+1))
		forged(d.CallbackAt(time.Now(), strings.Repeat("another ", 4), a.URL, p.ID, fmt.Sprint("forged-", i), shop.PriceCents))
		forged(d.CallbackAt(time.Now().Add(-time.Hour), shop.Secret, b.URL, p.ID, shop.Transaction(i, 0), shop.PriceCents))
	}
	if now := d.OneOutcome(d.sale, attempts); now != paid {
		d.Errorf("%d orders were paid, %d are after the callbacks came again", paid, now)
	}
	d.refund(attempts, payments)
	d.attempts = slices.Concat(attempts, resold)
	d.stop()
	d.finish("%d orders raced: %d paid, the money of the others due back; %d callbacks repeated, in conflict, forged or stale",
		d.quota, paid, 6*d.quota)
}

// refund refunds the first paid order. A second refund is refused, and repeated callbacks change nothing.
func (d *drill) refund(attempts []shop.Attempt, payments []shop.Payment) {
	d.Helper()
	orderOf := func(a shop.Attempt) model.Order {
		order, ok, err := d.DB.Order(d.Context(), a.OrderID)
		if err != nil || !ok {
			d.Fatalf("order %s: found %t, %v", a.OrderID, ok, err)
		}
		return order
	}
	i := slices.IndexFunc(attempts, func(a shop.Attempt) bool { return orderOf(a).Status == model.OrderPaid })
	if i < 0 {
		d.FatalSlowf("no order was paid")
	}
	path := "/api/v1/admin/orders/" + attempts[i].OrderID + "/refund"
	d.Must(http.StatusOK, http.MethodPost, d.urls[0]+path, d.Operator(d.urls[0]), nil)
	d.Must(http.StatusConflict, http.MethodPost, d.urls[1]+path, d.Operator(d.urls[1]), nil)
	for n, url := range d.urls {
		d.want(http.StatusOK, "", "a callback of a refunded order")(
			d.Callback(url, payments[i].ID, shop.Transaction(i, n), shop.PriceCents))
	}
	order := orderOf(attempts[i])
	if due := d.Refunds()[order.ID]; order.Status != model.OrderRefunded || due != 2 {
		d.Errorf("order %s is %s after its refund, and %d of its two transactions are due back", order.ID, order.Status, due)
	}
}
