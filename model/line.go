package model

import "time"

// Mode is how the buyers of a sale get their turn.
type Mode string

const (
	ModeRush Mode = "rush" // first come, first served
	ModeLine Mode = "line" // the start shuffles the entries, and later entries queue behind them; entrants are called to buy
	ModeDraw Mode = "draw" // the start draws winners from the entries; winners get orders or, in a campaign, calls
)

var Modes = []Mode{ModeRush, ModeLine, ModeDraw}

// Phase is how far a sale's line is. The line of a rush begins with PhaseCalling.
type Phase string

const (
	PhaseEntering Phase = "entering" // before the seal
	PhaseSealed   Phase = "sealed"   // the number of entries to shuffle is fixed; their order is not yet, or a draw is under way
	PhaseCalling  Phase = "calling"
	PhaseOver     Phase = "over"
)

// Lined says where units go that come back to a sale or are added to it. A sale that is InLine stays so.
type Lined int

const (
	Unlined        Lined = 0 // to all
	LinedAtSoldOut Lined = 1 // to all, until the sale is sold out; the first entry, or unit that comes after that, makes it InLine
	InLine         Lined = 2 // to the line
)

// Line is the public state of a sale's line.
type Line struct {
	Phase   Phase
	Entries int64     // entries made so far; their numbers are 0 to Entries-1
	Sealed  int64     // entries before the seal, which have their places in the shuffled order; 0 before the seal
	Serving int64     // the next rank to look at: all lower ranks were called, drawn or passed over
	FirstAt time.Time // when the first entry came; zero: there is none
	Stopped bool      // nobody is called and no call ends by time, because the sale was paused or its start was put off
	// All four are in hex. Root, Secret and Seed are empty until the seal publishes them; without entries there is never a Seed.
	Commitment, Root, Secret, Seed string
	// With a beacon and entries, Root and Round are published together. Signature and Randomness, in hex, are what the round
	// brings later; Secret and Seed are published after them.
	Round                 int64 // of the beacon; 0: the order needs no round, or none is named yet
	Signature, Randomness string
}

// AwaitsSeed reports whether the root is public and the seed is not yet, because the seed follows from a round of the beacon.
func (l Line) AwaitsSeed() bool { return l.Round > 0 && l.Seed == "" }

// EntryState is the state of an entry. EntryCalled and EntryLost are not in the database.
type EntryState string

const (
	EntryWaiting EntryState = "waiting"
	EntryCalled  EntryState = "called" // the entry has a call
	EntrySpent   EntryState = "spent"  // the entry has become an order
	EntryLapsed  EntryState = "lapsed" // the entry's call ended by time, without an order
	EntryLeft    EntryState = "left"
	EntryLost    EntryState = "lost"   // the entry still waited, or was called, when the line was over
	EntryVoid    EntryState = "void"   // the user has left before the seal; shown as left
	EntryVoided  EntryState = "voided" // an operator has removed the entry before the seal
)

// LineEntry is a user's entry in a sale's line.
type LineEntry struct {
	UserID   string
	Number   int64 // in the order of arrival
	Quantity int
	State    EntryState
	Units    int       // the units that the call allows to buy; 0 without a call
	Until    time.Time // end of the call
	New      bool      // the entry was made by this request
}

// VoidRule says which waiting entries an operator removes from a line: those of the Users or, if none are named, those with the
// numbers From to To. The tags are the names in the API.
type VoidRule struct {
	Users  []string `json:"users"`
	From   int64    `json:"from"`
	To     int64    `json:"to"`
	Reason string   `json:"reason"` // for the audit log
}

// Sealing is what the seal of a line needs.
type Sealing struct {
	Secret, LeafKey [32]byte
	Entries         int64 // before the seal
	DrawLimit       int   // the limit of DrawQuantity; 0 until the line has a root, and without a draw
}

// DrawQuantity returns how many units a drawn entry gets. The limit is the sale's limit per user at the seal; 0 means no limit.
func DrawQuantity(wanted, limit int) int {
	if limit == 0 {
		return wanted
	}
	return min(wanted, limit)
}
