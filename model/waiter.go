package model

import (
	"context"
	"sync/atomic"
	"time"
)

// Waiter carries the outcome of an attempt to the buyer who waits. The Waiter travels with the attempt to the gate, and with the
// entry to the settler. Whoever decides the attempt calls Tell; only the first answer counts. The methods are safe for concurrent
// use.
type Waiter struct {
	gone     <-chan struct{}
	answer   chan answer // of capacity 1
	answered atomic.Bool
	hurried  atomic.Bool
	admitted atomic.Bool
	at       time.Time // time of the admission; set before the field admitted
}

type answer struct {
	outcome Outcome
	err     error
}

// NewWaiter makes the Waiter of a buyer who leaves when the channel is closed.
func NewWaiter(gone <-chan struct{}) *Waiter {
	return &Waiter{gone: gone, answer: make(chan answer, 1)}
}

// Hurry ends the wait for the settler: the answer is Queued as soon as the gate has admitted the attempt, or at once if the gate
// already has.
func (b *Waiter) Hurry() {
	b.hurried.Store(true)
	b.queued()
}

func (b *Waiter) Hurried() bool { return b.hurried.Load() }

// Admit notes that the gate has admitted the attempt. It is called once, before a settler gets the entry.
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

// AdmittedAt returns when the gate admitted the attempt; ok is false if the gate has not admitted it.
func (b *Waiter) AdmittedAt() (at time.Time, ok bool) {
	if !b.admitted.Load() {
		return at, false
	}
	return b.at, true
}

// Tell gives the buyer the answer. The verdict Queued says that nobody has decided the attempt yet, or that the buyer finds the
// outcome in the database.
func (b *Waiter) Tell(o Outcome, err error) {
	if b.answered.CompareAndSwap(false, true) {
		b.answer <- answer{o, err}
	}
}

func (b *Waiter) Answered() bool { return b.answered.Load() }

// GiveUp ends the wait. The answer is Queued if the gate has admitted the attempt, and otherwise the error, although the gate may
// still admit the attempt.
func (b *Waiter) GiveUp(err error) {
	if b.Hurry(); !b.admitted.Load() {
		b.Tell(Outcome{}, err)
	}
}

// Told waits for the answer and returns it. If the buyer leaves before that, GiveUp ends the wait with context.Canceled. Told is
// called at most once.
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
