package repository

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gorm.io/gorm"

	"flashsale/model"
)

// absent is what the matrix calls an id that was never stored.
const absent model.OrderStatus = "absent"

// orderIn gives an order of user "me" that came to a status on its regular way, and its payment, if any.
func (d *testDB) orderIn(t *testing.T, sale model.Sale, status model.OrderStatus) (id string, p model.Payment) {
	t.Helper()
	a := attempt(sale.ID, "me", "k", 1)
	switch status {
	case absent:
		return a.ID, model.Payment{ID: "no payment", AmountCents: sale.PriceCents, Provider: "bank"}
	case model.OrderRejected:
		if _, err := d.Refuse(t.Context(), entries(a)[0], model.ReasonFailed); err != nil {
			t.Fatal(err)
		}
		return a.ID, model.Payment{ID: "no payment", AmountCents: sale.PriceCents, Provider: "bank"}
	default:
	}
	order := *d.deduct(t, sale.ID, a)[0].Order
	p = d.startPayment(t, order)
	verdict, err := model.Accepted, error(nil)
	switch status {
	case model.OrderPaid, model.OrderRefunded:
		d.pay(t, p, "txn 1 "+sale.ID)
		if status == model.OrderRefunded {
			_, verdict, err = d.RefundOrder(t.Context(), a.ID, "op")
		}
	case model.OrderCancelled:
		_, verdict, err = d.Cancel(t.Context(), "me", a.ID)
	case model.OrderExpired:
		d.overdue(t, time.Second, a.ID)
		d.expireAll(t)
	default:
	}
	if err != nil || verdict != model.Accepted {
		t.Fatalf("bring the order to %s: %s, %v", status, verdict, err)
	}
	if now := d.order(t, a.ID); now.Status != status {
		t.Fatalf("the order is %s, not %s", now.Status, status)
	}
	return a.ID, p
}

// Every act on an order in every status: the verdict, and where the order then is. It moves along the arrows
// of the model only, and what doesn't move it leaves the stock alone.
func TestOrderLife(t *testing.T) {
	const (
		pending, paid, cancelled = model.OrderPending, model.OrderPaid, model.OrderCancelled
		expired, refunded        = model.OrderExpired, model.OrderRefunded
		rejected                 = model.OrderRejected
		yes, none                = model.Accepted, model.NotFound
	)
	type answer struct {
		verdict model.Verdict
		status  model.OrderStatus
	}
	type act func(t *testing.T, d *testDB, id string, p model.Payment) (model.Verdict, error)
	acts := map[string]struct {
		act  act
		want map[model.OrderStatus]answer
	}{
		"its owner cancels": {
			func(t *testing.T, d *testDB, id string, _ model.Payment) (model.Verdict, error) {
				_, verdict, err := d.Cancel(t.Context(), "me", id)
				return verdict, err
			}, map[model.OrderStatus]answer{
				absent: {none, absent}, rejected: {none, rejected}, pending: {yes, cancelled},
				paid: {model.NotCancellable, paid}, cancelled: {model.NotCancellable, cancelled},
				expired: {model.NotCancellable, expired}, refunded: {model.NotCancellable, refunded},
			},
		},
		"another user cancels": {
			func(t *testing.T, d *testDB, id string, _ model.Payment) (model.Verdict, error) {
				_, verdict, err := d.Cancel(t.Context(), "Me", id)
				return verdict, err
			}, map[model.OrderStatus]answer{
				absent: {none, absent}, rejected: {none, rejected}, pending: {none, pending}, paid: {none, paid},
				cancelled: {none, cancelled}, expired: {none, expired}, refunded: {none, refunded},
			},
		},
		"its time is over": {
			func(t *testing.T, d *testDB, id string, _ model.Payment) (model.Verdict, error) {
				d.overdue(t, time.Second, id)
				if _, ok := d.expireAll(t)[id]; !ok {
					return "not due", nil
				}
				return yes, nil
			}, map[model.OrderStatus]answer{
				absent: {"not due", absent}, rejected: {"not due", rejected}, pending: {yes, expired}, paid: {"not due", paid},
				cancelled: {"not due", cancelled}, expired: {"not due", expired}, refunded: {"not due", refunded},
			},
		},
		"the operator refunds": {
			func(t *testing.T, d *testDB, id string, _ model.Payment) (model.Verdict, error) {
				_, verdict, err := d.RefundOrder(t.Context(), id, "op")
				return verdict, err
			}, map[model.OrderStatus]answer{
				absent: {none, absent}, rejected: {none, rejected}, pending: {model.NotRefundable, pending}, paid: {yes, refunded},
				cancelled: {model.NotRefundable, cancelled}, expired: {model.NotRefundable, expired}, refunded: {model.NotRefundable, refunded},
			},
		},
		"its owner starts to pay": {
			func(t *testing.T, d *testDB, id string, _ model.Payment) (model.Verdict, error) {
				_, verdict, err := d.StartPayment(t.Context(), "me", id, "bank")
				return verdict, err
			}, map[model.OrderStatus]answer{
				absent: {none, absent}, rejected: {none, rejected}, pending: {yes, pending}, paid: {model.NotPayable, paid},
				cancelled: {model.NotPayable, cancelled}, expired: {model.NotPayable, expired}, refunded: {model.NotPayable, refunded},
			},
		},
		"another user starts to pay": {
			func(t *testing.T, d *testDB, id string, _ model.Payment) (model.Verdict, error) {
				_, verdict, err := d.StartPayment(t.Context(), "you", id, "bank")
				return verdict, err
			}, map[model.OrderStatus]answer{
				absent: {none, absent}, rejected: {none, rejected}, pending: {none, pending}, paid: {none, paid},
				cancelled: {none, cancelled}, expired: {none, expired}, refunded: {none, refunded},
			},
		},
		"money comes": {
			func(t *testing.T, d *testDB, id string, p model.Payment) (model.Verdict, error) {
				_, _, verdict, err := d.ApplyCallback(t.Context(), "bank", model.Callback{
					PaymentID: p.ID, ProviderTxnID: "txn 2 " + id[:20], Succeeded: true, AmountCents: p.AmountCents,
				})
				return verdict, err
			}, map[model.OrderStatus]answer{
				absent: {none, absent}, rejected: {none, rejected}, pending: {yes, paid}, paid: {yes, paid},
				cancelled: {yes, cancelled}, expired: {yes, paid}, refunded: {yes, refunded},
			},
		},
		"a card is declined": {
			func(t *testing.T, d *testDB, id string, p model.Payment) (model.Verdict, error) {
				_, _, verdict, err := d.ApplyCallback(t.Context(), "bank", model.Callback{
					PaymentID: p.ID, ProviderTxnID: "txn 3 " + id[:20], AmountCents: p.AmountCents,
				})
				return verdict, err
			}, map[model.OrderStatus]answer{
				absent: {none, absent}, rejected: {none, rejected}, pending: {yes, pending}, paid: {yes, paid},
				cancelled: {yes, cancelled}, expired: {yes, expired}, refunded: {yes, refunded},
			},
		},
	}
	freed := map[model.OrderStatus]units{pending: {held: 1}, paid: {paid: 1}}
	onBoth(t, func(t *testing.T, d *testDB) {
		for name, tc := range acts {
			for from, want := range tc.want {
				t.Run(fmt.Sprintf("%s/%s", from, name), func(t *testing.T) {
					sale := d.newSale(t, 1)
					id, p := d.orderIn(t, sale, from)
					before := d.stock(t, sale.ID)
					verdict, err := tc.act(t, d, id, p)
					if err != nil || verdict != want.verdict {
						t.Errorf("got %s, %v, want %s", verdict, err, want.verdict)
					}
					after := d.stock(t, sale.ID)
					order, ok, err := d.Order(t.Context(), id)
					if err != nil || !ok {
						order.Status = absent
					}
					if order.Status != want.status {
						t.Fatalf("the order is %s, want %s", order.Status, want.status)
					}
					if want.status == from {
						if after != before {
							t.Errorf("the stock moved from %+v to %+v", before, after)
						}
						return
					}
					if !from.CanBecome(want.status) {
						t.Errorf("the model knows no way from %s to %s", from, want.status)
					}
					u := freed[want.status]
					u.available = 1 - u.held - u.paid
					d.wantUnits(t, sale.ID, u)
					if after.Version != before.Version+1 {
						t.Errorf("the version went from %d to %d", before.Version, after.Version)
					}
					var want []model.GateChange
					if moved := after.Available - before.Available; moved != 0 {
						want = []model.GateChange{{Version: after.Version, OrderID: id, UserID: "me", Units: moved}}
					}
					if told := d.told(t, sale.ID, before.Version); !slices.Equal(told, want) {
						t.Errorf("the gate is told %+v, want %+v", told, want)
					}
				})
			}
		}
	})
}

// What an act gives back is the order as it is stored then.
func TestActsGiveTheOrderAsItIsThen(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 9, limit(2))
		for name, act := range map[string]func(t *testing.T, o model.Order) model.Order{
			"cancel": func(t *testing.T, o model.Order) model.Order {
				got, _, err := d.Cancel(t.Context(), o.UserID, o.ID)
				if err != nil {
					t.Fatal(err)
				}
				return got
			},
			"pay": func(t *testing.T, o model.Order) model.Order {
				got, _ := d.pay(t, d.startPayment(t, o), "txn pay")
				return got
			},
			"refund": func(t *testing.T, o model.Order) model.Order {
				d.pay(t, d.startPayment(t, o), "txn refund")
				got, _, err := d.RefundOrder(t.Context(), o.ID, "op")
				if err != nil {
					t.Fatal(err)
				}
				return got
			},
			"pay late": func(t *testing.T, o model.Order) model.Order {
				p := d.startPayment(t, o)
				d.overdue(t, time.Second, o.ID)
				d.expireAll(t)
				got, _ := d.pay(t, p, "txn late")
				return got
			},
		} {
			t.Run(name, func(t *testing.T) {
				got := act(t, d.buy(t, sale.ID, "who will "+name, 2))
				if stored := d.order(t, got.ID); got != stored {
					t.Errorf("it gives\n%+v, stored is\n%+v", got, stored)
				}
			})
		}
	})
}

// Hole 36: cancel, then buy again, as often as one likes.
func TestHole36_CancelledUserBuysAgain(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 1)
		for range 3 {
			o := d.buy(t, sale.ID, "me", 1)
			if _, verdict, err := d.Cancel(t.Context(), "me", o.ID); err != nil || verdict != model.Accepted {
				t.Fatalf("cancel: %s, %v", verdict, err)
			}
		}
		d.buy(t, sale.ID, "me", 1)
		d.wantUnits(t, sale.ID, units{held: 1})
	})
}

// A refund leaves its trace in the log of operations.
func TestRefundIsLogged(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 1)
		id, _ := d.orderIn(t, sale, model.OrderPaid)
		for range 2 { // the second changes nothing, and so isn't logged
			if _, _, err := d.RefundOrder(t.Context(), id, "olga"); err != nil {
				t.Fatal(err)
			}
		}
		if n := d.count(t, "SELECT COUNT(*) FROM operations WHERE actor = 'olga' AND action = 'refund' AND subject = ? AND detail = ?",
			sale.ID, "order "+id+" of me: paid -> refunded, quantity 1, 1990 cents"); n != 1 {
			t.Errorf("%d rows in the log", n)
		}
	})
}

// Who is due is told by the time to pay and the grace, the longest overdue first, a limited number at a time.
func TestExpireDue(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		first, second := d.newSale(t, 9, limit(3)), d.newSale(t, 9, limit(3))
		overdue := map[string]time.Duration{}
		byAge := make([]model.Order, 5)
		for i, by := range []time.Duration{time.Hour, 40 * time.Minute, 20 * time.Minute, 10 * time.Minute, -time.Minute} {
			sale := first
			if i%2 == 1 {
				sale = second
			}
			byAge[i] = d.buy(t, sale.ID, fmt.Sprint("user", i), i%3+1)
			overdue[byAge[i].ID] = by
			d.overdue(t, by, byAge[i].ID)
		}
		for _, step := range []struct {
			name  string
			grace time.Duration
			limit int
			want  []int // places in byAge
		}{
			{"nobody within a long grace", 2 * time.Hour, 9, nil},
			{"only who is beyond the grace", 50 * time.Minute, 9, []int{0}},
			{"the longest overdue, as many as the limit says", 0, 2, []int{1, 2}},
			{"the rest", 0, 9, []int{3}},
			{"nobody whose time isn't over", 0, 9, nil},
		} {
			t.Run(step.name, func(t *testing.T) {
				bySale, err := d.ExpireDue(t.Context(), step.grace, step.limit)
				if err != nil {
					t.Fatal(err)
				}
				want := map[string][]model.Release{}
				for _, i := range step.want {
					o := byAge[i]
					want[o.SaleID] = append(want[o.SaleID], model.Release{
						OrderID: o.ID, UserID: o.UserID, Units: o.Quantity,
					})
					if now := d.order(t, o.ID); now.Status != model.OrderExpired {
						t.Errorf("order %d is %s", i, now.Status)
					}
					if n := d.live(t, o.SaleID, o.UserID); n != 0 {
						t.Errorf("user %d has %d units against the limit", i, n)
					}
				}
				if fmt.Sprint(bySale) != fmt.Sprint(want) {
					t.Errorf("released\n%v, want\n%v", bySale, want)
				}
			})
		}
		d.wantUnits(t, first.ID, units{available: 7, held: 2}) // the last order's
		d.wantUnits(t, second.ID, units{available: 9})
	})
}

// Hole 19: whose order has expired may buy again, and gets a real order.
func TestHole19_ExpiredOrdersUserBuysAgain(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 1)
		old := d.buy(t, sale.ID, "me", 1)
		wantVerdicts(t, d.deduct(t, sale.ID, attempt(sale.ID, "me", "k2", 1)), model.LimitReached)
		d.overdue(t, time.Second, old.ID)
		d.expireAll(t)
		fresh := d.buy(t, sale.ID, "me", 1)
		if now := d.order(t, old.ID); now.Status != model.OrderExpired {
			t.Errorf("the old order is %s", now.Status)
		}
		if now := d.order(t, fresh.ID); now.Status != model.OrderPending {
			t.Errorf("the new order is %s", now.Status)
		}
	})
}

func TestOrderOfAnUnknownID(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		for name, id := range map[string]string{"well formed": orderIDs.Derive("me", model.NewSaleID(), "k"), "empty": "", "strange": "' OR 1=1 --"} {
			if o, ok, err := d.Order(t.Context(), id); ok || err != nil || o != (model.Order{}) {
				t.Errorf("%s: %+v, %t, %v", name, o, ok, err)
			}
		}
	})
}

// manyOrders makes n orders of three users on two sales, several at the same millisecond, and gives them the
// newest first.
func manyOrders(t *testing.T, d *testDB, n int) (list []model.Order, sales []model.Sale) {
	t.Helper()
	sales = []model.Sale{d.newSale(t, int64(n), limit(n)), d.newSale(t, int64(n), limit(n))}
	for i := 0; i < n; i += 4 {
		sale, batch := sales[i/4%2], make([]model.Attempt, 0, 4)
		for j := range min(4, n-i) {
			batch = append(batch, attempt(sale.ID, fmt.Sprint("user", (i+j)%3), fmt.Sprint("k", i+j), 1))
		}
		for _, o := range d.deduct(t, sale.ID, batch...) {
			list = append(list, *o.Order)
		}
	}
	slices.SortFunc(list, func(a, b model.Order) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.ID, a.ID))
	})
	return list, sales
}

// pages reads all pages, and runs between before each further one.
func (d *testDB) pages(t *testing.T, f model.OrderFilter, between func()) (ids []string, sizes []int) {
	t.Helper()
	for {
		list, next, err := d.Orders(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, len(list))
		for _, o := range list {
			ids = append(ids, o.ID)
		}
		if next == "" {
			return ids, sizes
		}
		f.Cursor = next
		between()
	}
}

func TestOrdersPages(t *testing.T) {
	const n = 22
	onBoth(t, func(t *testing.T, d *testDB) {
		all, sales := manyOrders(t, d, n)
		for i := range 5 { // some in another status
			if _, verdict, err := d.Cancel(t.Context(), all[4*i].UserID, all[4*i].ID); err != nil || verdict != model.Accepted {
				t.Fatalf("cancel: %s, %v", verdict, err)
			}
			all[4*i].Status = model.OrderCancelled
		}
		for name, tc := range map[string]struct {
			filter model.OrderFilter
			fits   func(model.Order) bool
		}{
			"all":         {model.OrderFilter{}, func(model.Order) bool { return true }},
			"of a user":   {model.OrderFilter{UserID: "user1"}, func(o model.Order) bool { return o.UserID == "user1" }},
			"of a sale":   {model.OrderFilter{SaleID: sales[1].ID}, func(o model.Order) bool { return o.SaleID == sales[1].ID }},
			"in a status": {model.OrderFilter{Status: model.OrderCancelled}, func(o model.Order) bool { return o.Status == model.OrderCancelled }},
			"one order":   {model.OrderFilter{ID: all[7].ID}, func(o model.Order) bool { return o.ID == all[7].ID }},
			"of a sale in a status": {model.OrderFilter{SaleID: sales[0].ID, Status: model.OrderCancelled}, func(o model.Order) bool {
				return o.SaleID == sales[0].ID && o.Status == model.OrderCancelled
			}},
			"one order of another sale": {model.OrderFilter{ID: all[7].ID, SaleID: "another"}, func(model.Order) bool { return false }},
			"of nobody":                 {model.OrderFilter{UserID: "nobody"}, func(model.Order) bool { return false }},
			"all three filters": {model.OrderFilter{UserID: "user0", SaleID: sales[0].ID, Status: model.OrderPending}, func(o model.Order) bool {
				return o.UserID == "user0" && o.SaleID == sales[0].ID && o.Status == model.OrderPending
			}},
		} {
			var want []string
			for _, o := range all {
				if tc.fits(o) {
					want = append(want, o.ID)
				}
			}
			for _, size := range []int{1, 3, 11, n, n + 1} {
				t.Run(fmt.Sprintf("%s, %d a page", name, size), func(t *testing.T) {
					f := tc.filter
					f.Limit = size
					got, sizes := d.pages(t, f, func() {})
					if !slices.Equal(got, want) {
						t.Errorf("the pages hold %d orders\n%v, want %d\n%v", len(got), got, len(want), want)
					}
					for i, s := range sizes {
						if i < len(sizes)-1 && s != size {
							t.Errorf("page %d of %d holds %d", i, len(sizes), s)
						}
					}
					if wantPages := max(1, (len(want)+size-1)/size); len(sizes) != wantPages {
						t.Errorf("%d pages, want %d", len(sizes), wantPages)
					}
				})
			}
		}
	})
}

// Orders that come, and orders that change, while somebody turns the pages move no page.
func TestOrdersPagesStayWhereTheyAre(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		all, sales := manyOrders(t, d, 12)
		d.exec(t, "UPDATE orders SET created_at_ms = created_at_ms - 5") // so that what comes now is newer
		want := make([]string, len(all))
		for i, o := range all {
			want[i] = o.ID
		}
		came := 0
		got, _ := d.pages(t, model.OrderFilter{Limit: 5}, func() {
			came++
			d.deduct(t, sales[0].ID, attempt(sales[0].ID, "late", fmt.Sprint("k", came), 1))
			o := all[5*came] // the first of the page to come
			if _, _, err := d.Cancel(t.Context(), o.UserID, o.ID); err != nil {
				t.Error(err)
			}
		})
		if came != 2 || !slices.Equal(got, want) {
			t.Errorf("after %d turns the pages hold\n%v, want\n%v", came, got, want)
		}
	})
}

// A page of a list costs as much as it shows, however many orders the sale or the user has and however old the page is.
func TestHole56_OrdersPagesAreCheap(t *testing.T) {
	const n, page = 200, 5
	onBoth(t, func(t *testing.T, d *testDB) {
		all, sales := manyOrders(t, d, n)
		d.exec(t, "UPDATE orders SET status = 'expired' WHERE id = ?", all[n-1].ID) // the rarest
		defer d.exec(t, "UPDATE orders SET status = 'pending' WHERE id = ?", all[n-1].ID)
		lone := openStore(t, d.address, 1) // MySQL counts for each connection
		old := cursorOf(all[n/2].CreatedAt.UnixMilli(), all[n/2].ID)
		var query string
		var vars []any
		err := lone.read.Callback().Query().After("gorm:query").Register("suite:query", func(tx *gorm.DB) {
			query, vars = tx.Statement.SQL.String(), tx.Statement.Vars
		})
		if err != nil {
			t.Fatal(err)
		}
		for name, tc := range map[string]struct {
			filter model.OrderFilter
			plan   string // of SQLite
		}{
			"the newest":         {model.OrderFilter{}, "USING INDEX orders_newest (sale_id=?)"},
			"older ones":         {model.OrderFilter{Cursor: old}, "USING INDEX orders_newest (sale_id=? AND created_at_ms<?)"},
			"in a status":        {model.OrderFilter{Status: model.OrderPending}, "USING INDEX orders_status (sale_id=? AND status=?)"},
			"in a rare one":      {model.OrderFilter{Status: model.OrderExpired}, "USING INDEX orders_status (sale_id=? AND status=?)"},
			"older in a status":  {model.OrderFilter{Status: model.OrderPending, Cursor: old}, "USING INDEX orders_status (sale_id=? AND status=? AND created_at_ms<?)"},
			"by id":              {model.OrderFilter{ID: all[n-1].ID}, "(id=?)"},
			"of one who is none": {model.OrderFilter{UserID: "nobody"}, "USING INDEX orders_request (user_id=? AND sale_id=?)"},
			"a user's":           {model.OrderFilter{UserID: "user0"}, "USING INDEX orders_user (user_id=?)"},
			"a user's older":     {model.OrderFilter{UserID: "user0", Cursor: old}, "USING INDEX orders_user (user_id=? AND created_at_ms<?)"},
		} {
			t.Run(name, func(t *testing.T) {
				ofAll := tc.filter.UserID == "user0"
				if tc.filter.Limit = page; !ofAll {
					tc.filter.SaleID = sales[0].ID
				}
				before := lone.rowsRead(t)
				if _, _, err := lone.Orders(t.Context(), tc.filter); err != nil {
					t.Fatal(err)
				}
				if !lone.sqlite {
					if read := lone.rowsRead(t) - before; read > 4*page {
						t.Errorf("%d rows were read for %d", read, page)
					}
					return
				}
				var steps []struct{ Detail string }
				if err := lone.read.WithContext(t.Context()).Raw("EXPLAIN QUERY PLAN "+query, vars...).Scan(&steps).Error; err != nil {
					t.Fatal(err)
				}
				sorted := (tc.filter.UserID == "" || ofAll) && len(steps) > 1 // a user's few of a sale are sorted
				if len(steps) == 0 || !strings.Contains(steps[0].Detail, tc.plan) || sorted {
					t.Errorf("the plan is %v, want %s alone", steps, tc.plan)
				}
			})
		}
	})
}

// rowsRead is how many rows this store's only connection has read; SQLite doesn't count them.
func (d *testDB) rowsRead(t *testing.T) (n int64) {
	t.Helper()
	if d.sqlite {
		return 0
	}
	return d.count(t, "SELECT SUM(VARIABLE_VALUE) FROM information_schema.SESSION_STATUS WHERE VARIABLE_NAME LIKE 'HANDLER_READ%' AND VARIABLE_NAME <> 'HANDLER_READ_RND_NEXT'")
}

func TestOrdersRefusesStrangeCursors(t *testing.T) {
	encode := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	id := orderIDs.Derive("me", model.NewSaleID(), "k")
	onBoth(t, func(t *testing.T, d *testDB) {
		d.buy(t, d.newSale(t, 1).ID, "me", 1)
		for name, cursor := range map[string]string{
			"no base64":            "!!!",
			"padded base64":        base64.URLEncoding.EncodeToString([]byte("1." + id)),
			"no dot":               encode("12"),
			"no time":              encode("." + id),
			"a time in words":      encode("now." + id),
			"a time out of range":  encode("99999999999999999999." + id),
			"no id":                encode("12."),
			"a short id":           encode("12." + id[1:]),
			"a long id":            encode("12." + id + "A"),
			"the id in the middle": encode(id + ".12"),
		} {
			t.Run(name, func(t *testing.T) {
				list, next, err := d.Orders(t.Context(), model.OrderFilter{Cursor: cursor, Limit: 5})
				if !errors.Is(err, model.ErrBadCursor) || list != nil || next != "" {
					t.Errorf("got %d orders, %q, %v", len(list), next, err)
				}
			})
		}
		list, _, err := d.Orders(t.Context(), model.OrderFilter{Cursor: encode("12." + id), Limit: 5})
		if err != nil || len(list) != 0 {
			t.Errorf("a cursor before all orders gives %d, %v", len(list), err)
		}
	})
}

// Hole 57: a user who buys and cancels in a loop is stopped, without harm to orders that stand, and other sales are not
// affected.
func TestHole57_CancelLoop(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale, other := d.newSale(t, 3), d.newSale(t, 3)
		cancel := func(o model.Order) model.Verdict {
			t.Helper()
			_, verdict, err := d.Cancel(t.Context(), "me", o.ID)
			if err != nil {
				t.Fatal(err)
			}
			return verdict
		}
		buy := func(sale model.Sale, n int) model.Order {
			t.Helper()
			got := d.deduct(t, sale.ID, attempt(sale.ID, "me", fmt.Sprint("k", n), 1))
			wantVerdicts(t, got, model.Accepted)
			return *got[0].Order
		}
		for n := range cancelMost {
			if verdict := cancel(buy(sale, n)); verdict != model.Accepted {
				t.Fatalf("order %d: %s", n, verdict)
			}
		}
		last := buy(sale, cancelMost)
		if verdict := cancel(last); verdict != model.NotCancellable {
			t.Errorf("one more: %s", verdict)
		}
		if now := d.order(t, last.ID); now.Status != model.OrderPending {
			t.Errorf("the order that stands is %s", now.Status)
		}
		if verdict := cancel(buy(other, 0)); verdict != model.Accepted {
			t.Errorf("in another sale: %s", verdict)
		}
		d.wantUnits(t, sale.ID, units{available: 2, held: 1})
		d.balanced(t)
	})
}
