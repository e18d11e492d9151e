package service

import (
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// rounds is a beacon that publishes its rounds at these times.
type rounds struct {
	Beacon
	at []time.Time
}

func (r rounds) At(round int64) time.Time { return r.at[round] }

// The source is asked for a round when the round should be there, not before.
func TestRoundsAreDue(t *testing.T) {
	offer := openOffer()
	offer.Mode, offer.Stock.Lined, offer.Beacon = model.ModeDraw, model.InLine, true
	beacon := rounds{at: []time.Time{{}, time.Now().Add(-time.Minute), time.Now().Add(time.Hour)}}
	for round, want := range map[int64][]string{1: {offer.ID}, 2: nil} {
		offer.Line = model.Line{Phase: model.PhaseSealed, Root: "root", Round: round}
		caller := Caller{Beacon: beacon, Catalog: refreshed(t, newGatehouse(offer))}
		check.Same(t, "due", caller.DueRounds(), want)
	}
}
