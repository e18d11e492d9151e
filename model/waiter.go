package model

import (
	"context"
	"sync/atomic"
	"time"
)

// Waiter carries the outcome of an attempt to the buyer who waits. The first answer counts. The methods are safe for concurrent
// use.
type Waiter struct {
	gone     <-chan struct{}
	answer   chan answer // of capacity 1
	answered atomic.Bool
	hurried  atomic.Bool
	admitted atomic.Bool
	at       time.Time // of the admission; set before "admitted"
}

type answer struct {
	outcome Outcome
	err     error
}

// NewWaiter makes the Waiter of a buyer who leaves when the channel is closed.
func NewWaiter(gone <-chan struct{}) *Waiter {
	return &Waiter{gone: gone, answer: make(chan answer, 1)}
}

// Hurry ends the wait for the settler: once the gate has admitted the attempt, the answer is Queued, unless there is another.
func (b *Waiter) Hurry() {
	b.hurried.Store(true)
	b.queued()
}

func (b *Waiter) Hurried() bool { return b.hurried.Load() }

// Admit notes that the gate has admitted the attempt. It is called at most once, before a settler gets the entry.
func (b *Waiter) Admit(now time.Time) {
	b.at = now
	b.admitted.Store(true)
	b.queued()
}

func (b *Waiter) queued() {
	if b.hurried.Load() && b.admitted.Load() {
		b.Tell(Outcome{Verdict: Queued}, nil)
	}
}

// AdmittedAt returns the time of Admit; ok is false before that.
func (b *Waiter) AdmittedAt() (at time.Time, ok bool) {
	if !b.admitted.Load() {
		return at, false
	}
	return b.at, true
}

// Tell gives the buyer the answer, unless there is one already.
func (b *Waiter) Tell(o Outcome, err error) {
	if b.answered.CompareAndSwap(false, true) {
		b.answer <- answer{o, err}
	}
}

func (b *Waiter) Answered() bool { return b.answered.Load() }

// GiveUp ends the wait. Unless there is an answer, it is Queued if the gate has admitted the attempt, and otherwise the error.
func (b *Waiter) GiveUp(err error) {
	if b.Hurry(); !b.admitted.Load() {
		b.Tell(Outcome{}, err)
	}
}

// Told waits for the answer and returns it. If the buyer leaves before that, it gives up with context.Canceled. Told is called
// at most once.
func (b *Waiter) Told() (Outcome, error) {
	select {
	case a := <-b.answer:
		return a.outcome, a.err
	case <-b.gone:
		b.GiveUp(context.Canceled)
		a := <-b.answer
		return a.outcome, a.err
	}
}
