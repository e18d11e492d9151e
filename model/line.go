package model

import "time"

// Mode is how the buyers of a sale get their turn.
type Mode string

// The modes.
const (
	ModeRush Mode = "rush" // first come, first served
	ModeLine Mode = "line" // entries from before the start are shuffled, later ones queue behind them; buyers are called
	ModeDraw Mode = "draw" // entries close at the start, then the winners get orders
)

// Modes lists the modes.
var Modes = []Mode{ModeRush, ModeLine, ModeDraw}

// Phase is how far a sale's line is.
type Phase string

// The phases of a line. A waiting list begins with PhaseCalling.
const (
	PhaseEntering Phase = "entering" // before the seal
	PhaseSealed   Phase = "sealed"   // the number of entries is fixed, their order or the winners are on the way
	PhaseCalling  Phase = "calling"
	PhaseOver     Phase = "over"
)

// Lined says where the units of a sale go that come back or are added.
type Lined int

// The values of Lined. A sale that is InLine never has units again that are open to all.
const (
	Unlined        Lined = 0 // to all
	LinedAtSoldOut Lined = 1 // to all, until the sale is sold out: then it is InLine
	InLine         Lined = 2 // to the line
)

// Line is the public state of a sale's line.
type Line struct {
	Phase   Phase
	Entries int64     // entries made so far; their numbers are 0 to Entries-1
	Sealed  int64     // entries before the seal, which have their places in the shuffled order; 0 before the seal
	Serving int64     // all ranks below this one have been called, or in a draw were looked at
	FirstAt time.Time // when the first entry came; zero: there is none
	Stopped bool      // nobody is called and no call ends, because the sale is paused or starts later than it did
	// In hex. Root, Secret and Seed are empty before the seal; without entries there is never a seed.
	Commitment, Root, Secret, Seed string
	// With a beacon and entries, root and round are published together. Signature and Randomness, in hex, are those of the
	// round, which comes later; then secret and seed follow.
	Round                 int64 // 0: the order needs no round, or none is named yet
	Signature, Randomness string
}

// AwaitsSeed reports whether the root is public and the seed is not, because the seed follows from a round of the beacon.
func (l Line) AwaitsSeed() bool { return l.Round > 0 && l.Seed == "" }

// EntryState is the state of an entry.
type EntryState string

// The states of an entry. Only waiting, spent, lapsed, left, void and voided are in the database: an entry is called while it has a
// call, and lost if it still waits when the line is over.
const (
	EntryWaiting EntryState = "waiting"
	EntryCalled  EntryState = "called"
	EntrySpent   EntryState = "spent"  // it has become an order
	EntryLapsed  EntryState = "lapsed" // the call ended without an order
	EntryLeft    EntryState = "left"
	EntryLost    EntryState = "lost"
	EntryVoid    EntryState = "void"   // it was left before the seal; shown as left
	EntryVoided  EntryState = "voided" // an operator has removed it before the seal
)

// LineEntry is a user's entry in a sale's line.
type LineEntry struct {
	UserID   string
	Number   int64 // in the order of arrival
	Quantity int
	State    EntryState
	Units    int       // that the call allows to buy; 0 without a call
	Until    time.Time // end of the call
	New      bool      // the entry was made by this request
}

// VoidRule says which entries an operator removes from a line: those of users, or else those with the numbers From to To.
type VoidRule struct {
	Users    []string
	From, To int64
	Reason   string // for the log
}

// Sealing is what the seal of a line needs.
type Sealing struct {
	Secret, LeafKey [32]byte
	Entries         int64 // before the seal
	DrawLimit       int   // see DrawQuantity; 0 before the seal, and without a draw
}

// DrawQuantity returns how many units an entry gets if a draw draws it: those that it wants, but at most as many as a user might
// have at the seal, if limit is not 0.
func DrawQuantity(wanted, limit int) int {
	if limit == 0 {
		return wanted
	}
	return min(wanted, limit)
}
