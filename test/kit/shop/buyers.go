package shop

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"flashsale/model"
)

// crowd is the number of buyers that are active at once in a rush.
const crowd = 100

// Attempt is one buyer's request and its answer.
type Attempt struct {
	User    string
	Key     string
	URL     string
	Units   int    // that the buyer wants; 0: one
	OrderID string // of a 201 or 202
	Status  int    // 0: no answer came
	Code    string // of a refusal

	Invoked, Answered time.Time

	path string // kept for a repetition
}

// Confirmed reports whether the order was confirmed with 201.
func (a Attempt) Confirmed() bool { return a.Status == http.StatusCreated }

// Rush lets buyers buy one unit each, spread over the instances, each under an idempotency key of its own. If started is not
// nil, it is called once when the first tenth of the buyers have their answers.
func (s *Shop) Rush(saleID, prefix string, buyers int, started func(), urls ...string) []Attempt {
	s.t.Helper()
	attempts := make([]Attempt, buyers)
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
				a.User, a.URL = fmt.Sprintf("%s-%d", prefix, i), urls[i%len(urls)]
				a.Key = "key-" + a.User
				s.Buy(a, saleID)
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

// AskAgain lets the buyers without an answer repeat their requests under the same keys until every buyer has an answer.
// On a busy machine an answer may come too late.
func (s *Shop) AskAgain(saleID string, attempts []Attempt) []Attempt {
	s.t.Helper()
	Recovered(s.t, "everybody gets an answer", func() error {
		silent := 0
		for i := range attempts {
			if attempts[i].Status == 0 {
				s.Buy(&attempts[i], saleID)
				silent++
			}
		}
		if silent > 0 {
			return fmt.Errorf("%d asked again", silent)
		}
		return nil
	})
	return attempts
}

// Buy requests a path, unless a has one, and buys, and stores the answer in a.
func (s *Shop) Buy(a *Attempt, saleID string) { s.BuyBy(a, saleID, s.Token(a.User)) }

// BuyBy is Buy with a token of the buyer.
func (s *Shop) BuyBy(a *Attempt, saleID, token string) {
	a.Invoked = time.Now()
	defer func() { a.Answered = time.Now() }()
	url := a.URL + "/api/v1/sales/" + saleID + "/"
	status, doc, err := 0, Document(nil), error(nil)
	if a.path == "" {
		status, doc, err = s.Call("POST", url+"path", token, nil)
		a.path, _ = doc["path"].(string)
	}
	if a.path != "" {
		status, doc, err = s.Call("POST", url+a.path+"/orders", token, Document{"quantity": max(1, a.Units)}, "Idempotency-Key", a.Key)
	}
	if err != nil {
		return // the instance is gone; whether the buyer bought is unknown
	}
	a.Status = status
	a.OrderID, _ = doc["id"].(string)
	a.Code, _ = doc["code"].(string)
}

// Check compares the buyers' answers with the database: every confirmed order is stored, every queued order has ended,
// the books balance, and at most the quota is sold. It returns the number of live units.
func (s *Shop) Check(saleID string, attempts []Attempt, urls ...string) int {
	s.t.Helper()
	for _, a := range attempts {
		switch {
		case a.Confirmed():
			order, ok, err := s.DB.Order(context.Background(), a.OrderID)
			if err != nil || !ok || order.UserID != a.User || order.SaleID != saleID || order.Status == model.OrderRejected {
				s.t.Fatalf("%s was told 201 for %s; the database has %+v (found %t, %v)", a.User, a.OrderID, order, ok, err)
			}
		case a.Status == http.StatusAccepted:
			Recovered(s.t, "queued order "+a.OrderID+" ends", func() error {
				status, doc, err := s.Call("GET", urls[0]+"/api/v1/orders/"+a.OrderID, s.Token(a.User), nil)
				if err != nil || status != http.StatusOK || doc["status"] == "queued" {
					return fmt.Errorf("status %d: %v %w", status, doc, err)
				}
				return nil
			})
		}
	}
	books := s.Books(saleID)
	live := books.Units[model.OrderPending] + books.Units[model.OrderPaid]
	if live > books.Stock.Quota {
		s.t.Fatalf("%d units sold of %d", live, books.Stock.Quota)
	}
	return int(live)
}

// SellRest lets new buyers buy until the sale is sold out, within the time of Recovered, and checks that exactly the
// quota is sold.
func (s *Shop) SellRest(saleID string, quota int, attempts []Attempt, urls ...string) {
	s.t.Helper()
	round := 0
	Recovered(s.t, "the rest is sold", func() error {
		live := s.Check(saleID, attempts, urls...)
		if live == quota {
			return nil
		}
		round++
		attempts = append(attempts, s.Rush(saleID, fmt.Sprintf("rest%d", round), quota-live+10, nil, urls...)...)
		return fmt.Errorf("%d of %d sold", live, quota)
	})
	if live := s.Check(saleID, attempts, urls...); live != quota {
		s.t.Fatalf("%d of %d sold", live, quota)
	}
}

// Tally counts answers by status and code.
func Tally(attempts []Attempt) map[string]int {
	counts := map[string]int{}
	for _, a := range attempts {
		counts[fmt.Sprintf("%d %s", a.Status, a.Code)]++
	}
	return counts
}
