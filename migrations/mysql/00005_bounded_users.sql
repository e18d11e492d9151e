-- +goose Up
-- What one user does must not cost the others: a page of a user's orders is read in the order of the list, and the
-- orders that a user has cancelled in a sale are counted. orders_due also holds the sale, since the expirer passes over
-- the orders of sales in trouble.
ALTER TABLE orders
  ADD KEY orders_user (user_id, created_at_ms, id),
  DROP KEY orders_due,
  ADD KEY orders_due (status, expires_at_ms, sale_id);
ALTER TABLE buyers ADD COLUMN cancelled INT NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE buyers DROP COLUMN cancelled;
ALTER TABLE orders
  DROP KEY orders_due,
  ADD KEY orders_due (status, expires_at_ms),
  DROP KEY orders_user;
