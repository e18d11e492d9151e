-- +goose Up
-- Figures of a sale in the bucket of time that begins at at_ms: of a verdict, the requests that all instances have counted in the
-- bucket; of available, held and paid, the units that were seen there last, in buckets in which the stock changed.
CREATE TABLE series (
  sale_id TEXT    NOT NULL,
  at_ms   INTEGER NOT NULL,
  figure  TEXT    NOT NULL,
  value   INTEGER NOT NULL,
  PRIMARY KEY (sale_id, at_ms, figure)
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE series;
