package worker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
	"golang.org/x/time/rate"

	"flashsale/internal/pause"
	"flashsale/model"
)

const (
	// publishTimeout is how long the broker may take to accept a batch or a request for a wake-up: longer than a broker's disk
	// needs, and well below leftAfter.
	publishTimeout = time.Second
	// relayTrips is how many calls of the broker in a row must fail before the circuit breaker opens.
	relayTrips = 2
	// relayRest is how long the circuit breaker stays open before one call tries the broker again.
	relayRest = time.Second
	// consumePause is the pause before a consumer that has failed is started again.
	consumePause = time.Second
	// consumerPatience is how long a consumer waits for a batch before it goes on. It is longer than writerPatience, because
	// further messages of a late sale are acknowledged unsettled, and their entries wait for a sweep.
	consumerPatience = time.Second
	// wakeEvery is the least time between two requests of an instance for a wake-up: the broker keeps each as a message.
	wakeEvery = 100 * time.Millisecond
)

// Queue carries admitted attempts to the settler of some instance. It may lose entries, deliver them twice, or in another order,
// since the stream has them, too. The methods are safe for concurrent use.
type Queue interface {
	// Publish returns nil when the broker has stored all entries. After an error the broker may have some of them.
	Publish(ctx context.Context, saleID string, entries []model.Entry) error
	// Consume passes published entries to "settle", those of one sale at a time, and acknowledges them after "settle" has returned
	// nil. It returns when ctx has ended, or with an error of "settle" or the broker. Entries that are not acknowledged by then are
	// to be delivered again, to any consumer.
	Consume(ctx context.Context, settle func(ctx context.Context, saleID string, entries []model.Entry) error) error
	// Ping checks that the broker answers.
	Ping(ctx context.Context) error
	Close() error
}

// Delayer is a Queue that can also wake an instance after a delay.
type Delayer interface {
	// Delay asks for a wake-up of one of the running instances after d. The wake-up may be lost.
	Delay(ctx context.Context, d time.Duration) error
	// Wakes returns a channel that has a value when this instance is woken.
	Wakes() <-chan struct{}
}

// relay is the part of a settler that uses a Queue: it publishes the admitted entries, and settles those that are delivered.
type relay struct {
	settler *Settler
	breaker *gobreaker.CircuitBreaker[struct{}]
	failing atomic.Bool   // a failure was logged last
	wakes   *rate.Limiter // of requests for a wake-up
	around  atomic.Int64  // entries settled without the broker
	late    *lateSales    // sales whose entries deliver leaves in the stream

	stopping context.Context // ends when Drain stops the consumers
	stop     context.CancelFunc
	stopped  chan struct{} // closed when the consumers and their batches have ended
}

func newRelay(s *Settler) *relay {
	r := &relay{settler: s, wakes: rate.NewLimiter(rate.Every(wakeEvery), 1), stopped: make(chan struct{}), late: newLateSales()}
	r.stopping, r.stop = context.WithCancel(context.Background())
	r.breaker = gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		Name: "queue", Timeout: relayRest, ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= relayTrips },
	})
	return r
}

// pass sends new entries to the broker. It settles those that the broker does not accept or that a sweep has found, and all if
// the relay is stopped. The error is that of this settle.
func (r *relay) pass(ctx context.Context, b saleBatch) error {
	entries := b.entries
	fresh := slices.DeleteFunc(slices.Clone(entries), func(e model.Entry) bool { return e.Swept })
	r.settler.Apart(fresh) // before a consumer can settle the entries and look for their buyers
	if len(fresh) > 0 && r.stopping.Err() == nil && r.try(ctx, func(ctx context.Context) error {
		return r.settler.Queue.Publish(ctx, b.gate.SaleID, fresh)
	}) {
		r.settler.pending.done(fresh)
		entries = slices.DeleteFunc(entries, func(e model.Entry) bool { return !e.Swept })
	}
	if len(entries) == 0 {
		return nil
	}
	err := r.settler.settleSale(ctx, b.gate, entries)
	if err == nil {
		r.around.Add(int64(len(entries)))
	}
	return err
}

// try calls the broker, unless the circuit breaker keeps the call back. The call lasts at most publishTimeout, and goes on if
// ctx ends. try reports whether it has succeeded.
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

// fails logs the first failure since the queue worked.
func (r *relay) fails(err error) {
	if !r.failing.Swap(true) {
		r.settler.Log.Error("the queue fails; entries are settled without it", "error", err)
	}
}

// run consumes until ctx ends or the relay is stopped. Then it waits for the batches under way.
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
					pause.For(ctx, consumePause)
				}
			}
		})
	}
	consumers.Wait()
	r.late.under.Wait()
}

// deliver settles those of the delivered entries, all of one sale, that are still in the stream. It returns an error, so that
// they are delivered again, if Redis fails or the consumer is stopped during a settle. Other entries that can't be settled now
// stay in the stream for a sweep.
func (r *relay) deliver(ctx context.Context, _ string, entries []model.Entry) error {
	gate := entries[0].GateRef()
	entries, err := r.settler.Stream.Unsettled(ctx, entries)
	if err != nil {
		return err
	}
	if r.failing.Swap(false) {
		r.settler.Log.Info("the queue works again")
	}
	for batch := range slices.Chunk(entries, r.settler.Batch) {
		if r.late.has(gate) {
			break
		}
		err := r.settler.patiently(ctx, gate, consumerPatience, r.late, func() error { return r.settler.settleSale(ctx, gate, batch) })
		if err != nil && ctx.Err() != nil {
			return err
		}
		r.settler.warn(ctx, err)
	}
	return nil
}

// wakeLater requests a wake-up for when the orders just made expire, at most once in wakeEvery.
func (r *relay) wakeLater(ctx context.Context, outcomes []model.Outcome) {
	delayer, ok := r.settler.Queue.(Delayer)
	made := slices.IndexFunc(outcomes, func(o model.Outcome) bool { return o.Verdict == model.Accepted && !o.Repeated })
	if !ok || made < 0 || !r.wakes.AllowN(r.settler.Now(), 1) {
		return
	}
	order := outcomes[made].Order // the others usually expire at about the same time
	r.try(ctx, func(ctx context.Context) error {
		return delayer.Delay(ctx, order.ExpiresAt.Sub(order.CreatedAt)+r.settler.Grace)
	})
}

var errResting = errors.New("the queue has failed; it is tried again in a moment")

// Bypassed returns how many entries this instance has settled without its queue. If it has no queue, it returns 0.
func (s *Settler) Bypassed() int64 {
	if s.relay == nil {
		return 0
	}
	return s.relay.around.Load()
}

// QueueHealthy returns an error if the circuit breaker is open or the broker does not answer. The settler must have a queue.
func (s *Settler) QueueHealthy(ctx context.Context) error {
	if s.relay.breaker.State() == gobreaker.StateOpen {
		return errResting
	}
	return s.Queue.Ping(ctx)
}
