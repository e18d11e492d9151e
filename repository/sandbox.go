package repository

import (
	"context"
	"fmt"

	"flashsale/model"
)

// The sandbox provider's books. They are a bank's: nothing else of the engine reads them.

// SandboxCharge notes a transaction that is still to be reported, unless the provider has it already.
func (s *Store) SandboxCharge(ctx context.Context, t model.SandboxTransaction) error {
	insert := "INSERT IGNORE"
	if s.sqlite {
		insert = "INSERT OR IGNORE"
	}
	err := s.write.WithContext(ctx).Exec(insert+" INTO sandbox_transactions (txn_id, payment_id, amount_cents, status, reported) VALUES (?, ?, ?, ?, 0)",
		t.ID, t.PaymentID, t.AmountCents, string(t.Status)).Error
	return wrap("note a sandbox charge", err)
}

// SandboxUnreported lists transactions whose callback has not been answered with success yet.
func (s *Store) SandboxUnreported(ctx context.Context, limit int) ([]model.SandboxTransaction, error) {
	var rows []struct {
		TxnID, PaymentID string
		AmountCents      int64
		Status           string
	}
	err := s.read.WithContext(ctx).Raw("SELECT txn_id, payment_id, amount_cents, status FROM sandbox_transactions WHERE reported = 0 LIMIT ?", limit).Scan(&rows).Error
	if err != nil {
		return nil, fmt.Errorf("list sandbox transactions: %w", err)
	}
	list := make([]model.SandboxTransaction, len(rows))
	for i, r := range rows {
		list[i] = model.SandboxTransaction{ID: r.TxnID, PaymentID: r.PaymentID, AmountCents: r.AmountCents, Status: model.SandboxStatus(r.Status)}
	}
	return list, nil
}

// SandboxReported notes that the merchant has taken a transaction's callback, or never will.
func (s *Store) SandboxReported(ctx context.Context, txnID string) error {
	return wrap("note a sandbox report", s.write.WithContext(ctx).Exec("UPDATE sandbox_transactions SET reported = 1 WHERE txn_id = ?", txnID).Error)
}

// SandboxRefund sends a transaction's money back, once. One that came by a callback which somebody made by hand
// counts as charged before.
func (s *Store) SandboxRefund(ctx context.Context, t model.SandboxTransaction) error {
	t.Status = model.SandboxCharged
	if err := s.SandboxCharge(ctx, t); err != nil {
		return err
	}
	err := s.write.WithContext(ctx).Exec("UPDATE sandbox_transactions SET status = ?, reported = 1 WHERE txn_id = ? AND status = ?",
		string(model.SandboxRefunded), t.ID, string(model.SandboxCharged)).Error
	return wrap("refund a sandbox transaction", err)
}
