package fault

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"flashsale/model"
	"flashsale/service"
	"flashsale/test/kit/shop"
)

func botsThatNeverPay(d *drill) {
	s := shop.New(d)
	a, b := s.Start("--pay-grace", "0s"), s.Start("--pay-grace", "0s")
	const paySeconds = 8 // long enough for all bots to buy on a busy machine
	bots, quota := size(300, 5_000), size(100, 2_000)
	sale := d.openSale(s, a.URL, shop.Document{"quota": quota, "pay_timeout_seconds": paySeconds})
	watched := d.watch(s, sale)
	attempts := s.Rush(sale, "bot", bots, nil, a.URL, b.URL)
	held := time.Now()
	counts := shop.Tally(attempts)
	if counts["201 "] != quota || counts["409 sold_out"] != bots-quota {
		d.Errorf("the bots were told %v, want all %d units to be theirs", counts, quota)
	}

	// Each buyer tries until an attempt is confirmed, and pays at once.
	var mu sync.Mutex
	var buyers sync.WaitGroup
	var first, last time.Duration
	paid := 0
	until := held.Add(paySeconds*time.Second + shop.Recovery)
	next := make(chan int, quota)
	for n := range quota {
		next <- n
	}
	close(next)
	for range 20 {
		buyers.Go(func() {
			ticker := time.NewTicker(50 * time.Millisecond)
			defer ticker.Stop()
			for n := range next {
				at := shop.Attempt{User: fmt.Sprint("buyer-", n), URL: []string{a.URL, b.URL}[n%2]}
				for try := 0; !at.Confirmed() && time.Now().Before(until); try++ {
					at.Key = fmt.Sprint("key-", try)
					if s.Buy(&at, sale); !at.Confirmed() {
						<-ticker.C
					}
				}
				done := at.Confirmed() && d.pays(s, at)
				mu.Lock()
				attempts = append(attempts, at)
				if done {
					if last = time.Since(held); paid == 0 {
						first = last
					}
					paid++
				}
				mu.Unlock()
			}
		})
	}
	buyers.Wait()
	watched()
	books := s.Books(sale)
	if paid != quota || books.Stock.Paid != int64(quota) || books.Orders[model.OrderExpired] != int64(quota) {
		d.Errorf("%d of %d units were paid; the stock is %+v, the orders %v", paid, quota, books.Stock, books.Orders)
	}
	d.result.Happened = fmt.Sprintf("%d bots held all %d units for %d s; then buyers had and paid them, the first %s after the rush, the last %s",
		bots, quota, paySeconds, first.Round(100*time.Millisecond), last.Round(100*time.Millisecond))
	d.recovered(s, sale, int64(quota), attempts, a.URL, b.URL)
}

// pays pays an order as its buyer and the provider do, and reports whether it is paid.
func (d *drill) pays(s *shop.Shop, at shop.Attempt) bool {
	status, doc, err := s.Call(http.MethodPost, at.URL+"/api/v1/orders/"+at.OrderID+"/payments", s.Token(at.User), nil)
	if err != nil || status != http.StatusCreated {
		d.Errorf("%s starts to pay: %d %v %v", at.User, status, doc, err)
		return false
	}
	raw, err := json.Marshal(shop.Document{"payment_id": doc["payment_id"], "provider_txn_id": "txn-" + at.OrderID, "status": "succeeded", "amount_cents": 100})
	if err != nil {
		d.Error(err)
		return false
	}
	timestamp := strconv.FormatInt(time.Now().Unix(), 10)
	status, doc, err = s.Call(http.MethodPost, at.URL+"/api/v1/payments/callback", "", json.RawMessage(raw),
		"X-Timestamp", timestamp, "X-Signature", service.SignCallback([]byte(shop.Secret), timestamp, raw))
	order, _ := doc["order"].(shop.Document)
	if err != nil || status != http.StatusOK || order["status"] != "paid" {
		d.Errorf("%s pays: %d %v %v", at.User, status, doc, err)
		return false
	}
	return true
}
