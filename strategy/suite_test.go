package strategy

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"flashsale/gate"
	"flashsale/internal/embedded"
	"flashsale/model"
	"flashsale/repository"
	"flashsale/service"
	"flashsale/test/kit"
	"flashsale/worker"
)

func TestMain(m *testing.M) {
	logging.Disable() // every error is returned, and some are meant to happen
	kit.Main(m)
}

const (
	// patience bounds each wait for an event that has to come.
	patience = time.Minute
	// longWait is a buyer's who waits until the order is settled.
	longWait = 10 * time.Second
)

// stores are a database and a Redis, as a server would have them.
type stores struct {
	*testing.T
	db       *repository.Store
	raw      *sql.DB // the test's own way into the database
	redisURL string
	parts    int // of the gates of its sales; 0: one
	killRedis,
	restartRedis func() // nil: it can't come back
}

// eachPair runs a test on both pairs of stores that servers run on, side by side.
func eachPair(t *testing.T, run func(s *stores)) {
	t.Helper()
	t.Run("SQLite and embedded Redis", func(t *testing.T) {
		t.Parallel()
		s := newStores(t, sqlite(t))
		server, err := embedded.StartRedis()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.Close)
		s.redisURL, s.killRedis = server.URL(), server.Close
		run(s)
	})
	t.Run("MariaDB and redis-server", func(t *testing.T) {
		t.Parallel()
		run(withServer(t, mariadb(t)))
	})
}

// withServer adds a redis-server, which can be killed and restarted.
func withServer(t *testing.T, address string) *stores {
	t.Helper()
	s := newStores(t, address)
	server := kit.Redis(t)
	s.redisURL, s.killRedis, s.restartRedis = server.URL(), server.Kill, server.Restart
	return s
}

func sqlite(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "test.db") }

func mariadb(t *testing.T) string { return kit.SharedMariaDB(t).NewDatabase(t) }

func newStores(t *testing.T, address string) *stores {
	t.Helper()
	db, err := repository.Open(t.Context(), address, 32)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if err := db.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	raw, err := openRaw(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = raw.Close() })
	return &stores{T: t, db: db, raw: raw}
}

func openRaw(address string) (*sql.DB, error) {
	if path, ok := strings.CutPrefix(address, "sqlite:"); ok {
		return sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)")
	}
	address = strings.Replace(strings.TrimPrefix(address, "mysql://"), "@", "@tcp(", 1)
	cfg, err := mysqldriver.ParseDSN(strings.Replace(address, "/", ")/", 1))
	if err != nil {
		return nil, err
	}
	connector, err := mysqldriver.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// forgetRebuild makes the last rebuild of a sale's gate look as if it were long ago.
func (s *stores) forgetRebuild(saleID string) {
	s.Helper()
	if _, err := s.raw.ExecContext(s.Context(), "UPDATE stock SET epoch_at_ms = 0 WHERE sale_id = ?", saleID); err != nil {
		s.Fatal(err)
	}
}

// books reads a sale's sums, which must add up.
func (s *stores) books(saleID string) model.Books {
	s.Helper()
	books, ok, err := s.db.Books(context.WithoutCancel(s.Context()), saleID)
	if err != nil || !ok {
		s.Fatalf("the books of %s: found %t, %v", saleID, ok, err)
	}
	if v := books.Violations(); len(v) > 0 {
		s.Errorf("the books don't balance: %v", v)
	}
	return books
}

var discard = slog.New(slog.DiscardHandler)

// orderIDs are one key for all engines of a test, as in one database.
var orderIDs = model.NewOrderIDs([]byte("a key for tests"))

// engine is one instance, put together as the app does it, but for HTTP.
type engine struct {
	*stores
	name      string
	gate      *gate.Gate
	client    *redis.Client
	catalog   *service.Catalog
	gates     *service.Gates
	strategy  Strategy
	settler   *worker.Settler
	waiters   *service.Waiters
	purchases *service.Purchases
	orders    *service.Orders
	sales     *service.Sales
	changed   chan struct{}
	keys      int
	mu        sync.Mutex
}

// engine makes an instance of a strategy; change, if any, replaces what the strategy is made of.
func (s *stores) engine(strategyName string, change ...func(*Needs)) *engine {
	s.Helper()
	opts, err := gate.Options(s.redisURL)
	if err != nil {
		s.Fatal(err)
	}
	e := &engine{stores: s, name: strategyName, client: redis.NewClient(opts), changed: make(chan struct{}, 1)}
	s.Cleanup(func() { _ = e.client.Close() })
	instance := strings.ToLower(model.NewSaleID())
	log := discard
	e.catalog = service.NewCatalog(s.db, time.Now)
	e.gate = gate.New(e.client, instance, func(ctx context.Context, saleID string) (int, error) {
		offer, _, err := e.catalog.Sale(ctx, saleID)
		return offer.Parts, err
	})
	e.gates = service.NewGates(s.db, e.gate, e.catalog, log)
	e.waiters = service.NewWaiters()
	needs := Needs{
		Gate: e.gate, Database: s.db, Control: e.gates, Log: log, Retried: func() {}, Now: time.Now,
		Lock: make(chan struct{}, 1), LocalShare: 0.5, LocalBuffer: 4,
	}
	for _, f := range change {
		f(&needs)
	}
	db := s.db
	if strategyName == "mutex" {
		db = db.Exclusive(needs.Lock)
	}
	if e.strategy, err = New(strategyName, needs); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(e.strategy.Close)
	if !e.strategy.UsesGate() {
		e.gates.Retire()
	}
	e.settler = worker.NewSettler(worker.SettlerNeeds{
		Stream: e.gate, Outbox: e.gate, Ledger: db, Peek: e.gate.Peek, LiveIDs: e.catalog.LiveIDs, Instance: instance,
		Wake: e.waiters.WakeAll, Observe: func(int, time.Duration) {}, Now: time.Now, Log: log,
	})
	e.purchases = &service.Purchases{
		Catalog: e.catalog, IDs: orderIDs, Strategy: e.strategy, Orders: s.db, Waiters: e.waiters,
		Queued: e.settler.Notify, Meter: noMeter{}, Now: time.Now, AckWait: longWait,
	}
	e.orders = &service.Orders{Desk: db, Ledger: db, IDs: orderIDs, Catalog: e.catalog, Gate: e.gate, Gates: e.gates}
	e.sales = &service.Sales{Store: db, Gate: e.gate, Gates: e.gates, Catalog: e.catalog, Log: log}
	if err := e.catalog.Refresh(s.Context()); err != nil {
		s.Fatal(err)
	}
	if err := e.gates.Ensure(s.Context()); err != nil {
		s.Fatal(err)
	}
	return e
}

type noMeter struct{}

func (noMeter) Stage(string, time.Duration) {}
func (noMeter) Verdict(model.Verdict)       {}

// run starts what runs beside the requests: it ends with the test.
func (e *engine) run() *engine {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	controller := &worker.Controller{
		Catalog: e.catalog, Gates: e.gates, Changed: e.changed, Log: discard,
		Report: func(context.Context) error { return nil },
	}
	running.Go(func() { e.settler.Run(ctx) })
	running.Go(func() { controller.Run(ctx) })
	running.Go(func() {
		e.gate.Listen(ctx, func(string) {
			select {
			case e.changed <- struct{}{}:
			default:
			}
		}, e.waiters.Look)
	})
	e.Cleanup(func() { cancel(); running.Wait() })
	return e
}

// sale opens a sale.
func (e *engine) sale(quota int64, limit int) model.Offer {
	e.Helper()
	now := time.Now()
	offer, invalid, err := e.sales.Create(e.Context(), model.Sale{
		Title: "a sale", PriceCents: 100, Currency: "CNY", LimitPerUser: limit, PayTimeoutSeconds: 600,
		StartsAt: now.Add(-time.Hour), EndsAt: now.Add(time.Hour), Parts: max(e.parts, 1),
	}, quota, "tester")
	if err != nil || invalid != nil {
		e.Fatalf("make a sale: %+v, %v", invalid, err)
	}
	return offer
}

// attempt is a user's wish under a request key of its own, made with the ids that the server makes.
func (e *engine) attempt(o model.Offer, user string, n int) model.Attempt {
	e.mu.Lock()
	e.keys++
	key := fmt.Sprint("key-", e.keys)
	e.mu.Unlock()
	return attempt(o, user, n, key)
}

func attempt(o model.Offer, user string, n int, key string) model.Attempt {
	return model.Attempt{
		ID: orderIDs.Derive(user, o.ID, key), SaleID: o.ID, UserID: user, Quantity: n,
		RequestKey: key, RequestHash: model.HashRequest(n),
	}
}

// deduct runs the strategy, which has to answer.
func (e *engine) deduct(a model.Attempt) model.Outcome {
	e.Helper()
	outcome, err := e.strategy.Deduct(e.Context(), a)
	if err != nil {
		e.Fatalf("deduct: %v", err)
	}
	return outcome
}

// buy has a user take n units, durably.
func (e *engine) buy(o model.Offer, user string, n int) model.Attempt {
	e.Helper()
	a := e.attempt(o, user, n)
	if got := e.deduct(a); got.Verdict != model.Accepted {
		e.Fatalf("%s buys %d: %+v", user, n, got)
	}
	e.drain()
	return a
}

// drain settles all that is queued.
func (e *engine) drain() {
	e.Helper()
	if err := e.settler.Drain(e.Context()); err != nil {
		e.Fatal(err)
	}
}

func (e *engine) peek(o model.Offer) model.GateState {
	e.Helper()
	states, err := e.gate.Peek(e.Context(), o.ID)
	if err != nil {
		e.Fatal(err)
	}
	return states[0]
}

// agree checks that nothing is on its way and that the gate has what the database has.
func (e *engine) agree(o model.Offer) {
	e.Helper()
	books, state := e.books(o.ID), e.peek(o)
	if !state.Open || state.Stream != 0 || state.Inflight != 0 || state.Left != books.Stock.Available {
		e.Errorf("the gate is %+v, the stock %+v", state, books.Stock)
	}
}

// replaceGate has a new gate installed, as the auditor would ask for.
func (e *engine) replaceGate(o model.Offer) {
	e.Helper()
	before := e.peek(o).Epoch
	eventually(e.T, "a new gate", func() bool { // the controller, if it runs, may be at one
		e.forgetRebuild(o.ID)
		if err := e.gates.Serve(e.Context(), service.GateRequest{SaleID: o.ID, Reason: "test", Epoch: before}); err != nil {
			e.Fatal(err)
		}
		after := e.peek(o)
		return after.Open && after.Epoch > before
	})
}

// crowd runs n calls at once: all wait behind one gate, which opens when the last of them is there.
func crowd(n int, call func(i int)) {
	start := make(chan struct{})
	var ready, running sync.WaitGroup
	ready.Add(n)
	for i := range n {
		running.Go(func() {
			ready.Done()
			<-start
			call(i)
		})
	}
	ready.Wait()
	close(start)
	running.Wait()
}

// eventually waits until check is content: for what nothing announces.
func eventually(t *testing.T, what string, check func() bool) {
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
