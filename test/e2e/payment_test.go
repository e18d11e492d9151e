package e2e

import (
	"testing"

	"flashsale/test/kit/shop"
)

// Three hundred orders are paid in the very moments in which they expire, each twice and on two instances, while
// others wait for their units. Each has one outcome: paid by one transaction, or not paid and every transaction
// due to be refunded.
func TestHole26_PayAgainstExpiry(t *testing.T) {
	t.Parallel()
	// The time to pay covers making all orders and starting all payments on a slow machine.
	const orders, paySeconds = 300, 20
	s := shop.New(t)
	a, b := s.Start("--pay-grace", "0s"), s.Start("--pay-grace", "0s")
	sale := s.SaleToPay(a.URL, orders, paySeconds)
	attempts := s.Rush(sale, "u", orders, nil, a.URL, b.URL)
	for _, at := range attempts {
		if !at.Confirmed() {
			t.Fatalf("%s was not confirmed: %d %s", at.User, at.Status, at.Code)
		}
	}
	_, resold := s.RacePayments(sale, attempts, [2]string{a.URL, b.URL})
	s.OneOutcome(sale, attempts)
	s.Check(sale, resold, a.URL)
	s.Audited(a.URL, sale)
	s.AuditCommand()
}
