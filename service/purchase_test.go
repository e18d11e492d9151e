package service

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"flashsale/internal/observe"
	"flashsale/model"
	"flashsale/test/kit/check"
)

var purchaseIDs = model.NewOrderIDs([]byte("a key for tests"))

// till takes purchases over fakes, and notes what reaches the strategy, the settler and the meter.
type till struct {
	*Purchases
	offer model.Offer
	store *fakeStores

	mu       sync.Mutex
	attempts []model.Attempt
	verdicts []model.Verdict
	stages   map[string][]time.Duration
	orders   map[string]model.Order
	errOrder error
	looked   int
	inLine   bool
	errLine  error
	leave    func() // of the buyer
}

func newTill(t *testing.T, deduct func(a model.Attempt) (model.Outcome, error)) *till {
	t.Helper()
	x := &till{offer: openOffer(), stages: map[string][]time.Duration{}, orders: map[string]model.Order{}}
	x.store = newFakeStores(x.offer)
	x.Purchases = &Purchases{
		Catalog: refreshed(t, x.store), IDs: purchaseIDs, Orders: x, Waiters: NewWaiters(time.Now), Observe: observe.All{x},
		SoldOut: &SoldOut{Store: &leaser{leases: map[string]model.RefusalLease{x.offer.ID: {}}, fakeStores: x.store}, Now: time.Now},
		Strategy: strategyFunc(func(a model.Attempt) (model.Outcome, error) {
			x.note(func() { x.attempts = append(x.attempts, a) })
			return deduct(a)
		}),
		AckWait: 800 * time.Millisecond,
	}
	return x
}

type strategyFunc func(a model.Attempt) (model.Outcome, error)

func (f strategyFunc) Deduct(_ context.Context, a model.Attempt) (model.Outcome, error) { return f(a) }

func (x *till) note(fn func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	fn()
}

func (x *till) Begin(ctx context.Context, _ observe.Step) (context.Context, func(error)) {
	return ctx, nil
}

func (x *till) Note(e observe.Event) {
	x.note(func() {
		if e.Name == observe.Stage {
			x.stages[e.Label] = append(x.stages[e.Label], e.Took)
			return
		}
		x.verdicts = append(x.verdicts, model.Verdict(e.Label))
	})
}

func (x *till) Order(_ context.Context, id string) (model.Order, bool, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.looked++
	o, ok := x.orders[id]
	return o, ok, x.errOrder
}

func (x *till) InLine(context.Context, string) (bool, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.inLine, x.errLine
}

// made stores an attempt's order in the database.
func (x *till) made(a model.Attempt, status model.OrderStatus, reason model.Verdict) model.Order {
	o := model.Order{
		ID: a.ID, SaleID: a.SaleID, UserID: a.UserID, Quantity: a.Quantity, Status: status, Reason: reason,
	}
	x.note(func() { x.orders[a.ID] = o })
	return o
}

func (x *till) request(key string) Request {
	return Request{UserID: "buyer", SaleID: x.offer.ID, Quantity: 1, Key: key}
}

// keyed returns the attempt of a request under a key.
func (x *till) keyed(quantity int) model.Attempt { return attempt(x.offer, "buyer", quantity) }

// pending returns a change that stores a pending order of such an attempt.
func pending(quantity int) func(*till) {
	return func(x *till) { x.made(x.keyed(quantity), model.OrderPending, "") }
}

func (x *till) noDatabase() { x.errOrder = errAway }

// alter changes the sale in the database, without available units, and refreshes the catalog.
func (x *till) alter(change func(*model.Offer)) {
	x.store.change(func(f *fakeStores) {
		change(&f.offers[0])
		f.offers[0].Stock.Available = 0 // a refresh that reads units would remove the latch
	})
	check.Done(x.Catalog.Refresh(context.Background()))
}

// metered compares the verdicts that the meter got.
func (x *till) metered(t *testing.T, want ...model.Verdict) {
	t.Helper()
	check.Same(t, "metered", x.verdicts, want)
}

func repeat(model.Attempt) (model.Outcome, error) {
	return model.Outcome{Verdict: model.Queued, Repeated: true}, nil
}

func refuse(v model.Verdict) func(model.Attempt) (model.Outcome, error) {
	return func(model.Attempt) (model.Outcome, error) { return model.Outcome{Verdict: v}, nil }
}

// asked is the verdict of a strategy, which no other part gives.
const asked model.Verdict = "asked the strategy"

// Requests that need no store are refused before the strategy, most of them from memory. Memory leaves to the stores what
// may be sold, or what may repeat an earlier request. TestLatchKeepsTheOrderOfRefusals has the states of a sale.
func TestRefusedBeforeTheStrategy(t *testing.T) {
	type test struct {
		change func(x *till, r *Request)
		memory model.Verdict // empty: memory does not decide
		want   model.Verdict
	}
	quantity := func(n int) func(*till, *Request) { return func(_ *till, r *Request) { r.Quantity = n } }
	paused := func(x *till, _ *Request) { x.alter(func(o *model.Offer) { o.Status = model.SalePaused }) }
	latched := func(x *till, r *Request) { x.Catalog.Latch(x.offer.ID); r.Key = "key" }
	inLine := func(x *till, _ *Request) {
		x.Called = strategyFunc(refuse(model.NotYourTurn))
		x.alter(func(o *model.Offer) { o.Stock.Lined = model.InLine })
	}
	madeSince := func(change func(o *model.Offer, r *Request)) func(*till, *Request) {
		return func(x *till, r *Request) {
			other := openOffer()
			if r.SaleID = other.ID; change != nil {
				change(&other, r)
			}
			x.store.add(other)
		}
	}
	check.EachInBubble(t, map[string]test{
		"a sale that sells":                      {func(*till, *Request) {}, "", asked},
		"unknown sale":                           {func(_ *till, r *Request) { r.SaleID = "NONE" }, "", model.NotFound},
		"no units":                               {quantity(0), model.BadRequest, model.BadRequest},
		"negative quantity":                      {quantity(-5), model.BadRequest, model.BadRequest},
		"above the limit":                        {quantity(3), model.BadRequest, model.BadRequest},
		"more than 32 bits":                      {quantity(1 << 40), model.BadRequest, model.BadRequest},
		"at the limit":                           {quantity(2), "", asked},
		"more than anybody may buy, under a key": {func(_ *till, r *Request) { r.Quantity, r.Key = 1<<40, "key" }, "", model.BadRequest},
		"in line, where the database decides":    {inLine, "", model.NotYourTurn},
		"made since the last refresh":            {madeSince(nil), "", asked},
		"no units of that":                       {madeSince(func(_ *model.Offer, r *Request) { r.Quantity = 0 }), "", model.BadRequest},
		"the line of a campaign":                 {madeSince(func(o *model.Offer, _ *Request) { o.Campaign.ID = o.ID }), "", model.NotFound},
		"paused":                                 {paused, model.Paused, model.Paused},
		"sold out, no latch":                     {func(x *till, _ *Request) { x.alter(func(*model.Offer) {}) }, "", asked},
		"latched":                                {func(x *till, _ *Request) { x.Catalog.Latch(x.offer.ID) }, model.SoldOut, model.SoldOut},
		"latched, under a key that may have an order": {latched, "", asked},
		"latched, under a key that is certainly new": {func(x *till, r *Request) {
			latched(x, r)
			x.SoldOut.Refuses(x.offer.ID, "")
			check.Done(x.SoldOut.Refresh(t.Context()))
		}, model.SoldOut, model.SoldOut},
	}, func(t *testing.T, tc test) {
		x := newTill(t, refuse(asked))
		r := x.request("")
		tc.change(x, &r)
		if offer := x.Catalog.InMemory(r.SaleID); offer != nil {
			got, ok := x.fromMemory(r, offer)
			check.Same(t, "decided from memory", ok, tc.memory != "")
			check.Same(t, "verdict from memory", got, tc.memory)
		}
		check.Same(t, "attempts, look-ups", []int{len(x.attempts), x.looked}, []int{0, 0})
		check.Same(t, "outcome", check.Must(x.Purchase(t.Context(), r)), model.Outcome{Verdict: tc.want})
		check.Same(t, "attempts", len(x.attempts), map[bool]int{true: 1}[tc.want == asked])
		x.metered(t, tc.want)
	})
}

// A key that has an order of more units than the limit is now gets its first answer, and a new key is refused.
func TestHole60_LimitLowered(t *testing.T) {
	const wanted = 3 // the limit is 2
	type test struct {
		deduct func(model.Attempt) (model.Outcome, error)
		order  bool // in the database under the key
		want   model.Verdict
		looks  int
	}
	check.EachInBubble(t, map[string]test{
		"a new key":                    {refuse(model.BadRequest), false, model.BadRequest, 1},
		"a new key, and too few units": {refuse(model.LimitReached), false, model.BadRequest, 1},
		"too frequent":                 {refuse(model.TooFrequent), false, model.TooFrequent, 0},
		"settled before":               {refuse(model.BadRequest), true, model.Accepted, 1},
		"known to the gate":            {repeat, true, model.Accepted, 1},
	}, func(t *testing.T, tc test) {
		x := newTill(t, tc.deduct)
		if tc.order {
			pending(wanted)(x)
		}
		r := x.request("key")
		r.Quantity = wanted
		got := check.Must(x.Purchase(t.Context(), r))
		check.Same(t, "verdict", got.Verdict, tc.want)
		check.Same(t, "the order is returned", got.Order != nil, tc.order)
		check.Same(t, "look-ups", x.looked, tc.looks)
	})
}

// A sold out sale is reported as such only while it sells at all.
func TestLatchKeepsTheOrderOfRefusals(t *testing.T) {
	type test struct {
		change func(o *model.Offer)
		want   model.Verdict
	}
	check.EachInBubble(t, map[string]test{
		"not started": {func(o *model.Offer) { o.StartsAt = time.Now().Add(time.Minute) }, model.NotStarted},
		"ended":       {func(o *model.Offer) { o.EndsAt = time.Now().Add(-time.Minute) }, model.Ended},
		"paused":      {func(o *model.Offer) { o.Status = model.SalePaused }, model.Paused},
		"closed":      {func(o *model.Offer) { o.Status = model.SaleClosed }, model.Ended},
		"selling":     {func(*model.Offer) {}, model.SoldOut},
	}, func(t *testing.T, tc test) {
		x := newTill(t, refuse(asked))
		x.alter(tc.change)
		x.Catalog.Latch(x.offer.ID)
		r := x.request("")
		for name, memory := range map[string]func() model.Outcome{
			"purchase": func() model.Outcome { return check.Must(x.Purchase(t.Context(), r)) },
			"from memory": func() model.Outcome {
				verdict, _ := x.fromMemory(r, x.Catalog.InMemory(x.offer.ID))
				return model.Outcome{Verdict: verdict}
			},
		} {
			check.Same(t, name, memory(), model.Outcome{Verdict: tc.want})
		}
		x.metered(t, tc.want)
		r.Key = "key"
		if outcome, ok := x.fromMemory(r, x.Catalog.InMemory(r.SaleID)); ok {
			t.Errorf("under a key, memory decides %+v", outcome)
		}
	})
}

// An attempt is derived from the request, and the same key gives the same id.
func TestAttemptsAreDerived(t *testing.T) {
	x := newTill(t, refuse(model.SoldOut))
	r := x.request("key")
	r.Quantity, r.Frequency = 2, model.Frequency{Limit: 3, Window: time.Second}
	for _, key := range []string{"key", "key", "other", "", ""} {
		r.Key = key
		x.Catalog.Unlatch(x.offer.ID)
		check.Must(x.Purchase(t.Context(), r))
	}
	want := x.keyed(2)
	want.Frequency, want.Shards, want.LeastEpoch = r.Frequency, x.offer.Shards, x.offer.Stock.Epoch
	for i := range x.attempts {
		x.attempts[i].Waiter = nil
	}
	check.Same(t, "attempts under the same key", x.attempts[:2], []model.Attempt{want, want})
	ids := map[string]bool{}
	for _, a := range x.attempts {
		if a.IdempotencyKey == "" || !purchaseIDs.Issued("buyer", a.ID) || a.ID != purchaseIDs.Derive("buyer", x.offer.ID, a.IdempotencyKey) {
			t.Errorf("attempt %+v", a)
		}
		ids[a.ID] = true
	}
	check.Same(t, "different ids", len(ids), 4)
}

// The strategy's durable answers are returned unchanged.
func TestDurableAnswers(t *testing.T) {
	order := &model.Order{ID: "any", Status: model.OrderPending}
	rejected := &model.Order{Status: model.OrderRejected}
	type test struct {
		key     string
		outcome model.Outcome
	}
	check.Each(t, map[string]test{
		"an order":         {"key", model.Outcome{Verdict: model.Accepted, Order: order}},
		"a repeated order": {"key", model.Outcome{Verdict: model.Accepted, Order: order, Repeated: true}},
		"another request":  {"key", model.Outcome{Verdict: model.IdempotencyMismatch, Repeated: true}},
		"too frequent":     {"key", model.Outcome{Verdict: model.TooFrequent, RetryAfter: time.Second}},
		"rejected before":  {"key", model.Outcome{Verdict: model.LimitReached, Order: rejected, Repeated: true}},
		"refused, no key":  {"", model.Outcome{Verdict: model.Paused}},
	}, func(t *testing.T, tc test) {
		x := newTill(t, func(model.Attempt) (model.Outcome, error) { return tc.outcome, nil })
		check.Same(t, "outcome", check.Must(x.Purchase(t.Context(), x.request(tc.key))), tc.outcome)
		check.Same(t, "look-ups, deductions", []int{x.looked, len(x.stages["deduct"])}, []int{0, 1})
		x.metered(t, tc.outcome.Verdict)
	})
}

// A sale that is not in memory can't be bought while the database is away.
func TestSaleThatCantBeLookedUp(t *testing.T) {
	x := newTill(t, refuse(asked))
	other := openOffer()
	x.store.add(other)
	x.store.change(func(f *fakeStores) { f.err = errAway })
	r := x.request("")
	r.SaleID = other.ID
	got, err := x.Purchase(t.Context(), r)
	check.Error(t, "purchase", err, errAway)
	check.Same(t, "outcome", got, model.Outcome{})
	x.metered(t, model.Unavailable)
}

func TestStrategyError(t *testing.T) {
	x := newTill(t, func(model.Attempt) (model.Outcome, error) { return model.Outcome{}, model.ErrUnavailable })
	got, err := x.Purchase(t.Context(), x.request("key"))
	check.Error(t, "purchase", err, model.ErrUnavailable)
	check.Same(t, "outcome", got, model.Outcome{})
	x.metered(t, model.Unavailable)
}

// A refusal of one unit as sold out latches the sale. A refusal of two does not, since one unit may be left.
func TestSoldOutLatches(t *testing.T) {
	for quantity, latched := range map[int]bool{1: true, 2: false} {
		x := newTill(t, refuse(model.SoldOut))
		r := x.request("")
		r.Quantity = quantity
		check.Must(x.Purchase(t.Context(), r))
		check.Same(t, "latched", x.Catalog.Latched(x.offer.ID), latched)
	}
}

// A buyer waits for a queued attempt until it is settled, but not for ever.
func TestQueuedIsFollowed(t *testing.T) {
	const (
		never = time.Duration(-1)
		ms    = time.Millisecond
	)
	const atTheGate = 20 * ms
	settled := model.Outcome{Verdict: model.Accepted, Order: &model.Order{ID: "settled", Status: model.OrderPending}}
	soldOut := model.Outcome{Verdict: model.SoldOut}
	wait := func(milliseconds time.Duration) Preference { return Preference{Wait: milliseconds * ms} }
	type test struct {
		ackQueued bool
		prefer    Preference
		told      time.Duration // after the admission
		with      model.Outcome
		stored    bool  // the order is in the database
		errOrder  error // of the look-up of the order
		leaves    time.Duration
		closing   time.Duration

		waited time.Duration // from the admission on
		want   string        // the status of the order, or a refusal
	}
	queued := model.Outcome{Verdict: model.Queued} // the buyer is to look
	check.EachInBubble(t, map[string]test{
		"settled at once":            {with: settled, waited: 0, want: "pending"},
		"settled in time":            {told: 790 * ms, with: settled, waited: 790 * ms, want: "pending"},
		"refused in time":            {told: ms, with: soldOut, waited: ms, want: "sold_out"},
		"settled too late":           {told: 801 * ms, with: settled, waited: 800 * ms, want: "queued"},
		"never settled":              {told: never, waited: 800 * ms, want: "queued"},
		"nobody told":                {told: never, stored: true, waited: 800 * ms, want: "pending"},
		"another instance settled":   {told: ms, with: queued, stored: true, waited: ms, want: "pending"},
		"a forged wake-up":           {told: ms, with: queued, waited: ms, want: "queued"},
		"no database at the end":     {told: never, errOrder: errAway, waited: 800 * ms, want: "queued"},
		"AckQueued":                  {ackQueued: true, told: ms, with: settled, waited: 0, want: "queued"},
		"prefer async":               {prefer: Preference{Async: true}, told: ms, with: settled, waited: 0, want: "queued"},
		"AckQueued, prefer to wait":  {ackQueued: true, prefer: wait(2000), told: ms, with: settled, waited: ms, want: "pending"},
		"prefer to wait longer":      {prefer: wait(5000), told: 4000 * ms, with: settled, waited: 4000 * ms, want: "pending"},
		"prefer to wait shorter":     {prefer: wait(10), told: never, waited: 10 * ms, want: "queued"},
		"prefer to wait for an hour": {prefer: wait(3_600_000), told: never, waited: maxWait - atTheGate, want: "queued"},
		"the buyer leaves":           {told: never, leaves: 100 * ms, waited: 100 * ms, want: "queued"},
		"the server stops":           {told: never, closing: 100 * ms, waited: 100 * ms, want: "queued"},
	}, func(t *testing.T, tc test) {
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		after := func(d time.Duration, fn func()) {
			timer := time.AfterFunc(d, fn)
			t.Cleanup(func() { timer.Stop() })
		}
		var x *till
		x = newTill(t, func(a model.Attempt) (model.Outcome, error) {
			time.Sleep(atTheGate)
			a.Waiter.Admit(time.Now())
			if tc.told == 0 {
				a.Waiter.Tell(tc.with, nil)
			} else if tc.told != never {
				after(tc.told, func() { a.Waiter.Tell(tc.with, nil) })
			}
			if tc.leaves > 0 {
				after(tc.leaves, leave)
			}
			if tc.closing > 0 {
				after(tc.closing, x.Waiters.Close)
			}
			if tc.stored {
				x.made(a, model.OrderPending, "")
			}
			return a.Waiter.Told()
		})
		x.AckQueued, x.errOrder = tc.ackQueued, tc.errOrder
		r := x.request("")
		r.Prefer = tc.prefer
		got := check.Must(x.Purchase(ctx, r))
		check.Same(t, "stages", x.stages, map[string][]time.Duration{"deduct": {atTheGate}, "settle_wait": {tc.waited}})
		check.Same(t, "repeated", got.Repeated, false)
		if got.Order == nil {
			check.Same(t, "refusal", string(got.Verdict), tc.want)
		} else {
			check.Same(t, "order", string(got.Order.Status), tc.want)
			check.Same(t, "queued", got.Verdict == model.Queued, tc.want == "queued")
		}
		if got.Verdict == model.Queued {
			check.Same(t, "the order has a time", got.Order.CreatedAt.IsZero(), false)
			check.Same(t, "queued order", *got.Order, model.Order{
				ID: x.attempts[0].ID, SaleID: x.offer.ID, UserID: "buyer", Quantity: 1, Status: model.OrderQueued,
				AmountCents: 150, Currency: "CNY", CreatedAt: got.Order.CreatedAt,
			})
		}
		x.metered(t, got.Verdict)
	})
}

// The gate knows the id of a repeated attempt, which may be settled or not.
func TestRepeatedQueuedAttempt(t *testing.T) {
	type test struct {
		change func(x *till)
		waits  time.Duration
		want   model.Verdict
		status model.OrderStatus
		err    error
	}
	meanwhile := func(x *till) { time.AfterFunc(firstLook+1, func() { pending(1)(x) }) }
	made := func(status model.OrderStatus, reason model.Verdict) func(*till) {
		return func(x *till) { x.made(x.keyed(1), status, reason) }
	}
	stops := func(x *till) { time.AfterFunc(5*firstLook, x.Waiters.Close) }
	leaves := func(x *till) { time.AfterFunc(5*firstLook, x.leave) }
	check.EachInBubble(t, map[string]test{
		"settled":                  {pending(1), 0, model.Accepted, model.OrderPending, nil},
		"paid":                     {made(model.OrderPaid, ""), 0, model.Accepted, model.OrderPaid, nil},
		"refused when settled":     {made(model.OrderRejected, model.SoldOut), 0, model.SoldOut, model.OrderRejected, nil},
		"another request, settled": {pending(2), 0, model.IdempotencyMismatch, "", nil},
		"settled by another":       {meanwhile, 3 * firstLook, model.Accepted, model.OrderPending, nil},
		"not settled":              {func(*till) {}, 800 * time.Millisecond, model.Queued, model.OrderQueued, nil},
		"the server stops":         {stops, 5 * firstLook, model.Queued, model.OrderQueued, nil},
		"the buyer leaves":         {leaves, 5 * firstLook, model.Queued, model.OrderQueued, nil},
		"no database":              {(*till).noDatabase, 0, "", "", model.ErrUnavailable},
	}, func(t *testing.T, tc test) {
		x := newTill(t, repeat)
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		x.leave = leave
		tc.change(x)
		start := time.Now()
		got, err := x.Purchase(ctx, x.request("key"))
		check.Same(t, "waited", time.Since(start), tc.waits)
		x.answered(t, got, err, model.Outcome{Verdict: tc.want, Repeated: tc.err == nil}, tc.status, tc.err)
	})
}

// answered compares an answer, and the status of its order (empty: no order).
func (x *till) answered(t *testing.T, got model.Outcome, err error, want model.Outcome, status model.OrderStatus, wantErr error) {
	t.Helper()
	var gotStatus model.OrderStatus
	if got.Order != nil {
		gotStatus, got.Order = got.Order.Status, nil
	}
	check.Error(t, "purchase", err, wantErr)
	check.Same(t, "status of the order", gotStatus, status)
	check.Same(t, "outcome", got, want)
}

// A refusal under a key is replaced by the outcome of the first request under the key.
func TestKeyedRefusalIsReplayed(t *testing.T) {
	type test struct {
		key    string
		says   model.Verdict // the strategy
		change func(x *till)
		want   model.Outcome
		status model.OrderStatus
		err    error
		looked int
	}
	repeated := func(v model.Verdict) model.Outcome { return model.Outcome{Verdict: v, Repeated: true} }
	failure := func(x *till) { x.made(x.keyed(1), model.OrderRejected, model.ReasonFailed) }
	first := func(v model.Verdict) model.Outcome { return model.Outcome{Verdict: v} }
	check.Each(t, map[string]test{
		"an order":          {"key", model.SoldOut, pending(1), repeated(model.Accepted), model.OrderPending, nil, 1},
		"a durable refusal": {"key", model.Ended, failure, repeated(model.ReasonFailed), model.OrderRejected, nil, 1},
		"another request":   {"key", model.LimitReached, pending(2), repeated(model.IdempotencyMismatch), "", nil, 1},
		"no outcome":        {"key", model.LimitReached, func(*till) {}, first(model.LimitReached), "", nil, 1},
		"no database":       {"key", model.SoldOut, (*till).noDatabase, model.Outcome{}, "", model.ErrUnavailable, 1},
		"no key":            {"", model.SoldOut, (*till).noDatabase, first(model.SoldOut), "", nil, 0},
		"too frequent":      {"key", model.TooFrequent, pending(1), first(model.TooFrequent), "", nil, 0},
	}, func(t *testing.T, tc test) {
		x := newTill(t, refuse(tc.says))
		tc.change(x)
		got, err := x.Purchase(t.Context(), x.request(tc.key))
		x.answered(t, got, err, tc.want, tc.status, tc.err)
		check.Same(t, "look-ups", x.looked, tc.looked)
	})
}

// The memory of an instance, and the gate, may be older than a call: while a sale has become a line, they still refuse. So the
// database is asked whether it has, and then decides itself. A lease says that nobody can be called.
func TestHole61_RefusalsOfAWaitingList(t *testing.T) {
	type test struct {
		key             string
		says            model.Verdict
		list, inLine    bool
		latched, leased bool
		errLine         error
		want            model.Verdict
		err             error
	}
	const called = model.NotYourTurn // what the database says to those who are not called
	check.Each(t, map[string]test{
		"in line":                            {says: model.SoldOut, list: true, inLine: true, want: called},
		"in line, under a key":               {key: "key", says: model.SoldOut, list: true, inLine: true, want: called},
		"the gate counts units that are not": {key: "key", says: model.LimitReached, list: true, inLine: true, want: called},
		"a list that is not known yet":       {key: "key", says: model.SoldOut, inLine: true, want: called},
		"not in line":                        {key: "key", says: model.SoldOut, list: true, want: model.SoldOut},
		"another refusal":                    {key: "key", says: model.Paused, list: true, inLine: true, want: model.Paused},
		"no list and no key":                 {says: model.SoldOut, inLine: true, want: model.SoldOut},
		"the database is away":               {says: model.SoldOut, list: true, errLine: errAway, err: model.ErrUnavailable},
		"latched, without a lease":           {says: model.SoldOut, list: true, inLine: true, latched: true, want: called},
		"latched, with a lease":              {says: asked, list: true, inLine: true, latched: true, leased: true, want: model.SoldOut},
	}, func(t *testing.T, tc test) {
		x := newTill(t, refuse(tc.says))
		x.Called, x.inLine, x.errLine = strategyFunc(refuse(called)), tc.inLine, tc.errLine
		x.alter(func(o *model.Offer) {
			if o.WaitingList = tc.list; tc.list {
				o.Stock.Lined = model.LinedAtSoldOut
			}
		})
		if tc.latched {
			x.Catalog.Latch(x.offer.ID)
		}
		if tc.leased {
			x.SoldOut.Refuses(x.offer.ID, "an id") // the next refresh gets the lease
			check.NoError(t, x.SoldOut.Refresh(t.Context()))
		}
		got, err := x.Purchase(t.Context(), x.request(tc.key))
		check.Same(t, "verdict", got.Verdict, tc.want)
		check.Same(t, "unavailable", errors.Is(err, model.ErrUnavailable), tc.err != nil)
	})
}

// A limit ends with the request, at its time, and with the purchase, also for contexts below it.
func TestLimit(t *testing.T) {
	type test struct {
		leaves time.Duration
		want   error
	}
	check.EachInBubble(t, map[string]test{
		"its time is over": {want: context.DeadlineExceeded}, "the buyer leaves": {leaves: time.Second, want: context.Canceled},
	}, func(t *testing.T, tc test) {
		for _, waits := range []bool{false, true} {
			ctx, leave := context.WithCancel(t.Context())
			l := &limit{Context: ctx, at: time.Now().Add(purchaseLimit), now: time.Now}
			check.Error(t, "at first", l.Err(), nil)
			below, cancel := context.WithCancel(ctx)
			if waits {
				below, cancel = context.WithCancel(l)
			}
			if tc.leaves > 0 {
				time.Sleep(tc.leaves)
				leave()
			} else {
				time.Sleep(purchaseLimit)
			}
			if waits {
				<-below.Done()
				check.Error(t, "below", below.Err(), tc.want)
			}
			check.Error(t, "in the end", l.Err(), tc.want)
			l.end()
			cancel()
			leave()
		}
		l := &limit{Context: t.Context(), at: time.Now().Add(purchaseLimit), now: time.Now}
		below, cancel := context.WithCancel(l)
		defer cancel()
		l.end()
		<-below.Done()
		check.Error(t, "after the purchase", below.Err(), context.Canceled)
	})
}
