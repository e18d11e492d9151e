package strategy

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"flashsale/gate"
	"flashsale/model"
	"flashsale/repository"
	"flashsale/service"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
	"flashsale/worker"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis would log the broken connections that tests cause on purpose
	// A call of the gate that is late, because the machine stands still, would make its attempts unavailable.
	admissionLimits.Time = check.Patience
	kit.Main(m)
}

// ackWait is how long a purchase waits until its order is settled.
const ackWait = 10 * time.Second

// stores are a database and a Redis, as one server of the engine uses them.
type stores struct {
	*testing.T
	kit.Stores
	db     *repository.Store
	raw    *sql.DB // for what a test reads or changes behind the engine
	shards int     // of the gates of new sales
}

// eachPair runs a test on both pairs of stores, in parallel.
func eachPair(t *testing.T, run func(s *stores)) {
	t.Helper()
	kit.EachStores(t, func(t *testing.T, of kit.Stores) {
		t.Parallel()
		run(open(t, of))
	})
}

func open(t *testing.T, of kit.Stores) *stores {
	t.Helper()
	db := check.Must(repository.Open(t.Context(), of.Database, 32))
	t.Cleanup(func() { _ = db.Close() })
	s := &stores{T: t, Stores: of, db: db, raw: kit.OpenSQL(t, of.Database), shards: 1}
	check.Done(db.MigrateUp(t.Context()))
	return s
}

// with returns the stores for a subtest.
func (s *stores) with(t *testing.T) *stores {
	one := *s
	one.T = t
	return &one
}

// allowRebuild removes the pause after the last rebuild of a sale's gate.
func (s *stores) allowRebuild(o model.Offer) {
	s.Helper()
	check.Must(s.raw.ExecContext(s.Context(), "UPDATE stock SET epoch_at_ms = 0 WHERE sale_id = ?", o.ID))
}

// sums reads the sums of a sale, which may disagree.
func (s *stores) sums(o model.Offer) model.Books {
	s.Helper()
	books, found, err := s.db.Books(context.WithoutCancel(s.Context()), o.ID)
	if err != nil || !found {
		s.Fatalf("the books: found %t, %v", found, err)
	}
	return books
}

// books reads the sums of a sale, which must agree.
func (s *stores) books(o model.Offer) model.Books {
	s.Helper()
	books := s.sums(o)
	if v := books.Violations(); len(v) > 0 {
		s.Errorf("the books do not balance: %q", v)
	}
	return books
}

// wantOrders checks the pending and the rejected orders of a sale, and the units of the pending ones.
func (s *stores) wantOrders(o model.Offer, pending, rejected, units int64) {
	s.Helper()
	b := s.books(o)
	if b.Orders[model.OrderPending] != pending || b.Orders[model.OrderRejected] != rejected ||
		b.Stock.Held != units || b.BuyersUnits != units {
		s.Errorf("the orders are %v of %d units, the stock is %+v; want %d pending orders of %d units and %d rejected orders",
			b.Orders, b.BuyersUnits, b.Stock, pending, units, rejected)
	}
}

var discard = slog.New(slog.DiscardHandler)

// orderIDs are the same for all engines, as on instances with one database.
var orderIDs = model.NewOrderIDs([]byte("a key for tests"))

// engine is one instance, put together as in app, without HTTP.
type engine struct {
	*stores
	kind      Kind
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
}

// engine makes an instance with a strategy. The functions in change replace dependencies of the strategy.
func (s *stores) engine(strategyName string, change ...func(*Needs)) *engine {
	s.Helper()
	client := kit.RedisClient(s, s.Redis)
	kind, ok := Of(strategyName)
	check.Same(s, "there is a strategy "+strategyName, ok, true)
	e := &engine{stores: s, kind: kind, client: client, changed: make(chan struct{}, 1)}
	instance := strings.ToLower(model.NewSaleID())
	e.catalog = service.NewCatalog(s.db, time.Now)
	e.gate = gate.New(e.client, instance)
	e.gate.TransferTime = check.Patience
	e.gates = service.NewGates(s.db, e.gate, e.catalog, !kind.UsesGate, discard)
	e.waiters = service.NewWaiters(time.Now)
	lock, db := make(chan struct{}, 1), s.db
	if strategyName == "mutex" {
		db = db.Exclusive(lock)
	}
	e.settler = worker.NewSettler(worker.SettlerNeeds{
		Stream: e.gate, Ledger: db, Live: e.catalog.LiveGates, Instance: instance,
		Running: func(context.Context, time.Duration) []string { return nil },
		Apart:   e.waiters.Apart, Wake: e.waiters.Wake, Lost: func(model.GateRef) {}, Now: time.Now, Log: discard,
	})
	needs := Needs{
		Gate: e.gate, Database: s.db, Control: e.gates, Settler: e.settler, Log: discard, Now: time.Now,
		Lock: lock, LocalShare: 0.5, LocalBuffer: 4,
	}
	for _, f := range change {
		f(&needs)
	}
	e.strategy = kind.New(needs)
	s.Cleanup(e.strategy.Close)
	e.purchases = &service.Purchases{
		Catalog: e.catalog, IDs: orderIDs, Strategy: e.strategy, Orders: s.db, Waiters: e.waiters,
		SoldOut: &service.SoldOut{Store: db, Gate: e.gate, Catalog: e.catalog, Now: time.Now}, AckWait: ackWait,
	}
	if !kind.UsesGate {
		e.purchases.SoldOut.Gate = nil
	}
	e.orders = &service.Orders{Desk: db, Ledger: db, IDs: orderIDs, Catalog: e.catalog, Gate: e.gate, Gates: e.gates}
	e.sales = &service.Sales{Store: db, Gate: e.gate, Gates: e.gates, Catalog: e.catalog, Takes: model.TakesAll, Log: discard}
	e.refresh()
	check.Done(e.gates.Ensure(s.Context()))
	return e
}

// refresh reads the sales that other instances have made.
func (e *engine) refresh() {
	e.Helper()
	check.Done(e.catalog.Refresh(e.Context()))
}

// run starts the loops that run beside the requests. They end with the test.
func (e *engine) run() *engine {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	controller := &worker.Controller{
		Catalog: e.catalog, Gates: e.gates, SoldOut: e.purchases.SoldOut, Shop: service.NewShop(e.db), Changed: e.changed, Log: discard,
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
		StartsAt: now.Add(-time.Hour), EndsAt: now.Add(time.Hour), Shards: e.shards,
	}, quota, "tester")
	if err != nil || invalid != nil {
		e.Fatalf("make a sale: %+v, %v", invalid, err)
	}
	return offer
}

func (e *engine) setStatus(o model.Offer, status model.SaleStatus) {
	e.Helper()
	if _, verdict, err := e.sales.SetStatus(e.Context(), o.ID, status, "test", "tester"); verdict != model.Accepted || err != nil {
		e.Fatalf("set the status %s: %s, %v", status, verdict, err)
	}
}

var keys atomic.Int64

// attempt returns a purchase of n units under an idempotency key of its own.
func attempt(o model.Offer, user string, n int) model.Attempt {
	return attemptUnder(o, user, n, fmt.Sprint("key-", keys.Add(1)))
}

func attemptUnder(o model.Offer, user string, n int, key string) model.Attempt {
	return model.Attempt{
		ID: orderIDs.Derive(user, o.ID, key), SaleID: o.ID, UserID: user, Quantity: n,
		IdempotencyKey: key, Shards: o.Shards,
	}
}

// keyless returns a purchase of one unit whose idempotency key the engine made.
func keyless(o model.Offer, user string) model.Attempt {
	a := attempt(o, user, 1)
	a.Keyless = true
	return a
}

// number returns the name of the i-th user.
func number(i int) string { return fmt.Sprint("u-", i) }

// try runs the strategy. An attempt that was queued counts as accepted, without an order: nobody settles it meanwhile.
func (e *engine) try(a model.Attempt) (model.Outcome, error) {
	got, err := e.strategy.Deduct(e.Context(), a)
	if got.Verdict == model.Queued {
		got.Verdict = model.Accepted
	}
	return got, err
}

// queued reports whether an accepted attempt was queued.
func queued(o model.Outcome) bool { return o.Verdict == model.Accepted && o.Order == nil }

// deduct runs the strategy, which must not return an error.
func (e *engine) deduct(a model.Attempt) model.Outcome {
	e.Helper()
	return check.Must(e.try(a))
}

// purchase has a user buy one unit through the use case. An empty key is one that the engine makes. If the purchase takes longer
// than it may, as on a busy machine, it is unavailable, as the API would answer.
func (e *engine) purchase(o model.Offer, user, key string) (model.Outcome, error) {
	got, err := e.purchases.Purchase(e.Context(), service.Request{UserID: user, SaleID: o.ID, Quantity: 1, Key: key})
	if e.Context().Err() == nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) {
		err = fmt.Errorf("%w: %w", model.ErrUnavailable, err)
	}
	return got, err
}

// insist has a user buy one unit, and asks again under the same key while the purchase is unavailable or queued, as on a busy
// machine.
func (e *engine) insist(o model.Offer, user, key string) (got model.Outcome, err error) {
	for range 20 {
		if got, err = e.purchase(o, user, key); !errors.Is(err, model.ErrUnavailable) && got.Verdict != model.Queued {
			break
		}
	}
	return got, err
}

// queue has a user queue an attempt of one unit at the gate.
func (e *engine) queue(o model.Offer, user string) model.Attempt {
	e.Helper()
	a := attempt(o, user, 1)
	if got := e.deduct(a); !queued(got) || got.Repeated {
		e.Fatalf("%s was not queued: %+v", user, got)
	}
	return a
}

// buy has a user buy n units, and settles the attempt.
func (e *engine) buy(o model.Offer, user string, n int) model.Attempt {
	e.Helper()
	a := attempt(o, user, n)
	if got := e.deduct(a); got.Verdict != model.Accepted {
		e.Fatalf("%s buys %d: %+v", user, n, got)
	}
	e.drain()
	return a
}

// cancel has a user cancel an order.
func (e *engine) cancel(a model.Attempt) {
	e.Helper()
	if _, verdict, err := e.orders.Cancel(e.Context(), a.UserID, a.ID); err != nil || verdict != model.Accepted {
		e.Errorf("cancel: %s, %v", verdict, err)
	}
}

// drain settles all queued attempts, also those that other instances have admitted.
func (e *engine) drain() {
	e.Helper()
	entries, _, err := e.gate.Leftovers(e.Context(), e.catalog.LiveGates(), 0, 10_000)
	check.Done(err)
	e.settler.Add(entries)
	check.Done(e.settler.Drain(e.Context()))
}

func (e *engine) peek(o model.Offer) model.GateState {
	e.Helper()
	return check.Must(e.gate.Peek(e.Context(), o.GateRef()))[0]
}

// agree checks that no attempt is queued, and that a strategy's gate has as many units as the database.
func (e *engine) agree(o model.Offer) {
	e.Helper()
	e.drain()
	if !e.kind.UsesGate {
		return
	}
	check.Eventually(e, "the stream is empty", func() bool { return e.peek(o).Stream == 0 }) // another instance may settle the entries
	books, state := e.books(o), e.peek(o)
	if !state.Open || state.Inflight != 0 || state.Left != books.Stock.Available {
		e.Errorf("the gate is %+v, the stock %+v", state, books.Stock)
	}
}

// wantSold checks the orders of a sale, each of one unit, and the gate.
func (e *engine) wantSold(o model.Offer, pending, rejected int64) {
	e.Helper()
	e.agree(o)
	e.wantOrders(o, pending, rejected, pending)
}

// replaceGate installs a new gate, as the auditor would demand.
func (e *engine) replaceGate(o model.Offer) {
	e.Helper()
	before := e.peek(o).Epoch
	check.Eventually(e, "a new gate", func() bool { // the controller may be installing one
		e.allowRebuild(o)
		check.Done(e.gates.Serve(e.Context(), service.GateRequest{SaleID: o.ID, Reason: "test", Epoch: before}))
		after := e.peek(o)
		return after.Open && after.Epoch > before
	})
}

// loseGate deletes some of a gate's keys, and lets a rebuild begin at once.
func (e *engine) loseGate(o model.Offer, names ...string) {
	e.Helper()
	for _, name := range names {
		found := check.Must(e.client.Keys(e.Context(), "fs:{"+o.ID+"*}:"+name).Result())
		check.Done(e.client.Del(e.Context(), found...).Err())
	}
	e.allowRebuild(o)
}

// atOnce runs n calls that begin at the same moment, and returns their outcomes. The outcome of a call that returned
// model.ErrUnavailable is unavailable; any other error fails the test.
func (s *stores) atOnce(n int, call func(i int) (model.Outcome, error)) []model.Outcome {
	s.Helper()
	return check.Collect(n, func(i int) model.Outcome {
		got, err := call(i)
		switch {
		case errors.Is(err, model.ErrUnavailable):
			got = model.Outcome{Verdict: model.Unavailable}
		case err != nil:
			s.Errorf("call %d: %v", i, err)
		}
		return got
	})
}

// rush has n users try to buy one unit each at once, each at one of the engines.
func rush(o model.Offer, n int, engines ...*engine) []model.Outcome {
	return engines[0].atOnce(n, func(i int) (model.Outcome, error) {
		return engines[i%len(engines)].try(keyless(o, number(i)))
	})
}

type verdicts map[model.Verdict]int

func count(outcomes []model.Outcome) verdicts {
	counts := verdicts{}
	for _, o := range outcomes {
		counts[o.Verdict]++
	}
	return counts
}

func (s *stores) wantVerdicts(outcomes []model.Outcome, want verdicts) {
	s.Helper()
	check.Same(s, "verdicts", count(outcomes), want)
}
