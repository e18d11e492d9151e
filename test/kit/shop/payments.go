package shop

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"time"

	"flashsale/internal/sandbox"
	"flashsale/model"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
	"flashsale/test/kit/pace"
)

// PriceCents is the price of a unit in the sales of SaleToPay.
const PriceCents = 100

// resaleEvery is how often buyers try to buy expired units: far more often than the expirer runs.
const resaleEvery = 100 * time.Millisecond

// SaleOf returns the operator's request for an open sale of a thousand units, one for each user, with changes.
func SaleOf(changes Document) Document {
	now := time.Now().UTC()
	body := Document{
		"title": "scenario", "price_cents": PriceCents, "quota": 1_000, "limit_per_user": 1, "pay_timeout_seconds": 600,
		"starts_at": now.Add(-time.Minute).Format(time.RFC3339), "ends_at": now.Add(time.Hour).Format(time.RFC3339),
	}
	maps.Copy(body, changes)
	return body
}

// SaleWith makes a sale, with changes to SaleOf's defaults, and returns its id.
func (s *Shop) SaleWith(url string, changes Document) string {
	s.t.Helper()
	doc := s.Must(http.StatusCreated, "POST", url+"/api/v1/admin/sales", s.Operator(url), SaleOf(changes))
	id, _ := doc["id"].(string)
	return id
}

// SaleToPay makes an open sale of quota units, one for each user. Orders must be paid within paySeconds.
func (s *Shop) SaleToPay(url string, quota, paySeconds int) string {
	s.t.Helper()
	return s.SaleWith(url, Document{"quota": quota, "pay_timeout_seconds": paySeconds})
}

// Payment is a started payment and its deadline.
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
	check.NoError(s.t, err)
	return Payment{id, deadline}
}

// Callback sends an instance the callback for a charge, signed as a provider signs it.
func (s *Shop) Callback(address, paymentID, txnID string, amountCents int64) (int, Document, error) {
	return s.CallbackAt(time.Now(), Secret, address, paymentID, txnID, amountCents)
}

// CallbackAt sends an instance the callback for a charge, signed with a given secret and time.
func (s *Shop) CallbackAt(at time.Time, secret, address, paymentID, txnID string, amountCents int64) (int, Document, error) {
	raw, err := json.Marshal(Document{
		"payment_id": paymentID, "provider_txn_id": txnID, "status": "succeeded", "amount_cents": amountCents,
	})
	if err != nil {
		return 0, nil, err
	}
	timestamp := strconv.FormatInt(at.Unix(), 10)
	return s.Call("POST", address+"/api/v1/payments/callback", "", json.RawMessage(raw),
		"X-Timestamp", timestamp, "X-Signature", sandbox.Sign([]byte(secret), timestamp, raw))
}

// Transaction returns the id of one of the two transactions with which RacePayments pays an order.
func Transaction(order, n int) string { return fmt.Sprintf("txn-%d-%d", order, n) }

// RacePayments pays each order twice, once through each instance, around the moment when the order expires, while other
// buyers try to buy its unit. It returns the payments and the other buyers' attempts.
func (s *Shop) RacePayments(saleID string, attempts []Attempt, urls [2]string) (payments []Payment, resold []Attempt) {
	s.t.Helper()
	var racers sync.WaitGroup
	defer racers.Wait() // also after a failure: no callback may outlive the test
	for i, a := range attempts {
		payment := s.StartPayment(a)
		payments = append(payments, payment)
		// The expirer runs every half second, so these moments lie before and after its runs. Every other payment comes
		// 3 seconds later, when another buyer has the unit.
		moment := time.Until(payment.Deadline) + time.Duration(i%12)*50*time.Millisecond + time.Duration(i%2)*3*time.Second
		for n, address := range urls {
			racers.Add(1)
			time.AfterFunc(moment, func() {
				defer racers.Done()
				status, doc, err := s.Callback(address, payment.ID, Transaction(i, n), PriceCents)
				switch {
				case err != nil || status >= http.StatusInternalServerError:
					pace.Errorf(s.t, "callback for %s: status %d: %v %v", a.User, status, doc, err)
				case status != http.StatusOK:
					s.t.Errorf("callback for %s: status %d: %v", a.User, status, doc)
				}
			})
		}
	}
	raced := make(chan struct{})
	go func() {
		defer close(raced)
		racers.Wait()
	}()
	<-time.After(time.Until(payments[0].Deadline)) // until then every unit is held
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

// OneOutcome checks after RacePayments that each order is paid by one of its two transactions and the other is due to
// be refunded, or that the order is not paid and both are due. It also checks that both outcomes occur. It returns the
// number of paid orders.
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
	if books.Stock.Paid != int64(paid) {
		s.t.Errorf("%d orders of %d are paid; the stock says %+v", paid, len(attempts), books.Stock)
	}
	if paid == 0 || paid == len(attempts) { // no race was close
		pace.Errorf(s.t, "%d orders of %d are paid", paid, len(attempts))
	}
	return paid
}

// Refunds counts, by order, the transactions that are due to be refunded or have been refunded.
func (s *Shop) Refunds() map[string]int {
	s.t.Helper()
	rows, err := kit.OpenSQL(s.t, s.Database).QueryContext(s.t.Context(), `SELECT order_id, COUNT(*) FROM payments
		WHERE status IN ('refund_due', 'refunded') GROUP BY order_id`)
	check.NoError(s.t, err)
	defer func() { _ = rows.Close() }()
	counts := map[string]int{}
	for rows.Next() {
		var id string
		var n int
		check.NoError(s.t, rows.Scan(&id, &n))
		counts[id] = n
	}
	check.NoError(s.t, rows.Err())
	return counts
}
