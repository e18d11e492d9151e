package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"flashsale/internal/sandbox"
	"flashsale/model"
	"flashsale/service"
)

const (
	// requestTime is the engine's limit for the time of a request.
	requestTime = 10 * time.Second
	// mostTries bounds how often a buyer repeats a request. The last tries come when the faults are over.
	mostTries = 60
)

// memory holds what all buyers were told, and what they paid.
type memory struct {
	mu       sync.Mutex
	names    map[string]string // of orders and sales, by id; for the trace
	attempts map[string]*attempt
	charges  map[string]*charge // what the payment provider knows, by transaction
	fresh    []*attempt         // confirmed since the scheduler last looked
	atHome   int
	people   int
}

// attempt is the purchase under one idempotency key, and its answers.
type attempt struct {
	id, name, user, sale, key string
	quantity                  int
	confirmed                 bool
	queuedAt                  time.Time // first told that it is queued; zero: never
	refused                   bool      // the last answer was a refusal
	tries                     int       // requests in flight or without an answer
}

// attempt returns the attempt under a key, which it makes if it is new.
func (s *sim) attempt(user, sale, key string, quantity int) *attempt {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	id := s.ids.Derive(user, sale, key)
	a, ok := s.memory.attempts[id]
	if !ok {
		a = &attempt{id: id, name: user + "/" + key, user: user, sale: sale, key: key, quantity: quantity}
		s.memory.attempts[id], s.memory.names[id] = a, a.name
	}
	return a
}

// tell records an answer to a purchase.
func (s *sim) tell(a *attempt, outcome model.Outcome, err error) {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	switch {
	case err != nil:
		return // it may have happened or not
	case outcome.Verdict == model.Queued:
		if a.queuedAt.IsZero() {
			a.queuedAt = time.Now()
		}
		return // it is not decided
	case outcome.Verdict == model.Accepted:
		a.confirmed = true
		s.memory.fresh = append(s.memory.fresh, a)
	default:
		a.refused = true
	}
	a.tries--
}

// buyer is somebody who wants units of a sale.
type buyer struct {
	s     *sim
	name  string
	user  string
	sale  string
	rng   *rand.Rand
	delay time.Duration
	keys  []string // one for each purchase; the next is used when the buyer gave up an order and buys again
	async bool
	once  bool // buys once, and does nothing with the order
}

// gather starts the buyers and the operator. Some buyers are the same user as the one before, with the same keys or
// others. In every third world all come within a moment, so that attempts come while others are settled.
func (s *sim) gather() {
	rng := rand.New(rand.NewPCG(s.seed, 2))
	within := s.plan.span * 2 / 3
	if s.seed%3 == 0 {
		within = 50 * time.Millisecond
	}
	var last *buyer
	for n := range s.plan.crowd {
		b := &buyer{
			s: s, name: fmt.Sprintf("b%02d", n), user: fmt.Sprintf("u%02d", n), sale: s.sales[rng.IntN(len(s.sales))],
			rng: rand.New(rand.NewPCG(s.seed, uint64(100+n))), keys: []string{"k1", "k2"}, async: rng.IntN(4) == 0,
			delay: time.Duration(rng.Int64N(int64(within))),
		}
		if last != nil && rng.IntN(4) == 0 {
			b.user, b.sale = last.user, last.sale
			if rng.IntN(2) == 0 {
				b.delay = last.delay
			}
			if rng.IntN(2) == 0 {
				b.keys = []string{"k3", "k4"}
			}
		}
		last = b
		s.send(b.run)
	}
	s.send(func() { s.operate(rand.New(rand.NewPCG(s.seed, 3))) })
}

func (s *sim) send(run func()) {
	s.memory.mu.Lock()
	s.memory.people++
	s.memory.mu.Unlock()
	s.people.Go(func() {
		run()
		s.memory.mu.Lock()
		defer s.memory.mu.Unlock()
		s.memory.atHome++
	})
}

func (s *sim) everybodyHome() bool {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	return s.memory.atHome == s.memory.people
}

// wait lets time pass for one person. It returns false if the world has ended.
func (s *sim) wait(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-s.ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// at returns the instance for a request, as a load balancer does: the one in a place, or any other that runs, or nil.
func (s *sim) at(place int) *instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := range s.places {
		if i := s.places[(place+n)%len(s.places)]; i != nil {
			return i
		}
	}
	return nil
}

// turn is a step of a person: it waits until the scheduler lets it happen.
func (s *sim) turn(ctx context.Context, i *instance, name, what string) error {
	return s.await(ctx, &call{label: name + ": " + what, store: nowhere, from: i, run: func() error { return nil }})
}

// paced is a request's context. Its Err waits for a turn, because the order of the requests' next steps would otherwise
// depend on chance.
type paced struct {
	context.Context
	turn func(context.Context) error
}

func pace(ctx context.Context, turn func(context.Context) error) context.Context {
	return paced{ctx, turn}
}

func (p paced) Err() error {
	if err := p.Context.Err(); err != nil {
		return err
	}
	if err := p.turn(p.Context); err != nil {
		return err
	}
	return p.Context.Err()
}

// pacedStrategy paces the requests. The service gives each of them a deadline, and so a context of its own.
type pacedStrategy struct {
	service.Strategy
	turn func(context.Context) error
}

func (p pacedStrategy) Deduct(ctx context.Context, a model.Attempt) (model.Outcome, error) {
	return p.Strategy.Deduct(pace(ctx, p.turn), a)
}

var errNobody = errors.New("nobody serves")

// call sends one request to an instance. It waits for its turn, and returns errGone if the instance is killed.
func (s *sim) call(name, what string, place int, do func(ctx context.Context, i *instance) error) error {
	i := s.at(place)
	if i == nil {
		return errNobody
	}
	ctx, cancel := context.WithTimeout(i.ctx, requestTime)
	defer cancel()
	if err := s.turn(ctx, i, name, what); err != nil {
		return err
	}
	err := do(ctx, i)
	if i.killed() {
		return errGone
	}
	return err
}

// persist repeats a call until it succeeds, at most mostTries times.
func (s *sim) persist(name, what string, rng *rand.Rand, do func(ctx context.Context, i *instance) error) bool {
	for range mostTries {
		if s.call(name, what, rng.IntN(len(s.places)), do) == nil {
			return true
		}
		if !s.wait(time.Duration(100+rng.IntN(600)) * time.Millisecond) {
			return false
		}
	}
	return false
}

func (b *buyer) run() {
	if !b.s.wait(b.delay) {
		return
	}
	for _, key := range b.keys {
		quantity := 1
		if !b.once && b.s.plan.limit > 1 && key == "k1" {
			quantity += b2i(b.user[len(b.user)-1]%2 == 0) // the same for all who use the key
		}
		a := b.s.attempt(b.user, b.sale, key, quantity)
		order := b.buy(a)
		if order == nil || b.once {
			return
		}
		if order.Status == model.OrderPending && !b.use(a) {
			return
		}
	}
}

// buy repeats a purchase until it is accepted or refused. It returns the order, or nil without one.
func (b *buyer) buy(a *attempt) *model.Order {
	var order *model.Order
	told := b.s.persist(b.name, "buys "+a.name, b.rng, func(ctx context.Context, i *instance) error {
		outcome, err := b.ask(ctx, i, a)
		if i.killed() {
			err = errGone
		}
		b.s.tell(a, outcome, err)
		if err != nil {
			return err
		}
		if outcome.Verdict == model.Accepted || outcome.Verdict == model.Queued {
			order = outcome.Order
		}
		return nil
	})
	if told && order != nil && order.Status == model.OrderQueued {
		order = b.follow(a)
	}
	return order
}

func (b *buyer) ask(ctx context.Context, i *instance, a *attempt) (model.Outcome, error) {
	b.s.memory.mu.Lock()
	a.tries++
	a.refused = false
	b.s.memory.mu.Unlock()
	d := i.desks[a.sale]
	goesOn := func(ctx context.Context) error { return b.s.turn(ctx, i, b.name, "goes on with "+a.name) }
	door := service.Purchases{
		Catalog: d.catalog, IDs: b.s.ids, Strategy: pacedStrategy{i.strategy, goesOn}, Orders: i.database(b.name),
		Waiters: i.waiters, SoldOut: &service.SoldOut{}, AckWait: ackWait,
	}
	return door.Purchase(ctx, service.Request{
		UserID: a.user, SaleID: a.sale, Quantity: a.quantity, Key: a.key, Prefer: service.Preference{Async: b.async},
	})
}

// follow polls a queued order until its status changes. It returns nil if no order comes of it.
func (b *buyer) follow(a *attempt) (order *model.Order) {
	for range mostTries {
		var found model.Order
		err := b.s.call(b.name, "looks for "+a.name, b.rng.IntN(len(b.s.places)), func(ctx context.Context, i *instance) (err error) {
			found, _, err = i.orders(b.name, a.sale).Order(ctx, a.user, a.id)
			return err
		})
		if err == nil && found.Status != model.OrderQueued {
			b.s.ended(a, found)
			if found.Status == model.OrderRejected {
				return nil
			}
			return &found
		}
		if !b.s.wait(time.Duration(200+b.rng.IntN(400)) * time.Millisecond) {
			return nil
		}
	}
	return nil
}

// use decides what the buyer does with a pending order. It returns true if the buyer then buys again.
func (b *buyer) use(a *attempt) bool {
	switch draw := b.rng.IntN(10); {
	case draw < 2: // lets it expire
		return b.s.wait(time.Duration(b.rng.IntN(6000)) * time.Millisecond)
	case draw < 5:
		return b.s.persist(b.name, "cancels "+a.name, b.rng, func(ctx context.Context, i *instance) error {
			_, _, err := i.orders(b.name, a.sale).Cancel(ctx, a.user, a.id)
			return err
		})
	}
	b.pay(a)
	return false
}

// orders returns the service of orders, as a part of the instance calls it.
func (i *instance) orders(part, sale string) *service.Orders {
	db := i.database(part)
	return &service.Orders{
		Desk: db, Ledger: db, IDs: i.s.ids, Catalog: i.desks[sale].catalog, Gate: i.redis(part), Gates: i.teller(part, sale),
	}
}

func (b *buyer) payments(i *instance, a *attempt) *service.Payments {
	return &service.Payments{
		Provider: &sandbox.Provider{PublicURL: func() string { return "" }}, Store: i.database(b.name), IDs: b.s.ids,
		Gates: i.teller(b.name, a.sale), Catalog: i.desks[a.sale].catalog,
	}
}

// pay pays an order, perhaps twice, perhaps too late. The provider repeats a callback until it succeeds, and sometimes
// once more.
func (b *buyer) pay(a *attempt) {
	var payment model.Payment
	var verdict model.Verdict
	started := b.s.persist(b.name, "starts to pay "+a.name, b.rng, func(ctx context.Context, i *instance) (err error) {
		payment, _, verdict, err = b.payments(i, a).Start(ctx, a.user, a.id)
		return err
	})
	if !started || verdict != model.Accepted || !b.s.wait(time.Duration(b.rng.IntN(5000))*time.Millisecond) {
		return
	}
	for n := range 1 + b2i(b.rng.IntN(5) == 0) {
		txn := fmt.Sprintf("%s of %s, transaction %d", b.name, a.name, n+1)
		paid := &charge{}
		b.s.memory.mu.Lock()
		b.s.memory.charges[txn] = paid
		b.s.memory.mu.Unlock()
		for range 1 + b2i(b.rng.IntN(4) == 0) {
			b.s.persist(b.name, "the provider tells of "+txn, b.rng, func(ctx context.Context, i *instance) error {
				_, verdict, err := b.payments(i, a).Settle(ctx, payment.ID, txn, model.PaymentSucceeded, payment.AmountCents)
				if err == nil {
					b.s.memory.mu.Lock()
					paid.verdict = verdict
					b.s.memory.mu.Unlock()
				}
				return err
			})
		}
	}
}

// ended records the end of a queued attempt.
func (s *sim) ended(a *attempt, order model.Order) {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	a.tries--
	if order.Status == model.OrderRejected { // final, even if the gate has lost the attempt
		a.refused = true
		return
	}
	a.confirmed = true
	s.memory.fresh = append(s.memory.fresh, a)
}

type charge struct {
	verdict  model.Verdict // of the callback; empty: no callback has succeeded
	refunded bool
}

// refund sends money back. A repetition has no effect, because the provider recognises the transaction.
func (s *sim) refund(_ context.Context, p model.Payment) (done bool, err error) {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	c, ok := s.memory.charges[p.ProviderTxnID]
	if !ok {
		return false, fmt.Errorf("a refund of %q, which nobody paid", p.ProviderTxnID)
	}
	c.refunded = true
	return true, nil
}

// operate is the operator, who adds some units, pauses a sale, refunds an order.
func (s *sim) operate(rng *rand.Rand) {
	for range rng.IntN(4) {
		if !s.wait(time.Duration(rng.Int64N(int64(s.plan.span) / 2))) {
			return
		}
		sale := s.sales[rng.IntN(len(s.sales))]
		switch rng.IntN(3) {
		case 0:
			units := 1 + rng.Int64N(3)
			_ = s.call("operator", fmt.Sprintf("adds %d", units), rng.IntN(len(s.places)), func(ctx context.Context, i *instance) error {
				_, _, _, err := s.desk(i, sale).Patch(ctx, sale, service.SalePatch{AddQuota: units}, "operator")
				return err // it may have happened or not
			})
		case 1:
			s.status(rng, sale, model.SalePaused)
			if !s.wait(time.Duration(rng.IntN(1000)) * time.Millisecond) {
				return
			}
			s.status(rng, sale, model.SaleLive)
		case 2:
			s.takeBack(rng, sale)
		}
	}
}

func (s *sim) status(rng *rand.Rand, sale string, status model.SaleStatus) {
	s.persist("operator", "sets "+string(status), rng, func(ctx context.Context, i *instance) error {
		_, _, err := s.desk(i, sale).SetStatus(ctx, sale, status, string(status), "operator")
		return err
	})
}

func (s *sim) takeBack(rng *rand.Rand, sale string) {
	var first string
	err := s.call("operator", "looks for a paid order", rng.IntN(len(s.places)), func(ctx context.Context, i *instance) error {
		list, err := ask(ctx, i.database("operator").reads("paid orders"), func() ([]model.Order, error) {
			list, _, err := s.db.Orders(free(ctx), model.OrderFilter{SaleIDs: []string{sale}, Status: model.OrderPaid, Limit: 1})
			return list, err
		})
		if len(list) > 0 {
			first = list[0].ID
		}
		return err
	})
	if err != nil || first == "" {
		return
	}
	s.persist("operator", "refunds "+s.name(first), rng, func(ctx context.Context, i *instance) error {
		_, _, err := i.orders("operator", sale).Refund(ctx, first, "operator")
		return err
	})
}

func (s *sim) desk(i *instance, sale string) *service.Sales {
	const operator = "operator"
	return &service.Sales{
		Store: i.database(operator), Gate: i.redis(operator), Gates: i.teller(operator, sale), Catalog: i.desks[sale].catalog, Takes: model.TakesAll,
		Log: i.log,
	}
}
