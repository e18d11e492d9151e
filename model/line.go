package model

import "time"

// Mode is how the buyers of a sale get their turn.
type Mode string

const (
	ModeRush Mode = "rush" // first come, first served
	ModeLine Mode = "line" // by call, in the shuffled order of the entries; later entries follow
	ModeDraw Mode = "draw" // by lot; winners get orders or, in a campaign, calls
)

var Modes = []Mode{ModeRush, ModeLine, ModeDraw}

// Phase is how far a sale's line is. The line of a rush begins with PhaseCalling.
type Phase string

const (
	PhaseEntering Phase = "entering" // before the seal
	PhaseSealed   Phase = "sealed"   // the entries to shuffle are fixed; calls have not begun
	PhaseCalling  Phase = "calling"
	PhaseOver     Phase = "over"
)

// Lined says where units go that come back to a sale or are added. A sale that is InLine stays so.
type Lined int

const (
	Unlined        Lined = 0 // to all
	LinedAtSoldOut Lined = 1 // to all; the sale becomes InLine when an entry or a unit comes after it has sold out
	InLine         Lined = 2 // to the line
)

// Line is the public state of a sale's line.
type Line struct {
	Phase   Phase
	Entries int64     // their numbers are 0 to Entries-1
	Sealed  int64     // how many entries are shuffled; 0 before the seal
	Serving int64     // the next rank to look at
	FirstAt time.Time // when the first entry came; zero: there is none
	Stopped bool      // nobody is called, and no call ends by time
	// In hex. Root, Secret and Seed are empty until they are published.
	Commitment, Root, Secret, Seed string
	// Signature and Randomness, in hex, are what the round has brought.
	Round                 int64 // of the beacon; 0: none is named
	Signature, Randomness string
}

// AwaitsSeed reports whether a round of the beacon is named, and the seed that follows from it is not public yet.
func (l Line) AwaitsSeed() bool { return l.Round > 0 && l.Seed == "" }

// EntryState is the state of an entry. EntryCalled and EntryLost are not stored.
type EntryState string

const (
	EntryWaiting EntryState = "waiting"
	EntryCalled  EntryState = "called" // the entry has a call
	EntrySpent   EntryState = "spent"  // the entry has become an order
	EntryLapsed  EntryState = "lapsed" // the entry's call ended by time, without an order
	EntryLeft    EntryState = "left"
	EntryLost    EntryState = "lost"   // the entry was not used before the line was over
	EntryVoid    EntryState = "void"   // the user has left before the seal
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

// VoidRule says which waiting entries an operator removes: those of the Users or, if none are named, those with the numbers From
// to To.
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
	DrawLimit       int   // the limit of DrawQuantity; 0: none
}

// DrawQuantity returns how many units a drawn entry gets. A limit of 0 means no limit.
func DrawQuantity(wanted, limit int) int {
	if limit == 0 {
		return wanted
	}
	return min(wanted, limit)
}
