package service

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"flashsale/model"
)

// maxWait bounds how long a buyer may ask to wait for the settled order (`Prefer: wait=N`).
const maxWait = 10 * time.Second

// lastLook bounds the look-up after that wait: a database that has gone silent must not make it longer by much.
const lastLook = 500 * time.Millisecond

// Strategy takes units from stock for attempts; package strategy has them all.
type Strategy interface {
	Deduct(ctx context.Context, a model.Attempt) (model.Outcome, error)
}

// OrderStore looks orders up by id.
type OrderStore interface {
	Order(ctx context.Context, id string) (order model.Order, ok bool, err error)
}

// Meter notes how long the stages of a purchase take and how purchases end.
type Meter interface {
	Stage(name string, d time.Duration)
	Verdict(v model.Verdict)
}

// Purchases is the way of an attempt from the front door to an order.
type Purchases struct {
	Catalog  *Catalog
	IDs      model.OrderIDs
	Strategy Strategy
	Orders   OrderStore
	Waiters  *Waiters
	Queued   func(saleID string) // tells the settler that something was admitted
	Meter    Meter
	Now      func() time.Time
	Closing  <-chan struct{} // closed when the server stops: nobody waits any longer
	// AckQueued answers as soon as an attempt is admitted; else AckWait is how long to wait for its order.
	AckQueued bool
	AckWait   time.Duration
}

// Request is what a buyer asks for.
type Request struct {
	UserID    string
	SaleID    string
	Quantity  int
	Key       string // Idempotency-Key, or empty
	Frequency model.Frequency
	Prefer    Preference
}

// Preference is the buyer's wish how long to wait for the order (RFC 7240). The zero value is no wish.
type Preference struct {
	Async bool
	Wait  time.Duration
}

// FromMemory decides a request that needs no store; ok is false if it does. Memory is never older than the
// catalog's refresh period. A request with a key is left to the stores: it may repeat one that succeeded.
func (p *Purchases) FromMemory(r Request) (outcome model.Outcome, ok bool) {
	offer, live := p.Catalog.InMemory(r.SaleID)
	if !live || r.Key != "" {
		return outcome, false
	}
	verdict := model.BadRequest
	if r.Quantity >= 1 && r.Quantity <= offer.LimitPerUser {
		if verdict = offer.Judge(p.Catalog.Now()); verdict == model.Accepted {
			if !p.Catalog.Latched(r.SaleID) {
				return outcome, false
			}
			verdict = model.SoldOut
		}
	}
	p.Meter.Verdict(verdict)
	return model.Outcome{Verdict: verdict}, true
}

// Purchase decides a request. The outcome is an order that is durable, an order that is queued, or a refusal;
// a repeated key gets what its first request got. model.ErrUnavailable: neither store could take it, and
// nothing was promised.
func (p *Purchases) Purchase(ctx context.Context, r Request) (outcome model.Outcome, err error) {
	if outcome, ok := p.FromMemory(r); ok {
		return outcome, nil
	}
	defer func() {
		switch {
		case err != nil:
			p.Meter.Verdict(model.Unavailable)
		case outcome.Order != nil && outcome.Order.Status == model.OrderQueued:
			p.Meter.Verdict("queued")
		default:
			p.Meter.Verdict(outcome.Verdict)
		}
	}()
	offer, ok, err := p.Catalog.Sale(ctx, r.SaleID)
	switch {
	case err != nil:
		return model.Outcome{}, err
	case !ok:
		return model.Outcome{Verdict: model.NotFound}, nil
	}
	tooMany := r.Quantity > offer.LimitPerUser
	// A key may repeat a request from before the limit was lowered, so the stores are asked whether they know it.
	if r.Quantity < 1 || r.Quantity > maxLimit || tooMany && r.Key == "" {
		return model.Outcome{Verdict: model.BadRequest}, nil
	}
	a := model.Attempt{
		SaleID: r.SaleID, UserID: r.UserID, Quantity: r.Quantity, RequestKey: r.Key,
		RequestHash: model.HashRequest(r.Quantity), Frequency: r.Frequency, Keyless: r.Key == "",
	}
	if a.Keyless {
		a.RequestKey = rand.Text()
	}
	a.ID = p.IDs.Derive(a.UserID, a.SaleID, a.RequestKey)

	settled, done := p.Waiters.Wait(a.ID)
	defer done()
	start := p.Now()
	outcome, err = p.Strategy.Deduct(ctx, a)
	p.Meter.Stage("deduct", p.Now().Sub(start))
	switch {
	case err != nil:
		return model.Outcome{}, err
	case outcome.Queued():
		p.Queued(a.SaleID)
		return p.follow(ctx, a, offer, outcome.Repeated, settled, r.Prefer)
	case outcome.Verdict == model.SoldOut && a.Quantity == 1:
		p.Catalog.Latch(a.SaleID)
	}
	if r.Key != "" && !outcome.Repeated && outcome.Verdict != model.Accepted && outcome.Verdict != model.TooFrequent {
		if tooMany {
			outcome.Verdict = model.BadRequest
		}
		// The first request under this key may have succeeded where this way of deducting doesn't see it.
		return p.replay(ctx, a, outcome)
	}
	return outcome, nil
}

// follow waits for a queued attempt's order as long as the buyer wishes; after that the attempt is queued.
func (p *Purchases) follow(ctx context.Context, a model.Attempt, offer model.Offer, repeated bool, settled <-chan model.Outcome, wish Preference) (model.Outcome, error) {
	queued := model.Outcome{Verdict: model.Accepted, Repeated: repeated, Order: &model.Order{
		ID: a.ID, SaleID: a.SaleID, UserID: a.UserID, Quantity: a.Quantity, Status: model.OrderQueued,
		AmountCents: int64(a.Quantity) * offer.PriceCents, Currency: offer.Currency, CreatedAt: p.Catalog.Now(),
	}}
	if repeated { // it may be settled long since
		if outcome, err := p.replay(ctx, a, queued); err != nil || outcome.Order != queued.Order {
			return outcome, err
		}
	}
	wait := p.AckWait
	switch {
	case wish.Wait > 0:
		wait = min(wish.Wait, maxWait)
	case wish.Async || p.AckQueued:
		return queued, nil
	}
	start := p.Now()
	defer func() { p.Meter.Stage("settle_wait", p.Now().Sub(start)) }()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case outcome := <-settled:
		if outcome.Verdict != "" {
			outcome.Repeated = repeated
			return outcome, nil
		}
	case <-ctx.Done():
		return queued, nil
	case <-p.Closing:
		return queued, nil
	case <-timer.C:
	}
	// Another instance says that it is settled; or such a wake-up may have been lost on its way.
	looking, cancel := context.WithTimeout(ctx, lastLook)
	defer cancel()
	outcome, err := p.replay(looking, a, queued)
	outcome.Repeated = repeated
	if err != nil {
		return queued, nil // whether or not it can be looked up
	}
	return outcome, nil
}

// replay gives the outcome that the attempt's id has in the database, or otherwise if it has none.
func (p *Purchases) replay(ctx context.Context, a model.Attempt, otherwise model.Outcome) (model.Outcome, error) {
	order, ok, err := p.Orders.Order(ctx, a.ID)
	if err != nil {
		return model.Outcome{}, errors.Join(model.ErrUnavailable, err)
	}
	if !ok {
		return otherwise, nil
	}
	known := model.Outcome{Verdict: model.Accepted, Order: &order}
	if order.Status == model.OrderRejected {
		known.Verdict = order.Reason
	}
	return a.Replay(known), nil
}
