package repository

import (
	"context"

	"flashsale/model"
)

// The methods in this file keep the books of the sandbox payment provider, which nothing else in the engine reads.

// SandboxCharge records a transaction whose callback is still to be delivered, unless it is recorded already.
func (s *Store) SandboxCharge(ctx context.Context, t model.SandboxTransaction) error {
	return s.update(ctx, "note a sandbox charge", s.insertIgnore()+
		" INTO sandbox_transactions (txn_id, payment_id, amount_cents, status, reported) VALUES (?, ?, ?, ?, 0)",
		t.ID, t.PaymentID, t.AmountCents, string(t.Status))
}

// SandboxUnreported lists at most "limit" transactions whose callback is still to be delivered, in the order of their ids. It
// lists only ids greater than "after".
func (s *Store) SandboxUnreported(ctx context.Context, after string, limit int) ([]model.SandboxTransaction, error) {
	return scan(s.read.WithContext(ctx), "list sandbox transactions", func(t *model.SandboxTransaction) []any {
		return []any{&t.ID, &t.PaymentID, &t.AmountCents, &t.Status}
	}, "SELECT txn_id, payment_id, amount_cents, status FROM sandbox_transactions WHERE reported = 0 AND txn_id > ? ORDER BY txn_id LIMIT ?", after, limit)
}

// SandboxReported records that the merchant has accepted a transaction's callback, or has refused it for good.
func (s *Store) SandboxReported(ctx context.Context, txnID string) error {
	return s.update(ctx, "note a sandbox report", "UPDATE sandbox_transactions SET reported = 1 WHERE txn_id = ?", txnID)
}

// SandboxRefund refunds a transaction, at most once. A transaction that is not recorded yet, because its callback was
// made by hand, is first recorded as charged.
func (s *Store) SandboxRefund(ctx context.Context, t model.SandboxTransaction) error {
	t.Status = model.SandboxCharged
	if err := s.SandboxCharge(ctx, t); err != nil {
		return err
	}
	return s.update(ctx, "refund a sandbox transaction", "UPDATE sandbox_transactions SET status = ?, reported = 1 WHERE txn_id = ? AND status = ?",
		string(model.SandboxRefunded), t.ID, string(model.SandboxCharged))
}
