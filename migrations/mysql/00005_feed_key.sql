-- +goose Up
-- Some servers refuse tables without a primary key. Where the first step has made the column, this statement is passed over.
ALTER TABLE event_feed ADD COLUMN id TINYINT NOT NULL DEFAULT 1 PRIMARY KEY FIRST;

-- +goose Down
-- The column stays: nothing in the engine names it, and a server may refuse to drop it.
DO 0;
