package strategy

import (
	"context"

	"flashsale/model"
)

// Mutex does what Naive does, but holds the one lock of this process from the read to the write. The lock is a
// channel with room for one, so that waiting for it ends when the caller leaves.
//
// Right: in one process, where whatever else writes stock rows holds the same lock (repository.Store.Exclusive).
// Breaks: with a second instance, which has a lock of its own and knows nothing of this one: between the two it
// is Naive again, and oversells.
// Costs: all buyers of all sales stand in one line, those who get a no included; the database works for one of
// them at a time.
type Mutex struct {
	lock  chan struct{}
	naive *Naive
}

// NewMutex makes the strategy. Needs.Lock has room for one.
func NewMutex(n Needs) *Mutex { return &Mutex{lock: n.Lock, naive: NewNaive(n)} }

// Deduct waits for the lock, then reads, checks and writes.
func (m *Mutex) Deduct(ctx context.Context, a model.Attempt) (model.Outcome, error) {
	select {
	case m.lock <- struct{}{}:
	case <-ctx.Done():
		return model.Outcome{}, ctx.Err()
	}
	defer func() { <-m.lock }()
	return m.naive.Deduct(ctx, a)
}

// UsesGate is false.
func (*Mutex) UsesGate() bool { return false }

// Healthy is always so.
func (*Mutex) Healthy() error { return nil }

// Close has nothing to end.
func (*Mutex) Close() {}
