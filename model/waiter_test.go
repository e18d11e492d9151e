package model

import (
	"context"
	"errors"
	"testing"
	"time"
)

// The attempt of a buyer who leaves is queued if the gate has admitted it. Answers after the first are not heard.
func TestBuyerLeaves(t *testing.T) {
	for _, admitted := range []bool{false, true} {
		gone := make(chan struct{})
		b := NewWaiter(gone)
		if admitted {
			b.Admit(time.Now())
		}
		if b.Answered() {
			t.Error("an answer before anybody has decided")
		}
		close(gone)
		outcome, err := b.Told()
		if queued := outcome.Verdict == Queued; queued != admitted || errors.Is(err, context.Canceled) == admitted || !b.Answered() {
			t.Errorf("admitted %t: %+v, %v", admitted, outcome, err)
		}
		b.Tell(Outcome{Verdict: Accepted}, nil)
		b.Tell(Outcome{Verdict: Accepted}, nil)
	}
}
