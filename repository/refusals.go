package repository

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"gorm.io/gorm"

	"flashsale/model"
)

// refusalLease is how long a lease of LeaseRefusals keeps units from coming back, by the database's clock. After a return of
// units was announced, no new lease is given for returnNotice, so that the present leases end.
const refusalLease, returnNotice = time.Second, 3 * time.Second

// LeaseRefusals gives leases for those of the sales that are sold out, and returns them by sale. While a lease holds, mayReturn
// lets no units come back to the sold-out sale, so an instance may refuse requests from memory. No lease is given for a sale
// whose stock row is locked, whose units are about to come back, or that is in line.
func (s *Store) LeaseRefusals(ctx context.Context, saleIDs []string) (leases map[string]model.RefusalLease, err error) {
	now := s.nowMillis()
	err = s.transact(ctx, func(tx *gorm.DB) error {
		leases = nil // of a try that was rolled back
		var rows []struct {
			SaleID                string
			GateVersion, Refusals int64
		}
		// A row is locked while units come back. A time stamp in the future, from before the clock was set back, does not count.
		err := tx.Raw(`SELECT sale_id, gate_version, (SELECT COUNT(*) FROM refusals WHERE refusals.sale_id = stock.sale_id) AS refusals
			FROM stock WHERE sale_id IN ? AND available = 0 AND lined < 2 AND returning_at_ms NOT BETWEEN `+now+" - ? AND "+now+s.skipLocked(),
			saleIDs, returnNotice.Milliseconds()).Scan(&rows).Error
		if err != nil || len(rows) == 0 {
			return err
		}
		leases = make(map[string]model.RefusalLease, len(rows))
		ids := make([]string, len(rows))
		for i, r := range rows {
			ids[i], leases[r.SaleID] = r.SaleID, model.RefusalLease{GateVersion: r.GateVersion, Refusals: r.Refusals}
		}
		return tx.Exec("UPDATE stock SET refusing_until_ms = "+now+" + ? WHERE sale_id IN ?", refusalLease.Milliseconds(), ids).Error
	})
	return leases, wrap("lease refusals", err)
}

// KnownIDs returns, in pages, the ids of the orders and the durable refusals of a sale.
func (s *Store) KnownIDs(ctx context.Context, saleID string) iter.Seq2[[]string, error] {
	ids := func(query string) iter.Seq2[[]string, error] {
		return pages(saleID, func(after string) ([]string, error) {
			return column[string](s.read.WithContext(ctx), "read the ids of sale "+saleID, query, after, saleID+behindSale, pageRows)
		}, func(id string) string { return id })
	}
	return chain(ids("SELECT id FROM orders WHERE id > ? AND id < ? ORDER BY id LIMIT ?"),
		ids("SELECT order_id FROM refusals WHERE order_id > ? AND order_id < ? ORDER BY order_id LIMIT ?"))
}

// errRefusing means that units may not come back to a sale yet, since a lease of LeaseRefusals holds.
type errRefusing struct{ saleID string }

func (errRefusing) Error() string { return "instances refuse requests from memory" }

// mayReturn is a condition of an UPDATE of stock that returns units: other units are available, or no lease of refusals holds.
func (s *Store) mayReturn() string {
	const condition = " AND (available > 0 OR refusing_until_ms NOT BETWEEN %[1]s + 1 AND %[1]s + %[2]d)"
	return fmt.Sprintf(condition, s.nowMillis(), returnNotice.Milliseconds())
}

// announceReturn announces a return of units to the sale that an errRefusing names, and returns how long the last lease still
// holds, at most refusalLease. It returns any other error as it is.
func (s *Store) announceReturn(ctx context.Context, err error) (time.Duration, error) {
	refusing, ok := errors.AsType[errRefusing](err)
	if !ok {
		return 0, err
	}
	var ms int64
	err = s.transact(ctx, func(tx *gorm.DB) (err error) {
		now := s.nowMillis()
		if err := tx.Exec("UPDATE stock SET returning_at_ms = "+now+" WHERE sale_id = ?", refusing.saleID).Error; err != nil {
			return err
		}
		ms, err = cell[int64](tx, "read the leases", "SELECT refusing_until_ms - "+now+" FROM stock WHERE sale_id = ?", refusing.saleID)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("announce a return of units: %w", err)
	}
	return min(time.Duration(max(ms, 0))*time.Millisecond, refusalLease), nil
}
