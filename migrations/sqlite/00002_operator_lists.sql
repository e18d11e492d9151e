-- +goose Up
-- What operators look at: the orders of a sale, the newest first, all of them or those in one status. The index for a
-- status takes the place of orders_sale, since it also holds what the books sum up. The twin of the MySQL file of the
-- same number.

CREATE INDEX orders_newest ON orders (sale_id, created_at_ms, id);
CREATE INDEX orders_status ON orders (sale_id, status, created_at_ms, id, quantity);
DROP INDEX orders_sale;

-- +goose Down
CREATE INDEX orders_sale ON orders (sale_id, status, quantity);
DROP INDEX orders_status;
DROP INDEX orders_newest;
