package service

import (
	"context"
	"errors"
	"fmt"

	"flashsale/model"
)

// OrderDesk is what the database does with orders.
type OrderDesk interface {
	OrderStore
	Orders(ctx context.Context, f model.OrderFilter) (list []model.Order, next string, err error)
	Cancel(ctx context.Context, userID, orderID string) (model.Order, model.Verdict, error)
	RefundOrder(ctx context.Context, orderID, actor string) (model.Order, model.Verdict, error)
}

// Refuser writes a durable no to an attempt, unless its id has an outcome already.
type Refuser interface {
	Refuse(ctx context.Context, e model.Entry, reason model.Verdict) (model.Outcome, error)
}

// GateTeller tells a sale's gate what the database has just changed without it.
type GateTeller interface {
	Changed(ctx context.Context, saleID string)
}

// Knower tells whether the gate knows an order's id.
type Knower interface {
	Knows(ctx context.Context, orderID string) (request model.Request, known bool, err error)
}

// Orders follows orders after the purchase.
type Orders struct {
	Desk    OrderDesk
	Ledger  Refuser
	IDs     model.OrderIDs
	Catalog *Catalog
	Gate    Knower
	Gates   GateTeller
}

// Order gives a user's order. NotFound: never issued to this user, which is told without a look-up. An order
// that was queued and that neither store knows any more is rejected for good with the reason lost; that is said only
// when both stores answer, else model.ErrUnavailable.
func (o *Orders) Order(ctx context.Context, userID, id string) (model.Order, model.Verdict, error) {
	if !o.IDs.Issued(userID, id) {
		return model.Order{}, model.NotFound, nil
	}
	order, ok, err := o.Desk.Order(ctx, id)
	if err != nil {
		return model.Order{}, "", errors.Join(model.ErrUnavailable, err)
	}
	if ok {
		return order, model.Accepted, nil
	}
	request, known, err := o.Gate.Knows(ctx, id)
	if err != nil {
		return model.Order{}, "", errors.Join(model.ErrUnavailable, err)
	}
	if !known {
		return o.lost(ctx, userID, id)
	}
	offer, _, err := o.Catalog.Sale(ctx, model.SaleOf(id))
	if err != nil {
		return model.Order{}, "", errors.Join(model.ErrUnavailable, err)
	}
	return model.Order{
		ID: id, SaleID: offer.ID, UserID: userID, Status: model.OrderQueued, Quantity: request.Quantity,
		AmountCents: int64(request.Quantity) * offer.PriceCents, Currency: offer.Currency,
	}, model.Accepted, nil
}

// lost refuses an attempt that neither store knows, and gives what its id has then: the refusal, or the order of whoever
// was first. It is written before it is told, since a settler may still hold the attempt's entry. Of the request itself
// nothing is known any more.
func (o *Orders) lost(ctx context.Context, userID, id string) (model.Order, model.Verdict, error) {
	e := model.Entry{Attempt: model.Attempt{ID: id, SaleID: model.SaleOf(id), UserID: userID}}
	if _, err := o.Ledger.Refuse(ctx, e, model.ReasonLost); err != nil {
		return model.Order{}, "", errors.Join(model.ErrUnavailable, err)
	}
	order, ok, err := o.Desk.Order(ctx, id)
	if err != nil || !ok {
		return model.Order{}, "", errors.Join(model.ErrUnavailable, err)
	}
	return order, model.Accepted, nil
}

// List gives a page of orders and the cursor of the next. model.ErrBadCursor: not a cursor of ours.
func (o *Orders) List(ctx context.Context, f model.OrderFilter) ([]model.Order, string, error) {
	return o.Desk.Orders(ctx, f)
}

// Search is List of the orders whose id, or else whose user's, is exactly words; without words of all.
func (o *Orders) Search(ctx context.Context, f model.OrderFilter, words string) ([]model.Order, string, error) {
	if words != "" && !model.ValidUserID(words) {
		return nil, "", nil // the form of any id; databases differ in what they make of others
	}
	if model.ValidID(words, model.OrderIDLength) {
		f.ID = words
		if list, next, err := o.List(ctx, f); err != nil || len(list) > 0 {
			return list, next, err
		}
		f.ID = ""
	}
	f.UserID = words
	return o.List(ctx, f)
}

// Cancel takes a user's pending order back. NotFound, or NotCancellable once it is no longer pending.
func (o *Orders) Cancel(ctx context.Context, userID, id string) (model.Order, model.Verdict, error) {
	if !o.IDs.Issued(userID, id) {
		return model.Order{}, model.NotFound, nil
	}
	order, verdict, err := o.Desk.Cancel(ctx, userID, id)
	if err != nil {
		return model.Order{}, "", fmt.Errorf("cancel: %w", err)
	}
	if verdict == model.NotFound {
		return order, model.NotCancellable, nil // issued, so it is queued or lost
	}
	if verdict == model.Accepted {
		o.Gates.Changed(ctx, order.SaleID)
	}
	return order, verdict, nil
}

// Refund takes a paid order back for an operator; its money is sent back by the refunder. NotRefundable: not paid.
func (o *Orders) Refund(ctx context.Context, id, actor string) (model.Order, model.Verdict, error) {
	if !model.ValidID(id, model.OrderIDLength) {
		return model.Order{}, model.NotFound, nil
	}
	order, verdict, err := o.Desk.RefundOrder(ctx, id, actor)
	if err != nil {
		return model.Order{}, "", fmt.Errorf("refund: %w", err)
	}
	if verdict == model.Accepted {
		o.Gates.Changed(ctx, order.SaleID)
	}
	return order, verdict, nil
}
