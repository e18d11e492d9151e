package repository

import (
	"testing"

	"flashsale/model"
)

func inParts(n int) func(*model.Sale) { return func(s *model.Sale) { s.Parts = n } }

// A sale keeps the number of its gate's parts, which the database bounds.
func TestSaleInParts(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		for _, parts := range []int{1, 2, model.MaxParts} {
			sale := d.newSale(t, 3, inParts(parts))
			offer, ok, err := d.Offer(t.Context(), sale.ID)
			if !ok || err != nil || offer.Parts != parts {
				t.Errorf("made in %d parts, it is in %d, %t, %v", parts, offer.Parts, ok, err)
			}
			_, verdict, err := d.ChangeSale(t.Context(), model.SaleChange{
				SaleID: sale.ID, Actor: "op", Action: "patch",
				Edit: func(s *model.Sale) model.Verdict { s.Parts = 9; return model.Accepted },
			})
			if verdict != model.Accepted || err != nil {
				t.Fatal(verdict, err)
			}
			if offer, _, err := d.Offer(t.Context(), sale.ID); err != nil || offer.Parts != parts {
				t.Errorf("a change made %d parts of %d, %v", offer.Parts, parts, err)
			}
		}
		if sale := d.newSale(t, 1, inParts(0)); d.count(t, "SELECT parts FROM sales WHERE id = ?", sale.ID) != 1 {
			t.Error("a sale that doesn't say is not in one part")
		}
		sale := d.newSale(t, 1)
		for _, parts := range []int{-1, 0, model.MaxParts + 1} {
			if err := d.write.WithContext(t.Context()).Exec("UPDATE sales SET parts = ? WHERE id = ?", parts, sale.ID).Error; err == nil {
				t.Errorf("the database takes %d parts", parts)
			}
		}
	})
}
