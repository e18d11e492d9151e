package model

import (
	"context"
	"errors"
	"iter"
)

// GateState is a sale's gate in Redis as it stands.
type GateState struct {
	Away     bool // the Redis that has it, or a part of it, does not answer: nothing else is known
	Exists   bool
	Open     bool
	Epoch    int64
	Revision int64 // of the sale as the gate knows it
	Version  int64 // of the stock: the gate knows every change up to this one
	Left     int64 // units that may still be admitted
	Inflight int64 // units admitted and not settled
	Stream   int64 // entries in the stream
}

// GateContents is what a new gate of a sale must know, as one instant of the database saw it. Buyers and Known
// give pages, since a sale may have millions of orders, and start from the first page each time. The caller has to close it.
type GateContents interface {
	Offer() Offer
	Buyers(ctx context.Context) iter.Seq2[[]Buyer, error] // those who have live units
	Known(ctx context.Context) iter.Seq2[[]Known, error]  // the orders and the refusals
	Close()
}

// Buyer has live units of a sale.
type Buyer struct {
	UserID string
	Units  int
}

// Known is an attempt that the database has decided.
type Known struct {
	ID, UserID string
	Request
}

// Request is what the gate remembers of an attempt by its id.
type Request struct {
	Quantity int
	Hash     string
}

// Unsure is not told to buyers: the sale's gate is open, but not all of its parts could be asked whether there are units,
// and the database has to say.
const Unsure Verdict = "unsure"

// ErrNoGate: the sale has no gate that is open: it was lost, or a new one is being installed.
var ErrNoGate = errors.New("the sale's gate is missing or closed")

// ErrStreamMoved: an entry was settled between the reading of the stream and the install; read again.
var ErrStreamMoved = errors.New("the stream moved")

// ErrNewerGate: a gate of this epoch or a newer one is there; this rebuild is over.
var ErrNewerGate = errors.New("a newer gate is installed")
