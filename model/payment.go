package model

import "time"

// PaymentStatus is the state of a payment.
type PaymentStatus string

// The statuses of a payment. RefundDue means that the money has to go back, because no order could keep it or because
// its order was refunded. RefundDue becomes Refunded when the provider has confirmed that it sent the money back.
const (
	PaymentOpen      PaymentStatus = "open"
	PaymentSucceeded PaymentStatus = "succeeded"
	PaymentFailed    PaymentStatus = "failed"
	PaymentRefundDue PaymentStatus = "refund_due"
	PaymentRefunded  PaymentStatus = "refunded"
)

// PaymentStatuses are all of them.
var PaymentStatuses = []PaymentStatus{PaymentOpen, PaymentSucceeded, PaymentFailed, PaymentRefundDue, PaymentRefunded}

// Payment is one payment for an order, open or finished.
type Payment struct {
	ID            string
	OrderID       string
	UserID        string // the order's
	Quantity      int    // the order's
	Provider      string
	Reference     string // the provider's id of what it has opened for this payment; empty if it has none
	ProviderTxnID string // empty until the provider has reported a transaction
	AmountCents   int64
	Currency      string // the order's
	Status        PaymentStatus
	CreatedAt     time.Time
	ExpiresAt     time.Time // the order's deadline to pay
}

// Report is what a payment provider says about a payment.
type Report struct {
	PaymentID     string
	ProviderTxnID string
	// Result is PaymentSucceeded; PaymentFailed; or PaymentRefunded if all the money of the transaction was sent back.
	Result      PaymentStatus
	AmountCents int64
}

// PaymentFilter selects payments.
type PaymentFilter struct {
	Status PaymentStatus
	Cursor string // returned with the previous page; empty for the first page
	Limit  int
}

// SandboxStatus is the result of a card payment at the sandbox provider.
type SandboxStatus string

// The statuses of a sandbox transaction.
const (
	SandboxCharged  SandboxStatus = "charged"
	SandboxDeclined SandboxStatus = "declined"
	SandboxRefunded SandboxStatus = "refunded"
)

// SandboxTransaction is a row of the sandbox provider's table of transactions.
type SandboxTransaction struct {
	ID          string
	PaymentID   string
	AmountCents int64
	Status      SandboxStatus
}
