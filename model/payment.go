package model

import (
	"math"
	"time"
)

type PaymentStatus string

const (
	PaymentOpen      PaymentStatus = "open"
	PaymentSucceeded PaymentStatus = "succeeded"
	PaymentFailed    PaymentStatus = "failed"
	PaymentRefundDue PaymentStatus = "refund_due" // the money has to go back
	PaymentRefunded  PaymentStatus = "refunded"   // the money, if there was any, was sent back
)

var PaymentStatuses = []PaymentStatus{PaymentOpen, PaymentSucceeded, PaymentFailed, PaymentRefundDue, PaymentRefunded}

// Money is an amount of one currency. Two amounts can be compared by ==.
type Money struct {
	Cents    int64  // in the smallest unit of the currency, such as a cent or a yen
	Currency string // its code in ISO 4217, in capitals
	Rounded  bool   // the true amount is not a whole number of these units
}

// AmountRange is what a payment provider takes of one currency: the multiples of Step from Low to High, in the currency's
// smallest unit.
type AmountRange struct{ Low, High, Step int64 }

// TakesAll is the method Takes of a provider that takes all amounts of every currency.
func TakesAll(string) (amounts AmountRange, ok bool) {
	return AmountRange{High: math.MaxInt64, Step: 1}, true
}

// Payment is a payment for an order, open or finished.
type Payment struct {
	ID, OrderID   string
	UserID        string // the order's
	Quantity      int    // the order's
	Provider      string
	Reference     string // the provider's id of what it has opened; empty: none
	ProviderTxnID string // empty until a transaction is recorded
	// AmountCents and Currency are what the buyer has to pay or, once a transaction is recorded, the transaction's money.
	AmountCents int64
	Currency    string
	Status      PaymentStatus
	CreatedAt   time.Time
	ExpiresAt   time.Time // the order's deadline to pay
	// Tries counts how often the provider has refused to open the payment. Once a transaction is recorded, it counts the tries to
	// send the money back, and the reports that it has not arrived.
	Tries int
}

func (p Payment) Money() Money { return Money{Cents: p.AmountCents, Currency: p.Currency} }

// Report is what a payment provider says about a payment. NewReport makes it, so that no part is forgotten.
type Report struct {
	paymentID, reference, txnID string
	result                      PaymentStatus
	money                       Money
}

// NewReport returns what a provider says about a payment. The reference is the provider's id of what it has opened, if it opens
// something. txnID is the provider's transaction, and money is what this moved or would have moved. The result is
// PaymentSucceeded; PaymentFailed; PaymentRefunded if all the money was sent back; or PaymentRefundDue if money that was sent
// back has not arrived. PaymentRefunded needs no reference, and PaymentRefundDue neither a reference nor a payment's id.
func NewReport(paymentID, reference, txnID string, result PaymentStatus, money Money) Report {
	return Report{paymentID: paymentID, reference: reference, txnID: txnID, result: result, money: money}
}

func (r Report) PaymentID() string     { return r.paymentID }
func (r Report) Reference() string     { return r.reference }
func (r Report) TxnID() string         { return r.txnID }
func (r Report) Result() PaymentStatus { return r.result }
func (r Report) Money() Money          { return r.money }

// Free returns the report that a payment of 0 has succeeded.
func (p Payment) Free() Report {
	return NewReport(p.ID, p.Reference, "free-"+p.ID, PaymentSucceeded, p.Money())
}

// IsFree reports whether the payment's transaction is that of Free, so that no money has moved.
func (p Payment) IsFree() bool { return p.ProviderTxnID == "free-"+p.ID }

// Unpaid returns the report that a payment has failed, because its time is over.
func (p Payment) Unpaid() Report {
	return NewReport(p.ID, p.Reference, "ended-"+p.ID, PaymentFailed, p.Money())
}

type PaymentFilter struct {
	Status PaymentStatus
	Cursor string // returned with the previous page; empty for the first page
	Limit  int
}

// SandboxStatus is the result of a card payment at the sandbox provider.
type SandboxStatus string

const (
	SandboxCharged  SandboxStatus = "charged"
	SandboxDeclined SandboxStatus = "declined"
	SandboxRefunded SandboxStatus = "refunded"
)

// SandboxTransaction is a transaction at the sandbox provider.
type SandboxTransaction struct {
	ID, PaymentID string
	AmountCents   int64
	Status        SandboxStatus
}
