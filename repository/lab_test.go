package repository

import (
	"slices"
	"strings"
	"testing"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// fill makes a sale with rows in every table that the runs of the lab write to.
func (d *testDB) fill(t *testing.T, edits ...func(*model.Sale)) model.Sale {
	t.Helper()
	sale := d.newSale(t, 4, append(edits, limit(2))...)
	settled := d.settle(t, attempts(sale.ID, "settled", 3)...)
	d.buy(t, sale.ID, "buyer", 1)
	wantVerdicts(t, d.settle(t, attempt(sale.ID, "late", "k", 1)), model.SoldOut)
	d.cancel(t, *settled[0].Order)
	d.change(t, sale.ID, 3)
	check.NoError(t, d.Log(t.Context(), "engine", "install_gate", sale.ID, "epoch 1"))
	for _, table := range []string{"orders", "refusals", "buyers", "stock", "gate_changes"} {
		if d.count(t, "SELECT COUNT(*) FROM "+table+" WHERE sale_id = ?", sale.ID) == 0 {
			t.Fatalf("the sale has no row in %s", table)
		}
	}
	return sale
}

// Erasing a shadow sale removes all its rows and no other row. No other sale can be erased.
func TestEraseSale(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		kept := d.fill(t)
		d.payFor(t, d.buy(t, kept.ID, "payer", 1))
		before := d.dump(t)
		sale := d.fill(t, shadow)
		paid := d.buy(t, sale.ID, "payer", 1)
		payment := d.startPayment(t, paid)
		check.NoError(t, d.SandboxCharge(t.Context(), model.SandboxTransaction{ID: "sbx", PaymentID: payment.ID, Status: model.SandboxCharged}))
		d.pay(t, payment, "sbx")
		if !strings.Contains(before, kept.ID) || !strings.Contains(d.dump(t), sale.ID) {
			t.Fatal("the dump lacks the rows of a sale")
		}
		large := d.newSale(t, 2*eraseRows, limit(2), shadow)
		for page := range slices.Chunk(attempts(large.ID, "many", eraseRows+100), 500) {
			d.settle(t, page...)
		}
		check.NoError(t, d.EraseSale(t.Context(), large.ID))
		for range 2 { // the second time it does nothing
			check.NoError(t, d.EraseSale(t.Context(), sale.ID))
			check.Same(t, "all rows", d.dump(t), before)
		}
		wantVerdicts(t, d.deduct(t, attempt(sale.ID, "buyer", "k", 1)), model.NotFound)
		if d.EraseSale(t.Context(), kept.ID) == nil {
			t.Error("a real sale was erased")
		}
		check.Same(t, "all rows", d.dump(t), before)
	})
}
