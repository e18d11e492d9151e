-- +goose Up
-- What operators look at: the orders of a sale, the newest first, all of them or those in one status. The index for a
-- status takes the place of orders_sale, since it also holds what the books sum up.

ALTER TABLE orders
  ADD KEY orders_newest (sale_id, created_at_ms, id),
  ADD KEY orders_status (sale_id, status, created_at_ms, id, quantity),
  DROP KEY orders_sale;

-- +goose Down
ALTER TABLE orders
  ADD KEY orders_sale (sale_id, status, quantity),
  DROP KEY orders_status,
  DROP KEY orders_newest;
