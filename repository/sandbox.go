package repository

import (
	"context"

	"flashsale/model"
)

// The methods in this file keep the books of the sandbox payment provider.

// SandboxCharge records a transaction whose callback is not delivered yet, unless the transaction is recorded already.
func (s *Store) SandboxCharge(ctx context.Context, t model.SandboxTransaction) error {
	return s.update(ctx, "note a sandbox charge", s.insertIgnore()+
		" INTO sandbox_transactions (txn_id, payment_id, amount_cents, status, reported) VALUES (?, ?, ?, ?, 0)",
		t.ID, t.PaymentID, t.AmountCents, string(t.Status))
}

// SandboxUnreported lists transactions whose callback is not delivered yet, with ids greater than "after", in the order of their
// ids, at most "limit" of them.
func (s *Store) SandboxUnreported(ctx context.Context, after string, limit int) ([]model.SandboxTransaction, error) {
	return scan(s.read.WithContext(ctx), "list sandbox transactions", func(t *model.SandboxTransaction) []any {
		return []any{&t.ID, &t.PaymentID, &t.AmountCents, &t.Status}
	}, "SELECT txn_id, payment_id, amount_cents, status FROM sandbox_transactions WHERE reported = 0 AND txn_id > ? ORDER BY txn_id LIMIT ?", after, limit)
}

// SandboxReported records that a transaction's callback needs no further delivery.
func (s *Store) SandboxReported(ctx context.Context, txnID string) error {
	return s.update(ctx, "note a sandbox report", "UPDATE sandbox_transactions SET reported = 1 WHERE txn_id = ?", txnID)
}

// SandboxRefund marks a charged transaction as refunded. A transaction that is not recorded yet is recorded as charged first.
func (s *Store) SandboxRefund(ctx context.Context, t model.SandboxTransaction) error {
	t.Status = model.SandboxCharged
	if err := s.SandboxCharge(ctx, t); err != nil {
		return err
	}
	return s.update(ctx, "refund a sandbox transaction", "UPDATE sandbox_transactions SET status = ?, reported = 1 WHERE txn_id = ? AND status = ?",
		string(model.SandboxRefunded), t.ID, string(model.SandboxCharged))
}
