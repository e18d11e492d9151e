package repository

import (
	"context"
	"errors"

	"flashsale/internal/observe"
	"flashsale/model"
)

// Deduct takes units for attempts on one sale with optimistic locking: the transaction commits only if the stock row still has
// the version that was read. It also records the orders for the sale's gate, if there was one, see GateChanges.
//
// The outcomes are in the order of the attempts. The verdict on a new attempt is Accepted, with the committed order, or NotFound,
// NotStarted, Ended, Paused, LimitReached or SoldOut; a known attempt gets the answer of Attempt.Replay. Deduct returns
// model.ErrLostRace if another writer changed the row first. Then nothing was written, and the caller may try again.
func (s *Store) Deduct(ctx context.Context, saleID string, attempts []model.Attempt) (outcomes []model.Outcome, err error) {
	ctx, end := s.observe.Begin(ctx, observe.Step{
		Name: observe.DatabaseTakes, Items: len(attempts), OrderID: func(i int) string { return attempts[i].ID },
	})
	defer func() { end(err) }()
	from := supply{guard: byVersion, source: model.FromDatabase}
	if err := s.readTerms(s.read.WithContext(ctx), saleID, &from); err != nil {
		return nil, err
	}
	// If there are enough units for all, nearly always every attempt is new and fits. Otherwise each attempt is judged.
	offer, b := from.terms[saleID].offer, newBatch(attempts, nil)
	if offer.Judge(from.now) == model.Accepted && b.units() <= offer.Stock.Available {
		if outcomes, err = s.sellNew(ctx, b, from); !errors.Is(err, errNotNew) {
			return outcomes, wrap("deduct on sale "+saleID, err)
		}
	}
	return s.deduct(ctx, saleID, attempts, from)
}

// deduct judges attempts, and sells to those that fit. It needs no transaction if judgeOutside has decided them all.
func (s *Store) deduct(ctx context.Context, saleID string, attempts []model.Attempt, from supply) ([]model.Outcome, error) {
	b, err := s.judgeOutside(ctx, saleID, attempts, from)
	if err != nil || len(b.open) == 0 {
		return b.outcomes, err
	}
	outcomes, err := s.sellJudged(ctx, saleID, attempts, from)
	return outcomes, wrap("deduct on sale "+saleID, err)
}

// DeductLocked takes an attempt's units under a lock on the stock row. It writes the order before it locks this row, to hold the
// lock briefly. If the sale was changed between the read of its terms and the lock, DeductLocked begins again. The outcome is one
// of those of Deduct.
func (s *Store) DeductLocked(ctx context.Context, a model.Attempt) (outcome model.Outcome, err error) {
	err = underTerms(func() error {
		from := supply{guard: byLock, source: model.FromDatabase}
		if err := s.readTerms(s.read.WithContext(ctx), a.SaleID, &from); err != nil {
			return err
		}
		outcome, err = first(s.deduct(ctx, a.SaleID, []model.Attempt{a}, from))
		return err
	})
	if errors.Is(err, errShort) {
		return model.Outcome{Verdict: model.SoldOut}, nil
	}
	return outcome, err
}

// ReadStock reads the offer and the clock for WriteStock. Decided is set if judgeOutside has decided the attempt.
func (s *Store) ReadStock(ctx context.Context, a model.Attempt) (look model.StockView, err error) {
	var from supply
	if err := s.readTerms(s.read.WithContext(ctx), a.SaleID, &from); err != nil {
		return look, err
	}
	look.Offer, look.Now = from.terms[a.SaleID].offer, from.now
	b, err := s.judgeOutside(ctx, a.SaleID, []model.Attempt{a}, from)
	if err == nil && len(b.open) == 0 {
		look.Decided = &b.outcomes[0]
	}
	return look, err
}

// WriteStock sells to an attempt that fits, and overwrites the stock row with what follows from an earlier ReadStock. It does not
// check whether the row has changed since, to demonstrate lost updates: two callers that have read the same stock may sell the
// same units. The outcome is one of those of Deduct.
func (s *Store) WriteStock(ctx context.Context, a model.Attempt, look model.StockView) (model.Outcome, error) {
	from := supply{guard: byNothing, source: model.FromDatabase, terms: termsOf(look.Offer), now: look.Now}
	outcomes, err := s.sellJudged(ctx, a.SaleID, []model.Attempt{a}, from)
	return first(outcomes, wrap("deduct on sale "+a.SaleID, err))
}

func first(outcomes []model.Outcome, err error) (model.Outcome, error) {
	if err != nil {
		return model.Outcome{}, err
	}
	return outcomes[0], nil
}

// judgeOutside decides attempts outside a transaction, by terms that were read before, so that a refusal writes nothing. If the
// sale does not exist, does not sell now or has no available units, judgeOutside refuses the attempts that are not known.
// Otherwise these stay open.
func (s *Store) judgeOutside(ctx context.Context, saleID string, attempts []model.Attempt, from supply) (*attemptBatch, error) {
	db := s.read.WithContext(ctx)
	known, err := s.knownOutcomes(db, attempts)
	if err != nil {
		return &attemptBatch{}, err
	}
	b := newBatch(attempts, known)
	from.guard = byVersion // the units that were read decide
	if offer := from.terms[saleID].offer; offer.Stock.Available == 0 || offer.Judge(from.now) != model.Accepted {
		if err := s.judge(db, b, saleID, &from); err != nil {
			return &attemptBatch{}, err
		}
	}
	if len(b.open) == 0 {
		b.answered()
	}
	return b, nil
}
