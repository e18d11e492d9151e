// Package observe is how the engine's parts report what they do. A part does not know the Observers to which it reports.
package observe

import (
	"context"
	"time"
)

// The steps.
const (
	Deduct        = "deduct"                 // a strategy decides an attempt; the Stage of this name ends before SettleWait
	Admit         = "admit"                  // the gate judges attempts
	DatabaseTakes = "deduct in the database" // the database takes units for attempts by optimistic locking, without the gate
	Settle        = "settle"                 // the database settles entries
	Acknowledge   = "acknowledge"            // settled entries leave the stream
	TellGate      = "tell the gate"          // changes of the database are applied to a gate
	Rebuild       = "rebuild"                // a new gate is installed; Label is the reason
	NextEpoch     = "next epoch"             // the first of six steps towards a new gate
	CloseGate     = "close"
	MeasureStream = "measure"
	ReadContents  = "read the contents"
	StageIDs      = "stage the ids"
	Install       = "install"
	MarkRefunded  = "mark as refunded" // the database records that the provider has sent money back
	SealLine      = "seal a line"      // the root or the seed of a line is computed and stored
	CallNext      = "call the next"    // a transaction calls entrants of a line
	EndCalls      = "end calls"        // a transaction ends calls
	DrawWinners   = "draw winners"     // a transaction makes orders of winners
)

// The events.
const (
	Purchase       = "purchase"        // service.Purchases has decided a request; Label is the verdict
	Stage          = "stage"           // a request spent the time Took in the stage Label
	Uncounted      = "uncounted"       // a request passed because the user's counter could not be reached
	Expired        = "expired"         // an order expired, and its N units were released
	NothingOverdue = "nothing overdue" // the expirer has found no order that still has to expire
	RefundsDue     = "refunds due"     // the money of N payments has to be sent back; the count has a limit
	Delivery       = "delivery"        // a try to send a message to an endpoint has ended; Label is Delivered or Undelivered
	Audited        = "audited"         // this instance holds the auditor's lease
	Drifted        = "drifted"         // the gate of the sale Label was compared with the database; N units are the difference
	Violated       = "violated"        // the books of a sale don't balance, or did not let its orders expire
)

// SettleWait is the Stage in which a buyer waits for the settled order.
const SettleWait = "settle_wait"

// The outcomes of a Delivery.
const (
	Delivered   = "delivered"
	Undelivered = "failed"
)

// Step is work that takes time.
type Step struct {
	Name    string
	Label   string
	Items   int                // attempts, entries or changes
	OrderID func(i int) string // the order's id of an item; may be nil
}

// Event is something that happened at one moment.
type Event struct {
	Name  string
	Label string
	N     int64
	Took  time.Duration
}

// Observer follows steps and events. Its methods are safe for concurrent use.
type Observer interface {
	// Begin is called when a step begins. It returns the context for the work of the step, and the function to call at the
	// end of the step with the step's error; end is nil if the Observer does not need the end.
	Begin(ctx context.Context, s Step) (within context.Context, end func(error))
	Note(e Event)
}

// All passes steps and events on to several Observers. Without any, it does nothing.
type All []Observer

// Begin begins a step at every Observer. "end" is never nil.
func (all All) Begin(ctx context.Context, s Step) (within context.Context, end func(error)) {
	end = func(error) {}
	for i, o := range all {
		var next func(error)
		if ctx, next = o.Begin(ctx, s); next == nil {
			continue
		}
		if i == 0 {
			end = next
			continue
		}
		before := end
		end = func(err error) {
			next(err)
			before(err)
		}
	}
	return ctx, end
}

// Note tells every Observer of an event.
func (all All) Note(e Event) {
	for _, o := range all {
		o.Note(e)
	}
}
