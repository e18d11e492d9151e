-- +goose Up
-- +goose StatementBegin
-- What buyers see of the stock: exact, few or none.
ALTER TABLE sales ADD COLUMN stock_shown TEXT NOT NULL DEFAULT 'exact';
-- An operator has changed the sale after its start, so that the sale may have orders even if its start is to come again.
ALTER TABLE sales ADD COLUMN started INTEGER NOT NULL DEFAULT 0;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
ALTER TABLE sales DROP COLUMN stock_shown;
ALTER TABLE sales DROP COLUMN started;
-- +goose StatementEnd
