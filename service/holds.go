package service

import (
	"context"

	"flashsale/model"
)

// Holds lets a shop with a checkout of its own end its orders: it takes the money itself and then settles the order, or
// it releases the order.
type Holds struct {
	Orders   *Orders
	Payments *Payments
}

// Hold returns an order. The verdict is NotFound if there is none; a queued attempt is none yet.
func (h *Holds) Hold(ctx context.Context, orderID string) (model.Order, model.Verdict, error) {
	if !model.ValidID(orderID, model.OrderIDLength) {
		return model.Order{}, model.NotFound, nil
	}
	order, ok, err := h.Orders.Desk.Order(ctx, orderID)
	if err != nil || !ok || order.Status == model.OrderRejected {
		return model.Order{}, model.NotFound, err
	}
	return order, model.Accepted, nil
}

// Settle records that the shop has taken the money of an order under a reference of its own, once however often it is
// called. The verdict is RefundDue if the order can't keep the money: the order has ended and its units are sold, or another
// payment was earlier. The shop then has to send the money back. If the verdict is NotFound, AmountMismatch or NotPayable
// (the reference belongs to another order), nothing was changed.
func (h *Holds) Settle(ctx context.Context, orderID, reference string, amountCents int64) (model.Order, model.Verdict, error) {
	payment, verdict, err := h.payment(ctx, orderID)
	if err != nil || verdict != model.Accepted {
		return model.Order{}, verdict, err
	}
	order, verdict, err := h.Payments.Settle(ctx, payment.ID, reference, model.PaymentSucceeded, amountCents)
	if err != nil || verdict != model.Accepted {
		return order, verdict, err
	}
	settled, ok, err := h.Payments.Store.Transaction(ctx, payment.Provider, reference)
	if err == nil && ok && settled.Status != model.PaymentSucceeded {
		verdict = model.RefundDue
	}
	return order, verdict, err
}

// Refunded records that the shop has sent the money of a reference back. A paid order is refunded thereby. The verdict is
// NotFound if there is no such reference of the order.
func (h *Holds) Refunded(ctx context.Context, orderID, reference string) (model.Order, model.Verdict, error) {
	payment, verdict, err := h.payment(ctx, orderID)
	if err != nil || verdict != model.Accepted {
		return model.Order{}, verdict, err
	}
	return h.Payments.Settle(ctx, payment.ID, reference, model.PaymentRefunded, payment.AmountCents)
}

// payment returns a payment of an order; the verdict is NotFound if there is no such order.
func (h *Holds) payment(ctx context.Context, orderID string) (model.Payment, model.Verdict, error) {
	if !model.ValidID(orderID, model.OrderIDLength) {
		return model.Payment{}, model.NotFound, nil
	}
	payment, ok, err := h.Payments.Store.PaymentOfOrder(ctx, orderID, h.Payments.Provider.Name())
	if err != nil || !ok {
		return model.Payment{}, model.NotFound, err
	}
	return payment, model.Accepted, nil
}

// Release gives the units of a pending order back, once however often it is called: an order that has ended unpaid is
// accepted as it is. The verdict is NotFound, or NotCancellable if the order was paid.
func (h *Holds) Release(ctx context.Context, orderID, actor string) (model.Order, model.Verdict, error) {
	order, verdict, err := h.Orders.CancelAny(ctx, orderID, actor)
	if verdict == model.NotCancellable && (order.Status == model.OrderCancelled || order.Status == model.OrderExpired) {
		verdict = model.Accepted
	}
	return order, verdict, err
}
