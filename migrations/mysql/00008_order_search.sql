-- +goose Up
-- When the order was cancelled, expired or was refunded. NULL: it was not, or by a version before this step.
ALTER TABLE orders ADD COLUMN ended_at_ms BIGINT NULL;
-- Support looks for a payment by what the provider calls it, whichever provider that is.
ALTER TABLE payments
  DROP KEY payments_transaction,
  ADD UNIQUE KEY payments_transaction (provider_txn_id, provider),
  ADD KEY payments_reference (reference);

-- +goose Down
ALTER TABLE payments
  DROP KEY payments_reference,
  DROP KEY payments_transaction,
  ADD UNIQUE KEY payments_transaction (provider, provider_txn_id);
ALTER TABLE orders DROP COLUMN ended_at_ms;
