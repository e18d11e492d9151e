package fault

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"flashsale/model"
	"flashsale/test/kit/shop"
)

func botsThatNeverPay(d *drill) {
	d.stores()
	a, b := d.Start("--pay-grace", "0s"), d.Start("--pay-grace", "0s")
	const paySeconds = 8 // long enough for all bots to buy on a busy machine
	bots, quota := size(300, 5_000), size(100, 2_000)
	d.urls, d.quota = []string{a.URL, b.URL}, quota
	d.sale = d.SaleToPay(a.URL, quota, paySeconds)
	d.watched = d.watch(d.sale)
	d.attempts = d.Rush(d.sale, "bot", bots, nil, d.urls...)
	held := time.Now()
	if counts := shop.Tally(d.attempts); counts["201 "] != quota || counts["409 sold_out"] != bots-quota {
		d.Errorf("the bots were told %v, want all %d units to be theirs", counts, quota)
	}

	// Each buyer tries until an attempt is confirmed, and pays at once.
	var mu sync.Mutex
	var first, last time.Duration
	paid := 0
	until := held.Add(paySeconds*time.Second + shop.Recovery)
	inParallel(20, quota, func(n int) {
		ticker := time.NewTicker(50 * time.Millisecond)
		defer ticker.Stop()
		var at shop.Attempt
		for try := 0; !at.Confirmed() && time.Now().Before(until); try++ {
			if at = d.buy(fmt.Sprint("buyer-", n), fmt.Sprint("key-", try), d.urls[n%2]); !at.Confirmed() {
				<-ticker.C
			}
		}
		done := at.Confirmed() && d.pays(at)
		mu.Lock()
		defer mu.Unlock()
		d.attempts = append(d.attempts, at)
		if done {
			if last = time.Since(held); paid == 0 {
				first = last
			}
			paid++
		}
	})
	d.stop()
	books := d.Books(d.sale)
	if paid != quota || books.Stock.Paid != int64(quota) || books.Orders[model.OrderExpired] != int64(quota) {
		d.Errorf("%d of %d units were paid; the stock is %+v, the orders %v", paid, quota, books.Stock, books.Orders)
	}
	d.finish("%d bots held all %d units for %d s; then buyers had and paid them, the first %s after the rush, the last %s",
		bots, quota, paySeconds, first.Round(100*time.Millisecond), last.Round(100*time.Millisecond))
}

// pays pays an order as its buyer and the provider do, and reports whether it is paid.
func (d *drill) pays(at shop.Attempt) bool {
	status, doc, err := d.Call(http.MethodPost, at.URL+"/api/v1/orders/"+at.OrderID+"/payments", d.Token(at.User), nil)
	if err != nil || status != http.StatusCreated {
		d.Errorf("%s starts to pay: %d %v %v", at.User, status, doc, err)
		return false
	}
	status, doc, err = d.Callback(at.URL, text(doc, "payment_id"), "txn-"+at.OrderID, shop.PriceCents)
	order, _ := doc["order"].(shop.Document)
	if err != nil || status != http.StatusOK || order["status"] != "paid" {
		d.Errorf("%s pays: %d %v %v", at.User, status, doc, err)
		return false
	}
	return true
}
