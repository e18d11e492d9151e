-- +goose Up
-- +goose StatementBegin
-- Times are milliseconds since 1970 in UTC, money is in cents. Identifiers compare byte by byte, as they do in Redis.
-- The tables, columns, keys and checks are those of the MySQL file of the same number. Only event_feed gets its id in step 5.

CREATE TABLE sales (
  id                   TEXT    NOT NULL PRIMARY KEY,
  code                 TEXT    NOT NULL,
  title                TEXT    NOT NULL,
  description          TEXT    NOT NULL,
  image_url            TEXT    NOT NULL,
  price_cents          INTEGER NOT NULL,
  original_price_cents INTEGER NOT NULL,
  currency             TEXT    NOT NULL,
  limit_per_user       INTEGER NOT NULL,
  pay_timeout_seconds  INTEGER NOT NULL,
  starts_at_ms         INTEGER NOT NULL,
  ends_at_ms           INTEGER NOT NULL,
  status               TEXT    NOT NULL,
  revision             INTEGER NOT NULL,
  created_at_ms        INTEGER NOT NULL,
  shards                INTEGER NOT NULL DEFAULT 1,
  -- Of a sale that belongs to a campaign: the campaign, what is different in this sale, for example the size, and
  -- its place in the list of the campaign's sales.
  campaign_id          TEXT    NULL,
  variant              TEXT    NOT NULL DEFAULT '',
  place                INTEGER NOT NULL DEFAULT 0,
  CONSTRAINT sales_price CHECK (price_cents >= 0 AND original_price_cents >= 0),
  CONSTRAINT sales_limits CHECK (limit_per_user > 0 AND pay_timeout_seconds > 0),
  CONSTRAINT sales_window CHECK (ends_at_ms > starts_at_ms),
  CONSTRAINT sales_shards CHECK (shards BETWEEN 1 AND 16)
) STRICT;
CREATE UNIQUE INDEX sales_code ON sales (code);
CREATE UNIQUE INDEX sales_variant ON sales (campaign_id, variant);
CREATE INDEX sales_ends_at ON sales (ends_at_ms);
CREATE INDEX sales_created_at ON sales (created_at_ms);

CREATE TABLE campaigns (
  -- Of all sales, only the one that has the campaign's line has the same id. In the table buyers, the id stands as that of a sale.
  id             TEXT    NOT NULL PRIMARY KEY,
  title          TEXT    NOT NULL,
  description    TEXT    NOT NULL,
  image_url      TEXT    NOT NULL,
  -- The units that a user may have over all sales of the campaign.
  limit_per_user INTEGER NOT NULL,
  created_at_ms  INTEGER NOT NULL,
  CONSTRAINT campaigns_limit CHECK (limit_per_user > 0)
) STRICT;
CREATE INDEX campaigns_created_at ON campaigns (created_at_ms);

CREATE TABLE stock (
  sale_id              TEXT    NOT NULL PRIMARY KEY,
  quota                INTEGER NOT NULL,
  available            INTEGER NOT NULL,
  -- Units that belong to the line: those that are not called, and those behind calls.
  reserved             INTEGER NOT NULL DEFAULT 0,
  called               INTEGER NOT NULL DEFAULT 0,
  held                 INTEGER NOT NULL,
  paid                 INTEGER NOT NULL,
  version              INTEGER NOT NULL,
  epoch                INTEGER NOT NULL,
  epoch_at_ms          INTEGER NOT NULL,
  -- The version as of the newest change that did not go through the gate.
  gate_version         INTEGER NOT NULL DEFAULT 0,
  -- A gate of this epoch or an older one is replaced, because it admitted more units than the stock had.
  wrong_epoch          INTEGER NOT NULL DEFAULT 0,
  -- A number that changes whenever an operator changes the sale.
  terms                INTEGER NOT NULL DEFAULT 0,
  -- Until then, instances may refuse requests on the sold-out sale from memory, so no units come back.
  refusing_until_ms    INTEGER NOT NULL DEFAULT 0,
  -- When a return of units was last announced, so that no instance begins to refuse from memory.
  returning_at_ms      INTEGER NOT NULL DEFAULT 0,
  -- Where units go that come back: 0 to all; 1 to all, until the sale is sold out; 2 to the line.
  lined                INTEGER NOT NULL DEFAULT 0,
  -- The calls that became orders, and those that ended without one, for the no-show rate.
  spent_calls          INTEGER NOT NULL DEFAULT 0,
  lapsed_calls         INTEGER NOT NULL DEFAULT 0,
  CONSTRAINT stock_not_negative CHECK (available >= 0 AND reserved >= 0 AND called >= 0 AND held >= 0 AND paid >= 0),
  CONSTRAINT stock_conserved CHECK (available + reserved + called + held + paid = quota),
  CONSTRAINT stock_lined CHECK (lined < 2 OR available = 0)
) STRICT;

CREATE TABLE orders (
  -- Ids are random: by id, new rows and new keys of the indexes would be spread all over. By this number they are neighbours.
  number               INTEGER NOT NULL PRIMARY KEY,
  -- Derived from the user, the sale and the idempotency key, so the id is unique for these three.
  id                   TEXT    NOT NULL,
  sale_id              TEXT    NOT NULL,
  user_id              TEXT    NOT NULL,
  quantity             INTEGER NOT NULL,
  amount_cents         INTEGER NOT NULL,
  currency             TEXT    NOT NULL,
  status               TEXT    NOT NULL,
  source               TEXT    NOT NULL,
  epoch                INTEGER NOT NULL,
  idempotency_key          TEXT    NOT NULL,
  created_at_ms        INTEGER NOT NULL,
  expires_at_ms        INTEGER NOT NULL,
  paid_at_ms           INTEGER NULL,
  CONSTRAINT orders_quantity CHECK (quantity > 0)
) STRICT;
CREATE UNIQUE INDEX orders_id ON orders (id);
-- The expirer leaves out sales whose orders can't expire, so this index includes the sale.
CREATE INDEX orders_due ON orders (status, expires_at_ms, sale_id);
-- For an operator's list of a sale's orders. With the quantity, this index also covers sums of units by status.
CREATE INDEX orders_status ON orders (sale_id, status, number, quantity);
-- For a user's list of orders.
CREATE INDEX orders_user ON orders (user_id, number);

CREATE TABLE refusals (
  order_id             TEXT    NOT NULL PRIMARY KEY,
  sale_id              TEXT    NOT NULL,
  user_id              TEXT    NOT NULL,
  quantity             INTEGER NOT NULL,
  reason               TEXT    NOT NULL,
  created_at_ms        INTEGER NOT NULL
) STRICT;
CREATE INDEX refusals_sale ON refusals (sale_id);

-- The units of each user in each sale, and in each campaign over all of its sales.
CREATE TABLE buyers (
  sale_id              TEXT    NOT NULL,
  user_id              TEXT    NOT NULL,
  units                INTEGER NOT NULL,
  cancelled            INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (sale_id, user_id),
  CONSTRAINT buyers_not_negative CHECK (units >= 0)
) STRICT;

-- Changes that a sale's gate has to be told: units that were sold, released, taken again or added without the gate. The
-- transaction that moves the units also writes the row, so that no crash loses it. The row is deleted after the gate
-- has applied the change.
CREATE TABLE gate_changes (
  sale_id              TEXT    NOT NULL,
  version              INTEGER NOT NULL,
  order_id             TEXT    NOT NULL,
  units                INTEGER NOT NULL,
  sold                 INTEGER NOT NULL,
  PRIMARY KEY (sale_id, version, order_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE payments (
  id                   TEXT    NOT NULL PRIMARY KEY,
  order_id             TEXT    NOT NULL,
  provider             TEXT    NOT NULL,
  reference            TEXT    NULL,
  provider_txn_id      TEXT    NULL,
  amount_cents         INTEGER NOT NULL,
  status               TEXT    NOT NULL,
  created_at_ms        INTEGER NOT NULL,
  expires_at_ms        INTEGER NOT NULL,
  look_at_ms           INTEGER NULL
) STRICT;
CREATE UNIQUE INDEX payments_transaction ON payments (provider, provider_txn_id);
CREATE INDEX payments_order ON payments (order_id);
CREATE INDEX payments_status ON payments (status, created_at_ms);
CREATE INDEX payments_look ON payments (look_at_ms);

-- The sandbox payment provider's own books, which a bank would keep for a real provider.
CREATE TABLE sandbox_transactions (
  txn_id               TEXT    NOT NULL PRIMARY KEY,
  payment_id           TEXT    NOT NULL,
  amount_cents         INTEGER NOT NULL,
  status               TEXT    NOT NULL,
  reported             INTEGER NOT NULL
) STRICT;
CREATE INDEX sandbox_unreported ON sandbox_transactions (reported);

CREATE TABLE users (
  id                   TEXT    NOT NULL PRIMARY KEY,
  name                 TEXT    NOT NULL,
  password_hash        TEXT    NOT NULL,
  role                 TEXT    NOT NULL,
  created_at_ms        INTEGER NOT NULL,
  -- When a key was last used, to about a minute.
  used_at_ms           INTEGER
) STRICT;
CREATE UNIQUE INDEX users_name ON users (name);
-- For the list of the staff, who are few among all users.
CREATE INDEX users_role ON users (role);

-- The log of operators' actions, and of what the engine found wrong or repaired by itself.
CREATE TABLE audit_log (
  id                   INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
  at_ms                INTEGER NOT NULL,
  actor                TEXT    NOT NULL,
  action               TEXT    NOT NULL,
  subject              TEXT    NOT NULL,
  detail               TEXT    NOT NULL
) STRICT;
CREATE INDEX audit_log_subject ON audit_log (subject, id);

-- The results of rehearsals. Preflight compares a plan with them.
CREATE TABLE rehearsals (
  id                   INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
  at_ms                INTEGER NOT NULL,
  version              TEXT    NOT NULL,
  verdict              TEXT    NOT NULL,
  buyers               INTEGER NOT NULL,
  units                INTEGER NOT NULL,
  per_second           INTEGER NOT NULL,
  -- As JSON, without the arrivals of each second.
  report               TEXT    NOT NULL
) STRICT;

CREATE TABLE leases (
  name                 TEXT    NOT NULL PRIMARY KEY,
  holder               TEXT    NOT NULL,
  until_ms             INTEGER NOT NULL
) STRICT;

-- Keys that must be kept as long as the data. The only one is the key with which the ids of orders are derived.
CREATE TABLE data_keys (
  name                 TEXT    NOT NULL PRIMARY KEY,
  value                TEXT    NOT NULL
) STRICT;

-- What other systems hear of. A row is the events of one type in one transaction: see repository/events.go.
CREATE TABLE events (
  id        INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
  -- The place of the last of these events in the feed, given after the commit.
  last      INTEGER NULL,
  type      TEXT    NOT NULL,
  at_ms     INTEGER NOT NULL,
  events    INTEGER NOT NULL,
  ids       TEXT    NOT NULL,
  -- The type and the sale of an event that is recorded only once for a sale.
  only_once TEXT    NULL
) STRICT;
CREATE INDEX events_last ON events (last);
CREATE UNIQUE INDEX events_once ON events (only_once);

-- The number of the last event in the feed, in one row. Whoever gives numbers locks the row.
CREATE TABLE event_feed (
  last INTEGER NOT NULL
) STRICT;
INSERT INTO event_feed (last) VALUES (0);

-- URLs to which events are sent.
CREATE TABLE endpoints (
  id               TEXT    NOT NULL PRIMARY KEY,
  url              TEXT    NOT NULL,
  rate             INTEGER NOT NULL,
  state            TEXT    NOT NULL,
  reason           TEXT    NOT NULL,
  -- Sealed with a key from --secret.
  secret           TEXT    NOT NULL,
  old_secret       TEXT    NOT NULL,
  old_until_ms     INTEGER NOT NULL,
  position         INTEGER NOT NULL,
  sending_to       INTEGER NOT NULL,
  tries            INTEGER NOT NULL,
  failing_since_ms INTEGER NOT NULL,
  next_at_ms       INTEGER NOT NULL,
  leased_until_ms  INTEGER NOT NULL,
  created_at_ms    INTEGER NOT NULL
) STRICT;

CREATE TABLE deliveries (
  id          INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
  endpoint_id TEXT    NOT NULL,
  first       INTEGER NOT NULL,
  last        INTEGER NOT NULL,
  at_ms       INTEGER NOT NULL,
  took_ms     INTEGER NOT NULL,
  status      INTEGER NOT NULL,
  answer      TEXT    NOT NULL
) STRICT;
CREATE INDEX deliveries_endpoint ON deliveries (endpoint_id, id);

-- The lines of sales: those of the modes line and draw, and waiting lists.
CREATE TABLE sale_lines (
  sale_id       TEXT    NOT NULL PRIMARY KEY,
  mode          TEXT    NOT NULL,
  entries_at_ms INTEGER NOT NULL,
  call_seconds  INTEGER NOT NULL,
  waiting_list  INTEGER NOT NULL,
  phase         TEXT    NOT NULL,
  -- The number of the next entry, the number of entries at the seal, and the lowest rank that was not called yet.
  entries       INTEGER NOT NULL,
  sealed        INTEGER NOT NULL,
  serving       INTEGER NOT NULL,
  -- When the first entry came, 0: there is none. The pace of a waiting list is reckoned from then.
  first_at_ms   INTEGER NOT NULL DEFAULT 0,
  -- The units that a draw has to give, fixed at the seal, and those that it has given so far.
  draw_units    INTEGER NOT NULL DEFAULT 0,
  drawn         INTEGER NOT NULL DEFAULT 0,
  -- The first rank that a draw passed over, because its quantity was larger than the units that were left.
  passed        INTEGER NULL,
  -- In hex. The secret becomes public with the seed, without entries with the root; the key of the leaves never does.
  secret        TEXT    NOT NULL,
  leaf_key      TEXT    NOT NULL,
  commitment    TEXT    NOT NULL,
  root          TEXT    NOT NULL,
  seed          TEXT    NOT NULL,
  -- The hashes that an entrant may have to compute, 0: none.
  entry_work    INTEGER NOT NULL,
  -- Whether the seed needs a round of the beacon; the round, 0 until it is named; and in hex what the round brought.
  beacon            INTEGER NOT NULL,
  beacon_round      INTEGER NOT NULL DEFAULT 0,
  beacon_signature  TEXT    NOT NULL DEFAULT '',
  beacon_randomness TEXT    NOT NULL DEFAULT '',
  -- When a caller last looked after the line. After an outage of all callers, calls end later by the time since then.
  seen_at_ms    INTEGER NOT NULL,
  CONSTRAINT sale_lines_beacon CHECK (beacon = 0 OR seed = '' OR beacon_randomness <> ''),
  CONSTRAINT sale_lines_order CHECK (sealed <= entries AND serving <= entries AND drawn <= draw_units AND call_seconds > 0)
) STRICT;

CREATE TABLE entries (
  sale_id       TEXT    NOT NULL,
  number        INTEGER NOT NULL,
  user_id       TEXT    NOT NULL,
  quantity      INTEGER NOT NULL,
  state         TEXT    NOT NULL,
  entered_at_ms INTEGER NOT NULL,
  PRIMARY KEY (sale_id, number)
) STRICT;
CREATE UNIQUE INDEX entries_user ON entries (sale_id, user_id);

-- The calls under way, each with its units, which stock.called counts.
CREATE TABLE calls (
  sale_id  TEXT    NOT NULL,
  number   INTEGER NOT NULL,
  user_id  TEXT    NOT NULL,
  units    INTEGER NOT NULL,
  until_ms INTEGER NOT NULL,
  PRIMARY KEY (sale_id, number),
  CONSTRAINT calls_units CHECK (units > 0)
) STRICT;
CREATE UNIQUE INDEX calls_user ON calls (sale_id, user_id);
CREATE INDEX calls_until ON calls (sale_id, until_ms);
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP TABLE calls;
DROP TABLE entries;
DROP TABLE sale_lines;
DROP TABLE deliveries;
DROP TABLE endpoints;
DROP TABLE event_feed;
DROP TABLE events;
DROP TABLE data_keys;
DROP TABLE leases;
DROP TABLE rehearsals;
DROP TABLE audit_log;
DROP TABLE users;
DROP TABLE sandbox_transactions;
DROP TABLE payments;
DROP TABLE gate_changes;
DROP TABLE buyers;
DROP TABLE refusals;
DROP TABLE orders;
DROP TABLE stock;
DROP TABLE campaigns;
DROP TABLE sales;
-- +goose StatementEnd
