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

// The operator's decisions.
const (
	SaleLive   SaleStatus = "live"
	SalePaused SaleStatus = "paused"
	SaleClosed SaleStatus = "closed"
	// SaleShadow sells like a live sale, but only to the crowd of a rehearsal or of the strategy lab: to everybody else it does not
	// exist, and it has no events. Its id, which never changes, says so, see IsShadow. An operator can only close it.
	SaleShadow SaleStatus = "shadow"
)

// SaleState is what a buyer sees of a sale at one instant.
type SaleState string

// The states of a sale.
const (
	StateUpcoming SaleState = "upcoming"
	StateOpen     SaleState = "open"
	StatePaused   SaleState = "paused"
	StateSoldOut  SaleState = "sold_out"
	StateEnded    SaleState = "ended"
)

// Sale is a timed window that sells a quota of one product at one price.
type Sale struct {
	ID                 string // opaque, IDLength characters of base32
	Code               string // of the short link
	Title              string
	Description        string
	ImageURL           string
	PriceCents         int64
	OriginalPriceCents int64
	Currency           string // ISO 4217
	LimitPerUser       int    // live units that one user may hold
	PayTimeoutSeconds  int
	StartsAt           time.Time
	EndsAt             time.Time
	Status             SaleStatus
	Revision           int64 // grows with every change by the operator
	Shards             int   // of its gate, 1 to MaxShards; never changes
	Mode               Mode
	EntriesAt          time.Time // when entries open, zero: at once
	CallSeconds        int       // how long a call lasts
	Beacon             bool      // the order of a line or draw also follows from a public source of randomness
	EntryWork          int64     // the most hashes that an entrant has to compute, twice as many under load; 0: none
	WaitingList        bool      // units that come back after the sale was sold out go by call to those who wait
	Campaign           Campaign  // that the sale belongs to, never changes; without an ID: none
	Variant            string    // what is different in this sale of its campaign, for example the size
	Place              int       // in the list of the campaign's sales
}

// Campaign groups sales that open and close together, and on which a user may have a number of units in all.
type Campaign struct {
	ID           string // like the id of a sale, and of no sale
	Title        string
	Description  string
	ImageURL     string
	LimitPerUser int // live units that one user may hold over all sales of the campaign
}

// MaxVariants is the most sales that a campaign may have.
const MaxVariants = 64

// CommonLimit is the limit of a campaign, as the gates of its sales need it.
type CommonLimit struct {
	Units   int
	SaleIDs []string // all sales of the campaign
}

// HasLine reports whether the sale has a line, or may get one.
func (s Sale) HasLine() bool { return s.WaitingList || s.Mode == ModeLine || s.Mode == ModeDraw }

// LineID returns the id of the sale that has the sale's line. The sales of a campaign share a line: it is that of a sale with
// the campaign's id, which has no units of its own to sell and is in no list.
func (s Sale) LineID() string { return cmp.Or(s.Campaign.ID, s.ID) }

// IsCampaignLine reports whether this is the line of a campaign: it is stored like a sale, but no list shows it and nobody can buy
// it.
func (s Sale) IsCampaignLine() bool { return s.ID == s.Campaign.ID }

// MaxShards is the most shards that a gate may have: enough for the nodes of a usual Redis Cluster, and few enough that
// all shards can be asked when units run out.
const MaxShards = 16

// GateRef names the sale's gate.
func (s Sale) GateRef() GateRef { return GateRef{s.ID, s.Campaign.ID, max(s.Shards, 1)} }

// Judge returns whether the sale sells at the instant now of a store's clock: Accepted, NotStarted, Ended or Paused.
// Every strategy makes these checks in the same order.
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
	switch s.Judge(now) {
	case Ended:
		return StateEnded
	case NotStarted:
		return StateUpcoming
	case Paused:
		return StatePaused
	default:
		if available <= 0 {
			return StateSoldOut
		}
		return StateOpen
	}
}

// CampaignState returns what a buyer sees of a campaign at the instant now: the most inviting of the states of its sales.
func CampaignState(sales []Offer, now time.Time) SaleState {
	states := StatesOf(sales, now)
	for _, s := range []SaleState{StateOpen, StateUpcoming, StatePaused, StateSoldOut} {
		if slices.Contains(states, s) {
			return s
		}
	}
	return StateEnded
}

// StatesOf returns the states of sales at the instant now.
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
	Available int64 // units that are open to all; 0 while Lined is InLine
	Reserved  int64 // units that belong to the line and are not called
	Called    int64 // units behind the calls that have not become orders
	Held      int64 // units in pending orders
	Paid      int64 // units in paid orders
	Version   int64 // grows with every change of the row's units, and with the epoch
	Epoch     int64 // the generation of the sale's gate
	// GateVersion is the version of the newest change that did not come through the gate, see GateChange.
	GateVersion int64
	WrongEpoch  int64 // gates up to this epoch admitted more units than the stock had, and must be replaced
	Terms       int64 // another number whenever an operator has changed the sale
	Lined       Lined
	// The calls that became orders, and those that ended without one. The share of the latter is the
	// no-show rate.
	SpentCalls, LapsedCalls int64
}

// Free returns the units that are in no order. The API calls them available.
func (s Stock) Free() int64 { return s.Available + s.Reserved + s.Called }

// RefusalTime is how long an instance may refuse requests from memory after it has asked for a RefusalLease.
const RefusalTime = 700 * time.Millisecond

// RefusalLease allows an instance to refuse requests on a sold-out sale from memory. Two equal leases of a sale mean that
// no order and no durable refusal was added between them.
type RefusalLease struct {
	GateVersion int64 // of the stock; grows whenever units come back
	Refusals    int64 // number of durable refusals
}

// Offer is a sale with its stock, as one read of the database returned them.
type Offer struct {
	Sale
	Stock Stock
	Line  Line
}

// NewSale is a sale to be created, and its quota.
type NewSale struct {
	Sale
	Quota int64
}

// CampaignChange is an operator's change of a campaign and of all its sales. Edit changes the campaign's texts and limit,
// EditSale what SaleChange.Edit may change of each sale. If one of them returns a verdict other than Accepted, nothing is
// changed at all.
type CampaignChange struct {
	CampaignID string
	Actor      string
	Action     string // for the log
	Edit       func(*Campaign) Verdict
	EditSale   func(*Sale) Verdict
}

// SaleChange is an operator's change of a sale. Edit gets the sale as it is in the transaction, and changes its
// texts, times, limit and status. If Edit returns a verdict other than Accepted, nothing is changed at all.
type SaleChange struct {
	SaleID    string
	Actor     string
	Action    string // for the log
	Edit      func(*Sale) Verdict
	AddQuota  int64
	MostQuota int64  // the largest quota that the sale may get by AddQuota; 0: any
	IfQuota   *int64 // the quota that the sale must have before the change; nil: any
}

// AuditEntry is an action of an operator, or a repair by the engine itself.
type AuditEntry struct {
	At                    time.Time // by the database's clock
	Actor, Action, Detail string
}

// Books are the sums of a sale that must agree, all read at one instant of the database.
type Books struct {
	Stock       Stock
	Orders      map[OrderStatus]int64 // orders by status, rejected ones included
	Units       map[OrderStatus]int64 // units by status
	BuyersUnits int64                 // live units over all users
	CalledUnits int64                 // units over all calls
	// Of a sale in a campaign: the campaign's units over all users, its sales' units over all users, and the number of users
	// for whom the two differ. Of the campaign's line: its quota, and the units that its sales have reserved. Else 0.
	CampaignUnits, CampaignSales, CampaignWrong int64
	// Of the sale's line, if it has one: its state, its entries, the calls whose entry does not wait, and the orders that have no
	// spent entry although they need one.
	Line                            Line
	Entries, WrongCalls, WrongTurns int64
}

// Since describes what the line has changed against the books before that may never change: the seal, and whose the units are.
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
