package worker

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"flashsale/gate"
	"flashsale/internal/observe"
	"flashsale/model"
	"flashsale/repository"
	"flashsale/service"
	"flashsale/test/kit"
)

func TestMain(m *testing.M) {
	logging.Disable() // every error is returned, and the tests cause some
	kit.Main(m)
}

// patience bounds each wait for an event.
const patience = time.Minute

var orderIDs = model.NewOrderIDs([]byte("a key for tests"))

// engine is one instance: its stores, and what it settles with.
type engine struct {
	*testing.T
	db      *repository.Store
	raw     *sql.DB // the test's own way into the database
	redis   string
	client  *redis.Client
	gate    *gate.Gate
	catalog *service.Catalog
	gates   *service.Gates
	waiters *service.Waiters
	settler *Settler
	log     *logbook
}

// eachEngine runs a test on both pairs of stores, with an instance "here".
func eachEngine(t *testing.T, test func(e *engine)) {
	t.Helper()
	kit.EachStores(t, func(t *testing.T, s kit.Stores) {
		db, err := repository.Open(t.Context(), s.Database, 8)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		stores := &engine{T: t, db: db, raw: kit.OpenSQL(t, s.Database), redis: s.Redis}
		stores.check(db.MigrateUp(t.Context()))
		test(stores.instance("here"))
	})
}

// instance returns another instance on the same stores.
func (e *engine) instance(name string) *engine {
	e.Helper()
	opts, err := gate.Options(e.redis)
	e.check(err)
	i := &engine{T: e.T, db: e.db, raw: e.raw, redis: e.redis}
	i.client, i.waiters, i.log = redis.NewClient(opts), service.NewWaiters(), &logbook{}
	e.Cleanup(func() { _ = i.client.Close() })
	i.gate = gate.New(i.client, name)
	i.catalog = service.NewCatalog(e.db, time.Now)
	i.gates = service.NewGates(e.db, i.gate, i.catalog, slog.New(slog.DiscardHandler))
	i.settler = NewSettler(SettlerNeeds{
		Stream: i.gate, Outbox: i.gate, Ledger: e.db, Peek: i.gate.Peek, Live: i.catalog.LiveGates, Instance: name,
		Wake: i.waiters.WakeAll, Now: time.Now, Log: slog.New(i.log),
	})
	i.check(i.catalog.Refresh(e.Context()))
	return i
}

func (e *engine) check(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

// execute changes the database without the engine.
func (e *engine) execute(statement string, args ...any) {
	e.Helper()
	_, err := e.raw.ExecContext(e.Context(), statement, args...)
	e.check(err)
}

// running runs loops until the returned function is called, or the test ends.
func (e *engine) running(loops ...func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for _, run := range loops {
		all.Go(func() { run(ctx) })
	}
	stop = sync.OnceFunc(func() { cancel(); all.Wait() })
	e.Cleanup(stop)
	return stop
}

// listens runs the listener for announcements of other instances, and waits until Redis knows that so many listen.
func (e *engine) listens(channel string, listeners int64) {
	e.running(func(ctx context.Context) { e.gate.Listen(ctx, func(string) {}, e.waiters.Look) })
	e.eventually("the instance listens", func() bool {
		counts, err := e.client.PubSubNumSub(e.Context(), channel).Result()
		return err == nil && counts[channel] == listeners
	})
}

// sale opens a sale with its gate.
func (e *engine) sale(quota int64, limit int) model.Offer {
	e.Helper()
	now := time.Now()
	sale := model.Sale{
		ID: model.NewSaleID(), Title: "a sale", PriceCents: 100, Currency: "CNY", LimitPerUser: limit, PayTimeoutSeconds: 600,
		StartsAt: now.Add(-time.Hour), EndsAt: now.Add(time.Hour), Status: model.SaleLive, Revision: 1,
	}
	sale.Code = sale.ID[:8]
	e.check(e.db.CreateSale(e.Context(), sale, quota, "tester"))
	e.check(e.gates.Preheat(e.Context(), sale.ID))
	e.check(e.catalog.Refresh(e.Context()))
	return model.Offer{Sale: sale}
}

func attempt(o model.Offer, user, key string) model.Attempt {
	return model.Attempt{
		ID: orderIDs.Derive(user, o.ID, key), SaleID: o.ID, UserID: user, Quantity: 1,
		IdempotencyKey: key, RequestHash: model.HashRequest(1),
	}
}

// admit sends an attempt through the gate, which must answer with the outcome.
func (e *engine) admit(a model.Attempt, want model.Outcome) model.Attempt {
	e.Helper()
	got, err := e.gate.Admit(e.Context(), a.GateRef(), []model.Attempt{a}, 0)
	if err != nil || got[0] != want {
		e.Fatalf("admit: %+v, %v; want %+v", got, err, want)
	}
	return a
}

var admitted = model.Outcome{Verdict: model.Accepted}

// dies has a consumer take all new entries of a sale, and then stand still for longer than others wait for it. The idle
// time of the entries is set, so the test does not wait.
func (e *engine) dies(o model.Offer, consumer string) {
	e.Helper()
	entries, _, err := gate.New(e.client, consumer).Read(e.Context(), o.GateRef(), 1000)
	if err != nil || len(entries) == 0 {
		e.Fatalf("the consumer took %v, %v", entries, err)
	}
	args := []any{"XCLAIM", streamKey(o), "settlers", consumer, 0}
	for _, entry := range entries {
		args = append(args, entry.StreamID)
	}
	args = append(args, "IDLE", (2 * claimIdle).Milliseconds(), "RETRYCOUNT", 1, "JUSTID")
	e.check(e.client.Do(e.Context(), args...).Err())
}

func streamKey(o model.Offer) string { return "fs:{" + o.ID + "}:stream" }

func (e *engine) peek(o model.Offer) model.GateState {
	e.Helper()
	states, err := e.gate.Peek(e.Context(), o.GateRef())
	e.check(err)
	return states[0]
}

// settled waits until a sale's stream is empty. It checks the number of orders and refusals, and that the gate and the
// database agree.
func (e *engine) settled(o model.Offer, orders, refused int64) {
	e.Helper()
	e.eventually("the stream is empty", func() bool { return e.peek(o).Stream == 0 })
	books, ok, err := e.db.Books(e.Context(), o.ID)
	if v := books.Violations(); err != nil || !ok || len(v) > 0 {
		e.Fatalf("the books: %t, %v, %v", ok, err, v)
	}
	if books.Orders[model.OrderPending] != orders || books.Orders[model.OrderRejected] != refused {
		e.Errorf("the orders are %v, want %d and %d refused", books.Orders, orders, refused)
	}
	if state := e.peek(o); state.Inflight != 0 || state.Left != books.Stock.Available {
		e.Errorf("the gate is %+v, the stock %+v", state, books.Stock)
	}
}

func (e *engine) wantPending(a model.Attempt) {
	e.Helper()
	order, ok, err := e.db.Order(e.Context(), a.ID)
	if err != nil || !ok || order.Status != model.OrderPending || order.Reason != "" || order.UserID != a.UserID {
		e.Errorf("the order of %s is %s %s, %t, %v", a.UserID, order.Status, order.Reason, ok, err)
	}
}

// eventually polls until check returns true.
func (e *engine) eventually(what string, check func() bool) {
	e.Helper()
	deadline := time.After(patience)
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for !check() {
		select {
		case <-ticker.C:
		case <-deadline:
			e.Fatalf("%s: not within %s", what, patience)
		}
	}
}

// heard waits until a buyer is woken, and returns the buyer's outcome.
func (e *engine) heard(buyer <-chan model.Outcome) (o model.Outcome) {
	e.Helper()
	select {
	case o = <-buyer:
	case <-time.After(patience):
		e.Fatal("the buyer was not woken")
	}
	return o
}

// A consumer dies after it has read entries and before their insert. Another consumer claims them and makes the orders.
func TestHole15_ConsumerKilledBetweenTakingAndInsert(t *testing.T) {
	eachEngine(t, func(e *engine) {
		o := e.sale(10, 1)
		a, b := attempt(o, "u-1", "key"), attempt(o, "u-2", "key")
		buyer, done := e.waiters.Wait(a.ID)
		defer done()
		e.admit(a, admitted)
		e.admit(b, admitted)
		e.dies(o, "dead")
		e.running(e.settler.Run)
		if got := e.heard(buyer); got.Verdict != model.Accepted || got.Order == nil || got.Order.ID != a.ID {
			e.Errorf("the buyer heard %+v", got)
		}
		e.settled(o, 2, 0)
		e.wantPending(a)
		e.wantPending(b)
	})
}

// The gate has marked an attempt as seen, and the consumer dies before or after the commit. A repeated request is told
// that the attempt is queued, and the redelivery makes one order.
func TestHole16_SeenBeforeTheCommit(t *testing.T) {
	for name, committed := range map[string]bool{"before the commit": false, "after the commit": true} {
		t.Run(name, func(t *testing.T) {
			eachEngine(t, func(e *engine) {
				o := e.sale(10, 2)
				a := e.admit(attempt(o, "u-1", "key"), admitted)
				if committed {
					got, err := e.db.Settle(e.Context(), o.ID, []model.Entry{{Attempt: a, Epoch: 1}})
					if err != nil || got[0].Verdict != model.Accepted {
						e.Fatalf("%+v, %v", got, err)
					}
				}
				e.dies(o, "dead")
				repeated := model.Outcome{Verdict: model.Accepted, Repeated: true}
				e.admit(a, repeated)
				e.running(e.settler.Run)
				e.settled(o, 1, 0)
				e.wantPending(a)
				e.admit(a, repeated)
				e.settled(o, 1, 0)
			})
		})
	}
}

// Two instances settle one stream: every entry becomes one order, and every buyer is woken on the buyer's instance.
func TestTwoSettlers(t *testing.T) {
	eachEngine(t, func(here *engine) {
		const n = 300
		o := here.sale(n, 1)
		there := here.instance("there")
		both := []*engine{here, there}
		for i, e := range both { // a wake-up without a listener is lost
			e.running(e.settler.Run)
			e.listens("fs:control", int64(i+1))
		}
		buyers := make([]<-chan model.Outcome, n)
		attempts := make([]model.Attempt, n)
		for i := range n {
			attempts[i] = attempt(o, fmt.Sprint("u-", i), "key")
			buyer, done := both[i%2].waiters.Wait(attempts[i].ID)
			defer done()
			buyers[i] = buyer
			both[i%2].admit(attempts[i], admitted)
			both[(i+1)%2].settler.Notify(o.GateRef()) // the other instance has to wake the buyer
		}
		for i, buyer := range buyers {
			got := here.heard(buyer) // empty: the buyer has to look for the order
			if got != (model.Outcome{}) && (got.Verdict != model.Accepted || got.Order == nil || got.Order.ID != attempts[i].ID) {
				here.Errorf("buyer %d heard %+v", i, got)
			}
			here.wantPending(attempts[i])
		}
		here.settled(o, n, 0)
	})
}

// Somebody who can publish to Redis, and no more, announces that an attempt became an order. The buyer is not told so.
func TestHole55_ForgedWakeUp(t *testing.T) {
	eachEngine(t, func(e *engine) {
		o := e.sale(1, 1)
		e.listens("fs:wake:here", 1)
		purchases := &service.Purchases{
			Catalog: e.catalog, IDs: orderIDs, Strategy: forger{e}, Orders: e.db, Waiters: e.waiters, Queued: func(model.GateRef) {},
			AckWait: patience,
		}
		got, err := purchases.Purchase(e.Context(), service.Request{UserID: "u-1", SaleID: o.ID, Quantity: 1, Key: "key"})
		if err != nil || got.Order == nil || got.Order.Status != model.OrderQueued {
			e.Errorf("the buyer is told %+v, %v", got, err)
		}
	})
}

// forger queues attempts, and publishes two wake-ups for each: one with an outcome, and one in the form that instances
// send.
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

// The stream alone is lost, by an operator or an eviction. The auditor has the gate replaced: the attempts that were
// queued are lost, and are not shown as queued any more. Later attempts are settled.
func TestStreamLost(t *testing.T) {
	eachEngine(t, func(e *engine) {
		o := e.sale(10, 1)
		lost := e.admit(attempt(o, "u-1", "key"), admitted)
		e.check(e.client.Del(e.Context(), streamKey(o)).Err())
		e.execute("UPDATE stock SET epoch_at_ms = 0 WHERE sale_id = ?", o.ID)
		later := e.admit(attempt(o, "u-2", "key"), admitted)
		log := slog.New(slog.DiscardHandler)
		controller := &Controller{Catalog: e.catalog, Gates: e.gates, Log: log, Report: func(context.Context) error { return nil }}
		auditor := &Auditor{
			Audits: &service.Auditor{Store: e.db, Gate: e.gate}, Leases: e.db, Catalog: e.catalog, Instance: "here",
			Replace: e.gates.ReplaceGate, Log: log,
		}
		e.running(e.settler.Run, controller.Run, auditor.Run)
		e.settler.Notify(o.GateRef())
		e.eventually("the later attempt is settled", func() bool {
			_, ok, err := e.db.Order(e.Context(), later.ID)
			return err == nil && ok
		})
		e.eventually("the lost attempt is not queued any more", func() bool {
			_, known, err := e.gate.Knows(e.Context(), o.GateRef(), lost.UserID, lost.ID)
			return err == nil && !known
		})
		e.settled(o, 1, 0)
	})
}

// A settler has an entry in memory while Redis comes back empty. A buyer who is then told that the attempt was lost is
// told the same under its id and its key from then on, also after the settler goes on.
func TestHole47_LostIsFinal(t *testing.T) {
	eachEngine(t, func(e *engine) {
		o := e.sale(10, 1)
		a := e.admit(attempt(o, "u-1", "key"), admitted)
		inHand, _, err := e.gate.Read(e.Context(), o.GateRef(), 10)
		if err != nil || len(inHand) != 1 {
			e.Fatalf("read %v, %v", inHand, err)
		}
		e.check(e.client.FlushAll(e.Context()).Err())
		told := e.look(e.db, a)
		if told.Status != model.OrderRejected || told.Reason != model.ReasonLost {
			e.Fatalf("told %+v", told)
		}
		unchanged := func(when string) {
			e.Helper()
			if got := e.look(e.db, a); got != told {
				e.Errorf("%s: the order is %+v, and was told to be %+v", when, got, told)
			}
		}
		unchanged("asked again")
		e.check(e.settler.batch(e.Context(), o.GateRef(), inHand, nil))
		unchanged("the settler went on")

		e.execute("UPDATE stock SET epoch_at_ms = 0 WHERE sale_id = ?", o.ID)
		e.check(e.gates.Serve(e.Context(), service.GateRequest{SaleID: o.ID, Reason: "flushed"}))
		e.check(e.catalog.Refresh(e.Context()))
		// The key is refused as lost, whatever the quantity. The unit goes back to the gate.
		e.admit(a, admitted)
		e.running(e.settler.Run)
		e.settler.Notify(o.GateRef())
		e.settled(o, 0, 1)
		two := a
		two.Quantity, two.RequestHash = 2, model.HashRequest(2)
		outcomes, err := e.db.Deduct(e.Context(), o.ID, []model.Attempt{two})
		if err != nil || outcomes[0].Verdict != model.ReasonLost {
			e.Errorf("the key with another quantity: %+v, %v", outcomes, err)
		}
		unchanged("the key came again")
		e.admit(attempt(o, "u-1", "a new key"), admitted)
		e.settler.Notify(o.GateRef())
		e.settled(o, 1, 1)
	})
}

// look returns the order of an attempt as its buyer is told.
func (e *engine) look(ledger service.Refuser, a model.Attempt) model.Order {
	e.Helper()
	orders := &service.Orders{Desk: e.db, Ledger: ledger, IDs: orderIDs, Catalog: e.catalog, Gate: e.gate, Gates: e.gates}
	got, verdict, err := orders.Order(e.Context(), a.UserID, a.ID)
	if err != nil || verdict != model.Accepted {
		e.Fatalf("%+v, %s, %v", got, verdict, err)
	}
	return got
}

// The database decides an attempt while its buyer looks for it. The buyer is told the order, not that the attempt was
// lost.
func TestHole47_OrderWinsOverLost(t *testing.T) {
	eachEngine(t, func(e *engine) {
		o := e.sale(10, 1)
		a := attempt(o, "u-1", "key") // the gate does not know the attempt
		meanwhile := deskBefore{e.db, func() {
			_, err := e.db.Deduct(e.Context(), o.ID, []model.Attempt{a})
			e.check(err)
		}}
		if got := e.look(meanwhile, a); got.Status != model.OrderPending {
			e.Errorf("told %+v", got)
		}
		e.wantPending(a)
	})
}

// deskBefore calls happens before each refusal.
type deskBefore struct {
	service.Refuser
	happens func()
}

func (d deskBefore) Refuse(ctx context.Context, e model.Entry, reason model.Verdict) (model.Outcome, error) {
	d.happens()
	return d.Refuser.Refuse(ctx, e, reason)
}

// The stock row of a sale counts fewer held units than its orders have, so its orders can't expire. Those of another
// sale do. The violation is reported once, and the orders expire when the row is right again.
func TestHole50_WrongBooks(t *testing.T) {
	eachEngine(t, func(e *engine) {
		wrong, other := e.sale(10, 1), e.sale(10, 1)
		held := func(o model.Offer) (n int) {
			e.Helper()
			e.check(e.raw.QueryRowContext(e.Context(), "SELECT held FROM stock WHERE sale_id = ?", o.ID).Scan(&n))
			return n
		}
		for _, o := range []model.Offer{wrong, other} {
			for i := range 3 {
				e.admit(attempt(o, fmt.Sprint("u", i), "k"), admitted)
			}
		}
		e.check(e.settler.Drain(e.Context()))
		e.execute("UPDATE orders SET expires_at_ms = 1")
		e.execute("UPDATE stock SET held = 2, available = 8 WHERE sale_id = ?", wrong.ID)
		violated := make(chan struct{}, 10)
		expirer := &Expirer{
			Store: e.db, Observe: observe.All{noted{observe.Violated, func(observe.Event) { violated <- struct{}{} }}}, Now: time.Now, Log: slog.New(e.log),
			Released: func(ctx context.Context, saleID string, _ []model.Release) error { return e.gates.CatchUp(ctx, saleID) },
		}
		e.running(expirer.Run)
		e.eventually("the other sale's orders have expired", func() bool { return held(other) == 0 })
		<-violated
		e.eventually("the violation is in the database's log", func() bool {
			var n int
			query := "SELECT COUNT(*) FROM audit_log WHERE action = 'violation' AND subject = ?"
			return e.raw.QueryRowContext(e.Context(), query, wrong.ID).Scan(&n) == nil && n == 1
		})
		e.execute("UPDATE stock SET held = 3, available = 7 WHERE sale_id = ?", wrong.ID)
		e.eventually("the orders expire once the books are right", func() bool { return held(wrong) == 0 })
		if len(violated) > 0 || e.log.count("can't expire") != 1 {
			e.Errorf("reported again: %q", e.log.lines)
		}
	})
}
