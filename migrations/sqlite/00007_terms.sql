-- +goose Up
-- +goose StatementBegin
-- What buyers see of the stock: exact, few or none.
ALTER TABLE sales ADD COLUMN stock_shown TEXT NOT NULL DEFAULT 'exact';
-- An operator has changed the sale after its start, or shortly before, so that its terms stay even if the start is moved.
ALTER TABLE sales ADD COLUMN started INTEGER NOT NULL DEFAULT 0;
-- When an operator last changed the price or another of the terms, 0: never.
ALTER TABLE sales ADD COLUMN terms_at_ms INTEGER NOT NULL DEFAULT 0;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
ALTER TABLE sales DROP COLUMN stock_shown;
ALTER TABLE sales DROP COLUMN started;
ALTER TABLE sales DROP COLUMN terms_at_ms;
-- +goose StatementEnd
