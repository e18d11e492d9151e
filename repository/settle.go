package repository

import (
	"context"
	"errors"
	"fmt"

	"gorm.io/gorm"

	"flashsale/internal/observe"
	"flashsale/model"
)

// Settle writes admitted attempts on one sale as orders, or refuses them durably. The outcomes are in the order of the entries; a
// known attempt gets the answer of Attempt.Replay. model.ErrBroken means that this batch can't be settled as it is. After any
// other error the result is unknown, and the caller may try again.
func (s *Store) Settle(ctx context.Context, saleID string, entries []model.Entry) (outcomes []model.Outcome, err error) {
	ctx, end := s.observe.Begin(ctx, observe.Step{
		Name: observe.Settle, Items: len(entries), OrderID: func(i int) string { return entries[i].ID },
	})
	defer func() { end(err) }()
	// The gate has judged the entries, so nearly always all are new and fit. Otherwise each entry is judged. The stock row is the
	// most contended one, so it is changed last, under a constraint. If the constraint fails, the row is locked first, and the
	// entries are judged again, in their order.
	attempts, from := attemptsOf(entries), fromStream(entries)
	outcomes, err = s.sellNew(ctx, newBatch(attempts, nil), from)
	if errors.Is(err, errNotNew) {
		from.guard = byConstraint
		outcomes, err = s.sellJudged(ctx, saleID, attempts, from)
	}
	if errors.Is(err, errShort) {
		from.guard = byStock
		outcomes, err = s.sellJudged(ctx, saleID, attempts, from)
	}
	if err != nil {
		if broken(err) {
			err = fmt.Errorf("%w: %w", model.ErrBroken, err)
		}
		return nil, fmt.Errorf("settle on sale %s: %w", saleID, err)
	}
	return outcomes, nil
}

// SettleSales settles admitted attempts on several sales in one transaction, if all of them are new and fit. Otherwise it changes
// nothing and returns an error that wraps model.ErrApart. After any other error the result is unknown.
func (s *Store) SettleSales(ctx context.Context, entries []model.Entry) (outcomes []model.Outcome, err error) {
	ctx, end := s.observe.Begin(ctx, observe.Step{
		Name: observe.Settle, Items: len(entries), OrderID: func(i int) string { return entries[i].ID },
	})
	defer func() { end(err) }()
	outcomes, err = s.sellNew(ctx, newBatch(attemptsOf(entries), nil), fromStream(entries))
	if errors.Is(err, errNotNew) || errors.Is(err, errShort) {
		err = fmt.Errorf("%w: %w", model.ErrApart, err)
	}
	return outcomes, wrap("settle on several sales", err)
}

// fromStream returns the supply for entries that gates have admitted.
func fromStream(entries []model.Entry) supply {
	epochs := each(entries, func(e model.Entry) int64 { return e.Epoch }) // of each entry, since a gate may be replaced while entries wait
	return supply{guard: byTerms, source: model.FromStream, epochs: epochs}
}

// Refuse writes a durable refusal of an attempt, unless the attempt has an outcome already. It returns the refusal, or the answer
// of Attempt.Replay.
func (s *Store) Refuse(ctx context.Context, e model.Entry, reason model.Verdict) (model.Outcome, error) {
	var outcomes []model.Outcome
	campaigns, err := s.campaignsOf(s.read.WithContext(ctx), e.SaleID)
	if err == nil {
		err = s.transact(ctx, func(tx *gorm.DB) error {
			b, err := s.lockBatch(tx, []model.Attempt{e.Attempt}, campaigns)
			if err != nil {
				return err
			}
			b.refuseRest(reason)
			outcomes = b.answered()
			return s.refuseDurably(tx, b)
		})
	}
	return first(outcomes, wrap("refuse "+e.ID, err))
}

// refuseDurably stores the refusals of a locked batch on one sale. A refusal as sold_out marks the gate as wrong.
func (s *Store) refuseDurably(tx *gorm.DB, b *attemptBatch) error {
	var values []any
	var mark statement
	for _, i := range b.closed {
		a, reason := b.attempts[i], b.outcomes[i].Verdict
		values = append(values, a.ID, a.SaleID, a.UserID, a.Quantity, string(reason))
		if reason == model.SoldOut {
			// The gate admitted more units than the stock had. By the mark, other instances know this, too.
			mark = statement{"UPDATE stock SET wrong_epoch = epoch WHERE sale_id = ?", []any{a.SaleID}}
		}
	}
	_, err := s.execute(tx, append(s.inserting("refusals (order_id, sale_id, user_id, quantity, reason, created_at_ms)",
		"(?, ?, ?, ?, ?, "+s.nowMillis()+")", values, ""), mark)...)
	return wrap("store refusals", err)
}
