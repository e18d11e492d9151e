package repository

import (
	"context"
	"time"

	"gorm.io/gorm"

	"flashsale/internal/observe"
	"flashsale/model"
)

// NextEpoch starts a new epoch of a sale's gate. The epoch is above "seen", which the caller has read in the database, and above
// "gates", the epoch of the gate itself. The caller wins if "seen" is still the present epoch, and its time stamp is at least
// "pause" old or, because the clock was set back, in the future. Only then may the caller install the gate.
//
// NextEpoch also raises the version of the stock, so that a Deduct that has read the sale before loses its race: before the first
// epoch, a Deduct does not record its orders for the gate.
func (s *Store) NextEpoch(ctx context.Context, saleID string, seen, gates int64, pause time.Duration) (epoch int64, won bool, err error) {
	ctx, end := s.observe.Begin(ctx, observe.Step{Name: observe.NextEpoch})
	defer func() { end(err) }()
	now, next := s.nowMillis(), max(seen, gates)+1
	changed, err := exec(s.write.WithContext(ctx), "start a new epoch of sale "+saleID, "UPDATE stock SET epoch = ?, epoch_at_ms = "+now+
		", version = version + 1 WHERE sale_id = ? AND epoch = ? AND NOT epoch_at_ms BETWEEN "+now+" - ? + 1 AND "+now,
		next, saleID, seen, pause.Milliseconds())
	return next, changed == 1, err
}

// RenewEpoch renews the time stamp of an epoch, so that no other epoch begins meanwhile. It does nothing if there is a newer one.
func (s *Store) RenewEpoch(ctx context.Context, saleID string, epoch int64) error {
	return s.update(ctx, "renew the epoch of sale "+saleID, "UPDATE stock SET epoch_at_ms = "+s.nowMillis()+
		" WHERE sale_id = ? AND epoch = ?", saleID, epoch)
}

// nextGateVersion is the part of an UPDATE of stock that goes with tellGate. version is last: MySQL assigns from left to right.
const nextGateVersion = "gate_version = version + 1, version = version + 1"

// tellGate records for the gate what this transaction has changed in a stock row. It records nothing for a sale without an epoch,
// which never had a gate, nor for a sale in line, which sells without a gate.
func (s *Store) tellGate(tx *gorm.DB, saleID string, changes ...model.GateChange) error {
	stock, _, err := s.lockStock(tx, saleID)
	if err != nil {
		return err
	}
	return wrap("record changes for the gate", s.run(tx, s.telling(saleID, stock, changes)...))
}

// telling returns the statements of tellGate. stock is the row after the change; the changes need no Version and no UserID.
func (s *Store) telling(saleID string, stock model.Stock, changes []model.GateChange) []statement {
	if stock.Epoch == 0 || stock.Lined == model.InLine {
		return nil
	}
	const columns = 5
	values := make([]any, 0, columns*len(changes))
	for _, c := range changes {
		values = append(values, saleID, stock.Version, c.OrderID, c.Units, c.Sold)
	}
	return s.inserting("gate_changes (sale_id, version, order_id, units, sold)", places(columns), values, "")
}

// tellGateOfSold is tellGate for a batch that was sold without the gate. The offer was read before the transaction; with the
// guard byVersion its epoch is still the present one, since a new epoch changes the version.
func (s *Store) tellGateOfSold(tx *gorm.DB, offer model.Offer, b *attemptBatch) error {
	if offer.Stock.Epoch == 0 {
		return nil
	}
	return s.tellGate(tx, offer.ID, each(b.open, func(i int) model.GateChange {
		return model.GateChange{OrderID: b.attempts[i].ID, Units: -int64(b.attempts[i].Quantity), Sold: true}
	})...)
}

// GateChanges reads, for a gate that has all changes up to the version "after", about "limit" of the next changes, in the order
// of their versions. With them the gate has all changes up to the version upTo; more is true if newer ones may be left. No change
// with a lower version can come later, since a transaction with changes has locked the stock row.
func (s *Store) GateChanges(ctx context.Context, saleID string, after int64, limit int) (changes []model.GateChange, upTo int64, more bool, err error) {
	db, what := s.read.WithContext(ctx), "read the changes for the gate of sale "+saleID
	if upTo, err = cell[int64](db, what, "SELECT gate_version FROM stock WHERE sale_id = ?", saleID); err != nil || upTo <= after {
		return nil, after, false, err
	}
	// If there are "limit" changes or more, the page ends with the version of change number "limit", which it has whole.
	last, found, err := one(column[int64](db, what,
		"SELECT version FROM gate_changes WHERE sale_id = ? AND version > ? AND version <= ? ORDER BY version, order_id LIMIT 1 OFFSET ?",
		saleID, after, upTo, limit-1))
	if err != nil {
		return nil, 0, false, err
	}
	if more = found; more {
		upTo = last
	}
	changes, err = scan(db, what, func(c *model.GateChange) []any {
		return []any{&c.Version, &c.Units, &c.Sold, &c.OrderID, optional(&c.UserID)}
	}, `SELECT c.version, c.units, c.sold, c.order_id, o.user_id FROM gate_changes c LEFT JOIN orders o ON o.id = c.order_id
		WHERE c.sale_id = ? AND c.version > ? AND c.version <= ? ORDER BY c.version, c.order_id`, saleID, after, upTo)
	return changes, upTo, more, err
}

// ForgetGateChanges deletes the changes up to a version, which the gate must have applied.
func (s *Store) ForgetGateChanges(ctx context.Context, saleID string, upTo int64) error {
	return s.update(ctx, "delete the changes that the gate of sale "+saleID+" knows",
		"DELETE FROM gate_changes WHERE sale_id = ? AND version <= ?", saleID, upTo)
}
