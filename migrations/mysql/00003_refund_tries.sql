-- +goose Up
-- tries counts how often the provider has refused to open the payment and, once money has come, how often the provider was asked
-- to send it back. look_at_ms also says when the provider is asked that next; NULL: at once.
ALTER TABLE payments
  ADD COLUMN tries INT NOT NULL DEFAULT 0,
  DROP KEY payments_look,
  ADD KEY payments_look (provider, status, look_at_ms);

-- +goose Down
ALTER TABLE payments
  DROP KEY payments_look,
  ADD KEY payments_look (look_at_ms),
  DROP COLUMN tries;
