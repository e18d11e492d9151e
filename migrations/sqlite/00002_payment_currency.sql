-- +goose Up
-- The currency of amount_cents. NULL, in rows from before this step, means the currency of the order.
ALTER TABLE payments ADD COLUMN currency TEXT NULL;

-- +goose Down
ALTER TABLE payments DROP COLUMN currency;
