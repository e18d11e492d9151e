package repository

import (
	"context"
	"fmt"
	"strings"

	"gorm.io/gorm"

	"flashsale/model"
)

// EraseSale deletes a shadow sale with its orders and all its other rows. It was never offered to buyers, its orders were paid
// in the sandbox only, and it has no events. For any other sale EraseSale returns an error and deletes nothing.
func (s *Store) EraseSale(ctx context.Context, saleID string) error {
	if !model.IsShadow(saleID) {
		return fmt.Errorf("erase sale %s: not a shadow sale", saleID)
	}
	return wrap("erase sale "+saleID, s.transact(ctx, func(tx *gorm.DB) error {
		if err := eraseLarge(tx, saleID); err != nil {
			return err
		}
		for _, statement := range []string{
			"DELETE FROM gate_changes WHERE sale_id = ?", "DELETE FROM stock WHERE sale_id = ?",
			"DELETE FROM sale_lines WHERE sale_id = ?", "DELETE FROM entries WHERE sale_id = ?", "DELETE FROM calls WHERE sale_id = ?",
			"DELETE FROM audit_log WHERE subject = ?", "DELETE FROM sales WHERE id = ?",
		} {
			if err := tx.Exec(statement, saleID).Error; err != nil {
				return err
			}
		}
		return nil
	}))
}

// eraseRows is how many rows one statement erases, so that each ends far within the statement time-out.
const eraseRows = 1000

// eraseLarge erases what a sale may have many rows of: orders with their payments, refusals and buyers.
func eraseLarge(tx *gorm.DB, saleID string) error {
	for _, part := range []struct{ table, key string }{{"orders", "id"}, {"refusals", "order_id"}, {"buyers", "user_id"}} {
		for {
			var keys []string
			if err := tx.Raw("SELECT "+part.key+" FROM "+part.table+" WHERE sale_id = ? LIMIT ?", saleID, eraseRows).Scan(&keys).Error; err != nil {
				return err
			}
			if len(keys) == 0 {
				break
			}
			if part.table == "orders" {
				if err := erasePayments(tx, keys); err != nil {
					return err
				}
			}
			if err := tx.Exec("DELETE FROM "+part.table+" WHERE sale_id = ? AND "+part.key+" IN ?", saleID, keys).Error; err != nil {
				return err
			}
		}
	}
	return nil
}

// erasePayments erases the payments of orders, which were paid in the sandbox if at all.
func erasePayments(tx *gorm.DB, orderIDs []string) error {
	var ids []string
	if err := tx.Raw("SELECT id FROM payments WHERE order_id IN ?", orderIDs).Scan(&ids).Error; err != nil || len(ids) == 0 {
		return err
	}
	for _, statement := range []string{"DELETE FROM sandbox_transactions WHERE payment_id IN ?", "DELETE FROM payments WHERE id IN ?"} {
		if err := tx.Exec(statement, ids).Error; err != nil {
			return err
		}
	}
	return nil
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
