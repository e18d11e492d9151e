-- +goose Up
-- tries counts how often the provider has refused to open the payment and, once money has come, how often the provider was asked
-- to send it back. look_at_ms also says when the provider is asked that next; NULL: at once.
ALTER TABLE payments ADD COLUMN tries INTEGER NOT NULL DEFAULT 0;
DROP INDEX payments_look;
CREATE INDEX payments_look ON payments (provider, status, look_at_ms);

-- +goose Down
DROP INDEX payments_look;
CREATE INDEX payments_look ON payments (look_at_ms);
ALTER TABLE payments DROP COLUMN tries;
