package worker

import (
	"context"
	"log/slog"
	"time"

	"flashsale/service"
)

const (
	// callPeriod is how often the caller looks at each line. A unit that came back waits for it at most this long.
	callPeriod = 200 * time.Millisecond
	// callLease is how long the lease of a dead instance keeps others from calling. Calls get the time back if it is longer.
	callLease = 2 * time.Second
	// beaconPeriod is how often the beacon is asked for a round that a line waits for.
	beaconPeriod = time.Second
	// beaconLease is how long the lease of a dead instance keeps others from asking.
	beaconLease = 3 * time.Second
)

// Lines looks after the lines of sales, on one instance at a time. The leases only save work: two instances at once are
// safe.
type Lines struct {
	Caller  *service.Caller
	Beacons *service.Beacons
	Leases  interface {
		Lease(ctx context.Context, name, holder string, ttl time.Duration) (bool, error)
	}
	Instance string
	Log      *slog.Logger
}

// Call seals lines, draws and calls until ctx ends.
func (l *Lines) Call(ctx context.Context) {
	every(ctx, "caller", callPeriod, nil, l.Log, l.leased("caller", callLease, l.Caller.Lined, l.Caller.Step))
}

// AskBeacon gets the rounds of the beacon for which lines wait, until ctx ends. It is a loop of its own, because a source
// that does not answer must not hold up the calls.
func (l *Lines) AskBeacon(ctx context.Context) {
	every(ctx, "beacon", beaconPeriod, nil, l.Log, l.leased("beacon", beaconLease, l.Beacons.Due, l.Beacons.Step))
}

// leased returns a step that does nothing on the instances without the lease. due tells, without a store, whether there is
// anything to do.
func (l *Lines) leased(name string, ttl time.Duration, due func() bool, step func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if !due() {
			return nil
		}
		if mine, err := l.Leases.Lease(ctx, name, l.Instance, ttl); err != nil || !mine {
			return err
		}
		return step(ctx)
	}
}
