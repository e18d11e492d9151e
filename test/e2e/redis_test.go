package e2e

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"flashsale/model"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
	"flashsale/test/kit/pace"
	"flashsale/test/kit/shop"
)

// saleIn makes a sale whose gate is in shards, which the API does not offer, and waits until the instances know the sale.
func saleIn(t testing.TB, s *shop.Shop, shards, quota int, urls ...string) string {
	t.Helper()
	now := time.Now()
	sale := model.Sale{
		ID: model.NewSaleID(), Code: rand.Text()[:8], Title: "scenario", Currency: "CNY", PriceCents: 100, LimitPerUser: 1,
		PayTimeoutSeconds: 600, StartsAt: now.Add(-time.Minute), EndsAt: now.Add(time.Hour), Shards: shards,
	}
	check.NoError(t, s.DB.CreateSale(t.Context(), sale, int64(quota), "scenario"))
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

// ways counts a sale's orders by their source: admitted by the gate, or sold by the database alone.
func ways(t testing.TB, s *shop.Shop, saleID string) (gate, database int) {
	t.Helper()
	check.NoError(t, kit.OpenSQL(t, s.Database).QueryRowContext(t.Context(), `SELECT COALESCE(SUM(source = 'stream'), 0),
		COALESCE(SUM(source = 'database'), 0) FROM orders WHERE sale_id = ?`, saleID).Scan(&gate, &database))
	return gate, database
}

// rushes lets buyers buy in all sales at once, and calls kill once when the first of them have their answers. Every
// buyer must get an answer, and none may be turned away while units are left. When the database has no units left, a
// buyer whom Redis may have admitted is answered with 503, since a refusal might be wrong.
func rushes(t testing.TB, s *shop.Shop, sales []string, quota, buyers int, kill func(), urls ...string) [][]shop.Attempt {
	t.Helper()
	logging.Disable() // connection errors to the killed server are expected
	once := sync.OnceFunc(kill)
	attempts := check.Collect(len(sales), func(i int) []shop.Attempt {
		return s.Rush(sales[i], "first", buyers, once, urls...)
	})
	for _, each := range attempts {
		counts := shop.Tally(each)
		if counts["0 "] > 0 {
			t.Errorf("there are buyers without an answer: %v", counts)
		}
		if counts["503 unavailable"] > 0 && counts["201 "] < quota { // also if Redis and the database were too slow
			pace.Errorf(t, "the database did not sell on: %v", counts)
		}
	}
	return attempts
}

// A node of a Cluster dies during a rush, and its replica, which may lack the last admissions, takes its place. It does
// not sell by the gates that it has. New gates sell exactly the rest, and every confirmed order exists.
func TestClusterFailsOver(t *testing.T) {
	t.Parallel()
	pace.Try(t, func(t *pace.Trial) {
		c := kit.Cluster(t, 3, 1)
		s := shop.On(t, kit.SharedMariaDB(t).NewDatabase(t), c.Nodes[0])
		a, b := s.Start("--redis", c.URL()), s.Start("--redis", c.URL())
		const quota, buyers = 800, 600
		sales := []string{saleIn(t, s, 6, quota, a.URL, b.URL), saleIn(t, s, 1, quota, a.URL, b.URL)}
		attempts := rushes(t, s, sales, quota, buyers, c.Of("{"+sales[1]+"}").Kill, a.URL, b.URL)
		for i, sale := range sales {
			s.Audited(a.URL, sale) // on the promoted node
			s.SellRest(sale, quota, attempts[i], a.URL, b.URL)
			s.Audited(b.URL, sale)
		}
		s.AuditCommand("--redis", c.URL())
		a.Stop()
		b.Stop()
	})
}

// One of three nodes dies during a rush and comes back empty. Sales on the other nodes are not affected. The database
// sells on for the sales of the dead node, and for its shard of a gate that is on all nodes.
func TestClusterNodeDies(t *testing.T) {
	t.Parallel()
	pace.Try(t, func(t *pace.Trial) {
		c := kit.Cluster(t, 3, 0)
		s := shop.On(t, kit.SharedMariaDB(t).NewDatabase(t), c.Nodes[0])
		a, b := s.Start("--redis", c.URL()), s.Start("--redis", c.URL())
		const quota, buyers = 600, 400
		several := saleIn(t, s, 6, quota, a.URL, b.URL)
		of := map[*kit.RedisServer]string{} // by node: a sale whose gate is on the node
		for len(of) < 3 {
			sale := s.Sale(a.URL, quota)
			of[c.Of("{"+sale+"}")] = sale
		}
		dead := c.Nodes[1]
		sales := []string{several, of[c.Nodes[0]], of[dead], of[c.Nodes[2]]}
		attempts := rushes(t, s, sales, quota, buyers, dead.Kill, a.URL, b.URL)
		dead.Restart() // attempts that were queued on it are then told as lost
		for i, sale := range sales {
			s.Check(sale, attempts[i], a.URL, b.URL)
			gate, database := ways(t, s, sale) // which way an attempt takes depends on the time of the calls
			switch {
			case sale != of[dead] && sale != several && database > 0:
				t.Slowf("a sale on a living node sold %d in the database, %d by its gate", database, gate)
			case (sale == of[dead] || sale == several) && database == 0:
				t.Slowf("the dead node had no effect: %d by the gate", gate)
			case sale == several && gate < database:
				t.Slowf("one of three nodes died: %d by the gate, %d in the database", gate, database)
			}
		}
		for i, sale := range sales {
			s.SellRest(sale, quota, attempts[i], a.URL, b.URL)
			s.Audited(b.URL, sale)
		}
		s.AuditCommand("--redis", c.URL())
	})
}

// Pages show the figure of a replica, and the database's figure when the replica is cut off or gone.
func TestPagesReadFromAReplica(t *testing.T) {
	t.Parallel()
	logging.Disable() // connection errors to the killed server are expected
	s := shop.New(t)
	replica := kit.ReplicaOf(t, s.Redis)
	a := s.Start("--redis-replicas", replica.URL())
	const quota = 200
	sale := s.Sale(a.URL, quota)
	client := redis.NewClient(&redis.Options{Addr: replica.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	tell := func(command ...any) {
		t.Helper()
		check.NoError(t, client.Do(t.Context(), command...).Err())
	}
	shown := func(what string, want int) {
		t.Helper()
		shop.Recovered(t, what, func() error {
			_, doc, err := s.Call("GET", a.URL+"/api/v1/sales/"+sale, "", nil)
			if err == nil && doc["available"] != float64(want) {
				err = fmt.Errorf("%v are shown, want %d", doc["available"], want)
			}
			return err
		})
	}
	attempts := s.Rush(sale, "first", 50, nil, a.URL)
	shown("the units that are left", quota-50)
	tell("CONFIG", "SET", "replica-read-only", "no")
	gate := "fs:{" + sale + "}:gate"
	check.Eventually(t, "the replica has all changes", func() bool { // else one of them replaces the figure below
		left, err := client.HGet(t.Context(), gate, "left").Int()
		return err == nil && left == quota-50
	})
	tell("HSET", gate, "left", 7) // no other store has this figure
	shown("the replica's figure", 7)
	tell("REPLICAOF", "127.0.0.1", "1")
	shown("the database's figure", quota-50)
	replica.Kill()
	s.SellRest(sale, quota, attempts, a.URL)
	shown("sold out", 0)
	s.Audited(a.URL, sale)
}
