-- +goose Up
-- What operators have set of the shop, in one row: what buyers' pages show of it. Empty texts are not set.
CREATE TABLE shop (
  id          TINYINT      NOT NULL PRIMARY KEY,
  name        VARCHAR(60)  CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
  logo_url    VARCHAR(500) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
  color       CHAR(7)      CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
  home_url    VARCHAR(500) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
  terms_url   VARCHAR(500) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
  privacy_url VARCHAR(500) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
  imprint_url VARCHAR(500) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
  small_print VARCHAR(500) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT ''
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
INSERT INTO shop (id) SELECT 1 FROM DUAL WHERE NOT EXISTS (SELECT * FROM shop);

-- +goose Down
DROP TABLE shop;
