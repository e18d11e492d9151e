package model

import (
	"math"
	"time"
)

// Attempt is one request for units of a sale.
type Attempt struct {
	ID             string // also the order's id, if the attempt becomes an order
	SaleID         string
	UserID         string
	Quantity       int
	IdempotencyKey string
	Frequency      Frequency
	Keyless        bool         // the engine has made the idempotency key
	Shards         int          // of the sale's gate; 0 means 1
	CampaignID     string       // empty: the sale belongs to no campaign
	Common         *CommonLimit // the campaign's limit; nil: the gate checks none
	LeastEpoch     int64        // a gate of an older epoch must not admit
	Waiter         *Waiter      // of the buyer; may be nil
}

func (a Attempt) GateRef() GateRef { return GateRef{a.SaleID, a.CampaignID, max(a.Shards, 1)} }

// StockView is what was read in the database about an attempt, before its order is written.
type StockView struct {
	Offer   Offer
	Now     time.Time // by the database's clock
	Decided *Outcome  // nil: the attempt is not decided yet
}

// Replay returns the answer to an attempt whose id was known: the known outcome as Repeated, or IdempotencyMismatch if the known
// order has another quantity. A known quantity of 0 matches every quantity, because a lost attempt is stored with 0.
func (a Attempt) Replay(known Outcome) Outcome {
	known.Repeated = true
	if known.Order != nil && known.Order.Quantity != 0 && known.Order.Quantity != a.Quantity {
		return Outcome{Verdict: IdempotencyMismatch, Repeated: true}
	}
	return known
}

// Frequency is how many requests a user may make to a sale in a window. A zero Limit means no limit.
type Frequency struct {
	Limit  int
	Window time.Duration
}

// Outcome is the result of an attempt. With Accepted, an Order is in the database. With a refusal, an Order is the refusal that
// was read back from the database.
type Outcome struct {
	Verdict    Verdict
	Order      *Order        `json:",omitempty"`
	Repeated   bool          `json:",omitempty"` // the attempt's id was known
	RetryAfter time.Duration `json:",omitempty"` // with TooFrequent
}

// Admission is the gate's answer to an attempt: Accepted with an Entry if the gate has admitted the attempt, or Repeated if it
// knew the id; NoGate or Unsure if it can't judge; otherwise a refusal. If Err is not nil, the attempt may have been admitted.
type Admission struct {
	Outcome
	Entry *Entry // nil: the attempt was not admitted now
	Err   error
}

// Entry is an admitted attempt, with the id of its entry in the stream.
type Entry struct {
	Attempt
	StreamID string
	Epoch    int64  // of the gate
	Instance string // that admitted the attempt, and on which its buyer may wait
	Swept    bool   // the settler has found the entry in the stream
}

// Valid reports whether the gate may have written the entry. The values of others may not fit the columns of the database.
func (e Entry) Valid() bool {
	return ValidID(e.ID, OrderIDLength) && e.SaleID == SaleOf(e.ID) && ValidUserID(e.UserID) &&
		(e.CampaignID == "" || ValidID(e.CampaignID, IDLength)) && e.Quantity > 0 && e.Quantity <= math.MaxInt32 && e.IdempotencyKey != ""
}
