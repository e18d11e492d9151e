package worker

import (
	"context"
	"log/slog"
	"time"

	"flashsale/service"
)

const (
	// beaconPeriod is how often the beacon is asked for a round that a line waits for.
	beaconPeriod = time.Second
	// beaconLease is how long the lease of a dead instance keeps others from asking.
	beaconLease = 3 * time.Second
)

// Beacon gets the rounds of the beacon for which lines wait, on one instance at a time, so that the source is not asked by
// all. It is a loop of its own, because a source that does not answer must not hold up the caller.
type Beacon struct {
	Beacons *service.Beacons
	Leases  interface {
		Lease(ctx context.Context, name, holder string, ttl time.Duration) (bool, error)
	}
	Instance string
	Log      *slog.Logger
}

// Run asks until ctx ends.
func (b *Beacon) Run(ctx context.Context) {
	every(ctx, "beacon", beaconPeriod, nil, b.Log, b.step)
}

func (b *Beacon) step(ctx context.Context) error {
	if !b.Beacons.Due() {
		return nil
	}
	if mine, err := b.Leases.Lease(ctx, "beacon", b.Instance, beaconLease); err != nil || !mine {
		return err
	}
	return b.Beacons.Step(ctx)
}
