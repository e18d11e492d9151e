package model

import (
	"context"
	"errors"
	"iter"
)

// GateRef names the gate of a sale. None of these values ever changes.
type GateRef struct {
	SaleID, CampaignID string // CampaignID is empty without a campaign
	Shards             int    // at least 1
}

func GateRefs(sales []Offer) []GateRef {
	gates := make([]GateRef, len(sales))
	for i, o := range sales {
		gates[i] = o.GateRef()
	}
	return gates
}

// GateState is the present state of a sale's gate in Redis.
type GateState struct {
	Away     bool // the gate, or a shard of it, can't be read reliably; the other fields are unknown
	Exists   bool
	Open     bool
	Epoch    int64
	Revision int64 // of the sale, as the gate has it
	Version  int64 // version of the stock up to which the gate has every change
	Left     int64 // units that the gate may still admit
	Inflight int64 // units admitted and not settled
	Stream   int64 // entries in the stream
}

// RebuildReason is why a gate is installed. It appears in the log and as the label of a metric.
type RebuildReason string

const (
	RebuildPreheat    RebuildReason = "preheat"            // the sale is new
	RebuildMissing    RebuildReason = "missing"            // the sale has no gate
	RebuildNeeded     RebuildReason = "missing_at_attempt" // an attempt found no open gate
	RebuildClosed     RebuildReason = "closed"             // the gate is not open, or was installed on another Redis process
	RebuildOldEpoch   RebuildReason = "old_epoch"          // the database has a newer epoch
	RebuildOldSale    RebuildReason = "missed_change"      // the gate missed an operator's change
	RebuildTooMany    RebuildReason = "admitted_too_many"  // the gate admitted more units than the stock had
	RebuildDrift      RebuildReason = "drift"              // the gate's units differ from the database's
	RebuildLost       RebuildReason = "lost_entry"         // the gate may lack an order whose entry was lost with Redis
	RebuildMiscounted RebuildReason = "miscounted"         // the gate's counts of users' units are wrong
)

// GateContents is a snapshot of the database with all that a new gate of a sale needs. Buyers and Known return their rows in
// pages, since a sale may have millions of orders. The caller must call Close.
type GateContents interface {
	Offer() Offer
	Buyers(ctx context.Context) iter.Seq2[[]Buyer, error] // the users with live units
	Known(ctx context.Context) iter.Seq2[[]Known, error]  // the orders and refusals, without the refusals of lost attempts
	Close()
}

// Buyer is a user who has live units of a sale.
type Buyer struct {
	UserID string
	Units  int
}

// Known is an attempt that the database has decided.
type Known struct {
	ID, UserID string
	Quantity   int
}

// ErrStreamMoved: after the stream was measured and before the gate was installed, an entry left the stream or the staged keys
// expired. The caller has to start again with measuring the stream.
var ErrStreamMoved = errors.New("the stream moved")

// ErrNewerGate: a gate of this epoch or a newer one was installed or is being installed, so this rebuild ends.
var ErrNewerGate = errors.New("a newer gate is installed")
