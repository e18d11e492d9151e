-- +goose Up
-- +goose StatementBegin
-- What buyers see of the stock: exact, few or none.
ALTER TABLE sales ADD COLUMN stock_shown TEXT NOT NULL DEFAULT 'exact';
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
ALTER TABLE sales DROP COLUMN stock_shown;
-- +goose StatementEnd
