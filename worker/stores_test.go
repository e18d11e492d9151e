package worker

import (
	"context"
	"database/sql"
	"encoding/json"
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
	"go.uber.org/goleak"

	"flashsale/gate"
	"flashsale/internal/embedded"
	"flashsale/model"
	"flashsale/repository"
	"flashsale/service"
	"flashsale/test/kit"
)

func TestMain(m *testing.M) {
	logging.Disable() // every error is returned, and some are meant to happen
	kit.Main(m)
}

// patience bounds each wait for an event that has to come.
const patience = time.Minute

// stores are a database and a Redis, as a server would have them.
type stores struct {
	*testing.T
	db       *repository.Store
	raw      *sql.DB // the test's own way into the database
	redisURL string
}

// eachPair runs a test on both pairs of stores that servers run on.
func eachPair(t *testing.T, run func(s *stores)) {
	t.Helper()
	t.Run("SQLite and embedded Redis", func(t *testing.T) {
		server, err := embedded.StartRedis()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.Close)
		run(newStores(t, "sqlite:"+filepath.Join(t.TempDir(), "test.db"), server.URL()))
	})
	t.Run("MariaDB and redis-server", func(t *testing.T) {
		run(newStores(t, kit.SharedMariaDB(t).NewDatabase(t), kit.Redis(t).URL()))
	})
}

func newStores(t *testing.T, address, redisURL string) *stores {
	t.Helper()
	db, err := repository.Open(t.Context(), address, 8)
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
	return &stores{T: t, db: db, raw: raw, redisURL: redisURL}
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

var orderIDs = model.NewOrderIDs([]byte("a key for tests"))

// engine is what an instance settles with.
type engine struct {
	*stores
	client  *redis.Client
	gate    *gate.Gate
	catalog *service.Catalog
	gates   *service.Gates
	waiters *service.Waiters
	settler *Settler
	log     *logbook
}

func (s *stores) engine(instance string) *engine {
	s.Helper()
	opts, err := gate.Options(s.redisURL)
	if err != nil {
		s.Fatal(err)
	}
	e := &engine{stores: s, client: redis.NewClient(opts), waiters: service.NewWaiters(), log: &logbook{}}
	s.Cleanup(func() { _ = e.client.Close() })
	e.gate = gate.New(e.client, instance)
	e.catalog = service.NewCatalog(s.db, time.Now)
	e.gates = service.NewGates(s.db, e.gate, e.catalog, slog.New(slog.DiscardHandler))
	e.settler = NewSettler(SettlerNeeds{
		Stream: e.gate, Outbox: e.gate, Ledger: s.db, Peek: e.gate.Peek, LiveIDs: e.catalog.LiveIDs, Instance: instance,
		Wake: e.waiters.WakeAll, Observe: func(int, time.Duration) {}, Now: time.Now, Log: slog.New(e.log),
	})
	e.refresh()
	return e
}

func (e *engine) refresh() {
	e.Helper()
	if err := e.catalog.Refresh(e.Context()); err != nil {
		e.Fatal(err)
	}
}

// running runs what has a Run until the function that it gives is called, or the test ends.
func (e *engine) running(runs ...func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for _, run := range runs {
		all.Go(func() { run(ctx) })
	}
	stop = sync.OnceFunc(func() { cancel(); all.Wait() })
	e.Cleanup(stop)
	return stop
}

// listen hears what other instances say.
func (e *engine) listen(ctx context.Context) { e.gate.Listen(ctx, func(string) {}, e.waiters.Look) }

// sale opens a sale of so many units with its gate.
func (e *engine) sale(quota int64, limit int) model.Offer {
	e.Helper()
	now := time.Now()
	sale := model.Sale{
		ID: model.NewSaleID(), Title: "a sale", PriceCents: 100, Currency: "CNY", LimitPerUser: limit, PayTimeoutSeconds: 600,
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

func attempt(o model.Offer, user, key string) model.Attempt {
	return model.Attempt{
		ID: orderIDs.Derive(user, o.ID, key), SaleID: o.ID, UserID: user, Quantity: 1,
		RequestKey: key, RequestHash: model.HashRequest(1),
	}
}

// admit sends an attempt through the gate, which has to let it in.
func (e *engine) admit(a model.Attempt) model.Attempt {
	e.Helper()
	if got, err := admitOne(e.Context(), e.gate, a, 0); err != nil || got != (model.Outcome{Verdict: model.Accepted}) {
		e.Fatalf("admit: %+v, %v", got, err)
	}
	return a
}

// dies has a consumer take all new entries of a sale and fall silent for longer than others wait for it. Time
// passes by the entries' own clocks; deliveries is what they have been through.
func (e *engine) dies(o model.Offer, consumer string, deliveries int) {
	e.Helper()
	entries, _, err := gate.New(e.client, consumer).Read(e.Context(), o.ID, 1000)
	if err != nil || len(entries) == 0 {
		e.Fatalf("the consumer took %v, %v", entries, err)
	}
	args := []any{"XCLAIM", streamKey(o), "settlers", consumer, 0}
	for _, entry := range entries {
		args = append(args, entry.StreamID)
	}
	args = append(args, "IDLE", (2 * claimIdle).Milliseconds(), "RETRYCOUNT", deliveries, "JUSTID")
	if err := e.client.Do(e.Context(), args...).Err(); err != nil {
		e.Fatal(err)
	}
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

// settled waits until a sale's stream is empty, and checks that orders and refusals are as many as they should
// be, and that gate and database agree.
func (e *engine) settled(o model.Offer, orders, refused int64) {
	e.Helper()
	eventually(e.T, "the stream is empty", func() bool { return e.peek(o).Stream == 0 })
	books, ok, err := e.db.Books(e.Context(), o.ID)
	if err != nil || !ok {
		e.Fatalf("the books: %t, %v", ok, err)
	}
	if v := books.Violations(); len(v) > 0 {
		e.Errorf("the books don't balance: %v", v)
	}
	if books.Orders[model.OrderPending] != orders || books.Orders[model.OrderRejected] != refused {
		e.Errorf("the orders are %v, want %d and %d refused", books.Orders, orders, refused)
	}
	if state := e.peek(o); state.Inflight != 0 || state.Left != books.Stock.Available {
		e.Errorf("the gate is %+v, the stock %+v", state, books.Stock)
	}
}

func (e *engine) wantOrder(a model.Attempt, status model.OrderStatus, reason model.Verdict) {
	e.Helper()
	order, ok, err := e.db.Order(e.Context(), a.ID)
	if err != nil || !ok || order.Status != status || order.Reason != reason || order.UserID != a.UserID {
		e.Errorf("the order of %s is %s %s, %t, %v; want %s %s", a.UserID, order.Status, order.Reason, ok, err, status, reason)
	}
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

// heard waits for what a buyer is told.
func heard(t *testing.T, buyer <-chan model.Outcome) (o model.Outcome) {
	t.Helper()
	select {
	case o = <-buyer:
	case <-time.After(patience):
		t.Fatal("the buyer was not woken")
	}
	return o
}

// TestHole15_ConsumerKilledBetweenTakingAndInsert: its entries are taken by another, and the order appears.
func TestHole15_ConsumerKilledBetweenTakingAndInsert(t *testing.T) {
	eachPair(t, func(s *stores) {
		e := s.engine("here")
		o := e.sale(10, 1)
		buyer, done := e.waiters.Wait(orderIDs.Derive("u-1", o.ID, "key"))
		defer done()
		a, b := e.admit(attempt(o, "u-1", "key")), e.admit(attempt(o, "u-2", "key"))
		e.dies(o, "dead", 1)
		e.running(e.settler.Run)
		if got := heard(e.T, buyer); got.Verdict != model.Accepted || got.Order == nil || got.Order.ID != a.ID {
			e.Errorf("the buyer heard %+v", got)
		}
		e.settled(o, 2, 0)
		e.wantOrder(a, model.OrderPending, "")
		e.wantOrder(b, model.OrderPending, "")
	})
}

// TestHole16_SeenBeforeTheCommit: the gate has noted an attempt as seen, and the consumer dies before or after
// the commit. A buyer who repeats the request is told that it is queued, and the redelivery makes one order.
func TestHole16_SeenBeforeTheCommit(t *testing.T) {
	for name, committed := range map[string]bool{"before the commit": false, "after the commit": true} {
		t.Run(name, func(t *testing.T) {
			eachPair(t, func(s *stores) {
				e := s.engine("here")
				o := e.sale(10, 2)
				a := e.admit(attempt(o, "u-1", "key"))
				if committed {
					entries := []model.Entry{{Attempt: a, Epoch: 1}}
					if got, err := e.db.Settle(e.Context(), o.ID, entries); err != nil || got[0].Verdict != model.Accepted {
						e.Fatalf("%+v, %v", got, err)
					}
				}
				e.dies(o, "dead", 1)
				repeat := func() {
					e.Helper()
					got, err := admitOne(e.Context(), e.gate, a, 0)
					if err != nil || got != (model.Outcome{Verdict: model.Accepted, Repeated: true}) {
						e.Errorf("the same request again: %+v, %v", got, err)
					}
				}
				repeat()
				e.running(e.settler.Run)
				e.settled(o, 1, 0)
				e.wantOrder(a, model.OrderPending, "")
				repeat()
				e.settled(o, 1, 0)
			})
		})
	}
}

// TestTwoSettlers share one stream: every entry becomes one order, and every buyer hears of it where he waits.
func TestTwoSettlers(t *testing.T) {
	eachPair(t, func(s *stores) {
		here, there := s.engine("here"), s.engine("there")
		const n = 300
		o := here.sale(n, 1)
		there.refresh()
		here.running(here.settler.Run, here.listen)
		there.running(there.settler.Run, there.listen)
		for _, e := range []*engine{here, there} { // a word that nobody listens to yet is lost
			eventually(e.T, "the instance listens", func() bool {
				counts, err := e.client.PubSubNumSub(e.Context(), "fs:control").Result()
				return err == nil && counts["fs:control"] == 2
			})
		}
		buyers := make([]<-chan model.Outcome, n)
		attempts := make([]model.Attempt, n)
		for i := range n {
			e := []*engine{here, there}[i%2]
			attempts[i] = attempt(o, fmt.Sprint("u-", i), "key")
			c, done := e.waiters.Wait(attempts[i].ID)
			defer done()
			buyers[i] = c
			e.admit(attempts[i])
			[]*engine{there, here}[i%2].settler.Notify(o.ID) // the wrong one: it tells the other
		}
		for i, c := range buyers {
			if got := heard(s.T, c); got != (model.Outcome{}) && (got.Verdict != model.Accepted || got.Order == nil || got.Order.ID != attempts[i].ID) {
				s.Errorf("buyer %d heard %+v", i, got)
			}
			here.wantOrder(attempts[i], model.OrderPending, "") // also for who was sent to look
		}
		here.settled(o, n, 0)
	})
}

// TestHole55_ForgedWakeUp: somebody who can publish to Redis, and no more, says that an attempt became an order.
func TestHole55_ForgedWakeUp(t *testing.T) {
	eachPair(t, func(s *stores) {
		e := s.engine("here")
		o := e.sale(1, 1)
		e.running(e.listen)
		eventually(e.T, "the instance listens", func() bool {
			counts, err := e.client.PubSubNumSub(e.Context(), "fs:wake:here").Result()
			return err == nil && counts["fs:wake:here"] == 1
		})
		purchases := &service.Purchases{
			Catalog: e.catalog, IDs: orderIDs, Strategy: forger{e}, Orders: e.db, Waiters: e.waiters, Queued: func(string) {},
			Meter: noMeter{}, Now: time.Now, AckWait: patience,
		}
		got, err := purchases.Purchase(e.Context(), service.Request{UserID: "u-1", SaleID: o.ID, Quantity: 1, Key: "key"})
		if err != nil || got.Order == nil || got.Order.Status != model.OrderQueued {
			e.Errorf("the buyer is told %+v, %v", got, err)
		}
	})
}

// forger queues attempts, and publishes wake-ups for them: as one with an outcome, and as instances do.
type forger struct{ *engine }

func (f forger) Deduct(ctx context.Context, a model.Attempt) (model.Outcome, error) {
	order := model.Order{ID: a.ID, SaleID: a.SaleID, UserID: a.UserID, Quantity: 1, Status: model.OrderPending, RequestHash: a.RequestHash}
	for _, said := range []any{map[string]model.Outcome{a.ID: {Verdict: model.Accepted, Order: &order}}, []string{a.ID}} {
		payload, err := json.Marshal(said)
		if err == nil {
			err = f.client.Publish(ctx, "fs:wake:here", payload).Err()
		}
		if err != nil {
			return model.Outcome{}, err
		}
	}
	return model.Outcome{Verdict: model.Accepted}, nil
}

type noMeter struct{}

func (noMeter) Stage(string, time.Duration) {}
func (noMeter) Verdict(model.Verdict)       {}

// TestPoisonedEntry: one attempt that this database can't hold, since its request key is longer than the column,
// holds up no other and is refused for good in the end.
func TestPoisonedEntry(t *testing.T) {
	s := newStores(t, kit.SharedMariaDB(t).NewDatabase(t), kit.Redis(t).URL())
	e := s.engine("here")
	o := e.sale(10, 1)
	good := e.admit(attempt(o, "u-1", "key"))
	buyer, done := e.waiters.Wait(orderIDs.Derive("u-2", o.ID, strings.Repeat("k", 500)))
	defer done()
	poison := e.admit(attempt(o, "u-2", strings.Repeat("k", 500)))
	other := e.admit(attempt(o, "u-3", "key"))
	stop := e.running(e.settler.Run)
	e.settler.Notify(o.ID)
	eventually(t, "the others are settled", func() bool { return e.peek(o).Stream == 1 })
	e.wantOrder(good, model.OrderPending, "")
	e.wantOrder(other, model.OrderPending, "")
	if _, known, err := e.db.Order(t.Context(), poison.ID); known || err != nil {
		t.Errorf("decided after one delivery: %t, %v", known, err)
	}
	stop()

	// The other deliveries, with the pauses between them, at once.
	ids, err := e.client.XRange(t.Context(), streamKey(o), "-", "+").Result()
	if err != nil || len(ids) != 1 {
		t.Fatalf("%v, %v", ids, err)
	}
	args := []any{"XCLAIM", streamKey(o), "settlers", "here", 0, ids[0].ID, "IDLE", (2 * claimIdle).Milliseconds(), "RETRYCOUNT", maxDeliveries - 1, "JUSTID"}
	if err := e.client.Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
	e.running(e.settler.Run)
	if got := heard(t, buyer); got.Verdict != model.ReasonFailed {
		t.Errorf("the buyer heard %+v", got)
	}
	e.settled(o, 2, 1)
	e.wantOrder(poison, model.OrderRejected, model.ReasonFailed)
	if e.log.count("can't be settled") != 1 {
		t.Errorf("logged %q", e.log.lines)
	}
}

// TestBadEntries in a real stream are deleted, and a row in the database tells what they were.
func TestBadEntries(t *testing.T) {
	eachPair(t, func(s *stores) {
		e := s.engine("here")
		o := e.sale(10, 1)
		for i := range 3 {
			if err := e.client.Do(e.Context(), "XADD", streamKey(o), "*", "nonsense", i).Err(); err != nil {
				e.Fatal(err)
			}
		}
		a := e.admit(attempt(o, "u-1", "key"))
		e.running(e.settler.Run)
		e.settler.Notify(o.ID)
		e.settled(o, 1, 0)
		e.wantOrder(a, model.OrderPending, "")
		var rows int
		query := "SELECT COUNT(*) FROM operations WHERE actor = 'engine' AND action = 'delete_entry' AND subject = ? AND detail LIKE '%nonsense%'"
		if err := e.raw.QueryRowContext(e.Context(), query, o.ID).Scan(&rows); err != nil || rows != 3 {
			e.Errorf("%d rows tell of it, %v", rows, err)
		}
	})
}

// TestStreamLost: an operator or an eviction has taken the stream alone. What was queued is lost and said to be;
// what comes after is settled.
func TestStreamLost(t *testing.T) {
	eachPair(t, func(s *stores) {
		e := s.engine("here")
		o := e.sale(10, 1)
		lost := e.admit(attempt(o, "u-1", "key"))
		if err := e.client.Del(e.Context(), streamKey(o)).Err(); err != nil {
			e.Fatal(err)
		}
		if _, err := e.raw.ExecContext(e.Context(), "UPDATE stock SET epoch_at_ms = 0 WHERE sale_id = ?", o.ID); err != nil {
			e.Fatal(err)
		}
		after := e.admit(attempt(o, "u-2", "key"))
		controller := &Controller{
			Catalog: e.catalog, Gates: e.gates, Log: slog.New(slog.DiscardHandler), Report: func(context.Context) error { return nil },
		}
		auditor := &Auditor{
			Audits: &service.Auditor{Store: e.db, Gate: e.gate}, Leases: e.db, Catalog: e.catalog, Instance: "here",
			Replace: e.gates.ReplaceGate, Found: func(string, int64) {}, Violated: func() {}, Log: slog.New(slog.DiscardHandler),
		}
		e.running(e.settler.Run, controller.Run, auditor.Run)
		e.settler.Notify(o.ID)
		eventually(e.T, "the next attempt is settled", func() bool {
			_, ok, err := e.db.Order(e.Context(), after.ID)
			return err == nil && ok
		})
		eventually(e.T, "the lost one is not queued any more", func() bool {
			_, known, err := e.gate.Knows(e.Context(), lost.ID)
			return err == nil && !known
		})
		e.settled(o, 1, 0)
	})
}

// TestHole47_LostIsFinal: a settler stands still with an entry in its memory while Redis comes back empty. Whoever is told
// then that the attempt was lost is told so for ever, under its id and under its key, also when the settler goes on. There
// is no earlier moment to ask: an id is told only after it was admitted.
func TestHole47_LostIsFinal(t *testing.T) {
	eachPair(t, func(s *stores) {
		e := s.engine("here")
		o := e.sale(10, 1)
		a := e.admit(attempt(o, "u-1", "key"))
		inHand, _, err := e.gate.Read(e.Context(), o.ID, 10)
		if err != nil || len(inHand) != 1 {
			e.Fatalf("read %v, %v", inHand, err)
		}
		if err := e.client.FlushAll(e.Context()).Err(); err != nil {
			e.Fatal(err)
		}
		orders := &service.Orders{Desk: e.db, Ledger: e.db, IDs: orderIDs, Catalog: e.catalog, Gate: e.gate, Gates: e.gates}
		look := func() model.Order {
			e.Helper()
			got, verdict, err := orders.Order(e.Context(), a.UserID, a.ID)
			if err != nil || verdict != model.Accepted {
				e.Fatalf("%+v, %s, %v", got, verdict, err)
			}
			return got
		}
		told := look()
		if told.Status != model.OrderRejected || told.Reason != model.ReasonLost {
			e.Fatalf("told %+v", told)
		}
		unchanged := func(when string) {
			e.Helper()
			if got := look(); got != told {
				e.Errorf("%s: the order is %+v, and was told to be %+v", when, got, told)
			}
		}
		unchanged("asked again")
		if err := e.settler.batch(e.Context(), o.ID, inHand, nil); err != nil {
			e.Fatal(err)
		}
		unchanged("the settler went on")

		if _, err := e.raw.ExecContext(e.Context(), "UPDATE stock SET epoch_at_ms = 0 WHERE sale_id = ?", o.ID); err != nil {
			e.Fatal(err)
		}
		if err := e.gates.Serve(e.Context(), service.GateRequest{SaleID: o.ID, Reason: "flushed"}); err != nil {
			e.Fatal(err)
		}
		e.refresh()
		// Whether with one unit or with two, the key is refused as lost; its unit goes back to the gate.
		e.admit(a)
		e.running(e.settler.Run)
		e.settler.Notify(o.ID)
		e.settled(o, 0, 1)
		two := a
		two.Quantity, two.RequestHash = 2, model.HashRequest(2)
		outcomes, err := e.db.Deduct(e.Context(), o.ID, []model.Attempt{two})
		if err != nil || outcomes[0].Verdict != model.ReasonLost {
			e.Errorf("the key with another quantity: %+v, %v", outcomes, err)
		}
		unchanged("the key came again")
		e.admit(attempt(o, "u-1", "a new key"))
		e.settler.Notify(o.ID)
		e.settled(o, 1, 1)
	})
}

// TestHole47_OrderWinsOverLost: what the database has decided meanwhile is told, not that the attempt was lost.
func TestHole47_OrderWinsOverLost(t *testing.T) {
	eachPair(t, func(s *stores) {
		e := s.engine("here")
		o := e.sale(10, 1)
		a := attempt(o, "u-1", "key") // no gate knows it
		meanwhile := deskBefore{e.db, func() {
			if _, err := e.db.Deduct(e.Context(), o.ID, []model.Attempt{a}); err != nil {
				e.Fatal(err)
			}
		}}
		orders := &service.Orders{Desk: e.db, Ledger: meanwhile, IDs: orderIDs, Catalog: e.catalog, Gate: e.gate, Gates: e.gates}
		got, verdict, err := orders.Order(e.Context(), a.UserID, a.ID)
		if err != nil || verdict != model.Accepted || got.Status != model.OrderPending {
			e.Errorf("%+v, %s, %v", got, verdict, err)
		}
		e.wantOrder(a, model.OrderPending, "")
	})
}

// deskBefore lets something happen before an attempt is refused.
type deskBefore struct {
	service.Refuser
	happens func()
}

func (d deskBefore) Refuse(ctx context.Context, e model.Entry, reason model.Verdict) (model.Outcome, error) {
	d.happens()
	return d.Refuser.Refuse(ctx, e, reason)
}

// TestDatabaseDies in the middle of the queue: nothing is acknowledged, and all is there when it is back.
func TestDatabaseDies(t *testing.T) {
	server := kit.MariaDB(t)
	s := newStores(t, server.NewDatabase(t), kit.Redis(t).URL())
	e := s.engine("here")
	o := e.sale(50, 1)
	e.running(e.settler.Run)
	first := e.admit(attempt(o, "first", "key"))
	e.settler.Notify(o.ID)
	e.settled(o, 1, 0)
	server.Kill()
	for i := range 20 {
		e.admit(attempt(o, fmt.Sprint("u-", i), "key"))
	}
	e.settler.Notify(o.ID)
	eventually(t, "the settler has met the trouble", func() bool { return e.log.count("trying again") > 0 })
	if state := e.peek(o); state.Stream != 20 || state.Inflight != 20 {
		t.Errorf("the gate is %+v", state)
	}
	server.Restart()
	e.settled(o, 21, 0)
	e.wantOrder(first, model.OrderPending, "")
}

// TestSettlerLeavesNothingRunning over real stores.
func TestSettlerLeavesNothingRunning(t *testing.T) {
	eachPair(t, func(s *stores) {
		e := s.engine("here")
		o := e.sale(10, 1)
		e.admit(attempt(o, "u-first", "key"))
		if err := e.settler.Drain(e.Context()); err != nil {
			e.Fatal(err)
		}
		// Connections have goroutines of their own, here and in the embedded Redis.
		pools := []goleak.Option{
			goleak.IgnoreCurrent(),
			goleak.IgnoreAnyFunction("database/sql.(*DB).connectionOpener"),
			goleak.IgnoreAnyFunction("github.com/go-sql-driver/mysql.(*mysqlConn).startWatcher.func1"),
			goleak.IgnoreAnyFunction("github.com/alicebob/miniredis/v2/server.(*Server).servePeer"),
			goleak.IgnoreAnyFunction("github.com/alicebob/miniredis/v2/server.(*Server).servePeer.func2"),
		}
		stop := e.running(e.settler.Run)
		for i := range 5 {
			e.admit(attempt(o, fmt.Sprint("u-", i), "key"))
			e.settler.Notify(o.ID)
		}
		e.settled(o, 6, 0)
		stop()
		goleak.VerifyNone(e.T, pools...)
	})
}

// admitOne admits an attempt by itself.
func admitOne(ctx context.Context, g *gate.Gate, a model.Attempt, epoch int64) (model.Outcome, error) {
	outcomes, err := g.Admit(ctx, a.SaleID, []model.Attempt{a}, epoch)
	if err != nil {
		return model.Outcome{}, err
	}
	if outcomes[0].Verdict == model.NoGate {
		return model.Outcome{}, model.ErrNoGate
	}
	return outcomes[0], nil
}

// Hole 49: another session keeps the stock row of a sale. Orders of another sale are settled and expire meanwhile, and
// those of the locked sale once it is free.
func TestHole49_LockedStockRow(t *testing.T) {
	s := newStores(t, kit.SharedMariaDB(t).NewDatabase(t), kit.Redis(t).URL())
	e := s.engine("here")
	locked, other := e.sale(1000, 1), e.sale(1000, 1)
	tx, err := s.raw.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	buy := func(sale model.Offer, user string) model.Attempt {
		a := e.admit(attempt(sale, user, "k"))
		e.settler.Notify(sale.ID)
		return a
	}
	there := func(a model.Attempt) func() bool {
		return func() bool {
			_, ok, err := s.db.Order(t.Context(), a.ID)
			return ok && err == nil
		}
	}
	e.running(e.settler.Run, e.expirer().Run)
	eventually(t, "an order of the sale that will be locked", there(buy(locked, "first")))
	if _, err := tx.ExecContext(t.Context(), "SELECT 1 FROM stock WHERE sale_id = ? FOR UPDATE", locked.ID); err != nil {
		t.Fatal(err)
	}
	e.overdue(locked)
	for i := range 20 { // each writer and the expirer meet the lock again and again
		buy(locked, fmt.Sprint("u", i))
		a := buy(other, fmt.Sprint("u", i))
		eventually(t, "an order of the other sale", there(a))
	}
	e.overdue(other)
	eventually(t, "the other sale's orders have expired", func() bool { return e.units(other).held == 0 })
	if n := e.units(locked); n.held != 1 {
		t.Fatalf("the lock did not hold: %+v", n)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the locked sale goes on", func() bool {
		return e.peek(locked).Stream == 0 && e.units(locked).held == 20
	})
}

// Hole 50: the stock row of a sale says that fewer units are held than its orders hold, so that they can't expire. Those
// of another sale do, and the violation is told once.
func TestHole50_WrongBooks(t *testing.T) {
	eachPair(t, func(s *stores) {
		e := s.engine("here")
		wrong, other := e.sale(10, 1), e.sale(10, 1)
		for _, sale := range []model.Offer{wrong, other} {
			for i := range 3 {
				e.admit(attempt(sale, fmt.Sprint("u", i), "k"))
			}
		}
		stop := e.running(e.settler.Run)
		for _, sale := range []model.Offer{wrong, other} {
			eventually(s.T, "three orders", func() bool {
				e.settler.Notify(sale.ID)
				return e.units(sale).held == 3
			})
			e.overdue(sale)
		}
		stop()
		if _, err := s.raw.ExecContext(s.Context(), "UPDATE stock SET held = 2, available = 8 WHERE sale_id = ?", wrong.ID); err != nil {
			s.Fatal(err)
		}
		x := e.expirer()
		violated := make(chan struct{}, 10)
		x.Violated = func() { violated <- struct{}{} }
		e.running(x.Run)
		eventually(s.T, "the other sale's orders have expired", func() bool { return e.units(other).held == 0 })
		<-violated
		eventually(s.T, "the violation is in the database's log", func() bool {
			var n int
			err := s.raw.QueryRowContext(s.Context(), "SELECT COUNT(*) FROM operations WHERE action = 'violation' AND subject = ?", wrong.ID).Scan(&n)
			return err == nil && n == 1
		})
		if _, err := s.raw.ExecContext(s.Context(), "UPDATE stock SET held = 3, available = 7 WHERE sale_id = ?", wrong.ID); err != nil {
			s.Fatal(err)
		}
		eventually(s.T, "its orders expire once the books are right", func() bool { return e.units(wrong).held == 0 })
		if len(violated) > 0 || e.log.count("can't expire") != 1 {
			s.Errorf("told again: %q", e.log.lines)
		}
	})
}

func (e *engine) expirer() *Expirer {
	return &Expirer{
		Store: e.db, Released: func(ctx context.Context, saleID string, _ []model.Release) error { return e.gates.CatchUp(ctx, saleID) }, Emptied: func() {}, Violated: func() { e.Error("books that don't balance") }, Now: time.Now, Log: slog.New(e.log),
	}
}

// overdue ends the time to pay of all orders of a sale.
func (e *engine) overdue(o model.Offer) {
	e.Helper()
	if _, err := e.raw.ExecContext(e.Context(), "UPDATE orders SET expires_at_ms = 1 WHERE sale_id = ?", o.ID); err != nil {
		e.Fatal(err)
	}
}

func (e *engine) units(o model.Offer) (n struct{ available, held int }) {
	e.Helper()
	err := e.raw.QueryRowContext(e.Context(), "SELECT available, held FROM stock WHERE sale_id = ?", o.ID).Scan(&n.available, &n.held)
	if err != nil {
		e.Fatal(err)
	}
	return n
}
