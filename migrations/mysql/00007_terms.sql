-- +goose Up
ALTER TABLE sales
  -- What buyers see of the stock: exact, few or none.
  ADD COLUMN stock_shown VARCHAR(8) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT 'exact';

-- +goose Down
ALTER TABLE sales DROP COLUMN stock_shown;
