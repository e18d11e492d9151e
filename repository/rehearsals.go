package repository

import (
	"cmp"
	"context"
	"fmt"

	"gorm.io/gorm"

	"flashsale/model"
)

// keptRehearsals is how many results of rehearsals are kept. Each takes some ten kilobytes.
const keptRehearsals = 100

// SaveRehearsal stores the result of a rehearsal, and deletes all but the newest keptRehearsals.
func (s *Store) SaveRehearsal(ctx context.Context, r model.Rehearsal) error {
	return wrap("store the rehearsal", s.transact(ctx, func(tx *gorm.DB) error {
		return s.run(tx, do("INSERT INTO rehearsals (at_ms, version, verdict, buyers, units, per_second, report) VALUES ("+s.nowMillis()+", ?, ?, ?, ?, ?, ?)",
			r.Version, r.Verdict, r.Buyers, r.Units, r.PerSecond, string(r.Report)),
			do("DELETE FROM rehearsals WHERE id < (SELECT id FROM (SELECT id FROM rehearsals ORDER BY id DESC LIMIT 1 OFFSET ?) AS oldest)", keptRehearsals-1))
	}))
}

// LargestRehearsal returns the rehearsal with the most buyers that this version has passed; ok is false if there is none.
func (s *Store) LargestRehearsal(ctx context.Context, version string) (r model.Rehearsal, ok bool, err error) {
	return one(s.rehearsals(ctx, "report", "version = ? AND verdict = ? ORDER BY buyers DESC, id DESC LIMIT 1", version, model.RehearsalPassed))
}

// Rehearsal returns one rehearsal; ok is false if there is none with this id.
func (s *Store) Rehearsal(ctx context.Context, id int64) (r model.Rehearsal, ok bool, err error) {
	return one(s.rehearsals(ctx, "report", "id = ?", id))
}

// Rehearsals returns all rehearsals without their reports, the newest first.
func (s *Store) Rehearsals(ctx context.Context) ([]model.Rehearsal, error) {
	return s.rehearsals(ctx, "''", "1 = 1 ORDER BY id DESC")
}

func (s *Store) rehearsals(ctx context.Context, report, where string, args ...any) ([]model.Rehearsal, error) {
	return scan(s.read.WithContext(ctx), "read the rehearsals", func(r *model.Rehearsal) []any {
		return []any{&r.ID, millis(&r.At), &r.Version, &r.Verdict, &r.Buyers, &r.Units, &r.PerSecond, &r.Report}
	}, "SELECT id, at_ms, version, verdict, buyers, units, per_second, "+report+" FROM rehearsals WHERE "+where, args...)
}

// EraseSale deletes a shadow sale with its orders and its other rows. For any other sale it returns an error.
func (s *Store) EraseSale(ctx context.Context, saleID string) error {
	if !model.IsShadow(saleID) {
		return fmt.Errorf("erase sale %s: not a shadow sale", saleID)
	}
	return wrap("erase sale "+saleID, s.transact(ctx, func(tx *gorm.DB) error {
		if err := eraseLarge(tx, saleID); err != nil {
			return err
		}
		return s.run(tx, each([]string{
			"gate_changes WHERE sale_id", "stock WHERE sale_id", "sale_lines WHERE sale_id", "entries WHERE sale_id", "calls WHERE sale_id",
			"series WHERE sale_id", "audit_log WHERE subject", "sales WHERE id",
		}, func(rows string) statement { return do("DELETE FROM "+rows+" = ?", saleID) })...)
	}))
}

// eraseRows is how many rows of a table eraseLarge erases at a time, because a statement has a time limit.
const eraseRows = 1000

// eraseLarge erases rows of which a shadow sale may have many: orders with their payments, refusals and buyers.
func eraseLarge(tx *gorm.DB, saleID string) error {
	for _, part := range []struct{ table, key string }{{"orders", "id"}, {"refusals", "order_id"}, {"buyers", "user_id"}} {
		for more := true; more; {
			keys, err := column[string](tx, "read "+part.table, "SELECT "+part.key+" FROM "+part.table+" WHERE sale_id = ? LIMIT ?", saleID, eraseRows)
			var payments []string // of these orders
			if err == nil && part.table == "orders" {
				payments, err = column[string](tx, "read payments", "SELECT id FROM payments WHERE order_id IN ?", keys)
			}
			if err == nil && len(payments) > 0 {
				err = cmp.Or(tx.Exec("DELETE FROM sandbox_transactions WHERE payment_id IN ?", payments).Error,
					tx.Exec("DELETE FROM payments WHERE id IN ?", payments).Error)
			}
			if err == nil {
				err = tx.Exec("DELETE FROM "+part.table+" WHERE sale_id = ? AND "+part.key+" IN ?", saleID, keys).Error
			}
			if more = len(keys) == eraseRows; err != nil {
				return err
			}
		}
	}
	return nil
}
