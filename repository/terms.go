package repository

import (
	"errors"

	"gorm.io/gorm"

	"flashsale/model"
)

// terms are the fields of a sale on which its orders depend, with the number that the stock row had for them. They are kept in
// memory, because to read them costs the database more than to change the stock row. With byTerms, the statement that takes the
// units compares the number.
type terms struct {
	offer   model.Offer // with the id, the price, the currency, the limits and the time to pay
	version int64       // stock.terms
}

// nextTerms is the part of an UPDATE of stock that goes with a change of the terms. The new number is at least the clock's time,
// so that a database that was restored to an older state does not use a number again for other terms.
func (s *Store) nextTerms() string {
	return "terms = " + s.dialect("GREATEST", "MAX") + "(terms + 1, " + s.nowMillis() + ")"
}

// knownTerms returns the terms of these sales by their ids, or nil if not all are known.
func (s *Store) knownTerms(sales []saleUnits) map[string]terms {
	known := make(map[string]terms, len(sales))
	for _, u := range sales {
		t, ok := s.terms.Load(u.sale)
		if !ok {
			return nil
		}
		known[u.sale], _ = t.(terms)
	}
	return known
}

// errOtherTerms means that a sale was changed since a transaction read its terms.
var errOtherTerms = errors.New("the sale was changed meanwhile")

// underTerms runs a transaction, and runs it again as long as it returns errOtherTerms.
func underTerms(transaction func() error) error {
	for {
		if err := transaction(); !errors.Is(err, errOtherTerms) {
			return err
		}
	}
}

func (s *Store) lockStock(tx *gorm.DB, saleID string) (stock model.Stock, ok bool, err error) {
	res := tx.Raw("SELECT terms, available, reserved, version, epoch, lined, quota FROM stock WHERE sale_id = ?"+s.forUpdate(), saleID).Scan(&stock)
	return stock, res.RowsAffected > 0, wrap("lock the stock", res.Error)
}

// lockTerms locks the stock row of a sale. It returns errOtherTerms if the sale was changed since the offer was read.
func (s *Store) lockTerms(tx *gorm.DB, offer model.Offer) (stock model.Stock, err error) {
	stock, _, err = s.lockStock(tx, offer.ID)
	if err == nil && stock.Terms != offer.Stock.Terms {
		err = errOtherTerms
	}
	return stock, err
}
