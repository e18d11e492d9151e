-- +goose Up
ALTER TABLE sales
  -- What buyers see of the stock: exact, few or none.
  ADD COLUMN stock_shown VARCHAR(8) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT 'exact',
  -- An operator has changed the sale after its start, so that the sale may have orders even if its start is to come again.
  ADD COLUMN started     TINYINT NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE sales DROP COLUMN stock_shown, DROP COLUMN started;
