package service

import (
	"context"
	"time"

	"flashsale/model"
)

// beaconMargin is the least time between the naming of a round and the publication of the round. It is longer than the
// error of the database's clock, and longer than the root takes to become public.
const beaconMargin = 5 * time.Second

// Beacon is a public source of randomness, which publishes a round every few seconds.
type Beacon interface {
	// After returns the first round that is published later than t.
	After(t time.Time) (round int64)
	// At returns when a round is published.
	At(round int64) time.Time
	// Round asks for a round, and checks its signature. An error means that there is no valid answer yet.
	Round(ctx context.Context, round int64) (signature []byte, randomness [32]byte, err error)
}

// DueRounds lists the sales whose lines wait for a round that should be published by now. A line waits as long as the beacon is
// away.
func (c *Caller) DueRounds() (saleIDs []string) {
	for _, o := range c.Catalog.Lines() {
		waits := o.Line.Phase == model.PhaseSealed && o.Line.AwaitsSeed() && o.Line.Randomness == ""
		if waits && !c.Catalog.Now().Before(c.Beacon.At(o.Line.Round)) {
			saleIDs = append(saleIDs, o.ID)
		}
	}
	return saleIDs
}

// AskForRound asks once for the round for which a sale's line waits, and stores a valid answer. It does nothing if the sale isn't
// watched. An error means that there is no valid answer yet, or that storing it has failed.
func (c *Caller) AskForRound(ctx context.Context, saleID string) error {
	offer := c.Catalog.InMemory(saleID)
	if offer == nil {
		return nil
	}
	signature, randomness, err := c.Beacon.Round(ctx, offer.Line.Round)
	if err != nil {
		return err
	}
	return c.Store.SetRandomness(ctx, saleID, offer.Line.Round, signature, randomness)
}
