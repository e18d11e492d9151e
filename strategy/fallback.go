package strategy

import (
	"context"
	"fmt"
	"sync"
	"time"

	"flashsale/model"
)

const (
	// fallbackQueue attempts may wait on one sale: a few batches' worth, so that nobody waits long for a no.
	fallbackQueue = 4096
	// fallbackBatch attempts go into one transaction.
	fallbackBatch = 256
	// fallbackTimeout ends a batch that the database doesn't finish.
	fallbackTimeout = 8 * time.Second
	// closeGrace is how long a stop waits for the batches under way before it cuts them off: a transaction that
	// is cut off has happened or not, and its buyers find out under their keys.
	closeGrace = time.Second
)

// fallback takes units in the database for attempts that the gate can't take. Attempts gather while a batch
// is under way, and one writer a sale takes them, so that races are only between instances.
type fallback struct {
	needs   Needs
	mu      sync.Mutex
	queues  map[string][]waiting // by sale; a sale has a writer exactly while it has a queue
	closed  bool
	writers sync.WaitGroup
	ctx     context.Context // ends with close
	cut     context.CancelFunc
}

type waiting struct {
	attempt model.Attempt
	done    chan<- result
}

type result struct {
	outcome model.Outcome
	err     error
}

func newFallback(n Needs) *fallback {
	f := &fallback{needs: n, queues: map[string][]waiting{}}
	f.ctx, f.cut = context.WithCancel(context.Background())
	return f
}

// deduct queues the attempt and waits for its outcome. An attempt whose caller leaves is still decided:
// its buyer finds the order under its key.
func (f *fallback) deduct(ctx context.Context, a model.Attempt) (model.Outcome, error) {
	done := make(chan result, 1)
	//nolint:contextcheck // the batch is many callers' and ends with none of them
	if err := f.enqueue(waiting{attempt: a, done: done}); err != nil {
		return model.Outcome{}, err
	}
	select {
	case r := <-done:
		return r.outcome, r.err
	case <-ctx.Done():
		return model.Outcome{}, ctx.Err()
	}
}

func (f *fallback) enqueue(w waiting) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	sale := w.attempt.SaleID
	queue, writing := f.queues[sale]
	switch {
	case f.closed:
		return fmt.Errorf("%w: closing", model.ErrUnavailable)
	case len(queue) >= fallbackQueue:
		return fmt.Errorf("%w: %d attempts wait for the database", model.ErrUnavailable, len(queue))
	}
	f.queues[sale] = append(queue, w)
	if !writing {
		f.writers.Go(func() { f.write(sale) })
	}
	return nil
}

// write takes batches of a sale's queue until it is empty.
func (f *fallback) write(sale string) {
	for {
		batch := f.next(sale)
		if len(batch) == 0 {
			return
		}
		attempts := make([]model.Attempt, len(batch))
		for i, w := range batch {
			attempts[i] = w.attempt
		}
		ctx, cancel := context.WithTimeout(f.ctx, fallbackTimeout)
		outcomes, err := race(ctx, f.needs, batchTries, sale, attempts)
		cancel()
		if err != nil {
			f.needs.Log.Error("fallback", "sale", sale, "attempts", len(batch), "error", err)
			err = fmt.Errorf("%w: the database could not take the attempt", model.ErrUnavailable)
		}
		for i, w := range batch {
			if err != nil {
				w.done <- result{err: err}
				continue
			}
			w.done <- result{outcome: outcomes[i]}
		}
	}
}

// next takes a batch, and ends the queue when it is empty.
func (f *fallback) next(sale string) []waiting {
	f.mu.Lock()
	defer f.mu.Unlock()
	queue := f.queues[sale]
	if len(queue) == 0 {
		delete(f.queues, sale)
		return nil
	}
	n := min(len(queue), fallbackBatch)
	f.queues[sale] = queue[n:]
	return queue[:n:n]
}

func (f *fallback) close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	late := time.AfterFunc(closeGrace, f.cut)
	f.writers.Wait()
	late.Stop()
	f.cut()
}
