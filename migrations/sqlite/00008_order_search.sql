-- +goose Up
-- When the order was cancelled, expired or was refunded. NULL: it was not, or by a version before this step.
ALTER TABLE orders ADD COLUMN ended_at_ms INTEGER NULL;
-- Support looks for a payment by what the provider calls it, whichever provider that is.
DROP INDEX payments_transaction;
CREATE UNIQUE INDEX payments_transaction ON payments (provider_txn_id, provider);
CREATE INDEX payments_reference ON payments (reference);

-- +goose Down
DROP INDEX payments_reference;
DROP INDEX payments_transaction;
CREATE UNIQUE INDEX payments_transaction ON payments (provider, provider_txn_id);
ALTER TABLE orders DROP COLUMN ended_at_ms;
