package e2e

import (
	"testing"

	"flashsale/test/kit/shop"
)

// Two thousand buyers on 500 units through two instances: exactly 500 are sold, and nobody is left in doubt.
func TestRushOverTwoInstances(t *testing.T) {
	t.Parallel()
	s := shop.New(t)
	a, b := s.Start(), s.Start()
	sale := s.Sale(a.URL, 500)
	attempts := s.AskAgain(sale, s.Rush(sale, "u", 2000, nil, a.URL, b.URL))
	if live := s.Check(sale, attempts, a.URL); live != 500 {
		t.Errorf("%d units sold, want 500: %v", live, shop.Tally(attempts))
	}
	counts := shop.Tally(attempts)
	if refused := counts["409 sold_out"]; refused != 1500 {
		t.Errorf("%d buyers were told sold_out, want 1500: %v", refused, counts)
	}
	s.Audited(a.URL, sale)
	s.AuditCommand()
	a.Stop()
	b.Stop()
}

// Far more attempts than the pools are large still get true answers.
func TestHole03_MoreAttemptsThanConnections(t *testing.T) {
	t.Parallel()
	s := shop.New(t)
	a := s.Start("--db-max-conns", "4")
	sale := s.Sale(a.URL, 100)
	attempts := s.AskAgain(sale, s.Rush(sale, "u", 4_001, nil, a.URL))
	if live := s.Check(sale, attempts, a.URL); live != 100 {
		t.Errorf("%d units sold, want 100: %v", live, shop.Tally(attempts))
	}
	if counts := shop.Tally(attempts); counts["409 sold_out"] != 4_001-100 {
		t.Errorf("answers: %v", counts)
	}
}
