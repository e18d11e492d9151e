package repository

import "flashsale/model"

// terms are what an order takes from its sale, as they were when the stock row had this version of them. To read them for
// each batch costs the database more than the stock row, so settles keep them in memory. The statement that takes the units
// compares the version, under the lock that every change of the terms holds.
type terms struct {
	offer   model.Offer // with the id, the price, the currency, the limits and the time to pay
	version int64       // stock.terms
}

// nextTerms is the part of an UPDATE of stock that must go with a change of the terms. It uses the clock, so that a database
// that was restored to an older state does not give a number to other terms again.
func (s *Store) nextTerms() string {
	greatest := "GREATEST"
	if s.sqlite {
		greatest = "MAX"
	}
	return "terms = " + greatest + "(terms + 1, " + s.nowMillis() + ")"
}

// knownTerms returns the terms of these sales by their ids, or an empty map if not all are known.
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

func (s *Store) forgetTerms(sales []saleUnits) {
	for _, u := range sales {
		s.terms.Delete(u.sale)
	}
}
