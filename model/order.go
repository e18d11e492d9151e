package model

import (
	"slices"
	"time"
)

// OrderStatus is a place in an order's life; transitions says how it moves.
type OrderStatus string

// The statuses of an order. Queued is not in the database: the attempt was admitted and is not settled yet.
const (
	OrderQueued    OrderStatus = "queued"
	OrderPending   OrderStatus = "pending"
	OrderPaid      OrderStatus = "paid"
	OrderCancelled OrderStatus = "cancelled"
	OrderExpired   OrderStatus = "expired"
	OrderRefunded  OrderStatus = "refunded"
	OrderRejected  OrderStatus = "rejected"
)

// transitions is the whole life of an order. Expired to paid is a late payment that found a unit left.
var transitions = map[OrderStatus][]OrderStatus{
	OrderQueued:  {OrderPending, OrderRejected},
	OrderPending: {OrderPaid, OrderCancelled, OrderExpired},
	OrderPaid:    {OrderRefunded},
	OrderExpired: {OrderPaid},
}

// CanBecome reports whether an order may move from s to next.
func (s OrderStatus) CanBecome(next OrderStatus) bool {
	return slices.Contains(transitions[s], next)
}

// Order is the durable yes to an attempt.
type Order struct {
	ID          string
	SaleID      string
	UserID      string
	Quantity    int
	AmountCents int64
	Currency    string
	Status      OrderStatus
	Reason      Verdict // why a rejected order was rejected, else empty
	Source      Source
	Epoch       int64 // the gate's, when the attempt was admitted
	RequestKey  string
	RequestHash string
	CreatedAt   time.Time
	ExpiresAt   time.Time // until when the buyer is told to pay; the store adds a grace
	PaidAt      time.Time // zero while unpaid
}

// Source says which way an order came into the database.
type Source string

// The ways into the database.
const (
	FromStream   Source = "stream"   // admitted by the gate, settled from its stream
	FromDatabase Source = "database" // deducted in the database itself
)

// OrderFilter selects orders; empty fields select all.
type OrderFilter struct {
	ID     string
	UserID string
	SaleID string
	Status OrderStatus
	Cursor string // that the page before ended with, or empty
	Limit  int
}

// Release is units of one order that went back to the available ones.
type Release struct {
	OrderID string
	UserID  string
	Units   int
}

// GateChange is a change of a sale's stock that did not come through its gate: units that the database sold by itself,
// that were released, that a late payment took again, or that an operator added. The transaction that makes the change
// records it, and the gate is told until it knows.
type GateChange struct {
	Version     int64  // of the stock row by this change
	OrderID     string // empty: an added quota
	UserID      string // whose units they are; empty: nobody's
	Units       int64  // that the gate has more, or, negative, less
	RequestHash string // of an order that the gate may not know; empty: no new order
}

// ClockStep is a step forward of the database's clock. Orders made before it have By more time by that clock.
type ClockStep struct {
	At time.Time // by the clock: later than what was made before the step, earlier than what was made since
	By time.Duration
}
