-- +goose Up
-- What a sale's gate has to be told: units that were sold, given back, taken again or added without it. The row is
-- written by the transaction that moves the units, so no crash loses the news, and deleted when the gate has it.

CREATE TABLE gate_changes (
  sale_id  CHAR(16)    CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  version  BIGINT      NOT NULL,
  order_id VARCHAR(48) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  units    BIGINT      NOT NULL,
  sold     TINYINT     NOT NULL,
  PRIMARY KEY (sale_id, version, order_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

-- gate_version: the version of the newest such change. wrong_epoch: gates up to this epoch admitted more than the stock.
ALTER TABLE stock
  ADD COLUMN gate_version BIGINT NOT NULL DEFAULT 0,
  ADD COLUMN wrong_epoch  BIGINT NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE stock
  DROP COLUMN wrong_epoch,
  DROP COLUMN gate_version;
DROP TABLE gate_changes;
