-- +goose Up
-- +goose StatementBegin
-- The operator has stopped the line, by a pause or a later start: nobody is called, and no call ends, until the line goes on.
ALTER TABLE sale_lines ADD COLUMN stopped INTEGER NOT NULL DEFAULT 0;
-- The most units that one entry gets in a draw, fixed at the seal like draw_units; 0: as many as it wants.
ALTER TABLE sale_lines ADD COLUMN draw_limit INTEGER NOT NULL DEFAULT 0;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
ALTER TABLE sale_lines DROP COLUMN stopped;
ALTER TABLE sale_lines DROP COLUMN draw_limit;
-- +goose StatementEnd
