package repository

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit"
)

// way is one of the two ways in which attempts become orders.
type way func(t *testing.T, d *testDB, saleID string, list ...model.Attempt) ([]model.Outcome, error)

var ways = map[string]way{
	"deduct": func(t *testing.T, d *testDB, saleID string, list ...model.Attempt) ([]model.Outcome, error) {
		return d.Deduct(t.Context(), saleID, list)
	},
	"settle": func(t *testing.T, d *testDB, saleID string, list ...model.Attempt) ([]model.Outcome, error) {
		return d.Settle(t.Context(), saleID, entries(list...))
	},
}

// Who was told that all is sold holds nothing of the limit: once units are back, that user buys.
func TestHole07_SoldOutInsideTheTransactionKeepsNoLimit(t *testing.T) {
	const yes, out = model.Accepted, model.SoldOut
	onBoth(t, func(t *testing.T, d *testDB) {
		for name, tc := range map[string]struct {
			left       int64
			quantities []int // of u0, u1, ... at a limit of 2
			want       []model.Verdict
		}{
			"nothing left":                  {0, []int{1}, []model.Verdict{out}},
			"alone, more than is left":      {1, []int{2}, []model.Verdict{out}},
			"several, more than is left":    {1, []int{2, 2}, []model.Verdict{out, out}},
			"beside one who gets the last":  {1, []int{1, 1}, []model.Verdict{yes, out}},
			"before one who gets the last":  {1, []int{2, 1}, []model.Verdict{out, yes}},
			"among many, in the same batch": {3, []int{2, 2, 1, 2, 1}, []model.Verdict{yes, out, yes, out, out}},
		} {
			for wayName, take := range ways {
				t.Run(wayName+"/"+name, func(t *testing.T) {
					sale := d.newSale(t, tc.left+1, limit(2))
					d.buy(t, sale.ID, "first", 1)
					list := make([]model.Attempt, len(tc.quantities))
					for i, n := range tc.quantities {
						list[i] = attempt(sale.ID, fmt.Sprint("u", i), "k", n)
					}
					got, err := take(t, d, sale.ID, list...)
					if err != nil {
						t.Fatal(err)
					}
					wantVerdicts(t, got, tc.want...)
					d.balanced(t)
					d.change(t, sale.ID, 20, nil)
					for i, n := range tc.quantities {
						if tc.want[i] != out {
							continue
						}
						if live := d.live(t, sale.ID, list[i].UserID); live != 0 {
							t.Errorf("u%d got nothing and has %d units of the limit", i, live)
						}
						got, err := take(t, d, sale.ID, attempt(sale.ID, list[i].UserID, "k2", n))
						if err != nil || got[0].Verdict != yes {
							t.Errorf("u%d, when units are back: %+v, %v", i, got, err)
						}
					}
				})
			}
		}
	})
}

// An insert that can't succeed: an error that says so, no order, nothing deducted, no limit used, and the
// same entry is settled, once, when the cause is gone.
func TestHole18_FailedInsert(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		type cause struct{ breaks, mends string }
		causes := map[string]cause{
			"orders lack a column":   {"ALTER TABLE orders RENAME COLUMN currency TO gone", "ALTER TABLE orders RENAME COLUMN gone TO currency"},
			"orders have one more":   {"ALTER TABLE orders RENAME COLUMN source TO source_of", "ALTER TABLE orders RENAME COLUMN source_of TO source"},
			"the orders are gone":    {"ALTER TABLE orders RENAME TO gone", "ALTER TABLE gone RENAME TO orders"},
			"the refusals are gone":  {"ALTER TABLE refusals RENAME TO gone", "ALTER TABLE gone RENAME TO refusals"},
			"the buyers are gone":    {"ALTER TABLE buyers RENAME TO gone", "ALTER TABLE gone RENAME TO buyers"},
			"buyers lack a column":   {"ALTER TABLE buyers RENAME COLUMN user_id TO gone", "ALTER TABLE buyers RENAME COLUMN gone TO user_id"},
			"the sales are gone":     {"ALTER TABLE sales RENAME TO gone", "ALTER TABLE gone RENAME TO sales"},
			"the request key is one": {"", ""}, // of another order, see below
		}
		for name, c := range causes {
			for wayName, take := range ways {
				t.Run(wayName+"/"+name, func(t *testing.T) {
					sale := d.newSale(t, 5)
					list := []model.Attempt{attempt(sale.ID, "me", "key", 1), attempt(sale.ID, "you", "key", 1)}
					if c.breaks == "" {
						foreign := attempt(sale.ID, "you", "other key", 1)
						foreign.ID = orderIDs.Derive("you", sale.ID, "of another key")
						foreign.RequestKey = "key"
						c.mends = "DELETE FROM orders WHERE id = '" + foreign.ID + "'"
						d.deduct(t, sale.ID, foreign)
						if _, verdict, err := d.Cancel(t.Context(), "you", foreign.ID); err != nil || verdict != model.Accepted {
							t.Fatalf("cancel: %s, %v", verdict, err)
						}
					} else {
						d.exec(t, c.breaks)
					}
					var got []model.Outcome
					var err error
					for range 2 {
						got, err = take(t, d, sale.ID, list...)
						if err == nil || got != nil {
							t.Errorf("broken, it says %+v, %v", got, err)
						}
						if wayName == "settle" && !errors.Is(err, model.ErrBroken) {
							t.Errorf("that it is broken isn't told: %v", err)
						}
					}
					d.exec(t, c.mends)
					d.wantUnits(t, sale.ID, units{available: 5})
					for _, a := range list {
						if o, ok, err := d.Order(t.Context(), a.ID); ok || err != nil {
							t.Errorf("%s was left with %+v, %v", a.UserID, o, err)
						}
						if n := d.live(t, sale.ID, a.UserID); n != 0 {
							t.Errorf("%s has %d units of the limit", a.UserID, n)
						}
					}
					for i := range 2 {
						if got, err = take(t, d, sale.ID, list...); err != nil {
							t.Fatal(err)
						}
						wantVerdicts(t, got, model.Accepted, model.Accepted)
						if got[0].Repeated != (i > 0) {
							t.Errorf("time %d: repeated is %t", i, got[0].Repeated)
						}
					}
					d.wantUnits(t, sale.ID, units{available: 3, held: 2})
				})
			}
		}
	})
}

// MariaDB only: SQLite takes texts of any length.
func TestHole18_KeyLongerThanItsColumn(t *testing.T) {
	t.Parallel()
	d := openDB(t, mariadbAddress(t))
	sale := d.newSale(t, 5)
	a := attempt(sale.ID, "me", strings.Repeat("k", 129), 1)
	if got, err := d.Deduct(t.Context(), sale.ID, []model.Attempt{a}); err == nil {
		t.Errorf("deduct: %+v", got)
	}
	if got, err := d.Settle(t.Context(), sale.ID, entries(a)); !errors.Is(err, model.ErrBroken) {
		t.Errorf("settle: %+v, %v", got, err)
	}
	d.wantUnits(t, sale.ID, units{available: 5})
	d.exec(t, "ALTER TABLE orders MODIFY request_key VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin NOT NULL")
	wantVerdicts(t, d.settle(t, sale.ID, a), model.Accepted)
	d.balanced(t)
}

// An entry that no repair can help is told apart from its batch, and refused for good when it is given up.
func TestHole18_PoisonedEntry(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		for _, quantity := range []int{0, -1, -3} {
			t.Run(fmt.Sprint("of ", quantity, " units"), func(t *testing.T) {
				sale := d.newSale(t, 5)
				fine, poison := attempt(sale.ID, "me", "k", 1), attempt(sale.ID, "you", "k", quantity)
				for _, batch := range [][]model.Attempt{{fine, poison}, {poison}} {
					if got, err := d.Settle(t.Context(), sale.ID, entries(batch...)); !errors.Is(err, model.ErrBroken) {
						t.Errorf("a batch of %d: %+v, %v", len(batch), got, err)
					}
					d.wantUnits(t, sale.ID, units{available: 5})
				}
				wantVerdicts(t, d.settle(t, sale.ID, fine), model.Accepted)
				if got, err := d.Refuse(t.Context(), entries(poison)[0], model.ReasonFailed); err != nil || got.Verdict != model.ReasonFailed {
					t.Errorf("given up: %+v, %v", got, err)
				}
				wantVerdicts(t, d.settle(t, sale.ID, poison, fine), model.ReasonFailed, model.Accepted)
				d.wantUnits(t, sale.ID, units{available: 4, held: 1})
			})
		}
	})
}

// What may pass isn't called broken: a caller that left, a server that dies before the commit. The entries
// are settled, once, when it is back.
func TestHole18_WhatPassesIsNotBroken(t *testing.T) {
	t.Run("the caller leaves", func(t *testing.T) {
		onBoth(t, func(t *testing.T, d *testDB) {
			sale := d.newSale(t, 2)
			list := attempts(sale.ID, "u", 3)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if got, err := d.Settle(ctx, sale.ID, entries(list...)); err == nil || errors.Is(err, model.ErrBroken) {
				t.Errorf("got %+v, %v", got, err)
			}
			d.wantUnits(t, sale.ID, units{available: 2})
			wantVerdicts(t, d.settle(t, sale.ID, list...), model.Accepted, model.Accepted, model.SoldOut)
		})
	})
	t.Run("the server dies", func(t *testing.T) {
		t.Parallel()
		server := kit.MariaDB(t)
		d := openDB(t, server.NewDatabase(t))
		sale := d.newSale(t, 2)
		list := attempts(sale.ID, "u", 3)
		d.afterStockMoves(t)(server.Kill)
		for _, when := range []string{"in mid-transaction", "before it"} {
			if got, err := d.Settle(t.Context(), sale.ID, entries(list...)); err == nil || errors.Is(err, model.ErrBroken) {
				t.Errorf("%s: %+v, %v", when, got, err)
			}
		}
		server.Restart()
		wantVerdicts(t, d.settle(t, sale.ID, list...), model.Accepted, model.Accepted, model.SoldOut)
		d.wantUnits(t, sale.ID, units{held: 2})
		d.balanced(t)
		select {
		case line := <-driverLines:
			t.Errorf("the driver logged by itself, in no form of ours: %s", line)
		default:
		}
	})
}

// However often and from how many sides an order is taken back, its unit comes back once.
func TestHole20_RevertTwice(t *testing.T) {
	const crowd = 12
	reverts := map[string]struct {
		revert func(t *testing.T, d *testDB, o model.Order) (model.Verdict, error)
		no     model.Verdict
		paid   bool
	}{
		"cancel": {func(t *testing.T, d *testDB, o model.Order) (model.Verdict, error) {
			_, verdict, err := d.Cancel(t.Context(), o.UserID, o.ID)
			return verdict, err
		}, model.NotCancellable, false},
		"refund": {func(t *testing.T, d *testDB, o model.Order) (model.Verdict, error) {
			_, verdict, err := d.RefundOrder(t.Context(), o.ID, "op")
			return verdict, err
		}, model.NotRefundable, true},
	}
	for name, tc := range reverts {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, d *testDB) {
				stores := []*testDB{d, d.peer(t)}
				sale := d.newSale(t, 5, limit(2))
				other, kept := d.buy(t, sale.ID, "you", 2), d.buy(t, sale.ID, "me", 1)
				orders := []model.Order{d.buy(t, sale.ID, "me", 1), d.buy(t, sale.ID, "other", 1)}
				if tc.paid {
					for i, o := range append(orders, other, kept) {
						d.pay(t, d.startPayment(t, o), fmt.Sprint("t", i))
					}
				}
				for _, want := range []model.Verdict{model.Accepted, tc.no, tc.no} { // one after the other
					if got, err := tc.revert(t, d, orders[0]); got != want || err != nil {
						t.Errorf("got %s, %v, want %s", got, err, want)
					}
					if s := d.stock(t, sale.ID); s.Available != 1 {
						t.Errorf("%d units are available, not 1", s.Available)
					}
				}
				var yes atomic.Int32
				together(crowd, func(i int) {
					switch got, err := tc.revert(t, stores[i%2], orders[1]); {
					case err != nil:
						t.Errorf("revert: %v", err)
					case got == model.Accepted:
						yes.Add(1)
					case got != tc.no:
						t.Errorf("got %s", got)
					}
				})
				if n := yes.Load(); n != 1 {
					t.Errorf("%d reverts were accepted", n)
				}
				if s := d.stock(t, sale.ID); s.Available != 2 {
					t.Errorf("%d units are available, not 2", s.Available)
				}
				for user, want := range map[string]int{"me": 1, "you": 2, "other": 0} {
					if n := d.live(t, sale.ID, user); n != want {
						t.Errorf("%s has %d units, want %d", user, n, want)
					}
				}
			})
		})
	}
}

// An order is cancelled, expired and paid at once: its unit goes one way.
func TestHole20_CancelAgainstExpireAndPay(t *testing.T) {
	const rounds = 30
	onBoth(t, func(t *testing.T, d *testDB) {
		other := d.peer(t)
		sale := d.newSale(t, rounds)
		for round := range rounds {
			o := d.buy(t, sale.ID, fmt.Sprint("u", round), 1)
			p := d.startPayment(t, o)
			d.overdue(t, time.Second, o.ID)
			var cancelled bool
			var expired int
			together(3, func(i int) {
				switch i {
				case 0:
					_, verdict, err := d.Cancel(t.Context(), o.UserID, o.ID)
					if cancelled = verdict == model.Accepted; err != nil {
						t.Errorf("cancel: %v", err)
					}
				case 1:
					bySale, err := other.ExpireDue(t.Context(), 0, 10)
					if expired = len(bySale[sale.ID]); err != nil {
						t.Errorf("expire: %v", err)
					}
				case 2:
					d.pay(t, p, "t "+o.ID[:30])
				}
			})
			want := model.OrderPaid // if need be by being reinstated, since no unit is short
			if cancelled {
				want = model.OrderCancelled
			}
			if now := d.order(t, o.ID); now.Status != want || cancelled && expired > 0 || expired > 1 {
				t.Errorf("cancelled: %t, expired: %d, and it is %s", cancelled, expired, now.Status)
			}
			d.balanced(t)
		}
	})
}

// dump gives all rows of all tables that an order's life touches.
func (d *testDB) dump(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, table := range []string{"sales", "stock", "orders", "refusals", "buyers", "payments", "operations"} {
		var rows []map[string]any
		if err := d.read.WithContext(context.WithoutCancel(t.Context())).Raw("SELECT * FROM " + table + " ORDER BY 1, 2").Scan(&rows).Error; err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			fmt.Fprintf(&all, "%s %v\n", table, r)
		}
	}
	return all.String()
}

// Whatever happens after a transaction has moved units, and before its commit, takes all of it back: no
// deduction without an order, no release without the order's end, and nothing is stuck afterwards.
func TestHole24_ExceptionAfterTheDeduction(t *testing.T) {
	acts := map[string]struct {
		from  model.OrderStatus
		act   func(ctx context.Context, d *testDB, id string, p model.Payment) error
		to    model.OrderStatus
		units units
	}{
		"deduct": {absent, func(ctx context.Context, d *testDB, id string, _ model.Payment) error {
			_, err := d.Deduct(ctx, model.SaleOf(id), []model.Attempt{attempt(model.SaleOf(id), "me", "k", 1)})
			return err
		}, model.OrderPending, units{available: 1, held: 1}},
		"settle": {absent, func(ctx context.Context, d *testDB, id string, _ model.Payment) error {
			_, err := d.Settle(ctx, model.SaleOf(id), entries(attempt(model.SaleOf(id), "me", "k", 1)))
			return err
		}, model.OrderPending, units{available: 1, held: 1}},
		"cancel": {model.OrderPending, func(ctx context.Context, d *testDB, id string, _ model.Payment) error {
			_, _, err := d.Cancel(ctx, "me", id)
			return err
		}, model.OrderCancelled, units{available: 2}},
		"expire": {model.OrderPending, func(ctx context.Context, d *testDB, _ string, _ model.Payment) error {
			_, err := d.ExpireDue(ctx, -time.Hour, 10) // before its time, which is in a quarter of an hour
			return err
		}, model.OrderExpired, units{available: 2}},
		"pay": {model.OrderPending, func(ctx context.Context, d *testDB, id string, p model.Payment) error {
			_, _, _, err := d.ApplyCallback(ctx, "bank", model.Callback{PaymentID: p.ID, ProviderTxnID: "p " + id[:30], Succeeded: true, AmountCents: p.AmountCents})
			return err
		}, model.OrderPaid, units{available: 1, paid: 1}},
		"pay late": {model.OrderExpired, func(ctx context.Context, d *testDB, id string, p model.Payment) error {
			_, _, _, err := d.ApplyCallback(ctx, "bank", model.Callback{PaymentID: p.ID, ProviderTxnID: "l " + id[:30], Succeeded: true, AmountCents: p.AmountCents})
			return err
		}, model.OrderPaid, units{available: 1, paid: 1}},
		"refund": {model.OrderPaid, func(ctx context.Context, d *testDB, id string, _ model.Payment) error {
			_, _, err := d.RefundOrder(ctx, id, "op")
			return err
		}, model.OrderRefunded, units{available: 2}},
	}
	onBoth(t, func(t *testing.T, d *testDB) {
		arm := d.afterStockMoves(t)
		trigger := "CREATE TRIGGER boom AFTER UPDATE ON stock FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'boom'"
		if d.sqlite {
			trigger = "CREATE TRIGGER boom AFTER UPDATE ON stock BEGIN SELECT RAISE(ABORT, 'boom'); END"
		}
		faults := map[string]func(t *testing.T, act func(ctx context.Context) error) error{
			"the statement fails": func(t *testing.T, act func(ctx context.Context) error) error {
				d.exec(t, trigger)
				defer d.exec(t, "DROP TRIGGER boom")
				return act(t.Context())
			},
			"the caller leaves": func(t *testing.T, act func(ctx context.Context) error) error {
				ctx, cancel := context.WithCancel(t.Context())
				arm(cancel)
				return act(ctx)
			},
			"the code panics": func(t *testing.T, act func(ctx context.Context) error) (err error) {
				arm(func() { panic("boom") })
				defer func() {
					if r := recover(); r == "boom" {
						err = errors.New("panicked")
					}
				}()
				return act(t.Context())
			},
		}
		for name, tc := range acts {
			for fault, run := range faults {
				t.Run(name+"/"+fault, func(t *testing.T) {
					sale := d.newSale(t, 2)
					id, p := d.orderIn(t, sale, tc.from)
					before := d.dump(t)
					act := func(ctx context.Context) error { return tc.act(ctx, d, id, p) }
					if err := run(t, act); err == nil {
						t.Error("nobody heard of it")
					}
					if after := d.dump(t); after != before {
						t.Errorf("it left\n%s, there was\n%s", after, before)
					}
					if err := act(t.Context()); err != nil {
						t.Fatalf("then: %v", err)
					}
					if o := d.order(t, id); o.Status != tc.to {
						t.Errorf("then the order is %s, want %s", o.Status, tc.to)
					}
					d.wantUnits(t, sale.ID, tc.units)
				})
			}
		}
	})
}

// A thousand orders are paid and expired at the same instant, while rivals wait for their units. Each order
// ends as paid, or as expired with its money due back; each unit is with one holder.
func TestHole26_PayAgainstExpire(t *testing.T) {
	const wave = 25
	onBoth(t, func(t *testing.T, d *testDB) {
		races := 1000
		if d.sqlite { // which has one writer, so that only whole transactions race
			races = 100
		}
		other, sale := d.peer(t), d.newSale(t, int64(races))
		list := attempts(sale.ID, "buyer", races)
		for batch := range slices.Chunk(list, 250) {
			for _, o := range d.settle(t, sale.ID, batch...) {
				if o.Verdict != model.Accepted {
					t.Fatalf("no order: %+v", o)
				}
			}
		}
		payments := make([]model.Payment, races)
		together(suiteConns, func(lane int) {
			for i := lane; i < races; i += suiteConns {
				payments[i] = d.startPayment(t, model.Order{ID: list[i].ID, UserID: list[i].UserID})
			}
		})

		var mu sync.Mutex
		expired, retaken, rivals := map[string]int{}, map[string]int{}, int64(0)
		for from := 0; from < races; from += wave {
			ids := make([]string, wave)
			for i := range ids {
				ids[i] = list[from+i].ID
			}
			d.overdue(t, time.Second, ids...)
			together(3*wave, func(i int) {
				place := from + i/3
				switch i % 3 {
				case 0:
					order, reinstated, verdict, err := d.ApplyCallback(t.Context(), "bank", model.Callback{
						PaymentID: payments[place].ID, ProviderTxnID: fmt.Sprint("t", place), Succeeded: true, AmountCents: 1990,
					})
					if err != nil || verdict != model.Accepted {
						t.Errorf("pay: %s, %v", verdict, err)
					}
					if reinstated {
						mu.Lock()
						retaken[order.ID]++
						mu.Unlock()
					}
				case 1:
					bySale, err := other.ExpireDue(t.Context(), 0, 1)
					if err != nil {
						t.Errorf("expire: %v", err)
					}
					mu.Lock()
					for _, r := range bySale[sale.ID] {
						expired[r.OrderID]++
					}
					mu.Unlock()
				case 2:
					got, err := other.Settle(t.Context(), sale.ID, entries(attempt(sale.ID, fmt.Sprint("rival", place), "k", 1)))
					if err != nil {
						t.Errorf("settle: %v", err)
						return
					}
					if got[0].Verdict == model.Accepted {
						mu.Lock()
						rivals++
						mu.Unlock()
					}
				}
			})
		}

		stored, _, err := d.Orders(t.Context(), model.OrderFilter{SaleID: sale.ID, Limit: 2 * races})
		if err != nil {
			t.Fatal(err)
		}
		status := map[string]string{}
		for _, o := range stored {
			status[o.ID] = string(o.Status)
		}
		money := map[string]map[string]string{} // by order and transaction
		var rows []paymentRow
		if err := d.read.WithContext(t.Context()).Find(&rows).Error; err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			if money[r.OrderID] == nil {
				money[r.OrderID] = map[string]string{}
			}
			money[r.OrderID][r.ProviderTxnID.String] = r.Status
		}
		ends := map[string]int64{}
		for i, a := range list {
			end, got := status[a.ID], money[a.ID]
			want := model.PaymentSucceeded
			switch {
			case end == string(model.OrderExpired):
				want = model.PaymentRefundDue
			case retaken[a.ID] > 0:
				end += " late"
			}
			if got[fmt.Sprint("t", i)] != string(want) || len(got) != 1 {
				t.Errorf("order %d is %s, its payments are %v", i, end, got)
			}
			if over := map[string]int{"paid": 0, "paid late": 1, "expired": 1}; expired[a.ID] != over[end] || retaken[a.ID] > 1 {
				t.Errorf("order %d is %s, was expired %d and retaken %d times", i, end, expired[a.ID], retaken[a.ID])
			}
			ends[end]++
		}
		t.Logf("%v, rivals: %d", ends, rivals)
		paid := ends["paid"] + ends["paid late"]
		if paid+ends["expired"] != int64(races) {
			t.Errorf("the orders ended as %v", ends)
		}
		if ends["paid"] == 0 || len(expired) == 0 {
			t.Errorf("one side won every race: %v", ends)
		}
		d.wantUnits(t, sale.ID, units{available: int64(races) - paid - rivals, held: rivals, paid: paid})
	})
}

// The provider's yes comes after the unit has been resold: the money goes back, and the unit has one owner.
func TestHole30_PaidLateAfterResale(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 1)
		late := d.buy(t, sale.ID, "late", 1)
		p := d.startPayment(t, late)
		d.overdue(t, time.Second, late.ID)
		if released := d.expireAll(t); len(released) != 1 {
			t.Fatalf("released %v", released)
		}
		owner := d.buy(t, sale.ID, "owner", 1)
		d.pay(t, d.startPayment(t, owner), "t owner")
		for range 2 { // told twice
			got, reinstated := d.pay(t, p, "t late")
			if got.Status != model.OrderExpired || reinstated {
				t.Errorf("the late order is %s, reinstated: %t", got.Status, reinstated)
			}
			d.wantUnits(t, sale.ID, units{paid: 1})
			due, err := d.RefundsDue(t.Context(), 10)
			if err != nil || len(due) != 1 || due[0].ID != p.ID || due[0].ProviderTxnID != "t late" || due[0].AmountCents != 1990 {
				t.Errorf("due to be refunded are %+v, %v", due, err)
			}
		}
		for user, want := range map[string]int{"late": 0, "owner": 1} {
			if n := d.live(t, sale.ID, user); n != want {
				t.Errorf("%s has %d units", user, n)
			}
		}
		if now := d.order(t, owner.ID); now.Status != model.OrderPaid {
			t.Errorf("the owner's order is %s", now.Status)
		}
	})
}

// Many buyers pay late for the few units that are left: as many are reinstated, the others get their money.
func TestHole30_ManyPayLateForFewUnits(t *testing.T) {
	const late, left = 20, 7
	onBoth(t, func(t *testing.T, d *testDB) {
		stores, sale := []*testDB{d, d.peer(t)}, d.newSale(t, late)
		list := attempts(sale.ID, "u", late)
		payments, ids := make([]model.Payment, late), make([]string, late)
		for i, o := range d.deduct(t, sale.ID, list...) {
			payments[i], ids[i] = d.startPayment(t, *o.Order), o.Order.ID
		}
		d.overdue(t, time.Second, ids...)
		d.expireAll(t)
		d.deduct(t, sale.ID, attempts(sale.ID, "rival", late-left)...)
		together(late, func(i int) { stores[i%2].pay(t, payments[i], fmt.Sprint("t", i)) })
		got := map[model.PaymentStatus]int{}
		for i, id := range ids {
			got[d.statuses(t, id)[fmt.Sprint("t", i)]]++
		}
		if want := map[model.PaymentStatus]int{model.PaymentSucceeded: left, model.PaymentRefundDue: late - left}; !maps.Equal(got, want) {
			t.Errorf("the payments are %v, want %v", got, want)
		}
		d.wantUnits(t, sale.ID, units{held: late - left, paid: left})
	})
}

// The time-out is worked off twice, one after the other and by several instances at once: stock +1.
func TestHole31_TimeoutTwice(t *testing.T) {
	const orders, crowd = 30, 8
	onBoth(t, func(t *testing.T, d *testDB) {
		stores := []*testDB{d, d.peer(t), d.peer(t)}
		one := d.newSale(t, 1)
		o := d.buy(t, one.ID, "me", 1)
		d.overdue(t, time.Second, o.ID)
		for _, want := range []int{1, 0, 0} {
			if released := d.expireAll(t); len(released) != want {
				t.Errorf("released %v, want %d", released, want)
			}
			d.wantUnits(t, one.ID, units{available: 1})
		}

		sales := []model.Sale{d.newSale(t, orders, limit(2)), d.newSale(t, orders, limit(2))}
		var ids []string
		for _, sale := range sales {
			for _, o := range d.deduct(t, sale.ID, attempts(sale.ID, "u", orders)...) {
				ids = append(ids, o.Order.ID)
			}
		}
		d.overdue(t, time.Second, ids...)
		released := make([][]string, crowd)
		together(crowd, func(i int) {
			for {
				bySale, err := stores[i%3].ExpireDue(t.Context(), 0, 7)
				if err != nil {
					t.Errorf("expire: %v", err)
				}
				if len(bySale) == 0 {
					return // what others have locked is theirs to expire
				}
				for _, list := range bySale {
					for _, r := range list {
						released[i] = append(released[i], r.OrderID)
					}
				}
			}
		})
		got := slices.Concat(released...)
		slices.Sort(got)
		slices.Sort(ids)
		if !slices.Equal(got, ids) {
			t.Errorf("%d releases of %d orders", len(got), len(ids))
		}
		for _, sale := range sales {
			d.wantUnits(t, sale.ID, units{available: orders})
		}
	})
}

// A refunded unit is a unit: somebody else buys it and pays for it, and its old owner may buy again.
func TestHole32_RefundedUnitIsSoldAgain(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 2, limit(2))
		first := d.buy(t, sale.ID, "first", 2)
		p := d.startPayment(t, first)
		d.pay(t, p, "t first")
		wantVerdicts(t, d.deduct(t, sale.ID, attempt(sale.ID, "second", "k", 2)), model.SoldOut)
		before := d.stock(t, sale.ID).Version
		order, verdict, err := d.RefundOrder(t.Context(), first.ID, "op")
		if err != nil || verdict != model.Accepted || order.Status != model.OrderRefunded {
			t.Fatalf("refund: %s, %s, %v", verdict, order.Status, err)
		}
		want := []model.GateChange{{Version: before + 1, OrderID: first.ID, UserID: "first", Units: 2}}
		if told := d.told(t, sale.ID, before); !slices.Equal(told, want) {
			t.Errorf("the gate is told %+v, want %+v", told, want)
		}
		due, err := d.RefundsDue(t.Context(), 10)
		if err != nil || len(due) != 1 || due[0].ID != p.ID {
			t.Errorf("due to be refunded are %+v, %v", due, err)
		}
		second := d.buy(t, sale.ID, "second", 1)
		again := d.buy(t, sale.ID, "first", 1)
		d.pay(t, d.startPayment(t, second), "t second")
		d.pay(t, d.startPayment(t, again), "t again")
		wantVerdicts(t, d.deduct(t, sale.ID, attempt(sale.ID, "third", "k", 1)), model.SoldOut)
		d.wantUnits(t, sale.ID, units{paid: 2})
		if now := d.order(t, first.ID); now.Status != model.OrderRefunded {
			t.Errorf("the first order is %s", now.Status)
		}
		list, _, err := d.Orders(t.Context(), model.OrderFilter{SaleID: sale.ID, Status: model.OrderPaid, Limit: 10})
		slices.SortFunc(list, func(a, b model.Order) int { return cmp.Compare(a.UserID, b.UserID) })
		if err != nil || len(list) != 2 || list[0].ID != again.ID || list[1].ID != second.ID {
			t.Errorf("paid are %+v, %v", list, err)
		}
	})
}
