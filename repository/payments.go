package repository

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"

	"gorm.io/gorm"

	"flashsale/internal/observe"
	"flashsale/model"
)

type paymentRow struct {
	ID, OrderID, Provider    string
	ProviderTxnID            sql.NullString
	AmountCents              int64
	Status                   string
	CreatedAtMs, ExpiresAtMs int64
}

func (paymentRow) TableName() string { return "payments" }

func (r paymentRow) payment(currency string) model.Payment {
	return model.Payment{
		Currency: currency,
		ID:       r.ID, OrderID: r.OrderID, Provider: r.Provider, ProviderTxnID: r.ProviderTxnID.String,
		AmountCents: r.AmountCents, Status: model.PaymentStatus(r.Status), ExpiresAt: fromMillis(r.ExpiresAtMs),
	}
}

// StartPayment opens a payment of a user's pending order, or returns the payment that is open already. It refuses with
// NotFound if there is no such order or it is another user's, and with NotPayable if the order is not pending or its
// deadline has passed.
func (s *Store) StartPayment(ctx context.Context, userID, orderID, provider string) (payment model.Payment, verdict model.Verdict, err error) {
	verdict, err = s.decide(ctx, func(tx *gorm.DB) (model.Verdict, error) {
		order, ok, err := s.lockOrder(tx, orderID)
		if err != nil {
			return "", err
		}
		now, err := s.nowOn(tx)
		switch {
		case err != nil:
			return "", err
		case !ok || order.UserID != userID:
			return model.NotFound, nil
		case order.Status != model.OrderPending || !now.Before(order.ExpiresAt):
			return model.NotPayable, nil
		}
		row, open, err := findPayment(tx, "order_id = ? AND provider = ? AND status = ?", orderID, provider, string(model.PaymentOpen))
		if err != nil || open {
			payment = row.payment(order.Currency)
			return model.Accepted, err
		}
		row = paymentRow{
			ID: rand.Text(), OrderID: orderID, Provider: provider, AmountCents: order.AmountCents,
			Status: string(model.PaymentOpen), CreatedAtMs: now.UnixMilli(), ExpiresAtMs: order.ExpiresAt.UnixMilli(),
		}
		payment = row.payment(order.Currency)
		return model.Accepted, wrap("open a payment", tx.Create(&row).Error)
	})
	return payment, verdict, err
}

// Payment reads a payment with its order's currency; ok is false if there is none.
func (s *Store) Payment(ctx context.Context, id string) (payment model.Payment, ok bool, err error) {
	var rows []struct {
		Row      paymentRow `gorm:"embedded"`
		Currency string
	}
	err = s.read.WithContext(ctx).Raw("SELECT payments.*, currency FROM payments JOIN orders ON orders.id = order_id WHERE payments.id = ?", id).Scan(&rows).Error
	if err != nil || len(rows) == 0 {
		return payment, false, wrap("read payment", err)
	}
	return rows[0].Row.payment(rows[0].Currency), true, nil
}

// ApplyCallback records what a provider reports about a payment, once for each transaction of the provider, and changes
// the order. A pending order becomes paid. An expired order is reinstated if the stock and the user's limit allow it.
// Money that no order can keep becomes due for a refund. reinstated means that the order took units again, which the
// gate has to be told.
//
// ApplyCallback refuses with NotFound if there is no such payment, with AmountMismatch if the amount differs, and with
// NotPayable if the transaction belongs to another order.
func (s *Store) ApplyCallback(ctx context.Context, provider string, cb model.Callback) (order model.Order, reinstated bool, verdict model.Verdict, err error) {
	verdict, err = s.decide(ctx, func(tx *gorm.DB) (model.Verdict, error) {
		reinstated = false
		asked, ok, err := findPayment(tx, "id = ? AND provider = ?", cb.PaymentID, provider)
		switch {
		case err != nil:
			return "", err
		case !ok:
			return model.NotFound, nil
		case asked.AmountCents != cb.AmountCents:
			return model.AmountMismatch, nil
		}
		// Every callback of this order takes the order's lock first, so what is read from here on does not change until the
		// commit.
		if order, ok, err = s.lockOrder(tx, asked.OrderID); err != nil {
			return "", err
		} else if !ok {
			return "", fmt.Errorf("payment %s is of no order", asked.ID)
		}
		row, seen, err := findPayment(tx, "provider = ? AND provider_txn_id = ?", provider, cb.ProviderTxnID)
		switch {
		case err != nil:
			return "", err
		case seen && row.OrderID != order.ID:
			return model.NotPayable, nil
		case seen && (!cb.Succeeded || row.Status != string(model.PaymentFailed)):
			return model.Accepted, nil // the transaction is recorded already: the same answer
		case !seen:
			if row, err = newTransaction(tx, cb); err != nil {
				return "", err
			}
		}
		status := model.PaymentFailed
		if cb.Succeeded {
			expired := order.Status == model.OrderExpired
			if status, err = s.keepMoney(tx, &order); err != nil {
				return "", err
			}
			reinstated = expired && order.Status == model.OrderPaid
		}
		err = tx.Exec("UPDATE payments SET provider_txn_id = ?, status = ? WHERE id = ?", cb.ProviderTxnID, string(status), row.ID).Error
		return model.Accepted, wrap("record a payment", err)
	})
	return order, reinstated, verdict, err
}

// newTransaction returns the row for a new transaction of the provider: the payment's own row, or a new row if the
// payment's own has another transaction already.
func newTransaction(tx *gorm.DB, cb model.Callback) (paymentRow, error) {
	row, _, err := findPayment(tx, "id = ?", cb.PaymentID)
	if err != nil || !row.ProviderTxnID.Valid {
		return row, err
	}
	row.ID = rand.Text()
	row.ProviderTxnID.String = cb.ProviderTxnID
	return row, wrap("record a payment", tx.Create(&row).Error)
}

func findPayment(tx *gorm.DB, where string, args ...any) (row paymentRow, ok bool, err error) {
	var rows []paymentRow
	if err := tx.Where(where, args...).Limit(1).Find(&rows).Error; err != nil {
		return row, false, fmt.Errorf("look for a payment: %w", err)
	}
	if len(rows) == 0 {
		return row, false, nil
	}
	return rows[0], true, nil
}

// keepMoney marks a locked order as paid if possible. It returns the status of the payment: succeeded, or due for a
// refund.
func (s *Store) keepMoney(tx *gorm.DB, order *model.Order) (status model.PaymentStatus, err error) {
	if !order.Status.CanBecome(model.OrderPaid) { // it is cancelled, refunded, or paid by another transaction
		return model.PaymentRefundDue, nil
	}
	kept := true
	if order.Status == model.OrderExpired {
		kept, err = s.reinstate(tx, *order)
	} else {
		err = tx.Exec("UPDATE stock SET held = held - ?, paid = paid + ?, version = version + 1 WHERE sale_id = ?",
			order.Quantity, order.Quantity, order.SaleID).Error
	}
	if err != nil {
		return "", fmt.Errorf("pay order: %w", err)
	}
	if !kept {
		return model.PaymentRefundDue, nil
	}
	now, err := s.nowOn(tx)
	if err != nil {
		return "", err
	}
	res := tx.Exec("UPDATE orders SET status = ?, paid_at_ms = ? WHERE id = ? AND status = ?",
		string(model.OrderPaid), now.UnixMilli(), order.ID, string(order.Status))
	if res.Error != nil {
		return "", fmt.Errorf("pay order: %w", res.Error)
	}
	if res.RowsAffected != 1 {
		return "", fmt.Errorf("pay order %s: it was not %s", order.ID, order.Status)
	}
	order.Status, order.PaidAt = model.OrderPaid, now
	return model.PaymentSucceeded, nil
}

// reinstate takes the units of an expired order again. taken is false if the user's limit or the stock does not allow
// it.
func (s *Store) reinstate(tx *gorm.DB, order model.Order) (taken bool, err error) {
	offer, _, _, err := s.offerOn(tx, order.SaleID)
	if err != nil {
		return false, err
	}
	wanted := []userUnits{{order.SaleID, order.UserID, order.Quantity}}
	if err := s.addUnits(tx, wanted); err != nil {
		return false, err
	}
	units, err := s.unitsOf(tx, order.SaleID, []string{order.UserID})
	if err != nil {
		return false, err
	}
	if units[order.UserID] > offer.LimitPerUser {
		return false, s.returnUnits(tx, order.SaleID, wanted)
	}
	res := tx.Exec("UPDATE stock SET available = available - ?, paid = paid + ?, "+nextGateVersion+" WHERE sale_id = ? AND available >= ?",
		order.Quantity, order.Quantity, order.SaleID, order.Quantity)
	if res.Error != nil {
		return false, fmt.Errorf("reinstate: %w", res.Error)
	}
	if res.RowsAffected == 0 {
		return false, s.returnUnits(tx, order.SaleID, wanted)
	}
	return true, s.tellGate(tx, order.SaleID, gateChange{orderID: order.ID, units: -int64(order.Quantity)})
}

// RefundsDue lists at most limit payments whose money is due for a refund.
func (s *Store) RefundsDue(ctx context.Context, limit int) ([]model.Payment, error) {
	var rows []paymentRow
	if err := s.read.WithContext(ctx).Where("status = ?", string(model.PaymentRefundDue)).Limit(limit).Find(&rows).Error; err != nil {
		return nil, fmt.Errorf("list refunds due: %w", err)
	}
	list := make([]model.Payment, len(rows))
	for i, r := range rows {
		list[i] = r.payment("")
	}
	return list, nil
}

// MarkRefunded records that the provider has refunded a payment.
func (s *Store) MarkRefunded(ctx context.Context, paymentID string) (err error) {
	ctx, end := s.observe.Begin(ctx, observe.Step{Name: observe.MarkRefunded})
	defer func() { end(err) }()
	err = s.write.WithContext(ctx).Exec("UPDATE payments SET status = ? WHERE id = ? AND status = ?",
		string(model.PaymentRefunded), paymentID, string(model.PaymentRefundDue)).Error
	return wrap("mark refunded", err)
}
