package worker

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"flashsale/internal/observe"
	"flashsale/model"
	"flashsale/service"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
	"flashsale/test/kit/instance"
)

func TestMain(m *testing.M) {
	logging.Disable() // every error is returned, and the tests cause some
	kit.Main(m)
}

// engine is an instance with a settler.
type engine struct {
	*instance.Instance
	raw     *sql.DB // the test's own way into the database
	waiters *service.Waiters
	settler *Settler
	log     *check.Log
}

// eachEngine runs a test on both pairs of stores, with an instance "here".
func eachEngine(t *testing.T, test func(e *engine)) {
	t.Helper()
	kit.EachStores(t, func(t *testing.T, s kit.Stores) {
		here := instance.Open(t, s.Database, s.Redis)
		test(newEngine(here, "here", kit.OpenSQL(t, s.Database)))
	})
}

func newEngine(i *instance.Instance, name string, raw *sql.DB) *engine {
	e := &engine{Instance: i, raw: raw, waiters: service.NewWaiters(time.Now), log: &check.Log{}}
	e.settler = NewSettler(SettlerNeeds{
		Stream: e.Gate, Ledger: e.DB, Live: e.Catalog.LiveGates, Instance: name,
		Running: func(context.Context, time.Duration) []string { return nil },
		Apart:   e.waiters.Apart, Wake: e.waiters.Wake, Now: time.Now, Log: slog.New(e.log),
		Lost: func(gate model.GateRef) {
			e.Gates.ReplaceGate(gate.SaleID, e.Catalog.Epoch(gate.SaleID), model.RebuildLost)
		},
	})
	return e
}

// execute changes the database without the engine.
func (e *engine) execute(statement string, args ...any) {
	e.Helper()
	_, err := e.raw.ExecContext(e.Context(), statement, args...)
	check.NoError(e, err)
}

// listens runs the listener for announcements of other instances, and waits until Redis knows that so many listen.
func (e *engine) listens(channel string, listeners int64) {
	e.Running(func(ctx context.Context) { e.Gate.Listen(ctx, func(string) {}, e.waiters.Look) })
	check.Eventually(e, "the instance listens", func() bool {
		counts, err := e.Client.PubSubNumSub(e.Context(), channel).Result()
		return err == nil && counts[channel] == listeners
	})
}

// admit sends an attempt through the gate, which must answer with the outcome. It returns the entry of a new attempt.
// Unless the entry is handed over to a settler, its instance has died with it.
func (e *engine) admit(a model.Attempt, want model.Outcome) (entry model.Entry) {
	e.Helper()
	got := e.Gate.Admit(e.Context(), []model.Attempt{a})[0]
	if got.Err != nil || got.Outcome != want {
		e.Fatalf("admit: %+v; want %+v", got, want)
	}
	if got.Entry != nil {
		entry = *got.Entry
	}
	return entry
}

var admitted = model.Outcome{Verdict: model.Accepted}

func (e *engine) wantPending(a model.Attempt) {
	e.Helper()
	order, ok, err := e.DB.Order(e.Context(), a.ID)
	if err != nil || !ok || order.Status != model.OrderPending || order.Reason != "" || order.UserID != a.UserID {
		e.Errorf("the order of %s is %s %s, %t, %v", a.UserID, order.Status, order.Reason, ok, err)
	}
}

// The gate has marked an attempt as seen, and the instance dies before or after the commit. A repeated request is told
// that the attempt is queued, and the sweep of another instance makes one order.
func TestHole16_SeenBeforeTheCommit(t *testing.T) {
	check.Each(t, map[string]bool{"before the commit": false, "after the commit": true}, func(t *testing.T, committed bool) {
		eachEngine(t, func(e *engine) {
			o := e.Sale(10, 2)
			a := instance.Attempt(o, "u-1", "key")
			dead := &engine{Instance: e.Beside("dead")}
			entry := dead.admit(a, admitted)
			if committed {
				got, err := e.DB.Settle(e.Context(), o.ID, []model.Entry{entry})
				if err != nil || got[0].Verdict != model.Accepted {
					e.Fatalf("%+v, %v", got, err)
				}
			}
			e.settler.age = 0
			repeated := model.Outcome{Verdict: model.Accepted, Repeated: true}
			e.admit(a, repeated)
			e.Running(e.settler.Run)
			e.Settled(o, 1, 0)
			e.wantPending(a)
			e.admit(a, repeated)
			e.Settled(o, 1, 0)
		})
	})
}

// Two instances settle one stream: every entry becomes one order, and every buyer is woken on the buyer's instance.
func TestTwoSettlers(t *testing.T) {
	eachEngine(t, func(here *engine) {
		const n = 300
		o := here.Sale(n, 1)
		there := newEngine(here.Beside("there"), "there", here.raw)
		both := []*engine{here, there}
		for i, e := range both { // a wake-up without a listener is lost
			e.Running(e.settler.Run)
			e.listens("fs:control", int64(i+1))
		}
		attempts := make([]model.Attempt, n)
		for i := range n {
			a := instance.Attempt(o, fmt.Sprint("u-", i), "key")
			mine, other := both[i%2], i/2%2 == 1
			a.Waiter = mine.waiters.Waiter(nil, a.ID, check.Patience, check.Patience)
			entry := mine.admit(a, admitted)
			a.Waiter.Admit(time.Now())
			settles := mine
			if other { // as after a sweep
				mine.waiters.Apart([]model.Entry{entry})
				entry.Waiter, settles = nil, both[(i+1)%2]
			}
			settles.settler.Add([]model.Entry{entry})
			attempts[i] = a
		}
		for i, a := range attempts {
			got, err := a.Waiter.Told() // queued: the buyer has to look for the order
			here.wantPending(a)
			if other := i/2%2 == 1; err != nil || (got.Verdict == model.Queued) != other || !other && (got.Order == nil || got.Order.ID != a.ID) {
				here.Errorf("buyer %d heard %+v, %v", i, got, err)
			}
		}
		here.Settled(o, n, 0)
	})
}

// Somebody who can publish to Redis, and no more, announces that an attempt became an order. The buyer is not told so.
func TestHole55_ForgedWakeUp(t *testing.T) {
	eachEngine(t, func(e *engine) {
		o := e.Sale(1, 1)
		e.listens("fs:wake:here", 1)
		purchases := &service.Purchases{
			Catalog: e.Catalog, IDs: instance.OrderIDs, Strategy: forger{e}, Orders: e.DB, Waiters: e.waiters,
			SoldOut: &service.SoldOut{}, AckWait: check.Patience,
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
	a.Waiter.Admit(time.Now())
	f.waiters.Apart([]model.Entry{{Attempt: a}})
	order := model.Order{ID: a.ID, SaleID: a.SaleID, UserID: a.UserID, Quantity: 1, Status: model.OrderPending}
	for _, said := range []any{map[string]model.Outcome{a.ID: {Verdict: model.Accepted, Order: &order}}, []string{a.ID}} {
		payload, err := json.Marshal(said)
		if err == nil {
			err = f.Client.Publish(ctx, "fs:wake:here", payload).Err()
		}
		if err != nil {
			return model.Outcome{}, err
		}
	}
	return a.Waiter.Told()
}

// The stream alone is lost, by an operator or an eviction. The auditor has the gate replaced: the attempts that were
// queued are lost, and are not shown as queued any more. Later attempts are settled.
func TestStreamLost(t *testing.T) {
	eachEngine(t, func(e *engine) {
		o := e.Sale(10, 1)
		lost := e.admit(instance.Attempt(o, "u-1", "key"), admitted)
		check.NoError(e, e.Client.Del(e.Context(), instance.StreamKey(o)).Err())
		e.execute("UPDATE stock SET epoch_at_ms = 0 WHERE sale_id = ?", o.ID)
		later := e.admit(instance.Attempt(o, "u-2", "key"), admitted)
		log := slog.New(slog.DiscardHandler)
		controller := &Controller{Catalog: e.Catalog, Gates: e.Gates, SoldOut: &service.SoldOut{}, Shop: service.NewShop(e.DB), Log: log, Report: func(context.Context) error { return nil }}
		lease := func(ctx context.Context, loop string, ttl time.Duration) (bool, error) {
			return e.DB.Lease(ctx, loop, "here", ttl)
		}
		auditor := &Auditor{
			Audits: &service.Auditor{Store: e.DB, Gate: e.Gate}, Lease: lease, AuditLog: e.DB, Catalog: e.Catalog,
			Replace: e.Gates.ReplaceGate, Log: log,
		}
		e.Running(e.settler.Run, controller.Run, auditor.Run)
		e.settler.Add([]model.Entry{later})
		check.Eventually(e, "the later attempt is settled", func() bool {
			_, ok, err := e.DB.Order(e.Context(), later.ID)
			return err == nil && ok
		})
		check.Eventually(e, "the lost attempt is not queued any more", func() bool {
			_, known, err := e.Gate.Knows(e.Context(), o.GateRef(), lost.UserID, lost.ID)
			return err == nil && !known
		})
		e.Settled(o, 1, 0)
	})
}

// A settler has an entry in memory while Redis comes back empty and the gate is replaced. The order is made, and the gate,
// which lacks it, is replaced once more.
func TestOrderWhoseEntryWasLost(t *testing.T) {
	eachEngine(t, func(e *engine) {
		o := e.Sale(10, 1)
		inHand := e.admit(instance.Attempt(o, "u-1", "key"), admitted)
		check.NoError(e, e.Client.FlushAll(e.Context()).Err())
		replaced := func() {
			e.Helper()
			e.execute("UPDATE stock SET epoch_at_ms = 0 WHERE sale_id = ?", o.ID)
			check.NoError(e, e.Catalog.Refresh(e.Context()))
			check.NoError(e, e.Gates.Ensure(e.Context()))
			check.NoError(e, e.Catalog.Refresh(e.Context()))
		}
		replaced()
		check.Same(e, "units at the new gate", e.Peek(o).Left, 10)
		check.NoError(e, e.settler.settleSale(e.Context(), o.GateRef(), []model.Entry{inHand}))
		e.settler.acks.Wait()
		replaced()
		e.Settled(o, 1, 0)
	})
}

// A settler has an entry in memory while Redis comes back empty. A buyer who is then told that the attempt was lost is
// told the same under its id and its key from then on, also after the settler goes on.
func TestHole47_LostIsFinal(t *testing.T) {
	eachEngine(t, func(e *engine) {
		o := e.Sale(10, 1)
		inHand := e.admit(instance.Attempt(o, "u-1", "key"), admitted)
		a := inHand.Attempt
		check.NoError(e, e.Client.FlushAll(e.Context()).Err())
		told := e.look(e.DB, a)
		if told.Status != model.OrderRejected || told.Reason != model.ReasonLost {
			e.Fatalf("told %+v", told)
		}
		unchanged := func(when string) {
			e.Helper()
			check.Same(e, "the order when "+when, e.look(e.DB, a), told)
		}
		unchanged("asked again")
		check.NoError(e, e.settler.settleSale(e.Context(), o.GateRef(), []model.Entry{inHand}))
		unchanged("the settler went on")

		e.execute("UPDATE stock SET epoch_at_ms = 0 WHERE sale_id = ?", o.ID)
		check.NoError(e, e.Gates.Serve(e.Context(), service.GateRequest{SaleID: o.ID, Reason: "flushed"}))
		check.NoError(e, e.Catalog.Refresh(e.Context()))
		// The key is refused as lost, whatever the quantity. The unit goes back to the gate.
		e.Running(e.settler.Run)
		e.settler.Add([]model.Entry{e.admit(a, admitted)})
		e.Settled(o, 0, 1)
		two := a
		two.Quantity = 2
		outcomes, err := e.DB.Deduct(e.Context(), o.ID, []model.Attempt{two})
		if err != nil || outcomes[0].Verdict != model.ReasonLost {
			e.Errorf("the key with another quantity: %+v, %v", outcomes, err)
		}
		unchanged("the key came again")
		e.settler.Add([]model.Entry{e.admit(instance.Attempt(o, "u-1", "a new key"), admitted)})
		e.Settled(o, 1, 1)
	})
}

// look returns the order of an attempt as its buyer is told.
func (e *engine) look(ledger service.Refuser, a model.Attempt) model.Order {
	e.Helper()
	orders := &service.Orders{Desk: e.DB, Ledger: ledger, IDs: instance.OrderIDs, Catalog: e.Catalog, Gate: e.Gate, Gates: e.Gates}
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
		o := e.Sale(10, 1)
		a := instance.Attempt(o, "u-1", "key") // the gate does not know the attempt
		meanwhile := deskBefore{e.DB, func() {
			_, err := e.DB.Deduct(e.Context(), o.ID, []model.Attempt{a})
			check.NoError(e, err)
		}}
		check.Same(e, "the status that the buyer is told", e.look(meanwhile, a).Status, model.OrderPending)
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
		wrong, other := e.Sale(10, 1), e.Sale(10, 1)
		held := func(o model.Offer) (n int) {
			e.Helper()
			check.NoError(e, e.raw.QueryRowContext(e.Context(), "SELECT held FROM stock WHERE sale_id = ?", o.ID).Scan(&n))
			return n
		}
		for _, o := range []model.Offer{wrong, other} {
			for i := range 3 {
				e.admit(instance.Attempt(o, fmt.Sprint("u", i), "k"), admitted)
			}
		}
		check.NoError(e, e.settler.Drain(e.Context()))
		e.execute("UPDATE orders SET expires_at_ms = 1")
		e.execute("UPDATE stock SET held = 2, available = 8 WHERE sale_id = ?", wrong.ID)
		violated := make(chan struct{}, 10)
		expirer := &Expirer{
			Store: e.DB, Observe: observe.All{noted{observe.Violated, func(observe.Event) { violated <- struct{}{} }}}, Now: time.Now, Log: slog.New(e.log),
			Released: func(ctx context.Context, saleID string, _ []model.Release) { e.Gates.Changed(ctx, saleID) },
		}
		e.Running(expirer.Run)
		check.Eventually(e, "the other sale's orders have expired", func() bool { return held(other) == 0 })
		<-violated
		check.Eventually(e, "the violation is in the database's log", func() bool {
			var n int
			query := "SELECT COUNT(*) FROM audit_log WHERE action = 'violation' AND subject = ?"
			return e.raw.QueryRowContext(e.Context(), query, wrong.ID).Scan(&n) == nil && n == 1
		})
		e.execute("UPDATE stock SET held = 3, available = 7 WHERE sale_id = ?", wrong.ID)
		check.Eventually(e, "the orders expire once the books are right", func() bool { return held(wrong) == 0 })
		if len(violated) > 0 || e.log.Count("can't expire") == 0 { // the log also has a line if an expiry took too long
			e.Errorf("reported again: %q", e.log.Lines())
		}
	})
}
