-- +goose Up
-- +goose StatementBegin
ALTER TABLE sale_lines
  -- The operator has stopped the line, by a pause or a later start: nobody is called, and no call ends, until the line goes on.
  ADD COLUMN stopped    TINYINT NOT NULL DEFAULT 0,
  -- The most units that one entry gets in a draw, fixed at the seal like draw_units; 0: as many as it wants.
  ADD COLUMN draw_limit INT     NOT NULL DEFAULT 0;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
ALTER TABLE sale_lines DROP COLUMN stopped, DROP COLUMN draw_limit;
-- +goose StatementEnd
