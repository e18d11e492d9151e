package queue

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"flashsale/gate"
	"flashsale/model"
	"flashsale/repository"
	"flashsale/service"
	"flashsale/test/kit"
	"flashsale/worker"
)

// plenty is the quota of a sale whose attempts go on until an event.
const plenty = 1_000_000

// watched is a queue that records which entries were published, which were delivered, and which were settled then, by
// order.
type watched struct {
	worker.Queue
	mu                   sync.Mutex
	published, delivered map[string]bool
	settled              map[string]int // how often
}

func watch(q worker.Queue) *watched {
	return &watched{Queue: q, published: map[string]bool{}, delivered: map[string]bool{}, settled: map[string]int{}}
}

func (q *watched) note(in map[string]bool, entries []model.Entry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range entries {
		in[e.ID] = true
	}
}

func (q *watched) Publish(ctx context.Context, saleID string, entries []model.Entry) error {
	err := q.Queue.Publish(ctx, saleID, entries)
	if err == nil {
		q.note(q.published, entries)
	}
	return err
}

func (q *watched) Consume(ctx context.Context, settle settleFunc) error {
	return q.Queue.Consume(ctx, func(ctx context.Context, saleID string, entries []model.Entry) error {
		q.note(q.delivered, entries)
		err := settle(ctx, saleID, entries)
		if err == nil {
			q.mu.Lock()
			defer q.mu.Unlock()
			for _, e := range entries {
				q.settled[e.ID]++
			}
		}
		return err
	})
}

func (q *watched) brought(orderID string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.delivered[orderID]
}

func (q *watched) took() map[string]bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return maps.Clone(q.published)
}

// countSettled returns how many messages of the queue were settled, and of how many orders.
func (q *watched) countSettled() (orders, messages int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, n := range q.settled {
		messages += n
	}
	return len(q.settled), messages
}

// logbook keeps each logged line.
type logbook struct {
	mu    sync.Mutex
	lines []string
}

func (*logbook) Enabled(context.Context, slog.Level) bool { return true }
func (l *logbook) WithAttrs([]slog.Attr) slog.Handler     { return l }
func (l *logbook) WithGroup(string) slog.Handler          { return l }

func (l *logbook) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, r.Message)
	return nil
}

// count returns how many lines contain a text.
func (l *logbook) count(text string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// shop is a database and the gate's Redis.
type shop struct {
	testing.TB
	db    *repository.Store
	redis string
}

// newShop migrates the database at an address.
func newShop(t testing.TB, address string) *shop {
	t.Helper()
	db, err := repository.Open(t.Context(), address, 8)
	check(t, err)
	t.Cleanup(func() { _ = db.Close() })
	s := &shop{TB: t, db: db, redis: kit.Redis(t).URL()}
	check(s, db.MigrateUp(t.Context()))
	return s
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// engine is what an instance admits and settles with.
type engine struct {
	*shop
	client  *redis.Client
	gate    *gate.Gate
	catalog *service.Catalog
	gates   *service.Gates
	settler *worker.Settler
	queue   *watched
	log     *logbook
}

// newEngine is an instance on a SQLite file.
func newEngine(t testing.TB, b *broker) *engine {
	t.Helper()
	return newShop(t, kit.SQLite(t)).engine("here", b)
}

func (s *shop) engine(instance string, b *broker) *engine {
	s.Helper()
	opts, err := gate.Options(s.redis)
	check(s, err)
	e := &engine{shop: s, client: redis.NewClient(opts), log: &logbook{}}
	s.Cleanup(func() { _ = e.client.Close() })
	log := slog.New(e.log)
	e.gate = gate.New(e.client, instance)
	e.catalog = service.NewCatalog(s.db, time.Now)
	e.gates = service.NewGates(s.db, e.gate, e.catalog, log)
	e.queue = watch(openAt(s.TB, b.kind, b.address, instance, log))
	e.settler = worker.NewSettler(worker.SettlerNeeds{
		Stream: e.gate, Ledger: s.db, Outbox: e.gate, Peek: e.gate.Peek, Live: e.catalog.LiveGates, Instance: instance, Queue: e.queue,
		Wake: func(map[string]model.Outcome) {}, Now: time.Now, Log: log,
	})
	check(s, e.catalog.Refresh(e.Context()))
	return e
}

// running runs the settler until the returned function is called, or the test ends.
func (e *engine) running() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var settler sync.WaitGroup
	settler.Go(func() { e.settler.Run(ctx) })
	stop = sync.OnceFunc(func() { cancel(); settler.Wait() })
	e.Cleanup(stop)
	return stop
}

// sale opens a sale with its gate.
func (e *engine) sale(quota int64) model.Offer {
	e.Helper()
	now := time.Now()
	sale := model.Sale{
		ID: model.NewSaleID(), Title: "a sale", PriceCents: 100, Currency: "CNY", LimitPerUser: 1, PayTimeoutSeconds: 600,
		StartsAt: now.Add(-time.Hour), EndsAt: now.Add(time.Hour), Status: model.SaleLive, Revision: 1,
	}
	sale.Code = sale.ID[:8]
	check(e, e.db.CreateSale(e.Context(), sale, quota, "tester"))
	check(e, e.gates.Preheat(e.Context(), sale.ID))
	check(e, e.catalog.Refresh(e.Context()))
	return model.Offer{Sale: sale}
}

func attempt(o model.Offer, user string) model.Attempt { return entry(o.ID, user, "key", 0).Attempt }

// admit sends an attempt through the gate, which must admit it, and notifies the settler.
func (e *engine) admit(a model.Attempt) {
	e.Helper()
	var got []model.Outcome
	eventually(e, "the gate answers; its Redis may be slow on a busy machine", func() (ok bool) {
		var err error
		got, err = e.gate.Admit(e.Context(), a.GateRef(), []model.Attempt{a}, 0)
		return err == nil
	})
	if got[0].Verdict != model.Accepted {
		e.Errorf("admit: %+v", got)
	}
	e.settler.Notify(a.GateRef())
}

// admitted returns entries of n buyers that another consumer has read from the stream and not settled.
func (e *engine) admitted(o model.Offer, n int) []model.Entry {
	e.Helper()
	for i := range n {
		e.admit(attempt(o, fmt.Sprint("u-", i)))
	}
	entries, _, err := gate.New(e.client, "dead").Read(e.Context(), o.GateRef(), n)
	if err != nil || len(entries) != n {
		e.Fatalf("%d entries of %d, %v", len(entries), n, err)
	}
	return entries
}

// publish sends entries one by one.
func (e *engine) publish(o model.Offer, entries ...model.Entry) {
	e.Helper()
	for _, entry := range entries {
		check(e, e.queue.Queue.Publish(e.Context(), o.ID, []model.Entry{entry}))
	}
}

// healthy asks as /readyz does, and waits no longer.
func (e *engine) healthy() error {
	ctx, cancel := context.WithTimeout(e.Context(), time.Second)
	defer cancel()
	return e.settler.QueueHealthy(ctx)
}

func streamKey(o model.Offer) string { return "fs:{" + o.ID + "}:stream" }

func (e *engine) peek(o model.Offer) model.GateState {
	e.Helper()
	states, err := e.gate.Peek(e.Context(), o.GateRef())
	check(e, err)
	return states[0]
}

// settled waits until a sale's stream is empty. It checks the books, the number of orders, that no attempt was refused,
// and that the gate and the database agree.
func (e *engine) settled(o model.Offer, orders int64) {
	e.Helper()
	eventually(e, "the stream is empty", func() bool { return e.peek(o).Stream == 0 })
	books, ok, err := e.db.Books(e.Context(), o.ID)
	if v := books.Violations(); err != nil || !ok || len(v) > 0 {
		e.Fatalf("the books: %t, %v, %v", ok, err, v)
	}
	if made, refused := books.Orders[model.OrderPending], books.Orders[model.OrderRejected]; made != orders || refused != 0 {
		e.Errorf("%d orders, want %d; %d attempts were refused", made, orders, refused)
	}
	if state := e.peek(o); state.Inflight != 0 || state.Left != books.Stock.Available {
		e.Errorf("the gate is %+v, the stock %+v", state, books.Stock)
	}
}

// recovers admits one attempt after the other, until one comes by the queue. It returns how many it has admitted.
func (e *engine) recovers(o model.Offer, users string) (admitted int64) {
	e.Helper()
	eventually(e, "an attempt comes by the queue", func() bool {
		a := attempt(o, fmt.Sprint(users, "-", admitted))
		admitted++
		e.admit(a)
		eventually(e, "the attempt is settled", func() bool {
			_, ok, err := e.db.Order(e.Context(), a.ID)
			return err == nil && ok
		})
		return e.queue.brought(a.ID)
	})
	eventually(e, "the stream is empty", func() bool { return e.peek(o).Stream == 0 })
	return admitted
}

// nothingLeft checks, while nobody consumes, that no message of a sale is left: one more message is published, and must
// be the only one that is delivered. A broker that has missed an acknowledgement may deliver settled messages again, but
// not those that are acknowledged here.
func (b *broker) nothingLeft(t *testing.T, o model.Offer) {
	t.Helper()
	q := b.open(t, "last")
	got := b.upTo(t, q, entry(o.ID, "last", "key", 0))
	for try := 1; len(got) > 1 && try < 3; try++ {
		got = b.upTo(t, q, entry(o.ID, "last", "key", try))
	}
	if len(got) != 1 {
		t.Errorf("%d messages are delivered after the last acknowledgement", len(got))
	}
}

// upTo publishes one more message and consumes until it is delivered.
func (b *broker) upTo(t *testing.T, q worker.Queue, last model.Entry) (got []model.Entry) {
	t.Helper()
	check(t, q.Publish(t.Context(), last.SaleID, []model.Entry{last}))
	consumeUntil(t, q, func(_ string, entries []model.Entry) bool {
		got = append(got, entries...)
		return slices.Contains(entries, last)
	})
	return got
}

// eventually polls until check returns true.
func eventually(t testing.TB, what string, check func() bool) {
	t.Helper()
	deadline := time.After(patience)
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for !check() {
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("%s: not within %s", what, patience)
		}
	}
}
