package repository

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"flashsale/model"
)

// TestRenewEpoch: a rebuild that says that it goes on keeps a newer one away, and an overtaken one doesn't.
func TestRenewEpoch(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 5)
		epoch := d.stock(t, sale.ID).Epoch
		for _, tc := range []struct{ renewed, won int64 }{{epoch, epoch}, {epoch - 1, epoch + 1}} {
			d.exec(t, "UPDATE stock SET epoch_at_ms = 1 WHERE sale_id = ?", sale.ID)
			if err := d.RenewEpoch(t.Context(), sale.ID, tc.renewed); err != nil {
				t.Fatal(err)
			}
			if _, _, err := d.NextEpoch(t.Context(), sale.ID, epoch, 0, time.Hour); err != nil || d.stock(t, sale.ID).Epoch != tc.won {
				t.Errorf("epoch %d of %d renewed: it is %d, %v", tc.renewed, epoch, d.stock(t, sale.ID).Epoch, err)
			}
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
			epoch       int64 // the row's afterwards
		}{
			{"the first one needs no pause", 0, 0, time.Hour, true, 1},
			{"one has just started", 1, 1, time.Hour, false, 1},
			{"the pause is over", 1, 1, 0, true, 2},
			{"of an older epoch", 1, 1, 0, false, 2},
			{"of an epoch that isn't there yet", 3, 3, 0, false, 2},
			{"above the gate's own", 2, 7, 0, true, 8},
			{"above a gate that is behind", 8, 3, 0, true, 9},
			{"one has just started again", 9, 9, time.Minute, false, 9},
		} {
			t.Run(step.name, func(t *testing.T) {
				epoch, won, err := d.NextEpoch(t.Context(), sale.ID, step.seen, step.gates, step.pause)
				if err != nil || won != step.won || won && epoch != step.epoch {
					t.Errorf("got %d, %t, %v, want %d, %t", epoch, won, err, step.epoch, step.won)
				}
				if want.Epoch = step.epoch; step.won {
					want.Version++ // whoever judged the sale before loses the race
				}
				if s := d.stock(t, sale.ID); s != want {
					t.Errorf("the stock is %+v, want %+v", s, want)
				}
			})
		}
		if _, won, err := d.NextEpoch(t.Context(), model.NewSaleID(), 0, 0, 0); won || err != nil {
			t.Errorf("an unknown sale: %t, %v", won, err)
		}
	})
}

// The database's clock bounds how often a gate is rebuilt: after the pause, and not a moment before.
func TestHole52_NextEpochWaitsOutThePause(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 1)
		for name, tc := range map[string]struct {
			ago time.Duration
			won bool
		}{"too early": {50 * time.Second, false}, "late enough": {61 * time.Second, true}, "before the clock was set back": {-time.Hour, true}} {
			t.Run(name, func(t *testing.T) {
				d.exec(t, "UPDATE stock SET epoch = 0, epoch_at_ms = "+d.nowMillis()+" - ?", tc.ago.Milliseconds())
				if _, won, err := d.NextEpoch(t.Context(), sale.ID, 0, 0, time.Minute); won != tc.won || err != nil {
					t.Errorf("won is %t, %v", won, err)
				}
			})
		}
	})
}

func TestNextEpochHasOneWinner(t *testing.T) {
	const crowd, rounds = 24, 5
	onBoth(t, func(t *testing.T, d *testDB) {
		sale, stores := d.newSale(t, 1), []*testDB{d, d.peer(t)}
		d.exec(t, "UPDATE stock SET epoch = 0")
		for seen := range int64(rounds) {
			var mu sync.Mutex
			var winners []int64
			together(crowd, func(i int) {
				epoch, won, err := stores[i%2].NextEpoch(t.Context(), sale.ID, seen, seen, 0)
				if err != nil {
					t.Errorf("next epoch: %v", err)
				}
				if won {
					mu.Lock()
					winners = append(winners, epoch)
					mu.Unlock()
				}
			})
			if !slices.Equal(winners, []int64{seen + 1}) {
				t.Errorf("from epoch %d won %v", seen, winners)
			}
		}
		if s := d.stock(t, sale.ID); s.Epoch != rounds {
			t.Errorf("the epoch is %d", s.Epoch)
		}
	})
}

func TestGateContents(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale, foreign := d.newSale(t, 6, limit(2)), d.newSale(t, 6)
		d.buy(t, foreign.ID, "stranger", 1)
		ordered, refused, over := attempt(sale.ID, "a", "k", 2), attempt(sale.ID, "b", "k", 3), attempt(sale.ID, "a", "k2", 1)
		wantVerdicts(t, d.settle(t, sale.ID, ordered, refused, over), model.Accepted, model.LimitReached, model.LimitReached)
		cancelled := d.buy(t, sale.ID, "c", 1)
		if _, verdict, err := d.Cancel(t.Context(), "c", cancelled.ID); err != nil || verdict != model.Accepted {
			t.Fatalf("cancel: %s, %v", verdict, err)
		}
		paid := d.buy(t, sale.ID, "d", 1)
		d.pay(t, d.startPayment(t, paid), "t")
		lost := attempt(sale.ID, "e", "k", 1) // has no request that the gate could compare
		lost.RequestHash = ""
		if _, err := d.Refuse(t.Context(), model.Entry{Attempt: lost}, model.ReasonLost); err != nil {
			t.Fatal(err)
		}

		got := d.gateContents(t, sale.ID)
		offer, _, err := d.Offer(t.Context(), sale.ID)
		if err != nil || got.Of != offer || got.Of.Stock.Available != 3 {
			t.Errorf("the offer is %+v, want %+v, %v", got.Of, offer, err)
		}
		if want := map[string]int{"a": 2, "d": 1}; !maps.Equal(got.Units, want) {
			t.Errorf("units by user are %v, want %v", got.Units, want)
		}
		want, owners := map[string]model.Request{}, map[string]string{}
		for _, a := range []model.Attempt{ordered, refused, over} {
			want[a.ID], owners[a.ID] = model.Request{Quantity: a.Quantity, Hash: a.RequestHash}, a.UserID
		}
		for _, o := range []model.Order{cancelled, paid} {
			want[o.ID], owners[o.ID] = model.Request{Quantity: o.Quantity, Hash: o.RequestHash}, o.UserID
		}
		if !maps.Equal(got.Requests, want) || !maps.Equal(got.Owners, owners) {
			t.Errorf("known are %v of %v, want %v of %v", got.Requests, got.Owners, want, owners)
		}
		if _, ok, err := d.GateContents(t.Context(), model.NewSaleID()); ok || err != nil {
			t.Errorf("an unknown sale has contents: %t, %v", ok, err)
		}
	})
}

func TestBooks(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 20, limit(3))
		for user, status := range map[string]model.OrderStatus{
			"a": model.OrderPending, "b": model.OrderPending, "c": model.OrderPaid, "d": model.OrderCancelled,
			"e": model.OrderExpired, "f": model.OrderRefunded,
		} {
			o := d.buy(t, sale.ID, user, 2)
			switch status {
			case model.OrderPaid, model.OrderRefunded:
				d.pay(t, d.startPayment(t, o), "t "+user)
				if status == model.OrderRefunded {
					if _, _, err := d.RefundOrder(t.Context(), o.ID, "op"); err != nil {
						t.Fatal(err)
					}
				}
			case model.OrderCancelled:
				if _, _, err := d.Cancel(t.Context(), user, o.ID); err != nil {
					t.Fatal(err)
				}
			case model.OrderExpired:
				d.overdue(t, time.Second, o.ID)
				d.expireAll(t)
			default:
			}
		}
		wantVerdicts(t, d.settle(t, sale.ID, attempt(sale.ID, "g", "k", 4)), model.LimitReached)
		got, ok, err := d.Books(t.Context(), sale.ID)
		if err != nil || !ok {
			t.Fatalf("no books: %t, %v", ok, err)
		}
		want := model.Books{
			Stock:       d.stock(t, sale.ID),
			Orders:      map[model.OrderStatus]int64{"pending": 2, "paid": 1, "cancelled": 1, "expired": 1, "refunded": 1, "rejected": 1},
			Units:       map[model.OrderStatus]int64{"pending": 4, "paid": 2, "cancelled": 2, "expired": 2, "refunded": 2, "rejected": 4},
			BuyersUnits: 6,
		}
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			t.Errorf("the books are\n%+v, want\n%+v", got, want)
		}
		d.wantUnits(t, sale.ID, units{available: 14, held: 4, paid: 2})
		if _, ok, err := d.Books(t.Context(), model.NewSaleID()); ok || err != nil {
			t.Errorf("an unknown sale has books: %t, %v", ok, err)
		}
	})
}

// TestHole53_ContentsComeInPages: what is read in pages and summed up in pages is all there, and only of the sale.
func TestHole53_ContentsComeInPages(t *testing.T) {
	const rows = 2*pageRows + 1
	onBoth(t, func(t *testing.T, d *testDB) {
		sale, foreign := d.newSale(t, 5), d.newSale(t, 5)
		d.buy(t, foreign.ID, "stranger", 1)
		all := func(row string) string {
			values := make([]string, rows)
			for i := range values {
				values[i] = strings.NewReplacer("SALE", sale.ID, "ROW", fmt.Sprintf("%04d", i)).Replace(row)
			}
			return " VALUES " + strings.Join(values, ",")
		}
		d.exec(t, "INSERT INTO buyers (sale_id, user_id, units)"+all("('SALE', 'u-ROW', 2)"))
		d.exec(t, "INSERT INTO refusals (order_id, sale_id, user_id, quantity, reason, request_hash, created_at_ms)"+
			all("('SALER-ROW', 'SALE', 'u-ROW', 3, 'sold_out', 'hash', 1)"))
		d.exec(t, "INSERT INTO orders (id, sale_id, user_id, quantity, amount_cents, currency, status, source, epoch, request_key, request_hash, created_at_ms, expires_at_ms)"+
			all("('SALEO-ROW', 'SALE', 'u-ROW', 2, 100, 'CNY', 'pending', 'stream', 1, 'k', 'hash', 1, 1)"))
		got := d.gateContents(t, sale.ID)
		books, _, err := d.Books(t.Context(), sale.ID)
		sum, units := int64(0), int64(0)
		errSums := sums(d.read.WithContext(t.Context()), "SELECT id, status AS kind, quantity AS units FROM orders WHERE id > ? AND id < ? ORDER BY id",
			sale.ID, sale.ID+behindSale, 700, func(_ string, n, u int64) { sum, units = sum+n, units+u })
		for _, table := range []string{"buyers", "refusals", "orders"} {
			d.exec(t, "DELETE FROM "+table+" WHERE sale_id = ?", sale.ID)
		}
		if len(got.Units) != rows || len(got.Requests) != 2*rows || got.Owners[sale.ID+"O-1999"] != "u-1999" {
			t.Errorf("%d buyers, %d known attempts of %d", len(got.Units), len(got.Requests), rows)
		}
		if err != nil || books.BuyersUnits != 2*rows || books.Units["pending"] != 2*rows || books.Orders["rejected"] != rows {
			t.Errorf("the books are %+v, %v", books, err)
		}
		if errSums != nil || sum != rows || units != 2*rows {
			t.Errorf("in pages %d orders of %d units, %v", sum, units, errSums)
		}
	})
}

// Books that don't balance say so. The schema refuses most of what could unbalance them, so orders and buyers
// are spoilt behind the engine's back.
func TestBooksFindWhatIsWrong(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		for name, tc := range map[string]struct{ spoil, mend string }{
			"an order too few":    {"UPDATE orders SET status = 'cancelled'", "UPDATE orders SET status = 'pending'"},
			"a unit too many":     {"UPDATE orders SET quantity = 2", "UPDATE orders SET quantity = 1"},
			"an order paid":       {"UPDATE orders SET status = 'paid'", "UPDATE orders SET status = 'pending'"},
			"a buyer's unit lost": {"UPDATE buyers SET units = 0", "UPDATE buyers SET units = 1"},
			"a held unit too few": {"UPDATE stock SET available = available + 1, held = held - 1", "UPDATE stock SET available = available - 1, held = held + 1"},
		} {
			t.Run(name, func(t *testing.T) {
				sale := d.newSale(t, 3)
				o := d.buy(t, sale.ID, "me", 1)
				d.exec(t, tc.spoil+" WHERE sale_id = ?", o.SaleID)
				books, _, err := d.Books(t.Context(), sale.ID)
				if err != nil || len(books.Violations()) == 0 {
					t.Errorf("the books look fine: %+v, %v", books, err)
				}
				d.exec(t, tc.mend+" WHERE sale_id = ?", o.SaleID)
			})
		}
		sale := d.newSale(t, 3)
		for _, statement := range []string{
			"UPDATE stock SET available = available - 1 WHERE sale_id = ?",
			"UPDATE stock SET held = held + 1 WHERE sale_id = ?",
			"UPDATE stock SET quota = quota + 1 WHERE sale_id = ?",
			"UPDATE stock SET available = -1, held = quota + 1 WHERE sale_id = ?",
			"UPDATE stock SET held = -1, available = quota + 1 WHERE sale_id = ?",
			"UPDATE stock SET paid = -1, available = quota + 1 WHERE sale_id = ?",
		} {
			if err := d.write.WithContext(t.Context()).Exec(statement, sale.ID).Error; err == nil {
				t.Errorf("the schema takes %s", statement)
			}
		}
	})
}

// A reader in the middle of a rush sees one instant: every look at the books balances.
func TestReadersSeeOneInstant(t *testing.T) {
	const writers, each = 3, 6
	onBoth(t, func(t *testing.T, d *testDB) {
		sale, other := d.newSale(t, 40, limit(2)), d.peer(t)
		var running sync.WaitGroup
		running.Add(writers)
		over := make(chan struct{})
		go func() { running.Wait(); close(over) }()
		together(writers+2, func(i int) {
			if i < writers {
				defer running.Done()
				for n := range each {
					user := fmt.Sprint("w", i, "-", n)
					o := d.race(t, sale.ID, attempt(sale.ID, user, "k", 1))[0]
					if n%2 == 0 && o.Order != nil {
						if _, _, err := d.Cancel(t.Context(), user, o.Order.ID); err != nil {
							t.Errorf("cancel: %v", err)
						}
					}
				}
				return
			}
			for looks := 0; ; looks++ {
				books, ok, err := other.Books(t.Context(), sale.ID)
				if err != nil || !ok {
					t.Errorf("no books: %v", err)
				}
				contents := other.gateContents(t, sale.ID)
				live := 0
				for _, n := range contents.Units {
					live += n
				}
				if v := books.Violations(); len(v) > 0 || int64(live) != contents.Of.Stock.Held {
					t.Errorf("look %d: %v; %d live units, %+v", looks, v, live, contents.Of.Stock)
				}
				select {
				case <-over:
					return
				default:
				}
			}
		})
	})
}

// Reading waits for no writer: a transaction that stands still in mid-change holds nobody up.
func TestReadersDontWaitForTheWriter(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 5)
		arm, reader := d.afterStockMoves(t), d.another(t)
		looked := false
		arm(func() {
			looked = true
			books, ok, err := reader.Books(t.Context(), sale.ID)
			if err != nil || !ok || books.Stock.Available != 5 || len(books.Violations()) > 0 {
				t.Errorf("in mid-change the books are %+v, %v", books, err)
			}
			got, err := reader.Deduct(t.Context(), model.NewSaleID(), attempts(sale.ID, "u", 1))
			if err != nil || got[0].Verdict != model.NotFound {
				t.Errorf("a refusal needs the writer: %+v, %v", got, err)
			}
		})
		d.buy(t, sale.ID, "me", 1)
		if !looked {
			t.Error("nobody looked")
		}
	})
}

// TestBuyers: everyone who holds units, and nobody who held some once or only of another sale.
func TestBuyers(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale, other := d.newSale(t, 10), d.newSale(t, 10)
		for _, add := range []struct {
			sale, user string
			units      int
		}{{sale.ID, "u-1", 1}, {sale.ID, "u-2", 3}, {sale.ID, "u-3", 0}, {other.ID, "u-4", 1}} {
			if err := d.write.Exec("INSERT INTO buyers (sale_id, user_id, units) VALUES (?, ?, ?)", add.sale, add.user, add.units).Error; err != nil {
				t.Fatal(err)
			}
		}
		got := map[string]int{}
		for page, err := range d.Buyers(t.Context(), sale.ID) {
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range page {
				got[b.UserID] = b.Units
			}
		}
		if err := d.write.Exec("DELETE FROM buyers").Error; err != nil { // whom no orders are of
			t.Fatal(err)
		}
		if want := map[string]int{"u-1": 1, "u-2": 3}; !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}

// TestGateChanges are every change that does not come through the gate, by whichever way, in the order of the commits;
// they are read in pages that never part a version, and forgotten once the gate knows them.
func TestGateChanges(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale, other := d.newSale(t, 20, limit(3)), d.newSale(t, 5)
		d.deduct(t, other.ID, attempt(other.ID, "stranger", "k", 1))
		start := d.stock(t, sale.ID).Version
		sold := []model.Attempt{attempt(sale.ID, "a", "k", 1), attempt(sale.ID, "b", "k", 2), attempt(sale.ID, "c", "k", 1)}
		slices.SortFunc(sold, func(a, b model.Attempt) int { return strings.Compare(a.ID, b.ID) })
		wantVerdicts(t, d.deduct(t, sale.ID, sold...), model.Accepted, model.Accepted, model.Accepted)
		settled := attempt(sale.ID, "d", "k", 3)
		wantVerdicts(t, d.settle(t, sale.ID, settled), model.Accepted) // which the gate knows
		locked := attempt(sale.ID, "e", "k", 1)
		if outcome, err := d.DeductLocked(t.Context(), locked); err != nil || outcome.Verdict != model.Accepted {
			t.Fatal(outcome, err)
		}
		if _, verdict, err := d.Cancel(t.Context(), "d", settled.ID); err != nil || verdict != model.Accepted {
			t.Fatal(verdict, err)
		}
		d.change(t, sale.ID, 7, nil)
		d.change(t, sale.ID, 0, func(s *model.Sale) { s.Title = "another" })

		change := func(version int64, a model.Attempt, units int64, hash string) model.GateChange {
			return model.GateChange{Version: start + version, OrderID: a.ID, UserID: a.UserID, Units: units, RequestHash: hash}
		}
		want := []model.GateChange{
			change(1, sold[0], -int64(sold[0].Quantity), sold[0].RequestHash),
			change(1, sold[1], -int64(sold[1].Quantity), sold[1].RequestHash),
			change(1, sold[2], -int64(sold[2].Quantity), sold[2].RequestHash),
			change(3, locked, -1, locked.RequestHash),
			change(4, settled, 3, ""),
			{Version: start + 5, Units: 7},
		}
		if got := d.told(t, sale.ID, start); !slices.Equal(got, want) {
			t.Errorf("the gate is told\n%+v, want\n%+v", got, want)
		}
		if s := d.stock(t, sale.ID); s.GateVersion != s.Version {
			t.Errorf("the stock is %+v", s)
		}
		for _, limit := range []int{1, 2, 3, 4, 5, 100} {
			var got []model.GateChange
			for after, more := start, true; more; {
				var page []model.GateChange
				var err error
				page, after, more, err = d.GateChanges(t.Context(), sale.ID, after, limit)
				if err != nil {
					t.Fatal(err)
				}
				if got = append(got, page...); after != start+6 && (len(page) == 0 || page[len(page)-1].Version != after) {
					t.Errorf("%d at a time: a page up to %d is %+v", limit, after, page)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%d at a time the gate is told\n%+v, want\n%+v", limit, got, want)
			}
		}
		if err := d.ForgetGateChanges(t.Context(), sale.ID, start+3); err != nil {
			t.Fatal(err)
		}
		if got := d.told(t, sale.ID, start); !slices.Equal(got, want[4:]) {
			t.Errorf("after some were forgotten the gate is told %+v", got)
		}
		if n := d.count(t, "SELECT COUNT(*) FROM gate_changes WHERE sale_id = ?", other.ID); n != 1 {
			t.Errorf("the other sale has %d changes", n)
		}
		d.exec(t, "DELETE FROM gate_changes") // what is forgotten is no longer told
		d.exec(t, "UPDATE stock SET epoch = 0")
	})
}

// TestWrongGateIsMarked: a settle that had to refuse for want of units says so durably, and says nothing of later gates.
func TestWrongGateIsMarked(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 1)
		wantVerdicts(t, d.settle(t, sale.ID, attempt(sale.ID, "a", "k", 2)), model.LimitReached)
		if s := d.stock(t, sale.ID); s.WrongEpoch != 0 {
			t.Errorf("before: %+v", s)
		}
		wantVerdicts(t, d.settle(t, sale.ID, attempt(sale.ID, "b", "k", 1), attempt(sale.ID, "c", "k", 1)), model.Accepted, model.SoldOut)
		if s := d.stock(t, sale.ID); s.WrongEpoch != 1 {
			t.Errorf("after a refusal for want of units: %+v", s)
		}
		if _, won, err := d.NextEpoch(t.Context(), sale.ID, 1, 1, 0); !won || err != nil {
			t.Fatal(won, err)
		}
		if s := d.stock(t, sale.ID); s.WrongEpoch >= s.Epoch {
			t.Errorf("in the next epoch: %+v", s)
		}
	})
}
