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

// Payment is one payment for an order, open or finished.
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

// Callback is what a payment provider reports about a payment.
type Callback struct {
	PaymentID     string
	ProviderTxnID string
	Succeeded     bool
	AmountCents   int64
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
