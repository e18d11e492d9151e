-- +goose Up
-- As on MySQL, where some servers refuse tables without a primary key.
CREATE TABLE event_feed_keyed (
  id   INTEGER NOT NULL DEFAULT 1 PRIMARY KEY,
  last INTEGER NOT NULL
) STRICT;
INSERT INTO event_feed_keyed (last) SELECT last FROM event_feed;
DROP TABLE event_feed;
ALTER TABLE event_feed_keyed RENAME TO event_feed;

-- +goose Down
-- The column stays: nothing in the engine names it.
SELECT 0;
