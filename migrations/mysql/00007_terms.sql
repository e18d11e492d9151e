-- +goose Up
ALTER TABLE sales
  -- What buyers see of the stock: exact, few or none.
  ADD COLUMN stock_shown VARCHAR(8) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT 'exact',
  -- An operator has changed the sale after its start, or shortly before, so that its terms stay even if the start is moved.
  ADD COLUMN started     TINYINT NOT NULL DEFAULT 0,
  -- When an operator last changed the price or another of the terms, 0: never.
  ADD COLUMN terms_at_ms BIGINT  NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE sales DROP COLUMN stock_shown, DROP COLUMN started, DROP COLUMN terms_at_ms;
