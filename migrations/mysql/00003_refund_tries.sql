-- +goose Up
-- tries: how often the provider was asked to send the money back. look_at_ms now also says when it is asked next; NULL: at once.
ALTER TABLE payments
  ADD COLUMN tries INT NOT NULL DEFAULT 0,
  DROP KEY payments_look,
  ADD KEY payments_look (provider, status, look_at_ms);

-- +goose Down
ALTER TABLE payments
  DROP KEY payments_look,
  ADD KEY payments_look (look_at_ms),
  DROP COLUMN tries;
