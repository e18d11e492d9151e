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
	// publishTimeout is how long the broker may take to accept a batch, or a request for a wake-up. After that the batch is settled
	// without the broker. The time is longer than a broker's disk needs, and well below leftAfter.
	publishTimeout = time.Second
	// relayTrips is how many calls of the broker in a row must fail before the circuit breaker opens.
	relayTrips = 2
	// relayRest is how long the circuit breaker stays open before one call tries the broker again.
	relayRest = time.Second
	// consumePause is the pause before a consumer that has failed is started again.
	consumePause = time.Second
	// consumerPatience is how long a consumer waits for a batch before it goes on with other sales. It is longer than
	// writerPatience, because messages of a late sale are acknowledged unsettled, and a sweep finds their entries after leftAfter.
	consumerPatience = time.Second
	// wakeEvery is the least time between two requests of an instance for a wake-up (Delayer): the broker keeps each as a message
	// until the orders are overdue. Orders without a request are found in the expirer's own period.
	wakeEvery = 100 * time.Millisecond
)

// Queue carries each admitted attempt to the settler of some instance. The stream stays the outbox: a queue may lose an
// entry or deliver it twice, and may deliver entries in any order. The methods of a Queue are safe for concurrent use.
type Queue interface {
	// Publish returns nil when the broker has stored all entries. After an error the broker may have some of them.
	Publish(ctx context.Context, saleID string, entries []model.Entry) error
	// Consume passes published entries to "settle", those of one sale at a time, and acknowledges them to the broker after "settle"
	// has returned nil. It returns when ctx has ended, and before that only with an error, which is from "settle" or
	// the broker. Entries that are not acknowledged by then are delivered again, to any consumer.
	Consume(ctx context.Context, settle func(ctx context.Context, saleID string, entries []model.Entry) error) error
	// Ping checks that the broker answers.
	Ping(ctx context.Context) error
	Close() error
}

// Delayer is a Queue that can also wake an instance after a delay.
type Delayer interface {
	// Delay causes one of the running instances to be woken after d. It is a best effort: the wake-up may be lost.
	Delay(ctx context.Context, d time.Duration) error
	// Wakes returns a channel that receives a value when this instance is woken.
	Wakes() <-chan struct{}
}

// relay is the part of a settler that uses a Queue. It publishes to the broker the entries that this instance has admitted. The
// broker delivers each to some instance. A sweep finds entries that are not settled in time.
type relay struct {
	settler *Settler
	breaker *gobreaker.CircuitBreaker[struct{}]
	failing atomic.Bool   // the last state logged was a failure
	wakes   *rate.Limiter // of requests for a wake-up
	around  atomic.Int64  // entries that were settled without the broker
	late    *lateSales    // deliver leaves entries of these sales in the stream

	stopping context.Context // ended by Drain, before the settler's own context, to stop the consumers
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

// pass sends new entries to the broker. Entries that the broker does not accept, or that a sweep has found, are settled at once,
// as without a queue, and so are all entries when the relay is stopped. The error is that of this settle.
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

// try calls the broker, unless the circuit breaker keeps the call back. The call lasts at most publishTimeout, and goes on if ctx
// ends. try reports whether the call was made and succeeded.
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

// fails logs the first failure in a row. The row ends when deliver gets entries again.
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

// deliver settles those of the delivered entries, all of one sale, that are still in the stream. It returns an error, so that the
// broker delivers them again, only if Redis fails, or if the consumer is stopped before a batch is settled. Entries that can't
// be settled now stay in the stream, where a sweep finds them.
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

// wakeLater schedules a best-effort wake-up of the expirer for when the orders just made expire, at most once in wakeEvery.
func (r *relay) wakeLater(ctx context.Context, outcomes []model.Outcome) {
	delayer, ok := r.settler.Queue.(Delayer)
	made := slices.IndexFunc(outcomes, func(o model.Outcome) bool { return o.Verdict == model.Accepted && !o.Repeated })
	if !ok || made < 0 || !r.wakes.AllowN(r.settler.Now(), 1) {
		return
	}
	order := outcomes[made].Order // the others of this batch expire at about the same time
	r.try(ctx, func(ctx context.Context) error {
		return delayer.Delay(ctx, order.ExpiresAt.Sub(order.CreatedAt)+r.settler.Grace)
	})
}

// errResting means that the circuit breaker is open, because calls of the broker have failed.
var errResting = errors.New("the queue has failed; it is tried again in a moment")

// Bypassed returns how many entries this instance has settled without its queue, for example because the broker did not accept
// them or deliver them in time. If the instance has no queue, it returns 0.
func (s *Settler) Bypassed() int64 {
	if s.relay == nil {
		return 0
	}
	return s.relay.around.Load()
}

// QueueHealthy returns nil if new entries go through the queue, or the reason why they are settled without it: the circuit
// breaker is open, or the broker does not answer. The settler must have a queue.
func (s *Settler) QueueHealthy(ctx context.Context) error {
	if s.relay.breaker.State() == gobreaker.StateOpen {
		return errResting
	}
	return s.Queue.Ping(ctx)
}
