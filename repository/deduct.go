package repository

import (
	"context"
	"errors"
	"math"
	"time"

	"gorm.io/gorm"

	"flashsale/internal/observe"
	"flashsale/model"
)

// Deduct takes units for one or more attempts on one sale, in one transaction with optimistic locking: the transaction
// commits only if the version of the stock row is still the one that was read. If the sale ever had a gate, the
// transaction records the orders for the gate, see GateChanges. The outcomes are in the order of the attempts. Every
// accepted attempt has a committed order. Deduct returns model.ErrLostRace if another writer changed the row first:
// nothing was written, and the caller may try again.
func (s *Store) Deduct(ctx context.Context, saleID string, attempts []model.Attempt) (outcomes []model.Outcome, err error) {
	ctx, end := s.observe.Begin(ctx, observe.Step{
		Name: observe.DatabaseTakes, Items: len(attempts), OrderID: func(i int) string { return attempts[i].ID },
	})
	defer func() { end(err) }()
	offer, now, ok, err := s.offerOn(s.read.WithContext(ctx), saleID)
	if err != nil {
		return nil, err
	}
	taking := func(units []saleUnits, _ map[string]terms) statement {
		n := units[0].n
		return statement{
			"UPDATE stock SET available = available - ?, held = held + ?, " + nextGateVersion + " WHERE sale_id = ? AND version = ?",
			[]any{n, n, saleID, offer.Stock.Version},
		}
	}
	epoch := func(int) int64 { return offer.Stock.Epoch }
	// While there are enough units for all, nearly always every attempt is new and fits. Otherwise each attempt is judged.
	b := newBatch(attempts, nil)
	if ok && offer.Judge(now) == model.Accepted && b.units() <= offer.Stock.Available {
		outcomes, err = s.insertNew(ctx, b, model.FromDatabase, epoch, taking)
		if !errors.Is(err, errNotNew) {
			return outcomes, wrap("deduct on sale "+saleID, err)
		}
	}
	if b, err = s.judgeOutside(ctx, attempts, offer, now, ok); err != nil || len(b.open) == 0 {
		return b.outcomes, err
	}
	outcomes, err = s.deduct(ctx, attempts, offer, now, offer.Stock.Available, func(tx *gorm.DB, units []saleUnits) error {
		changed, err := s.execute(tx, taking(units, nil))
		if err == nil && changed == 0 {
			err = model.ErrLostRace
		}
		return err
	})
	return outcomes, wrap("deduct on sale "+saleID, err)
}

// DeductLocked takes an attempt's units under a lock on the stock row. It locks that row last, since all other buyers
// of the sale wait for the lock. The sale's window, status and limit were read before; if they have changed, it begins again.
// SQLite has no row locks: there the transaction is the only writer.
func (s *Store) DeductLocked(ctx context.Context, a model.Attempt) (outcome model.Outcome, err error) {
	err = underTerms(func() error {
		outcome, err = s.deductLocked(ctx, a)
		return err
	})
	return outcome, err
}

func (s *Store) deductLocked(ctx context.Context, a model.Attempt) (model.Outcome, error) {
	attempts := []model.Attempt{a}
	offer, now, b, err := s.consider(ctx, a.SaleID, attempts)
	if err != nil || len(b.open) == 0 {
		return first(b.outcomes, err)
	}
	outcomes, err := s.deduct(ctx, attempts, offer, now, math.MaxInt64, func(tx *gorm.DB, units []saleUnits) error {
		n := units[0].n
		stock, err := s.lockTerms(tx, offer)
		if err != nil {
			return err
		}
		if stock.Available < n {
			return errShort
		}
		return tx.Exec("UPDATE stock SET available = available - ?, held = held + ?, "+nextGateVersion+" WHERE sale_id = ?", n, n, a.SaleID).Error
	})
	if errors.Is(err, errShort) {
		return model.Outcome{Verdict: model.SoldOut}, nil
	}
	return first(outcomes, wrap("deduct on sale "+a.SaleID, err))
}

// ReadStock reads what WriteStock needs to write an attempt: the offer and the clock. Decided is set if the attempt is known
// or is refused.
func (s *Store) ReadStock(ctx context.Context, a model.Attempt) (model.StockView, error) {
	offer, now, b, err := s.consider(ctx, a.SaleID, []model.Attempt{a})
	if err != nil {
		return model.StockView{}, err
	}
	look := model.StockView{Offer: offer, Now: now}
	if len(b.open) == 0 {
		look.Decided = &b.outcomes[0]
	}
	return look, nil
}

// WriteStock writes the order of an attempt and the stock that follows from an earlier ReadStock, without a check for changes
// since then. If two callers looked at the same row, the second write covers the first, and the same units are sold
// twice. The strategy naive shows this; the strategy mutex prevents it with a lock.
func (s *Store) WriteStock(ctx context.Context, a model.Attempt, look model.StockView) (model.Outcome, error) {
	outcomes, err := s.deduct(ctx, []model.Attempt{a}, look.Offer, look.Now, look.Offer.Stock.Available, func(tx *gorm.DB, units []saleUnits) error {
		left := look.Offer.Stock.Available - units[0].n
		return tx.Exec("UPDATE stock SET available = ?, held = quota - paid - ?, "+nextGateVersion+" WHERE sale_id = ?", left, left, a.SaleID).Error
	})
	return first(outcomes, wrap("deduct on sale "+a.SaleID, err))
}

func first(outcomes []model.Outcome, err error) (model.Outcome, error) {
	if err != nil {
		return model.Outcome{}, err
	}
	return outcomes[0], nil
}

// consider reads the sale and decides the attempts that can be decided without a transaction.
func (s *Store) consider(ctx context.Context, saleID string, attempts []model.Attempt) (offer model.Offer, now time.Time, b *attemptBatch, err error) {
	offer, now, ok, err := s.offerOn(s.read.WithContext(ctx), saleID)
	if err != nil {
		return offer, now, &attemptBatch{}, err
	}
	b, err = s.judgeOutside(ctx, attempts, offer, now, ok)
	return offer, now, b, err
}

// judgeOutside decides attempts from an offer that was read before, without a transaction. Known attempts get their
// outcome. If the sale does not exist, does not sell now or has no units left, all others are refused. So a refusal,
// the most frequent answer in a rush, writes nothing.
func (s *Store) judgeOutside(ctx context.Context, attempts []model.Attempt, offer model.Offer, now time.Time, ok bool) (*attemptBatch, error) {
	db := s.read.WithContext(ctx)
	known, err := s.knownOutcomes(db, attempts)
	if err != nil {
		return &attemptBatch{}, err
	}
	verdict := model.NotFound
	if ok {
		verdict = offer.Judge(now)
	}
	b := newBatch(attempts, known)
	switch {
	case verdict != model.Accepted:
		b.refuseRest(verdict)
	case offer.Stock.Available == 0:
		limits, err := s.limitsOf(db, offer.Sale, b.users())
		if err != nil {
			return &attemptBatch{}, err
		}
		b.judge(limits, 0)
	}
	if len(b.open) == 0 {
		b.answered()
	}
	return b, nil
}

// deduct judges attempts by an offer that was read before and the number of available units. It inserts an order for
// each attempt that fits, all in one transaction. take moves the units in the stock row. take runs late, because that
// row is the most contended one.
func (s *Store) deduct(ctx context.Context, attempts []model.Attempt, offer model.Offer, now time.Time, available int64, take func(tx *gorm.DB, units []saleUnits) error) ([]model.Outcome, error) {
	var b *attemptBatch
	err := s.transact(ctx, func(tx *gorm.DB) (err error) {
		if b, err = s.lockBatch(tx, attempts, map[string]string{offer.ID: offer.Campaign.ID}); err != nil {
			return err
		}
		if err := s.admitBatch(tx, offer.Sale, b, available); err != nil {
			return err
		}
		if len(b.open) == 0 {
			return errTakenBack
		}
		if err := s.insertOrders(tx, b.accept(func(string) model.Offer { return offer }, now, model.FromDatabase, func(int) int64 { return offer.Stock.Epoch })); err != nil {
			return err
		}
		if err := take(tx, bySale(b.unitsByUser())); err != nil {
			return err
		}
		return s.tellGateOfSold(tx, offer.ID, offer.Stock.Epoch, b)
	})
	if err != nil && !errors.Is(err, errTakenBack) {
		return nil, err
	}
	return b.answered(), nil
}
