package model

import (
	"slices"
	"time"
)

// OrderStatus is the state of an order.
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

// StoredStatuses are the statuses of orders in the database.
var StoredStatuses = []OrderStatus{OrderPending, OrderPaid, OrderCancelled, OrderExpired, OrderRefunded}

// transitions lists the allowed changes of an order's status. Expired to paid is a late payment.
var transitions = map[OrderStatus][]OrderStatus{
	OrderQueued:  {OrderPending, OrderRejected},
	OrderPending: {OrderPaid, OrderCancelled, OrderExpired},
	OrderPaid:    {OrderRefunded},
	OrderExpired: {OrderPaid},
}

func (s OrderStatus) CanBecome(next OrderStatus) bool { return slices.Contains(transitions[s], next) }

// Order is an accepted attempt. A queued or rejected attempt is shown as an Order with that Status.
type Order struct {
	ID             string
	SaleID, UserID string
	Quantity       int
	AmountCents    int64
	Currency       string
	Status         OrderStatus
	Reason         Verdict // why the order was rejected; otherwise empty
	Source         Source
	Epoch          int64 // of the sale's gate, when it admitted the attempt or when the order was made without it
	IdempotencyKey string
	CreatedAt      time.Time
	ExpiresAt      time.Time // the buyer's deadline to pay
	PaidAt         time.Time // zero while unpaid
}

// Source is how an order came about.
type Source string

const (
	FromStream   Source = "stream"   // admitted by the gate, and settled
	FromDatabase Source = "database" // sold without the gate
	FromLine     Source = "line"     // bought by a buyer who was called
	FromDraw     Source = "draw"     // made for a winner by a draw
)

// OrderFilter selects orders. An empty field does not limit the selection. At most one of the fields above SaleIDs is set.
type OrderFilter struct {
	ID         string // or the beginning of an id
	Number     string // or the beginning of a number
	UserID     string
	UserPrefix string   // the beginning of ids of users
	Payment    string   // the id of a payment, or the provider's reference or transaction
	SaleIDs    []string // at most MaxVariants
	Status     OrderStatus
	Cursor     string // returned with the previous page; empty for the first page
	Limit      int
}

// OrderRecord is what is recorded of an order beside the order itself.
type OrderRecord struct {
	EndedAt  time.Time // when it was last cancelled, expired or refunded; zero: never, or by an older version of the engine
	Payments []Payment
	Log      []AuditEntry // about the order
}

// Release is the return of one order's units to the stock.
type Release struct {
	OrderID, UserID string
	Units           int
}

// GateChange is a change of a sale's stock that did not come through its gate. The database sold units by itself, released
// units, or took them again for a late payment, or an operator added units.
type GateChange struct {
	Version int64  // of the stock row after this change
	OrderID string // empty: an added quota
	UserID  string // of the order; empty: an added quota
	Units   int64  // to add to the gate's units; negative: to take away
	Sold    bool   // the order is new, so the gate may lack its id
}

// ClockStep is a step forward of the database's clock. Orders made before the step get By more time.
type ClockStep struct {
	At time.Time     // by the database's clock, between its times before and after the step
	By time.Duration // of all steps together; At is of the last one
}
