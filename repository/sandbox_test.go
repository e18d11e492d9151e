package repository

import (
	"testing"

	"flashsale/model"
	"flashsale/test/kit/check"
)

func TestSandboxBooks(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		charged := model.SandboxTransaction{ID: "t1", PaymentID: "P1", AmountCents: 1990, Status: model.SandboxCharged}
		declined := model.SandboxTransaction{ID: "t2", PaymentID: "P2", AmountCents: 5, Status: model.SandboxDeclined}
		again := charged
		again.AmountCents, again.Status = 7, model.SandboxDeclined // ignored, since transaction t1 is recorded
		for _, c := range []model.SandboxTransaction{charged, declined, again} {
			check.NoError(t, d.SandboxCharge(t.Context(), c))
		}
		wantUnreported := func(limit int, want ...model.SandboxTransaction) {
			t.Helper()
			got, err := d.SandboxUnreported(t.Context(), "", limit)
			check.NoError(t, err)
			check.Same(t, "transactions that are not reported", got, want)
		}
		wantUnreported(9, charged, declined)
		wantUnreported(1, charged)
		behind, err := d.SandboxUnreported(t.Context(), "t1", 9)
		check.Same(t, "behind the first", []any{behind, err}, []any{[]model.SandboxTransaction{declined}, nil})
		check.NoError(t, d.SandboxReported(t.Context(), "t1"))
		wantUnreported(9, declined)
		byHand := model.SandboxTransaction{ID: "t3", PaymentID: "P3", AmountCents: 8, Status: model.SandboxDeclined}
		for _, step := range []struct {
			name string
			txn  model.SandboxTransaction
			want model.SandboxStatus
		}{
			{"a charged transaction", charged, model.SandboxRefunded},
			{"the same transaction again", charged, model.SandboxRefunded},
			{"a declined transaction has no money to refund", declined, model.SandboxDeclined},
			{"an unknown transaction counts as charged", byHand, model.SandboxRefunded},
		} {
			check.NoError(t, d.SandboxRefund(t.Context(), step.txn))
			rows := d.count(t, `SELECT COUNT(*) FROM sandbox_transactions
				WHERE txn_id = ? AND payment_id = ? AND amount_cents = ? AND status = ?`,
				step.txn.ID, step.txn.PaymentID, step.txn.AmountCents, string(step.want))
			check.Same(t, "rows of "+step.name, rows, 1)
		}
		wantUnreported(9, declined) // a refunded transaction needs no report
	})
}
