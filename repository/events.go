package repository

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"flashsale/model"
)

// Events of orders and payments are recorded in the transaction that changes the order or payment. A row has the events of one
// type, with only the ids of what they are about. It gets its place in the feed after the commit: numbers given before the commit
// would become visible out of order, and readers would miss rows.

// unnumbered is the most rows that get their places, or are deleted, at once, so that the transaction is short.
const unnumbered = 500

// subject is what an event is about: the id of an order or payment, and of its sale.
type subject struct{ id, saleID string }

// recording returns the statement that records events of one type, about the orders or payments of at most one batch. It leaves
// out shadow sales, which have no events. Without events the statement is empty.
func (s *Store) recording(what model.EventType, about ...subject) statement {
	ids := make([]string, 0, len(about))
	for _, a := range about {
		if !model.IsShadow(a.saleID) {
			ids = append(ids, a.id)
		}
	}
	if len(ids) == 0 {
		return statement{}
	}
	return do("INSERT INTO events (type, at_ms, events, ids) VALUES (?, "+s.nowMillis()+", ?, ?)", string(what), len(ids), strings.Join(ids, " "))
}

// RecordOnce records an event of a sale, unless the sale is a shadow sale or has a stored event of this type.
func (s *Store) RecordOnce(ctx context.Context, what model.EventType, saleID string) error {
	if model.IsShadow(saleID) {
		return nil
	}
	return s.update(ctx, "record an event of a sale", s.insertIgnore()+" INTO events (type, at_ms, events, ids, only_once) VALUES (?, "+
		s.nowMillis()+", 1, ?, ?)", string(what), saleID, string(what)+" "+saleID)
}

// NumberEvents gives committed events their places in the feed, those of at most "unnumbered" rows; more is true if there may be
// others. The lock on the last number keeps two callers from giving the same place.
func (s *Store) NumberEvents(ctx context.Context) (more bool, err error) {
	const waiting = "SELECT id, events FROM events WHERE last IS NULL ORDER BY id LIMIT ?"
	var rows []struct{ ID, Events int64 }
	if err := s.read.WithContext(ctx).Raw(waiting, 1).Scan(&rows).Error; err != nil || len(rows) == 0 {
		return false, wrap("look for new events", err)
	}
	err = s.transact(ctx, func(tx *gorm.DB) error {
		last, err := s.lockFeed(tx)
		if err != nil {
			return err
		}
		rows = nil
		if err := tx.Raw(waiting, unnumbered).Scan(&rows).Error; err != nil || len(rows) == 0 {
			return err
		}
		cases, ids := make([]any, 0, 2*len(rows)), make([]any, len(rows))
		for i, r := range rows {
			last += r.Events
			ids[i], cases = r.ID, append(cases, r.ID, last)
		}
		return s.run(tx,
			do("UPDATE events SET last = CASE id"+strings.Repeat(" WHEN ? THEN ?", len(rows))+" END WHERE id IN "+places(len(ids)), slices.Concat(cases, ids)...),
			do("UPDATE event_feed SET last = ?", last))
	})
	return len(rows) == unnumbered, wrap("number events", err)
}

// lockFeed locks and returns the number of the last event in the feed.
func (s *Store) lockFeed(tx *gorm.DB) (last int64, err error) {
	return cell[int64](tx, "lock the feed", "SELECT last FROM event_feed"+s.forUpdate())
}

// eventRow is a row of the table events.
type eventRow struct {
	first, last int64 // numbers of the events
	what        model.EventType
	at          time.Time
	ids         string
}

// Events returns the events of the feed whose numbers are above "after", in the order of their numbers, at most "limit" of them.
func (s *Store) Events(ctx context.Context, after int64, limit int) (list []model.Event, err error) {
	const rowsAtOnce = 20 // each may have the events of a whole batch
	db, ids := s.read.WithContext(ctx), []string(nil)
	for at := after; len(list) < limit; {
		rows, err := scan(db, "read events", func(r *eventRow) []any { return []any{&r.first, &r.last, &r.what, millis(&r.at), &r.ids} },
			"SELECT last - events + 1, last, type, at_ms, ids FROM events WHERE last > ? ORDER BY last LIMIT ?", at, rowsAtOnce)
		if err != nil {
			return nil, err
		}
		if len(rows) == 0 {
			break
		}
		for _, r := range rows {
			for i, id := range strings.Split(r.ids, " ") {
				if number := r.first + int64(i); number > after && len(list) < limit {
					list = append(list, model.Event{Number: number, Type: r.what, At: r.at})
					ids = append(ids, id)
				}
			}
			at = r.last
		}
	}
	return list, fill(db, list, ids)
}

// statusAfter has the status of an order after an event, by the event's type.
var statusAfter = map[model.EventType]model.OrderStatus{
	model.EventConfirmed: model.OrderPending, model.EventPaid: model.OrderPaid, model.EventCancelled: model.OrderCancelled,
	model.EventExpired: model.OrderExpired, model.EventRefunded: model.OrderRefunded,
}

// fill adds to each event its sale; its order, unless it is an event of a sale; and its payment, if it is an EventRefundDue. ids
// has the id of the order, payment or sale for each event.
func fill(db *gorm.DB, list []model.Event, ids []string) error {
	var orderIDs, paymentIDs []string
	for i, e := range list {
		if e.Type == model.EventRefundDue {
			paymentIDs = append(paymentIDs, ids[i])
		} else if statusAfter[e.Type] != "" {
			orderIDs = append(orderIDs, ids[i])
		}
	}
	payments, orders := map[string]model.Payment{}, map[string]model.Order{}
	if len(paymentIDs) > 0 {
		rows, err := findPayments(db, "payments.id IN ?", paymentIDs)
		if err != nil {
			return err
		}
		payments = byKey(rows, func(p model.Payment) string { return p.ID })
		orderIDs = append(orderIDs, each(rows, func(p model.Payment) string { return p.OrderID })...)
	}
	if len(orderIDs) > 0 {
		rows, err := scan(db, "read the orders of events", func(o *model.Order) []any {
			return []any{&o.ID, &o.SaleID, &o.UserID, &o.Quantity, &o.AmountCents, &o.Currency, &o.Status, millis(&o.CreatedAt), millis(&o.ExpiresAt)}
		}, "SELECT id, sale_id, user_id, quantity, amount_cents, currency, status, created_at_ms, expires_at_ms FROM orders WHERE id IN ?", orderIDs)
		if err != nil {
			return err
		}
		orders = byKey(rows, func(o model.Order) string { return o.ID })
	}
	for i, id := range ids {
		e := &list[i]
		if e.Type == model.EventRefundDue {
			p := payments[id]
			e.Payment, id = &p, p.OrderID
		}
		e.SaleID = cmp.Or(model.SaleOf(id), id) // the id is that of an order, or of the sale itself
		if order, ok := orders[id]; ok {
			order.Status = cmp.Or(statusAfter[e.Type], order.Status)
			e.Order = &order
		}
	}
	return nil
}

// ForgetEvents deletes rows of the feed and deliveries that are older than "age", at most "unnumbered" of each, the oldest first.
// more is true if there may be others.
func (s *Store) ForgetEvents(ctx context.Context, age time.Duration) (more bool, err error) {
	db, before := s.write.WithContext(ctx), s.nowMillis()+fmt.Sprint(" - ", age.Milliseconds())
	for _, table := range []string{
		"events WHERE at_ms < " + before + " AND id IN (SELECT id FROM (SELECT id FROM events WHERE last > 0 ORDER BY last LIMIT ?) AS oldest)",
		"deliveries WHERE at_ms < " + before + " AND id IN (SELECT id FROM (SELECT id FROM deliveries ORDER BY id LIMIT ?) AS oldest)",
	} {
		deleted, err := exec(db, "forget events", "DELETE FROM "+table, unnumbered)
		if err != nil {
			return false, err
		}
		more = more || deleted == unnumbered
	}
	return more, nil
}
