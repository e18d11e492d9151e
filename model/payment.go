package model

import "time"

// PaymentStatus is a place in a payment's life.
type PaymentStatus string

// The statuses of a payment. RefundDue means that money came which no order could keep, or whose order
// was refunded; it becomes Refunded when the provider has confirmed that it sent the money back.
const (
	PaymentOpen      PaymentStatus = "open"
	PaymentSucceeded PaymentStatus = "succeeded"
	PaymentFailed    PaymentStatus = "failed"
	PaymentRefundDue PaymentStatus = "refund_due"
	PaymentRefunded  PaymentStatus = "refunded"
)

// Payment is one way in which an order is, or was, to be paid.
type Payment struct {
	ID            string
	OrderID       string
	Provider      string
	ProviderTxnID string // empty until the provider has called back
	AmountCents   int64
	Currency      string // the order's
	Status        PaymentStatus
	ExpiresAt     time.Time
}

// Callback is what a payment provider says happened.
type Callback struct {
	PaymentID     string
	ProviderTxnID string
	Succeeded     bool
	AmountCents   int64
}

// SandboxStatus is what the sandbox provider did with a card.
type SandboxStatus string

// The statuses of a sandbox transaction.
const (
	SandboxCharged  SandboxStatus = "charged"
	SandboxDeclined SandboxStatus = "declined"
	SandboxRefunded SandboxStatus = "refunded"
)

// SandboxTransaction is a row of the sandbox provider's books.
type SandboxTransaction struct {
	ID          string
	PaymentID   string
	AmountCents int64
	Status      SandboxStatus
}
