// Package instance makes instances of the engine on real stores, for tests: without HTTP, strategy and loops. It must not
// import worker, because the internal tests of worker use it.
package instance

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"flashsale/gate"
	"flashsale/model"
	"flashsale/repository"
	"flashsale/service"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
)

// OrderIDs are those of all instances.
var OrderIDs = model.NewOrderIDs([]byte("a key for tests"))

// Instance is what an instance has of its stores. The stores and the loops end with the test.
type Instance struct {
	testing.TB
	DB      *repository.Store
	Redis   string // the value of --redis
	Client  *redis.Client
	Gate    *gate.Gate
	Catalog *service.Catalog
	Gates   *service.Gates
}

// Open migrates a database, and returns the instance "here" on it.
func Open(t testing.TB, database, redis string) *Instance {
	t.Helper()
	db, err := repository.Open(t.Context(), database, 8)
	check.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	check.NoError(t, db.MigrateUp(t.Context()))
	return (&Instance{TB: t, DB: db, Redis: redis}).Beside("here")
}

// Beside returns another instance on the same stores.
func (i *Instance) Beside(name string) *Instance {
	i.Helper()
	other := &Instance{TB: i.TB, DB: i.DB, Redis: i.Redis, Client: kit.RedisClient(i, i.Redis)}
	other.Gate = gate.New(other.Client, name)
	other.Catalog = service.NewCatalog(i.DB, time.Now)
	other.Gates = service.NewGates(i.DB, other.Gate, other.Catalog, false, slog.New(slog.DiscardHandler))
	check.NoError(i, other.Catalog.Refresh(i.Context()))
	return other
}

// Running runs loops until the returned function is called, or the test ends.
func (i *Instance) Running(loops ...func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for _, run := range loops {
		all.Go(func() { run(ctx) })
	}
	stop = sync.OnceFunc(func() { cancel(); all.Wait() })
	i.Cleanup(stop)
	return stop
}

// Sale opens a sale with its gate.
func (i *Instance) Sale(quota int64, limit int) model.Offer {
	i.Helper()
	now := time.Now()
	sale := model.Sale{
		ID: model.NewSaleID(), Title: "a sale", PriceCents: 100, Currency: "CNY", LimitPerUser: limit, PayTimeoutSeconds: 600,
		StartsAt: now.Add(-time.Hour), EndsAt: now.Add(time.Hour), Status: model.SaleLive, Revision: 1,
	}
	sale.Code = sale.ID[:8]
	check.NoError(i, i.DB.CreateSale(i.Context(), sale, quota, "tester"))
	check.NoError(i, i.Gates.Preheat(i.Context(), sale.ID))
	check.NoError(i, i.Catalog.Refresh(i.Context()))
	return model.Offer{Sale: sale}
}

// Attempt is a purchase of one unit.
func Attempt(o model.Offer, user, key string) model.Attempt {
	return model.Attempt{
		ID: OrderIDs.Derive(user, o.ID, key), SaleID: o.ID, UserID: user, Quantity: 1,
		IdempotencyKey: key,
	}
}

// StreamKey is the key of a sale's stream.
func StreamKey(o model.Offer) string { return "fs:{" + o.ID + "}:stream" }

// Peek returns the state of a sale's gate.
func (i *Instance) Peek(o model.Offer) model.GateState {
	i.Helper()
	states, err := i.Gate.Peek(i.Context(), o.GateRef())
	check.NoError(i, err)
	return states[0]
}

// Settled waits until a sale's stream is empty. It checks the books, the number of orders and refusals, and that the gate
// and the database agree.
func (i *Instance) Settled(o model.Offer, orders, refused int64) {
	i.Helper()
	check.Eventually(i, "the stream is empty", func() bool { return i.Peek(o).Stream == 0 })
	books, ok, err := i.DB.Books(i.Context(), o.ID)
	if v := books.Violations(); err != nil || !ok || len(v) > 0 {
		i.Fatalf("the books: %t, %v, %v", ok, err, v)
	}
	if books.Orders[model.OrderPending] != orders || books.Orders[model.OrderRejected] != refused {
		i.Errorf("the orders are %v, want %d and %d refused", books.Orders, orders, refused)
	}
	if state := i.Peek(o); state.Inflight != 0 || state.Left != books.Stock.Available {
		i.Errorf("the gate is %+v, the stock %+v", state, books.Stock)
	}
}
