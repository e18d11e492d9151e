package model

import (
	"context"
	"sync/atomic"
	"time"
)

// Waiter waits for the outcome of an attempt. It travels with the attempt to the gate and with the entry to the settler, so
// that whoever decides the attempt tells it directly. Only the first answer counts. Its methods are safe for concurrent use.
type Waiter struct {
	gone     <-chan struct{}
	answer   chan answer // of capacity 1
	answered atomic.Bool
	hurried  atomic.Bool
	admitted atomic.Bool
	at       time.Time // of the admission; set before admitted
}

type answer struct {
	outcome Outcome
	err     error
}

// NewWaiter makes a buyer, who leaves when gone is closed.
func NewWaiter(gone <-chan struct{}) *Waiter {
	return &Waiter{gone: gone, answer: make(chan answer, 1)}
}

// Hurry makes the admission of the attempt the buyer's answer, so that it does not wait for the settler.
func (b *Waiter) Hurry() {
	b.hurried.Store(true)
	b.queued()
}

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

// AdmittedAt returns when the attempt was admitted; ok is false if it was not.
func (b *Waiter) AdmittedAt() (at time.Time, ok bool) {
	if !b.admitted.Load() {
		return at, false
	}
	return b.at, true
}

// Tell answers the buyer. The verdict Queued says that nobody has decided the attempt yet, or that the database knows the
// outcome.
func (b *Waiter) Tell(o Outcome, err error) {
	if b.answered.CompareAndSwap(false, true) {
		b.answer <- answer{o, err}
	}
}

// Answered reports whether the buyer was told anything.
func (b *Waiter) Answered() bool { return b.answered.Load() }

// GiveUp ends the wait. An attempt that was admitted is queued. The buyer of any other gets err: the gate may still admit it.
func (b *Waiter) GiveUp(err error) {
	if b.Hurry(); !b.admitted.Load() {
		b.Tell(Outcome{}, err)
	}
}

// Told waits for the answer.
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
