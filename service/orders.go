package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"flashsale/model"
)

// OrderDesk reads and changes orders in the database.
type OrderDesk interface {
	Order(ctx context.Context, id string) (order model.Order, ok bool, err error)
	Orders(ctx context.Context, f model.OrderFilter) (list []model.Order, next string, err error)
	OrderRecord(ctx context.Context, id string) (model.OrderRecord, error)
	Cancel(ctx context.Context, userID, orderID string) (model.Order, model.Verdict, error)
	CancelAny(ctx context.Context, orderID, actor string) (model.Order, model.Verdict, error)
	RefundOrder(ctx context.Context, orderID, actor string) (model.Order, model.Verdict, error)
}

// Refuser writes a durable refusal of an attempt, unless the id of the attempt has an outcome already.
type Refuser interface {
	Refuse(ctx context.Context, e model.Entry, reason model.Verdict) (model.Outcome, error)
}

// GateTeller applies to a sale's gate the changes that the database made without the gate.
type GateTeller interface {
	Changed(ctx context.Context, saleID string)
}

// Knower looks an order's id up at the gate.
type Knower interface {
	Knows(ctx context.Context, gate model.GateRef, userID, orderID string) (quantity int, known bool, err error)
}

// Orders shows, cancels and refunds orders after the purchase.
type Orders struct {
	Desk    OrderDesk
	Ledger  Refuser
	IDs     model.OrderIDs
	Catalog *Catalog
	Gate    Knower
	Gates   GateTeller
}

// Order returns a user's order, which may also be queued or rejected. The verdict is Accepted, or NotFound if the sale was erased
// or the id was never issued to this user. If neither store knows an issued id, the attempt is rejected for good with the reason
// lost. An error wraps model.ErrUnavailable.
func (o *Orders) Order(ctx context.Context, userID, id string) (order model.Order, verdict model.Verdict, err error) {
	if !o.IDs.Issued(userID, id) {
		return order, model.NotFound, nil
	}
	defer func() {
		if err != nil {
			order, verdict, err = model.Order{}, "", errors.Join(model.ErrUnavailable, err)
		}
	}()
	order, ok, err := o.Desk.Order(ctx, id)
	if err != nil || ok {
		return order, model.Accepted, err
	}
	offer, ok, err := o.Catalog.Sale(ctx, model.SaleOf(id))
	if err != nil || !ok { // the sale was erased with its orders
		return order, model.NotFound, err
	}
	quantity, known, err := o.Gate.Knows(ctx, offer.GateRef(), userID, id)
	if err != nil {
		return order, "", err
	}
	if !known {
		order, err = o.lost(ctx, userID, id)
		return order, model.Accepted, err
	}
	return model.Order{
		ID: id, SaleID: offer.ID, UserID: userID, Status: model.OrderQueued, Quantity: quantity,
		AmountCents: int64(quantity) * offer.PriceCents, Currency: offer.Currency,
	}, model.Accepted, nil
}

// lost refuses an attempt that neither store knows, and returns what the database then has under its id: this refusal, or the
// outcome of a writer that was first. The refusal is written before the buyer gets it, since a settler may still hold the
// attempt's entry. The refusal has no quantity, because that is not known.
func (o *Orders) lost(ctx context.Context, userID, id string) (model.Order, error) {
	e := model.Entry{Attempt: model.Attempt{ID: id, SaleID: model.SaleOf(id), UserID: userID}}
	if _, err := o.Ledger.Refuse(ctx, e, model.ReasonLost); err != nil {
		return model.Order{}, err
	}
	order, ok, err := o.Desk.Order(ctx, id)
	if err == nil && !ok {
		err = model.ErrUnavailable
	}
	return order, err
}

// List returns a page of the orders that f selects, and the cursor of the next page. If "words" isn't empty, List returns those
// orders that the first of readings finds. List returns model.ErrBadCursor if f.Cursor is malformed.
func (o *Orders) List(ctx context.Context, f model.OrderFilter, words string) (list []model.Order, next string, err error) {
	if words == "" {
		return o.Desk.Orders(ctx, f)
	}
	for _, named := range readings(f, words) {
		if list, next, err = o.Desk.Orders(ctx, named); err != nil || len(list) > 0 {
			return list, next, err
		}
	}
	return nil, "", nil
}

const (
	minBeginning = 4        // characters by which the beginning of a number or of a user's id is looked for
	maxReference = 255      // characters of a provider's reference
	engine       = "engine" // the actor of what the engine does by itself
)

// readings returns what "words" may name, in the order in which it is looked for: an order by its id or its number, or by the
// beginning of one of these; a payment; a user; the beginning of a user's id.
func readings(f model.OrderFilter, words string) (list []model.OrderFilter) {
	read := func(may bool, name func(*model.OrderFilter)) {
		if may {
			named := f
			name(&named)
			list = append(list, named)
		}
	}
	length, id := len(words), strings.ToUpper(words)
	isID := model.ValidID(id, length)
	unusual := func(r rune) bool { return r <= ' ' || r > '~' } // databases differ in how they compare these
	read(isID && length >= model.IDLength+minBeginning && length <= model.OrderIDLength, func(f *model.OrderFilter) { f.ID = id })
	read(isID && length >= minBeginning && length <= model.NumberLength, func(f *model.OrderFilter) { f.Number = id })
	read(length <= maxReference && !strings.ContainsFunc(words, unusual), func(f *model.OrderFilter) { f.Payment = words })
	read(model.ValidUserID(words), func(f *model.OrderFilter) { f.UserID = words })
	read(model.ValidUserID(words) && length >= minBeginning, func(f *model.OrderFilter) { f.UserPrefix = words })
	return list
}

// Record returns anybody's order, or an attempt with a durable refusal, and what is recorded of it. In the record, Log is the whole
// history of the order. The verdict is Accepted or NotFound.
func (o *Orders) Record(ctx context.Context, id string) (order model.Order, record model.OrderRecord, verdict model.Verdict, err error) {
	if !model.ValidID(id, model.OrderIDLength) {
		return order, record, model.NotFound, nil
	}
	order, ok, err := o.Desk.Order(ctx, id)
	if err != nil || !ok {
		return order, record, model.NotFound, err
	}
	record, err = o.Desk.OrderRecord(ctx, id)
	record.Log = history(order, record)
	return order, record, model.Accepted, err
}

// history returns the recorded events of an order, the oldest first.
func history(order model.Order, record model.OrderRecord) (list []model.AuditEntry) {
	add := func(at time.Time, actor, action, detail string) {
		if !at.IsZero() {
			list = append(list, model.AuditEntry{At: at, Actor: actor, Action: action, Detail: detail})
		}
	}
	switch {
	case order.Status == model.OrderRejected:
		add(order.CreatedAt, engine, "order_rejected", string(order.Reason))
	case order.Source == model.FromDraw:
		add(order.CreatedAt, engine, "order_made", "")
	default:
		add(order.CreatedAt, order.UserID, "order_made", "")
	}
	provider, started := "", time.Time{}
	for _, p := range record.Payments {
		if !p.CreatedAt.Equal(started) { // a second transaction of a payment has a row with the same time
			add(p.CreatedAt, order.UserID, "payment_started", p.ID)
			started = p.CreatedAt
		}
		if p.ProviderTxnID != "" && p.Status != model.PaymentFailed {
			provider = p.Provider
		}
	}
	add(order.PaidAt, provider, "order_paid", "")
	list = append(list, record.Log...)
	byOperator := slices.ContainsFunc(record.Log, func(e model.AuditEntry) bool { return e.Action == "cancel" })
	switch {
	case order.Status == model.OrderCancelled && !byOperator:
		add(record.EndedAt, order.UserID, "order_cancelled", "")
	case order.Status == model.OrderExpired, order.Status == model.OrderPaid: // a late payment pays an expired order
		add(record.EndedAt, engine, "order_expired", "")
	}
	slices.SortStableFunc(list, func(a, b model.AuditEntry) int { return a.At.Compare(b.At) })
	return list
}

// Cancel releases a user's pending order. The verdict is Accepted; NotFound if the id was never issued to this user; or
// NotCancellable if the order is not pending or if the user has cancelled too many orders of the sale.
func (o *Orders) Cancel(ctx context.Context, userID, id string) (model.Order, model.Verdict, error) {
	if !o.IDs.Issued(userID, id) {
		return model.Order{}, model.NotFound, nil
	}
	cancel := func(ctx context.Context, id, userID string) (model.Order, model.Verdict, error) {
		return o.Desk.Cancel(ctx, userID, id)
	}
	order, verdict, err := o.end(ctx, id, userID, cancel)
	if verdict == model.NotFound {
		verdict = model.NotCancellable // the id was issued, but there is no order that can be cancelled
	}
	return order, verdict, err
}

// CancelAny releases anybody's pending order. The verdict is Accepted; NotFound; or NotCancellable.
func (o *Orders) CancelAny(ctx context.Context, id, actor string) (model.Order, model.Verdict, error) {
	return o.end(ctx, id, actor, o.Desk.CancelAny)
}

// Refund releases a paid order, whose money is then due for a refund. The verdict is Accepted; NotFound; or NotRefundable.
func (o *Orders) Refund(ctx context.Context, id, actor string) (model.Order, model.Verdict, error) {
	return o.end(ctx, id, actor, o.Desk.RefundOrder)
}

// end ends an order, and tells the gate.
func (o *Orders) end(
	ctx context.Context, id, actor string, end func(ctx context.Context, id, actor string) (model.Order, model.Verdict, error),
) (model.Order, model.Verdict, error) {
	if !model.ValidID(id, model.OrderIDLength) {
		return model.Order{}, model.NotFound, nil
	}
	order, verdict, err := end(ctx, id, actor)
	if err != nil {
		return model.Order{}, "", fmt.Errorf("end an order: %w", err)
	}
	if verdict == model.Accepted {
		o.Gates.Changed(ctx, order.SaleID)
	}
	return order, verdict, nil
}
