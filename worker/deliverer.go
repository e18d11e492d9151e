package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"flashsale/internal/pause"
	"flashsale/model"
)

const (
	// deliverPeriod is how often the deliverer looks for endpoints that lack events.
	deliverPeriod = 250 * time.Millisecond
	// forgetEvery is how many rounds pass between two deletions of old events: about a minute.
	forgetEvery = 240
)

// Feed is the service of endpoints.
type Feed interface {
	Due(ctx context.Context) ([]model.Endpoint, error)
	Deliver(ctx context.Context, id string) (pause time.Duration, more bool, err error)
	Forget(ctx context.Context) error
}

// Deliverer sends events to endpoints, to each in a goroutine of its own, so that a slow one does not delay the others.
type Deliverer struct {
	Feed   Feed
	Events func(ctx context.Context) error // records the events of sales that begin, end or sell out
	Log    *slog.Logger

	endpoints apart // by their ids
	round     int
}

// Run delivers until ctx ends, which also breaks off the messages under way.
func (d *Deliverer) Run(ctx context.Context) {
	every(ctx, "delivery of events", deliverPeriod, nil, d.Log, d.step)
	d.endpoints.wait()
}

func (d *Deliverer) step(ctx context.Context) error {
	err := d.Events(ctx)
	if d.round++; d.round%forgetEvery == 0 {
		err = errors.Join(err, d.Feed.Forget(ctx))
	}
	due, dueErr := d.Feed.Due(ctx)
	for _, endpoint := range due {
		d.endpoints.do(ctx, endpoint.ID, func() error {
			d.send(ctx, endpoint.ID)
			return nil
		})
	}
	return errors.Join(err, dueErr)
}

// send calls Deliver for an endpoint until nothing more can be sent now, or until ctx ends.
func (d *Deliverer) send(ctx context.Context, id string) {
	for more := true; more; {
		var wait time.Duration
		var err error
		if wait, more, err = d.Feed.Deliver(ctx, id); err != nil && ctx.Err() == nil {
			d.Log.WarnContext(ctx, "events can't be delivered now", "endpoint", id, "error", err)
		}
		more = more && pause.For(ctx, wait)
	}
}
