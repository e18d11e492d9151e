package scenario

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"flashsale/testkit"
)

// Redis dies in mid-rush, the database sells on, Redis comes back empty: whoever was confirmed keeps the order,
// nothing is oversold, and the rest sells.
func TestHole06_RedisDiesAndReturnsEmpty(t *testing.T) {
	s := newShop(t)
	a, b := s.start(), s.start()
	sale := s.sale(a.url, 600)
	killed := s.rush(sale, "kill", 1200, s.redis.Kill, a.url, b.url)
	if counts := tally(killed); counts["503 unavailable"] > 0 || counts["0 "] > 0 {
		t.Errorf("the database did not sell on: %v", counts)
	}
	s.books(sale)
	s.redis.Restart()
	s.sellRest(sale, 600, killed, a.url, b.url)
	s.audited(a.url, sale)
	s.auditCommand()
}

// Redis hangs after it may have run a script: the attempt goes to the database under the same id, and when
// Redis wakes up and its entry is settled, it meets the order that is there.
func TestHole17_RedisHangsInMidRush(t *testing.T) {
	s := newShop(t)
	a := s.start()
	sale := s.sale(a.url, 300)
	hung := s.rush(sale, "hang", 600, s.redis.Stop, a.url)
	if counts := tally(hung); counts["503 unavailable"] > 0 || counts["0 "] > 0 {
		t.Errorf("the database did not sell on: %v", counts)
	}
	s.redis.Continue()
	s.sellRest(sale, 300, hung, a.url)
	s.audited(a.url, sale)
	s.auditCommand()
}

// An instance is killed under load: every order that it confirmed is in the database exactly once, and the other
// instance takes over what it left in the queue.
func TestKilledInstanceLosesNoConfirmedOrder(t *testing.T) {
	s := newShop(t)
	a, b := s.start(), s.start()
	sale := s.sale(a.url, 500)
	attempts := s.rush(sale, "u", 3000, a.kill, a.url, b.url)
	confirmed := 0
	for _, at := range attempts {
		if at.confirmed() {
			confirmed++
		}
	}
	if confirmed == 0 {
		t.Fatal("nobody was confirmed")
	}
	s.sellRest(sale, 500, attempts, b.url)
	s.audited(b.url, sale)
	s.auditCommand()
}

// A buyer whose connection broke asks again under the same key, on another instance: there is one order.
func TestRepeatedKeyAfterAKilledInstance(t *testing.T) {
	s := newShop(t)
	a, b := s.start(), s.start()
	sale := s.sale(a.url, 2000)
	attempts := s.rush(sale, "u", 1000, a.kill, a.url)
	again := make([]attempt, len(attempts))
	for i, at := range attempts {
		again[i] = attempt{user: at.user, key: at.key, url: b.url}
		s.buy(&again[i], sale)
		if again[i].status != http.StatusCreated && again[i].status != http.StatusAccepted {
			t.Fatalf("%s asked again and got %d %s", at.user, again[i].status, again[i].code)
		}
		if at.orderID != "" && at.orderID != again[i].orderID {
			t.Fatalf("%s has two orders: %s and %s", at.user, at.orderID, again[i].orderID)
		}
	}
	recovered(t, "all are settled", func() error {
		if live := s.check(sale, append(attempts, again...), b.url); live != len(attempts) {
			return fmt.Errorf("%d orders for %d buyers", live, len(attempts))
		}
		return nil
	})
	s.audited(b.url, sale)
}

// One user at limit 1 buys at the same instant on two instances, one of which has no Redis.
func TestHole08_TwoWaysOfOneUserAtOnce(t *testing.T) {
	s := newShop(t)
	a := s.start()
	down := testkit.Redis(t)
	b := s.start("--redis", down.URL())
	down.Kill()
	sale := s.sale(a.url, 1000)
	const users, each = 50, 4
	attempts := make([]attempt, users*each)
	var buyers sync.WaitGroup
	start := make(chan struct{})
	for i := range attempts {
		attempts[i] = attempt{user: fmt.Sprintf("u%d", i/each), key: fmt.Sprintf("k%d", i), url: []string{a.url, b.url}[i%2]}
		buyers.Go(func() {
			<-start
			s.buy(&attempts[i], sale)
		})
	}
	close(start)
	buyers.Wait()
	recovered(t, "one order for each user", func() error {
		if live := s.check(sale, attempts, a.url); live != users {
			return fmt.Errorf("%d orders for %d users: %v", live, users, tally(attempts))
		}
		return nil
	})
	s.audited(a.url, sale)
}

// Every process is restarted, in any order: nothing is sold twice, nothing is lost.
func TestHole46_RestartsInAnyOrder(t *testing.T) {
	s := newShop(t)
	a, b := s.start(), s.start()
	sale := s.sale(a.url, 400)
	attempts := s.rush(sale, "first", 300, nil, a.url, b.url)

	a.stop()
	s.redis.Kill()
	attempts = append(attempts, s.rush(sale, "second", 50, nil, b.url)...)
	s.redis.Restart()
	a = s.start()
	attempts = append(attempts, s.rush(sale, "third", 20, nil, a.url, b.url)...)
	b.kill()
	s.redis.Kill()
	s.redis.Restart()
	b = s.start()
	s.sellRest(sale, 400, attempts, a.url, b.url)
	s.audited(b.url, sale)
	a.stop()
	b.stop()
	s.auditCommand()
}
