package service

import (
	"context"

	"flashsale/model"
)

// Holds is for a shop with a checkout of its own: the shop takes the money and settles an order, or it releases the order.
type Holds struct {
	Orders   *Orders
	Payments *Payments
}

// Hold returns an order. The verdict is Accepted, or NotFound if there is no such order, or its attempt is queued or was refused.
func (h *Holds) Hold(ctx context.Context, orderID string) (model.Order, model.Verdict, error) {
	if !model.ValidID(orderID, model.OrderIDLength) {
		return model.Order{}, model.NotFound, nil
	}
	order, ok, err := h.Orders.Desk.Order(ctx, orderID)
	return order, acceptedIf(ok && order.Status != model.OrderRejected, model.NotFound), err
}

// Settle records that the shop has taken the money of an order, under a reference of the shop. A repetition changes nothing. The
// verdict is Accepted if the money pays the order. It is RefundDue if the order does not keep the money: the shop then has to
// send the money back, unless it has done so. With NotFound, AmountMismatch, or NotPayable (another order has the reference),
// nothing is recorded.
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

// Refunded records that the shop has sent the money of a reference back. If this money had paid the order, the order becomes
// refunded. The verdict is Accepted, also if this was recorded before; NotFound if there is no such order or reference;
// NotPayable if the reference belongs to another order; or AmountMismatch.
func (h *Holds) Refunded(ctx context.Context, orderID, reference string) (model.Order, model.Verdict, error) {
	payment, verdict, err := h.payment(ctx, orderID)
	if err != nil || verdict != model.Accepted {
		return model.Order{}, verdict, err
	}
	return h.Payments.Settle(ctx, payment.ID, reference, model.PaymentRefunded, payment.AmountCents)
}

// payment returns a payment of an order, and opens one if there is none. The verdict is Accepted, or NotFound without such an
// order.
func (h *Holds) payment(ctx context.Context, orderID string) (model.Payment, model.Verdict, error) {
	if !model.ValidID(orderID, model.OrderIDLength) {
		return model.Payment{}, model.NotFound, nil
	}
	payment, ok, err := h.Payments.Store.PaymentOfOrder(ctx, orderID, h.Payments.Provider.Name())
	return payment, acceptedIf(ok, model.NotFound), err
}

// Release cancels a pending order and gives its units back. The verdict is Accepted, also if the order is cancelled or expired
// already; NotFound; or NotCancellable if the order is paid or refunded.
func (h *Holds) Release(ctx context.Context, orderID, actor string) (model.Order, model.Verdict, error) {
	order, verdict, err := h.Orders.CancelAny(ctx, orderID, actor)
	if verdict == model.NotCancellable && (order.Status == model.OrderCancelled || order.Status == model.OrderExpired) {
		verdict = model.Accepted
	}
	return order, verdict, err
}
