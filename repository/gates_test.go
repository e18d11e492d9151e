package repository

import (
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

// A renewed epoch keeps a rebuild with a newer epoch away. An older epoch is not renewed.
func TestRenewEpoch(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 5)
		epoch := d.stock(t, sale.ID).Epoch
		for _, tc := range []struct{ renewed, want int64 }{{epoch, epoch}, {epoch - 1, epoch + 1}} {
			d.exec(t, "UPDATE stock SET epoch_at_ms = 1 WHERE sale_id = ?", sale.ID)
			check.NoError(t, d.RenewEpoch(t.Context(), sale.ID, tc.renewed))
			_, _, err := d.NextEpoch(t.Context(), sale.ID, epoch, 0, time.Hour)
			check.NoError(t, err)
			check.Same(t, fmt.Sprintf("epoch after epoch %d was renewed", tc.renewed), d.stock(t, sale.ID).Epoch, tc.want)
		}
	})
}

func TestNextEpoch(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 5)
		d.exec(t, "UPDATE stock SET epoch = 0")
		want := d.stock(t, sale.ID)
		for _, step := range []struct {
			name        string
			seen, gates int64
			pause       time.Duration
			won         bool
			epoch       int64 // in the row, after the step
		}{
			{"the first epoch needs no pause", 0, 0, time.Hour, true, 1},
			{"an epoch has just started", 1, 1, time.Hour, false, 1},
			{"the pause is over", 1, 1, 0, true, 2},
			{"of an older epoch", 1, 1, 0, false, 2},
			{"of an epoch that does not exist yet", 3, 3, 0, false, 2},
			{"above the gate's own", 2, 7, 0, true, 8},
			{"above a gate that is behind", 8, 3, 0, true, 9},
			{"another epoch has just started", 9, 9, time.Minute, false, 9},
		} {
			t.Run(step.name, func(t *testing.T) {
				epoch, won, err := d.NextEpoch(t.Context(), sale.ID, step.seen, step.gates, step.pause)
				if err != nil || won != step.won || won && epoch != step.epoch {
					t.Errorf("got %d, %t, %v, want %d, %t", epoch, won, err, step.epoch, step.won)
				}
				if want.Epoch = step.epoch; step.won {
					want.Version++ // so that whoever judged the sale before loses the race
				}
				check.Same(t, "the stock", d.stock(t, sale.ID), want)
			})
		}
		if _, won, err := d.NextEpoch(t.Context(), model.NewSaleID(), 0, 0, 0); won || err != nil {
			t.Errorf("an unknown sale: %t, %v", won, err)
		}
	})
}

// By the database's clock, a gate is rebuilt only after the pause.
func TestHole52_NextEpochWaitsOutThePause(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 1)
		for name, tc := range map[string]struct {
			ago time.Duration
			won bool
		}{
			"too early":                     {50 * time.Second, false},
			"late enough":                   {61 * time.Second, true},
			"before the clock was set back": {-time.Hour, true},
		} {
			d.exec(t, "UPDATE stock SET epoch = 0, epoch_at_ms = "+d.nowMillis()+" - ?", tc.ago.Milliseconds())
			if _, won, err := d.NextEpoch(t.Context(), sale.ID, 0, 0, time.Minute); won != tc.won || err != nil {
				t.Errorf("%s: won is %t, %v", name, won, err)
			}
		}
	})
}

func TestNextEpochHasOneWinner(t *testing.T) {
	const crowd, rounds = 24, 5
	onBoth(t, func(t *testing.T, d *testDB) {
		sale, stores := d.newSale(t, 1), d.pair(t)
		d.exec(t, "UPDATE stock SET epoch = 0")
		for seen := range int64(rounds) {
			winners := check.Collect(crowd, func(i int) int64 {
				epoch, won, err := stores[i%2].NextEpoch(t.Context(), sale.ID, seen, seen, 0)
				check.Error(t, "next epoch", err, nil)
				if !won {
					return 0
				}
				return epoch
			})
			winners = slices.DeleteFunc(winners, func(epoch int64) bool { return epoch == 0 })
			check.Same(t, "epochs of the winners", winners, []int64{seen + 1})
			check.Same(t, "the epoch", d.stock(t, sale.ID).Epoch, seen+1)
		}
	})
}

func TestGateContents(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale, foreign := d.newSale(t, 6, limit(2)), d.newSale(t, 6)
		d.buy(t, foreign.ID, "stranger", 1)
		ordered, refused, over := attempt(sale.ID, "a", "k", 2), attempt(sale.ID, "b", "k", 3), attempt(sale.ID, "a", "k2", 1)
		cancelled, paid := attempt(sale.ID, "c", "k", 1), attempt(sale.ID, "d", "k", 1)
		wantVerdicts(t, d.settle(t, ordered, refused, over), model.Accepted, model.LimitReached, model.LimitReached)
		d.cancel(t, *d.deduct(t, cancelled)[0].Order)
		d.payFor(t, *d.deduct(t, paid)[0].Order)
		lost := attempt(sale.ID, "e", "k", 1)
		lost.Quantity = 0 // the gate could not compare it, so the contents leave it out
		d.refuse(t, lost, model.ReasonLost)

		want := kit.ContentsOf(d.offer(t, sale.ID))
		check.Same(t, "available units", want.Of.Stock.Available, 3)
		want.Units["a"], want.Units["d"] = 2, 1
		for _, a := range []model.Attempt{ordered, refused, over, cancelled, paid} {
			want.Quantities[a.ID], want.Owners[a.ID] = a.Quantity, a.UserID
		}
		check.Same(t, "contents", d.gateContents(t, sale.ID), want)
		for page, err := range d.Buyers(t.Context(), sale.ID) {
			check.NoError(t, err)
			check.Same(t, "buyers", page, []model.Buyer{{UserID: "a", Units: 2}, {UserID: "d", Units: 1}})
		}
		if _, ok, err := d.GateContents(t.Context(), model.NewSaleID()); ok || err != nil {
			t.Errorf("an unknown sale has contents: %t, %v", ok, err)
		}
	})
}

func TestBooks(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 20, limit(3))
		d.buy(t, sale.ID, "a", 2)
		d.buy(t, sale.ID, "b", 2)
		d.payFor(t, d.buy(t, sale.ID, "c", 2))
		d.cancel(t, d.buy(t, sale.ID, "d", 2))
		d.expire(t, d.buy(t, sale.ID, "e", 2))
		d.refund(t, d.payFor(t, d.buy(t, sale.ID, "f", 2)))
		wantVerdicts(t, d.settle(t, attempt(sale.ID, "g", "k", 4)), model.LimitReached)
		got, ok, err := d.Books(t.Context(), sale.ID)
		if err != nil || !ok {
			t.Fatalf("the sale has no books: %t, %v", ok, err)
		}
		type counts = map[model.OrderStatus]int64
		check.Same(t, "the books", got, model.Books{
			Stock:       d.stock(t, sale.ID),
			Orders:      counts{"pending": 2, "paid": 1, "cancelled": 1, "expired": 1, "refunded": 1, "rejected": 1},
			Units:       counts{"pending": 4, "paid": 2, "cancelled": 2, "expired": 2, "refunded": 2, "rejected": 4},
			BuyersUnits: 6,
		})
		d.wantUnits(t, sale.ID, units{available: 14, held: 4, paid: 2})
		if _, ok, err := d.Books(t.Context(), model.NewSaleID()); ok || err != nil {
			t.Errorf("an unknown sale has books: %t, %v", ok, err)
		}
	})
}

// Contents and sums that are read in pages are complete, and only of the sale.
func TestHole53_ContentsComeInPages(t *testing.T) {
	const rows = 2*pageRows + 1
	onBoth(t, func(t *testing.T, d *testDB) {
		sale, foreign := d.newSale(t, 5), d.newSale(t, 5)
		d.buy(t, foreign.ID, "stranger", 1)
		insert := func(into, row string) {
			values := make([]string, rows)
			for i := range values {
				values[i] = strings.NewReplacer("SALE", sale.ID, "ROW", fmt.Sprintf("%04d", i)).Replace(row)
			}
			d.exec(t, "INSERT INTO "+into+" VALUES "+strings.Join(values, ","))
		}
		insert("buyers (sale_id, user_id, units)", "('SALE', 'u-ROW', 2)")
		insert("refusals (order_id, sale_id, user_id, quantity, reason, created_at_ms)",
			"('SALER-ROW', 'SALE', 'u-ROW', 3, 'sold_out', 1)")
		insert("orders ("+orderColumns+")", "('SALEO-ROW', 'SALE', 'u-ROW', 2, 100, 'CNY', 'pending', 'stream', 1, 'k', 1, 1)")
		got := d.gateContents(t, sale.ID)
		books, _, err := d.Books(t.Context(), sale.ID)
		var list [3]sum
		orders := func(i int, saleID string) rowsAfter[int64] {
			return rowsAfter[int64]{
				"SELECT number AS place, quantity AS units, 1 AS extra FROM orders WHERE number > ? AND sale_id = ? ORDER BY number", 0,
				[]any{saleID},
				&list[i],
			}
		}
		errSums := sums(d.read.WithContext(t.Context()), 700, orders(0, sale.ID), orders(1, "none"), orders(2, sale.ID))
		for _, table := range []string{"buyers", "refusals", "orders"} {
			d.exec(t, "DELETE FROM "+table+" WHERE sale_id = ?", sale.ID)
		}
		if len(got.Units) != rows || len(got.Quantities) != 2*rows || got.Owners[sale.ID+"O-1999"] != "u-1999" {
			t.Errorf("%d buyers and %d known attempts of %d", len(got.Units), len(got.Quantities), rows)
		}
		if err != nil || books.BuyersUnits != 2*rows || books.Units["pending"] != 2*rows || books.Orders["rejected"] != rows {
			t.Errorf("the books are %+v, %v", books, err)
		}
		check.Same(t, "the sums of orders", list, [3]sum{{rows, 2 * rows, rows}, {}, {rows, 2 * rows, rows}})
		check.Error(t, "the sums of orders", errSums, nil)
	})
}

// The schema refuses most statements that unbalance the books of a sale. The books show the others.
func TestBooksShowWhatIsWrong(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		for name, tc := range map[string]struct{ breaks, mends string }{
			"an order too few":    {"orders SET status = 'cancelled'", "orders SET status = 'pending'"},
			"a unit too many":     {"orders SET quantity = 2", "orders SET quantity = 1"},
			"an order paid":       {"orders SET status = 'paid'", "orders SET status = 'pending'"},
			"a buyer's unit lost": {"buyers SET units = 0", "buyers SET units = 1"},
			"a held unit too few": {
				"stock SET available = available + 1, held = held - 1", "stock SET available = available - 1, held = held + 1",
			},
		} {
			sale := d.newSale(t, 3)
			d.buy(t, sale.ID, "me", 1)
			d.exec(t, "UPDATE "+tc.breaks+" WHERE sale_id = ?", sale.ID)
			books, _, err := d.Books(t.Context(), sale.ID)
			if err != nil || len(books.Violations()) == 0 {
				t.Errorf("%s: the books seem correct: %+v, %v", name, books, err)
			}
			d.exec(t, "UPDATE "+tc.mends+" WHERE sale_id = ?", sale.ID)
		}
		sale := d.newSale(t, 3)
		for _, set := range []string{
			"available = available - 1", "held = held + 1", "quota = quota + 1",
			"available = -1, held = quota + 1", "held = -1, available = quota + 1", "paid = -1, available = quota + 1",
		} {
			if err := d.write.WithContext(t.Context()).Exec("UPDATE stock SET "+set+" WHERE sale_id = ?", sale.ID).Error; err == nil {
				t.Errorf("the schema accepts %s", set)
			}
		}
	})
}

// A reader during a rush sees the data as of one instant: the books always balance.
func TestReadersSeeOneInstant(t *testing.T) {
	const writers, each = 3, 6
	onBoth(t, func(t *testing.T, d *testDB) {
		sale, other := d.newSale(t, 40, limit(2)), d.pair(t)[1]
		var running sync.WaitGroup
		running.Add(writers)
		over := make(chan struct{})
		go func() {
			running.Wait()
			close(over)
		}()
		check.Together(writers+2, func(i int) {
			if i < writers {
				defer running.Done()
				for n := range each {
					o := d.retry(t, deducting, attempt(sale.ID, fmt.Sprint("w", i, "-", n), "k", 1))[0]
					if n%2 == 0 && o.Order != nil {
						d.cancel(t, *o.Order)
					}
				}
				return
			}
			for {
				books, ok, err := other.Books(t.Context(), sale.ID)
				if err != nil || !ok || len(books.Violations()) > 0 {
					t.Errorf("the books are %+v, %v: %v", books, err, books.Violations())
				}
				contents := other.gateContents(t, sale.ID)
				live := int64(0)
				for _, n := range contents.Units {
					live += int64(n)
				}
				check.Same(t, "live units and held units", live, contents.Of.Stock.Held)
				select {
				case <-over:
					return
				default:
				}
			}
		})
	})
}

// Reading does not wait for a transaction that hangs.
func TestReadersDontWaitForTheWriter(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 5)
		reader := d.another(t)
		looked := false
		d.afterStockMoves(func() {
			looked = true
			books, ok, err := reader.Books(t.Context(), sale.ID)
			if err != nil || !ok || books.Stock.Available != 5 || len(books.Violations()) > 0 {
				t.Errorf("during the transaction the books are %+v, %v", books, err)
			}
			wantVerdicts(t, reader.deduct(t, attempt(model.NewSaleID(), "you", "k", 1)), model.NotFound)
		})
		d.buy(t, sale.ID, "me", 1)
		check.Same(t, "the reader has looked", looked, true)
	})
}

// The changes for a gate are all changes that do not come from the gate, in the order of the commits. Their pages keep
// each version whole. Changes that the gate knows are forgotten.
func TestGateChanges(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale, other := d.newSale(t, 20, limit(3)), d.newSale(t, 5)
		d.buy(t, other.ID, "stranger", 1)
		start := d.stock(t, sale.ID).Version
		sold := []model.Attempt{attempt(sale.ID, "a", "k", 1), attempt(sale.ID, "b", "k", 2), attempt(sale.ID, "c", "k", 1)}
		slices.SortFunc(sold, func(a, b model.Attempt) int { return strings.Compare(a.ID, b.ID) })
		settled, locked := attempt(sale.ID, "d", "k", 3), attempt(sale.ID, "e", "k", 1)
		d.deduct(t, sold...)
		d.settle(t, settled) // which the gate knows
		d.take(t, locking, locked)
		d.cancel(t, d.order(t, settled.ID))
		d.change(t, sale.ID, 7)
		d.change(t, sale.ID, 0, limit(4))

		change := func(version int64, a model.Attempt, units int) model.GateChange {
			return model.GateChange{Version: start + version, OrderID: a.ID, UserID: a.UserID, Units: int64(units), Sold: units < 0}
		}
		want := []model.GateChange{
			change(1, sold[0], -sold[0].Quantity),
			change(1, sold[1], -sold[1].Quantity),
			change(1, sold[2], -sold[2].Quantity),
			change(3, locked, -1),
			change(4, settled, 3),
			{Version: start + 5, Units: 7},
		}
		check.Same(t, "changes for the gate", d.told(t, sale.ID, start), want)
		check.Same(t, "version up to which the gate is told", d.stock(t, sale.ID).GateVersion, d.stock(t, sale.ID).Version)
		for _, limit := range []int{1, 2, 3, 4, 5, 100} {
			var got []model.GateChange
			for after, more := start, true; more; {
				var page []model.GateChange
				var err error
				page, after, more, err = d.GateChanges(t.Context(), sale.ID, after, limit)
				check.NoError(t, err)
				if len(page) > limit+2 { // the version that the limit cuts is whole
					t.Errorf("limit %d: a page of %d", limit, len(page))
				}
				if got = append(got, page...); after != start+6 && (len(page) == 0 || page[len(page)-1].Version != after) {
					t.Errorf("limit %d: a page up to %d is %+v", limit, after, page)
				}
			}
			check.Same(t, fmt.Sprint("changes in pages of ", limit), got, want)
		}
		check.NoError(t, d.ForgetGateChanges(t.Context(), sale.ID, start+3))
		check.Same(t, "changes that are left", d.told(t, sale.ID, start), want[4:])
		check.Same(t, "changes of the other sale", d.count(t, "SELECT COUNT(*) FROM gate_changes WHERE sale_id = ?", other.ID), 1)
		d.exec(t, "UPDATE stock SET epoch = 0") // so that balanced does not look for the forgotten changes
	})
}

// A settle that refuses for want of units marks the present gate as wrong, and no later gate.
func TestWrongGateIsMarked(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 1)
		wantVerdicts(t, d.settle(t, attempt(sale.ID, "a", "k", 2)), model.LimitReached)
		check.Same(t, "wrong epoch before", d.stock(t, sale.ID).WrongEpoch, 0)
		wantVerdicts(t, d.settle(t, attempt(sale.ID, "b", "k", 1), attempt(sale.ID, "c", "k", 1)), model.Accepted, model.SoldOut)
		check.Same(t, "wrong epoch after a refusal for want of units", d.stock(t, sale.ID).WrongEpoch, 1)
		d.nextEpoch(t, sale.ID, 1)
		if s := d.stock(t, sale.ID); s.WrongEpoch >= s.Epoch {
			t.Errorf("in the next epoch: %+v", s)
		}
	})
}
