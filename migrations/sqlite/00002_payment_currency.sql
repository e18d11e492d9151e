-- +goose Up
-- The currency of amount_cents. NULL in rows from before this step: the order's.
ALTER TABLE payments ADD COLUMN currency TEXT NULL;

-- +goose Down
ALTER TABLE payments DROP COLUMN currency;
