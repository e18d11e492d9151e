package e2e

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"flashsale/test/kit"
	"flashsale/test/kit/shop"
)

// Redis dies in mid-rush, the database sells on, Redis comes back empty: whoever was confirmed keeps the order,
// nothing is oversold, and the rest sells.
func TestHole06_RedisDiesAndReturnsEmpty(t *testing.T) {
	t.Parallel()
	s := shop.New(t)
	a, b := s.Start(), s.Start()
	sale := s.Sale(a.URL, 600)
	killed := s.AskAgain(sale, s.Rush(sale, "kill", 1200, s.Redis.Kill, a.URL, b.URL))
	soldOn(t, killed, 600)
	s.Books(sale)
	s.Redis.Restart()
	s.SellRest(sale, 600, killed, a.URL, b.URL)
	s.Audited(a.URL, sale)
	s.AuditCommand()
}

// soldOn wants everyone answered, and nobody turned away while units were left. When none is, a buyer whom Redis may have
// admitted hears 503: a no could turn out untrue.
func soldOn(t *testing.T, attempts []shop.Attempt, quota int) {
	t.Helper()
	counts := shop.Tally(attempts)
	if counts["0 "] > 0 || counts["503 unavailable"] > 0 && counts["201 "] < quota {
		t.Errorf("the database did not sell on: %v", counts)
	}
}

// Redis hangs after it may have run a script: the attempt goes to the database under the same id, and when
// Redis wakes up and its entry is settled, it meets the order that is there.
func TestHole17_RedisHangsInMidRush(t *testing.T) {
	t.Parallel()
	s := shop.New(t)
	a := s.Start()
	sale := s.Sale(a.URL, 300)
	hung := s.AskAgain(sale, s.Rush(sale, "hang", 600, s.Redis.Stop, a.URL))
	soldOn(t, hung, 300)
	s.Redis.Continue()
	s.SellRest(sale, 300, hung, a.URL)
	s.Audited(a.URL, sale)
	s.AuditCommand()
}

// An instance is killed under load: every order that it confirmed is in the database exactly once, and the other
// instance takes over what it left in the queue.
func TestKilledInstanceLosesNoConfirmedOrder(t *testing.T) {
	t.Parallel()
	s := shop.New(t)
	a, b := s.Start(), s.Start()
	sale := s.Sale(a.URL, 500)
	attempts := s.Rush(sale, "u", 3000, a.Kill, a.URL, b.URL)
	confirmed := 0
	for _, at := range attempts {
		if at.Confirmed() {
			confirmed++
		}
	}
	if confirmed == 0 {
		t.Fatal("nobody was confirmed")
	}
	s.SellRest(sale, 500, attempts, b.URL)
	s.Audited(b.URL, sale)
	s.AuditCommand()
}

// A buyer whose connection broke asks again under the same key, on another instance: there is one order.
func TestRepeatedKeyAfterAKilledInstance(t *testing.T) {
	t.Parallel()
	s := shop.New(t)
	a, b := s.Start(), s.Start()
	sale := s.Sale(a.URL, 2000)
	attempts := s.Rush(sale, "u", 1000, a.Kill, a.URL)
	again := make([]shop.Attempt, len(attempts))
	for i, at := range attempts {
		again[i] = shop.Attempt{User: at.User, Key: at.Key, URL: b.URL}
		s.Buy(&again[i], sale)
		if again[i].Status != http.StatusCreated && again[i].Status != http.StatusAccepted {
			t.Fatalf("%s asked again and got %d %s", at.User, again[i].Status, again[i].Code)
		}
		if at.OrderID != "" && at.OrderID != again[i].OrderID {
			t.Fatalf("%s has two orders: %s and %s", at.User, at.OrderID, again[i].OrderID)
		}
	}
	shop.Recovered(t, "all are settled", func() error {
		if live := s.Check(sale, append(attempts, again...), b.URL); live != len(attempts) {
			return fmt.Errorf("%d orders for %d buyers", live, len(attempts))
		}
		return nil
	})
	s.Audited(b.URL, sale)
}

// One user at limit 1 buys at the same instant on two instances, one of which has no Redis.
func TestHole08_TwoWaysOfOneUserAtOnce(t *testing.T) {
	t.Parallel()
	s := shop.New(t)
	a := s.Start()
	down := kit.Redis(t)
	b := s.Start("--redis", down.URL())
	down.Kill()
	sale := s.Sale(a.URL, 1000)
	const users, each = 50, 4
	attempts := make([]shop.Attempt, users*each)
	var buyers sync.WaitGroup
	start := make(chan struct{})
	for i := range attempts {
		attempts[i] = shop.Attempt{User: fmt.Sprintf("u%d", i/each), Key: fmt.Sprintf("k%d", i), URL: []string{a.URL, b.URL}[i%2]}
		buyers.Go(func() {
			<-start
			s.Buy(&attempts[i], sale)
		})
	}
	close(start)
	buyers.Wait()
	shop.Recovered(t, "one order for each user", func() error {
		if live := s.Check(sale, attempts, a.URL); live != users {
			return fmt.Errorf("%d orders for %d users: %v", live, users, shop.Tally(attempts))
		}
		return nil
	})
	s.Audited(a.URL, sale)
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
