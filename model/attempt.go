package model

import (
	"math"
	"time"
)

// Attempt is one purchase request on its way through the engine.
type Attempt struct {
	ID             string // also the order's id, if the attempt becomes an order
	SaleID         string
	UserID         string
	Quantity       int
	IdempotencyKey string
	Frequency      Frequency
	Keyless        bool         // the engine made the idempotency key, so the attempt repeats no earlier one
	Shards         int          // of the sale's gate
	CampaignID     string       // of the sale's campaign; empty: the sale belongs to none
	Common         *CommonLimit // the campaign's limit, for the gate; nil: the gate checks none
	LeastEpoch     int64        // the newest epoch of the gate that this instance has read; an older gate must not admit
	Waiter         *Waiter      // of the buyer who waits on this instance; nil: nobody waits here
}

func (a Attempt) GateRef() GateRef { return GateRef{a.SaleID, a.CampaignID, max(a.Shards, 1)} }

// StockView is what the strategies naive and mutex read in the database about an attempt, before they write its order.
type StockView struct {
	Offer   Offer
	Now     time.Time // by the database's clock
	Decided *Outcome  // the outcome of a known attempt, or a refusal; nil if the attempt is not decided yet
}

// Replay returns the answer to an attempt whose id was known before, with Repeated set: the known outcome, or
// IdempotencyMismatch if the known order has another quantity than this attempt. A lost attempt is stored with the quantity 0,
// since its quantity is unknown; 0 matches every quantity.
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

// Outcome is the result of an attempt. An Order with Accepted is durable. Queued means that the attempt was admitted and its
// outcome is not known yet. A refusal has a rejected Order if the refusal was read back from the database, and else no Order.
type Outcome struct {
	Verdict    Verdict
	Order      *Order        `json:",omitempty"`
	Repeated   bool          `json:",omitempty"` // the attempt's id was known before
	RetryAfter time.Duration `json:",omitempty"` // with TooFrequent
}

// Admission is the gate's answer to an attempt: Accepted if the gate has admitted it, now or before (Repeated); NoGate or Unsure if
// the gate can't judge; otherwise a refusal. If Err is not nil, the gate may have admitted the attempt.
type Admission struct {
	Outcome
	Entry *Entry // only of an attempt that was admitted now
	Err   error
}

// Entry is an admitted attempt, with the id of its entry in the gate's stream.
type Entry struct {
	Attempt
	StreamID string
	Epoch    int64  // of the gate
	Instance string // the instance that admitted the attempt, on which its buyer may wait
	Swept    bool   // the settler has read the entry from the stream
}

// Valid reports whether the gate may have written the entry. The values of an invalid entry may not fit the columns of the
// database, so such an entry is neither settled nor refused.
func (e Entry) Valid() bool {
	return ValidID(e.ID, OrderIDLength) && e.SaleID == SaleOf(e.ID) && ValidUserID(e.UserID) &&
		(e.CampaignID == "" || ValidID(e.CampaignID, IDLength)) && e.Quantity > 0 && e.Quantity <= math.MaxInt32 && e.IdempotencyKey != ""
}
