-- +goose Up
-- Figures of a sale in the bucket of time that begins at at_ms: of a verdict, the requests that all instances have counted in the
-- bucket; of available, held and paid, the units that were seen there last, in buckets in which the stock changed.
CREATE TABLE series (
  sale_id CHAR(16)    CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  at_ms   BIGINT      NOT NULL,
  figure  VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  value   BIGINT      NOT NULL,
  PRIMARY KEY (sale_id, at_ms, figure)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

-- +goose Down
DROP TABLE series;
