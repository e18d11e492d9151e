package app

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/goleak"

	"flashsale/internal/config"
	"flashsale/test/kit"
)

// by is a change of the settings: what brings admitted attempts to the database.
func by(queue, url string) func(*config.Settings) {
	return func(s *config.Settings) { s.Queue, s.QueueURL = queue, url }
}

// queues are all that there are; each may start a broker for t.
var queues = map[string]func(t *testing.T) func(*config.Settings){
	"redis-stream": func(*testing.T) func(*config.Settings) { return by("redis-stream", "") },
	"redis-list":   func(*testing.T) func(*config.Settings) { return by("redis-list", "") },
	"kafka": func(t *testing.T) func(*config.Settings) {
		cluster, err := kfake.NewCluster()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(cluster.Close)
		return by("kafka", strings.Join(cluster.ListenAddrs(), ","))
	},
	"rabbitmq": func(t *testing.T) func(*config.Settings) { return by("rabbitmq", kit.RabbitMQ(t).URL()) },
}

// Two instances sell out one sale by each queue, to the last unit and not one more; one of them stops in the middle.
func TestSellsOutByEachQueue(t *testing.T) {
	t.Parallel()
	for name, start := range queues {
		t.Run(name, func(t *testing.T) { sellsOut(t, start(t)) })
	}
}

func sellsOut(t *testing.T, queue func(*config.Settings)) {
	outside := onMariaDB(t, kit.Redis(t))
	one, two := start(t, outside, queue), start(t, outside, queue)
	saleID := one.createSale(fields{"quota": 40, "limit_per_user": 1}).ID
	two.eventually("the other knows the sale", func() bool { return two.sale(saleID).State == "open" })
	var got tally
	together(30, func(i int) {
		c := []*server{one, two}[i%2].buyer(fmt.Sprint("u", i))
		got.add(c.try(context.WithoutCancel(t.Context()), "POST", "/api/v1/sales/"+saleID+"/"+c.forgedPath(saleID)+"/orders", fields{"quantity": 1}))
	})
	got.want(t, map[string]int{"201": 30})

	// Queued, and then left: the other instance, or the stop itself, brings it to the database.
	var queued order
	one.buyer("ann").purchase(saleID, 1, "Prefer", "respond-async").want(202).read(&queued)
	one.stop()
	two.buyer("ann").becomes(queued.ID, "pending")

	var rest tally
	together(20, func(i int) {
		c := two.buyer(fmt.Sprint("v", i))
		rest.add(c.try(context.WithoutCancel(t.Context()), "POST", "/api/v1/sales/"+saleID+"/"+c.forgedPath(saleID)+"/orders", fields{"quantity": 1}))
	})
	rest.want(t, map[string]int{"201": 9, "409 sold_out": 11})
	if books := two.balanced(saleID); books.Held != 40 || books.Available != 0 || books.Orders["pending"] != 40 {
		t.Errorf("books %+v", books)
	}
}

// An instance sells without its broker, and says that it is away; with it again, all goes on.
func TestSellsWithoutItsBroker(t *testing.T) {
	t.Parallel()
	broker := kit.RabbitMQ(t)
	broker.Kill()
	s := start(t, by("rabbitmq", broker.URL()), func(c *config.Settings) { c.PayGrace, c.OpsAddr = 0, "127.0.0.1:0" })
	bypassed := func(entries string) bool {
		page := s.anyone().call("GET", s.app.OpsURL()+"/metrics", nil).want(200).body
		return strings.Contains(string(page), "\nflashsale_queue_bypassed_entries_total "+entries+"\n")
	}
	queue := func(want string) func() bool {
		return func() bool {
			var said struct {
				Status       string            `json:"status"`
				Dependencies map[string]string `json:"dependencies"`
			}
			s.anyone().call("GET", "/readyz", nil).want(200).read(&said)
			return said.Dependencies["queue"] == want
		}
	}
	saleID := s.createSale(fields{"pay_timeout_seconds": 1}).ID
	ann := s.buyer("ann")
	first := ann.buy(saleID, 1)
	s.eventually("the queue is down", queue("down"))
	s.eventually("the first order is counted", func() bool { return bypassed("1") })
	broker.Restart()
	s.eventually("the queue is there", queue("ok"))
	second := ann.buy(saleID, 1)
	ann.becomes(first.ID, "expired")
	ann.becomes(second.ID, "expired") // a delayed message or the expirer's own period, whichever comes first
	if books := s.balanced(saleID); books.Available != 10 {
		t.Errorf("books %+v", books)
	}
	broker.Stop() // it hangs, and a stop of the instance has to end in time all the same
	s.stop()
}

// ofTheCluster are the goroutines of the cluster's end of a connection, which may finish a wait after the app's end.
var ofTheCluster = []goleak.Option{
	goleak.IgnoreAnyFunction("github.com/twmb/franz-go/pkg/kfake.(*clientConn).read"),
	goleak.IgnoreAnyFunction("github.com/twmb/franz-go/pkg/kfake.(*clientConn).write"),
}

// An app with a queue leaves no goroutine behind when it stops. Not parallel: others' would be counted.
func TestStopWithAQueueLeavesNothingRunning(t *testing.T) {
	for _, name := range []string{"redis-list", "kafka"} {
		t.Run(name, func(t *testing.T) {
			queue := queues[name](t)
			leaks := goleak.IgnoreCurrent()
			s := start(t, queue)
			s.buyer("ann").buy(s.createSale(nil).ID, 1)
			s.stop()
			goleak.VerifyNone(t, append(ofTheCluster, leaks)...)
		})
	}
}
