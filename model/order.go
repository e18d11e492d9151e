package model

import (
	"slices"
	"time"
)

// OrderStatus is the state of an order. transitions lists the allowed moves.
type OrderStatus string

const (
	OrderQueued    OrderStatus = "queued" // admitted and not settled yet; never in the database
	OrderPending   OrderStatus = "pending"
	OrderPaid      OrderStatus = "paid"
	OrderCancelled OrderStatus = "cancelled"
	OrderExpired   OrderStatus = "expired"
	OrderRefunded  OrderStatus = "refunded"
	OrderRejected  OrderStatus = "rejected"
)

// StoredStatuses are the statuses of orders in the database. A rejected attempt has a refusal there instead of an order.
var StoredStatuses = []OrderStatus{OrderPending, OrderPaid, OrderCancelled, OrderExpired, OrderRefunded}

// transitions lists all allowed moves of an order. Expired to paid is a late payment for which units were left.
var transitions = map[OrderStatus][]OrderStatus{
	OrderQueued:  {OrderPending, OrderRejected},
	OrderPending: {OrderPaid, OrderCancelled, OrderExpired},
	OrderPaid:    {OrderRefunded},
	OrderExpired: {OrderPaid},
}

func (s OrderStatus) CanBecome(next OrderStatus) bool { return slices.Contains(transitions[s], next) }

// Order is the durable acceptance of an attempt. A queued or rejected attempt is shown as an Order as well, with that Status.
type Order struct {
	ID             string
	SaleID, UserID string
	Quantity       int
	AmountCents    int64
	Currency       string
	Status         OrderStatus
	Reason         Verdict // why the order was rejected; empty for all other orders
	Source         Source
	Epoch          int64 // of the sale's gate when it admitted the attempt, or when the order was made without it
	IdempotencyKey string
	CreatedAt      time.Time
	ExpiresAt      time.Time // the buyer's deadline to pay; the expirer waits for a grace period beyond it
	PaidAt         time.Time // zero while unpaid
}

// Source is the way by which an order came into the database.
type Source string

const (
	FromStream   Source = "stream"   // admitted by the gate into its stream, and settled
	FromDatabase Source = "database" // sold in the database itself, without the gate
	FromLine     Source = "line"     // bought by a buyer who was called
	FromDraw     Source = "draw"     // made for a winner by a draw
)

// OrderFilter selects orders; an empty field selects all.
type OrderFilter struct {
	ID, UserID string
	Number     string   // of orders of SaleIDs, or the beginning of one
	SaleIDs    []string // at most MaxVariants
	Status     OrderStatus
	Cursor     string // returned with the previous page; empty for the first page
	Limit      int
}

// Release is the return of one order's units to the stock.
type Release struct {
	OrderID, UserID string
	Units           int
}

// GateChange is a change of a sale's stock that did not come through its gate: units that the database sold by itself, that were
// released, that a late payment took again, or that an operator added. The transaction that makes the change records it, unless
// the sale is in line or never had a gate, and instances try to apply it to the gate until the gate has it.
type GateChange struct {
	Version int64  // of the stock row after this change
	OrderID string // empty: an added quota
	UserID  string // owner of the units; empty for an added quota
	Units   int64  // to add to the gate's units left; negative: to take from them
	Sold    bool   // the change is a new order of these units, whose id the gate may lack
}

// ClockStep is a step forward of the database's clock. Orders made before the step get By more time before they expire.
type ClockStep struct {
	At time.Time     // by the database's clock: orders made before the step have an earlier time, all others a later time
	By time.Duration // of all steps together, if there were several; At is then of the last one
}
