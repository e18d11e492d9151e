package service

import (
	"testing"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// A proof is public from the seal on; that of a draw when all is drawn, since caches keep the document.
func TestProofsBegin(t *testing.T) {
	sealed := model.Line{Phase: model.PhaseSealed, Root: "root", Seed: "seed"}
	calling, over, waiting := sealed, sealed, sealed
	calling.Phase, over.Phase = model.PhaseCalling, model.PhaseOver
	waiting.Round, waiting.Seed = 7, ""
	for what, tc := range map[string]struct {
		mode model.Mode
		line model.Line
		want model.Verdict
	}{
		"before the seal":               {model.ModeLine, model.Line{Phase: model.PhaseEntering}, model.NotFound},
		"a line that calls":             {model.ModeLine, calling, model.Accepted},
		"a draw that waits for a round": {model.ModeDraw, waiting, model.NotFound},
		"a draw that is being drawn":    {model.ModeDraw, sealed, model.NotFound},
		"a draw that is over":           {model.ModeDraw, over, model.Accepted},
	} {
		offer := openOffer()
		offer.Mode, offer.Line, offer.Stock.Lined = tc.mode, tc.line, model.InLine
		proofs := NewProofs(nil, refreshed(t, newGatehouse(offer)), nil)
		_, _, got, err := proofs.begin(t.Context(), offer.ID)
		check.Same(t, what, []any{got, err}, []any{tc.want, nil})
		_, _, got, err = proofs.begin(t.Context(), "unknown")
		check.Same(t, "another sale", []any{got, err}, []any{model.NotFound, nil})
	}
}

// An instance works at few proofs at once, because each takes memory for all entries.
func TestProofsAtOnce(t *testing.T) {
	offer := openOffer()
	offer.Mode, offer.Line, offer.Stock.Lined = model.ModeLine, model.Line{Phase: model.PhaseOver, Root: "root", Seed: "seed"}, model.InLine
	proofs := NewProofs(nil, refreshed(t, newGatehouse(offer)), nil)
	begin := func(want model.Verdict) (end func()) {
		t.Helper()
		_, end, verdict, err := proofs.begin(t.Context(), offer.ID)
		check.Same(t, "verdict", []any{verdict, err}, []any{want, nil})
		return end
	}
	end := begin(model.Accepted)
	begin(model.Accepted)
	begin(model.RateLimited)
	end()
	begin(model.Accepted)
}
