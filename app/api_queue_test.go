package app_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"flashsale/internal/config"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
	"flashsale/test/kit/pace"
)

// by makes a queue bring the admitted attempts to the database.
func by(queue, url string) func(*config.Settings) {
	return func(s *config.Settings) { s.Queue, s.QueueURL = queue, url }
}

// queues are all queues. Each may start a broker for the test.
var queues = map[string]func(t *testing.T) func(*config.Settings){
	"redis-stream": func(*testing.T) func(*config.Settings) { return by("redis-stream", "") },
	"redis-list":   func(*testing.T) func(*config.Settings) { return by("redis-list", "") },
	"kafka": func(t *testing.T) func(*config.Settings) {
		cluster, err := kfake.NewCluster()
		check.NoError(t, err)
		t.Cleanup(cluster.Close)
		return by("kafka", strings.Join(cluster.ListenAddrs(), ","))
	},
	"rabbitmq": func(t *testing.T) func(*config.Settings) { return by("rabbitmq", kit.RabbitMQ(t).URL()) },
}

// Two instances sell a sale out by each queue, to the last unit and not one more. One of them stops in the middle.
func TestSellsOutByEachQueue(t *testing.T) {
	t.Parallel()
	for name, queue := range queues {
		t.Run(name, func(t *testing.T) {
			stores, broker := withStores(kit.ServerStores(t)), queue(t)
			one, two := start(t, stores, broker), start(t, stores, broker)
			saleID := one.createSale(fields{"quota": 40, "limit_per_user": 1}).ID
			two.knows(saleID)
			both := buyTogether(saleID, 30, func(i int) *client { return []*server{one, two}[i%2].buyer(fmt.Sprint("u", i)) })
			if both.counts["201"]+both.counts["202"] != 30 { // on a busy machine a broker may take long
				t.Errorf("answers %v, want 30 orders", both.counts)
			}

			// This attempt is queued when its instance stops: the stop or the other instance settles it.
			queued := one.buyer("ann").purchased(202, saleID, 1, "Prefer", "respond-async")
			one.stop()
			two.buyer("ann").becomes(queued.ID, "pending")

			rest := buyTogether(saleID, 20, func(i int) *client { return two.buyer(fmt.Sprint("v", i)) })
			if rest.counts["201"]+rest.counts["202"] != 9 || rest.counts["409 sold_out"] != 11 {
				t.Errorf("answers %v, want 9 orders and 11 refusals", rest.counts)
			}
			two.eventually("all orders are in the database", func() bool { return two.audit(saleID).Orders["pending"] == 40 })
			two.wantStock(saleID, stock{held: 40})
		})
	}
}

// An instance sells without its broker and reports that the broker is away. When the broker is back, the instance uses it.
func TestSellsWithoutItsBroker(t *testing.T) {
	t.Parallel()
	pace.Try(t, func(t *pace.Trial) {
		broker := kit.RabbitMQ(t)
		broker.Kill()
		s := start(t, by("rabbitmq", broker.URL()), withFigures, func(c *config.Settings) { c.PayGrace = 0 })
		queueIs := func(state string) {
			t.Helper()
			s.eventually("the queue is "+state, func() bool {
				return strings.Contains(string(s.anyone().call("GET", "/readyz", nil).body), `"queue":"`+state+`"`)
			})
		}
		saleID := s.createSale(fields{"pay_timeout_seconds": 1}).ID
		ann := s.buyer("ann")
		first := ann.buy(saleID, 1)
		queueIs("down")
		counted := regexp.MustCompile(`\nflashsale_queue_bypassed_entries_total [1-9]`) // what is settled again counts again
		s.eventually("the first order is counted", func() bool {
			return counted.Match(s.anyone().get(s.app.OpsURL() + "/metrics").body)
		})
		broker.Restart()
		queueIs("ok")
		second := ann.buy(saleID, 1)
		ann.becomes(first.ID, "expired")
		ann.becomes(second.ID, "expired") // a delayed message or the expirer's own period, whichever comes first
		s.wantStock(saleID, stock{available: 10})
		broker.Stop() // the broker hangs, and the instance must still stop in time
		s.stop()
	})
}
