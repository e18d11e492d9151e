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
	return s.rehearsal(ctx, "version = ? AND verdict = ? ORDER BY buyers DESC, id DESC LIMIT 1", version, model.RehearsalPassed)
}

// Rehearsal returns one rehearsal; ok is false if there is none with this id.
func (s *Store) Rehearsal(ctx context.Context, id int64) (r model.Rehearsal, ok bool, err error) {
	return s.rehearsal(ctx, "id = ?", id)
}

// Rehearsals returns all rehearsals without their reports, the newest first.
func (s *Store) Rehearsals(ctx context.Context) ([]model.Rehearsal, error) {
	var rows []rehearsalRow
	err := s.read.WithContext(ctx).Raw("SELECT id, at_ms, version, verdict, buyers, units, per_second FROM rehearsals ORDER BY id DESC").Scan(&rows).Error
	list := make([]model.Rehearsal, len(rows))
	for i, row := range rows {
		list[i] = row.rehearsal()
	}
	return list, wrap("read the rehearsals", err)
}

type rehearsalRow struct {
	ID, AtMs, Buyers, Units, PerSecond int64
	Version, Verdict, Report           string
}

func (row rehearsalRow) rehearsal() model.Rehearsal {
	return model.Rehearsal{
		ID: row.ID, At: fromMillis(row.AtMs), Version: row.Version, Verdict: row.Verdict,
		Buyers: row.Buyers, Units: row.Units, PerSecond: row.PerSecond, Report: []byte(row.Report),
	}
}

// rehearsal returns the first rehearsal that a condition selects.
func (s *Store) rehearsal(ctx context.Context, where string, args ...any) (r model.Rehearsal, ok bool, err error) {
	var rows []rehearsalRow
	if err := s.read.WithContext(ctx).Raw("SELECT * FROM rehearsals WHERE "+where, args...).Scan(&rows).Error; err != nil || len(rows) == 0 {
		return r, false, wrap("read the rehearsals", err)
	}
	return rows[0].rehearsal(), true, nil
}
