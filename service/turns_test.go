package service

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/internal/ranks"
	"flashsale/model"
	"flashsale/service/auth"
	"flashsale/test/kit/check"
)

// askedLines counts the questions to a store of lines. It answers that ann is called.
type askedLines struct {
	LineStore
	asked int
}

func (s *askedLines) EntryOf(context.Context, string, string) (model.LineEntry, bool, error) {
	s.asked++
	return model.LineEntry{UserID: "ann", Number: 3, State: model.EntryCalled, Until: time.Unix(99, 0)}, true, nil
}

// Crowds that ask for a path before their turn are refused from memory by their tickets. No ticket makes it somebody's turn.
func TestTurn(t *testing.T) {
	tickets, store := auth.NewTickets([]byte("a secret")), &askedLines{}
	offer := openOffer()
	offer.Mode, offer.Stock.Lined = model.ModeLine, model.InLine
	lines := NewLines(store, refreshed(t, newGatehouse(offer)), tickets, auth.NewWorks([]byte("a secret"), time.Now))
	defer lines.Close()
	offer.Line = model.Line{Phase: model.PhaseCalling, Entries: 9, Sealed: 9, Seed: (ranks.Hash{1}).String()}
	rank := ranks.Order{Seed: ranks.Hash{1}, N: 9}.Rank(3)
	type answer struct {
		until   time.Time
		rank    int64
		verdict model.Verdict
	}
	for _, tc := range []struct {
		ticket  string
		serving int64
		want    answer
		asked   int
	}{
		{tickets.Issue("ann", offer.ID, 3), rank, answer{time.Time{}, rank, model.NotYourTurn}, 0},
		{tickets.Issue("ann", offer.ID, 3), rank + 1, answer{time.Unix(99, 0), rank, model.Accepted}, 1},
		{tickets.Issue("bob", offer.ID, 3), rank, answer{time.Unix(99, 0), rank, model.Accepted}, 1}, // another's: the store decides
		{"", rank, answer{time.Unix(99, 0), rank, model.Accepted}, 1},
	} {
		store.asked, offer.Line.Serving = 0, tc.serving
		until, rank, verdict, err := lines.Turn(t.Context(), "ann", offer, tc.ticket)
		check.Same(t, "answer", []any{answer{until, rank, verdict}, store.asked, err}, []any{tc.want, tc.asked, nil})
	}
}

// tendedLines are lines in a phase. It counts the looks at them.
type tendedLines struct {
	CallerStore
	phase  model.Phase
	tended []string
	ended  []bool // for each call of EndCalls whether it is to end all
}

func (s *tendedLines) TendLine(_ context.Context, saleID string) (offer model.Offer, err error) {
	s.tended = append(s.tended, saleID)
	offer.Line.Phase = s.phase
	return offer, nil
}

func (s *tendedLines) EndCalls(_ context.Context, _ string, all bool, _ int) (more bool, err error) {
	s.ended = append(s.ended, all)
	return len(s.ended) == 1, nil
}

// When the sale has ended, so have all calls.
func TestCallerEndsAllCalls(t *testing.T) {
	offer := openOffer()
	offer.Mode, offer.Stock.Lined = model.ModeLine, model.InLine
	store := &tendedLines{phase: model.PhaseOver}
	caller := Caller{Store: store, Catalog: refreshed(t, newGatehouse(offer))}
	check.NoError(t, caller.Tend(t.Context(), offer.ID))
	check.Same(t, "ends all calls, in two batches", store.ended, []bool{true, true})
}

// A line that is over is looked after as long as it has calls: their rows may have been locked when it ended.
func TestCallerIsDue(t *testing.T) {
	var offers []model.Offer
	for id, line := range map[string]struct {
		lined  model.Lined
		phase  model.Phase
		called int64
	}{
		"CALLING": {model.InLine, model.PhaseCalling, 0}, "CALLED": {model.InLine, model.PhaseOver, 1}, "OVER": {model.InLine, model.PhaseOver, 0},
		"OPEN": {model.LinedAtSoldOut, model.PhaseCalling, 0},
	} {
		o := openOffer()
		o.ID, o.WaitingList, o.Stock.Lined, o.Line.Phase, o.Stock.Called = id, true, line.lined, line.phase, line.called
		offers = append(offers, o)
	}
	due := (&Caller{Catalog: refreshed(t, newGatehouse(offers...))}).Due()
	slices.Sort(due)
	check.Same(t, "due", due, []string{"CALLED", "CALLING"})
}

// slowLines make no entry until end is closed.
type slowLines struct {
	LineStore
	end chan struct{}
}

func (s slowLines) Enter(_ context.Context, _ string, wishes []model.LineEntry) ([]model.LineEntry, model.Verdict, error) {
	<-s.end
	return wishes, model.Accepted, nil
}

// While many wait for their entries, an entry takes twice the work.
func TestWorkGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		offer := openOffer()
		offer.Mode, offer.Stock.Lined, offer.EntryWork = model.ModeLine, model.InLine, 1000
		store := slowLines{end: make(chan struct{})}
		lines := NewLines(store, refreshed(t, newGatehouse(offer)), nil, auth.NewWorks([]byte("a secret"), time.Now))
		defer lines.Close()
		work := func() int64 {
			c, verdict, err := lines.Challenge(t.Context(), "ann", offer.ID)
			check.Same(t, "challenge", []any{verdict, err}, []any{model.Accepted, nil})
			return c.MaxNumber
		}
		check.Same(t, "work", work(), int64(1000))
		for range enterLimits.Queue/2 + enterLimits.Batch + 1 {
			go func() {
				_, err := lines.enter.Do(t.Context(), offer.ID, model.LineEntry{})
				check.NoError(t, err)
			}()
		}
		synctest.Wait()
		check.Same(t, "work while many wait", work(), int64(2000))
		close(store.end)
		synctest.Wait()
		check.Same(t, "work afterwards", work(), int64(1000))
	})
}
