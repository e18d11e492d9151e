package repository

import (
	"testing"

	"flashsale/model"
)

func TestSandboxBooks(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		charged := model.SandboxTransaction{ID: "t1", PaymentID: "P1", AmountCents: 1990, Status: model.SandboxCharged}
		declined := model.SandboxTransaction{ID: "t2", PaymentID: "P2", AmountCents: 5, Status: model.SandboxDeclined}
		again := charged
		again.AmountCents, again.Status = 7, model.SandboxDeclined // the provider has it already
		for _, c := range []model.SandboxTransaction{charged, declined, again} {
			if err := d.SandboxCharge(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		wantUnreported := func(limit int, want ...model.SandboxTransaction) {
			t.Helper()
			got, err := d.SandboxUnreported(t.Context(), limit)
			if err != nil || len(got) != len(want) {
				t.Fatalf("unreported are %+v, %v, want %+v", got, err, want)
			}
			for i := range got {
				if got[i] != want[i] {
					t.Errorf("unreported is %+v, want %+v", got[i], want[i])
				}
			}
		}
		wantUnreported(9, charged, declined)
		wantUnreported(1, charged)
		if err := d.SandboxReported(t.Context(), "t1"); err != nil {
			t.Fatal(err)
		}
		wantUnreported(9, declined)
		unheard := model.SandboxTransaction{ID: "t3", PaymentID: "P3", AmountCents: 8, Status: model.SandboxDeclined}
		for _, step := range []struct {
			name string
			txn  model.SandboxTransaction
			want model.SandboxStatus
		}{
			{"a charged one", charged, model.SandboxRefunded},
			{"the same again", charged, model.SandboxRefunded},
			{"a declined one has no money to send back", declined, model.SandboxDeclined},
			{"one that came by hand counts as charged", unheard, model.SandboxRefunded},
		} {
			t.Run(step.name, func(t *testing.T) {
				if err := d.SandboxRefund(t.Context(), step.txn); err != nil {
					t.Fatal(err)
				}
				n := d.count(t, "SELECT COUNT(*) FROM sandbox_transactions WHERE txn_id = ? AND payment_id = ? AND amount_cents = ? AND status = ?",
					step.txn.ID, step.txn.PaymentID, step.txn.AmountCents, string(step.want))
				if n != 1 {
					t.Errorf("%d rows of it are %s", n, step.want)
				}
			})
		}
		wantUnreported(9, declined) // what is refunded needs no report
	})
}
