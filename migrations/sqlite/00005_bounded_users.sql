-- +goose Up
-- What one user does must not cost the others: a page of a user's orders is read in the order of the list, and the
-- orders that a user has cancelled in a sale are counted. orders_due also holds the sale, since the expirer passes over
-- the orders of sales in trouble. The twin of the MySQL file of the same number.
CREATE INDEX orders_user ON orders (user_id, created_at_ms, id);
DROP INDEX orders_due;
CREATE INDEX orders_due ON orders (status, expires_at_ms, sale_id);
ALTER TABLE buyers ADD COLUMN cancelled INTEGER NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE buyers DROP COLUMN cancelled;
DROP INDEX orders_due;
CREATE INDEX orders_due ON orders (status, expires_at_ms);
DROP INDEX orders_user;
