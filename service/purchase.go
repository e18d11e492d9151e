package service

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"flashsale/internal/observe"
	"flashsale/model"
)

// maxWait bounds how long a buyer may ask to wait for the settled order (`Prefer: wait=N`).
const maxWait = 10 * time.Second

// purchaseLimit bounds a purchase. It equals maxWait, and is well within the server's write timeout.
const purchaseLimit = maxWait

// lastLook bounds the look-up after that wait, so that a database that does not answer prolongs the wait only a
// little.
const lastLook = 500 * time.Millisecond

// firstLook is when a repeated request first looks whether its attempt is settled. Then the time doubles.
const firstLook = 20 * time.Millisecond

// Strategy takes units from stock for attempts. Package strategy has the implementations.
type Strategy interface {
	Deduct(ctx context.Context, a model.Attempt) (model.Outcome, error)
}

// OrderStore looks orders up by id.
type OrderStore interface {
	Order(ctx context.Context, id string) (order model.Order, ok bool, err error)
}

// PurchaseStore is what purchases look up in the database: orders, and whether the units of a sale go to its line.
type PurchaseStore interface {
	OrderStore
	InLine(ctx context.Context, saleID string) (bool, error)
}

// Purchases takes purchase requests from the handlers to their outcomes.
type Purchases struct {
	Catalog  *Catalog
	IDs      model.OrderIDs
	Strategy Strategy
	Called   Strategy // takes the units of buyers who were called in a line
	Orders   PurchaseStore
	Waiters  *Waiters
	SoldOut  *SoldOut
	Observe  observe.All
	Closing  <-chan struct{} // closed when the server stops, so that no request waits any longer
	// AckQueued makes the answer follow the admission. Without it, the answer waits for the order, at most for AckWait.
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

// Preference is the buyer's wish how long to wait for the order (RFC 7240). The zero value means that there is no
// wish.
type Preference struct {
	Async bool
	Wait  time.Duration
}

// fromMemory decides a request from this instance's memory; ok is false if the stores have to decide it. While the
// database answers, the memory is at most one refresh period of the catalog old. A request with a key may repeat a
// request that succeeded, so memory only refuses it if the sale is sold out and its id is certainly new. A sale with
// a waiting list is refused as sold out only under a refusal lease.
func (p *Purchases) fromMemory(r Request) (outcome model.Outcome, ok bool) {
	offer := p.Catalog.InMemory(r.SaleID)
	if offer == nil {
		return outcome, false
	}
	verdict := model.BadRequest
	if r.Quantity >= 1 && r.Quantity <= offer.LimitPerUser {
		if verdict = offer.Judge(p.Catalog.Now()); verdict == model.Accepted {
			if offer.Stock.Lined == model.InLine || !p.Catalog.Latched(r.SaleID) {
				return outcome, false
			}
			verdict = model.SoldOut
		}
	}
	// While a lease holds, no unit comes back that somebody in a waiting list could be called for.
	needsLease := r.Key != "" || verdict == model.SoldOut && offer.WaitingList
	if needsLease && (verdict != model.SoldOut || !p.SoldOut.Refuses(r.SaleID, p.IDs.Derive(r.UserID, r.SaleID, r.Key))) {
		return outcome, false
	}
	return model.Outcome{Verdict: verdict}, true
}

// Purchase decides a request. The outcome is a durable order, a queued order, or a refusal. A repeated key gets the
// outcome of its first request. Purchase returns model.ErrUnavailable if neither store could take the attempt, or if
// Redis may have admitted it, so that a refusal might be wrong. In both cases nothing was promised. A purchase takes at
// most purchaseLimit; requests that memory refuses need no timer.
func (p *Purchases) Purchase(ctx context.Context, r Request) (outcome model.Outcome, err error) {
	defer func() {
		verdict := outcome.Verdict
		switch {
		case err != nil:
			verdict = model.Unavailable
		case outcome.Order != nil && outcome.Order.Status == model.OrderQueued:
			verdict = "queued"
		}
		p.Observe.Note(observe.Event{Name: observe.Purchase, Label: string(verdict)})
	}()
	if outcome, ok := p.fromMemory(r); ok {
		return outcome, nil
	}
	ctx, cancel := context.WithTimeout(ctx, purchaseLimit)
	defer cancel()
	offer, ok, err := p.Catalog.Sale(ctx, r.SaleID)
	switch {
	case err != nil:
		return model.Outcome{}, err
	case !ok || offer.IsCampaignLine():
		return model.Outcome{Verdict: model.NotFound}, nil
	}
	tooMany := r.Quantity > offer.LimitPerUser
	// A request with a key may repeat a request from before the limit was lowered, so the stores are asked whether
	// they know it.
	if r.Quantity < 1 || r.Quantity > maxLimit || tooMany && r.Key == "" {
		return model.Outcome{Verdict: model.BadRequest}, nil
	}
	a := model.Attempt{
		SaleID: r.SaleID, UserID: r.UserID, Quantity: r.Quantity, IdempotencyKey: r.Key,
		Frequency: r.Frequency, Keyless: r.Key == "", Shards: offer.Shards,
		CampaignID: offer.Campaign.ID, Common: p.Catalog.CommonLimit(offer.Campaign.ID),
	}
	if a.Keyless {
		a.IdempotencyKey = rand.Text()
	}
	a.ID = p.IDs.Derive(a.UserID, a.SaleID, a.IdempotencyKey)

	settled, done := p.Waiters.Wait(a.ID)
	defer done()
	deducting, deducted := p.Observe.Begin(ctx, observe.Step{Name: observe.Deduct, Items: 1, OrderID: func(int) string { return a.ID }})
	strategy := p.Strategy
	if offer.Stock.Lined == model.InLine {
		strategy = p.Called
	}
	outcome, err = strategy.Deduct(deducting, a)
	lacks := (outcome.Verdict == model.SoldOut || outcome.Verdict == model.LimitReached) && !outcome.Repeated
	if err == nil && lacks && offer.Stock.Lined != model.InLine && (r.Key != "" || offer.WaitingList) {
		outcome, err = p.unlessInLine(deducting, a, outcome)
	}
	deducted(err)
	switch {
	case err != nil:
		return model.Outcome{}, err
	case outcome.Queued():
		return p.follow(ctx, a, offer, outcome.Repeated, settled, r.Prefer)
	case outcome.Verdict == model.SoldOut && a.Quantity == 1:
		p.Catalog.Latch(a.SaleID)
	}
	if r.Key != "" && !outcome.Repeated && outcome.Verdict != model.Accepted && outcome.Verdict != model.TooFrequent {
		if tooMany {
			outcome.Verdict = model.BadRequest
		}
		// The first request with this key may have led to an order, or a refusal, that the strategy does not know.
		return p.replay(ctx, a, outcome)
	}
	return outcome, nil
}

// unlessInLine returns a refusal, unless the sale is in line by now: the memory of this instance, and the gate, may be older than
// a call of the buyer, which the database knows.
func (p *Purchases) unlessInLine(ctx context.Context, a model.Attempt, refusal model.Outcome) (model.Outcome, error) {
	inLine, err := p.Orders.InLine(ctx, a.SaleID)
	switch {
	case err != nil:
		return model.Outcome{}, errors.Join(model.ErrUnavailable, err)
	case !inLine:
		return refusal, nil
	}
	return p.Called.Deduct(ctx, a)
}

// follow waits for a queued attempt's order, as long as the buyer wishes or else AckWait. Without an order by then,
// the outcome is a queued order.
func (p *Purchases) follow(ctx context.Context, a model.Attempt, offer model.Offer, repeated bool, settled <-chan model.Outcome, wish Preference) (model.Outcome, error) {
	queued := model.Outcome{Verdict: model.Accepted, Repeated: repeated, Order: &model.Order{
		ID: a.ID, SaleID: a.SaleID, UserID: a.UserID, Quantity: a.Quantity, Status: model.OrderQueued,
		AmountCents: int64(a.Quantity) * offer.PriceCents, Currency: offer.Currency, CreatedAt: p.Catalog.Now(),
	}}
	if repeated { // the attempt may already be settled
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
	_, waited := p.Observe.Begin(ctx, observe.Step{Name: observe.SettleWait})
	defer waited(nil)
	// The wake-up of a repeated attempt may go to the instance of its first request, so the database is asked meanwhile.
	for look := firstLook; ; look *= 2 {
		if !repeated || look > wait {
			look = wait
		}
		timer := time.NewTimer(look)
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
		// Either another instance has reported that the attempt is settled, or the wake-up may have been lost.
		outcome := p.lookUp(ctx, a, queued)
		outcome.Repeated = repeated
		if wait -= look; wait <= 0 || outcome.Order != queued.Order {
			return outcome, nil
		}
	}
}

// lookUp is replay with a limit of lastLook. The attempt is queued even if the look-up fails.
func (p *Purchases) lookUp(ctx context.Context, a model.Attempt, queued model.Outcome) model.Outcome {
	ctx, cancel := context.WithTimeout(ctx, lastLook)
	defer cancel()
	outcome, err := p.replay(ctx, a, queued)
	if err != nil {
		return queued
	}
	return outcome
}

// replay returns the outcome that the database has under the attempt's id, or the argument otherwise if the database
// has none. It returns model.ErrUnavailable if the database fails.
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
