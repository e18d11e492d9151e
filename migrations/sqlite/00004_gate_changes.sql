-- +goose Up
-- What a sale's gate has to be told: units that were sold, given back, taken again or added without it. The twin of the
-- MySQL file of the same number.

CREATE TABLE gate_changes (
  sale_id  TEXT    NOT NULL,
  version  INTEGER NOT NULL,
  order_id TEXT    NOT NULL,
  units    INTEGER NOT NULL,
  sold     INTEGER NOT NULL,
  PRIMARY KEY (sale_id, version, order_id)
) STRICT, WITHOUT ROWID;

ALTER TABLE stock ADD COLUMN gate_version INTEGER NOT NULL DEFAULT 0;
ALTER TABLE stock ADD COLUMN wrong_epoch INTEGER NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE stock DROP COLUMN wrong_epoch;
ALTER TABLE stock DROP COLUMN gate_version;
DROP TABLE gate_changes;
