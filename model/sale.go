// Package model holds the words of the engine: sales, stock, orders, attempts and verdicts.
// It imports the standard library only, and everything else may import it.
package model

import "time"

// SaleStatus is what the operator decided about a sale; time and stock decide the rest (State).
type SaleStatus string

// The operator's decisions.
const (
	SaleLive   SaleStatus = "live"
	SalePaused SaleStatus = "paused"
	SaleClosed SaleStatus = "closed"
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
}

// Judge says whether the sale sells at the instant now of a store's clock: Accepted, NotStarted,
// Ended or Paused, in the order that every strategy keeps.
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

// State is what a buyer sees of the sale at the instant now, with so many units available.
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

// Stock is the conservation row of a sale: Available + Held + Paid = Quota, each at least 0.
type Stock struct {
	SaleID    string
	Quota     int64
	Available int64
	Held      int64 // units in pending orders
	Paid      int64 // units in paid orders
	Version   int64 // grows with every change of the row's units
	Epoch     int64 // the generation of the sale's gate
}

// Offer is a sale with its stock, as one read of the database saw them.
type Offer struct {
	Sale
	Stock Stock
}
