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

// RandomnessStore stores the signature and the randomness of a round of the beacon.
type RandomnessStore interface {
	SetRandomness(ctx context.Context, saleID string, round int64, signature []byte, randomness [32]byte) error
}

// Beacons gets the rounds for which sealed lines wait. A line waits as long as the source is away.
type Beacons struct {
	Beacon  Beacon
	Store   RandomnessStore
	Catalog *Catalog
}

// Due lists the sales whose lines wait for a round that should be published by now.
func (b *Beacons) Due() (saleIDs []string) {
	for _, o := range b.Catalog.Lines() {
		waits := o.Line.Phase == model.PhaseSealed && o.Line.AwaitsSeed() && o.Line.Randomness == ""
		if waits && !b.Catalog.Now().Before(b.Beacon.At(o.Line.Round)) {
			saleIDs = append(saleIDs, o.ID)
		}
	}
	return saleIDs
}

// Tend asks once for the round for which a sale's line waits, and stores a valid answer. It does nothing if the sale isn't
// watched. An error means that there is no valid answer yet, or that storing it has failed.
func (b *Beacons) Tend(ctx context.Context, saleID string) error {
	offer := b.Catalog.InMemory(saleID)
	if offer == nil {
		return nil
	}
	signature, randomness, err := b.Beacon.Round(ctx, offer.Line.Round)
	if err != nil {
		return err
	}
	return b.Store.SetRandomness(ctx, saleID, offer.Line.Round, signature, randomness)
}
