package repository

import (
	"context"
	"strings"

	"gorm.io/gorm"
)

// EraseSale deletes a sale with its orders and all its other rows. It is only for the sales of the strategy lab and of
// rehearsals, which were never offered to buyers, and whose orders were paid in the sandbox only.
func (s *Store) EraseSale(ctx context.Context, saleID string) error {
	return wrap("erase sale "+saleID, s.transact(ctx, func(tx *gorm.DB) error {
		for _, statement := range []string{
			"DELETE FROM sandbox_transactions WHERE payment_id IN (SELECT p.id FROM payments p JOIN orders o ON o.id = p.order_id WHERE o.sale_id = ?)",
			"DELETE FROM payments WHERE order_id IN (SELECT id FROM orders WHERE sale_id = ?)",
			"DELETE FROM orders WHERE sale_id = ?", "DELETE FROM refusals WHERE sale_id = ?", "DELETE FROM buyers WHERE sale_id = ?",
			"DELETE FROM gate_changes WHERE sale_id = ?", "DELETE FROM stock WHERE sale_id = ?",
			"DELETE FROM sale_lines WHERE sale_id = ?", "DELETE FROM entries WHERE sale_id = ?", "DELETE FROM calls WHERE sale_id = ?", "DELETE FROM audit_log WHERE subject = ?", "DELETE FROM sales WHERE id = ?",
			"DELETE FROM events WHERE INSTR(ids, ?) = 1",
		} {
			if err := tx.Exec(statement, saleID).Error; err != nil {
				return err
			}
		}
		return nil
	}))
}

// Version names the database server and its version.
func (s *Store) Version(ctx context.Context) (version string, err error) {
	query, name := "SELECT VERSION()", "MySQL "
	if s.sqlite {
		query, name = "SELECT sqlite_version()", "SQLite "
	}
	if err := s.read.WithContext(ctx).Raw(query).Scan(&version).Error; err != nil {
		return "", wrap("ask for the database's version", err)
	}
	if number, _, ok := strings.Cut(version, "-MariaDB"); ok {
		return "MariaDB " + number, nil
	}
	return name + version, nil
}
