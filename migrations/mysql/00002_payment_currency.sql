-- +goose Up
-- The currency of amount_cents. NULL, in rows from before this step, means the currency of the order.
ALTER TABLE payments ADD COLUMN currency VARCHAR(8) CHARACTER SET ascii COLLATE ascii_bin NULL;

-- +goose Down
ALTER TABLE payments DROP COLUMN currency;
