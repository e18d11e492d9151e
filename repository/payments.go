package repository

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"gorm.io/gorm"

	"flashsale/internal/observe"
	"flashsale/model"
)

// firstLook is the age of a payment at which the provider is to be asked about it first, unless the order's deadline is earlier.
const firstLook = time.Minute

// The pauses between tries of a refund double from firstRefundPause up to lastRefundPause.
const firstRefundPause, lastRefundPause = 5 * time.Second, time.Hour

func refundPause(tries int) time.Duration {
	return min(firstRefundPause<<min(tries, 20), lastRefundPause)
}

func findPayments(db *gorm.DB, where string, args ...any) ([]model.Payment, error) {
	return scan(db, "read payments", func(p *model.Payment) []any {
		return []any{
			&p.ID, &p.OrderID, &p.UserID, &p.Quantity, &p.Provider, optional(&p.Reference), optional(&p.ProviderTxnID), &p.AmountCents, &p.Currency,
			&p.Status, millis(&p.CreatedAt), millis(&p.ExpiresAt), &p.Tries,
		}
	}, `SELECT payments.id, order_id, user_id, quantity, provider, reference, provider_txn_id, payments.amount_cents,
		COALESCE(payments.currency, orders.currency), payments.status, payments.created_at_ms, payments.expires_at_ms, tries
		FROM payments JOIN orders ON orders.id = order_id WHERE `+where, args...)
}

// insertPayment inserts a payment. The provider is to be asked about it at the time "look"; the zero time plans nothing.
func insertPayment(tx *gorm.DB, p model.Payment, look time.Time) error {
	err := tx.Exec(`INSERT INTO payments (id, order_id, provider, reference, provider_txn_id, amount_cents, currency, status, created_at_ms,
		expires_at_ms, look_at_ms, tries) VALUES (?, ?, ?, NULLIF(?, ''), NULLIF(?, ''), ?, ?, ?, ?, ?, NULLIF(?, 0), ?)`,
		p.ID, p.OrderID, p.Provider, p.Reference, p.ProviderTxnID, p.AmountCents, p.Currency, string(p.Status), p.CreatedAt.UnixMilli(),
		p.ExpiresAt.UnixMilli(), toMillis(look), p.Tries).Error
	return wrap("insert a payment", err)
}

// StartPayment opens a payment of a user's pending order at a provider, or returns the payment that is open there already. The
// verdict is Accepted; NotFound if the user has no such order; or NotPayable if it is not pending or its deadline has passed.
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
		payment, err = openPayment(tx, order, provider, now)
		return model.Accepted, err
	})
	return payment, verdict, err
}

// openPayment returns the open payment of a locked order at a provider. It makes one if there is none.
func openPayment(tx *gorm.DB, order model.Order, provider string, now time.Time) (model.Payment, error) {
	payment, open, err := findPayment(tx, "order_id = ? AND provider = ? AND payments.status = ?", order.ID, provider, string(model.PaymentOpen))
	if err != nil || open {
		return payment, err
	}
	look := now.Add(firstLook)
	if order.ExpiresAt.Before(look) { // still in time: the order expires a grace period after its deadline
		look = order.ExpiresAt
	}
	payment = model.Payment{
		ID: rand.Text(), OrderID: order.ID, UserID: order.UserID, Quantity: order.Quantity, Provider: provider,
		AmountCents: order.AmountCents, Currency: order.Currency, Status: model.PaymentOpen, CreatedAt: now, ExpiresAt: order.ExpiresAt,
	}
	return payment, insertPayment(tx, payment, look)
}

// PaymentOfOrder returns a payment of an order at a provider, or opens one if there is none. The order and the payment may have
// any status. ok is false if there is no such order.
func (s *Store) PaymentOfOrder(ctx context.Context, orderID, provider string) (payment model.Payment, ok bool, err error) {
	err = s.transact(ctx, func(tx *gorm.DB) error {
		var order model.Order
		if order, ok, err = s.lockOrder(tx, orderID); err != nil || !ok {
			return err
		}
		var found bool
		if payment, found, err = findPayment(tx, "order_id = ? AND provider = ?", orderID, provider); err != nil || found {
			return err
		}
		now, err := s.nowOn(tx)
		if err == nil {
			payment, err = openPayment(tx, order, provider, now)
		}
		return err
	})
	return payment, ok, wrap("payment of an order", err)
}

// SetReference records, for an open payment, the provider's id of what it has opened, unless an id is recorded already. It
// returns the recorded id. If the payment is not open, open is false and the id empty.
func (s *Store) SetReference(ctx context.Context, paymentID, reference string) (recorded string, open bool, err error) {
	err = s.update(ctx, "record a payment's reference", "UPDATE payments SET reference = ? WHERE id = ? AND status = ? AND reference IS NULL",
		reference, paymentID, string(model.PaymentOpen))
	if err != nil {
		return "", false, err
	}
	payment, open, err := findPayment(s.write.WithContext(ctx), "payments.id = ? AND payments.status = ?", paymentID, string(model.PaymentOpen))
	return payment.Reference, open, err
}

// CountTry counts a try to open a payment. Callers that have read the same payment.Tries count one try together.
func (s *Store) CountTry(ctx context.Context, payment model.Payment) error {
	return s.update(ctx, "count a try of a payment", "UPDATE payments SET tries = tries + 1 WHERE id = ? AND status = ? AND tries = ?",
		payment.ID, string(model.PaymentOpen), payment.Tries)
}

// Unreported returns at most "limit" open payments about which the provider is to be asked by now, the longest due first.
func (s *Store) Unreported(ctx context.Context, provider string, limit int) ([]model.Payment, error) {
	return findPayments(s.read.WithContext(ctx), "provider = ? AND payments.status = ? AND look_at_ms <= "+s.nowMillis()+" ORDER BY look_at_ms LIMIT ?",
		provider, string(model.PaymentOpen), limit)
}

// LookAgain sets the time at which the provider is asked next about an open payment.
func (s *Store) LookAgain(ctx context.Context, paymentID string, at time.Time) error {
	return s.update(ctx, "plan a look at a payment", "UPDATE payments SET look_at_ms = ? WHERE id = ? AND status = ?",
		at.UnixMilli(), paymentID, string(model.PaymentOpen))
}

// Payments lists payments in one status, the newest first. next is the cursor of the next page, and empty at the end. Payments
// returns model.ErrBadCursor if the cursor in f can't be read.
func (s *Store) Payments(ctx context.Context, f model.PaymentFilter) (list []model.Payment, next string, err error) {
	before, id := int64(math.MaxInt64), ""
	if f.Cursor != "" {
		at, of, found := strings.Cut(f.Cursor, "-")
		if before, err = strconv.ParseInt(at, 10, 64); err != nil || !found || !model.ValidID(of, model.PaymentIDLength) {
			return nil, "", model.ErrBadCursor
		}
		id = of
	}
	f.Limit = max(1, f.Limit)
	list, err = findPayments(s.read.WithContext(ctx), `payments.status = ? AND (payments.created_at_ms < ? OR payments.created_at_ms = ? AND payments.id < ?)
		ORDER BY payments.created_at_ms DESC, payments.id DESC LIMIT ?`, string(f.Status), before, before, id, f.Limit+1)
	list, next = cut(list, f.Limit, func(p *model.Payment) string { return fmt.Sprintf("%d-%s", p.CreatedAt.UnixMilli(), p.ID) })
	return list, next, err
}

// Payment reads a payment; ok is false if there is none.
func (s *Store) Payment(ctx context.Context, id string) (payment model.Payment, ok bool, err error) {
	return findPayment(s.read.WithContext(ctx), "payments.id = ?", id)
}

// Transaction reads the payment with a transaction of a provider; ok is false if there is none.
func (s *Store) Transaction(ctx context.Context, provider, txnID string) (payment model.Payment, ok bool, err error) {
	return findPayment(s.read.WithContext(ctx), "provider = ? AND provider_txn_id = ?", provider, txnID)
}

// ApplyReport applies what a provider reports about a payment, and returns the order after that. Money of the order's amount and
// currency pays a pending order, and an expired one if the stock, the line and the user's limit allow it; otherwise the money
// becomes due for a refund. If the money that paid an order was sent back, the order becomes refunded. moved means that the order
// took units again or returned them.
//
// The verdict is Accepted; NotFound if there is no such payment, if a refund is of no recorded transaction, or if another report
// has another reference than the payment; NotPayable if the transaction belongs to another order; or AmountMismatch if the money
// is not that of the order or, for a refund, of the transaction. A repeated report may get Accepted instead of AmountMismatch.
//
// With AmountMismatch, money that came is recorded as due for a refund if "owed" is true; else nothing is changed. If "owed" is
// true, money that was sent back becomes due for a refund, unless it is refunded already, so that the refunder asks the provider.
func (s *Store) ApplyReport(
	ctx context.Context, provider string, report model.Report, owed bool,
) (order model.Order, moved bool, verdict model.Verdict, err error) {
	succeeded, refunded := report.Result() == model.PaymentSucceeded, report.Result() == model.PaymentRefunded
	recorded := false // money of another amount or currency than the order's was recorded
	verdict, err = s.decide(ctx, func(tx *gorm.DB) (model.Verdict, error) {
		moved, recorded = false, false
		asked, ok, err := findPayment(tx, "payments.id = ? AND provider = ?", report.PaymentID(), provider)
		switch {
		case err != nil:
			return "", err
		case !ok, !refunded && asked.Reference != report.Reference():
			return model.NotFound, nil
		}
		// Reports on the same order are applied one after the other, since each locks the order.
		if order, ok, err = s.lockOrder(tx, asked.OrderID); err != nil {
			return "", err
		} else if !ok {
			return "", fmt.Errorf("payment %s is of no order", asked.ID)
		}
		row, seen, err := findPayment(tx, "provider = ? AND provider_txn_id = ?", provider, report.TxnID())
		money := report.Money()
		other := money != model.Money{Cents: order.AmountCents, Currency: order.Currency}
		if refunded {
			other = money != row.Money()
		}
		switch {
		case err != nil:
			return "", err
		case seen && row.OrderID != order.ID:
			return model.NotPayable, nil
		case refunded && !seen:
			return model.NotFound, nil // the provider may repeat the report; by then the transaction may have been reported
		case other && (!owed || !succeeded):
			return model.AmountMismatch, nil
		case refunded:
			moved, err = s.returnMoney(tx, &order, row, owed)
			return model.Accepted, err
		case seen && (!succeeded || row.Status != model.PaymentFailed):
			return model.Accepted, nil // the transaction is recorded already
		case !seen:
			if row, err = newTransaction(tx, report); err != nil {
				return "", err
			}
		}
		status := model.PaymentFailed
		switch {
		case succeeded && other:
			status, recorded = model.PaymentRefundDue, true
		case succeeded:
			expired := order.Status == model.OrderExpired
			if status, err = s.keepMoney(tx, &order); err != nil {
				return "", err
			}
			moved = expired && order.Status == model.OrderPaid
		}
		var due statement
		if status == model.PaymentRefundDue {
			due = s.recording(model.EventRefundDue, subject{row.ID, order.SaleID})
		}
		return model.Accepted, wrap("record a payment", s.run(tx, do(`UPDATE payments SET provider_txn_id = ?, status = ?, look_at_ms = NULL, tries = 0,
			amount_cents = ?, currency = ? WHERE id = ?`, report.TxnID(), string(status), money.Cents, money.Currency, row.ID), due))
	})
	if verdict == model.Accepted && recorded {
		verdict = model.AmountMismatch
	}
	return order, moved, verdict, err
}

// returnMoney records that the money of a transaction was sent back. If owed is true, the money becomes due for a refund instead.
// An order that the money had paid becomes refunded, and its units return.
func (s *Store) returnMoney(tx *gorm.DB, order *model.Order, row model.Payment, owed bool) (moved bool, err error) {
	var log statement
	switch row.Status {
	case model.PaymentSucceeded:
		order.Status, moved = model.OrderRefunded, true
		if err := s.release(tx, order.SaleID, model.OrderPaid, *order); err != nil {
			return false, err
		}
		log = s.logging(row.Provider, "refund", order.SaleID, fmt.Sprintf("order %s of %s: its money was sent back", order.ID, order.UserID))
	case model.PaymentRefundDue:
	default: // the money was sent back already, or none came
		return false, nil
	}
	status := model.PaymentRefunded
	if owed {
		status = model.PaymentRefundDue
	}
	return moved, wrap("record a refund", s.run(tx, log, do("UPDATE payments SET status = ?, look_at_ms = NULL WHERE id = ?", string(status), row.ID)))
}

// RefundFailed records that money which was sent back has not arrived. The money becomes due for a refund, after a pause that
// grows with the tries. MarkRefunded for an earlier try then changes nothing. RefundFailed does nothing if there is no such
// transaction, or if its money is neither refunded nor due for a refund. again is true if the money counted as refunded before.
func (s *Store) RefundFailed(ctx context.Context, provider, txnID string) (again bool, err error) {
	err = s.transact(ctx, func(tx *gorm.DB) error {
		again = false
		row, ok, err := findPayment(tx, "provider = ? AND provider_txn_id = ?", provider, txnID)
		if err != nil || !ok {
			return err
		}
		order, _, err := s.lockOrder(tx, row.OrderID)
		if err != nil {
			return err
		}
		if row, _, err = findPayment(tx, "payments.id = ?", row.ID); err != nil {
			return err
		}
		again = row.Status == model.PaymentRefunded
		if !again && row.Status != model.PaymentRefundDue { // no refund of all the money was recorded
			return nil
		}
		list := []statement{do("UPDATE payments SET status = ?, tries = tries + 1, look_at_ms = "+s.nowMillis()+" + ? WHERE id = ?",
			string(model.PaymentRefundDue), refundPause(row.Tries).Milliseconds(), row.ID)}
		if again {
			found := fmt.Sprintf("order %s of %s: its money has not arrived, and will be sent again", order.ID, order.UserID)
			list = append(list, s.logging(row.Provider, "refund_failed", order.SaleID, found), s.recording(model.EventRefundDue, subject{row.ID, order.SaleID}))
		}
		return s.run(tx, list...)
	})
	return again, wrap("record that a refund has failed", err)
}

// newTransaction returns the row for a new transaction: the payment's own row or, if this has a transaction already, a new copy.
func newTransaction(tx *gorm.DB, report model.Report) (model.Payment, error) {
	row, _, err := findPayment(tx, "payments.id = ?", report.PaymentID())
	if err != nil || row.ProviderTxnID == "" {
		return row, err
	}
	row.ID, row.ProviderTxnID, row.Tries = rand.Text(), report.TxnID(), 0
	return row, insertPayment(tx, row, time.Time{})
}

func findPayment(db *gorm.DB, where string, args ...any) (payment model.Payment, ok bool, err error) {
	return one(findPayments(db, where+" LIMIT 1", args...))
}

// keepMoney marks a locked order as paid if possible. It returns the status of the payment: succeeded or refund_due.
func (s *Store) keepMoney(tx *gorm.DB, order *model.Order) (status model.PaymentStatus, err error) {
	if !order.Status.CanBecome(model.OrderPaid) { // the order is cancelled, refunded, or paid by another transaction
		return model.PaymentRefundDue, nil
	}
	kept := true
	if order.Status == model.OrderExpired {
		kept, err = s.reinstate(tx, *order)
	} else {
		err = tx.Exec("UPDATE stock SET held = held - ?, paid = paid + ?, version = version + 1 WHERE sale_id = ?",
			order.Quantity, order.Quantity, order.SaleID).Error
	}
	if err != nil || !kept {
		return model.PaymentRefundDue, wrap("pay order", err)
	}
	now, err := s.nowOn(tx)
	if err != nil {
		return "", err
	}
	changed, err := exec(tx, "pay order", "UPDATE orders SET status = ?, paid_at_ms = ? WHERE id = ? AND status = ?",
		string(model.OrderPaid), now.UnixMilli(), order.ID, string(order.Status))
	if err == nil && changed != 1 {
		err = fmt.Errorf("pay order %s: it was not %s", order.ID, order.Status)
	}
	if err != nil {
		return "", err
	}
	order.Status, order.PaidAt = model.OrderPaid, now
	return model.PaymentSucceeded, s.run(tx, s.recording(model.EventPaid, subject{order.ID, order.SaleID}))
}

// reinstate takes the units of an expired order again. taken is false if the user's limit or the stock does not allow it, or if
// users in line may wait for the units.
func (s *Store) reinstate(tx *gorm.DB, order model.Order) (taken bool, err error) {
	offer, _, _, err := s.offerOn(tx, order.SaleID)
	if err != nil {
		return false, err
	}
	from, fromCampaign := "available", statement{}
	if offer.Stock.Lined == model.InLine {
		if idle, err := s.idleLine(tx, offer, order.Quantity); err != nil || !idle {
			return false, err
		}
		if from = "reserved"; offer.Campaign.ID != "" {
			fromCampaign = do("UPDATE stock SET reserved = reserved - ?, quota = quota - ?, version = version + 1 WHERE sale_id = ?",
				order.Quantity, order.Quantity, offer.LineID())
		}
	}
	wanted := inCampaigns([]userUnits{{order.SaleID, order.UserID, order.Quantity}}, map[string]string{order.SaleID: offer.Campaign.ID})
	if err := s.addUnits(tx, wanted); err != nil {
		return false, err
	}
	limits, err := s.limitsOf(tx, offer.Sale, []string{order.UserID})
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(limits, func(l userLimit) bool { return l.units[order.UserID] > l.limit }) {
		return false, s.returnUnits(tx, wanted)
	}
	changed, err := exec(tx, "reinstate", "UPDATE stock SET "+from+" = "+from+" - ?, paid = paid + ?, "+nextGateVersion+
		" WHERE sale_id = ? AND "+from+" >= ?", order.Quantity, order.Quantity, order.SaleID, order.Quantity)
	switch {
	case err != nil:
		return false, err
	case changed == 0:
		return false, s.returnUnits(tx, wanted)
	}
	if err := s.run(tx, fromCampaign); err != nil {
		return false, wrap("reinstate", err)
	}
	return true, s.tellGate(tx, order.SaleID, model.GateChange{OrderID: order.ID, Units: -int64(order.Quantity)})
}

// idleLine locks a sale's line, and reports whether the line has this many units for which nobody waits.
func (s *Store) idleLine(tx *gorm.DB, offer model.Offer, units int) (idle bool, err error) {
	line, ok, err := s.lockLine(tx, offer.LineID())
	if err != nil || !ok {
		return false, err
	}
	// Nobody waits once the line is over or, while it calls, once all entries were looked at.
	over, calls := line.Phase == model.PhaseOver, line.Phase == model.PhaseCalling
	// Whoever takes these units has locked the line, so the stock row need not be locked yet.
	reserved, err := cell[int](tx, "look for units in line", "SELECT reserved FROM stock WHERE sale_id = ?", offer.LineID())
	return (over || calls && line.Serving == line.Entries) && reserved >= units, err
}

// refundLater marks the succeeded payment of a locked order as due for a refund, if there is one.
func (s *Store) refundLater(tx *gorm.DB, order model.Order) error {
	row, kept, err := findPayment(tx, "order_id = ? AND payments.status = ?", order.ID, string(model.PaymentSucceeded))
	if err != nil || !kept {
		return err
	}
	return wrap("mark the refund due", s.run(tx, do("UPDATE payments SET status = ? WHERE id = ?", string(model.PaymentRefundDue), row.ID),
		s.recording(model.EventRefundDue, subject{row.ID, order.SaleID})))
}

// RefundsDue lists at most "limit" payments at a provider whose money is to be sent back now, those without a pause first. "all"
// is how many payments are due for a refund at any provider, now or later, up to "limit".
func (s *Store) RefundsDue(ctx context.Context, provider string, limit int) (list []model.Payment, all int, err error) {
	db := s.read.WithContext(ctx)
	all, err = cell[int](db, "count refunds due", "SELECT COUNT(*) FROM (SELECT 1 FROM payments WHERE status = ? LIMIT ?) AS due",
		string(model.PaymentRefundDue), limit)
	if err != nil {
		return nil, 0, err
	}
	// A time that is too far away is from before the database's clock was set back.
	list, err = findPayments(db, "provider = ? AND payments.status = ? AND (look_at_ms IS NULL OR look_at_ms <= "+s.nowMillis()+
		" OR look_at_ms > "+s.nowMillis()+" + ?) ORDER BY look_at_ms LIMIT ?",
		provider, string(model.PaymentRefundDue), lastRefundPause.Milliseconds(), limit)
	return list, all, err
}

// TryRefund counts a try of a refund and plans the next; mine is false if another caller was first or no refund is due.
func (s *Store) TryRefund(ctx context.Context, payment model.Payment) (mine bool, err error) {
	counted, err := exec(s.write.WithContext(ctx), "plan a refund", "UPDATE payments SET tries = tries + 1, look_at_ms = "+s.nowMillis()+
		" + ? WHERE id = ? AND status = ? AND tries = ?",
		refundPause(payment.Tries).Milliseconds(), payment.ID, string(model.PaymentRefundDue), payment.Tries)
	return counted == 1, err
}

// MarkRefunded records that a try to refund a payment has succeeded. payment.Tries must not count this try. MarkRefunded changes
// nothing if a later try has begun, or if RefundFailed was called meanwhile.
func (s *Store) MarkRefunded(ctx context.Context, payment model.Payment) (err error) {
	ctx, end := s.observe.Begin(ctx, observe.Step{Name: observe.MarkRefunded})
	defer func() { end(err) }()
	return s.update(ctx, "mark refunded", "UPDATE payments SET status = ? WHERE id = ? AND status = ? AND tries = ?",
		string(model.PaymentRefunded), payment.ID, string(model.PaymentRefundDue), payment.Tries+1)
}
