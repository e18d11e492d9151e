package model

import "time"

// Point is a figure of a sale in the bucket that begins at At: the requests with a verdict, or units as they were seen last.
type Point struct {
	SaleID string
	At     time.Time
	Figure string // a Verdict, or one of UnitFigures
	Value  int64
}

// UnitFigures are the figures that are units. Available units include those of the line, see Stock.Free.
var UnitFigures = [...]string{"available", "held", "paid"}

// OrderSums are sums over the orders of one status. The tags are the names in the API.
type OrderSums struct {
	Orders      int64 `json:"orders"`
	Units       int64 `json:"units"`
	AmountCents int64 `json:"amount_cents"`
}

// Bucket returns when the bucket of an instant begins, and its length: a second in the first ten minutes after the sale's start, a
// minute within a day of the start, an hour within thirty days, otherwise a day.
func Bucket(starts, at time.Time) (begins time.Time, length time.Duration) {
	const day = 24 * time.Hour
	after, length := at.Sub(starts), day
	switch {
	case 0 <= after && after < 10*time.Minute:
		length = time.Second
	case -day <= after && after < day:
		length = time.Minute
	case -30*day <= after && after < 30*day:
		length = time.Hour
	}
	return starts.Add(after - (after%length+length)%length), length // % has the sign of after
}
