package model

import (
	"context"
	"errors"
	"iter"
)

// GateRef names the gate of a sale. These values of a sale do not change.
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

// GateState is the state of a sale's gate in Redis.
type GateState struct {
	Away     bool // the gate, or a shard, can't be read reliably; then Open is false, and the other fields mean nothing
	Exists   bool
	Open     bool
	Epoch    int64
	Revision int64 // of the sale, as the gate has it
	Version  int64 // of the stock; the gate has the changes up to this version
	Left     int64 // units that the gate may still admit
	Inflight int64 // units of the entries in the stream
	Stream   int64 // entries in the stream
}

// RebuildReason is why a gate is installed. It is the label of a metric.
type RebuildReason string

const (
	RebuildPreheat    RebuildReason = "preheat"            // the sale is new
	RebuildMissing    RebuildReason = "missing"            // the sale has no gate
	RebuildNeeded     RebuildReason = "missing_at_attempt" // an attempt found no open gate
	RebuildClosed     RebuildReason = "closed"             // the gate is not open, or was installed on another Redis process
	RebuildOldEpoch   RebuildReason = "old_epoch"          // the database has a newer epoch
	RebuildOldSale    RebuildReason = "missed_change"      // the gate lacks an operator's change
	RebuildTooMany    RebuildReason = "admitted_too_many"  // the gate admitted more units than the stock had
	RebuildDrift      RebuildReason = "drift"              // the gate's units differ from the database's
	RebuildLost       RebuildReason = "lost_entry"         // the gate may lack an order
	RebuildMiscounted RebuildReason = "miscounted"         // the gate's count of a user's units is wrong
)

// GateContents is a snapshot of what a new gate needs from the database. Buyers and Known return pages, since a sale may have
// millions of orders. The caller must call Close.
type GateContents interface {
	Offer() Offer
	Buyers(ctx context.Context) iter.Seq2[[]Buyer, error] // with live units
	Known(ctx context.Context) iter.Seq2[[]Known, error]  // orders and refusals, but no lost attempts
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

// ErrStreamMoved: an entry has left the stream since it was measured, or the staged keys have expired. Measure the stream again.
var ErrStreamMoved = errors.New("the stream moved")

// ErrNewerGate: the gate can't be opened, usually because a newer one exists or is to come.
var ErrNewerGate = errors.New("a newer gate is installed")
