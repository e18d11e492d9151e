// Package model has the types for the engine's terms: sales, stock, orders, attempts and verdicts. It imports the
// standard library only, and every other package may import it.
package model

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// SaleStatus is the operator's decision about a sale. Time and stock decide the rest, see State.
type SaleStatus string

const (
	SaleLive   SaleStatus = "live"
	SalePaused SaleStatus = "paused"
	SaleClosed SaleStatus = "closed"
	// SaleShadow sells like a live sale, but only to the crowd of a rehearsal or of the strategy lab: no other buyer sees the
	// sale, and it has no events. The sale's id, which never changes, says the same, see IsShadow. Nobody can pause it.
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
	Beacon             bool      // the order of a line or draw also follows from a public source of randomness
	EntryWork          int64     // the most hashes that an entrant has to compute, twice as many under load; 0: none
	WaitingList        bool      // units that come back after the sale was sold out, or drawn, go by call to those who wait
	Campaign           Campaign  // the sale's campaign, always the same one; without an ID: none
	Variant            string    // what is different in this sale of its campaign, for example the size
	Place              int       // the sale's place in the list of the campaign's sales, from 0
}

// Campaign groups sales that open and close together and share a limit on each user's units.
type Campaign struct {
	ID                           string // in the form of a sale's id; no sale that buyers see has it
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

// ModeField is a field of a sale, by its name in the API, that acts only in the sales of some modes: of the modes Always, of
// those of WithList if the sale has a waiting list, and of those of InCampaign if it belongs to a campaign.
type ModeField struct {
	Name                         string
	Value                        func(Sale) any
	Always, WithList, InCampaign []Mode
}

// ModeFields are all fields of a sale that do not act in every mode. A line needs no waiting list to offer units that come back.
var ModeFields = []ModeField{
	{"waiting_list", func(s Sale) any { return s.WaitingList }, []Mode{ModeRush, ModeDraw}, nil, nil},
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

// LineID returns the id of the sale to which the sale's line belongs. The sales of a campaign share one line. It belongs to a
// sale with the campaign's id, which nobody can see or buy.
func (s Sale) LineID() string { return cmp.Or(s.Campaign.ID, s.ID) }

// IsCampaignLine reports whether this is not a sale for buyers, but the one to which the line of a campaign belongs, see LineID.
func (s Sale) IsCampaignLine() bool { return s.ID == s.Campaign.ID }

// MaxShards is the most shards that a gate may have: enough for the nodes of a usual Redis Cluster, and few enough that
// all shards can be asked when units run out.
const MaxShards = 16

func (s Sale) GateRef() GateRef { return GateRef{s.ID, s.Campaign.ID, max(s.Shards, 1)} }

// Judge returns whether the sale sells at the instant now, by a store's clock: Accepted, NotStarted, Ended or Paused.
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

// CampaignState returns what a buyer sees of a campaign at the instant now: the first of open, upcoming, paused and sold_out that
// one of the sales has, or else ended.
func CampaignState(sales []Offer, now time.Time) SaleState {
	states := StatesOf(sales, now)
	for _, s := range []SaleState{StateOpen, StateUpcoming, StatePaused, StateSoldOut} {
		if slices.Contains(states, s) {
			return s
		}
	}
	return StateEnded
}

func StatesOf(sales []Offer, now time.Time) []SaleState {
	states := make([]SaleState, len(sales))
	for i, o := range sales {
		states[i] = o.State(now, o.Stock.Free())
	}
	return states
}

// Stock is the conservation row of a sale: Available + Reserved + Called + Held + Paid = Quota, each at least 0.
type Stock struct {
	SaleID    string
	Quota     int64
	Available int64 // units that anybody may buy; 0 while Lined is InLine
	Reserved  int64 // units that belong to the line and are in no call
	Called    int64 // units behind the calls under way
	Held      int64 // units in pending orders
	Paid      int64 // units in paid orders
	Version   int64 // grows with every change of the row's units, Epoch or Lined, and whenever an operator changes the sale
	Epoch     int64 // the generation of the sale's gate

	GateVersion int64 // the Version after the newest change that the gate has to be told, see GateChange
	WrongEpoch  int64 // a gate of this epoch or an older one admitted more units than the stock had, and must be replaced
	Terms       int64 // changes whenever an operator changes the sale
	Lined       Lined
	// How many calls became orders, and how many lapsed without one. The share of the lapsed calls is the no-show rate.
	SpentCalls, LapsedCalls int64
}

// Free returns the number of units that are in no live order. The API calls them available.
func (s Stock) Free() int64 { return s.Available + s.Reserved + s.Called }

// RefusalTime is how long an instance may refuse requests from memory after it has asked for a RefusalLease. It is shorter than
// the second for which the lease keeps units from coming back, since that second is measured by another clock.
const RefusalTime = 700 * time.Millisecond

// RefusalLease allows an instance to refuse requests on a sold-out sale from memory. Two equal leases of a sale mean that
// no order and no durable refusal was added between them.
type RefusalLease struct {
	GateVersion int64 // of the stock row; grows whenever units come back
	Refusals    int64 // number of durable refusals
}

// Offer is a sale with its stock and line, as one read of the database returned them.
type Offer struct {
	Sale
	Stock Stock
	Line  Line
}

// NewSale is a sale to be created.
type NewSale struct {
	Sale
	Quota int64
}

// CampaignChange is an operator's change of a campaign and of all its sales. Edit changes the campaign's texts and limit.
// EditSale is called for each sale, and changes what SaleChange.Edit may change. If one of the two returns a verdict other than
// Accepted, nothing is changed at all.
type CampaignChange struct {
	CampaignID string
	Actor      string
	Action     string // for the audit log
	Edit       func(*Campaign) Verdict
	EditSale   func(*Sale) Verdict
}

// SaleChange is an operator's change of a sale. Edit gets the sale as it is in the transaction, and changes its texts, times,
// limit, status, length of calls and waiting list. If Edit returns a verdict other than Accepted, nothing is changed at all.
type SaleChange struct {
	SaleID    string
	Actor     string
	Action    string // for the audit log
	Edit      func(*Sale) Verdict
	AddQuota  int64
	MostQuota int64  // the largest quota that AddQuota may lead to; 0: any
	IfQuota   *int64 // the quota that the sale must have before the change; nil: any
}

// AuditEntry is an entry of the audit log: what the staff or a key did, or what the engine found, repaired or heard of a refund.
type AuditEntry struct {
	At                    time.Time // by the database's clock
	Actor, Action, Detail string
}

// Books are the sums of a sale that must agree, all read as of one instant of the database.
type Books struct {
	Stock       Stock
	Orders      map[OrderStatus]int64 // number of orders by status; rejected attempts count as orders
	Units       map[OrderStatus]int64 // units by status
	BuyersUnits int64                 // live units over all users
	CalledUnits int64                 // units over all calls
	// For a sale in a campaign: the units over all users as counted for the campaign, the same as counted for its sales, and the
	// number of users for whom the two counts differ. For the sale that has a campaign's line: its quota, the units that the
	// campaign's sales have reserved, and 0. For any other sale the three are 0.
	CampaignUnits, CampaignSales, CampaignWrong int64
	// If the sale has a line: the line's state; the number of its entries; the number of calls whose entry does not wait; and the
	// number of orders that need a spent entry and have none. A campaign's line is in the books of the sale that has the line.
	Line                            Line
	Entries, WrongCalls, WrongTurns int64
}

// Since describes what differs from earlier books although it must not change: the seal of the line, and that units which belong
// to a line stay with the line. An empty list means that all is well.
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
