package worker

import (
	"context"
	"log/slog"
	"time"

	"flashsale/service"
)

const (
	// callPeriod is how often the caller looks at each line.
	callPeriod = 200 * time.Millisecond
	// callLease is how long the lease lasts: too short to count as an outage (TendLine).
	callLease = 2 * time.Second
	// linePatience is how long a loop waits for one line before it goes on with the next: a row may be locked.
	linePatience = 100 * time.Millisecond
	// lineRest is how long a line rests after a failure. Further failures in a row double it, up to lineRestMost.
	lineRest     = 200 * time.Millisecond
	lineRestMost = 2 * time.Second
	// beaconPeriod is how often AskBeacon looks for lines that wait for a round.
	beaconPeriod = time.Second
	// beaconLease is how long the lease of AskBeacon lasts.
	beaconLease = 3 * time.Second
)

// Lines looks after the lines of sales, in two loops with a lease each.
type Lines struct {
	Lease  Lease
	Caller *service.Caller
	Log    *slog.Logger
}

// Call looks after the lines that are due until ctx ends.
func (l *Lines) Call(ctx context.Context) {
	l.tend(ctx, "caller", callPeriod, callLease, l.Caller.Due, l.Caller.Tend)
}

// AskBeacon asks for the rounds of the beacon for which lines wait, until ctx ends. It is apart from Call, so that a beacon that
// does not answer holds up no calls.
func (l *Lines) AskBeacon(ctx context.Context) {
	l.tend(ctx, "beacon", beaconPeriod, beaconLease, l.Caller.DueRounds, l.Caller.AskForRound)
}

// tend looks after each line that is due, if this instance has the lease of this name.
func (l *Lines) tend(
	ctx context.Context, name string, period, lease time.Duration,
	due func() (saleIDs []string), tend func(ctx context.Context, saleID string) error,
) {
	lines := apart{
		patience: linePatience, rest: lineRest, restMost: lineRestMost, log: l.Log,
		fails: "the " + name + " can't look after a line", works: "the " + name + " looks after a line again",
	}
	every(ctx, name, period, nil, l.Log, func(ctx context.Context) error {
		saleIDs := due()
		if len(saleIDs) == 0 {
			return nil
		}
		if mine, err := l.Lease(ctx, name, lease); err != nil || !mine {
			return err
		}
		for _, saleID := range saleIDs {
			lines.do(ctx, saleID, func() error { return tend(ctx, saleID) })
		}
		return nil
	})
	lines.wait()
}
