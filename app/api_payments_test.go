package app_test

import (
	"strings"
	"testing"
	"time"

	"flashsale/internal/config"
)

// The payment page takes a short form and nothing else.
func TestPayTakesShortForms(t *testing.T) {
	t.Parallel()
	s := usual(t)
	ann := s.buyer("ann")
	made := ann.buy(s.createSale(nil).ID, 1)
	page := ann.startPayment(made.ID).PayURL
	longest := "choice=pay&more=" + strings.Repeat("x", 4<<10-16)
	s.anyone().call("POST", page, longest+"x", "Content-Type", formType).refused(413, "too_large")
	for _, contentType := range []string{"", "application/json", "text/plain", "multipart/form-data; boundary=b"} {
		said := s.anyone().call("POST", page, "choice=pay", "Content-Type", contentType).refused(415, "unsupported_media_type")
		if said.Detail != "The body must be sent as "+formType+"." {
			t.Errorf("%q: %s", contentType, said.Detail)
		}
	}
	ann.wantStatus(made.ID, "pending")
	s.anyone().call("POST", page, longest, "Content-Type", formType+"; charset=utf-8").want(200)
	ann.wantStatus(made.ID, "paid")
}

// A buyer who declines a payment can still pay on its page, but only once: a second charge is sent back, and a decline that
// comes late changes nothing.
func TestTwoPaymentsOfOneOrder(t *testing.T) {
	t.Parallel()
	s := usual(t)
	saleID := s.createSale(nil).ID
	ann := s.buyer("ann")
	made, other := ann.buy(saleID, 1), ann.buy(saleID, 1)
	first := ann.startPayment(made.ID)
	if again := ann.startPayment(made.ID); again != first {
		t.Errorf("an open payment was opened again: %+v, then %+v", first, again)
	}
	ann.choose(first, "decline")
	ann.wantStatus(made.ID, "pending")
	second := ann.startPayment(made.ID)
	for range 2 {
		ann.choose(second, "pay")
		ann.wantStatus(made.ID, "paid")
	}
	ann.choose(first, "pay") // on the page that was open already
	ann.wantStatus(made.ID, "paid")
	s.refunded(first.PaymentID)
	var charged int
	row := s.database().QueryRowContext(t.Context(),
		"SELECT COUNT(*) FROM sandbox_transactions WHERE payment_id = ? AND status = 'charged'", second.PaymentID)
	if err := row.Scan(&charged); err != nil || charged != 1 {
		t.Errorf("%d charges of the second payment stand, %v", charged, err)
	}

	only := ann.startPayment(other.ID)
	ann.choose(only, "decline")
	ann.choose(only, "pay")
	ann.wantStatus(other.ID, "paid")
	s.callback(paid(only.PaymentID, fields{"provider_txn_id": "late-" + other.ID, "status": "failed"})).want(200)
	ann.wantStatus(other.ID, "paid")
	s.wantStock(saleID, stock{available: 8, paid: 2})
}

// Within the grace after its time to pay, an order can't get a new payment, but the callback of an open one still counts.
// A paused or closed sale does not stop payments either.
func TestPayGrace(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *config.Settings) { c.PayGrace = time.Hour })
	saleID := s.createSale(nil).ID
	ann := s.buyer("ann")
	late, inTime := ann.buy(saleID, 1), ann.buy(saleID, 1)
	p := ann.startPayment(late.ID)
	s.exec("UPDATE orders SET expires_at_ms = created_at_ms - 1 WHERE id = ?", late.ID)
	ann.call("POST", "/api/v1/orders/"+late.ID+"/payments", nil).refused(409, "not_payable")
	s.setStatus(saleID, "pause")
	s.callback(paid(p.PaymentID, nil)).want(200)
	ann.wantStatus(late.ID, "paid")
	s.setStatus(saleID, "close")
	ann.pay(inTime.ID)
}
