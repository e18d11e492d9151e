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

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"flashsale/gate"
	"flashsale/model"
	"flashsale/test/kit"
	"flashsale/worker"
)

func TestMain(m *testing.M) {
	logging.Disable() // every error is returned, and some are meant to happen
	kit.Main(m)
}

// patience bounds each wait for an event that has to come: far above a Kafka session and a broker's start, also on a
// busy machine.
const patience = 2 * time.Minute

// broker is one kind of queue, and what a test may do to it.
type broker struct {
	kind, address string // what openAt needs
	send          func(t *testing.T, message string)
	dead          func(t *testing.T) []string // all dead letters
	down, up      func()                      // killed, and started again with what is on disk
	freeze, thaw  func()                      // it takes connections and answers nothing meanwhile
}

// openAt gives the queue of one instance.
func openAt(t testing.TB, kind, address, instance string, log *slog.Logger) (q worker.Queue) {
	t.Helper()
	address, name, _ := strings.Cut(address, "#")
	switch kind {
	case "redis-list":
		opts, err := gate.Options(address)
		if err != nil {
			t.Fatal(err)
		}
		client := redis.NewClient(opts)
		t.Cleanup(func() { _ = client.Close() })
		return NewRedisList(client, instance, log)
	case "rabbitmq":
		rabbit := NewRabbitMQ(address, log)
		rabbit.name = name
		q = rabbit
	case "kafka":
		kafka, err := NewKafka([]string{address}, instance, log)
		if err != nil {
			t.Fatal(err)
		}
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

// TestQueues holds every broker to the same promises. The tests mostly wait, so they run side by side, except those of
// RabbitMQ, which share a server that some of them kill. The test that counts goroutines runs before all others.
func TestQueues(t *testing.T) {
	kinds := map[string]func(testing.TB) *broker{"redis-list": startRedisList(t), "rabbitmq": startRabbitMQ(t), "kafka": startKafka(t)}
	for kind, fresh := range kinds {
		t.Run(kind+" leaves nothing running", func(t *testing.T) { testLeavesNothingRunning(t, fresh(t)) })
	}
	for kind, fresh := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for name, test := range map[string]func(*testing.T, *broker){
				"a rush":                    testRush,
				"any order, any number":     testAnyOrderAnyNumber,
				"a killed consumer":         testKilledConsumer,
				"a settle that fails":       testSettleFails,
				"unreadable messages":       testUnreadable,
				"away at the start":         testAwayAtTheStart,
				"away in mid-rush":          testAwayInMidRush,
				"hangs":                     testHangs,
				"settled at the stop":       testStop,
				"messages of other engines": testForeign,
			} {
				t.Run(name, func(t *testing.T) {
					if kind != "rabbitmq" {
						t.Parallel()
					}
					test(t, fresh(t))
				})
			}
		})
	}
}

// testRush: two instances admit on two sales, and each settles what the broker brings it. Every attempt becomes one
// order, and whatever the broker took it has brought.
func testRush(t *testing.T, b *broker) {
	s := newShop(t, kit.SharedMariaDB(t).NewDatabase(t))
	here, there := s.engine("here", b), s.engine("there", b)
	sales, warm := []model.Offer{here.sale(200), here.sale(100)}, here.sale(100_000)
	there.refresh()
	stop := []func(){here.running(), there.running()}
	tries := 0
	eventually(t, "a broker that has just started is quick enough to be used", func() bool {
		tries++
		here.admit(attempt(warm, fmt.Sprint("warm-", tries)))
		return len(here.queue.took()) > 0
	})
	var all sync.WaitGroup
	for i := range 300 {
		all.Go(func() { []*engine{here, there}[i%2].admit(attempt(sales[min(i%3, 1)^1], fmt.Sprint("u-", i))) })
	}
	all.Wait()
	here.settled(sales[0], 200)
	here.settled(sales[1], 100)
	taken := here.queue.took()
	maps.Copy(taken, there.queue.took())
	if len(taken) == 0 {
		t.Error("nothing went by the queue")
	}
	eventually(t, "what was published is delivered", func() bool {
		for id := range taken {
			if !here.queue.brought(id) && !there.queue.brought(id) {
				return false
			}
		}
		return true
	})
	for _, end := range stop {
		end()
	}
	for _, o := range sales {
		b.nothingLeft(t, o)
	}
}

// testAnyOrderAnyNumber: messages that come twice and three times, in any order, one by one, make one order each.
func testAnyOrderAnyNumber(t *testing.T, b *broker) {
	e := newShop(t, "").engine("here", b)
	o := e.sale(100)
	entries := e.admitted(o, 30)
	entries = slices.Concat(entries, entries, entries[:15])
	rand.Shuffle(len(entries), func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
	e.publish(o, entries...)
	stop := e.running()
	e.settled(o, 30)
	eventually(t, "all messages are settled", func() bool {
		_, messages := e.queue.countSettled()
		return messages >= len(entries)
	})
	stop()
	b.nothingLeft(t, o)
	e.settled(o, 30)
}

// asChild makes a test of this binary, run again as a child, play a consumer that is killed: kind and address.
const asChild = "QUEUE_AS_CHILD"

// testKilledConsumer: a process takes messages and is killed before it has settled them. The broker brings them to the
// next one.
func testKilledConsumer(t *testing.T, b *broker) {
	e := newShop(t, "").engine("here", b)
	o := e.sale(100)
	e.publish(o, e.admitted(o, 50)...)
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAsChild$")
	child.Env = append(os.Environ(), asChild+"="+b.kind+" "+b.address)
	child.Stderr = os.Stderr
	stdout, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("the child took %q, %v", line, err)
	}
	_ = child.Process.Kill()
	_ = child.Wait() // it was killed
	stop := e.running()
	e.settled(o, 50)
	eventually(t, "the broker brings what the dead consumer had", func() bool {
		orders, _ := e.queue.countSettled()
		return orders == 50
	})
	stop()
	b.nothingLeft(t, o)
	e.settled(o, 50)
}

// TestAsChild is the process of testKilledConsumer; by itself it does nothing.
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

// testSettleFails: what was not settled is not acknowledged, and comes again.
func testSettleFails(t *testing.T, b *broker) {
	q := b.open(t, "here")
	o := model.Offer{Sale: model.Sale{ID: model.NewSaleID()}}
	want := make([]model.Entry, 20)
	for i := range want {
		want[i] = entry(o.ID, fmt.Sprint("u-", i), "key", i)
	}
	if err := q.Publish(t.Context(), o.ID, want); err != nil {
		t.Fatal(err)
	}
	fails := func(context.Context, string, []model.Entry) error { return io.ErrUnexpectedEOF }
	if err := q.Consume(t.Context(), fails); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("it ended with %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	got := map[string]model.Entry{}
	if err := q.Consume(ctx, func(_ context.Context, saleID string, entries []model.Entry) error {
		for _, e := range entries {
			got[e.ID] = e
		}
		if len(got) == len(want) {
			cancel()
		}
		if saleID != o.ID {
			t.Errorf("entries of %s", saleID)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, e := range want {
		if got[e.ID] != e {
			t.Errorf("%+v came as %+v", e, got[e.ID])
		}
	}
	b.nothingLeft(t, o)
}

// testUnreadable: what nobody can read goes to the dead letters, and holds up nothing. What the broker delivers again
// becomes a dead letter again.
func testUnreadable(t *testing.T, b *broker) {
	e := newShop(t, "").engine("here", b)
	o := e.sale(100)
	entries := e.admitted(o, 10)
	bad := []string{`{"id": 1}`, "1 2 3", "nonsense", string([]byte{0, 255, '\n'})}
	e.publish(o, entries[:2]...)
	for i, message := range bad {
		b.send(t, message)
		e.publish(o, entries[2*i+2:2*i+4]...)
	}
	stop := e.running()
	e.settled(o, 10)
	var dead []string
	eventually(t, "the dead letters hold the bad ones", func() bool {
		dead = slices.Compact(slices.Sorted(slices.Values(b.dead(t))))
		return len(dead) >= len(bad)
	})
	slices.Sort(bad)
	if !slices.Equal(dead, bad) {
		t.Errorf("the dead letters are %q, want %q", dead, bad)
	}
	if lines := e.log.holding("dead letters"); len(lines) < len(bad) {
		t.Errorf("the log says %q", lines)
	}
	stop()
	b.nothingLeft(t, o)
}

// testForeign: messages of attempts that the stream does not have, as of another engine on the same broker, or of before
// a loss of Redis, make no orders.
func testForeign(t *testing.T, b *broker) {
	e := newShop(t, "").engine("here", b)
	o, other := e.sale(100), model.Offer{Sale: model.Sale{ID: model.NewSaleID()}}
	lost := e.admitted(o, 5)
	if err := e.client.Del(t.Context(), streamKey(o)).Err(); err != nil {
		t.Fatal(err)
	}
	e.publish(o, lost...)
	e.publish(other, entry(other.ID, "u-1", "key", 1))
	stop := e.running()
	eventually(t, "all are settled", func() bool {
		orders, _ := e.queue.countSettled()
		return orders == 6
	})
	stop()
	b.nothingLeft(t, o)
	if n := e.orders(o); n != 0 {
		t.Errorf("%d orders", n)
	}
}

// testAwayAtTheStart: without its broker an instance starts, settles all the same, and uses the broker once it is there.
func testAwayAtTheStart(t *testing.T, b *broker) {
	b.down()
	e := newShop(t, "").engine("here", b)
	o := e.sale(plenty)
	e.running()
	for i := range 20 {
		e.admit(attempt(o, fmt.Sprint("u-", i)))
	}
	e.settled(o, 20)
	if err := e.healthy(); err == nil {
		t.Error("a broker that is away is healthy")
	}
	if lines := e.log.holding("queue fails"); len(lines) != 1 {
		t.Errorf("the log says %q", lines)
	}
	b.up()
	e.recovers(o, "then")
	if lines := e.log.holding("queue works again"); len(lines) == 0 {
		t.Error("nothing tells of its return")
	}
	eventually(t, "the broker is healthy", func() bool { return e.healthy() == nil })
}

// testAwayInMidRush: the broker is killed while messages are on their way, and comes back with what it had on disk.
func testAwayInMidRush(t *testing.T, b *broker) {
	e := newShop(t, "").engine("here", b)
	o := e.sale(plenty)
	e.running()
	e.recovers(o, "before")
	before := e.orders(o)
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
	b.down()
	<-all
	e.settled(o, before+200)
	b.up()
	e.recovers(o, "after")
}

// testHangs: a broker that takes connections and answers nothing holds an attempt up for a bounded time.
func testHangs(t *testing.T, b *broker) {
	e := newShop(t, "").engine("here", b)
	o := e.sale(plenty)
	e.running()
	e.recovers(o, "before")
	before := e.orders(o)
	b.freeze()
	thaw := sync.OnceFunc(b.thaw)
	defer thaw()
	start := time.Now()
	for i := range 20 {
		e.admit(attempt(o, fmt.Sprint("u-", i)))
	}
	e.settled(o, before+20)
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("it took %s", took)
	}
	thaw()
	e.recovers(o, "after")
}

// testStop: what was published and not delivered is settled at the stop, without the broker.
func testStop(t *testing.T, b *broker) {
	e := newShop(t, "").engine("here", b)
	o := e.sale(plenty)
	e.queue.deaf = true
	e.running()
	admitted := int64(0)
	eventually(t, "twenty are published", func() bool { // a broker that is slow at first is passed by
		e.admit(attempt(o, fmt.Sprint("u-", admitted)))
		admitted++
		return len(e.queue.took()) >= 20
	})
	if err := e.settler.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := e.peek(o).Stream; n != 0 {
		t.Errorf("%d entries are left", n)
	}
	e.settled(o, admitted)
}

// testLeavesNothingRunning: neither a consumer nor a publisher outlives its end.
func testLeavesNothingRunning(t *testing.T, b *broker) {
	leaks := goleak.IgnoreCurrent()
	q := b.open(t, "here")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	saleID := model.NewSaleID()
	if err := q.Publish(ctx, saleID, []model.Entry{entry(saleID, "u-1", "key", 1)}); err != nil {
		t.Fatal(err)
	}
	if err := q.Consume(ctx, func(context.Context, string, []model.Entry) error { cancel(); return nil }); err != nil {
		t.Fatal(err)
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	goleak.VerifyNone(t, leaks)
}
