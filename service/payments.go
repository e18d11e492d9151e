package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"flashsale/model"
)

// Provider is a payment provider: it takes the buyers' money, and sends it back. It does not have to judge late, repeated,
// contradictory and missing reports: the engine does that.
type Provider interface {
	// Name is stored with each payment: at most 16 characters.
	Name() string
	// Takes returns which amounts of a currency the provider takes; ok is false if it does not take the currency.
	Takes(currency string) (amounts model.AmountRange, ok bool)
	// Open returns the page on which the buyer pays, and the provider's reference to what it has opened, empty if it needs none.
	// A repetition soon after opens nothing new. The error wraps model.ErrNotOpened if the provider answers that it does not open
	// the payment. Then the caller raises payment.Tries, so that the next Open makes a new request. The error wraps
	// model.ErrPaymentRefused if the provider will not take the payment later either.
	Open(ctx context.Context, payment model.Payment, sale model.Sale) (page, reference string, err error)
	// Look returns what the provider would report about an open payment; known is false while there is nothing to report.
	// If "over" is true, the time to pay has ended, and the provider stops taking money for the payment, if it can.
	Look(ctx context.Context, payment model.Payment, over bool) (report model.Report, known bool, err error)
	// Refund sends a payment's money back. A repetition sends nothing more, unless a refund has failed. If done is false, the
	// money is not known to be sent yet. The error wraps model.ErrRefundRefused if another try will not help.
	Refund(ctx context.Context, payment model.Payment) (done bool, err error)
}

// Notifier is a provider that sends notices in a form of its own.
type Notifier interface {
	// Read verifies a notice and returns its report; relevant is false if it has none. The error wraps model.ErrBadNotice
	// if the notice is not the provider's, or was sent too long ago, and model.ErrForeignNotice if it is about another
	// account or mode, or can't be read.
	Read(header http.Header, body []byte) (report model.Report, relevant bool, err error)
}

// PaymentStore reads and changes payments in the database.
type PaymentStore interface {
	StartPayment(ctx context.Context, userID, orderID, provider string) (model.Payment, model.Verdict, error)
	SetReference(ctx context.Context, paymentID, reference string) (recorded string, open bool, err error)
	Payment(ctx context.Context, id string) (payment model.Payment, ok bool, err error)
	PaymentOfOrder(ctx context.Context, orderID, provider string) (payment model.Payment, ok bool, err error)
	Transaction(ctx context.Context, provider, txnID string) (payment model.Payment, ok bool, err error)
	Payments(ctx context.Context, f model.PaymentFilter) (list []model.Payment, next string, err error)
	CountTry(ctx context.Context, payment model.Payment) error
	LookAgain(ctx context.Context, paymentID string, at time.Time) error
	RefundFailed(ctx context.Context, provider, txnID string) (again bool, err error)
	ApplyReport(ctx context.Context, provider string, report model.Report, owed bool) (order model.Order, moved bool, verdict model.Verdict, err error)
}

// Payments starts payments, and applies what payment providers report.
type Payments struct {
	Provider Provider
	Store    PaymentStore
	IDs      model.OrderIDs
	Gates    GateTeller
	Catalog  *Catalog
	Grace    time.Duration // how long after its deadline an order expires
	Orders   func() string // the URL of the page with a buyer's orders
	Log      *slog.Logger
}

// Start opens a payment for a user's pending order, unless one is open already, and returns it with the page on which it is paid.
// A free order is paid without the provider, unless the provider takes free orders. The verdict is Accepted; NotFound if the
// order's id was never issued to this user; NotPayable if there is no such order, it is not pending, or its time to pay is over; or
// PaymentRefused if the provider will not take the payment. The error wraps model.ErrUnavailable if the provider does not open the
// payment now, or if another call has opened it at the same time.
func (p *Payments) Start(ctx context.Context, userID, orderID string) (payment model.Payment, page string, verdict model.Verdict, err error) {
	if !p.IDs.Issued(userID, orderID) {
		return payment, "", model.NotFound, nil
	}
	payment, verdict, err = p.Store.StartPayment(ctx, userID, orderID, p.Provider.Name())
	switch {
	case err != nil:
		return payment, "", "", fmt.Errorf("start payment: %w", err)
	case verdict == model.NotFound: // the id was issued, but there is no order
		return payment, "", model.NotPayable, nil
	case verdict != model.Accepted:
		return payment, "", verdict, nil
	}
	if amounts, _ := p.Provider.Takes(payment.Currency); payment.AmountCents == 0 && amounts.Low > 0 {
		order, verdict, err := p.apply(ctx, payment.Free(), false)
		if verdict == model.Accepted && order.Status != model.OrderPaid { // the order has just ended
			verdict = model.NotPayable
		}
		return payment, p.Orders(), verdict, err
	}
	offer, ok, err := p.Catalog.Sale(ctx, model.SaleOf(orderID))
	switch {
	case err != nil:
		return payment, "", "", errors.Join(model.ErrUnavailable, err)
	case !ok: // the sale was erased meanwhile
		return model.Payment{}, "", model.NotFound, nil
	}
	page, reference, err := p.Provider.Open(ctx, payment, offer.Sale)
	if errors.Is(err, model.ErrNotOpened) {
		err = errors.Join(err, p.Store.CountTry(ctx, payment))
	}
	switch {
	case errors.Is(err, model.ErrPaymentRefused):
		p.Log.ErrorContext(ctx, "the payment provider refuses a payment", "payment", payment.ID, "order", orderID,
			"amount_cents", payment.AmountCents, "currency", payment.Currency, "error", err)
		return payment, "", model.PaymentRefused, nil
	case err != nil:
		return payment, "", "", fmt.Errorf("%w: open payment %s: %w", model.ErrUnavailable, payment.ID, err)
	}
	if reference == payment.Reference {
		return payment, page, model.Accepted, nil
	}
	// The buyer gets the page only after this reference is stored. Another click may have stored another reference.
	recorded, open, err := p.Store.SetReference(ctx, payment.ID, reference)
	switch {
	case err != nil:
		return payment, "", "", err
	case !open:
		return payment, "", model.NotPayable, nil
	case recorded != reference: // this page would not pay the order
		return payment, "", "", fmt.Errorf("%w: payment %s is at %s, and not at %s", model.ErrUnavailable, payment.ID, recorded, reference)
	}
	payment.Reference = reference
	return payment, page, model.Accepted, nil
}

// Notify applies a notice of the provider. A notice that is foreign or not relevant is accepted and changes nothing, since the
// account may have other uses. The verdict is Accepted; NotFound if the provider sends no notices; or NotFound if the provider
// should repeat this notice, because it reports a refund of a transaction that was not reported yet. The error wraps
// model.ErrBadNotice if the notice is not the provider's, or was sent too long ago.
func (p *Payments) Notify(ctx context.Context, header http.Header, body []byte) (model.Verdict, error) {
	notifier, ok := p.Provider.(Notifier)
	if !ok {
		return model.NotFound, nil
	}
	report, relevant, err := notifier.Read(header, body)
	switch {
	case errors.Is(err, model.ErrForeignNotice):
		p.Log.WarnContext(ctx, "a notice of the payment provider changes nothing: it is not about this engine's account, or can't be read", "error", err)
		return model.Accepted, nil
	case err != nil || !relevant:
		return model.Accepted, err
	}
	if report.Result() == model.PaymentRefundDue {
		again, err := p.Store.RefundFailed(ctx, p.Provider.Name(), report.TxnID())
		if again {
			p.Log.ErrorContext(ctx, "money that was sent back has not arrived: look after it at the provider; it is also sent again",
				"transaction", report.TxnID(), "amount_cents", report.Money().Cents, "currency", report.Money().Currency)
		}
		return model.Accepted, err
	}
	verdict, err := p.hear(ctx, report)
	if err != nil || verdict != model.NotFound || report.Result() != model.PaymentRefunded {
		return model.Accepted, err
	}
	if _, known, err := p.Store.Payment(ctx, report.PaymentID()); err != nil || !known {
		return model.Accepted, err
	}
	return verdict, nil
}

// hear applies a report of the provider. Money of a wrong amount or currency is recorded, so that the engine sends it back.
func (p *Payments) hear(ctx context.Context, report model.Report) (model.Verdict, error) {
	_, verdict, err := p.apply(ctx, report, true)
	if err == nil && verdict != model.Accepted {
		p.Log.WarnContext(ctx, told[verdict], "payment", report.PaymentID(), "reference", report.Reference(), "transaction", report.TxnID(),
			"result", report.Result(), "amount_cents", report.Money().Cents, "currency", report.Money().Currency)
	}
	return verdict, err
}

// told has the text for the log for each verdict of ApplyReport other than Accepted.
var told = map[model.Verdict]string{
	model.NotFound:       "the payment provider reports what the engine has not opened, or not recorded; nothing is changed",
	model.NotPayable:     "the payment provider reports a transaction that belongs to another order; nothing is changed",
	model.AmountMismatch: "the payment provider reports other money than was asked for; it pays no order, and goes back if it came",
}

// Settle applies a report by whoever takes the money of a payment: "result" is what became of the transaction "txnID". It returns
// the order as it is then. A repeated report changes nothing. The amount is in the smallest unit of the payment's currency. The
// verdict is Accepted; NotFound if there is no such payment or, for a refund, no such transaction; AmountMismatch; or NotPayable
// if the transaction belongs to another order. With any verdict but Accepted, nothing was changed.
func (p *Payments) Settle(ctx context.Context, paymentID, txnID string, result model.PaymentStatus, amountCents int64) (model.Order, model.Verdict, error) {
	if !model.ValidID(paymentID, model.PaymentIDLength) {
		return model.Order{}, model.NotFound, nil
	}
	payment, ok, err := p.Store.Payment(ctx, paymentID)
	if err != nil || !ok {
		return model.Order{}, model.NotFound, err
	}
	money := model.Money{Cents: amountCents, Currency: payment.Currency}
	return p.apply(ctx, model.NewReport(payment.ID, payment.Reference, txnID, result, money), false)
}

// apply applies a report, to the gate as well. If "owed" is true, money of a wrong amount or currency is recorded, to go back.
func (p *Payments) apply(ctx context.Context, report model.Report, owed bool) (model.Order, model.Verdict, error) {
	order, moved, verdict, err := p.Store.ApplyReport(ctx, p.Provider.Name(), report, owed)
	if err != nil {
		return model.Order{}, "", fmt.Errorf("apply a report on a payment: %w", err)
	}
	if moved {
		p.Gates.Changed(ctx, order.SaleID)
	}
	return order, verdict, nil
}

// Check asks the provider about an open payment, and applies the answer. Before that, it plans when the provider is asked next,
// so that a payment with trouble does not hold up others.
func (p *Payments) Check(ctx context.Context, payment model.Payment) error {
	now, last := p.Catalog.Now(), payment.ExpiresAt.Add(p.Grace)
	// The provider is asked again when the payment is twice as old, but not within minLook, and when deadline and grace are over.
	next := now.Add(max(minLook, now.Sub(payment.CreatedAt)))
	if now.Before(last) && next.After(last) {
		next = last
	}
	if err := p.Store.LookAgain(ctx, payment.ID, next); err != nil {
		return err
	}
	report, known, err := p.Provider.Look(ctx, payment, !now.Before(last))
	if err != nil { // the provider may be there again soon
		err = fmt.Errorf("look at payment %s of order %s: %w", payment.ID, payment.OrderID, err)
		return errors.Join(err, p.Store.LookAgain(ctx, payment.ID, now.Add(failedLook)))
	}
	if !known {
		return nil
	}
	_, err = p.hear(ctx, report)
	return err
}

// Refund sends a payment's money back, as Provider.Refund does. For a free order no money came, so done is true.
func (p *Payments) Refund(ctx context.Context, payment model.Payment) (done bool, err error) {
	if payment.IsFree() {
		return true, nil
	}
	return p.Provider.Refund(ctx, payment)
}

// minLook is the shortest pause after a look, unless deadline and grace end sooner. failedLook is the pause after a failed look.
const minLook, failedLook = time.Minute, 15 * time.Second
