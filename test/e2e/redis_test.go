package e2e

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"flashsale/model"
	"flashsale/test/kit"
	"flashsale/test/kit/shop"
)

// saleIn makes a sale whose gate is in parts, as an operator would, and waits until the instances have found it.
func saleIn(t *testing.T, s *shop.Shop, parts, quota int, urls ...string) string {
	t.Helper()
	now := time.Now()
	sale := model.Sale{
		ID: model.NewSaleID(), Code: rand.Text()[:8], Title: "scenario", Currency: "CNY", PriceCents: 100, LimitPerUser: 1,
		PayTimeoutSeconds: 600, StartsAt: now.Add(-time.Minute), EndsAt: now.Add(time.Hour), Parts: parts,
	}
	if err := s.DB.CreateSale(t.Context(), sale, int64(quota), "scenario"); err != nil {
		t.Fatal(err)
	}
	for _, url := range urls {
		shop.Recovered(t, "the sale is known", func() error {
			status, doc, err := s.Call("GET", url+"/api/v1/sales/"+sale.ID, "", nil)
			if err == nil && status != http.StatusOK {
				err = fmt.Errorf("%v", doc)
			}
			return err
		})
	}
	s.Audited(urls[0], sale.ID)
	return sale.ID
}

// auditAt runs `flashsale audit` against a Redis.
func auditAt(t *testing.T, s *shop.Shop, address string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), s.Binary, "audit", "--database", s.Database, "--redis", address).CombinedOutput()
	if err != nil {
		t.Errorf("audit: %v\n%s", err, out)
	}
}

// ways counts a sale's orders by the way that they came: by the gate, or in the database alone.
func ways(t *testing.T, s *shop.Shop, saleID string) (gate, database int) {
	t.Helper()
	list, next, cursor := []model.Order(nil), "", ""
	for {
		var err error
		if list, next, err = s.DB.Orders(t.Context(), model.OrderFilter{SaleID: saleID, Limit: 500, Cursor: cursor}); err != nil {
			t.Fatal(err)
		}
		for _, o := range list {
			if o.Source == model.FromStream {
				gate++
			} else {
				database++
			}
		}
		if cursor = next; next == "" {
			return gate, database
		}
	}
}

// The primary dies in mid-rush, and its replica, which may lack the last moments, becomes the primary: whoever was
// confirmed keeps the order, nothing is sold twice, and the rest sells by new gates.
func TestSentinelsFailOver(t *testing.T) {
	t.Parallel()
	logging.Disable() // a server that is gone is no news
	r := kit.SentinelRedis(t)
	s := shop.On(t, kit.SharedMariaDB(t).NewDatabase(t), r.Primary)
	a, b := s.Start("--redis", r.URL()), s.Start("--redis", r.URL())
	const quota, first = 700, 500
	sales := []string{saleIn(t, s, 1, quota, a.URL, b.URL), saleIn(t, s, 4, quota, a.URL, b.URL)}
	attempts := make([][]shop.Attempt, len(sales))
	var rushes sync.WaitGroup
	kill := sync.OnceFunc(r.Primary.Kill)
	for i, sale := range sales {
		rushes.Go(func() { attempts[i] = s.Rush(sale, "first", first, kill, a.URL, b.URL) })
	}
	rushes.Wait()
	r.AwaitPromotion()
	for i, sale := range sales {
		soldOn(t, attempts[i], quota)
		attempts[i] = append(attempts[i], s.Rush(sale, "then", 100, nil, a.URL, b.URL)...)
		s.SellRest(sale, quota, attempts[i], a.URL, b.URL)
		s.Audited(b.URL, sale)
	}
	auditAt(t, s, r.URL())
	for _, i := range []*shop.Instance{a, b} {
		i.Stop()
	}
}

// Of three nodes one dies in mid-rush and comes back empty. The sales of the others never notice; its own go on in the
// database, and so does its part of a gate that is on all of them.
func TestClusterNodeDies(t *testing.T) {
	t.Parallel()
	logging.Disable() // a server that is gone is no news
	c := kit.Cluster(t, 3, 0)
	s := shop.On(t, kit.SharedMariaDB(t).NewDatabase(t), c.Nodes[0])
	a, b := s.Start("--redis", c.URL()), s.Start("--redis", c.URL())
	const quota, first = 600, 400
	several := saleIn(t, s, 6, quota, a.URL, b.URL)
	of := map[*kit.RedisServer]string{} // a sale of each node
	for len(of) < 3 {
		sale := s.Sale(a.URL, quota)
		of[c.Of("{"+sale+"}")] = sale
	}
	dead := c.Nodes[1]
	sales := []string{several}
	for _, sale := range of {
		sales = append(sales, sale)
	}
	attempts := make([][]shop.Attempt, len(sales))
	var rushes sync.WaitGroup
	kill := sync.OnceFunc(dead.Kill)
	for i, sale := range sales {
		rushes.Go(func() { attempts[i] = s.Rush(sale, "first", first, kill, a.URL, b.URL) })
	}
	rushes.Wait()
	dead.Restart() // what was queued on it is told as lost once it answers
	for i, sale := range sales {
		soldOn(t, attempts[i], quota)
		s.Check(sale, attempts[i], a.URL, b.URL)
		gate, database := ways(t, s, sale)
		switch {
		case sale != of[dead] && sale != several && database > 0:
			t.Errorf("a sale on a living node sold %d in the database, %d by its gate", database, gate)
		case (sale == of[dead] || sale == several) && database == 0:
			t.Errorf("the dead node was not missed: %d by the gate", gate)
		case sale == several && gate < database:
			t.Errorf("of a gate on three nodes one died: %d by the gate, %d in the database", gate, database)
		}
	}
	for i, sale := range sales {
		s.SellRest(sale, quota, attempts[i], a.URL, b.URL)
		s.Audited(b.URL, sale)
	}
	auditAt(t, s, c.URL())
}

// A node of a Cluster dies and its replica takes its place: it has the gates, but does not sell by them before they are
// made anew.
func TestClusterFailsOver(t *testing.T) {
	t.Parallel()
	logging.Disable() // a server that is gone is no news
	c := kit.Cluster(t, 3, 1)
	s := shop.On(t, kit.SharedMariaDB(t).NewDatabase(t), c.Nodes[0])
	a, b := s.Start("--redis", c.URL()), s.Start("--redis", c.URL())
	const quota, first = 800, 600
	sales := []string{saleIn(t, s, 6, quota, a.URL, b.URL), saleIn(t, s, 1, quota, a.URL, b.URL)}
	dead := c.Of("{" + sales[1] + "}")
	attempts := make([][]shop.Attempt, len(sales))
	var rushes sync.WaitGroup
	kill := sync.OnceFunc(dead.Kill)
	for i, sale := range sales {
		rushes.Go(func() { attempts[i] = s.Rush(sale, "first", first, kill, a.URL, b.URL) })
	}
	rushes.Wait()
	for i, sale := range sales {
		soldOn(t, attempts[i], quota)
		s.Audited(a.URL, sale) // on the promoted node
		s.SellRest(sale, quota, attempts[i], a.URL, b.URL)
		s.Audited(b.URL, sale)
	}
	auditAt(t, s, c.URL())
}

// Pages show what a replica knows, and what the database says when the replica is cut off or gone.
func TestPagesReadFromAReplica(t *testing.T) {
	t.Parallel()
	logging.Disable() // a server that is gone is no news
	s := shop.New(t)
	replica := kit.ReplicaOf(t, s.Redis)
	a := s.Start("--redis-replicas", replica.URL(), "--log-level", "info")
	const quota = 300
	sale := s.Sale(a.URL, quota)
	// shown waits until pages show so many; before, if given, comes before each look.
	shown := func(what string, want int, before ...func() error) {
		t.Helper()
		shop.Recovered(t, what, func() error {
			for _, do := range before {
				if err := do(); err != nil {
					return err
				}
			}
			_, doc, err := s.Call("GET", a.URL+"/api/v1/sales/"+sale, "", nil)
			if err == nil && doc["available"] != float64(want) {
				err = fmt.Errorf("%v are shown, want %d", doc["available"], want)
			}
			return err
		})
	}
	passedOver := func() int { return strings.Count(a.Log.String(), "replicas of Redis are away or behind") }
	attempts := s.Rush(sale, "first", 50, nil, a.URL)
	shown("as sold", quota-50)

	client := redis.NewClient(&redis.Options{Addr: replica.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	// The gate there says what no database says: it is shown, so it is asked.
	if err := client.ConfigSet(t.Context(), "replica-read-only", "no").Err(); err != nil {
		t.Fatal(err)
	}
	left := func(n int) func() error {
		return func() error { return client.HSet(t.Context(), "fs:{"+sale+"}:gate", "left", n).Err() }
	}
	shown("what the replica says", 7, left(7))
	shown("never nothing", 1, left(0))
	attempts = append(attempts, s.Rush(sale, "second", 50, nil, a.URL)...)
	for _, at := range attempts {
		if !at.Confirmed() {
			t.Errorf("%s was told %d %s", at.User, at.Status, at.Code)
		}
	}

	if err := client.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	shown("what the database says", quota-100)
	shop.Recovered(t, "it is logged that the replica is passed over", func() error {
		if passedOver() == 0 { // it may have shown the same
			return errors.New("it is not")
		}
		return nil
	})
	logged := passedOver()
	attempts = append(attempts, s.Rush(sale, "third", 50, nil, a.URL)...)
	shown("what the database says now", quota-150)
	replica.Kill()
	s.SellRest(sale, quota, attempts, a.URL)
	shown("sold out", 0)
	if n := passedOver(); n != logged {
		t.Errorf("it was logged %d times that the replica is passed over, then %d", logged, n)
	}
	s.Audited(a.URL, sale)
	s.AuditCommand()
}
