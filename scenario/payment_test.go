package scenario

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/service"
	"flashsale/testkit/shop"
)

// callback tells an instance of a charge, signed as a provider signs it.
func callback(s *shop.Shop, address, paymentID, txnID string, amountCents int64) (int, shop.Document, error) {
	body := shop.Document{"payment_id": paymentID, "provider_txn_id": txnID, "status": "succeeded", "amount_cents": amountCents}
	raw, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	timestamp := strconv.FormatInt(time.Now().Unix(), 10)
	return s.Call("POST", address+"/api/v1/payments/callback", "", json.RawMessage(raw),
		"X-Timestamp", timestamp, "X-Signature", service.SignCallback([]byte(shop.Secret), timestamp, raw))
}

// refunds counts the transactions by order whose money goes, or went, back.
func refunds(t *testing.T, s *shop.Shop) map[string]int {
	t.Helper()
	u, err := url.Parse(s.Database)
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("mysql", fmt.Sprintf("%s@tcp(%s)%s", u.User, u.Host, u.Path))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	rows, err := db.QueryContext(t.Context(), "SELECT order_id, COUNT(*) FROM payments WHERE status IN ('refund_due', 'refunded') GROUP BY order_id")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	counts := map[string]int{}
	for rows.Next() {
		var id string
		var n int
		if err := rows.Scan(&id, &n); err != nil {
			t.Fatal(err)
		}
		counts[id] = n
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return counts
}

// A thousand orders are paid in the very moments in which they expire, each twice and on two instances, while
// others wait for their units. Each has one outcome: paid by one transaction, or not paid and every transaction
// due to be refunded.
func TestHole26_PayAgainstExpiry(t *testing.T) {
	// The time to pay covers making all orders and starting all payments on a slow machine.
	const orders, paySeconds = 1000, 12
	s := shop.New(t)
	a, b := s.Start("--pay-grace", "0s"), s.Start("--pay-grace", "0s")
	doc := s.Must(http.StatusCreated, "POST", a.URL+"/api/v1/admin/sales", s.Operator(a.URL), shop.Document{
		"title": "race", "price_cents": 100, "quota": orders, "limit_per_user": 1, "pay_timeout_seconds": paySeconds,
		"starts_at": "2020-01-01T00:00:00Z", "ends_at": time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
	})
	sale, _ := doc["id"].(string)
	attempts := s.Rush(sale, "u", orders, nil, a.URL, b.URL)

	for _, at := range attempts {
		if !at.Confirmed() {
			t.Fatalf("%s was not confirmed: %d %s", at.User, at.Status, at.Code)
		}
	}
	var racers sync.WaitGroup
	defer racers.Wait() // also after a failure: no callback outlives the test
	for i, at := range attempts {
		payment := s.Must(http.StatusCreated, "POST", at.URL+"/api/v1/orders/"+at.OrderID+"/payments", s.Token(at.User), nil)
		id, _ := payment["payment_id"].(string)
		text, _ := payment["expires_at"].(string)
		deadline, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		// The expirer looks every half second: these moments lie on both sides of its looks. Every other
		// payment is so late that the unit has found another buyer.
		moment := time.Until(deadline) + time.Duration(i%12)*50*time.Millisecond + time.Duration(i%2)*3*time.Second
		for n, address := range []string{a.URL, b.URL} {
			racers.Add(1)
			time.AfterFunc(moment, func() {
				defer racers.Done()
				status, doc, err := callback(s, address, id, fmt.Sprintf("txn-%d-%d", i, n), 100)
				if err != nil || status != http.StatusOK {
					t.Errorf("callback for %s: status %d: %v %v", at.User, status, doc, err)
				}
			})
		}
	}
	raced := make(chan struct{})
	go func() {
		defer close(raced)
		racers.Wait()
	}()
	var resold []shop.Attempt // units of expired orders that others were quicker to buy
	for racing := true; racing; {
		select {
		case <-raced:
			racing = false
		default:
			resold = append(resold, s.Rush(sale, fmt.Sprintf("resale%d", len(resold)), 100, nil, a.URL, b.URL)...)
		}
	}

	refunds := refunds(t, s)
	paid := int64(0)
	for _, at := range attempts {
		order, ok, err := s.DB.Order(context.Background(), at.OrderID)
		if err != nil || !ok {
			t.Fatalf("order %s: found %t, %v", at.OrderID, ok, err)
		}
		want := 2
		if order.Status == model.OrderPaid {
			paid++
			want = 1
		}
		if refunds[order.ID] != want {
			t.Errorf("order %s is %s, and %d of its two transactions are due to be refunded", order.ID, order.Status, refunds[order.ID])
		}
	}
	books := s.Books(sale)
	if books.Stock.Paid != paid || paid == 0 || paid == orders {
		t.Errorf("%d orders of %d are paid; the stock says %+v", paid, orders, books.Stock)
	}
	s.Check(sale, resold, a.URL)
	s.Audited(a.URL, sale)
	s.AuditCommand()
}
