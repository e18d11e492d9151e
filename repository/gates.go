package repository

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"

	"flashsale/model"
)

// NextEpoch starts a new generation of a sale's gate, above the gate's own, if seen is still the present one
// and the last one started at least pause ago; only the caller that won may install it.
func (s *Store) NextEpoch(ctx context.Context, saleID string, seen, gates int64, pause time.Duration) (epoch int64, won bool, err error) {
	now, next := s.nowMillis(), max(seen, gates)+1
	res := s.write.WithContext(ctx).Exec("UPDATE stock SET epoch = ?, epoch_at_ms = "+now+" WHERE sale_id = ? AND epoch = ? AND epoch_at_ms <= "+now+" - ?",
		next, saleID, seen, pause.Milliseconds())
	if res.Error != nil {
		return 0, false, fmt.Errorf("start a new epoch of sale %s: %w", saleID, res.Error)
	}
	return next, res.RowsAffected == 1, nil
}

// GateContents reads what a new gate must know. pending are the entries in the sale's stream, read before;
// those that the database has settled by then are left out of the contents. ok is false if there is no such sale.
func (s *Store) GateContents(ctx context.Context, saleID string, pending []model.Entry) (contents model.GateContents, ok bool, err error) {
	contents = model.GateContents{Known: map[string]model.Request{}, Owners: map[string]string{}}
	err = s.snapshot(ctx, func(tx *gorm.DB) error {
		if contents.Offer, _, ok, err = s.offerOn(tx, saleID); err != nil || !ok {
			return err
		}
		if contents.Units, err = buyersUnits(tx, saleID); err != nil {
			return err
		}
		var known []struct {
			ID, UserID, RequestHash string
			Quantity                int
		}
		err := tx.Raw("SELECT id, user_id, request_hash, quantity FROM orders WHERE sale_id = ? UNION ALL SELECT order_id, user_id, request_hash, quantity FROM refusals WHERE sale_id = ?",
			saleID, saleID).Scan(&known).Error
		for _, k := range known {
			contents.Known[k.ID] = model.Request{Quantity: k.Quantity, Hash: k.RequestHash}
			if contents.Offer.Parts > 1 {
				contents.Owners[k.ID] = k.UserID
			}
		}
		return err
	})
	if err != nil {
		return contents, false, fmt.Errorf("read the gate of sale %s: %w", saleID, err)
	}
	for _, e := range pending {
		if _, settled := contents.Known[e.ID]; !settled {
			contents.Pending = append(contents.Pending, e)
		}
	}
	return contents, ok, nil
}

// BuyersUnits reads the live units of every user of a sale.
func (s *Store) BuyersUnits(ctx context.Context, saleID string) (map[string]int, error) {
	units, err := buyersUnits(s.read.WithContext(ctx), saleID)
	return units, wrap("read the buyers of sale "+saleID, err)
}

func buyersUnits(db *gorm.DB, saleID string) (map[string]int, error) {
	var buyers []struct {
		UserID string
		Units  int
	}
	if err := db.Raw("SELECT user_id, units FROM buyers WHERE sale_id = ? AND units > 0", saleID).Scan(&buyers).Error; err != nil {
		return nil, err
	}
	units := make(map[string]int, len(buyers))
	for _, b := range buyers {
		units[b.UserID] = b.Units
	}
	return units, nil
}

// Books reads the sums of a sale; ok is false if there is no such sale.
func (s *Store) Books(ctx context.Context, saleID string) (books model.Books, ok bool, err error) {
	books = model.Books{Orders: map[model.OrderStatus]int64{}, Units: map[model.OrderStatus]int64{}}
	err = s.snapshot(ctx, func(tx *gorm.DB) error {
		var offer model.Offer
		if offer, _, ok, err = s.offerOn(tx, saleID); err != nil || !ok {
			return err
		}
		books.Stock = offer.Stock
		var sums []struct {
			Status        string
			Orders, Units int64
		}
		err := tx.Raw(`SELECT status, COUNT(*) AS orders, SUM(quantity) AS units FROM orders WHERE sale_id = ? GROUP BY status
			UNION ALL SELECT 'rejected', COUNT(*), COALESCE(SUM(quantity), 0) FROM refusals WHERE sale_id = ?`, saleID, saleID).Scan(&sums).Error
		if err != nil {
			return err
		}
		for _, sum := range sums {
			books.Orders[model.OrderStatus(sum.Status)] = sum.Orders
			books.Units[model.OrderStatus(sum.Status)] = sum.Units
		}
		return tx.Raw("SELECT COALESCE(SUM(units), 0) FROM buyers WHERE sale_id = ?", saleID).Scan(&books.BuyersUnits).Error
	})
	return books, ok, wrap("read the books of sale "+saleID, err)
}
