package repository

import (
	"context"
	"errors"
	"math"
	"time"

	"gorm.io/gorm"

	"flashsale/model"
)

// Deduct takes units for attempts on one sale, all in one transaction that holds only if the stock row's
// version is still the one that was read: optimistic locking, for one attempt or for many that gathered. The sale's
// gate, if it ever had one, is told of the orders by GateChanges.
// The outcomes stand in the order of the attempts; every accepted one has a committed order.
// model.ErrLostRace: another writer was first, nothing was written, try again.
func (s *Store) Deduct(ctx context.Context, saleID string, attempts []model.Attempt) ([]model.Outcome, error) {
	offer, now, ok, err := s.offerOn(s.read.WithContext(ctx), saleID)
	if err != nil {
		return nil, err
	}
	take := func(tx *gorm.DB, n int64) error {
		res := tx.Exec("UPDATE stock SET available = available - ?, held = held + ?, "+nextGateVersion+" WHERE sale_id = ? AND version = ?",
			n, n, saleID, offer.Stock.Version)
		if res.Error == nil && res.RowsAffected == 0 {
			return model.ErrLostRace
		}
		return res.Error
	}
	epoch := func(int) int64 { return offer.Stock.Epoch }
	// While units are left for all, nearly always every attempt is new and fits; else each is looked at.
	b := newBatch(attempts, nil)
	if ok && offer.Judge(now) == model.Accepted && b.units() <= offer.Stock.Available {
		outcomes, err := s.insertNew(ctx, saleID, b, model.FromDatabase, epoch, take)
		if !errors.Is(err, errNotNew) {
			return outcomes, wrap("deduct on sale "+saleID, err)
		}
	}
	if b, err = s.judgeOutside(ctx, attempts, offer, now, ok); err != nil || len(b.open) == 0 {
		return b.outcomes, err
	}
	outcomes, err := s.deduct(ctx, attempts, offer, now, offer.Stock.Available, take)
	return outcomes, wrap("deduct on sale "+saleID, err)
}

// DeductLocked takes an attempt's units while it holds a lock on the stock row, which it takes last, since all
// other buyers of the sale wait for it. The sale's window, status and limit are judged as they were on arrival. On SQLite there are no row locks: the transaction is the only writer.
func (s *Store) DeductLocked(ctx context.Context, a model.Attempt) (model.Outcome, error) {
	attempts := []model.Attempt{a}
	offer, now, b, err := s.consider(ctx, a.SaleID, attempts)
	if err != nil || len(b.open) == 0 {
		return first(b.outcomes, err)
	}
	outcomes, err := s.deduct(ctx, attempts, offer, now, math.MaxInt64, func(tx *gorm.DB, n int64) error {
		var available int64
		if err := tx.Raw("SELECT available FROM stock WHERE sale_id = ?"+s.forUpdate(), a.SaleID).Scan(&available).Error; err != nil {
			return err
		}
		if available < n {
			return errShort
		}
		return tx.Exec("UPDATE stock SET available = available - ?, held = held + ?, "+nextGateVersion+" WHERE sale_id = ?", n, n, a.SaleID).Error
	})
	if errors.Is(err, errShort) {
		return model.Outcome{Verdict: model.SoldOut}, nil
	}
	return first(outcomes, wrap("deduct on sale "+a.SaleID, err))
}

// Look reads what there is to know of an attempt before it is written.
func (s *Store) Look(ctx context.Context, a model.Attempt) (model.Look, error) {
	offer, now, b, err := s.consider(ctx, a.SaleID, []model.Attempt{a})
	if err != nil {
		return model.Look{}, err
	}
	look := model.Look{Offer: offer, Now: now}
	if len(b.open) == 0 {
		look.Decided = &b.outcomes[0]
	}
	return look, nil
}

// Overwrite writes the order of an attempt and the stock as they follow from a look at it, whoever wrote in
// between: of two who looked at the same row, the later takes the earlier's units a second time.
func (s *Store) Overwrite(ctx context.Context, a model.Attempt, look model.Look) (model.Outcome, error) {
	outcomes, err := s.deduct(ctx, []model.Attempt{a}, look.Offer, look.Now, look.Offer.Stock.Available, func(tx *gorm.DB, n int64) error {
		left := look.Offer.Stock.Available - n
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

// consider reads the sale and decides, without a transaction, what can be decided so.
func (s *Store) consider(ctx context.Context, saleID string, attempts []model.Attempt) (offer model.Offer, now time.Time, b *batch, err error) {
	offer, now, ok, err := s.offerOn(s.read.WithContext(ctx), saleID)
	if err != nil {
		return offer, now, &batch{}, err
	}
	b, err = s.judgeOutside(ctx, attempts, offer, now, ok)
	return offer, now, b, err
}

// judgeOutside decides, without a transaction, what an offer as it was read decides: known attempts, and all of them
// if the sale is not there, doesn't sell or has no units. A refusal, the commonest answer of a rush, writes nothing.
func (s *Store) judgeOutside(ctx context.Context, attempts []model.Attempt, offer model.Offer, now time.Time, ok bool) (*batch, error) {
	db := s.read.WithContext(ctx)
	known, err := s.knownOutcomes(db, attempts)
	if err != nil {
		return &batch{}, err
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
		units, err := s.unitsOf(db, offer.ID, b.users())
		if err != nil {
			return &batch{}, err
		}
		b.judge(units, offer.LimitPerUser, 0)
	}
	if len(b.open) == 0 {
		b.answered()
	}
	return b, nil
}

// deduct decides attempts on an offer that was read before, of which so many units are available, and writes
// those that fit as orders, all in one transaction. take moves their units in the stock row, the hottest one, and so
// comes late.
func (s *Store) deduct(ctx context.Context, attempts []model.Attempt, offer model.Offer, now time.Time, available int64, take func(tx *gorm.DB, n int64) error) ([]model.Outcome, error) {
	var b *batch
	err := s.transact(ctx, func(tx *gorm.DB) (err error) {
		if b, err = s.lockBatch(tx, offer.ID, attempts); err != nil {
			return err
		}
		if err := s.admitBatch(tx, offer.ID, b, offer.LimitPerUser, available); err != nil {
			return err
		}
		if len(b.open) == 0 {
			return errTakenBack
		}
		if err := s.insertOrders(tx, b.accept(offer, now, model.FromDatabase, func(int) int64 { return offer.Stock.Epoch })); err != nil {
			return err
		}
		if err := take(tx, b.units()); err != nil {
			return err
		}
		return s.tellGateOfSold(tx, offer, b)
	})
	if err != nil && !errors.Is(err, errTakenBack) {
		return nil, err
	}
	return b.answered(), nil
}
