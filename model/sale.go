// Package model has the types for the engine's terms: sales, stock, orders, attempts and verdicts.
package model

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// SaleStatus is the stored status of a sale. Time and stock decide the rest, see State.
type SaleStatus string

const (
	SaleLive   SaleStatus = "live"
	SalePaused SaleStatus = "paused"
	SaleClosed SaleStatus = "closed"
	// SaleShadow is like SaleLive, but for a sale of a rehearsal or of the strategy lab, see IsShadow.
	SaleShadow SaleStatus = "shadow"
)

// SaleState is what a buyer sees of a sale at one instant.
type SaleState string

const (
	StateUpcoming SaleState = "upcoming"
	StateOpen     SaleState = "open"
	StatePaused   SaleState = "paused"
	StateSoldOut  SaleState = "sold_out"
	StateEnded    SaleState = "ended"
)

// StockShown says what buyers see of a sale's stock, besides the sale's state.
type StockShown string

// The values of StockShown.
const (
	StockExact StockShown = "exact" // the quota and the available units
	StockFew   StockShown = "few"   // whether there is plenty or little left
	StockNone  StockShown = "none"
)

// StocksShown are all values of StockShown.
var StocksShown = []StockShown{StockExact, StockFew, StockNone}

// States are all states. A campaign has the first of them that one of its sales has.
var States = []SaleState{StateOpen, StateUpcoming, StatePaused, StateSoldOut, StateEnded}

// Sale offers a quota of units of one product, at one price, in a timed window.
type Sale struct {
	ID                 string // opaque, IDLength characters of base32
	Code               string // of the short link
	Title, Description string
	ImageURL           string
	PriceCents         int64 // as all amounts, in the smallest unit of the currency, which is not always a cent
	OriginalPriceCents int64
	Currency           string // ISO 4217
	LimitPerUser       int    // live units that one user may hold
	PayTimeoutSeconds  int
	StartsAt, EndsAt   time.Time
	Status             SaleStatus
	Revision           int64 // grows when an operator changes the sale, and when a part of the line's seal is published
	Shards             int   // of its gate, 1 to MaxShards; never changes
	Mode               Mode
	EntriesAt          time.Time // when entries open, zero: at once
	CallSeconds        int       // how long a call lasts
	Beacon             bool      // the shuffled order also follows from a public source of randomness
	EntryWork          int64     // the most hashes that an entrant usually has to compute; 0: none
	WaitingList        bool      // units that come back after the sale has sold out, or was drawn, go by call to those who wait
	StockShown         StockShown
	Started            bool      // an operator has changed the sale after its start, or shortly before; the start may have been moved since
	TermsAt            time.Time // when an operator last changed the terms, zero: never
	Campaign           Campaign  // without an ID: none
	Variant            string    // what distinguishes the sale in its campaign, for example the size
	Place              int       // the sale's place in the list of the campaign's sales, from 0
}

// Campaign groups sales that have the same start and end, and share a limit on each user's units.
type Campaign struct {
	ID                           string // in the form of a sale's id
	Title, Description, ImageURL string
	LimitPerUser                 int // live units that one user may hold over all sales of the campaign
}

const MaxVariants = 64 // the most sales that a campaign may have

// CommonLimit is the limit of a campaign, as the gates of its sales need it.
type CommonLimit struct {
	Units   int
	SaleIDs []string // the sales of the campaign that this instance knows
}

// HasLine reports whether the sale has a line, or may get one.
func (s Sale) HasLine() bool { return s.WaitingList || s.Mode == ModeLine || s.Mode == ModeDraw }

// ModeField is a field of a sale that acts in some modes only: in those of Always, in those of WithList if the sale has a
// waiting list, and in those of InCampaign if it belongs to a campaign. Name is its name in the API.
type ModeField struct {
	Name                         string
	Value                        func(Sale) any
	Always, WithList, InCampaign []Mode
}

// ModeFields are the fields of a sale that do not act in every sale.
var ModeFields = []ModeField{
	{"waiting_list", func(s Sale) any { return s.WaitingList }, []Mode{ModeRush, ModeDraw}, nil, nil},
	// The proof of a draw has the number of its units, so a draw does not hide them.
	{"stock_shown", func(s Sale) any { return s.StockShown }, []Mode{ModeRush, ModeLine}, nil, nil},
	{"beacon", func(s Sale) any { return s.Beacon }, []Mode{ModeLine, ModeDraw}, nil, nil},
	{"entries_at", func(s Sale) any { return s.EntriesAt }, []Mode{ModeLine, ModeDraw}, nil, nil},
	{"entry_work", func(s Sale) any { return s.EntryWork }, []Mode{ModeLine, ModeDraw}, []Mode{ModeRush}, nil},
	{"call_seconds", func(s Sale) any { return s.CallSeconds }, []Mode{ModeLine}, []Mode{ModeRush, ModeDraw}, []Mode{ModeDraw}},
}

// ActsIn reports whether the field acts in the sale.
func (f ModeField) ActsIn(s Sale) bool {
	return slices.Contains(f.Always, s.Mode) || s.WaitingList && slices.Contains(f.WithList, s.Mode) ||
		s.Campaign.ID != "" && slices.Contains(f.InCampaign, s.Mode)
}

// LineID returns the id of the sale that has this sale's line. The sales of a campaign share a line: that of a sale with the
// campaign's id.
func (s Sale) LineID() string { return cmp.Or(s.Campaign.ID, s.ID) }

// IsCampaignLine reports whether this sale is not for buyers, but has the line of a campaign.
func (s Sale) IsCampaignLine() bool { return s.ID == s.Campaign.ID }

// MaxShards is the most shards that a gate may have: few enough that all can be asked when units run out.
const MaxShards = 16

func (s Sale) GateRef() GateRef { return GateRef{s.ID, s.Campaign.ID, max(s.Shards, 1)} }

// Judge returns whether the sale sells at the instant now: Accepted, NotStarted, Ended or Paused.
func (s Sale) Judge(now time.Time) Verdict {
	switch {
	case s.Status == SaleClosed:
		return Ended
	case now.Before(s.StartsAt):
		return NotStarted
	case !now.Before(s.EndsAt):
		return Ended
	case s.Status == SalePaused:
		return Paused
	}
	return Accepted
}

// State returns what a buyer sees of the sale at the instant now, with this many units available.
func (s Sale) State(now time.Time, available int64) SaleState {
	switch verdict := s.Judge(now); {
	case verdict == Ended:
		return StateEnded
	case verdict == NotStarted:
		return StateUpcoming
	case verdict == Paused:
		return StatePaused
	case available <= 0:
		return StateSoldOut
	}
	return StateOpen
}

// CampaignState returns the first of States that one of the sales has, or ended if there is no sale.
func CampaignState(sales []Offer, now time.Time) SaleState {
	states := append(StatesOf(sales, now), StateEnded)
	return slices.MinFunc(states, func(a, b SaleState) int { return cmp.Compare(slices.Index(States, a), slices.Index(States, b)) })
}

func StatesOf(sales []Offer, now time.Time) []SaleState {
	states := make([]SaleState, len(sales))
	for i, o := range sales {
		states[i] = o.State(now, o.Stock.Free())
	}
	return states
}

// Stock counts a sale's units: Available + Reserved + Called + Held + Paid = Quota, each at least 0.
type Stock struct {
	SaleID    string
	Quota     int64
	Available int64 // units that anybody may buy; 0 while Lined is InLine
	Reserved  int64 // units that belong to the line and are in no call
	Called    int64 // units behind the calls under way
	Held      int64 // units in pending orders
	Paid      int64 // units in paid orders
	Version   int64 // grows when the units, Epoch or Lined change, and when an operator changes the sale
	Epoch     int64 // the generation of the sale's gate

	GateVersion int64 // the Version up to which the gate needs the changes, see GateChange
	WrongEpoch  int64 // open gates of this epoch or an older one must be replaced
	Terms       int64 // changes when an operator changes the sale
	Lined       Lined
	// How many calls became orders, and how many ended by time.
	SpentCalls, LapsedCalls int64
}

// Free returns the number of units that are in no live order.
func (s Stock) Free() int64 { return s.Available + s.Reserved + s.Called }

// RefusalTime is how long an instance may refuse requests from memory after it has asked for a RefusalLease. It is shorter than
// the second for which the database keeps units from coming back, since the two are measured by different clocks.
const RefusalTime = 700 * time.Millisecond

// RefusalLease allows an instance to refuse requests on a sold-out sale from memory. Between two equal leases of a sale, no
// order and no durable refusal was added.
type RefusalLease struct {
	GateVersion int64 // of the stock row
	Refusals    int64 // number of durable refusals
}

// Offer is a sale with its stock and line.
type Offer struct {
	Sale
	Stock Stock
	Line  Line
}

// Scarcity returns what buyers see of a stock of which they see no number: "few" if at most a tenth of the quota, rounded up, is
// left, "plenty" if more is left, or "" if nothing is left or they see nothing.
func (o Offer) Scarcity() string {
	switch {
	case o.StockShown != StockFew || o.Stock.Free() <= 0:
		return ""
	case o.Stock.Free() <= (o.Stock.Quota+9)/10:
		return "few"
	}
	return "plenty"
}

// Summary is what the list of all sales shows of a campaign, or of a sale without a campaign.
type Summary struct {
	ID, Title                    string
	Campaign                     bool
	Mode                         Mode
	State                        SaleState // as operators see it: what is paused is so before its start too
	StartsAt, EndsAt             time.Time
	Sales                        int   // of the campaign, or 1
	LowCents, HighCents          int64 // the lowest and the highest price
	Currency                     string
	LimitPerUser                 int
	Quota, Available, Held, Paid int64 // of all its sales; Available are the units that are in no live order
}

// SummarySorts are the ways to sort a list of summaries: the newest, the latest start or the most units in live orders first.
var SummarySorts = []string{"newest", "start", "sold"}

// SummaryFilter selects summaries. An empty field does not limit the selection, and an empty Sort is the first.
type SummaryFilter struct {
	Words  string // in a title, or the beginning of an id or of a short link's code
	State  SaleState
	Mode   Mode
	Sort   string // one of SummarySorts
	Cursor string // returned with the previous page; empty for the first page
	Limit  int
}

// NewSale is a sale to be created.
type NewSale struct {
	Sale
	Quota int64
}

// CampaignChange is an operator's change of a campaign and its sales. Edit changes the campaign's texts and limit, and EditSale
// what SaleChange.Edit may change in each sale. If one of them returns another verdict than Accepted, nothing is changed.
type CampaignChange struct {
	CampaignID string
	Actor      string
	Action     string // for the audit log
	Edit       func(*Campaign) Verdict
	EditSale   func(*Sale) Verdict
}

// SaleChange is an operator's change of a sale. Edit gets the present sale, and may change its texts, times, limit, status, terms
// and what is particular to its mode, but not the mode. If it returns another verdict than Accepted, nothing is changed.
type SaleChange struct {
	SaleID    string
	Actor     string
	Action    string // for the audit log
	Edit      func(*Sale) Verdict
	AddQuota  int64
	Quota     int64  // the quota after the change, in place of AddQuota; 0: none is given
	MostQuota int64  // the largest quota after AddQuota; 0: any
	IfQuota   *int64 // the quota that the sale must have before; nil: any
}

// AuditEntry is an entry of the audit log.
type AuditEntry struct {
	At                    time.Time // by the database's clock
	Actor, Action, Detail string
}

// Books are sums of a sale that must agree, read as of one instant.
type Books struct {
	Stock       Stock
	Orders      map[OrderStatus]int64 // by status; durable refusals count as rejected orders
	Units       map[OrderStatus]int64 // by status of their orders
	BuyersUnits int64                 // live units of all users
	CalledUnits int64                 // units of all calls
	// For a sale in a campaign: the units of all users as counted for the campaign, the same as counted for its sales, and the
	// number of users for whom the two differ. For the sale with a campaign's line: its quota, the units that the sales have
	// reserved, and 0.
	CampaignUnits, CampaignSales, CampaignWrong int64
	// The line, if the sale has one of its own, and the number of its entries; the number of calls whose entry does not wait; and
	// the number of orders that lack the spent entry that they need.
	Line                            Line
	Entries, WrongCalls, WrongTurns int64
}

// Since describes what must not change and differs from earlier books: the seal of the line, once the line has a root, and that
// the units belong to the line, once they do. An empty list means that all is well.
func (b Books) Since(before Books) (list []string) {
	was, is := before.Line, b.Line
	if was.Root != "" && (was.Sealed != is.Sealed || was.Root != is.Root || was.Seed != "" && was.Seed != is.Seed) {
		list = append(list, fmt.Sprintf("the seal of the line: %d %s %s, not %d %s %s", is.Sealed, is.Root, is.Seed, was.Sealed, was.Root, was.Seed))
	}
	if before.Stock.Lined == InLine && b.Stock.Lined != InLine {
		list = append(list, "the units of the line are open to all again")
	}
	return list
}

// Violations describes which sums disagree. An empty list means that the books balance.
func (b Books) Violations() []string {
	var list []string
	check := func(what string, a, b int64) {
		if a != b {
			list = append(list, fmt.Sprintf("%s: %d, not %d", what, a, b))
		}
	}
	check("available + held + paid against the quota", b.Stock.Free()+b.Stock.Held+b.Stock.Paid, b.Stock.Quota)
	check("called against the calls", b.Stock.Called, b.CalledUnits)
	check("held against pending orders", b.Stock.Held, b.Units[OrderPending])
	check("paid against paid orders", b.Stock.Paid, b.Units[OrderPaid])
	check("buyers' units against live orders", b.BuyersUnits, b.Units[OrderPending]+b.Units[OrderPaid])
	check("units of the campaign against those of its sales", b.CampaignUnits, b.CampaignSales)
	check("users whose units in the campaign differ from those in its sales", b.CampaignWrong, 0)
	check("entries against the line's number", b.Entries, b.Line.Entries)
	check("calls whose entry does not wait", b.WrongCalls, 0)
	check("orders of the line without a spent entry", b.WrongTurns, 0)
	return list
}
