-- +goose Up
-- tries: how often the provider was asked to send the money back. look_at_ms now also says when it is asked next; NULL: at once.
ALTER TABLE payments ADD COLUMN tries INTEGER NOT NULL DEFAULT 0;
DROP INDEX payments_look;
CREATE INDEX payments_look ON payments (provider, status, look_at_ms);

-- +goose Down
DROP INDEX payments_look;
CREATE INDEX payments_look ON payments (look_at_ms);
ALTER TABLE payments DROP COLUMN tries;
