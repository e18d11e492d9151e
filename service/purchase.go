package service

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"flashsale/internal/observe"
	"flashsale/model"
)

const (
	maxWait       = 10 * time.Second // the longest wait that a buyer can get by `Prefer: wait=N`
	purchaseLimit = maxWait          // the time after which a purchase gives up
	// lastLook bounds each lookUp, so that a database that does not answer delays the answer only a little.
	lastLook = 500 * time.Millisecond
	// firstLook is how long a repeated request pauses before its second look in the database. The pause doubles with each look.
	firstLook = 20 * time.Millisecond
)

// Strategy takes units from stock for attempts, or refuses them.
type Strategy interface {
	Deduct(ctx context.Context, a model.Attempt) (model.Outcome, error)
}

// PurchaseStore looks up orders, and whether a sale is in line.
type PurchaseStore interface {
	Order(ctx context.Context, id string) (order model.Order, ok bool, err error)
	InLine(ctx context.Context, saleID string) (bool, error)
}

// Purchases takes purchase requests from the handlers to their outcomes.
type Purchases struct {
	Catalog  *Catalog
	IDs      model.OrderIDs
	Strategy Strategy
	Called   Strategy // takes units for buyers who are called in a line
	Orders   PurchaseStore
	Waiters  *Waiters
	SoldOut  *SoldOut
	Observe  observe.All
	// If AckQueued is true, a buyer does not wait for the settled order. Otherwise the wait ends at most AckWait after the
	// admission. A Preference in the request overrides both.
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

// Preference is the buyer's wish how long to wait for the order (RFC 7240). The zero value means that there is no wish.
type Preference struct {
	Async bool
	Wait  time.Duration
}

// fromMemory refuses a request from this instance's memory; ok is false if the stores have to decide. A request with a key may be
// a repetition of one that succeeded. So memory refuses it only if the sale is sold out and the order's id is certainly new. On a
// sale with a waiting list, memory refuses a request as sold out only under a refusal lease.
func (p *Purchases) fromMemory(r Request, offer *model.Offer) (verdict model.Verdict, ok bool) {
	verdict = model.BadRequest
	if r.Quantity >= 1 && r.Quantity <= offer.LimitPerUser {
		if verdict = offer.Judge(p.Catalog.Now()); verdict == model.Accepted {
			if offer.Stock.Lined == model.InLine || !p.Catalog.Latched(r.SaleID) {
				return "", false
			}
			verdict = model.SoldOut
		}
	}
	// While a lease holds, no unit comes back for which somebody in a waiting list could be called.
	needsLease := r.Key != "" || verdict == model.SoldOut && offer.WaitingList
	if needsLease && (verdict != model.SoldOut || !p.SoldOut.Refuses(r.SaleID, p.IDs.Derive(r.UserID, r.SaleID, r.Key))) {
		return "", false
	}
	return verdict, true
}

// Purchase decides a request. The outcome is a durable order, a queued order or a refusal. A refusal is NotFound if buyers have
// no such sale, and BadRequest if the quantity does not suit the sale. After an error, nothing was promised, but the attempt may
// still become an order. The error wraps model.ErrUnavailable, for example, if Redis may have admitted the attempt, so that a
// refusal might be wrong.
func (p *Purchases) Purchase(ctx context.Context, r Request) (outcome model.Outcome, err error) {
	defer func() {
		verdict := outcome.Verdict
		if err != nil {
			verdict = model.Unavailable
		}
		p.Observe.Note(observe.Event{Name: observe.Purchase, Label: string(verdict)})
	}()
	offer := p.Catalog.InMemory(r.SaleID)
	if offer != nil {
		if verdict, ok := p.fromMemory(r, offer); ok {
			return model.Outcome{Verdict: verdict}, nil
		}
	}
	began := p.Waiters.now()
	limited, end := endingAt(ctx, began.Add(purchaseLimit), p.Waiters.now)
	defer end()
	if offer == nil {
		found, ok, err := p.Catalog.Sale(limited, r.SaleID)
		switch {
		case err != nil:
			return model.Outcome{}, err
		case !ok:
			return model.Outcome{Verdict: model.NotFound}, nil
		}
		offer = &found
	}
	if offer.IsCampaignLine() {
		return model.Outcome{Verdict: model.NotFound}, nil
	}
	tooMany := r.Quantity > offer.LimitPerUser
	// A request with a key may repeat one from before the limit was lowered, so the stores are asked whether they know its id.
	if r.Quantity < 1 || r.Quantity > maxLimit || tooMany && r.Key == "" {
		return model.Outcome{Verdict: model.BadRequest}, nil
	}
	wait := p.patience(r.Prefer)
	a := p.attempt(ctx, r, offer, wait)
	strategy, inLine := p.Strategy, offer.Stock.Lined == model.InLine
	if inLine {
		strategy = p.Called
	}
	deducting, deducted := p.Observe.Begin(limited, observe.Step{Name: observe.Deduct, Items: 1, OrderID: func(int) string { return a.ID }})
	outcome, err = strategy.Deduct(deducting, a)
	at, admitted := a.Waiter.AdmittedAt()
	lacks := (outcome.Verdict == model.SoldOut || outcome.Verdict == model.LimitReached) && !outcome.Repeated && !admitted
	if err == nil && lacks && !inLine && (r.Key != "" || offer.WaitingList) {
		outcome, err = p.unlessInLine(deducting, a, outcome)
	}
	deducted(err)
	p.measure(began, at)
	switch {
	case err != nil:
		return model.Outcome{}, err
	case outcome.Verdict == model.Queued:
		return p.follow(limited, a, offer, outcome.Repeated, wait)
	case admitted: // and settled
		return outcome, nil
	case outcome.Verdict == model.SoldOut && a.Quantity == 1:
		p.Catalog.Latch(a.SaleID)
	}
	if r.Key != "" && !outcome.Repeated && outcome.Verdict != model.Accepted && outcome.Verdict != model.TooFrequent {
		if tooMany {
			outcome.Verdict = model.BadRequest
		}
		// An earlier request with this key may have led to an order, or a refusal, that the strategy does not know.
		return p.replay(limited, a, outcome)
	}
	return outcome, nil
}

// patience returns how long a buyer waits for the settler; 0: a queued order is enough.
func (p *Purchases) patience(wish Preference) time.Duration {
	switch {
	case wish.Wait > 0:
		return min(wish.Wait, maxWait)
	case wish.Async || p.AckQueued:
		return 0
	}
	return p.AckWait
}

// attempt returns the attempt of a request, with a Waiter for its buyer.
func (p *Purchases) attempt(ctx context.Context, r Request, offer *model.Offer, wait time.Duration) model.Attempt {
	a := model.Attempt{
		SaleID: r.SaleID, UserID: r.UserID, Quantity: r.Quantity, IdempotencyKey: r.Key,
		Frequency: r.Frequency, Keyless: r.Key == "", Shards: offer.Shards, LeastEpoch: offer.Stock.Epoch,
		CampaignID: offer.Campaign.ID, Common: p.Catalog.CommonLimit(offer.Campaign.ID),
	}
	if a.Keyless {
		a.IdempotencyKey = rand.Text()
	}
	a.ID = p.IDs.Derive(a.UserID, a.SaleID, a.IdempotencyKey)
	a.Waiter = p.Waiters.Waiter(ctx.Done(), a.ID, wait, purchaseLimit)
	return a
}

// measure notes how long a purchase took until the gate admitted it, and from then until now. If "admitted" is zero, the whole
// time counts as the first stage.
func (p *Purchases) measure(began, admitted time.Time) {
	ended := p.Waiters.now()
	if !admitted.IsZero() {
		p.Observe.Note(observe.Event{Name: observe.Stage, Label: observe.SettleWait, Took: ended.Sub(admitted)})
		ended = admitted
	}
	p.Observe.Note(observe.Event{Name: observe.Stage, Label: observe.Deduct, Took: ended.Sub(began)})
}

// unlessInLine returns the refusal, unless the database says that the sale is in line. Then Called decides, since the buyer may
// have been called. The error wraps model.ErrUnavailable if the database can't say.
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

// follow returns the outcome of a queued attempt if the database has it, else a queued order. For a new attempt it looks once,
// since a wake-up may be lost, or not at all if the buyer does not wait. For a repeated attempt it looks until it finds the
// outcome or the wait is over, at least once: the first request gets the wake-up.
func (p *Purchases) follow(ctx context.Context, a model.Attempt, offer *model.Offer, repeated bool, wait time.Duration) (model.Outcome, error) {
	queued := model.Outcome{Verdict: model.Queued, Repeated: repeated, Order: &model.Order{
		ID: a.ID, SaleID: a.SaleID, UserID: a.UserID, Quantity: a.Quantity, Status: model.OrderQueued,
		AmountCents: int64(a.Quantity) * offer.PriceCents, Currency: offer.Currency, CreatedAt: p.Catalog.Now(),
	}}
	switch {
	case !repeated && wait == 0:
		return queued, nil
	case !repeated:
		outcome := p.lookUp(ctx, a, queued)
		outcome.Repeated = false
		return outcome, nil
	}
	outcome, err := p.replay(ctx, a, queued)
	for look := firstLook; err == nil && outcome.Verdict == model.Queued && wait > 0; look *= 2 {
		look = min(look, wait)
		timer := time.NewTimer(look)
		select {
		case <-timer.C:
		case <-p.Waiters.closing:
			wait = look
		case <-ctx.Done():
			timer.Stop()
			return queued, nil
		}
		outcome, wait = p.lookUp(ctx, a, queued), wait-look
	}
	return outcome, err
}

// lookUp is replay within lastLook. If the database fails, lookUp returns the queued outcome.
func (p *Purchases) lookUp(ctx context.Context, a model.Attempt, queued model.Outcome) model.Outcome {
	ctx, cancel := context.WithTimeout(ctx, lastLook)
	defer cancel()
	outcome, err := p.replay(ctx, a, queued)
	if err != nil {
		return queued
	}
	return outcome
}

// replay returns the outcome that the database has under the attempt's id, as Attempt.Replay judges it, else the outcome
// "otherwise". The error wraps model.ErrUnavailable if the database fails.
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

// endingAt returns a context that ends at a time, and a function that releases what the context uses.
func endingAt(ctx context.Context, at time.Time, now func() time.Time) (context.Context, func()) {
	l := &limit{Context: ctx, at: at, now: now}
	return l, l.end
}

// limit is a context that ends at the time "at". It makes a timer only when Done is called; end releases the timer.
type limit struct {
	context.Context
	at  time.Time
	now func() time.Time

	mu     sync.Mutex
	armed  context.Context
	cancel context.CancelFunc
}

// Deadline is part of context.Context.
func (l *limit) Deadline() (time.Time, bool) { return l.at, true }

func (l *limit) Done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.armed == nil {
		l.armed, l.cancel = context.WithTimeout(l.Context, l.at.Sub(l.now()))
	}
	return l.armed.Done()
}

func (l *limit) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.armed != nil {
		return l.armed.Err()
	}
	if err := l.Context.Err(); err != nil || l.now().Before(l.at) {
		return err
	}
	return context.DeadlineExceeded
}

func (l *limit) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cancel != nil {
		l.cancel()
	}
}
