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
	var rows []struct {
		AtMs, Buyers, Units, PerSecond int64
		Version, Verdict, Report       string
	}
	err = s.read.WithContext(ctx).Raw("SELECT * FROM rehearsals WHERE version = ? AND verdict = ? ORDER BY buyers DESC, id DESC LIMIT 1",
		version, model.RehearsalPassed).Scan(&rows).Error
	if err != nil || len(rows) == 0 {
		return r, false, wrap("read the rehearsals", err)
	}
	row := rows[0]
	return model.Rehearsal{
		At: fromMillis(row.AtMs), Version: row.Version, Verdict: row.Verdict, Buyers: row.Buyers, Units: row.Units, PerSecond: row.PerSecond, Report: []byte(row.Report),
	}, true, nil
}
