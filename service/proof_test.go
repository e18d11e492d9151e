package service

import (
	"context"
	"io"
	"iter"
	"sync"
	"testing"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// A proof is public from the seal on; that of a draw when all is drawn, since caches keep the document.
func TestProofsAreSealed(t *testing.T) {
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
		_, got, err := proofs.Ready(t.Context(), offer.ID)
		check.Same(t, what, []any{got, err}, []any{tc.want, nil})
		_, got, err = proofs.Ready(t.Context(), "unknown")
		check.Same(t, "another sale", []any{got, err}, []any{model.NotFound, nil})
	}
}

// ann is a database with the one entry of a line, which is read only when the test says so.
type ann struct{ reading, read chan struct{} }

func (ann) Sealing(context.Context, string) (model.Sealing, error) {
	return model.Sealing{Entries: 1}, nil
}

func (ann) EntryOf(_ context.Context, _, userID string) (model.LineEntry, bool, error) {
	return model.LineEntry{UserID: "ann"}, userID == "ann", nil
}

func (a ann) LineEntries(context.Context, string, int64) iter.Seq2[[]model.LineEntry, error] {
	return func(yield func([]model.LineEntry, error) bool) {
		a.reading <- struct{}{}
		<-a.read
		yield([]model.LineEntry{{UserID: "ann", Quantity: 1}}, nil)
	}
}

func (ann) DrawnNumbers(context.Context, string) ([]int64, int64, error) { return nil, 0, nil }

// An instance computes few paths at once, because each needs memory for all entries, and none for users without an entry.
// Documents do not wait for paths.
func TestPathsAtOnce(t *testing.T) {
	offer := openOffer()
	offer.Mode, offer.Stock.Lined = model.ModeLine, model.InLine
	offer.Line = model.Line{Phase: model.PhaseOver, Root: "00", Sealed: 1, Seed: "seed"}
	store := ann{make(chan struct{}), make(chan struct{})}
	proofs := NewProofs(store, refreshed(t, newGatehouse(offer)), nil)
	path := func(userID string, want model.Verdict) {
		_, _, _, got, err := proofs.Path(t.Context(), userID, offer.ID)
		check.Same(t, "path of "+userID, []any{got, err}, []any{want, nil})
	}
	var paths sync.WaitGroup
	for range pathsAtOnce {
		paths.Go(func() { path("ann", model.Accepted) })
		<-store.reading
	}
	path("ann", model.RateLimited)
	path("bob", model.NotFound)
	documents := make(chan error)
	go func() {
		_, err := proofs.Write(t.Context(), io.Discard, offer.ID)
		documents <- err
	}()
	<-store.reading
	close(store.read)
	for range 2 { // it reads the entries for each of its lists
		<-store.reading
	}
	check.NoError(t, <-documents)
	paths.Wait()
	paths.Go(func() { path("ann", model.Accepted) })
	<-store.reading
	paths.Wait()
}

// Readers of documents take turns at the database, and a page that is sent slowly takes nobody's turn.
func TestPagesTakeTurns(t *testing.T) {
	proofs := NewProofs(ann{make(chan struct{}, 9), make(chan struct{})}, nil, nil)
	for range pagesAtOnce {
		proofs.reading <- struct{}{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range proofs.pages(ctx, "", 1) {
		check.Error(t, "a reader who leaves", err, context.Canceled)
	}
	<-proofs.reading
	close(proofs.store.(ann).read)
	for _, err := range proofs.pages(t.Context(), "", 1) {
		check.NoError(t, err)
		check.Same(t, "pages that are being read", len(proofs.reading), pagesAtOnce-1)
	}
	check.Same(t, "pages that are being read", len(proofs.reading), pagesAtOnce-1)
}
