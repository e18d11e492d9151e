package service

import (
	"context"
	"errors"
	"iter"
	"time"

	"flashsale/model"
)

// beaconMargin is the least time between the naming of a round and the round. It is longer than the error of the database's
// clock, and than the root takes to become public.
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

// RandomnessStore stores what rounds of the beacon have brought.
type RandomnessStore interface {
	SetRandomness(ctx context.Context, saleID string, round int64, signature []byte, randomness [32]byte) error
}

// Beacons gets the rounds for which sealed lines wait. A line waits as long as the source is away.
type Beacons struct {
	Beacon  Beacon
	Store   RandomnessStore
	Catalog *Catalog
}

// Due reports whether a line waits for a round that should be published by now.
func (b *Beacons) Due() bool {
	for range b.due() {
		return true
	}
	return false
}

func (b *Beacons) due() iter.Seq[model.Offer] {
	return func(yield func(model.Offer) bool) {
		for _, o := range b.Catalog.Lines() {
			waits := o.Line.Phase == model.PhaseSealed && o.Line.AwaitsSeed() && o.Line.Randomness == ""
			if waits && !b.Catalog.Now().Before(b.Beacon.At(o.Line.Round)) && !yield(o) {
				return
			}
		}
	}
}

// Step asks once for the round of each line that waits, and stores the valid answers.
func (b *Beacons) Step(ctx context.Context) (err error) {
	for o := range b.due() {
		signature, randomness, failed := b.Beacon.Round(ctx, o.Line.Round)
		if failed == nil {
			failed = b.Store.SetRandomness(ctx, o.ID, o.Line.Round, signature, randomness)
		}
		err = errors.Join(err, failed)
	}
	return err
}
