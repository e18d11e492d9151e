package repository

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
)

// A user who was told that all units are sold buys when units are available again, see testBatches.
func TestHole07_SoldOutInsideTheTransactionKeepsNoLimit(t *testing.T) {
	const yes, out = model.Accepted, model.SoldOut
	asks := func(quantities ...int) (list []ask) {
		for i, n := range quantities {
			list = append(list, ask{fmt.Sprint("u", i), "k", n})
		}
		return list
	}
	testBatches(t, map[string]batchCase{
		"nothing left":                           {1, 0, 2, asks(1), verdictList{out}},
		"alone, more than is left":               {1, 1, 2, asks(2), verdictList{out}},
		"several, more than is left":             {1, 1, 2, asks(2, 2), verdictList{out, out}},
		"beside a user who gets the last unit":   {1, 1, 2, asks(1, 1), verdictList{yes, out}},
		"before a user who gets the last unit":   {1, 1, 2, asks(2, 1), verdictList{out, yes}},
		"among several users, in the same batch": {1, 3, 2, asks(2, 2, 1, 2, 1), verdictList{yes, out, yes, out, out}},
	})
}

// An insert that cannot succeed returns an error and leaves no order, no moved unit and no used limit. The same entries
// are settled once the cause is gone.
func TestHole18_FailedInsert(t *testing.T) {
	type cause struct{ breaks, mends string }
	rename := func(table, from, to string) cause {
		statement := "ALTER TABLE " + table + " RENAME COLUMN %s TO %s"
		return cause{fmt.Sprintf(statement, from, to), fmt.Sprintf(statement, to, from)}
	}
	missing := func(table string) cause {
		return cause{"ALTER TABLE " + table + " RENAME TO gone", "ALTER TABLE gone RENAME TO " + table}
	}
	causes := map[string]cause{
		"orders lack a column":     rename("orders", "currency", "gone"),
		"orders have a new column": rename("orders", "source", "source_of"),
		"buyers lack a column":     rename("buyers", "user_id", "gone"),
		"orders are missing":       missing("orders"),
		"buyers are missing":       missing("buyers"),
		"sales are missing":        missing("sales"),
	}
	onEach(t, inBatches, func(t *testing.T, d *testDB, by way) {
		check.Each(t, causes, func(t *testing.T, c cause) {
			sale := d.newSale(t, 5)
			list := []model.Attempt{attempt(sale.ID, "me", "key", 1), attempt(sale.ID, "you", "key", 1)}
			d.exec(t, c.breaks)
			for range 2 {
				got, err := by.try(t.Context(), d, list...)
				if err == nil || got != nil || by.name == "settle" && !errors.Is(err, model.ErrBroken) {
					t.Errorf("broken: %+v, %v", got, err)
				}
			}
			d.exec(t, c.mends)
			d.wantUnits(t, sale.ID, units{available: 5})
			for _, a := range list {
				d.noOrder(t, a)
				check.Same(t, "units of "+a.UserID, d.live(t, sale.ID, a.UserID), 0)
			}
			for _, repeated := range []bool{false, true} {
				got := d.take(t, by, list...)
				wantVerdicts(t, got, model.Accepted, model.Accepted)
				wantRepeated(t, got, repeated, repeated)
			}
			d.wantUnits(t, sale.ID, units{available: 3, held: 2})
		})
	})
}

// This is for MariaDB only: SQLite accepts texts of any length.
func TestHole18_KeyLongerThanItsColumn(t *testing.T) {
	t.Parallel()
	d := openDB(t, mariaDB(t))
	sale := d.newSale(t, 5)
	a := attempt(sale.ID, "me", strings.Repeat("k", 129), 1)
	if got, err := deducting.try(t.Context(), d, a); err == nil {
		t.Errorf("deduct: %+v", got)
	}
	if got, err := settling.try(t.Context(), d, a); !errors.Is(err, model.ErrBroken) {
		t.Errorf("settle: %+v, %v", got, err)
	}
	d.wantUnits(t, sale.ID, units{available: 5})
	d.exec(t, "ALTER TABLE orders MODIFY idempotency_key VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin NOT NULL")
	wantVerdicts(t, d.settle(t, a), model.Accepted)
}

// The schema refuses quantities that the checks of a request let pass. An entry that can never be settled breaks its
// batch, and is refused for good when it is given up.
func TestHole18_PoisonedEntry(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		for _, quantity := range []int{0, -1, -5} {
			t.Run(fmt.Sprint("of ", quantity, " units"), func(t *testing.T) {
				sale := d.newSale(t, 5)
				d.buy(t, sale.ID, "holder", 1) // so that the stock row may hold a unit less
				before := d.stock(t, sale.ID)
				fine, poison := attempt(sale.ID, "me", "k", 1), attempt(sale.ID, "you", "k", quantity)
				for _, by := range allWays {
					got, err := by.try(t.Context(), d, poison)
					if err == nil || slices.ContainsFunc(got, func(o model.Outcome) bool { return o != model.Outcome{} }) {
						t.Errorf("%s: %+v, %v", by.name, got, err)
					}
				}
				for _, batch := range [][]model.Attempt{{fine, poison}, {poison}} {
					if got, err := settling.try(t.Context(), d, batch...); !errors.Is(err, model.ErrBroken) {
						t.Errorf("a batch of %d: %+v, %v", len(batch), got, err)
					}
				}
				check.Same(t, "the stock", d.stock(t, sale.ID), before)
				d.noOrder(t, poison)
				check.Same(t, "rows of the user", d.buyers(t, poison), 0)
				wantVerdicts(t, d.settle(t, fine), model.Accepted)
				check.Same(t, "the refusal", d.refuse(t, poison, model.ReasonFailed).Verdict, model.ReasonFailed)
				wantVerdicts(t, d.settle(t, poison, fine), model.ReasonFailed, model.Accepted)
				d.wantUnits(t, sale.ID, units{available: 3, held: 2})
			})
		}
	})
}

// A server that dies is not called broken. The entries are settled later. In TestHole24, neither is a caller that leaves.
func TestHole18_WhatPassesIsNotBroken(t *testing.T) {
	t.Parallel()
	server := kit.MariaDB(t)
	d := openDB(t, server.NewDatabase(t))
	sale := d.newSale(t, 2)
	list := attempts(sale.ID, "u", 3)
	d.afterStockMoves(server.Kill)
	for _, when := range []string{"during the transaction", "before the transaction"} {
		if got, err := settling.try(t.Context(), d, list...); err == nil || errors.Is(err, model.ErrBroken) {
			t.Errorf("the server died %s: %+v, %v", when, got, err)
		}
	}
	server.Restart()
	wantVerdicts(t, d.settle(t, list...), model.Accepted, model.Accepted, model.SoldOut)
	d.wantUnits(t, sale.ID, units{held: 2})
	select {
	case line := <-driverLines:
		t.Errorf("the driver logs by itself: %s", line)
	default:
	}
}

// Many callers on two instances change the same order in the same way at once. The order changes once.
// TestOrderLife repeats each act in sequence.
func TestHole20_RevertTwice(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		stores := d.pair(t)
		check.Each(t, acts, func(t *testing.T, act act) {
			sale := d.newSale(t, 2)
			a, p := d.orderIn(t, sale, act.from)
			before := d.stock(t, sale.ID)
			check.Together(12, func(i int) {
				if err := act.do(t.Context(), stores[i%2], a, p); err != nil && !errors.Is(err, model.ErrLostRace) {
					t.Error(err)
				}
			})
			check.Same(t, "status", d.order(t, a.ID).Status, act.to)
			check.Same(t, "version", d.stock(t, sale.ID).Version, before.Version+1)
			d.wantUnits(t, sale.ID, act.units)
		})
	})
}

// A failure after a transaction has moved units, and before its commit, takes everything back. Afterwards the same act
// succeeds.
func TestHole24_ExceptionAfterTheDeduction(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
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
				d.afterStockMoves(cancel)
				return act(ctx)
			},
			"the code panics": func(t *testing.T, act func(ctx context.Context) error) (err error) {
				d.afterStockMoves(func() { panic("boom") })
				defer func() {
					if r := recover(); r == "boom" {
						err = errors.New("panicked")
					}
				}()
				return act(t.Context())
			},
		}
		for name, act := range acts {
			for fault, run := range faults {
				if name == "settle" && !d.sqlite && fault != "the statement fails" {
					continue // on MySQL, the commit is part of the same call
				}
				t.Run(name+"/"+fault, func(t *testing.T) {
					sale := d.newSale(t, 2)
					a, p := d.orderIn(t, sale, act.from)
					before := d.dump(t)
					err := run(t, func(ctx context.Context) error { return act.do(ctx, d, a, p) })
					if err == nil || fault == "the caller leaves" && errors.Is(err, model.ErrBroken) {
						t.Errorf("the act returns %v", err)
					}
					check.Same(t, "all rows", d.dump(t), before)
					check.NoError(t, act.do(t.Context(), d, a, p))
					check.Same(t, "status", d.order(t, a.ID).Status, act.to)
					d.wantUnits(t, sale.ID, act.units)
				})
			}
		}
	})
}

// Orders are paid, expired and every other one cancelled at the same instant, while rivals wait for their units. Each order
// ends as paid, or as expired or cancelled with its money due for a refund. Each unit has one holder.
func TestHole26_PayAgainstExpire(t *testing.T) {
	const wave = 25
	type end struct {
		status              model.OrderStatus
		expired, reinstated int // how often
		payment             model.PaymentStatus
	}
	inTime := end{model.OrderPaid, 0, 0, model.PaymentSucceeded}
	late := end{model.OrderPaid, 1, 1, model.PaymentSucceeded}
	refunded := end{model.OrderExpired, 1, 0, model.PaymentRefundDue}
	cancelled := end{model.OrderCancelled, 0, 0, model.PaymentRefundDue}
	onBoth(t, func(t *testing.T, d *testDB) {
		races := 1000
		if d.sqlite { // has one writer, so only whole transactions race
			races = 100
		}
		stores, sale := d.pair(t), d.newSale(t, int64(races))
		ids, orders, payments := []string{}, []model.Order{}, make([]model.Payment, races)
		for batch := range slices.Chunk(attempts(sale.ID, "buyer", races), 250) {
			for _, o := range d.settle(t, batch...) {
				ids, orders = append(ids, o.Order.ID), append(orders, *o.Order)
			}
		}
		check.Together(suiteConns, func(lane int) {
			for i := lane; i < races; i += suiteConns {
				payments[i] = d.startPayment(t, orders[i])
			}
		})

		var mu sync.Mutex
		expired, reinstated, rivals := map[string]int{}, map[string]int{}, int64(0)
		for from := 0; from < races; from += wave {
			d.overdue(t, time.Second, ids[from:from+wave]...)
			check.Together(4*wave, func(i int) {
				place := from + i/4
				switch i % 4 {
				case 0:
					order, again := d.pay(t, payments[place], "t "+orders[place].ID)
					if again {
						mu.Lock()
						defer mu.Unlock()
						reinstated[order.ID]++
					}
				case 1:
					bySale, err := stores[1].expireDue(t.Context(), 0, 1)
					check.Error(t, "expire", err, nil)
					mu.Lock()
					defer mu.Unlock()
					for _, r := range bySale[sale.ID] {
						expired[r.OrderID]++
					}
				case 2:
					rival := attempt(sale.ID, fmt.Sprint("rival", place), "k", 1)
					if stores[1].retry(t, settling, rival)[0].Verdict == model.Accepted {
						mu.Lock()
						defer mu.Unlock()
						rivals++
					}
				case 3:
					if place%2 == 0 {
						_, _, err := d.Cancel(t.Context(), orders[place].UserID, orders[place].ID)
						check.Error(t, "cancel", err, nil)
					}
				}
			})
		}

		ends := map[end]int64{}
		for _, o := range orders {
			statuses := d.statuses(t, o.ID)
			check.Same(t, fmt.Sprintf("the payments of order %s, %v", o.ID, statuses), len(statuses), 1)
			ends[end{d.order(t, o.ID).Status, expired[o.ID], reinstated[o.ID], statuses["t "+o.ID]}]++
		}
		if ends[inTime]+ends[late]+ends[refunded]+ends[cancelled] != int64(races) {
			t.Errorf("the orders ended as %+v", ends)
		}
		if ends[inTime] == 0 || len(expired) == 0 || ends[cancelled] == 0 {
			t.Errorf("one side won no race: %+v", ends)
		}
		paid := ends[inTime] + ends[late]
		d.wantUnits(t, sale.ID, units{available: int64(races) - paid - rivals, held: rivals, paid: paid})
	})
}

// A payment for an expired order reinstates the order if its units and the user's limit are still there. Otherwise the
// money is due for a refund, and each unit has one owner.
func TestHole30_PaidLateAfterResale(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		type sale = model.Sale
		type row struct {
			quota      int64
			mine       int
			limit      int
			meanwhile  func(t *testing.T, s sale)
			reinstated bool
		}
		check.Each(t, map[string]row{
			"its units are available":    {2, 2, 2, func(*testing.T, sale) {}, true},
			"one of its units is resold": {2, 2, 2, func(t *testing.T, s sale) { d.buy(t, s.ID, "you", 1) }, false},
			"all of them are resold":     {1, 1, 1, func(t *testing.T, s sale) { d.buy(t, s.ID, "you", 1) }, false},
			"all are resold and paid":    {1, 1, 1, func(t *testing.T, s sale) { d.payFor(t, d.buy(t, s.ID, "you", 1)) }, false},
			"others are available":       {5, 2, 2, func(t *testing.T, s sale) { d.buy(t, s.ID, "you", 2) }, true},
			"the user bought again":      {5, 1, 1, func(t *testing.T, s sale) { d.buy(t, s.ID, "me", 1) }, false},
			"the limit allows both":      {5, 1, 2, func(t *testing.T, s sale) { d.buy(t, s.ID, "me", 1) }, true},
			"both are above the limit":   {5, 2, 2, func(t *testing.T, s sale) { d.buy(t, s.ID, "me", 1) }, false},
			"the limit was lowered":      {5, 2, 2, func(t *testing.T, s sale) { d.change(t, s.ID, 0, limit(1)) }, false},
			"the sale is over":           {1, 1, 1, func(t *testing.T, s sale) { d.change(t, s.ID, 0, status(model.SaleClosed)) }, true},
			"the user bought, sold out": {2, 1, 1, func(t *testing.T, s sale) {
				d.buy(t, s.ID, "me", 1)
				d.buy(t, s.ID, "you", 1)
			}, false},
			"all are resold, and units are added": {1, 1, 1, func(t *testing.T, s sale) {
				d.buy(t, s.ID, "you", 1)
				d.change(t, s.ID, 1)
			}, true},
		}, func(t *testing.T, tc row) {
			sale := d.newSale(t, tc.quota, limit(tc.limit))
			o := d.buy(t, sale.ID, "me", tc.mine)
			p := d.startPayment(t, o)
			d.expire(t, o)
			tc.meanwhile(t, sale)
			want, live := d.stock(t, sale.ID), d.live(t, sale.ID, "me")
			version, units := want.Version, int64(tc.mine)
			got, reinstated := d.pay(t, p, "late "+sale.ID)
			check.Same(t, "reinstated", reinstated, tc.reinstated)
			check.Same(t, "the returned order", got, d.order(t, o.ID))
			if tc.reinstated {
				check.Same(t, "status", got.Status, model.OrderPaid)
				check.Same(t, "payments", d.statuses(t, o.ID), payments{"late " + sale.ID: model.PaymentSucceeded})
				want.Available, want.Paid, want.Version = want.Available-units, want.Paid+units, want.Version+1
				want.GateVersion = want.Version
				taken := []model.GateChange{{Version: want.Version, OrderID: o.ID, UserID: "me", Units: -units}}
				check.Same(t, "changes for the gate", d.told(t, sale.ID, version), taken)
				live += tc.mine
			} else {
				check.Same(t, "status", got.Status, model.OrderExpired)
				due := p
				due.ProviderTxnID, due.Status = "late "+sale.ID, model.PaymentRefundDue
				check.Same(t, "refunds due", d.refundsDue(t, o), []model.Payment{due})
			}
			check.Same(t, "the stock", d.stock(t, sale.ID), want)
			check.Same(t, "the user's units", d.live(t, sale.ID, "me"), live)
			again, reinstated := d.pay(t, p, "late "+sale.ID)
			check.Same(t, "the order after a repeat", again, got)
			check.Same(t, "reinstated by a repeat", reinstated, false)
			check.Same(t, "the stock after a repeat", d.stock(t, sale.ID), want)
		})
	})
}

// refundsDue returns the payments of an order that are due for a refund.
func (d *testDB) refundsDue(t *testing.T, o model.Order) []model.Payment {
	t.Helper()
	due, _, err := d.RefundsDue(t.Context(), "bank", 100)
	check.NoError(t, err)
	return slices.DeleteFunc(due, func(p model.Payment) bool { return p.OrderID != o.ID })
}

// Many buyers pay late for the few units that are left. As many orders are reinstated; the other money is refunded.
func TestHole30_ManyPayLateForFewUnits(t *testing.T) {
	const late, left = 20, 7
	onBoth(t, func(t *testing.T, d *testDB) {
		stores, sale := d.pair(t), d.newSale(t, late)
		list := make([]model.Payment, late)
		for i := range list {
			o := d.buy(t, sale.ID, fmt.Sprint("u", i), 1)
			list[i] = d.startPayment(t, o)
			d.expire(t, o)
		}
		d.deduct(t, attempts(sale.ID, "rival", late-left)...)
		check.Together(late, func(i int) { stores[i%2].pay(t, list[i], "t "+list[i].ID) })
		all := payments{}
		for _, p := range list {
			all[p.ID] = d.statuses(t, p.OrderID)["t "+p.ID]
		}
		want := map[model.PaymentStatus]int{model.PaymentSucceeded: left, model.PaymentRefundDue: late - left}
		check.Same(t, "payments", countStatuses(all), want)
		d.wantUnits(t, sale.ID, units{held: late - left, paid: left})
	})
}

// Several instances expire the orders of two sales at once, a few at a time. Each order expires once. TestOrderLife
// expires an order twice in sequence.
func TestHole31_TimeoutTwice(t *testing.T) {
	const n = 30
	onBoth(t, func(t *testing.T, d *testDB) {
		stores, sales := d.pair(t), []model.Sale{d.newSale(t, n), d.newSale(t, n)}
		for _, sale := range sales {
			for _, o := range d.deduct(t, attempts(sale.ID, "u", n)...) {
				d.overdue(t, time.Second, o.Order.ID)
			}
		}
		expired := check.Collect(8, func(i int) (count int) {
			for {
				bySale, err := stores[i%2].expireDue(t.Context(), 0, 7)
				check.Error(t, "expire", err, nil)
				if len(bySale) == 0 {
					return count // the others expire the orders that they have locked
				}
				for _, released := range bySale {
					count += len(released)
				}
			}
		})
		sum := 0
		for _, count := range expired {
			sum += count
		}
		check.Same(t, "expired orders", sum, 2*n)
		for _, sale := range sales {
			d.wantUnits(t, sale.ID, units{available: n})
		}
	})
}

// The units of a refunded order are sold and paid again, also to the same user. TestOrderLife has what the gate is told.
func TestHole32_RefundedUnitIsSoldAgain(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 2, limit(2))
		first := d.payFor(t, d.buy(t, sale.ID, "first", 2))
		wantVerdicts(t, d.deduct(t, attempt(sale.ID, "second", "k", 2)), model.SoldOut)
		d.refund(t, first)
		if _, verdict, err := d.RefundOrder(t.Context(), first.ID, "op"); verdict != model.NotRefundable || err != nil {
			t.Errorf("the second refund, which must not be logged: %s, %v", verdict, err)
		}
		detail := "order " + first.ID + " of first: paid -> refunded, quantity 2, 3980 cents"
		check.Same(t, "rows in the log", d.logged(t, "op", "refund", sale.ID, detail), 1)
		for _, user := range []string{"second", "first"} {
			d.payFor(t, d.buy(t, sale.ID, user, 1))
		}
		wantVerdicts(t, d.deduct(t, attempt(sale.ID, "third", "k", 1)), model.SoldOut)
		d.wantUnits(t, sale.ID, units{paid: 2})
		check.Same(t, "status of the first order", d.order(t, first.ID).Status, model.OrderRefunded)
	})
}
