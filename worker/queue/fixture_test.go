package queue

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
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

// plenty is the quota of a sale whose attempts go on until something has happened.
const plenty = 1_000_000

// watched is a queue that notes which orders' entries it has taken, which it has delivered, and which were settled then.
type watched struct {
	worker.Queue
	deaf bool // nothing is delivered

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
	if q.deaf {
		<-ctx.Done()
		return nil
	}
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

// countSettled is of how many orders the queue's messages were settled, and how many messages that were.
func (q *watched) countSettled() (orders, messages int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, n := range q.settled {
		messages += n
	}
	return len(q.settled), messages
}

// logbook keeps what was logged, a line each.
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
	line := r.Message
	r.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
	l.lines = append(l.lines, line)
	return nil
}

// holding are the lines with a text.
func (l *logbook) holding(text string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var lines []string
	for _, line := range l.lines {
		if strings.Contains(line, text) {
			lines = append(lines, line)
		}
	}
	return lines
}

// shop is a database and the gate's Redis.
type shop struct {
	testing.TB
	db    *repository.Store
	redis string
}

// newShop has a database of its own at an address; empty: an SQLite file.
func newShop(t testing.TB, address string) *shop {
	t.Helper()
	if address == "" {
		address = "sqlite:" + filepath.Join(t.TempDir(), "test.db")
	}
	db, err := repository.Open(t.Context(), address, 8)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if err := db.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &shop{TB: t, db: db, redis: kit.Redis(t).URL()}
}

// engine is what an instance admits and settles with.
type engine struct {
	*shop
	client  *redis.Client
	gate    *gate.Gate
	catalog *service.Catalog
	gates   *service.Gates
	settler *worker.Settler
	queue   *watched // nil: the stream alone
	log     *logbook
}

func (s *shop) engine(instance string, b *broker) *engine {
	s.Helper()
	opts, err := gate.Options(s.redis)
	if err != nil {
		s.Fatal(err)
	}
	e := &engine{shop: s, client: redis.NewClient(opts), log: &logbook{}}
	s.Cleanup(func() { _ = e.client.Close() })
	log := slog.New(e.log)
	e.gate = gate.New(e.client, instance)
	e.catalog = service.NewCatalog(s.db, time.Now)
	e.gates = service.NewGates(s.db, e.gate, e.catalog, log)
	needs := worker.SettlerNeeds{
		Stream: e.gate, Ledger: s.db, Outbox: e.gate, Peek: e.gate.Peek, LiveIDs: e.catalog.LiveIDs, Instance: instance,
		Wake: func(map[string]model.Outcome) {}, Observe: func(int, time.Duration) {}, Now: time.Now, Log: log,
	}
	if b != nil {
		e.queue = watch(openAt(s.TB, b.kind, b.address, instance, log))
		needs.Queue = e.queue
	}
	e.settler = worker.NewSettler(needs)
	e.refresh()
	return e
}

func (e *engine) refresh() {
	e.Helper()
	if err := e.catalog.Refresh(e.Context()); err != nil {
		e.Fatal(err)
	}
}

// running runs the settler until the function that it gives is called, or the test ends.
func (e *engine) running() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var settler sync.WaitGroup
	settler.Go(func() { e.settler.Run(ctx) })
	stop = sync.OnceFunc(func() { cancel(); settler.Wait() })
	e.Cleanup(stop)
	return stop
}

// sale opens a sale of so many units with its gate.
func (e *engine) sale(quota int64) model.Offer {
	e.Helper()
	now := time.Now()
	sale := model.Sale{
		ID: model.NewSaleID(), Title: "a sale", PriceCents: 100, Currency: "CNY", LimitPerUser: 1, PayTimeoutSeconds: 600,
		StartsAt: now.Add(-time.Hour), EndsAt: now.Add(time.Hour), Status: model.SaleLive, Revision: 1,
	}
	sale.Code = sale.ID[:8]
	if err := e.db.CreateSale(e.Context(), sale, quota, "tester"); err != nil {
		e.Fatal(err)
	}
	if err := e.gates.Preheat(e.Context(), sale.ID); err != nil {
		e.Fatal(err)
	}
	e.refresh()
	return model.Offer{Sale: sale}
}

func attempt(o model.Offer, user string) model.Attempt { return entry(o.ID, user, "key", 0).Attempt }

// admit sends an attempt through the gate, which has to let it in, and tells the settler.
func (e *engine) admit(a model.Attempt) {
	e.Helper()
	var got []model.Outcome
	eventually(e, "the gate answers, whose Redis may be too slow on a busy machine", func() (ok bool) {
		var err error
		got, err = e.gate.Admit(e.Context(), a.SaleID, []model.Attempt{a}, 0)
		return err == nil
	})
	if got[0].Verdict != model.Accepted {
		e.Errorf("admit: %+v", got)
	}
	e.settler.Notify(a.SaleID)
}

// admitted gives entries of so many buyers that an instance has taken from the stream and not settled.
func (e *engine) admitted(o model.Offer, n int) []model.Entry {
	e.Helper()
	for i := range n {
		e.admit(attempt(o, fmt.Sprint("u-", i)))
	}
	entries, _, err := gate.New(e.client, "dead").Read(e.Context(), o.ID, n)
	if err != nil || len(entries) != n {
		e.Fatalf("%d entries of %d, %v", len(entries), n, err)
	}
	return entries
}

// publish sends entries one by one.
func (e *engine) publish(o model.Offer, entries ...model.Entry) {
	e.Helper()
	for _, entry := range entries {
		if err := e.queue.Queue.Publish(e.Context(), o.ID, []model.Entry{entry}); err != nil {
			e.Fatal(err)
		}
	}
}

// healthy is what /readyz asks, which waits no longer.
func (e *engine) healthy() error {
	ctx, cancel := context.WithTimeout(e.Context(), time.Second)
	defer cancel()
	return e.settler.QueueHealthy(ctx)
}

func streamKey(o model.Offer) string { return "fs:{" + o.ID + "}:stream" }

func (e *engine) peek(o model.Offer) model.GateState {
	e.Helper()
	states, err := e.gate.Peek(e.Context(), o.ID)
	if err != nil {
		e.Fatal(err)
	}
	return states[0]
}

func (e *engine) orders(o model.Offer) int64 {
	e.Helper()
	books, ok, err := e.db.Books(e.Context(), o.ID)
	if err != nil || !ok {
		e.Fatalf("the books: %t, %v", ok, err)
	}
	if v := books.Violations(); len(v) > 0 {
		e.Errorf("the books don't balance: %v", v)
	}
	if n := books.Orders[model.OrderRejected]; n != 0 {
		e.Errorf("%d attempts were refused", n)
	}
	return books.Orders[model.OrderPending]
}

// settled waits until a sale's stream is empty. There must be so many orders, none refused, and gate and database agree.
func (e *engine) settled(o model.Offer, orders int64) {
	e.Helper()
	eventually(e.TB, "the stream is empty", func() bool { return e.peek(o).Stream == 0 })
	if n := e.orders(o); n != orders {
		e.Errorf("%d orders, want %d", n, orders)
	}
	stock, _, err := e.db.Books(e.Context(), o.ID)
	if state := e.peek(o); err != nil || state.Inflight != 0 || state.Left != stock.Stock.Available {
		e.Errorf("the gate is %+v, the stock %+v, %v", state, stock.Stock, err)
	}
}

// recovers admits one attempt after the other until one comes by the queue.
func (e *engine) recovers(o model.Offer, users string) {
	e.Helper()
	i := 0
	eventually(e.TB, "an attempt comes by the queue", func() bool {
		a := attempt(o, fmt.Sprint(users, "-", i))
		i++
		e.admit(a)
		eventually(e.TB, "it is settled", func() bool {
			_, ok, err := e.db.Order(e.Context(), a.ID)
			return err == nil && ok
		})
		return e.queue.brought(a.ID)
	})
	eventually(e.TB, "the stream is empty", func() bool { return e.peek(o).Stream == 0 })
}

// nothingLeft makes sure that no message of a sale is left to be delivered, now that nobody consumes: one more is sent,
// and it is the only one that comes. A broker that has missed an acknowledgement may deliver again what was settled, but
// not what is acknowledged here.
func (b *broker) nothingLeft(t *testing.T, o model.Offer) {
	t.Helper()
	q := b.open(t, "last")
	got := b.upTo(t, q, entry(o.ID, "last", "key", 0))
	for try := 1; len(got) > 1 && try < 3; try++ {
		got = b.upTo(t, q, entry(o.ID, "last", "key", try))
	}
	if len(got) != 1 {
		t.Errorf("after the last acknowledgement came %d messages", len(got))
	}
}

// upTo sends one more message and consumes until it comes.
func (b *broker) upTo(t *testing.T, q worker.Queue, last model.Entry) (got []model.Entry) {
	t.Helper()
	if err := q.Publish(t.Context(), last.SaleID, []model.Entry{last}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := q.Consume(ctx, func(_ context.Context, _ string, entries []model.Entry) error {
		got = append(got, entries...)
		if slices.Contains(entries, last) {
			cancel()
		}
		return nil
	})
	if err != nil || !slices.Contains(got, last) {
		t.Fatalf("the last message is not among %d, %v", len(got), err)
	}
	return got
}

// eventually waits until check is content: for what nothing announces.
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
