-- +goose Up
-- What operators have set of the shop, in one row: what buyers' pages show of it. Empty texts are not set.
CREATE TABLE shop (
  id          INTEGER NOT NULL PRIMARY KEY,
  name        TEXT    NOT NULL DEFAULT '',
  logo_url    TEXT    NOT NULL DEFAULT '',
  color       TEXT    NOT NULL DEFAULT '',
  home_url    TEXT    NOT NULL DEFAULT '',
  terms_url   TEXT    NOT NULL DEFAULT '',
  privacy_url TEXT    NOT NULL DEFAULT '',
  imprint_url TEXT    NOT NULL DEFAULT '',
  small_print TEXT    NOT NULL DEFAULT ''
) STRICT;
INSERT INTO shop (id) VALUES (1);

-- +goose Down
DROP TABLE shop;
