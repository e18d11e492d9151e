package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"flashsale/internal/pause"
	"flashsale/model"
)

const (
	// deliverPeriod is how often the feed is looked at for events that endpoints lack.
	deliverPeriod = 250 * time.Millisecond
	// forgetEvery is how many rounds pass between two deletions of old events.
	forgetEvery = 240
)

// Feed is what the deliverer needs of the service of endpoints.
type Feed interface {
	Due(ctx context.Context) ([]model.Endpoint, error)
	Deliver(ctx context.Context, id string) (pause time.Duration, more bool, err error)
	Forget(ctx context.Context) error
}

// Deliverer sends events to the endpoints, each by itself, so that one which is away or slow delays no other.
type Deliverer struct {
	Feed Feed
	// Events records the events of sales that begin, end or sell out.
	Events func(ctx context.Context) error
	Log    *slog.Logger

	sending sync.Map // by the ids of endpoints to which this instance is sending
	senders sync.WaitGroup
	round   int
}

// Run delivers until ctx ends.
func (d *Deliverer) Run(ctx context.Context) {
	every(ctx, "delivery of events", deliverPeriod, nil, d.Log, d.step)
	d.senders.Wait()
}

func (d *Deliverer) step(ctx context.Context) error {
	err := d.Events(ctx)
	if d.round++; d.round%forgetEvery == 0 {
		err = errors.Join(err, d.Feed.Forget(ctx))
	}
	due, dueErr := d.Feed.Due(ctx)
	for _, endpoint := range due {
		if _, under := d.sending.LoadOrStore(endpoint.ID, true); under {
			continue
		}
		d.senders.Go(func() {
			defer d.sending.Delete(endpoint.ID)
			for more := true; more && ctx.Err() == nil; {
				var wait time.Duration
				var err error
				if wait, more, err = d.Feed.Deliver(ctx, endpoint.ID); err != nil && ctx.Err() == nil {
					d.Log.WarnContext(ctx, "events can't be delivered now", "endpoint", endpoint.ID, "error", err)
				}
				if more {
					pause.For(ctx, wait)
				}
			}
		})
	}
	return errors.Join(err, dueErr)
}
