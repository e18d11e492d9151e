-- +goose Up
-- In how many parts a sale's gate is.
ALTER TABLE sales
  ADD CONSTRAINT sales_parts CHECK (parts BETWEEN 1 AND 16),
  ADD COLUMN parts INT NOT NULL DEFAULT 1;

-- +goose Down
ALTER TABLE sales
  DROP CONSTRAINT sales_parts,
  DROP COLUMN parts;
