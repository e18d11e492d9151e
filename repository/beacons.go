package repository

import (
	"context"
	"encoding/hex"
	"time"

	"gorm.io/gorm"
)

// SetRoot publishes the root of a sealed line with a beacon, in hex, and with it the round from which the seed will follow,
// once: a later call changes nothing. round returns the round to name at a time of the database's clock. Since both become
// public at the same moment, nothing that the seed follows from can be chosen when the round is known.
func (s *Store) SetRoot(ctx context.Context, saleID, root string, round func(now time.Time) int64) error {
	return s.transact(ctx, func(tx *gorm.DB) error {
		// The clock is read under the lock, so that no wait makes the round one that is known already.
		if _, ok, err := s.lockLine(tx, saleID); err != nil || !ok {
			return err
		}
		var nowMs int64
		if err := tx.Raw("SELECT " + s.nowMillis()).Scan(&nowMs).Error; err != nil {
			return wrap("read the clock", err)
		}
		return publish(tx, "name a round for sale "+saleID, saleID, "UPDATE sale_lines SET "+fixDraw+`, root = ?, beacon_round = ?
			WHERE sale_id = ? AND phase = 'sealed' AND root = '' AND beacon = 1`, root, round(fromMillis(nowMs)), saleID)
	})
}

// SetRandomness publishes what the named round of the beacon has brought, once: a later call changes nothing. The caller has
// checked the signature.
func (s *Store) SetRandomness(ctx context.Context, saleID string, round int64, signature []byte, randomness [32]byte) error {
	return s.transact(ctx, func(tx *gorm.DB) error {
		return publish(tx, "store the round of sale "+saleID, saleID, `UPDATE sale_lines SET beacon_signature = ?, beacon_randomness = ?
			WHERE sale_id = ? AND beacon_round = ? AND beacon_randomness = ''`,
			hex.EncodeToString(signature), hex.EncodeToString(randomness[:]), saleID, round)
	})
}

// publish runs an UPDATE of a line. If it has changed the line, all instances read the sale as a whole again.
func publish(tx *gorm.DB, what, saleID, update string, args ...any) error {
	res := tx.Exec(update, args...)
	if res.Error != nil || res.RowsAffected == 0 {
		return wrap(what, res.Error)
	}
	return wrap(what, tx.Exec("UPDATE sales SET revision = revision + 1 WHERE id = ?", saleID).Error)
}
