-- +goose Up
-- The currency of amount_cents. NULL in rows from before this step: the order's.
ALTER TABLE payments ADD COLUMN currency VARCHAR(8) CHARACTER SET ascii COLLATE ascii_bin NULL;

-- +goose Down
ALTER TABLE payments DROP COLUMN currency;
