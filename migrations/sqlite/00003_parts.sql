-- +goose Up
-- In how many parts a sale's gate is. The twin of the MySQL file of the same number.
ALTER TABLE sales ADD COLUMN parts INTEGER
  CONSTRAINT sales_parts CHECK (parts BETWEEN 1 AND 16)
  NOT NULL DEFAULT 1;

-- +goose Down
ALTER TABLE sales DROP COLUMN parts;
