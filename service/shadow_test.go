package service

import (
	"slices"
	"testing"

	"flashsale/model"
)

// A shadow sale sells, is settled and gets its gate as any other, and no list of sales for buyers has it.
func TestShadow(t *testing.T) {
	sales, s := newShop(t, openOffer())
	shown, _ := sales.Catalog.Live()
	hidden := draft()
	hidden.Status = model.SaleShadow
	made, invalid, err := sales.Create(t.Context(), hidden, 5, "preflight")
	if err != nil || invalid != nil || made.Status != model.SaleShadow {
		t.Fatalf("%+v, %+v, %v", made, invalid, err)
	}
	if list, _ := sales.Catalog.Live(); !slices.Equal(list, shown) {
		t.Errorf("buyers see %+v", list)
	}
	if !slices.Contains(sales.Catalog.LiveIDs(), made.ID) || sales.Catalog.Judge(made.ID) != model.Accepted {
		t.Errorf("it does not sell: %v, %s", sales.Catalog.LiveIDs(), sales.Catalog.Judge(made.ID))
	}
	s.states[made.ID] = model.GateState{}
	if err := sales.Gates.Ensure(t.Context()); err != nil || !s.states[made.ID].Open {
		t.Errorf("a gate that was lost is not made anew: %+v, %v", s.states[made.ID], err)
	}
	for _, status := range []model.SaleStatus{model.SalePaused, model.SaleLive} { // after either it would be shown
		if _, verdict, err := sales.SetStatus(t.Context(), made.ID, status, "change", "operator"); verdict != model.Ended || err != nil {
			t.Errorf("%s: %s, %v", status, verdict, err)
		}
	}
	if _, verdict, err := sales.SetStatus(t.Context(), made.ID, model.SaleClosed, "close", "operator"); verdict != model.Accepted || err != nil {
		t.Errorf("close: %s, %v", verdict, err)
	}
}
