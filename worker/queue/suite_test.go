package queue

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"flashsale/gate"
	"flashsale/model"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
	"flashsale/test/kit/instance"
	"flashsale/test/kit/pace"
	"flashsale/worker"
)

func TestMain(m *testing.M) {
	logging.Disable() // every error is returned, and the tests cause some
	kit.Main(m)
}

// broker is one kind of queue, and what a test may do to it.
type broker struct {
	kind, address string // what openAt needs
	send          func(t *testing.T, message string)
	dead          func(t *testing.T) []string // all dead letters
	down, up      func()                      // killed, and started again with what is on disk
	freeze, thaw  func()                      // between them the broker accepts connections and answers nothing
}

// openAt opens the queue of one instance.
func openAt(t testing.TB, kind, address, instance string, log *slog.Logger) (q worker.Queue) {
	t.Helper()
	address, name, _ := strings.Cut(address, "#")
	switch kind {
	case "redis-list":
		client, err := gate.Connect(address)
		check.NoError(t, err)
		t.Cleanup(func() { _ = client.Close() })
		return NewRedisList(client, instance, log)
	case "rabbitmq":
		rabbit := NewRabbitMQ(address, log)
		rabbit.name = name
		q = rabbit
	case "kafka":
		kafka, err := NewKafka([]string{address}, instance, log)
		check.NoError(t, err)
		kafka.name = name
		q = kafka
	}
	t.Cleanup(func() { _ = q.Close() })
	return q
}

func (b *broker) open(t testing.TB, instance string) worker.Queue {
	t.Helper()
	return openAt(t, b.kind, b.address, instance, slog.New(slog.DiscardHandler))
}

// All brokers pass the same tests. The tests mostly wait, so they run in parallel, except those of RabbitMQ, which share
// a server that some of them kill. The test that counts goroutines runs before all others.
func TestQueues(t *testing.T) {
	kinds := map[string]func(testing.TB) *broker{"redis-list": startRedisList(t), "rabbitmq": startRabbitMQ(t), "kafka": startKafka(t)}
	for kind, fresh := range kinds {
		t.Run(kind+" leaves nothing running", func(t *testing.T) { testLeavesNothingRunning(t, fresh(t)) })
	}
	for kind, fresh := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			check.Each(t, map[string]func(*testing.T, *broker){
				"a rush":                    testRush,
				"any order, any number":     testAnyOrderAnyNumber,
				"a killed consumer":         testKilledConsumer,
				"a settle that fails":       testSettleFails,
				"unreadable messages":       testUnreadable,
				"away at the start":         testAwayAtTheStart,
				"away in mid-rush":          func(t *testing.T, b *broker) { pace.Try(t, testOutage(b, b.down, b.up)) },
				"hangs in mid-rush":         func(t *testing.T, b *broker) { pace.Try(t, testOutage(b, b.freeze, b.thaw)) },
				"messages of other engines": testForeign,
			}, func(t *testing.T, test func(*testing.T, *broker)) {
				if kind != "rabbitmq" {
					t.Parallel()
				}
				test(t, fresh(t))
			})
		})
	}
}

// Two instances admit attempts on two sales, and settle what the broker delivers. Every attempt becomes one order, and
// every published message is delivered.
func testRush(t *testing.T, b *broker) {
	first := instance.Open(t, kit.SharedMariaDB(t).NewDatabase(t), kit.Redis(t).URL())
	here, there := with(first, "here", b), with(first.Beside("there"), "there", b)
	sales, warm := []model.Offer{here.Sale(200, 1), here.Sale(100, 1)}, here.Sale(100_000, 1)
	check.NoError(there, there.Catalog.Refresh(t.Context()))
	stop := []func(){here.Running(here.settler.Run), there.Running(there.settler.Run)}
	tries := 0
	check.Eventually(t, "a broker that has just started answers in time", func() bool {
		tries++
		here.admit(attempt(warm, fmt.Sprint("warm-", tries)))
		return len(here.queue.seen()) > 0
	})
	var all sync.WaitGroup
	for i := range 300 {
		all.Go(func() { []*engine{here, there}[i%2].admit(attempt(sales[min(i%3, 1)^1], fmt.Sprint("u-", i))) })
	}
	all.Wait()
	here.Settled(sales[0], 200, 0)
	here.Settled(sales[1], 100, 0)
	check.Eventually(t, "all published messages are delivered", func() bool {
		ways := here.queue.seen()
		for id, w := range there.queue.seen() {
			ways[id] = way{ways[id].published + w.published, ways[id].delivered + w.delivered, 0}
		}
		lost := func(w way) bool { return w.published > 0 && w.delivered == 0 }
		return !slices.ContainsFunc(slices.Collect(maps.Values(ways)), lost)
	})
	for _, end := range stop {
		end()
	}
	for _, o := range sales {
		b.nothingLeft(t, o)
	}
}

// Messages that are delivered two or three times, in any order, make one order for each attempt.
func testAnyOrderAnyNumber(t *testing.T, b *broker) {
	e := newEngine(t, b)
	o := e.Sale(100, 1)
	entries := e.unsettled(o, 30)
	entries = slices.Concat(entries, entries, entries[:15])
	rand.Shuffle(len(entries), func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
	e.publish(o, entries...)
	stop := e.Running(e.settler.Run)
	e.Settled(o, 30, 0)
	check.Eventually(t, "all messages are settled", func() bool {
		_, messages := e.queue.settled()
		return messages >= len(entries)
	})
	stop()
	b.nothingLeft(t, o)
	e.Settled(o, 30, 0)
}

// asChild is the variable that makes TestAsChild, in a child process, the consumer of a broker: kind and address.
const asChild = "QUEUE_AS_CHILD"

// A process receives messages and is killed before it has settled them. The broker delivers them to the next consumer.
func testKilledConsumer(t *testing.T, b *broker) {
	e := newEngine(t, b)
	o := e.Sale(100, 1)
	e.publish(o, e.unsettled(o, 50)...)
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAsChild$")
	child.Env = append(os.Environ(), asChild+"="+b.kind+" "+b.address)
	child.Stderr = os.Stderr
	stdout, err := child.StdoutPipe()
	check.NoError(t, err)
	check.NoError(t, child.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("the child took %q, %v", line, err)
	}
	_ = child.Process.Kill()
	_ = child.Wait() // it was killed
	stop := e.Running(e.settler.Run)
	e.Settled(o, 50, 0)
	check.Eventually(t, "the messages of the dead consumer are delivered", func() bool {
		orders, _ := e.queue.settled()
		return orders == 50
	})
	stop()
	b.nothingLeft(t, o)
	e.Settled(o, 50, 0)
}

// TestAsChild is the child process of testKilledConsumer. Otherwise it does nothing.
func TestAsChild(t *testing.T) {
	kind, address, ok := strings.Cut(os.Getenv(asChild), " ")
	if !ok {
		return
	}
	q := openAt(t, kind, address, "child", slog.New(slog.DiscardHandler))
	t.Fatal(q.Consume(t.Context(), func(_ context.Context, _ string, entries []model.Entry) error {
		_, _ = fmt.Fprintln(os.Stdout, len(entries))
		select {} // until it is killed
	}))
}

// Messages whose settle fails are not acknowledged, and are delivered again as they were.
func testSettleFails(t *testing.T, b *broker) {
	q := b.open(t, "here")
	o := model.Offer{Sale: model.Sale{ID: model.NewSaleID()}}
	want, messages := map[string]model.Entry{}, make([]model.Entry, 20)
	for i := range messages {
		messages[i] = entry(o.ID, fmt.Sprint("u-", i), "key", i)
		want[messages[i].ID] = messages[i]
	}
	publish(t, q, o.ID, messages...)
	fails := func(context.Context, string, []model.Entry) error { return io.ErrUnexpectedEOF }
	check.Error(t, "the consumer", q.Consume(t.Context(), fails), io.ErrUnexpectedEOF)
	got := map[string]model.Entry{}
	consumeUntil(t, q, func(saleID string, entries []model.Entry) (ended bool) {
		for _, e := range entries {
			got[e.ID] = e
		}
		check.Same(t, "the sale", saleID, o.ID)
		return len(got) == len(want)
	})
	check.Same(t, "the delivered entries", got, want)
	b.nothingLeft(t, o)
}

// consumeUntil consumes until settled returns true for a batch. The batch is acknowledged. A consumer whose call of the broker
// was too late, because the machine stood still, ends, and the next one gets its messages again.
func consumeUntil(t *testing.T, q worker.Queue, settled func(saleID string, entries []model.Entry) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), check.Patience)
	defer cancel()
	for {
		ended := false
		consuming, end := context.WithCancel(ctx)
		err := q.Consume(consuming, func(_ context.Context, saleID string, entries []model.Entry) error {
			if ended = settled(saleID, entries); ended {
				end()
			}
			return nil
		})
		end()
		switch {
		case err == nil && ended:
			return
		case !late(err) || ctx.Err() != nil:
			t.Fatalf("the consumer ended with %v: %t", err, ended)
		}
	}
}

// late reports whether a call took longer than an instance waits for it.
func late(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}

// publish publishes entries, again if a call was too late. Then they may come twice.
func publish(t testing.TB, q worker.Queue, saleID string, entries ...model.Entry) {
	t.Helper()
	err := q.Publish(t.Context(), saleID, entries)
	for late(err) && t.Context().Err() == nil {
		err = q.Publish(t.Context(), saleID, entries)
	}
	check.NoError(t, err)
}

// Messages that nobody can read become dead letters, and delay no other message. A message that the broker delivers
// again may become a dead letter again.
func testUnreadable(t *testing.T, b *broker) {
	e := newEngine(t, b)
	o := e.Sale(100, 1)
	entries := e.unsettled(o, 10)
	bad := []string{`{"id": 1}`, "1 2 3", "nonsense", string([]byte{0, 255, '\n'})}
	e.publish(o, entries[:2]...)
	for i, message := range bad {
		b.send(t, message)
		e.publish(o, entries[2*i+2:2*i+4]...)
	}
	stop := e.Running(e.settler.Run)
	e.Settled(o, 10, 0)
	var dead []string
	check.Eventually(t, "the dead letters hold the bad ones", func() bool {
		dead = slices.Compact(slices.Sorted(slices.Values(b.dead(t))))
		return len(dead) >= len(bad)
	})
	slices.Sort(bad)
	check.Same(t, "the dead letters", dead, bad)
	if n := e.log.Count("dead letters"); n < len(bad) {
		t.Errorf("%d lines about %d dead letters", n, len(bad))
	}
	stop()
	b.nothingLeft(t, o)
}

// Messages of attempts that the stream does not have make no orders: those of another engine on the same broker, or from
// before a loss of Redis.
func testForeign(t *testing.T, b *broker) {
	e := newEngine(t, b)
	o, other := e.Sale(100, 1), model.Offer{Sale: model.Sale{ID: model.NewSaleID()}}
	lost := e.unsettled(o, 5)
	check.NoError(e, e.Client.Del(t.Context(), instance.StreamKey(o)).Err())
	e.publish(o, lost...)
	e.publish(other, entry(other.ID, "u-1", "key", 1))
	stop := e.Running(e.settler.Run)
	check.Eventually(t, "all are settled", func() bool {
		orders, _ := e.queue.settled()
		return orders == 6
	})
	stop()
	b.nothingLeft(t, o)
	books, _, err := e.DB.Books(t.Context(), o.ID)
	if err != nil || books.Orders[model.OrderPending]+books.Orders[model.OrderRejected] > 0 {
		t.Errorf("the orders are %v, %v", books.Orders, err)
	}
}

// Without its broker an instance starts and settles all the same. It uses the broker when the broker is there.
func testAwayAtTheStart(t *testing.T, b *broker) {
	b.down()
	e := newEngine(t, b)
	o := e.Sale(plenty, 1)
	e.Running(e.settler.Run)
	for i := range 20 {
		e.admit(attempt(o, fmt.Sprint("u-", i)))
	}
	e.Settled(o, 20, 0)
	if e.healthy() == nil {
		t.Error("a broker that is away is healthy")
	}
	check.Same(t, "lines about the failure", e.log.Count("queue fails"), 1)
	b.up()
	e.recovers(o, "then")
	if e.log.Count("the queue works again") == 0 {
		t.Error("the log does not tell that the queue works again")
	}
	check.Eventually(t, "the broker is healthy", func() bool { return e.healthy() == nil })
}

// An outage begins while messages are on their way: the broker is killed, and restarted with what it had on disk, or it
// accepts connections and answers nothing. All attempts are settled meanwhile, within a bounded time, and the broker is
// used again afterwards.
func testOutage(b *broker, begin, end func()) func(t *pace.Trial) {
	return func(t *pace.Trial) {
		e := newEngine(t, b)
		o := e.Sale(plenty, 1)
		e.Running(e.settler.Run)
		before := e.recovers(o, "before")
		half, all := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(all)
			for i := range 200 {
				if i == 100 {
					close(half)
				}
				e.admit(attempt(o, fmt.Sprint("u-", i)))
			}
		}()
		<-half
		begin()
		over := sync.OnceFunc(end)
		defer over()
		start := time.Now()
		<-all
		e.Settled(o, before+200, 0)
		if took := time.Since(start); took > 30*time.Second {
			t.Slowf("it took %s", took)
		}
		over()
		e.recovers(o, "after")
	}
}

// Neither a consumer nor a publisher leaves a goroutine behind.
func testLeavesNothingRunning(t *testing.T, b *broker) {
	leaks := goleak.IgnoreCurrent()
	q := b.open(t, "here")
	saleID := model.NewSaleID()
	publish(t, q, saleID, entry(saleID, "u-1", "key", 1))
	consumeUntil(t, q, func(string, []model.Entry) bool { return true })
	check.NoError(t, q.Close())
	// The fake broker of Kafka is in this process, and may still be closing its end of a connection.
	const fake = "github.com/twmb/franz-go/pkg/kfake.(*clientConn)."
	goleak.VerifyNone(t, leaks, goleak.IgnoreAnyFunction(fake+"read"), goleak.IgnoreAnyFunction(fake+"write"))
}
