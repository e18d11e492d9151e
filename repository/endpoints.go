package repository

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"

	"flashsale/model"
)

// answerLength and reasonLength are the lengths of the columns answer and reason on MySQL, in characters.
const answerLength, reasonLength = 500, 200

// Endpoints lists all endpoints, the oldest first.
func (s *Store) Endpoints(ctx context.Context) ([]model.Endpoint, error) {
	return endpoints(s.read.WithContext(ctx), "1 = 1 ORDER BY created_at_ms, id")
}

// DueEndpoints lists the endpoints to which events can be sent now: they are on, their pause and any reservation are over, and
// the feed has events that they lack.
func (s *Store) DueEndpoints(ctx context.Context) ([]model.Endpoint, error) {
	return endpoints(s.read.WithContext(ctx), "state = ? AND next_at_ms <= "+s.nowMillis()+" AND leased_until_ms <= "+s.nowMillis()+
		" AND position < (SELECT last FROM event_feed)", string(model.EndpointOn))
}

func endpoints(db *gorm.DB, where string, args ...any) ([]model.Endpoint, error) {
	return scan(db, "read endpoints", func(e *model.Endpoint) []any {
		return []any{
			&e.ID, &e.URL, &e.Rate, &e.State, &e.Reason, &e.Secret, &e.OldSecret, millis(&e.OldUntil),
			&e.Position, &e.SendingTo, &e.Tries, millis(&e.FailingSince), millis(&e.CreatedAt),
		}
	}, `SELECT id, url, rate, state, reason, secret, old_secret, old_until_ms, position, sending_to, tries, failing_since_ms, created_at_ms
		FROM endpoints WHERE `+where, args...)
}

// CreateEndpoint makes an endpoint with the id, URL, rate and secret of e. The endpoint gets the events that are numbered later.
// ok is false, and nothing is made, if there are "most" endpoints or more.
func (s *Store) CreateEndpoint(ctx context.Context, e model.Endpoint, most int, actor string) (made model.Endpoint, ok bool, err error) {
	for more := true; more; { // events that are committed already get their places first
		if more, err = s.NumberEvents(ctx); err != nil {
			return made, false, err
		}
	}
	err = s.transact(ctx, func(tx *gorm.DB) error {
		last, err := s.lockFeed(tx)
		if err != nil {
			return err
		}
		there, err := cell[int](tx, "count endpoints", "SELECT COUNT(*) FROM endpoints")
		if ok = err == nil && there < most; !ok {
			return err
		}
		err = s.run(tx, do(`INSERT INTO endpoints (id, url, rate, state, reason, secret, old_secret, old_until_ms, position, sending_to, tries,
			failing_since_ms, next_at_ms, leased_until_ms, created_at_ms) VALUES (?, ?, ?, ?, '', ?, '', 0, ?, 0, 0, 0, 0, 0, `+s.nowMillis()+`)`,
			e.ID, e.URL, e.Rate, string(model.EndpointOn), e.Secret, last),
			s.logging(actor, "create", model.EndpointSubject, e.ID+": "+e.URL))
		if err == nil {
			made, _, err = one(endpoints(tx, "id = ?", e.ID))
		}
		return err
	})
	return made, ok, wrap("create an endpoint", err)
}

// oldSecretTime is how long the old secret stays in use after a change.
const oldSecretTime = 24 * time.Hour

// ChangeEndpoint changes an endpoint, and returns it as it is then; ok is false if there is no such endpoint.
func (s *Store) ChangeEndpoint(ctx context.Context, id string, c model.EndpointChange, actor string) (e model.Endpoint, ok bool, err error) {
	err = s.transact(ctx, func(tx *gorm.DB) error {
		if e, ok, err = one(endpoints(tx, "id = ?"+s.forUpdate(), id)); err != nil || !ok {
			return err
		}
		e.URL, e.Rate = cmp.Or(c.URL, e.URL), cmp.Or(c.Rate, e.Rate)
		what := fmt.Sprintf("%s: URL %s, rate %d, %s", id, e.URL, e.Rate, cmp.Or(c.State, e.State))
		if c.Secret != "" {
			now, err := s.nowOn(tx)
			if err != nil {
				return err
			}
			e.OldSecret, e.OldUntil, e.Secret = e.Secret, now.Add(oldSecretTime), c.Secret
			what += ", a new secret"
		}
		set, args := "", []any{e.URL, e.Rate, e.Secret, e.OldSecret, toMillis(e.OldUntil)}
		if c.State != "" {
			e.State, e.Reason, e.Tries, e.FailingSince = c.State, "", 0, time.Time{}
			set, args = ", state = ?, reason = '', tries = 0, failing_since_ms = 0, next_at_ms = 0", append(args, string(c.State))
		}
		return s.run(tx, do("UPDATE endpoints SET url = ?, rate = ?, secret = ?, old_secret = ?, old_until_ms = ?"+set+" WHERE id = ?", append(args, id)...),
			s.logging(actor, "change", model.EndpointSubject, what))
	})
	return e, ok, wrap("change an endpoint", err)
}

// RemoveEndpoint deletes an endpoint and its deliveries; ok is false if there is no such endpoint.
func (s *Store) RemoveEndpoint(ctx context.Context, id, actor string) (ok bool, err error) {
	err = s.transact(ctx, func(tx *gorm.DB) error {
		removed, err := exec(tx, "delete the row", "DELETE FROM endpoints WHERE id = ?", id)
		if ok = removed > 0; !ok {
			return err
		}
		return s.run(tx, do("DELETE FROM deliveries WHERE endpoint_id = ?", id), s.logging(actor, "remove", model.EndpointSubject, id))
	})
	return ok, wrap("remove an endpoint", err)
}

// TakeEndpoint reserves an endpoint for the time "lease", and returns it. ok is false if there is no such endpoint, or if it is
// reserved, is not on or is in a pause.
func (s *Store) TakeEndpoint(ctx context.Context, id string, lease time.Duration) (e model.Endpoint, ok bool, err error) {
	db, now := s.write.WithContext(ctx), s.nowMillis()
	changed, err := exec(db, "reserve an endpoint", "UPDATE endpoints SET leased_until_ms = "+now+" + ? WHERE id = ? AND state = ?"+
		" AND leased_until_ms <= "+now+" AND next_at_ms <= "+now, lease.Milliseconds(), id, string(model.EndpointOn))
	if err != nil || changed == 0 {
		return e, false, err
	}
	return one(endpoints(db, "id = ?", id))
}

// FreeEndpoint ends the reservation of an endpoint and its batch under way.
func (s *Store) FreeEndpoint(ctx context.Context, id string) error {
	return s.update(ctx, "free an endpoint", "UPDATE endpoints SET sending_to = 0, leased_until_ms = 0 WHERE id = ?", id)
}

// SendTo records the last event of the batch that is about to be sent, so that a later try sends the same events; 0: no batch.
func (s *Store) SendTo(ctx context.Context, id string, last int64) error {
	return s.update(ctx, "begin a delivery", "UPDATE endpoints SET sending_to = ? WHERE id = ?", last, id)
}

// FinishDelivery records a try to send the batch under way. For an endpoint that is still on, it also ends the reservation, plans
// the next try or batch after a pause, sets state and reason, and moves the position behind taken or undeliverable events.
func (s *Store) FinishDelivery(ctx context.Context, d model.Delivery, pause time.Duration, state model.EndpointState, reason string) error {
	err := s.transact(ctx, func(tx *gorm.DB) error {
		if _, err := noteDelivery(tx, d); err != nil {
			return err
		}
		set, args := "tries = tries + 1, failing_since_ms = CASE failing_since_ms WHEN 0 THEN ? ELSE failing_since_ms END", []any{d.At.UnixMilli()}
		if d.Delivered() || d.Undeliverable() {
			set, args = "position = ?, sending_to = 0, tries = 0, failing_since_ms = 0", []any{d.Last}
		}
		return tx.Exec("UPDATE endpoints SET "+set+", next_at_ms = "+s.nowMillis()+" + ?, leased_until_ms = 0, state = ?, reason = ? WHERE id = ? AND state = ?",
			append(args, pause.Milliseconds(), string(state), model.Excerpt(reason, reasonLength), d.EndpointID, string(model.EndpointOn))...).Error
	})
	return wrap("record a delivery", err)
}

// NoteDelivery records a delivery that was repeated by hand, and returns the delivery's id. If the endpoint has taken the events,
// and its next event is among them, its position moves behind them, and its pause ends.
func (s *Store) NoteDelivery(ctx context.Context, d model.Delivery) (id int64, err error) {
	err = s.transact(ctx, func(tx *gorm.DB) error {
		if id, err = noteDelivery(tx, d); err != nil || !d.Delivered() {
			return err
		}
		return tx.Exec("UPDATE endpoints SET position = ?, sending_to = 0, tries = 0, failing_since_ms = 0, next_at_ms = 0"+
			" WHERE id = ? AND position >= ? AND position < ?", d.Last, d.EndpointID, d.First-1, d.Last).Error
	})
	return id, wrap("record a delivery", err)
}

func noteDelivery(tx *gorm.DB, d model.Delivery) (id int64, err error) {
	res, err := tx.Statement.ConnPool.ExecContext(tx.Statement.Context,
		"INSERT INTO deliveries (endpoint_id, first, last, at_ms, took_ms, status, answer) VALUES (?, ?, ?, ?, ?, ?, ?)",
		d.EndpointID, d.First, d.Last, d.At.UnixMilli(), d.Took.Milliseconds(), d.Status, model.Excerpt(d.Answer, answerLength))
	if err != nil {
		return 0, outages{tx.Dialector}.Translate(err)
	}
	return res.LastInsertId()
}

// Deliveries lists at most "limit" deliveries of an endpoint, with ids smaller than "below", the newest first.
func (s *Store) Deliveries(ctx context.Context, endpointID string, below int64, limit int) ([]model.Delivery, error) {
	return deliveries(s.read.WithContext(ctx), "endpoint_id = ? AND id < ? ORDER BY id DESC LIMIT ?", endpointID, below, limit)
}

// Delivery reads a delivery of an endpoint; ok is false if there is none.
func (s *Store) Delivery(ctx context.Context, endpointID string, id int64) (d model.Delivery, ok bool, err error) {
	return one(deliveries(s.read.WithContext(ctx), "endpoint_id = ? AND id = ?", endpointID, id))
}

func deliveries(db *gorm.DB, where string, args ...any) ([]model.Delivery, error) {
	return scan(db, "read deliveries", func(d *model.Delivery) []any {
		return []any{&d.ID, &d.EndpointID, &d.First, &d.Last, millis(&d.At), &d.Took, &d.Status, &d.Answer}
	}, "SELECT id, endpoint_id, first, last, at_ms, took_ms * 1000000, status, answer FROM deliveries WHERE "+where, args...)
}
