package repository

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"gorm.io/gorm"

	"flashsale/internal/batch"
	"flashsale/model"
)

// orderColumns are the columns that a new order sets.
const orderColumns = "id, sale_id, user_id, quantity, amount_cents, currency, status, source, epoch, idempotency_key, created_at_ms, expires_at_ms"

// orderFields returns pointers to the fields of o, in the order of orderColumns and then paid_at_ms.
func orderFields(o *model.Order) []any {
	return []any{
		&o.ID, &o.SaleID, &o.UserID, &o.Quantity, &o.AmountCents, &o.Currency, &o.Status, &o.Source, &o.Epoch, &o.IdempotencyKey,
		millis(&o.CreatedAt), millis(&o.ExpiresAt), millis(&o.PaidAt),
	}
}

// insertingOrders returns the statements that insert new orders and record their events. They fail with gorm.ErrDuplicatedKey if
// one of the orders exists.
func (s *Store) insertingOrders(list []*model.Order) []statement {
	const columns = 12
	values, about := make([]any, 0, columns*len(list)), make([]subject, len(list))
	for i, o := range list {
		about[i] = subject{o.ID, o.SaleID}
		values = append(values, o.ID, o.SaleID, o.UserID, o.Quantity, o.AmountCents, o.Currency, string(o.Status), string(o.Source),
			o.Epoch, o.IdempotencyKey, o.CreatedAt.UnixMilli(), o.ExpiresAt.UnixMilli())
	}
	return append(s.inserting("orders ("+orderColumns+")", places(columns), values, ""), s.recording(model.EventConfirmed, about...))
}

// knownOutcomes returns, by order id, the outcomes of those attempts that have an order or a durable refusal.
func (s *Store) knownOutcomes(db *gorm.DB, attempts []model.Attempt) (map[string]model.Outcome, error) {
	ids := idsOf(attempts)
	rows, err := scan(db, "look for orders", func(o *model.Order) []any { return append(orderFields(o), &o.Reason) },
		"SELECT "+orderColumns+`, paid_at_ms, '' FROM orders WHERE id IN ?
		UNION ALL SELECT order_id, sale_id, user_id, quantity, 0,
			COALESCE((SELECT currency FROM sales WHERE sales.id = refusals.sale_id), ''), ?, '', 0, '',
			created_at_ms, 0, NULL, reason FROM refusals WHERE order_id IN ?`, ids, string(model.OrderRejected), ids)
	if err != nil {
		return nil, err
	}
	known := make(map[string]model.Outcome, len(rows))
	for i := range rows {
		known[rows[i].ID] = model.Outcome{Verdict: cmp.Or(rows[i].Reason, model.Accepted), Order: &rows[i]}
	}
	return known, nil
}

// lookUpLimits bounds the look-ups of Order and of InLine. A statement of Order has each id twice, for orders and for refusals.
// Two may run at a time, so that one that hangs does not delay everybody.
var lookUpLimits = batch.Limits{Batch: sqliteParameters / 2, Queue: 8192, Calls: 2, Time: statementSeconds * time.Second}

// Close waits closeGrace for each kind of look-ups before it cancels them, and logGrace for SQLite's log.
const closeGrace, logGrace = time.Second, 5 * time.Second

// Order reads an order, or a rejected order if its id has a durable refusal; ok is false if there is neither. Look-ups share
// statements. A statement starts after its look-ups have arrived, so they see what was committed before. The error wraps
// model.ErrUnavailable if the database does not answer, or if too many look-ups wait.
func (s *Store) Order(ctx context.Context, id string) (order model.Order, ok bool, err error) {
	found, err := s.lookUps.Do(ctx, "", model.Attempt{ID: id})
	if err != nil || found == nil {
		return order, false, wrap("read order", err)
	}
	return *found, true, nil
}

// lookUp reads the orders, or rejected orders, of the attempts in a batch. An attempt without either gets nil.
func (s *Store) lookUp(ctx context.Context, _ string, attempts []model.Attempt) ([]*model.Order, error) {
	known, err := s.knownOutcomes(s.read.WithContext(ctx), attempts)
	return each(attempts, func(a model.Attempt) *model.Order { return known[a.ID].Order }), err
}

// Orders lists orders, the newest first. next is the cursor of the next page, and empty at the end. Orders returns
// model.ErrBadCursor if the cursor in f can't be read.
func (s *Store) Orders(ctx context.Context, f model.OrderFilter) (list []model.Order, next string, err error) {
	below := int64(math.MaxInt64)
	if f.Cursor != "" {
		raw, err := base64.RawURLEncoding.DecodeString(f.Cursor)
		if err == nil {
			below, err = strconv.ParseInt(string(raw), 10, 64)
		}
		if err != nil {
			return nil, "", model.ErrBadCursor
		}
	}
	f.Limit = max(1, f.Limit)
	parts, err := s.orderParts(ctx, f)
	if err != nil || len(parts) == 0 {
		return nil, "", err
	}
	numbers, args := numbersOf(parts, below, f.Limit+1)
	var number int64 // of the last row that was read
	list, err = scan(s.read.WithContext(ctx), "list orders", func(o *model.Order) []any { return append(orderFields(o), &number) },
		"SELECT "+orderColumns+", paid_at_ms, orders.number FROM ("+numbers+") AS page JOIN orders ON orders.number = page.number ORDER BY orders.number DESC",
		args...)
	list, next = cut(list, f.Limit, func(*model.Order) string { // the next page begins with the last row read
		return base64.RawURLEncoding.EncodeToString(strconv.AppendInt(nil, number+1, 10))
	})
	return list, next, err
}

// orderPart is a part of a list of orders: the SQL that names an index, and a condition on the first columns of that index.
// Without the index, the databases sometimes read all orders of a sale, or all newer orders.
type orderPart struct {
	index, where string
	args         []any
}

// mostNumbered is the most orders that are looked for by the beginning of a number in all sales, and mostUsers the most users whose
// ids begin in the same way.
const mostNumbered, mostUsers = 1000, 50

// orderParts returns the parts of the list of orders that f selects.
func (s *Store) orderParts(ctx context.Context, f model.OrderFilter) (parts []orderPart, err error) {
	db, byID, byUser := s.read.WithContext(ctx), s.index("orders_id"), s.index("orders_user")
	also, alsoArgs := "", []any(nil)
	if len(f.SaleIDs) > 0 {
		also, alsoArgs = " AND sale_id IN ?", append(alsoArgs, f.SaleIDs)
	}
	if f.Status != "" {
		also, alsoArgs = also+" AND status = ?", append(alsoArgs, string(f.Status))
	}
	part := func(index, where string, args ...any) orderPart {
		return orderPart{index, where + also, append(args, alsoArgs...)}
	}
	named := func(ids []string, err error) ([]orderPart, error) {
		if err != nil || len(ids) == 0 {
			return nil, err
		}
		return []orderPart{part(byID, "id IN ?", ids)}, nil
	}
	switch {
	case f.ID != "":
		return []orderPart{part(byID, beginsWith("id"), f.ID, f.ID+behindSale)}, nil
	case f.Payment != "":
		return named(column[string](db, "look for a payment", `SELECT order_id FROM payments WHERE id = ?
			UNION SELECT order_id FROM payments WHERE reference = ? UNION SELECT order_id FROM payments WHERE provider_txn_id = ?`, f.Payment, f.Payment, f.Payment))
	case f.Number != "" && len(f.SaleIDs) == 0:
		return named(column[string](db, "look for a number", "SELECT orders.id FROM sales"+s.dialect(" STRAIGHT_JOIN ", " CROSS JOIN ")+"orders"+byID+
			" ON orders.id >= CONCAT(sales.id, ?) AND orders.id < CONCAT(sales.id, ?) LIMIT ?", f.Number, f.Number+behindSale, mostNumbered))
	case f.Number != "": // an order's id begins with that of its sale
		return each(f.SaleIDs, func(id string) orderPart { return part(byID, beginsWith("id"), id+f.Number, id+f.Number+behindSale) }), nil
	case f.UserID != "":
		return []orderPart{part(byUser, "user_id = ?", f.UserID)}, nil
	case f.UserPrefix != "":
		users, err := column[string](db, "look for users", "SELECT DISTINCT user_id FROM orders"+byUser+" WHERE "+beginsWith("user_id")+
			" ORDER BY user_id LIMIT ?", f.UserPrefix, f.UserPrefix+behindSale, mostUsers)
		return each(users, func(id string) orderPart { return part(byUser, "user_id = ?", id) }), err
	case len(f.SaleIDs) > 0:
		statuses := model.StoredStatuses
		if f.Status != "" {
			statuses = []model.OrderStatus{f.Status}
		}
		for _, id := range f.SaleIDs {
			for _, status := range statuses {
				parts = append(parts, orderPart{s.index("orders_status"), "sale_id = ? AND status = ?", []any{id, string(status)}})
			}
		}
		return parts, nil
	}
	return []orderPart{part("", "1 = 1")}, nil
}

// beginsWith is a condition that a column of ids begins with a text. Its arguments are the text, and the text with behindSale.
func beginsWith(column string) string { return column + " >= ? AND " + column + " < ?" }

// numbersOf returns a query for the numbers of the orders in the parts, the highest first.
func numbersOf(parts []orderPart, below int64, limit int) (query string, args []any) {
	for i, p := range parts {
		query += fmt.Sprintf(" UNION ALL SELECT number FROM (SELECT number FROM orders%s WHERE %s AND number < ? ORDER BY number DESC LIMIT ?) AS part%d",
			p.index, p.where, i)
		args = append(append(args, p.args...), below, limit)
	}
	return strings.TrimPrefix(query, " UNION ALL ") + " ORDER BY number DESC LIMIT ?", append(args, limit)
}

// OrderRecord reads what is recorded of an order beside the order itself.
func (s *Store) OrderRecord(ctx context.Context, id string) (record model.OrderRecord, err error) {
	db := s.read.WithContext(ctx)
	record.EndedAt, _, err = one(scan(db, "read when an order ended", func(at *time.Time) []any { return []any{millis(at)} },
		"SELECT ended_at_ms FROM orders WHERE id = ?", id))
	if err == nil {
		record.Payments, err = findPayments(db, "order_id = ? ORDER BY payments.created_at_ms, payments.id", id)
	}
	if err == nil {
		record.Log, err = scan(db, "read the log of an order", func(e *model.AuditEntry) []any {
			return []any{millis(&e.At), &e.Actor, &e.Action, &e.Detail}
		}, "SELECT at_ms, actor, action, detail FROM audit_log WHERE subject = ? AND detail LIKE ? ORDER BY id", model.SaleOf(id), "order "+id+" %")
	}
	return record, err
}

func (s *Store) index(name string) string {
	return s.dialect(" FORCE INDEX ("+name+")", " INDEXED BY "+name)
}

// cancelMost is how many orders a user may cancel in one sale. The number is bounded, since cancelled orders stay in the tables.
const cancelMost = 100

// Cancel cancels a pending order and releases its units. The verdict is Accepted; NotFound if the user has no such order; or
// NotCancellable, with the order as it is, if it is not pending or the user has cancelled cancelMost orders of the sale.
func (s *Store) Cancel(ctx context.Context, userID, orderID string) (order model.Order, verdict model.Verdict, err error) {
	return s.end(ctx, orderID, ending{status: model.OrderCancelled, otherwise: model.NotCancellable, user: userID})
}

// CancelAny cancels a pending order of any user, and logs this as an action of actor. The order does not count for cancelMost.
// The verdict is Accepted; NotFound; or NotCancellable, with the order as it is, if it is not pending.
func (s *Store) CancelAny(ctx context.Context, orderID, actor string) (order model.Order, verdict model.Verdict, err error) {
	return s.end(ctx, orderID, ending{status: model.OrderCancelled, otherwise: model.NotCancellable, actor: actor, action: "cancel"})
}

// Overdue returns, by sale, the ids of pending orders whose deadline passed at least "grace" ago by the database's clock. It
// selects at most "limit" orders, those that have been overdue for longest, and leaves out the sales in "except". After a step
// forward of that clock, orders made before the step have step.By more time.
func (s *Store) Overdue(ctx context.Context, grace time.Duration, step model.ClockStep, limit int, except []string) (bySale map[string][]string, err error) {
	query, args := "", []any{string(model.OrderPending), grace.Milliseconds()}
	if step.By > 0 {
		query = " AND (created_at_ms >= ? OR expires_at_ms <= " + s.nowMillis() + " - ?)"
		args = append(args, step.At.UnixMilli(), (grace + step.By).Milliseconds())
	}
	if len(except) > 0 {
		query, args = query+" AND sale_id NOT IN ?", append(args, except)
	}
	ids, err := column[string](s.read.WithContext(ctx), "find orders to expire",
		"SELECT id FROM orders WHERE status = ? AND expires_at_ms <= "+s.nowMillis()+" - ?"+query+" ORDER BY expires_at_ms LIMIT ?", append(args, limit)...)
	bySale = map[string][]string{}
	for _, id := range ids {
		bySale[model.SaleOf(id)] = append(bySale[model.SaleOf(id)], id)
	}
	return bySale, err
}

// Expire expires those of the orders that are still pending and that no other transaction has locked, releases their units, and
// returns the releases. If the units may not come back yet, see mayReturn, it expires nothing, announces their return, and
// returns no error. The error wraps model.ErrBroken if the database rejects the change, for example because the books are wrong.
func (s *Store) Expire(ctx context.Context, saleID string, orderIDs []string) (released []model.Release, err error) {
	err = s.transact(ctx, func(tx *gorm.DB) error {
		released = nil
		list, err := scan(tx, "lock orders", orderFields, "SELECT "+orderColumns+", paid_at_ms FROM orders"+s.index("orders_id")+
			" WHERE id IN ? AND sale_id = ? AND status = ? ORDER BY expires_at_ms"+s.skipLocked(), orderIDs, saleID, string(model.OrderPending))
		if err != nil || len(list) == 0 {
			return err
		}
		for i := range list {
			list[i].Status = model.OrderExpired
		}
		if err := s.release(tx, saleID, model.OrderPending, list...); err != nil {
			return err
		}
		released = each(list, func(o model.Order) model.Release {
			return model.Release{OrderID: o.ID, UserID: o.UserID, Units: o.Quantity}
		})
		return nil
	})
	if err != nil {
		released = nil
		_, err = s.announceReturn(ctx, err)
	}
	if broken(err) {
		err = fmt.Errorf("%w: %w", model.ErrBroken, err)
	}
	return released, wrap("expire on sale "+saleID, err)
}

// RefundOrder marks a paid order as refunded, releases its units, marks its money as due for a refund, and logs this as an action
// of actor. The verdict is Accepted; NotFound; or NotRefundable, with the order as it is, if it is not paid.
func (s *Store) RefundOrder(ctx context.Context, orderID, actor string) (order model.Order, verdict model.Verdict, err error) {
	return s.end(ctx, orderID, ending{status: model.OrderRefunded, otherwise: model.NotRefundable, actor: actor, action: "refund"})
}

// ending is how somebody ends an order.
type ending struct {
	status        model.OrderStatus
	otherwise     model.Verdict // the verdict if the order can't end so
	user          string        // who cancels; the order must be this user's. Empty: it may be anybody's
	actor, action string        // for the audit log, if user is empty
}

// end gives an order the status of "e", releases its units, and marks the money of a paid order as due for a refund.
func (s *Store) end(ctx context.Context, orderID string, e ending) (order model.Order, verdict model.Verdict, err error) {
	verdict, err = s.decide(ctx, func(tx *gorm.DB) (model.Verdict, error) {
		var ok bool
		order, ok, err = s.lockOrder(tx, orderID)
		switch {
		case err != nil:
			return "", err
		case !ok || e.user != "" && order.UserID != e.user:
			order = model.Order{} // the caller must not see another user's order
			return model.NotFound, nil
		case !order.Status.CanBecome(e.status):
			return e.otherwise, nil
		}
		if e.user != "" {
			counted, err := exec(tx, "count cancelled orders",
				"UPDATE buyers SET cancelled = cancelled + 1 WHERE sale_id = ? AND user_id = ? AND cancelled < ?", order.SaleID, order.UserID, cancelMost)
			if err != nil || counted == 0 {
				return e.otherwise, err
			}
		}
		from := order.Status
		order.Status = e.status
		if err := s.release(tx, order.SaleID, from, order); err != nil || e.user != "" {
			return model.Accepted, err
		}
		if from == model.OrderPaid {
			if err := s.refundLater(tx, order); err != nil {
				return "", err
			}
		}
		return model.Accepted, s.run(tx, s.logging(e.actor, e.action, order.SaleID,
			fmt.Sprintf("order %s of %s: %s -> %s, quantity %d, %d cents", order.ID, order.UserID, from, e.status, order.Quantity, order.AmountCents)))
	})
	return order, verdict, err
}

func (s *Store) lockOrder(tx *gorm.DB, id string) (model.Order, bool, error) {
	return one(scan(tx, "lock order", orderFields, "SELECT "+orderColumns+", paid_at_ms FROM orders WHERE id = ?"+s.forUpdate(), id))
}
