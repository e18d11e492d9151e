package service

import (
	"context"
	"testing"
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

// tendedLines counts the looks at lines.
type tendedLines struct {
	CallerStore
	tended []string
}

func (s *tendedLines) TendLine(_ context.Context, saleID string) (offer model.Offer, err error) {
	s.tended = append(s.tended, saleID)
	offer.Line.Phase = model.PhaseEntering
	return offer, nil
}

// While a sale is paused nobody is called and no call ends.
func TestCallerLeavesPausedSales(t *testing.T) {
	var offers []model.Offer
	for id, status := range map[string]model.SaleStatus{"LIVE": model.SaleLive, "PAUSED": model.SalePaused} {
		o := openOffer()
		o.ID, o.Status, o.Mode, o.Stock.Lined, o.Line.Phase = id, status, model.ModeLine, model.InLine, model.PhaseCalling
		offers = append(offers, o)
	}
	store := &tendedLines{}
	caller := Caller{Store: store, Catalog: refreshed(t, newGatehouse(offers...))}
	check.NoError(t, caller.Step(t.Context()))
	check.Same(t, "tended", store.tended, []string{"LIVE"})
}
