package shop

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"flashsale/model"
	"flashsale/service"
)

// PriceCents is what a unit costs in the sales of SaleToPay.
const PriceCents = 100

// resaleEvery is how often buyers come for what has expired: far more often than the expirer looks.
const resaleEvery = 100 * time.Millisecond

// SaleToPay makes an open sale of so many units, one for each user, that must be paid within seconds.
func (s *Shop) SaleToPay(url string, quota, paySeconds int) string {
	s.t.Helper()
	doc := s.Must(http.StatusCreated, "POST", url+"/api/v1/admin/sales", s.Operator(url), Document{
		"title": "race", "price_cents": PriceCents, "quota": quota, "limit_per_user": 1, "pay_timeout_seconds": paySeconds,
		"starts_at": time.Now().Add(-time.Minute).UTC().Format(time.RFC3339), "ends_at": time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
	})
	id, _ := doc["id"].(string)
	return id
}

// Payment is one that was started, and until when it may be made.
type Payment struct {
	ID       string
	Deadline time.Time
}

// StartPayment starts the payment of a confirmed order.
func (s *Shop) StartPayment(a Attempt) Payment {
	s.t.Helper()
	doc := s.Must(http.StatusCreated, "POST", a.URL+"/api/v1/orders/"+a.OrderID+"/payments", s.Token(a.User), nil)
	id, _ := doc["payment_id"].(string)
	text, _ := doc["expires_at"].(string)
	deadline, err := time.Parse(time.RFC3339, text)
	if err != nil {
		s.t.Fatal(err)
	}
	return Payment{id, deadline}
}

// Callback tells an instance of a charge, signed as a provider signs it.
func (s *Shop) Callback(address, paymentID, txnID string, amountCents int64) (int, Document, error) {
	return s.CallbackAt(time.Now(), Secret, address, paymentID, txnID, amountCents)
}

// CallbackAt tells an instance of a charge, signed with a secret at a time.
func (s *Shop) CallbackAt(at time.Time, secret, address, paymentID, txnID string, amountCents int64) (int, Document, error) {
	raw, err := json.Marshal(Document{"payment_id": paymentID, "provider_txn_id": txnID, "status": "succeeded", "amount_cents": amountCents})
	if err != nil {
		return 0, nil, err
	}
	timestamp := strconv.FormatInt(at.Unix(), 10)
	return s.Call("POST", address+"/api/v1/payments/callback", "", json.RawMessage(raw),
		"X-Timestamp", timestamp, "X-Signature", service.SignCallback([]byte(secret), timestamp, raw))
}

// Transaction is the id of one of the two with which RacePayments pays an order.
func Transaction(order, n int) string { return fmt.Sprintf("txn-%d-%d", order, n) }

// RacePayments pays orders in the very moments in which they expire, each twice, by the two instances, while others wait
// for their units. It gives the payments, and those who were quicker to buy what had expired.
func (s *Shop) RacePayments(saleID string, attempts []Attempt, urls [2]string) (payments []Payment, resold []Attempt) {
	s.t.Helper()
	var racers sync.WaitGroup
	defer racers.Wait() // also after a failure: no callback outlives the test
	for i, a := range attempts {
		payment := s.StartPayment(a)
		payments = append(payments, payment)
		// The expirer looks every half second: these moments lie on both sides of its looks. Every other
		// payment is so late that the unit has found another buyer.
		moment := time.Until(payment.Deadline) + time.Duration(i%12)*50*time.Millisecond + time.Duration(i%2)*3*time.Second
		for n, address := range urls {
			racers.Add(1)
			time.AfterFunc(moment, func() {
				defer racers.Done()
				status, doc, err := s.Callback(address, payment.ID, Transaction(i, n), PriceCents)
				if err != nil || status != http.StatusOK {
					s.t.Errorf("callback for %s: status %d: %v %v", a.User, status, doc, err)
				}
			})
		}
	}
	raced := make(chan struct{})
	go func() {
		defer close(raced)
		racers.Wait()
	}()
	<-time.After(time.Until(payments[0].Deadline)) // before that every unit is held
	ticker := time.NewTicker(resaleEvery)
	defer ticker.Stop()
	for {
		select {
		case <-raced:
			return payments, resold
		case <-ticker.C:
			resold = append(resold, s.Rush(saleID, fmt.Sprintf("resale%d", len(resold)), 100, nil, urls[0], urls[1])...)
		}
	}
}

// OneOutcome checks after RacePayments that each order is paid by one of its transactions, or is not and every one is
// due to be refunded; and that both has happened. It gives how many are paid.
func (s *Shop) OneOutcome(saleID string, attempts []Attempt) (paid int) {
	s.t.Helper()
	refunds := s.Refunds()
	for _, a := range attempts {
		order, ok, err := s.DB.Order(context.Background(), a.OrderID)
		if err != nil || !ok {
			s.t.Fatalf("order %s: found %t, %v", a.OrderID, ok, err)
		}
		want := 2
		if order.Status == model.OrderPaid {
			paid++
			want = 1
		}
		if refunds[order.ID] != want {
			s.t.Errorf("order %s is %s, and %d of its two transactions are due to be refunded", order.ID, order.Status, refunds[order.ID])
		}
	}
	books := s.Books(saleID)
	if books.Stock.Paid != int64(paid) || paid == 0 || paid == len(attempts) {
		s.t.Errorf("%d orders of %d are paid; the stock says %+v", paid, len(attempts), books.Stock)
	}
	return paid
}

// Refunds counts the transactions by order whose money goes, or went, back.
func (s *Shop) Refunds() map[string]int {
	s.t.Helper()
	u, err := url.Parse(s.Database)
	if err != nil {
		s.t.Fatal(err)
	}
	db, err := sql.Open("mysql", fmt.Sprintf("%s@tcp(%s)%s", u.User, u.Host, u.Path))
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	rows, err := db.QueryContext(s.t.Context(), "SELECT order_id, COUNT(*) FROM payments WHERE status IN ('refund_due', 'refunded') GROUP BY order_id")
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	counts := map[string]int{}
	for rows.Next() {
		var id string
		var n int
		if err := rows.Scan(&id, &n); err != nil {
			s.t.Fatal(err)
		}
		counts[id] = n
	}
	if err := rows.Err(); err != nil {
		s.t.Fatal(err)
	}
	return counts
}
