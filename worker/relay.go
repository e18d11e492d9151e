package worker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"flashsale/model"
)

const (
	// publishTimeout is how long the broker may take for a batch before it is settled without the broker: longer than a
	// broker's disk needs, and short of what a buyer's patience and claimIdle allow.
	publishTimeout = time.Second
	// relayTrips is how many batches in a row must fail before the broker is left alone.
	relayTrips = 2
	// relayRest is how long it is left alone before one batch tries it again.
	relayRest = time.Second
	// consumePause is the pause before a lost connection is made again.
	consumePause = time.Second
	// consumerPatience is how long a consumer waits for a batch before it goes on with other sales. It is above
	// writerPatience, since what comes for a sale that is late waits for claimIdle.
	consumerPatience = time.Second
	// wakeEvery is how often an instance asks to be woken at most. Each is a message that the broker keeps for as long as
	// buyers have to pay; the orders between two are found by the expirer's own periods.
	wakeEvery = 100 * time.Millisecond
)

// Queue brings admitted attempts to whoever settles them. The stream stays the outbox: a queue may lose an entry or
// bring it twice, and in any order. Its methods are safe for concurrent use.
type Queue interface {
	// Publish returns when the broker has the entries for good. After an error it may have some of them.
	Publish(ctx context.Context, saleID string, entries []model.Entry) error
	// Consume hands on what was published, entries of one sale at a time, and acknowledges them to the broker once
	// settle has returned nil. It ends with nil after ctx has, and with an error when settle gave one or the connection
	// is lost. What is not acknowledged by then is delivered again, here or elsewhere.
	Consume(ctx context.Context, settle func(ctx context.Context, saleID string, entries []model.Entry) error) error
	// Ping asks the broker for an answer.
	Ping(ctx context.Context) error
	Close() error
}

// Delayer is a Queue that can also wake somebody later.
type Delayer interface {
	// Delay has one of the running instances woken after d.
	Delay(ctx context.Context, d time.Duration) error
	// Wakes has a value when this instance is the one.
	Wakes() <-chan struct{}
}

// Outbox is what a settler needs of the gate for entries that it has read.
type Outbox interface {
	// Unsettled gives those of the entries that the stream still has, and keeps others from claiming them for a while.
	Unsettled(ctx context.Context, saleID string, entries []model.Entry) ([]model.Entry, error)
	// Own gives entries that this instance has read and nobody has settled.
	Own(ctx context.Context, saleID string, count int) (entries []model.Entry, bad []string, err error)
}

// relay is the part of a settler that has a Queue: new entries go from the stream to the broker, and from there to any
// instance. An entry that doesn't come back in time is claimed and settled like that of a dead consumer.
type relay struct {
	settler *Settler
	breaker *gobreaker.CircuitBreaker[struct{}]
	failing atomic.Bool  // as the log was told
	asked   atomic.Int64 // to be woken, at this time in milliseconds
	around  atomic.Int64 // entries that were settled without the broker
	late    lateSales    // entries of these stay in the stream

	stopping context.Context // ends before the settler's own, so that Drain is alone
	stop     context.CancelFunc
	stopped  chan struct{} // the consumers have ended
}

func newRelay(s *Settler) *relay {
	r := &relay{settler: s, stopped: make(chan struct{})}
	r.stopping, r.stop = context.WithCancel(context.Background())
	r.breaker = gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		Name:        "queue",
		Timeout:     relayRest,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= relayTrips },
	})
	return r
}

// publish gives new entries to the broker. If it doesn't take them they are settled here and now, as without a queue.
func (r *relay) publish(ctx context.Context, saleID string, entries []model.Entry, bad []string) error {
	if len(entries) > 0 && r.stopping.Err() == nil && r.try(ctx, func(ctx context.Context) error {
		return r.settler.Queue.Publish(ctx, saleID, entries)
	}) {
		entries = nil
	}
	return r.settler.direct(ctx, saleID, entries, bad)
}

// try calls the broker, not for long and not when it has just failed; what was begun is finished although ctx may end.
func (r *relay) try(ctx context.Context, call func(context.Context) error) bool {
	_, err := r.breaker.Execute(func() (struct{}, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), publishTimeout)
		defer cancel()
		return struct{}{}, call(ctx)
	})
	if err != nil {
		r.fails(err)
	}
	return err == nil
}

// fails logs the first of many failures.
func (r *relay) fails(err error) {
	if !r.failing.Swap(true) {
		r.settler.Log.Error("queue fails; what it doesn't bring is settled without it", "error", err)
	}
}

// run consumes until ctx ends or the relay is stopped; the batches under way are finished.
func (r *relay) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.stopping, cancel)() //nolint:contextcheck // whichever ends first
	defer close(r.stopped)
	var consumers sync.WaitGroup
	for range settleWriters {
		consumers.Go(func() {
			for ctx.Err() == nil {
				if err := r.settler.Queue.Consume(ctx, r.deliver); err != nil && ctx.Err() == nil {
					r.fails(err)
					pause(ctx, consumePause)
				}
			}
		})
	}
	consumers.Wait()
	r.late.under.Wait()
}

// deliver settles what the broker has brought, as far as it is not settled yet. Only a stop, or a Redis that can't
// be asked, makes it give entries back to the broker: those that can't be settled, or not now, are claimed from the
// stream.
func (r *relay) deliver(ctx context.Context, saleID string, entries []model.Entry) error {
	entries, err := r.settler.Outbox.Unsettled(ctx, saleID, entries)
	if err != nil {
		return err
	}
	if r.failing.Swap(false) {
		r.settler.Log.Info("queue works again")
	}
	for batch := range slices.Chunk(entries, r.settler.Batch) {
		if r.late.has(saleID) {
			break
		}
		err := r.settler.patiently(ctx, saleID, consumerPatience, &r.late, func() error { return r.settler.batch(ctx, saleID, batch, nil) })
		if err != nil && ctx.Err() != nil {
			return err
		}
		r.settler.warn(ctx, saleID, err)
	}
	return nil
}

// wakeLater has the expirer woken when the orders just made end, if nobody pays them. It is a help, no promise.
func (r *relay) wakeLater(ctx context.Context, outcomes []model.Outcome) {
	delayer, ok := r.settler.Queue.(Delayer)
	if !ok {
		return
	}
	now, last := r.settler.Now().UnixMilli(), r.asked.Load()
	for _, o := range outcomes {
		if o.Verdict == model.Accepted && !o.Repeated {
			if now-last < wakeEvery.Milliseconds() || !r.asked.CompareAndSwap(last, now) {
				return
			}
			r.try(ctx, func(ctx context.Context) error {
				return delayer.Delay(ctx, o.Order.ExpiresAt.Sub(o.Order.CreatedAt)+r.settler.Grace)
			})
			return // they are of one sale, and made at once
		}
	}
}

// end stops the consumers and waits for their batches. What is read from here on is settled without the broker.
func (r *relay) end(ctx context.Context) error {
	r.stop()
	select {
	case <-r.stopped:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// errResting: the broker has failed and is left alone for a moment.
var errResting = errors.New("the queue has failed; it is tried again in a moment")

// Bypassed is how many entries this instance has settled although the queue had not brought them: it did not take them,
// or they had not come back in time, or the instance was stopping.
func (s *Settler) Bypassed() int64 {
	if s.relay == nil {
		return 0
	}
	return s.relay.around.Load()
}

// QueueHealthy says whether new entries go by the queue: nil, or why they are settled without it.
func (s *Settler) QueueHealthy(ctx context.Context) error {
	if s.relay.breaker.State() == gobreaker.StateOpen {
		return errResting
	}
	return s.Queue.Ping(ctx)
}
