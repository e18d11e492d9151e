-- +goose Up
-- Times are milliseconds since 1970 in UTC, money is in cents. Identifiers compare byte by byte, as they do in Redis.
-- There are no foreign keys, because each would lock a parent row for every order in a rush.

CREATE TABLE sales (
  id                   CHAR(16)      CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  code                 VARCHAR(16)   CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  title                VARCHAR(200)  NOT NULL,
  description          VARCHAR(2000) NOT NULL,
  image_url            VARCHAR(500)  NOT NULL,
  price_cents          BIGINT        NOT NULL,
  original_price_cents BIGINT        NOT NULL,
  currency             CHAR(3)       CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  limit_per_user       INT           NOT NULL,
  pay_timeout_seconds  INT           NOT NULL,
  starts_at_ms         BIGINT        NOT NULL,
  ends_at_ms           BIGINT        NOT NULL,
  status               VARCHAR(8)    CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  revision             BIGINT        NOT NULL,
  created_at_ms        BIGINT        NOT NULL,
  shards                INT           NOT NULL DEFAULT 1,
  -- Of a sale that belongs to a campaign: the campaign, what is different in this sale, for example the size, and
  -- its place in the list of the campaign's sales.
  campaign_id          CHAR(16)      CHARACTER SET ascii COLLATE ascii_bin NULL,
  variant              VARCHAR(60)   CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
  place                INT           NOT NULL DEFAULT 0,
  UNIQUE KEY sales_code (code),
  UNIQUE KEY sales_variant (campaign_id, variant),
  KEY sales_ends_at (ends_at_ms),
  KEY sales_created_at (created_at_ms),
  CONSTRAINT sales_price CHECK (price_cents >= 0 AND original_price_cents >= 0),
  CONSTRAINT sales_limits CHECK (limit_per_user > 0 AND pay_timeout_seconds > 0),
  CONSTRAINT sales_window CHECK (ends_at_ms > starts_at_ms),
  CONSTRAINT sales_shards CHECK (shards BETWEEN 1 AND 16)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

CREATE TABLE campaigns (
  -- Of all sales, only the one that has the campaign's line has the same id. In the table buyers, the id stands as that of a sale.
  id             CHAR(16)      CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  title          VARCHAR(200)  NOT NULL,
  description    VARCHAR(2000) NOT NULL,
  image_url      VARCHAR(500)  NOT NULL,
  -- The units that a user may have over all sales of the campaign.
  limit_per_user INT           NOT NULL,
  created_at_ms  BIGINT        NOT NULL,
  KEY campaigns_created_at (created_at_ms),
  CONSTRAINT campaigns_limit CHECK (limit_per_user > 0)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

CREATE TABLE stock (
  sale_id      CHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  quota        BIGINT   NOT NULL,
  available    BIGINT   NOT NULL,
  -- Units that belong to the line: those that are not called, and those behind calls.
  reserved     BIGINT   NOT NULL DEFAULT 0,
  called       BIGINT   NOT NULL DEFAULT 0,
  held         BIGINT   NOT NULL,
  paid         BIGINT   NOT NULL,
  version      BIGINT   NOT NULL,
  epoch        BIGINT   NOT NULL,
  epoch_at_ms  BIGINT   NOT NULL,
  -- The version as of the newest change that did not go through the gate.
  gate_version BIGINT   NOT NULL DEFAULT 0,
  -- A gate of this epoch or an older one is replaced, because it admitted more units than the stock had.
  wrong_epoch  BIGINT   NOT NULL DEFAULT 0,
  -- A number that changes whenever an operator changes the sale.
  terms        BIGINT   NOT NULL DEFAULT 0,
  -- Until then, instances may refuse requests on the sold-out sale from memory, so no units come back.
  refusing_until_ms BIGINT   NOT NULL DEFAULT 0,
  -- When a return of units was last announced, so that no instance begins to refuse from memory.
  returning_at_ms BIGINT   NOT NULL DEFAULT 0,
  -- Where units go that come back: 0 to all; 1 to all, until the sale is sold out; 2 to the line.
  lined        TINYINT  NOT NULL DEFAULT 0,
  -- The calls that became orders, and those that ended without one, for the no-show rate.
  spent_calls  BIGINT   NOT NULL DEFAULT 0,
  lapsed_calls BIGINT   NOT NULL DEFAULT 0,
  CONSTRAINT stock_not_negative CHECK (available >= 0 AND reserved >= 0 AND called >= 0 AND held >= 0 AND paid >= 0),
  CONSTRAINT stock_conserved CHECK (available + reserved + called + held + paid = quota),
  CONSTRAINT stock_lined CHECK (lined < 2 OR available = 0)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

CREATE TABLE orders (
  -- Ids are random: by id, new rows and new keys of the indexes would be spread all over. By this number they are neighbours.
  number        BIGINT       NOT NULL AUTO_INCREMENT PRIMARY KEY,
  -- Derived from the user, the sale and the idempotency key, so the id is unique for these three.
  id            CHAR(48)     CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  sale_id       CHAR(16)     CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  user_id       VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  quantity      INT          NOT NULL,
  amount_cents  BIGINT       NOT NULL,
  currency      CHAR(3)      CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  status        VARCHAR(9)   CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  source        VARCHAR(8)   CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  epoch         BIGINT       NOT NULL,
  idempotency_key   VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  created_at_ms BIGINT       NOT NULL,
  expires_at_ms BIGINT       NOT NULL,
  paid_at_ms    BIGINT       NULL,
  UNIQUE KEY orders_id (id),
  -- The expirer leaves out sales whose orders can't expire, so this key includes the sale.
  KEY orders_due (status, expires_at_ms, sale_id),
  -- For an operator's list of a sale's orders. With the quantity, this key also covers sums of units by status.
  KEY orders_status (sale_id, status, number, quantity),
  -- For a user's list of orders.
  KEY orders_user (user_id, number),
  CONSTRAINT orders_quantity CHECK (quantity > 0)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

CREATE TABLE refusals (
  order_id      CHAR(48)    CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  sale_id       CHAR(16)    CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  user_id       VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  quantity      INT         NOT NULL,
  reason        VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  created_at_ms BIGINT      NOT NULL,
  KEY refusals_sale (sale_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

-- The units of each user in each sale, and in each campaign over all of its sales.
CREATE TABLE buyers (
  sale_id   CHAR(16)    CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  user_id   VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  units     INT         NOT NULL,
  cancelled INT         NOT NULL DEFAULT 0,
  PRIMARY KEY (sale_id, user_id),
  CONSTRAINT buyers_not_negative CHECK (units >= 0)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

-- Changes that a sale's gate has to be told: units that were sold, released, taken again or added without the gate. The
-- transaction that moves the units also writes the row, so that no crash loses it. The row is deleted after the gate
-- has applied the change.
CREATE TABLE gate_changes (
  sale_id  CHAR(16)    CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  version  BIGINT      NOT NULL,
  order_id VARCHAR(48) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  units    BIGINT      NOT NULL,
  sold     TINYINT     NOT NULL,
  PRIMARY KEY (sale_id, version, order_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

CREATE TABLE payments (
  id              CHAR(26)    CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  order_id        CHAR(48)    CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  provider        VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  -- What the provider has opened for this payment, for example a checkout session.
  reference       VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NULL,
  provider_txn_id VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NULL,
  amount_cents    BIGINT      NOT NULL,
  status          VARCHAR(10) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  created_at_ms   BIGINT      NOT NULL,
  expires_at_ms   BIGINT      NOT NULL,
  -- When the provider is asked about the payment, while it is open.
  look_at_ms      BIGINT      NULL,
  UNIQUE KEY payments_transaction (provider, provider_txn_id),
  KEY payments_order (order_id),
  KEY payments_status (status, created_at_ms),
  KEY payments_look (look_at_ms)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

-- The sandbox payment provider's own books, which a bank would keep for a real provider.
CREATE TABLE sandbox_transactions (
  txn_id       VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  payment_id   CHAR(26)    CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  amount_cents BIGINT      NOT NULL,
  status       VARCHAR(8)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  reported     INT         NOT NULL,
  KEY sandbox_unreported (reported)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

CREATE TABLE users (
  id            VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  name          VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  password_hash VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  role          VARCHAR(8)   CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  created_at_ms BIGINT       NOT NULL,
  -- When a key was last used, to about a minute.
  used_at_ms    BIGINT       NULL,
  UNIQUE KEY users_name (name),
  -- For the list of the staff, who are few among all users.
  KEY users_role (role)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

-- The log of operators' actions, and of what the engine found wrong or repaired by itself.
CREATE TABLE audit_log (
  id      BIGINT        NOT NULL AUTO_INCREMENT PRIMARY KEY,
  at_ms   BIGINT        NOT NULL,
  actor   VARCHAR(64)   CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  action  VARCHAR(32)   CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  subject VARCHAR(64)   CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  detail  VARCHAR(1000) NOT NULL,
  KEY audit_log_subject (subject, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

-- The results of rehearsals. Preflight compares a plan with them.
CREATE TABLE rehearsals (
  id         BIGINT        NOT NULL AUTO_INCREMENT PRIMARY KEY,
  at_ms      BIGINT        NOT NULL,
  version    VARCHAR(64)   CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  verdict    VARCHAR(16)   CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  buyers     BIGINT        NOT NULL,
  units      BIGINT        NOT NULL,
  per_second BIGINT        NOT NULL,
  -- As JSON, without the arrivals of each second.
  report     TEXT          NOT NULL
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

CREATE TABLE leases (
  name     VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  holder   VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  until_ms BIGINT      NOT NULL
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

-- Keys that must be kept as long as the data. The only one is the key with which the ids of orders are derived.
CREATE TABLE data_keys (
  name  VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  value CHAR(64)    CHARACTER SET ascii COLLATE ascii_bin NOT NULL
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

-- What other systems hear of. A row is the events of one type in one transaction: see repository/events.go.
CREATE TABLE events (
  id        BIGINT      NOT NULL AUTO_INCREMENT PRIMARY KEY,
  -- The place of the last of these events in the feed, given after the commit.
  last      BIGINT      NULL,
  type      VARCHAR(20) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  at_ms     BIGINT      NOT NULL,
  events    INT         NOT NULL,
  ids       VARCHAR(30000) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  -- The type and the sale of an event that is recorded only once for a sale.
  only_once VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NULL,
  KEY events_last (last),
  UNIQUE KEY events_once (only_once)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

-- The number of the last event in the feed, in one row. Whoever gives numbers locks the row.
CREATE TABLE event_feed (
  id   TINYINT NOT NULL DEFAULT 1 PRIMARY KEY,
  last BIGINT  NOT NULL
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
INSERT INTO event_feed (last) SELECT 0 FROM DUAL WHERE NOT EXISTS (SELECT * FROM event_feed);

-- URLs to which events are sent.
CREATE TABLE endpoints (
  id               CHAR(16)      CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  url              VARCHAR(500)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  rate             INT           NOT NULL,
  state            VARCHAR(4)    CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  reason           VARCHAR(200)  NOT NULL,
  -- Sealed with a key from --secret.
  secret           VARCHAR(200)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  old_secret       VARCHAR(200)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  old_until_ms     BIGINT        NOT NULL,
  position         BIGINT        NOT NULL,
  sending_to       BIGINT        NOT NULL,
  tries            INT           NOT NULL,
  failing_since_ms BIGINT        NOT NULL,
  next_at_ms       BIGINT        NOT NULL,
  leased_until_ms  BIGINT        NOT NULL,
  created_at_ms    BIGINT        NOT NULL
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

CREATE TABLE deliveries (
  id          BIGINT        NOT NULL AUTO_INCREMENT PRIMARY KEY,
  endpoint_id CHAR(16)      CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  first       BIGINT        NOT NULL,
  last        BIGINT        NOT NULL,
  at_ms       BIGINT        NOT NULL,
  took_ms     BIGINT        NOT NULL,
  status      INT           NOT NULL,
  answer      VARCHAR(500)  NOT NULL,
  KEY deliveries_endpoint (endpoint_id, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

-- The lines of sales: those of the modes line and draw, and waiting lists.
CREATE TABLE sale_lines (
  sale_id       CHAR(16)   CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  mode          VARCHAR(4) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  entries_at_ms BIGINT     NOT NULL,
  call_seconds  INT        NOT NULL,
  waiting_list  TINYINT    NOT NULL,
  phase         VARCHAR(8) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  -- The number of the next entry, the number of entries at the seal, and the lowest rank that was not called yet.
  entries       BIGINT     NOT NULL,
  sealed        BIGINT     NOT NULL,
  serving       BIGINT     NOT NULL,
  -- When the first entry came, 0: there is none. The pace of a waiting list is reckoned from then.
  first_at_ms   BIGINT     NOT NULL DEFAULT 0,
  -- The units that a draw has to give, fixed at the seal, and those that it has given so far.
  draw_units    BIGINT     NOT NULL DEFAULT 0,
  drawn         BIGINT     NOT NULL DEFAULT 0,
  -- The first rank that a draw passed over, because its quantity was larger than the units that were left.
  passed        BIGINT     NULL,
  -- In hex. The secret becomes public with the seed, without entries with the root; the key of the leaves never does.
  secret        CHAR(64)   CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  leaf_key      CHAR(64)   CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  commitment    CHAR(64)   CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  root          VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  seed          VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  -- The hashes that an entrant may have to compute, 0: none.
  entry_work    BIGINT     NOT NULL,
  -- Whether the seed needs a round of the beacon; the round, 0 until it is named; and in hex what the round brought.
  beacon            TINYINT    NOT NULL,
  beacon_round      BIGINT     NOT NULL DEFAULT 0,
  beacon_signature  VARCHAR(96) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
  beacon_randomness VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
  -- When a caller last looked after the line. After an outage of all callers, calls end later by the time since then.
  seen_at_ms    BIGINT     NOT NULL,
  CONSTRAINT sale_lines_beacon CHECK (beacon = 0 OR seed = '' OR beacon_randomness <> ''),
  CONSTRAINT sale_lines_order CHECK (sealed <= entries AND serving <= entries AND drawn <= draw_units AND call_seconds > 0)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

CREATE TABLE entries (
  sale_id       CHAR(16)    CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  number        BIGINT      NOT NULL,
  user_id       VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  quantity      INT         NOT NULL,
  state         VARCHAR(7)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  entered_at_ms BIGINT      NOT NULL,
  PRIMARY KEY (sale_id, number),
  UNIQUE KEY entries_user (sale_id, user_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

-- The calls under way, each with its units, which stock.called counts.
CREATE TABLE calls (
  sale_id  CHAR(16)    CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  number   BIGINT      NOT NULL,
  user_id  VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  units    INT         NOT NULL,
  until_ms BIGINT      NOT NULL,
  PRIMARY KEY (sale_id, number),
  UNIQUE KEY calls_user (sale_id, user_id),
  KEY calls_until (sale_id, until_ms),
  CONSTRAINT calls_units CHECK (units > 0)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

-- +goose Down
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
