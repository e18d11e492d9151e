package strategy

import (
	"context"

	"flashsale/model"
)

var mutexLesson = model.Lesson{
	How: "Mutex does what Naive does, but holds a lock of this process from the read to the write. The lock is a channel of " +
		"capacity 1, so that an attempt stops waiting for it when the request is cancelled.",
	Right: "in one process, if all other code that writes stock rows holds the same lock (repository.Store.Exclusive).",
	Breaks: "with a second instance, which has a lock of its own. Between the two instances nothing is locked, as with the " +
		"strategy naive, so they oversell.",
	Costs: "all buyers of all sales wait in one queue, also those who are refused; the database works for one of them at a time.",
}

// Mutex is the strategy that mutexLesson describes.
type Mutex struct{ Naive }

// Deduct waits for the lock, then does what Naive does. It returns the error of ctx if ctx ends during the wait.
func (m *Mutex) Deduct(ctx context.Context, a model.Attempt) (model.Outcome, error) {
	select {
	case m.needs.Lock <- struct{}{}:
	case <-ctx.Done():
		return model.Outcome{}, ctx.Err()
	}
	defer func() { <-m.needs.Lock }()
	return m.Naive.Deduct(ctx, a)
}
