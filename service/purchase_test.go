package service

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/model"
)

var purchaseIDs = model.NewOrderIDs([]byte("a key for tests"))

// till is a desk for purchases over fakes: it notes what reached the strategy, the settler and the meter.
type till struct {
	*Purchases
	offer model.Offer
	store *fakeSales

	mu       sync.Mutex
	attempts []model.Attempt
	notified []string
	verdicts []model.Verdict
	stages   map[string]int
	orders   map[string]model.Order
	errOrder error
	looked   int
}

func newTill(t *testing.T, deduct func(a model.Attempt) (model.Outcome, error)) *till {
	t.Helper()
	x := &till{offer: openOffer(), stages: map[string]int{}, orders: map[string]model.Order{}}
	x.store = newFakeSales(x.offer)
	x.Purchases = &Purchases{
		Catalog: refreshed(t, x.store), IDs: purchaseIDs, Orders: x, Waiters: NewWaiters(), Meter: x, Now: time.Now,
		Strategy: strategyFunc(func(a model.Attempt) (model.Outcome, error) {
			x.note(func() { x.attempts = append(x.attempts, a) })
			return deduct(a)
		}),
		Queued:  func(id string) { x.note(func() { x.notified = append(x.notified, id) }) },
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

func (x *till) Stage(name string, _ time.Duration) { x.note(func() { x.stages[name]++ }) }
func (x *till) Verdict(v model.Verdict)            { x.note(func() { x.verdicts = append(x.verdicts, v) }) }

func (x *till) Order(_ context.Context, id string) (model.Order, bool, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.looked++
	o, ok := x.orders[id]
	return o, ok, x.errOrder
}

// made puts an attempt's order into the database.
func (x *till) made(a model.Attempt, change ...func(*model.Order)) model.Order {
	o := model.Order{ID: a.ID, SaleID: a.SaleID, UserID: a.UserID, Quantity: a.Quantity, Status: model.OrderPending, RequestHash: a.RequestHash}
	for _, f := range change {
		f(&o)
	}
	x.note(func() { x.orders[a.ID] = o })
	return o
}

func (x *till) request(key string) Request {
	return Request{UserID: "buyer", SaleID: x.offer.ID, Quantity: 1, Key: key}
}

// keyed is the attempt that a request under a key makes.
func (x *till) keyed(quantity int) model.Attempt {
	return model.Attempt{
		ID: purchaseIDs.Derive("buyer", x.offer.ID, "key"), SaleID: x.offer.ID, UserID: "buyer", Quantity: quantity,
		RequestKey: "key", RequestHash: model.HashRequest(quantity),
	}
}

func queue(model.Attempt) (model.Outcome, error) { return model.Outcome{Verdict: model.Accepted}, nil }

func repeat(model.Attempt) (model.Outcome, error) {
	return model.Outcome{Verdict: model.Accepted, Repeated: true}, nil
}

func refuse(v model.Verdict) func(model.Attempt) (model.Outcome, error) {
	return func(model.Attempt) (model.Outcome, error) { return model.Outcome{Verdict: v}, nil }
}

// TestRefusedBeforeTheStrategy: what costs no store at all.
func TestRefusedBeforeTheStrategy(t *testing.T) {
	tests := map[string]struct {
		change func(x *till, r *Request)
		want   model.Verdict
		asks   bool
	}{
		"no such sale":      {func(_ *till, r *Request) { r.SaleID = "NONE" }, model.NotFound, false},
		"nothing":           {func(_ *till, r *Request) { r.Quantity = 0 }, model.BadRequest, false},
		"less than nothing": {func(_ *till, r *Request) { r.Quantity = -5 }, model.BadRequest, false},
		"above the limit":   {func(_ *till, r *Request) { r.Quantity = 3 }, model.BadRequest, false},
		"past any number":   {func(_ *till, r *Request) { r.Quantity = 1 << 40 }, model.BadRequest, false},
		"latched":           {func(x *till, _ *Request) { x.Catalog.Latch(x.offer.ID) }, model.SoldOut, false},
		"latched, but with a key that may have been accepted": {func(x *till, r *Request) {
			x.Catalog.Latch(x.offer.ID)
			r.Key = "key"
		}, model.Paused, true},
		"at the limit": {func(_ *till, r *Request) { r.Quantity = 2 }, model.Paused, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := newTill(t, refuse(model.Paused))
				r := x.request("")
				tc.change(x, &r)
				got, err := x.Purchase(t.Context(), r)
				if err != nil || got != (model.Outcome{Verdict: tc.want}) {
					t.Errorf("%+v, %v; want %s", got, err, tc.want)
				}
				if asked := len(x.attempts) > 0; asked != tc.asks {
					t.Errorf("the strategy was asked: %t", asked)
				}
				if len(x.verdicts) != 1 || x.verdicts[0] != tc.want {
					t.Errorf("metered %v", x.verdicts)
				}
			})
		})
	}
}

// Hole 60: a key that had an order of more units than the limit now is gets its first answer; a new one is refused.
func TestHole60_LimitLowered(t *testing.T) {
	const asked = 3 // the limit is 2
	for name, tc := range map[string]struct {
		deduct func(model.Attempt) (model.Outcome, error)
		order  model.OrderStatus // in the database under the key
		want   model.Verdict
		looks  int
	}{
		"a new key":                       {refuse(model.BadRequest), "", model.BadRequest, 1},
		"a new key, where only units fit": {refuse(model.LimitReached), "", model.BadRequest, 1},
		"too frequent":                    {refuse(model.TooFrequent), "", model.TooFrequent, 0},
		"settled before":                  {refuse(model.BadRequest), model.OrderPending, model.Accepted, 1},
		"known to the gate":               {repeat, model.OrderPending, model.Accepted, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := newTill(t, tc.deduct)
				a := x.keyed(asked)
				if tc.order != "" {
					x.orders[a.ID] = model.Order{ID: a.ID, Status: tc.order, Quantity: asked, RequestHash: a.RequestHash}
				}
				r := x.request("key")
				r.Quantity = asked
				got, err := x.Purchase(t.Context(), r)
				if err != nil || got.Verdict != tc.want || (got.Order != nil) != (tc.order != "") || x.looked != tc.looks {
					t.Errorf("%+v, %v after %d looks; want %s after %d", got, err, x.looked, tc.want, tc.looks)
				}
			})
		})
	}
}

// TestLatchKeepsTheOrderOfRefusals: that nothing is left is said only while the sale sells at all.
func TestLatchKeepsTheOrderOfRefusals(t *testing.T) {
	tests := map[string]struct {
		change func(o *model.Offer)
		want   model.Verdict
	}{
		"not started": {func(o *model.Offer) { o.StartsAt = time.Now().Add(time.Minute) }, model.NotStarted},
		"ended":       {func(o *model.Offer) { o.EndsAt = time.Now().Add(-time.Minute) }, model.Ended},
		"paused":      {func(o *model.Offer) { o.Status = model.SalePaused }, model.Paused},
		"closed":      {func(o *model.Offer) { o.Status = model.SaleClosed }, model.Ended},
		"selling":     {func(*model.Offer) {}, model.SoldOut},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var x *till
				x = newTill(t, func(model.Attempt) (model.Outcome, error) {
					return model.Outcome{Verdict: x.store.offers[0].Judge(time.Now())}, nil
				})
				x.store.change(func(f *fakeSales) {
					tc.change(&f.offers[0])
					f.offers[0].Stock.Available = 0
				})
				if err := x.Catalog.Refresh(t.Context()); err != nil {
					t.Fatal(err)
				}
				x.Catalog.Latch(x.offer.ID)
				if got, err := x.Purchase(t.Context(), x.request("")); err != nil || got.Verdict != tc.want {
					t.Errorf("%+v, %v; want %s", got, err, tc.want)
				}
			})
		})
	}
}

// TestAttemptsAreDerived: what reaches the strategy is made of the request, and the same key gives the same id.
func TestAttemptsAreDerived(t *testing.T) {
	x := newTill(t, refuse(model.SoldOut))
	r := x.request("key")
	r.Quantity, r.Frequency = 2, model.Frequency{Limit: 3, Window: time.Second}
	for _, key := range []string{"key", "key", "other", "", ""} {
		r.Key = key
		x.Catalog.Unlatch(x.offer.ID)
		if _, err := x.Purchase(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	want := x.keyed(2)
	want.Frequency = r.Frequency
	if x.attempts[0] != want || x.attempts[1] != want {
		t.Errorf("attempts %+v, want %+v", x.attempts[:2], want)
	}
	ids := map[string]bool{}
	for _, a := range x.attempts {
		if a.RequestKey == "" || !purchaseIDs.Issued("buyer", a.ID) || a.ID != purchaseIDs.Derive("buyer", x.offer.ID, a.RequestKey) {
			t.Errorf("attempt %+v", a)
		}
		ids[a.ID] = true
	}
	if len(ids) != 4 {
		t.Errorf("%d different ids, want 4", len(ids))
	}
}

// TestDurableAnswers pass as they are.
func TestDurableAnswers(t *testing.T) {
	order := &model.Order{ID: "any", Status: model.OrderPending}
	tests := map[string]model.Outcome{
		"an order":              {Verdict: model.Accepted, Order: order},
		"an order, again":       {Verdict: model.Accepted, Order: order, Repeated: true},
		"another request":       {Verdict: model.IdempotencyMismatch, Repeated: true},
		"too frequent":          {Verdict: model.TooFrequent, RetryAfter: time.Second},
		"rejected before":       {Verdict: model.LimitReached, Order: &model.Order{Status: model.OrderRejected}, Repeated: true},
		"paused, without a key": {Verdict: model.Paused},
	}
	for name, outcome := range tests {
		t.Run(name, func(t *testing.T) {
			x := newTill(t, func(model.Attempt) (model.Outcome, error) { return outcome, nil })
			key := "key"
			if name == "paused, without a key" {
				key = ""
			}
			got, err := x.Purchase(t.Context(), x.request(key))
			if err != nil || got != outcome || x.looked != 0 || len(x.notified) != 0 {
				t.Errorf("%+v, %v; looked %d times, notified %v", got, err, x.looked, x.notified)
			}
			if len(x.verdicts) != 1 || x.verdicts[0] != outcome.Verdict || x.stages["deduct"] != 1 {
				t.Errorf("metered %v %v", x.verdicts, x.stages)
			}
			if x.Waiters.waited() != 0 {
				t.Error("somebody waits still")
			}
		})
	}
}

func TestStrategyError(t *testing.T) {
	x := newTill(t, func(model.Attempt) (model.Outcome, error) { return model.Outcome{}, model.ErrUnavailable })
	if got, err := x.Purchase(t.Context(), x.request("key")); !errors.Is(err, model.ErrUnavailable) || got != (model.Outcome{}) {
		t.Errorf("%+v, %v", got, err)
	}
	if len(x.verdicts) != 1 || x.verdicts[0] != model.Unavailable || x.Waiters.waited() != 0 {
		t.Errorf("metered %v, %d waiting", x.verdicts, x.Waiters.waited())
	}
}

// TestSoldOutLatches when not even one unit was left.
func TestSoldOutLatches(t *testing.T) {
	for quantity, latched := range map[int]bool{1: true, 2: false} {
		x := newTill(t, refuse(model.SoldOut))
		r := x.request("")
		r.Quantity = quantity
		if _, err := x.Purchase(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if x.Catalog.Latched(x.offer.ID) != latched {
			t.Errorf("%d units: latched %t", quantity, !latched)
		}
	}
}

// TestQueuedIsFollowed: how long a buyer waits for a queued attempt and what is said in the end.
func TestQueuedIsFollowed(t *testing.T) {
	const never = -1
	yes := model.Outcome{Verdict: model.Accepted, Order: &model.Order{ID: "settled", Status: model.OrderPending}}
	no := model.Outcome{Verdict: model.SoldOut}
	tests := map[string]struct {
		ackQueued bool
		prefer    Preference
		woken     time.Duration // after the start
		with      model.Outcome
		lost      bool  // the order is in the database when the wait is over, and nobody said so
		errOrder  error // of that look-up
		leaves    time.Duration
		closing   time.Duration

		waited time.Duration
		status model.OrderStatus // empty: a refusal
		want   model.Verdict
	}{
		"settled at once":            {with: yes, waited: 0, status: model.OrderPending, want: model.Accepted},
		"settled in time":            {woken: 799 * time.Millisecond, with: yes, waited: 799 * time.Millisecond, status: model.OrderPending, want: model.Accepted},
		"refused in time":            {woken: time.Millisecond, with: no, waited: time.Millisecond, want: model.SoldOut},
		"too late":                   {woken: 801 * time.Millisecond, with: yes, waited: 800 * time.Millisecond, status: model.OrderQueued, want: model.Accepted},
		"never":                      {woken: never, waited: 800 * time.Millisecond, status: model.OrderQueued, want: model.Accepted},
		"the wake-up was lost":       {woken: never, lost: true, waited: 800 * time.Millisecond, status: model.OrderPending, want: model.Accepted},
		"another instance settled":   {woken: time.Millisecond, lost: true, waited: time.Millisecond, status: model.OrderPending, want: model.Accepted},
		"a forged wake-up":           {woken: time.Millisecond, waited: time.Millisecond, status: model.OrderQueued, want: model.Accepted},
		"nobody can look":            {woken: never, errOrder: errAway, waited: 800 * time.Millisecond, status: model.OrderQueued, want: model.Accepted},
		"answers are queued":         {ackQueued: true, woken: time.Millisecond, with: yes, waited: 0, status: model.OrderQueued, want: model.Accepted},
		"async":                      {prefer: Preference{Async: true}, woken: time.Millisecond, with: yes, waited: 0, status: model.OrderQueued, want: model.Accepted},
		"wait, though queued":        {ackQueued: true, prefer: Preference{Wait: 2 * time.Second}, woken: time.Second, with: yes, waited: time.Second, status: model.OrderPending, want: model.Accepted},
		"wait longer":                {prefer: Preference{Wait: 5 * time.Second}, woken: 4 * time.Second, with: yes, waited: 4 * time.Second, status: model.OrderPending, want: model.Accepted},
		"wait shorter":               {prefer: Preference{Wait: time.Millisecond}, woken: never, waited: time.Millisecond, status: model.OrderQueued, want: model.Accepted},
		"wait for ever":              {prefer: Preference{Wait: time.Hour}, woken: never, waited: maxWait, status: model.OrderQueued, want: model.Accepted},
		"the buyer leaves":           {woken: never, leaves: 100 * time.Millisecond, waited: 100 * time.Millisecond, status: model.OrderQueued, want: model.Accepted},
		"the server stops meanwhile": {woken: never, closing: 100 * time.Millisecond, waited: 100 * time.Millisecond, status: model.OrderQueued, want: model.Accepted},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var x *till
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				closing := make(chan struct{})
				var timers []*time.Timer
				after := func(d time.Duration, fn func()) { timers = append(timers, time.AfterFunc(d, fn)) }
				x = newTill(t, func(a model.Attempt) (model.Outcome, error) {
					if tc.woken == 0 {
						x.Waiters.Wake(a.ID, tc.with) // before the answer of the strategy
					} else if tc.woken != never {
						after(tc.woken, func() { x.Waiters.Wake(a.ID, tc.with) })
					}
					if tc.lost {
						x.made(a)
					}
					return model.Outcome{Verdict: model.Accepted}, nil
				})
				x.AckQueued, x.errOrder, x.Closing = tc.ackQueued, tc.errOrder, closing
				if tc.leaves > 0 {
					after(tc.leaves, leave)
				}
				if tc.closing > 0 {
					after(tc.closing, func() { close(closing) })
				}
				r := x.request("")
				r.Prefer = tc.prefer
				start := time.Now()
				got, err := x.Purchase(ctx, r)
				if waited := time.Since(start); waited != tc.waited {
					t.Errorf("waited %s, want %s", waited, tc.waited)
				}
				if err != nil || got.Verdict != tc.want || got.Repeated || (got.Order == nil) != (tc.status == "") {
					t.Fatalf("%+v, %v; want %s %s", got, err, tc.want, tc.status)
				}
				meter := got.Verdict
				if got.Order != nil {
					if got.Order.Status != tc.status {
						t.Errorf("the order is %s, want %s", got.Order.Status, tc.status)
					}
					if got.Order.Status == model.OrderQueued {
						meter = "queued"
						a := x.attempts[0]
						want := model.Order{
							ID: a.ID, SaleID: a.SaleID, UserID: "buyer", Quantity: 1, Status: model.OrderQueued,
							AmountCents: 150, Currency: "CNY", CreatedAt: got.Order.CreatedAt,
						}
						if *got.Order != want || want.CreatedAt.IsZero() {
							t.Errorf("queued %+v, want %+v", *got.Order, want)
						}
					}
				}
				if len(x.verdicts) != 1 || x.verdicts[0] != meter {
					t.Errorf("metered %v, want %s", x.verdicts, meter)
				}
				if len(x.notified) != 1 || x.notified[0] != x.offer.ID {
					t.Errorf("the settler was told of %v", x.notified)
				}
				if x.Waiters.waited() != 0 {
					t.Error("somebody waits still")
				}
				for _, timer := range timers {
					timer.Stop()
				}
			})
		})
	}
}

// TestRepeatedQueuedAttempt: the gate knows the id. It may have been settled long ago, or not yet.
func TestRepeatedQueuedAttempt(t *testing.T) {
	tests := map[string]struct {
		change func(x *till)
		waits  bool
		want   model.Verdict
		status model.OrderStatus
		err    error
	}{
		"settled long since": {func(x *till) { x.made(x.keyed(1)) }, false, model.Accepted, model.OrderPending, nil},
		"paid by now":        {func(x *till) { x.made(x.keyed(1), func(o *model.Order) { o.Status = model.OrderPaid }) }, false, model.Accepted, model.OrderPaid, nil},
		"refused when settled": {func(x *till) {
			x.made(x.keyed(1), func(o *model.Order) { o.Status, o.Reason = model.OrderRejected, model.SoldOut })
		}, false, model.SoldOut, model.OrderRejected, nil},
		"another request, decided": {func(x *till) { x.made(x.keyed(2)) }, false, model.IdempotencyMismatch, "", nil},
		"not settled yet":          {func(*till) {}, true, model.Accepted, model.OrderQueued, nil},
		"nobody can look":          {func(x *till) { x.errOrder = errAway }, false, "", "", model.ErrUnavailable},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := newTill(t, repeat)
				tc.change(x)
				start := time.Now()
				got, err := x.Purchase(t.Context(), x.request("key"))
				if !errors.Is(err, tc.err) || got.Verdict != tc.want || (got.Order == nil) != (tc.status == "") {
					t.Fatalf("%+v, %v; want %s %s, %v", got, err, tc.want, tc.status, tc.err)
				}
				if got.Order != nil && got.Order.Status != tc.status || tc.err == nil && !got.Repeated {
					t.Errorf("%+v, order %+v", got, got.Order)
				}
				if waited := time.Since(start) > 0; waited != tc.waits {
					t.Errorf("waited %t", waited)
				}
			})
		})
	}
}

// TestKeyedRefusalIsReplayed: what this way of deducting refuses, the first request under the key may have got.
func TestKeyedRefusalIsReplayed(t *testing.T) {
	tests := map[string]struct {
		key    string
		says   model.Verdict
		change func(x *till)
		want   model.Outcome // its order aside
		status model.OrderStatus
		err    error
		looked int
	}{
		"an order is there": {"key", model.SoldOut, func(x *till) { x.made(x.keyed(1)) }, model.Outcome{Verdict: model.Accepted, Repeated: true}, model.OrderPending, nil, 1},
		"a durable refusal": {"key", model.Ended, func(x *till) {
			x.made(x.keyed(1), func(o *model.Order) { o.Status, o.Reason = model.OrderRejected, model.ReasonFailed })
		}, model.Outcome{Verdict: model.ReasonFailed, Repeated: true}, model.OrderRejected, nil, 1},
		"another request":         {"key", model.LimitReached, func(x *till) { x.made(x.keyed(2)) }, model.Outcome{Verdict: model.IdempotencyMismatch, Repeated: true}, "", nil, 1},
		"nothing is there":        {"key", model.LimitReached, func(*till) {}, model.Outcome{Verdict: model.LimitReached}, "", nil, 1},
		"nobody can look":         {"key", model.SoldOut, func(x *till) { x.errOrder = errAway }, model.Outcome{}, "", model.ErrUnavailable, 1},
		"without a key":           {"", model.SoldOut, func(x *till) { x.errOrder = errAway }, model.Outcome{Verdict: model.SoldOut}, "", nil, 0},
		"too frequent is not one": {"key", model.TooFrequent, func(x *till) { x.made(x.keyed(1)) }, model.Outcome{Verdict: model.TooFrequent}, "", nil, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			x := newTill(t, refuse(tc.says))
			tc.change(x)
			got, err := x.Purchase(t.Context(), x.request(tc.key))
			order := got.Order
			got.Order = nil
			if !errors.Is(err, tc.err) || (tc.err == nil) != (err == nil) || got != tc.want || x.looked != tc.looked {
				t.Errorf("%+v, %v after %d look-ups; want %+v, %v", got, err, x.looked, tc.want, tc.err)
			}
			if (order == nil) != (tc.status == "") || order != nil && order.Status != tc.status {
				t.Errorf("the order is %+v, want %s", order, tc.status)
			}
		})
	}
}

// TestOneBuyerTwiceAtOnce: the same request on two connections; both hear when it is settled.
func TestOneBuyerTwiceAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTill(t, queue)
		answers := make(chan model.Outcome, 2)
		for range 2 {
			go func() {
				got, err := x.Purchase(t.Context(), x.request("key"))
				if err != nil {
					t.Error(err)
				}
				answers <- got
			}()
			synctest.Wait()
		}
		order := x.made(x.keyed(1))
		x.Waiters.WakeAll(map[string]model.Outcome{order.ID: {Verdict: model.Accepted, Order: &order}})
		for range 2 {
			if got := <-answers; got.Order == nil || got.Order.ID != order.ID || got.Order.Status != model.OrderPending {
				t.Errorf("%+v", got)
			}
		}
	})
}

// TestFromMemory: what memory is sure of costs neither a store nor the strategy; whatever may repeat an earlier request, or
// be sold, is left to them.
func TestFromMemory(t *testing.T) {
	past, future := time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	tests := map[string]struct {
		change func(x *till, r *Request)
		want   model.Verdict // empty: memory doesn't know
	}{
		"a sale that sells":    {func(*till, *Request) {}, ""},
		"latched":              {func(x *till, _ *Request) { x.Catalog.Latch(x.offer.ID) }, model.SoldOut},
		"latched, under a key": {func(x *till, r *Request) { x.Catalog.Latch(x.offer.ID); r.Key = "key" }, ""},
		"a bad quantity":       {func(_ *till, r *Request) { r.Quantity = 0 }, model.BadRequest},
		"more than the limit":  {func(x *till, r *Request) { r.Quantity = x.offer.LimitPerUser + 1 }, model.BadRequest},
		"an unknown sale":      {func(_ *till, r *Request) { r.SaleID = "NONE" }, ""},
		"paused":               {func(x *till, _ *Request) { x.alter(t, func(o *model.Offer) { o.Status = model.SalePaused }) }, model.Paused},
		"closed":               {func(x *till, _ *Request) { x.alter(t, func(o *model.Offer) { o.Status = model.SaleClosed }) }, model.Ended},
		"not started":          {func(x *till, _ *Request) { x.alter(t, func(o *model.Offer) { o.StartsAt = future }) }, model.NotStarted},
		"ended":                {func(x *till, _ *Request) { x.alter(t, func(o *model.Offer) { o.EndsAt = past }) }, model.Ended},
		"ended, under a key":   {func(x *till, r *Request) { x.alter(t, func(o *model.Offer) { o.EndsAt = past }); r.Key = "key" }, ""},
		"paused, and sold out": {func(x *till, _ *Request) {
			x.Catalog.Latch(x.offer.ID)
			x.alter(t, func(o *model.Offer) { o.Status = model.SalePaused })
		}, model.Paused},
		"one unit, none latched": {func(_ *till, r *Request) { r.Quantity = 1 }, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			x := newTill(t, queue)
			r := x.request("")
			tc.change(x, &r)
			got, ok := x.FromMemory(r)
			if ok != (tc.want != "") || got.Verdict != tc.want {
				t.Errorf("%+v, %t, want %q", got, ok, tc.want)
			}
			if len(x.attempts) != 0 || x.looked != 0 || ok != (len(x.verdicts) == 1) {
				t.Errorf("attempts %v, looks %d, metered %v", x.attempts, x.looked, x.verdicts)
			}
		})
	}
}

// alter changes the sale in the database and has the catalog see it.
func (x *till) alter(t *testing.T, change func(*model.Offer)) {
	t.Helper()
	x.store.change(func(f *fakeSales) {
		change(&f.offers[0])
		f.offers[0].Stock.Available = 0 // a refresh that sees units would clear the latch
	})
	if err := x.Catalog.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
}
