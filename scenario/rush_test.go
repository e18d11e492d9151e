package scenario

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"flashsale/model"
)

// crowd is how many buyers of a rush are on their way at once.
const crowd = 100

// attempt is what one buyer did and was told.
type attempt struct {
	user    string
	key     string
	url     string
	orderID string // of a 201 or 202
	status  int    // 0: the answer never came
	code    string // of a refusal
}

func (a attempt) confirmed() bool { return a.status == http.StatusCreated }

// rush lets buyers buy one unit each, spread over the instances, each under a key of its own. started, if given,
// is called once when a tenth of them have their answer.
func (s *shop) rush(saleID, prefix string, buyers int, started func(), urls ...string) []attempt {
	s.t.Helper()
	attempts := make([]attempt, buyers)
	next := make(chan int)
	var workers sync.WaitGroup
	gate := make(chan struct{})
	var answered sync.WaitGroup
	answered.Add(buyers / 10)
	for range min(crowd, buyers) {
		workers.Go(func() {
			<-gate
			for i := range next {
				a := &attempts[i]
				a.user, a.url = fmt.Sprintf("%s-%d", prefix, i), urls[i%len(urls)]
				a.key = "key-" + a.user
				s.buy(a, saleID)
				if i < buyers/10 {
					answered.Done()
				}
			}
		})
	}
	if started != nil {
		workers.Go(func() {
			answered.Wait()
			started()
		})
	}
	close(gate)
	for i := range buyers {
		next <- i
	}
	close(next)
	workers.Wait()
	return attempts
}

// buy asks for a path and buys one unit, noting what was told.
func (s *shop) buy(a *attempt, saleID string) {
	token := s.token(a.user)
	status, doc, err := s.call("POST", a.url+"/api/v1/sales/"+saleID+"/path", token, nil)
	if err == nil && status == http.StatusOK {
		path, _ := doc["path"].(string)
		status, doc, err = s.call("POST", a.url+"/api/v1/sales/"+saleID+"/"+path+"/orders", token, document{"quantity": 1}, "Idempotency-Key", a.key)
	}
	if err != nil {
		return // the instance is gone; whether it bought is not known
	}
	a.status = status
	a.orderID, _ = doc["id"].(string)
	a.code, _ = doc["code"].(string)
}

// check holds what buyers were told against the database: every confirmed order stands there exactly once, a
// queued one has ended, and nobody has what nobody asked for. It gives the number of live orders.
func (s *shop) check(saleID string, attempts []attempt, urls ...string) int {
	s.t.Helper()
	for _, a := range attempts {
		switch {
		case a.confirmed():
			order, ok, err := s.db.Order(context.Background(), a.orderID)
			if err != nil || !ok || order.UserID != a.user || order.SaleID != saleID || order.Status == model.OrderRejected {
				s.t.Fatalf("%s was told 201 for %s; the database has %+v (found %t, %v)", a.user, a.orderID, order, ok, err)
			}
		case a.status == http.StatusAccepted:
			recovered(s.t, "queued order "+a.orderID+" ends", func() error {
				status, doc, err := s.call("GET", urls[0]+"/api/v1/orders/"+a.orderID, s.token(a.user), nil)
				if err != nil || status != http.StatusOK || doc["status"] == "queued" {
					return fmt.Errorf("status %d: %v %w", status, doc, err)
				}
				return nil
			})
		}
	}
	books := s.books(saleID)
	live := books.Units[model.OrderPending] + books.Units[model.OrderPaid]
	if live > books.Stock.Quota {
		s.t.Fatalf("%d units sold of %d", live, books.Stock.Quota)
	}
	return int(live)
}

// sellRest lets fresh buyers buy until the sale is sold out, within the time of a recovery, and checks that the
// whole quota is sold then.
func (s *shop) sellRest(saleID string, quota int, attempts []attempt, urls ...string) {
	s.t.Helper()
	round := 0
	recovered(s.t, "the rest is sold", func() error {
		live := s.check(saleID, attempts, urls...)
		if live == quota {
			return nil
		}
		round++
		attempts = append(attempts, s.rush(saleID, fmt.Sprintf("rest%d", round), quota-live+10, nil, urls...)...)
		return fmt.Errorf("%d of %d sold", live, quota)
	})
	if live := s.check(saleID, attempts, urls...); live != quota {
		s.t.Fatalf("%d of %d sold", live, quota)
	}
}

func tally(attempts []attempt) map[string]int {
	counts := map[string]int{}
	for _, a := range attempts {
		counts[fmt.Sprintf("%d %s", a.status, a.code)]++
	}
	return counts
}

// Five thousand buyers on 500 units through two instances: exactly 500 are sold, and nobody is left in doubt.
func TestRushOverTwoInstances(t *testing.T) {
	s := newShop(t)
	a, b := s.start(), s.start()
	sale := s.sale(a.url, 500)
	attempts := s.rush(sale, "u", 5000, nil, a.url, b.url)
	if live := s.check(sale, attempts, a.url); live != 500 {
		t.Errorf("%d units sold, want 500: %v", live, tally(attempts))
	}
	counts := tally(attempts)
	if refused := counts["409 sold_out"]; refused != 4500 {
		t.Errorf("%d buyers were told sold_out, want 4500: %v", refused, counts)
	}
	s.audited(a.url, sale)
	s.auditCommand()
	a.stop()
	b.stop()
}

// Far more attempts than the pools are large still get true answers.
func TestHole03_MoreAttemptsThanConnections(t *testing.T) {
	s := newShop(t)
	a := s.start("--db-max-conns", "4")
	sale := s.sale(a.url, 100)
	attempts := s.rush(sale, "u", 12_001, nil, a.url)
	if live := s.check(sale, attempts, a.url); live != 100 {
		t.Errorf("%d units sold, want 100: %v", live, tally(attempts))
	}
	if counts := tally(attempts); counts["409 sold_out"] != 12_001-100 {
		t.Errorf("answers: %v", counts)
	}
}
