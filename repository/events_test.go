package repository

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// Several instances change orders while another one reads the feed: it gets every event once, in the order of the numbers,
// and those of an order in the order in which they happened.
func TestEventsWhileOrdersChange(t *testing.T) {
	const buyers, orders = 4, 15
	onBoth(t, func(t *testing.T, d *testDB) {
		sale, stores := d.newSale(t, buyers*orders, limit(orders)), d.pair(t)
		var buying sync.WaitGroup
		for b := range buyers {
			buying.Go(func() {
				user := fmt.Sprint("user", b)
				for n := range orders {
					o := stores[b%2].retry(t, settling, attempt(sale.ID, user, fmt.Sprint(n), 1))[0].Order
					_, verdict, err := stores[(b+1)%2].Cancel(t.Context(), user, o.ID)
					check.Same(t, "cancelled", []any{verdict, err}, []any{model.Accepted, nil})
				}
			})
		}
		bought := make(chan struct{})
		go func() { buying.Wait(); close(bought) }()
		var list []model.Event
		for more := true; more; {
			select {
			case <-bought:
				more = false
			default:
			}
			for full := true; full; {
				var err error
				full, err = d.NumberEvents(t.Context())
				check.NoError(t, err)
			}
			page, err := d.Events(t.Context(), int64(len(list)), 1000)
			check.NoError(t, err)
			list = append(list, page...)
		}
		byOrder := map[string][]model.EventType{}
		for i, e := range list {
			check.Same(t, "number", e.Number, int64(i+1))
			check.Same(t, "sale", e.SaleID, sale.ID)
			byOrder[e.Order.ID] = append(byOrder[e.Order.ID], e.Type)
		}
		check.Same(t, "orders with events", len(byOrder), buyers*orders)
		for id, types := range byOrder {
			check.Same(t, "events of "+id, types, []model.EventType{model.EventConfirmed, model.EventCancelled})
		}
		page, err := d.Events(t.Context(), 7, 3)
		check.NoError(t, err)
		check.Same(t, "a page from the middle", page, list[7:10])
	})
}

// A batch of the settle is one row, and a change that is taken back leaves no event.
func TestEventsOfBatches(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 9)
		d.settle(t, attempt(sale.ID, "a", "1", 1), attempt(sale.ID, "b", "2", 1), attempt(sale.ID, "c", "3", 1))
		check.Same(t, "rows", d.count(t, "SELECT COUNT(*) FROM events"), 1)
		if _, _, err := d.Cancel(t.Context(), "nobody", "nothing"); err != nil {
			t.Error(err)
		}
		check.Same(t, "rows after a refused cancellation", d.count(t, "SELECT COUNT(*) FROM events"), 1)
		for range 3 {
			check.NoError(t, d.RecordOnce(t.Context(), model.EventSoldOut, sale.ID))
		}
		check.Same(t, "rows after the sale was sold out", d.count(t, "SELECT COUNT(*) FROM events"), 2)
		_, err := d.NumberEvents(t.Context())
		check.NoError(t, err)
		list, err := d.Events(t.Context(), 0, 9)
		check.NoError(t, err)
		last := list[len(list)-1]
		check.Same(t, "events", []any{len(list), last.Type, last.SaleID, last.Order == nil}, []any{4, model.EventSoldOut, sale.ID, true})

		// Only old events of the feed are deleted.
		d.exec(t, "UPDATE events SET at_ms = at_ms - 100000 WHERE type = 'order.confirmed'")
		_, err = d.ForgetEvents(t.Context(), time.Minute)
		check.NoError(t, err)
		list, err = d.Events(t.Context(), 0, 9)
		check.NoError(t, err)
		check.Same(t, "events that are left", []any{len(list), list[0].Number}, []any{1, int64(4)})
	})
}

// One instance at a time sends to an endpoint. Another one sends the same batch when the reservation has ended.
func TestEndpointIsTaken(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		stores := d.pair(t)
		made, ok, err := d.CreateEndpoint(t.Context(), model.Endpoint{ID: "E", URL: "https://shop.example/", Rate: 5, Secret: "s"}, 1, "op")
		check.Same(t, "made", []any{ok, err}, []any{true, nil})
		_, ok, err = d.CreateEndpoint(t.Context(), model.Endpoint{ID: "F", URL: "https://shop.example/", Rate: 5, Secret: "s"}, 1, "op")
		check.Same(t, "more than there may be", []any{ok, err}, []any{false, nil})
		due := func() int { list, err := d.DueEndpoints(t.Context()); check.NoError(t, err); return len(list) }
		check.Same(t, "due without events", due(), 0)
		d.buy(t, d.newSale(t, 1).ID, "me", 1)
		_, err = d.NumberEvents(t.Context())
		check.NoError(t, err)
		check.Same(t, "due", due(), 1)
		taken := check.Collect(8, func(i int) bool {
			_, ok, err := stores[i%2].TakeEndpoint(t.Context(), made.ID, time.Minute)
			check.Error(t, "take", err, nil)
			return ok
		})
		check.Same(t, "instances that have it", len(slices.DeleteFunc(taken, func(ok bool) bool { return !ok })), 1)
		check.NoError(t, d.FreeEndpoint(t.Context(), made.ID))
		_, ok, err = d.TakeEndpoint(t.Context(), made.ID, time.Minute)
		check.Same(t, "taken again when it is free", []any{ok, err}, []any{true, nil})
		check.NoError(t, d.SendTo(t.Context(), made.ID, 1))
		d.exec(t, "UPDATE endpoints SET leased_until_ms = 0")
		e, ok, err := d.TakeEndpoint(t.Context(), made.ID, time.Minute)
		check.Same(t, "taken over", []any{ok, err, e.SendingTo, e.Position}, []any{true, nil, int64(1), int64(0)})
		failed := model.Delivery{EndpointID: made.ID, First: 1, Last: 1, At: time.Now(), Status: 500, Answer: "out of tea ☕"}
		check.NoError(t, d.FinishDelivery(t.Context(), failed, 0, model.EndpointOn, ""))
		e, ok, err = d.TakeEndpoint(t.Context(), made.ID, time.Minute)
		check.Same(t, "after a failure", []any{ok, err, e.Tries, e.SendingTo, e.FailingSince.IsZero()}, []any{true, nil, 1, int64(1), false})
		failed.Status = 204
		check.NoError(t, d.FinishDelivery(t.Context(), failed, time.Hour, model.EndpointOn, ""))
		list, err := d.Endpoints(t.Context())
		check.NoError(t, err)
		e = list[0]
		check.Same(t, "after a success", []any{e.Tries, e.SendingTo, e.Position, e.FailingSince.IsZero()}, []any{0, int64(0), int64(1), true})
		if _, ok, _ := d.TakeEndpoint(t.Context(), made.ID, time.Minute); ok {
			t.Error("it is taken in the pause")
		}
		tried, err := d.Deliveries(t.Context(), made.ID, 99, 9)
		check.NoError(t, err)
		check.Same(t, "deliveries", []any{len(tried), tried[0].Status, tried[1].Answer}, []any{2, 204, failed.Answer})
		ok, err = d.RemoveEndpoint(t.Context(), made.ID, "op")
		check.Same(t, "removed", []any{ok, err, d.count(t, "SELECT COUNT(*) FROM deliveries")}, []any{true, nil, int64(0)})
	})
}

// A shadow sale has no events, whatever happens to its orders, and whatever shares a transaction with them. When it is erased,
// the feed of the other sales is as it was.
func TestEventsOfShadowSales(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		feed := func() (list []string) {
			t.Helper()
			_, err := d.NumberEvents(t.Context())
			check.NoError(t, err)
			events, err := d.Events(t.Context(), 0, 99)
			check.NoError(t, err)
			for _, e := range events {
				list = append(list, fmt.Sprint(e.Number, " ", e.SaleID, " ", e.Type))
			}
			return list
		}
		sale, hidden := d.newSale(t, 9, limit(9)), d.newSale(t, 9, limit(9), shadow)
		// In one batch, and in one row of events if there were any.
		_, err := d.SettleSales(t.Context(), entries(attempt(hidden.ID, "a", "1", 1), attempt(sale.ID, "b", "2", 1), attempt(hidden.ID, "c", "3", 1), attempt(sale.ID, "d", "4", 1)))
		check.NoError(t, err)
		paid := d.buy(t, hidden.ID, "e", 1)
		payment := d.startPayment(t, paid)
		d.pay(t, payment, "first")
		d.pay(t, payment, "second") // whose money is due
		d.refund(t, paid)
		d.cancel(t, d.buy(t, hidden.ID, "f", 1))
		overdue := d.buy(t, hidden.ID, "g", 1)
		_, err = d.Expire(t.Context(), hidden.ID, []string{overdue.ID})
		check.NoError(t, err, d.RecordOnce(t.Context(), model.EventSaleOpened, hidden.ID))
		want := []string{"1 " + sale.ID + " order.confirmed", "2 " + sale.ID + " order.confirmed"}
		check.Same(t, "the feed", feed(), want)
		check.NoError(t, d.EraseSale(t.Context(), hidden.ID))
		check.Same(t, "the feed after the shadow sale was erased", feed(), want)
	})
}
