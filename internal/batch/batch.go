// Package batch turns single calls into batches: calls that arrive while the allowed number of batches is under way wait for the
// next batch. No timer delays a call, unless there is a Gather. So a lone call is fast, and batches grow with the load.
package batch

import (
	"context"
	"fmt"
	"sync"
	"time"

	"flashsale/internal/pause"
	"flashsale/model"
)

// ErrFull means that as many items wait under the key as Limits.Queue allows.
var ErrFull = fmt.Errorf("%w: too many wait", model.ErrUnavailable)

// ErrClosed means that the Batcher was closed and takes no more items.
var ErrClosed = fmt.Errorf("%w: closed", model.ErrUnavailable)

// Limits bound a Batcher.
type Limits struct {
	Batch int           // most items in one batch
	Queue int           // most items that wait under one key, not counting those in batches under way
	Calls int           // most batches of one key under way at once
	Time  time.Duration // time-out of one batch
}

// Batcher batches items by key. Its methods are safe for concurrent use.
type Batcher[T, R any] struct {
	// Gather returns how long a batch that is not full waits for more items; nil: not at all. Set it before the first call.
	Gather func(first T) time.Duration

	limits Limits
	do     func(ctx context.Context, key string, items []T) ([]R, error)

	mu      sync.Mutex
	queues  map[string]*queue[T, R] // by key; only keys with a batch under way
	closed  bool
	running sync.WaitGroup
	ctx     context.Context // of all batches
	cut     context.CancelFunc
}

type queue[T, R any] struct {
	waiting []call[T, R]
	calls   int // batches under way
}

type call[T, R any] struct {
	item T
	done chan<- Result[R] // nil if nobody waits for the result
}

// Result is the result of an item.
type Result[R any] struct {
	Value R
	Err   error
}

// New makes a Batcher that processes each batch with the function "do". This function returns a result for each item, in the
// order of the items, or an error for all of them. The caller must close the Batcher.
func New[T, R any](limits Limits, do func(ctx context.Context, key string, items []T) ([]R, error)) *Batcher[T, R] {
	g := &Batcher[T, R]{limits: limits, do: do, queues: map[string]*queue[T, R]{}}
	g.ctx, g.cut = context.WithCancel(context.Background()) //nolint:gosec // Close calls it
	return g
}

// Do puts an item into the queue of its key and waits for the result. If ctx ends meanwhile, Do returns the error of ctx, but the
// item is still processed. If ctx had ended before, the item is not taken. ErrFull and ErrClosed also mean that it was not taken.
func (g *Batcher[T, R]) Do(ctx context.Context, key string, item T) (value R, err error) {
	if err = ctx.Err(); err != nil {
		return value, err
	}
	done := make(chan Result[R], 1)
	if err = g.Put(key, item, done); err != nil {
		return value, err
	}
	select {
	case r := <-done:
		return r.Value, r.Err
	case <-ctx.Done():
		return value, ctx.Err()
	}
}

// Put puts an item into the queue of its key and does not wait. The channel "done" gets the result, and must have room for it. If
// "done" is nil, the result is dropped. ErrFull and ErrClosed mean that the item was not taken.
func (g *Batcher[T, R]) Put(key string, item T, done chan<- Result[R]) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	q := g.queues[key]
	if q == nil {
		q = &queue[T, R]{}
	}
	switch {
	case g.closed:
		return ErrClosed
	case len(q.waiting) >= g.limits.Queue:
		return ErrFull
	}
	g.queues[key], q.waiting = q, append(q.waiting, call[T, R]{item, done})
	if q.calls < g.limits.Calls {
		q.calls++
		g.running.Go(func() { g.run(key, q) })
	}
	return nil
}

// Waiting returns how many items of a key wait, not counting those in batches under way.
func (g *Batcher[T, R]) Waiting(key string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if q := g.queues[key]; q != nil {
		return len(q.waiting)
	}
	return 0
}

func (g *Batcher[T, R]) run(key string, q *queue[T, R]) {
	for batch := g.next(key, q); batch != nil; batch = g.next(key, q) {
		items := make([]T, len(batch))
		for i, c := range batch {
			items[i] = c.item
		}
		ctx, cancel := context.WithTimeout(g.ctx, g.limits.Time)
		values, err := g.do(ctx, key, items)
		cancel()
		for i, c := range batch {
			switch {
			case c.done == nil:
			case err != nil:
				c.done <- Result[R]{Err: err}
			default:
				c.done <- Result[R]{Value: values[i]}
			}
		}
	}
}

// next removes the next batch from the queue. If no item waits, it returns nil, and the run must end.
func (g *Batcher[T, R]) next(key string, q *queue[T, R]) []call[T, R] {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := len(q.waiting); n > 0 && n < g.limits.Batch && g.Gather != nil {
		if d := g.Gather(q.waiting[0].item); d > 0 {
			g.mu.Unlock()
			pause.For(g.ctx, d)
			g.mu.Lock()
		}
	}
	n := min(len(q.waiting), g.limits.Batch)
	if n == 0 {
		if q.calls--; q.calls == 0 {
			delete(g.queues, key)
		}
		return nil
	}
	batch := q.waiting[:n:n]
	q.waiting = q.waiting[n:]
	return batch
}

// Close refuses new items and waits until those that were taken are processed. After the time "grace" it cancels the context of
// all batches, and waits on.
func (g *Batcher[T, R]) Close(grace time.Duration) {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	late := time.AfterFunc(grace, g.cut)
	g.running.Wait()
	late.Stop()
	g.cut()
}
