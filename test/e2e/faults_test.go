// Package e2e tests the built engine: rushes, restarts, Redis with replicas, behind Sentinels and in a Cluster, and nginx.
package e2e

import (
	"testing"

	"flashsale/test/kit/shop"
)

func TestMain(m *testing.M) { shop.Main(m) }

// Far more buyers than pooled connections come to two instances. Exactly the quota is sold, and every other buyer is
// told that the sale is sold out.
func TestHole03_MoreAttemptsThanConnections(t *testing.T) {
	t.Parallel()
	const quota, buyers = 500, 4_001
	s := shop.New(t)
	a, b := s.Start("--db-max-conns", "4"), s.Start("--db-max-conns", "4")
	sale := s.Sale(a.URL, quota)
	attempts := s.AskAgain(sale, s.Rush(sale, "u", buyers, nil, a.URL, b.URL))
	counts := shop.Tally(attempts)
	if live := s.Check(sale, attempts, a.URL); live != quota || counts["409 sold_out"] != buyers-quota {
		t.Errorf("%d units sold, want %d: %v", live, quota, counts)
	}
	s.Audited(a.URL, sale)
	s.AuditCommand()
	a.Stop()
	b.Stop()
}

// Every process is restarted, in any order: nothing is sold twice, nothing is lost.
func TestHole46_RestartsInAnyOrder(t *testing.T) {
	t.Parallel()
	s := shop.New(t)
	a, b := s.Start(), s.Start()
	sale := s.Sale(a.URL, 400)
	attempts := s.Rush(sale, "first", 300, nil, a.URL, b.URL)

	a.Stop()
	s.Redis.Kill()
	attempts = append(attempts, s.Rush(sale, "second", 50, nil, b.URL)...)
	s.Redis.Restart()
	a = s.Start()
	attempts = append(attempts, s.Rush(sale, "third", 20, nil, a.URL, b.URL)...)
	b.Kill()
	s.Redis.Kill()
	s.Redis.Restart()
	b = s.Start()
	s.SellRest(sale, 400, attempts, a.URL, b.URL)
	s.Audited(b.URL, sale)
	a.Stop()
	b.Stop()
	s.AuditCommand()
}
