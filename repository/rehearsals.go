package repository

import (
	"context"

	"gorm.io/gorm"

	"flashsale/model"
)

// keptRehearsals is how many results are kept. Each takes some ten kilobytes.
const keptRehearsals = 100

// SaveRehearsal stores the result of a rehearsal, and deletes the oldest if there are too many.
func (s *Store) SaveRehearsal(ctx context.Context, r model.Rehearsal) error {
	return wrap("store the rehearsal", s.transact(ctx, func(tx *gorm.DB) error {
		err := tx.Exec("INSERT INTO rehearsals (at_ms, version, verdict, buyers, units, per_second, report) VALUES ("+s.nowMillis()+", ?, ?, ?, ?, ?, ?)",
			r.Version, r.Verdict, r.Buyers, r.Units, r.PerSecond, string(r.Report)).Error
		if err != nil {
			return err
		}
		var oldest []int64
		if err := tx.Raw("SELECT id FROM rehearsals ORDER BY id DESC LIMIT 1 OFFSET ?", keptRehearsals-1).Scan(&oldest).Error; err != nil || len(oldest) == 0 {
			return err
		}
		return tx.Exec("DELETE FROM rehearsals WHERE id < ?", oldest[0]).Error
	}))
}

// LargestRehearsal returns the rehearsal with the most buyers that has passed with a version of the program; ok is false
// if none has.
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
		return []any{&r.ID, millis{&r.At}, &r.Version, &r.Verdict, &r.Buyers, &r.Units, &r.PerSecond, &r.Report}
	}, "SELECT id, at_ms, version, verdict, buyers, units, per_second, "+report+" FROM rehearsals WHERE "+where, args...)
}
