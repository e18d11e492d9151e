package repository

import (
	"maps"
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

// A gate in parts has to know whose the ids are.
func TestGateContentsNameOwners(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		for _, parts := range []int{1, 3} {
			sale := d.newSale(t, 5, inParts(parts))
			want := map[string]string{}
			for _, user := range []string{"u-1", "u-2"} {
				order := d.buy(t, sale.ID, user, 1)
				if parts > 1 {
					want[order.ID] = user
				}
			}
			refused := model.Entry{Attempt: attempt(sale.ID, "u-3", "key", 1), Epoch: 1}
			if _, err := d.Refuse(t.Context(), refused, model.ReasonFailed); err != nil {
				t.Fatal(err)
			}
			if parts > 1 {
				want[refused.ID] = "u-3"
			}
			contents, ok, err := d.GateContents(t.Context(), sale.ID, nil)
			if !ok || err != nil {
				t.Fatal(ok, err)
			}
			if len(contents.Known) != 3 || !maps.Equal(contents.Owners, want) {
				t.Errorf("in %d parts %d ids are known, of the users %v; want %v", parts, len(contents.Known), contents.Owners, want)
			}
		}
	})
}
