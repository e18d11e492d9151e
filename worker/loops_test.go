package worker

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/model"
	"flashsale/service"
	"flashsale/test/kit"
)

// TestEvery pins what every loop does: at once, each period, when poked; a failure is told when it begins and
// when it is over.
func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, poke := &logbook{}, make(chan struct{}, 1)
		var mu sync.Mutex
		var at []time.Duration
		var failing error
		start := time.Now()
		step := func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			at = append(at, time.Since(start))
			return failing
		}
		fail := func(err error) {
			mu.Lock()
			defer mu.Unlock()
			failing = err
		}
		run := func(ctx context.Context) { every(ctx, "it", time.Second, poke, slog.New(log), step) }
		during(t, run, func() {
			pass(time.Second)
			pass(300 * time.Millisecond)
			poke <- struct{}{}
			synctest.Wait()
			fail(errAway)
			pass(2 * time.Second)
			fail(nil)
			pass(2 * time.Second)
		})
		ms := time.Millisecond
		if want := []time.Duration{0, 1000 * ms, 1300 * ms, 2000 * ms, 3000 * ms, 4000 * ms, 5000 * ms}; !slices.Equal(at, want) {
			t.Errorf("it ran at %v, want %v", at, want)
		}
		if log.count("it fails") != 1 || log.count("it works again") != 1 || len(log.lines) != 2 {
			t.Errorf("logged %q", log.lines)
		}
	})
}

// TestEveryEndsQuietly: a step that fails because everything stops is no failure.
func TestEveryEndsQuietly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &logbook{}
		run := func(ctx context.Context) {
			every(ctx, "it", time.Second, nil, slog.New(log), func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		}
		during(t, run, func() {})
		if len(log.lines) != 0 {
			t.Errorf("logged %q", log.lines)
		}
	})
}

// errTaken stands for another instance that has locked the orders, which is no error of the store.
var errTaken = errors.New("taken")

// fakeExpiry has overdue orders, so many of each sale.
type fakeExpiry struct {
	mu     sync.Mutex
	due    map[string]int
	err    error                     // of every look
	before func(saleID string) error // of an expiry: may block, may fail
	looks  int
	tries  map[string]int
	grace  time.Duration
	step   model.ClockStep
	ahead  time.Duration // of the database's clock
	logged []string
}

func (f *fakeExpiry) Now(context.Context) (time.Time, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Now().Add(f.ahead), f.err
}

func (f *fakeExpiry) Overdue(_ context.Context, grace time.Duration, step model.ClockStep, limit int, except []string) (map[string][]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looks++
	f.grace, f.step = grace, step
	bySale := map[string][]string{}
	for _, sale := range slices.Sorted(maps.Keys(f.due)) {
		n := min(limit, f.due[sale])
		if n > 0 && !slices.Contains(except, sale) {
			bySale[sale] = make([]string, n)
			limit -= n
		}
	}
	return bySale, f.err
}

func (f *fakeExpiry) Expire(_ context.Context, saleID string, orderIDs []string) ([]model.Release, error) {
	f.mu.Lock()
	if f.tries == nil {
		f.tries = map[string]int{}
	}
	f.tries[saleID]++
	f.mu.Unlock()
	if f.before != nil {
		if err := f.before(saleID); errors.Is(err, errTaken) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.due[saleID] -= len(orderIDs)
	return make([]model.Release, len(orderIDs)), nil
}

func (f *fakeExpiry) Log(_ context.Context, actor, action, subject, _ string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.logged = append(f.logged, actor+" "+action+" "+subject)
	return nil
}

// expiring is an expirer over a fake, which notes what it says.
type expiring struct {
	*Expirer
	store    *fakeExpiry
	log      *logbook
	mu       sync.Mutex
	heard    map[string]int
	emptied  int
	violated int
}

func newExpiring(store *fakeExpiry, deaf string) *expiring {
	e := &expiring{store: store, log: &logbook{}, heard: map[string]int{}}
	note := func(fn func()) {
		e.mu.Lock()
		defer e.mu.Unlock()
		fn()
	}
	e.Expirer = &Expirer{
		Store: store, Grace: time.Minute, Now: time.Now, Log: slog.New(e.log),
		Emptied: func() { note(func() { e.emptied++ }) }, Violated: func() { note(func() { e.violated++ }) },
		Released: func(_ context.Context, saleID string, list []model.Release) error {
			note(func() { e.heard[saleID] += len(list) })
			if saleID == deaf {
				return errAway
			}
			return nil
		},
	}
	return e
}

// of is how many units of a sale were released.
func (e *expiring) of(saleID string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.heard[saleID]
}

// TestExpirer looks again while it finds full batches, and then waits.
func TestExpirer(t *testing.T) {
	tests := map[string]struct {
		due    map[string]int
		deaf   string // the sale whose gate does not hear
		looks  int
		logged int
	}{
		"nothing due":              {looks: 1},
		"some due":                 {due: map[string]int{saleA: 3}, looks: 1},
		"a full batch":             {due: map[string]int{saleA: expireBatch, saleB: 1}, looks: 2},
		"full over two sales":      {due: map[string]int{saleA: 100, saleB: expireBatch - 100, saleC: 1}, looks: 2},
		"one gate does not hear":   {due: map[string]int{saleA: 100, saleB: expireBatch - 100, saleC: 1}, deaf: saleC, looks: 2, logged: 1},
		"a full batch isn't heard": {due: map[string]int{saleA: expireBatch, saleB: 1}, deaf: saleA, looks: 2, logged: 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				want := map[string]int{}
				maps.Copy(want, tc.due)
				e := newExpiring(&fakeExpiry{due: tc.due}, tc.deaf)
				during(t, e.Run, func() {})
				if e.store.looks != tc.looks || e.store.grace != time.Minute || !maps.Equal(e.heard, want) || e.emptied != 1 {
					t.Errorf("%d looks with a grace of %s, heard %v, emptied %d; want %d, %v, 1", e.store.looks, e.store.grace, e.heard, e.emptied, tc.looks, want)
				}
				if n := e.log.count("expirer fails"); n != tc.logged {
					t.Errorf("%d failures logged, want %d", n, tc.logged)
				}
			})
		})
	}
}

// TestHole52_ClockStepsForward: orders made before a step of the database's clock keep their time to pay; a step back only
// gives them more.
func TestHole52_ClockStepsForward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newExpiring(&fakeExpiry{}, "")
		during(t, e.Run, func() {
			for _, tc := range []struct{ ahead, by time.Duration }{
				{0, 0}, {clockStep, 0}, {clockStep + time.Hour, time.Hour}, {time.Minute, time.Hour}, {2 * time.Minute, time.Hour + time.Minute},
			} {
				e.store.mu.Lock()
				e.store.ahead = tc.ahead
				e.store.mu.Unlock()
				before := time.Now()
				pass(3 * expirePeriod)
				got := e.store.step
				if got.By != tc.by {
					t.Errorf("%s ahead, after a step of %s", tc.ahead, got.By)
				}
				if tc.by > 0 && tc.ahead > 2*time.Minute && (got.At.Before(before) || got.At.After(before.Add(tc.ahead))) {
					t.Errorf("orders until %s were made before the step at %s", got.At, before)
				}
			}
		})
	})
}

func TestExpirerGoesOnAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newExpiring(&fakeExpiry{due: map[string]int{saleA: 2}, err: errAway}, "")
		during(t, e.Run, func() {
			pass(2 * expirePeriod)
			if e.log.count("expirer fails") != 1 || e.emptied != 0 {
				t.Errorf("logged %q, emptied %d", e.log.lines, e.emptied)
			}
		})
		e.store.err = nil
		during(t, e.Run, func() {})
		if e.of(saleA) != 2 {
			t.Errorf("%d of 2 released", e.of(saleA))
		}
	})
}

// A sale whose orders can't expire, more of them than a batch has, leaves the others alone. It is told of once, and
// expires when it can.
func TestHole50_SaleThatCantExpireLeavesRoom(t *testing.T) {
	tries := 0
	for name, tc := range map[string]struct {
		fails    func() error
		logged   int
		violated int
	}{
		"its books are wrong, and another instance tries as well": {func() error {
			if tries++; tries == 2 {
				return errTaken
			}
			return model.ErrBroken
		}, 1, 1},
		"another instance has locked its orders": {func() error { return errTaken }, 0, 0},
		"its row is locked":                      {func() error { time.Sleep(expireTimeout); return errAway }, 1, 0}, // of the bubble's clock
		"its books are wrong":                    {func() error { return fmt.Errorf("wrapped: %w", model.ErrBroken) }, 1, 1},
		"its transactions fail for now":          {func() error { return errAway }, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var free atomic.Bool
				store := &fakeExpiry{due: map[string]int{saleA: 2 * expireBatch}}
				store.before = func(saleID string) error {
					if saleID == saleA && !free.Load() {
						return tc.fails()
					}
					return nil
				}
				e := newExpiring(store, "")
				during(t, e.Run, func() {
					for i := range 20 {
						store.mu.Lock()
						store.due[saleB]++
						store.mu.Unlock()
						pass(2 * expirePeriod)
						if e.of(saleB) != i+1 {
							t.Errorf("%d of %d orders of the other sale have expired", e.of(saleB), i+1)
						}
					}
					if n := e.log.count("the orders of a sale can't expire"); n != tc.logged || e.emptied != 0 || e.violated != tc.violated || len(store.logged) != tc.violated {
						t.Errorf("%d lines, emptied %d, %d violations, logged %q", n, e.emptied, e.violated, store.logged)
					}
					store.mu.Lock()
					tries := store.tries[saleA]
					store.mu.Unlock()
					if tries < 3 || tc.logged > 0 && tries > 8 {
						t.Errorf("tried %d times in 20 s", tries)
					}
					free.Store(true)
					pass(expireTimeout + expireRestMost + expirePeriod)
					if e.of(saleA) != 2*expireBatch || e.log.count("expire again") != tc.logged || e.emptied == 0 {
						t.Errorf("%d of the sale have expired, emptied %d: %q", e.of(saleA), e.emptied, e.log.lines)
					}
				})
			})
		})
	}
}

// fakeRefunds is the money that waits to go back.
type fakeRefunds struct {
	mu     sync.Mutex
	due    []model.Payment
	err    error
	errOf  map[string]error // of MarkRefunded
	marked []string
}

func (f *fakeRefunds) RefundsDue(_ context.Context, limit int) ([]model.Payment, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.due[:min(limit, len(f.due))]), f.err
}

func (f *fakeRefunds) MarkRefunded(_ context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.errOf[id]; err != nil {
		return err
	}
	f.marked = append(f.marked, id)
	f.due = slices.DeleteFunc(f.due, func(p model.Payment) bool { return p.ID == id })
	return nil
}

func (f *fakeRefunds) state() (due int, marked []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.due), slices.Clone(f.marked)
}

// TestRefunder sends each due payment back, tries again what failed, and holds nothing up for it.
func TestRefunder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &fakeRefunds{errOf: map[string]error{"p-3": errAway}}
		for i := range 5 {
			store.due = append(store.due, model.Payment{ID: fmt.Sprint("p-", i), ProviderTxnID: fmt.Sprint("txn-", i), AmountCents: int64(100 + i)})
		}
		var mu sync.Mutex
		sent := map[string]int{}
		refuses := map[string]error{"txn-1": errAway}
		log := &logbook{}
		r := &Refunder{Store: store, Log: slog.New(log), Refund: func(_ context.Context, p model.Payment) error {
			mu.Lock()
			defer mu.Unlock()
			sent[p.ProviderTxnID]++
			return refuses[p.ProviderTxnID]
		}}
		during(t, r.Run, func() {
			due, marked := store.state()
			if due != 2 || !slices.Equal(marked, []string{"p-0", "p-2", "p-4"}) {
				t.Errorf("%d are due still, marked %v", due, marked)
			}
			if log.count("refunder fails") != 1 || log.count("refunded") != 3 {
				t.Errorf("logged %q", log.lines)
			}
			pass(refundPeriod)
			mu.Lock()
			if sent["txn-1"] != 2 || sent["txn-3"] != 2 || sent["txn-0"] != 1 {
				t.Errorf("sent %v", sent)
			}
			clear(refuses)
			mu.Unlock()
			store.mu.Lock()
			clear(store.errOf)
			store.mu.Unlock()
			pass(refundPeriod)
			if due, marked := store.state(); due != 0 || len(marked) != 5 {
				t.Errorf("%d are due still, marked %v", due, marked)
			}
			if log.count("refunder works again") != 1 {
				t.Errorf("logged %q", log.lines)
			}
			pass(3 * refundPeriod)
		})
		if n := sent["txn-1"] + sent["txn-3"] + sent["txn-0"]; n != 7 {
			t.Errorf("sent %v: a refund that was confirmed went out again", sent)
		}
	})
}

// fakeTruth is the database of the auditor and the controller: one sale, its books and its lease.
type fakeTruth struct {
	mu        sync.Mutex
	offer     model.Offer
	holder    string // of the lease
	errAway   error
	leaseTTL  time.Duration
	booksRead int
	logged    []string
	reads     int
	epochs    int
	rebuilt   time.Time
	errNow    error
	units     map[string]int // of the buyers
}

func newFakeTruth() *fakeTruth {
	now := time.Now()
	return &fakeTruth{holder: "here", offer: model.Offer{
		Sale:  model.Sale{ID: saleA, Status: model.SaleLive, StartsAt: now.Add(-time.Hour), EndsAt: now.Add(time.Hour), LimitPerUser: 1},
		Stock: model.Stock{SaleID: saleA, Quota: 10, Available: 10, Version: 1, Epoch: 1},
	}}
}

func (f *fakeTruth) change(fn func(*fakeTruth)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn(f)
}

func (f *fakeTruth) Lease(_ context.Context, name, holder string, ttl time.Duration) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leaseTTL = ttl
	return name == "auditor" && holder == f.holder, f.errAway
}

func (f *fakeTruth) Log(_ context.Context, actor, action, subject, _ string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.logged = append(f.logged, actor+" "+action+" "+subject)
	return nil
}

func (f *fakeTruth) Books(context.Context, string) (model.Books, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.booksRead++
	return model.Books{Stock: f.offer.Stock, Units: map[model.OrderStatus]int64{}}, true, nil
}

func (f *fakeTruth) LiveOffers(context.Context, time.Duration) ([]model.Offer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	return []model.Offer{f.offer}, f.errAway
}

func (f *fakeTruth) Buyers(ctx context.Context, _ string) iter.Seq2[[]model.Buyer, error] {
	f.mu.Lock()
	defer f.mu.Unlock()
	return kit.Contents{Units: maps.Clone(f.units)}.Buyers(ctx)
}

func (f *fakeTruth) Offer(context.Context, string) (model.Offer, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.offer, true, nil
}

func (f *fakeTruth) SaleCodes(context.Context, time.Time) (map[string]string, time.Time, error) {
	return map[string]string{saleA: "CODEAAAA"}, time.Now(), nil
}

func (f *fakeTruth) Now(context.Context) (time.Time, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Now(), f.errNow
}

func (f *fakeTruth) NextEpoch(_ context.Context, _ string, seen, gates int64, pause time.Duration) (int64, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.rebuilt) < pause {
		return 0, false, nil
	}
	f.epochs++
	f.rebuilt = time.Now()
	f.offer.Stock.Epoch = max(seen, gates) + 1
	return f.offer.Stock.Epoch, true, nil
}

func (*fakeTruth) RenewEpoch(context.Context, string, int64) error { return nil }

func (f *fakeTruth) GateContents(context.Context, string) (model.GateContents, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return kit.ContentsOf(f.offer), true, nil
}

// GateChanges are none.
func (*fakeTruth) GateChanges(_ context.Context, _ string, after int64, _ int) ([]model.GateChange, int64, bool, error) {
	return nil, after, false, nil
}

func (*fakeTruth) ForgetGateChanges(context.Context, string, int64) error { return nil }

// fakeLife is the gate of the one sale.
type fakeLife struct {
	mu       sync.Mutex
	state    model.GateState
	err      error
	installs int
}

// Units are nobody's.
func (*fakeLife) Units(_ context.Context, _ string, users []string) ([]int, error) {
	return make([]int, len(users)), nil
}

// Buyers are none.
func (*fakeLife) Buyers(context.Context, string) (int64, error) { return 0, nil }

func (f *fakeLife) Peek(_ context.Context, saleIDs ...string) ([]model.GateState, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Repeat([]model.GateState{f.state}, len(saleIDs)), f.err
}

func (f *fakeLife) Close(context.Context, string, int64) (bool, error) { return true, nil }

func (*fakeLife) StreamLengths(context.Context, string) ([]int64, error) { return []int64{0}, nil }

func (f *fakeLife) Install(_ context.Context, epoch int64, _ []int64, c model.GateContents) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.installs++
	f.state = model.GateState{Exists: true, Open: true, Epoch: epoch, Left: c.Offer().Stock.Available}
	return nil, f.err
}

func (*fakeLife) CatchUp(context.Context, string, int64, int64, []model.GateChange) error { return nil }

func (f *fakeLife) drift(units int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state = model.GateState{Exists: true, Open: true, Epoch: max(f.state.Epoch, 1), Left: 10 + units}
}

// replace gives the gate the next epoch.
func (f *fakeLife) replace(epoch int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.Epoch = epoch + 1
}

func (f *fakeLife) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *fakeLife) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.installs
}

// auditing is an auditor over fakes.
type auditing struct {
	*Auditor
	truth *fakeTruth
	life  *fakeLife
	log   *logbook

	mu       sync.Mutex
	found    []int64
	replaced int
	violated int
}

// seen is what the auditor has found so far, and what it did about it.
func (a *auditing) seen() (found []int64, replaced, violated int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.found), a.replaced, a.violated
}

func (a *auditing) note(fn func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	fn()
}

func newAuditing(t *testing.T) *auditing {
	t.Helper()
	a := &auditing{truth: newFakeTruth(), life: &fakeLife{}, log: &logbook{}}
	a.life.drift(0)
	catalog := service.NewCatalog(a.truth, time.Now)
	if err := catalog.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.Auditor = &Auditor{
		Audits: &service.Auditor{Store: a.truth, Gate: a.life}, Leases: a.truth, Catalog: catalog, Instance: "here",
		Replace: func(_ string, epoch int64, _ string) {
			a.note(func() { a.replaced++ })
			a.life.replace(epoch)
		},
		Found:    func(_ string, units int64) { a.note(func() { a.found = append(a.found, units) }) },
		Violated: func() { a.note(func() { a.violated++ }) }, Log: slog.New(a.log),
	}
	return a
}

// TestAuditorReplacesAGateThatDrifts when the same drift was seen three times in a row, once for three times.
func TestAuditorReplacesAGateThatDrifts(t *testing.T) {
	tests := map[string]struct {
		drifts   []int64 // round by round
		replaced int
	}{
		"none":                        {[]int64{0, 0, 0, 0, 0, 0}, 0},
		"seen twice":                  {[]int64{3, 3, 0}, 0},
		"seen three times":            {[]int64{3, 3, 3}, 1},
		"gone before the third time":  {[]int64{3, 3, 0, 3, 3, 0}, 0},
		"every other time":            {[]int64{3, 0, 3, 0, 3, 0}, 0},
		"another one each time":       {[]int64{1, 2, 3, 4, 5, 6}, 0},
		"too few units":               {[]int64{-1, -1, -1}, 1},
		"another one, then the same":  {[]int64{1, 2, 2, 2}, 1},
		"it did not help":             {[]int64{3, 3, 3, 3, 3, 3}, 2},
		"five times is not yet twice": {[]int64{3, 3, 3, 3, 3}, 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAuditing(t)
				a.life.drift(tc.drifts[0])
				during(t, a.Run, func() {
					for _, units := range tc.drifts[1:] {
						a.life.drift(units)
						pass(auditPeriod)
					}
				})
				if a.replaced != tc.replaced || !slices.Equal(a.found, tc.drifts) {
					t.Errorf("replaced %d times, want %d; found %v of %v", a.replaced, tc.replaced, a.found, tc.drifts)
				}
			})
		})
	}
}

// TestAuditorReplacesAGateThatMiscounts: at the sale's turn the auditor sees that the gate doesn't know a buyer, looks
// again in the rounds that follow, and asks for another gate at the third sighting in a row.
func TestAuditorReplacesAGateThatMiscounts(t *testing.T) {
	tests := map[string]struct {
		rounds, replaced int // wrong for so many rounds after it was seen first
	}{
		"once":        {0, 0},
		"twice":       {1, 0},
		"three times": {2, 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAuditing(t)
				a.truth.change(func(f *fakeTruth) { f.units = map[string]int{"u": 1} })
				during(t, a.Run, func() {
					turn := 1
					for ; !booksDue(saleA, turn); turn++ {
						pass(auditPeriod)
					}
					pass(time.Duration(tc.rounds) * auditPeriod)
					a.truth.change(func(f *fakeTruth) { f.units = nil })
					pass(booksEvery * auditPeriod)
				})
				if a.replaced != tc.replaced {
					t.Errorf("replaced %d times, want %d", a.replaced, tc.replaced)
				}
			})
		})
	}
}

// TestAuditorNeedsNoLeaseToRepair: whoever has the lease may be dead. Only the books are left to its holder.
func TestAuditorNeedsNoLeaseToRepair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAuditing(t)
		a.truth.holder = "there"
		a.life.drift(3)
		during(t, a.Run, func() { pass(2 * booksEvery * auditPeriod) })
		if a.replaced == 0 || a.truth.booksRead != 0 {
			t.Errorf("replaced %d times, read the books %d times", a.replaced, a.truth.booksRead)
		}
		if a.truth.leaseTTL <= auditPeriod {
			t.Errorf("the lease of %s ends between two rounds", a.truth.leaseTTL)
		}
	})
}

// TestAuditorWithoutItsStores says so once and goes on when they are back.
func TestAuditorWithoutItsStores(t *testing.T) {
	faults := map[string]func(a *auditing, err error){
		"no database": func(a *auditing, err error) { a.truth.change(func(f *fakeTruth) { f.errAway = err }) },
		"no Redis":    func(a *auditing, err error) { a.life.fail(err) },
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAuditing(t)
				fault(a, errAway)
				during(t, a.Run, func() {
					pass(3 * auditPeriod)
					if found, _, _ := a.seen(); len(found) != 0 || a.log.count("auditor fails") != 1 {
						t.Errorf("found %v, logged %q", found, a.log.lines)
					}
					fault(a, nil)
					pass(auditPeriod)
				})
				if len(a.found) != 1 || a.log.count("auditor works again") != 1 {
					t.Errorf("found %v, logged %q", a.found, a.log.lines)
				}
			})
		})
	}
}

// TestAuditorChecksTheBooks of a sale once in booksEvery rounds, and cries out.
func TestAuditorChecksTheBooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAuditing(t)
		during(t, a.Run, func() {
			pass((booksEvery - 1) * auditPeriod)
			a.truth.change(func(f *fakeTruth) {
				if _, _, violated := a.seen(); f.booksRead != 1 || violated != 0 || len(f.logged) != 0 {
					t.Errorf("books read %d times, violated %d, logged %q", f.booksRead, violated, f.logged)
				}
				f.offer.Stock.Held, f.offer.Stock.Available = 2, 8
			})
			a.life.drift(-2)
			pass(booksEvery * auditPeriod)
		})
		if a.truth.booksRead != 2 || a.violated != 1 || !slices.Contains(a.truth.logged, "auditor violation "+saleA) {
			t.Errorf("books read %d times, violated %d, logged %q", a.truth.booksRead, a.violated, a.truth.logged)
		}
		if a.replaced != 0 {
			t.Errorf("a gate that agrees was replaced %d times", a.replaced)
		}
	})
}

// TestBooksAreSpread: each sale has one turn in booksEvery rounds, wherever they begin, and no round has most of the work.
func TestBooksAreSpread(t *testing.T) {
	const sales = 1500
	turns := map[int]int{}
	for range sales {
		id, mine := model.NewSaleID(), 0
		for round := range booksEvery {
			if booksDue(id, round) {
				mine++
				turns[round]++
			}
			if booksDue(id, round) != booksDue(id, round+booksEvery) {
				t.Errorf("sale %s has its turn in one of the rounds %d and %d", id, round, round+booksEvery)
			}
		}
		if mine != 1 {
			t.Errorf("sale %s has %d turns", id, mine)
		}
	}
	for round, n := range turns {
		if n > 2*sales/booksEvery {
			t.Errorf("round %d checks %d of %d sales", round, n, sales)
		}
	}
}

// controlling is a controller over fakes.
type controlling struct {
	*Controller
	truth     *fakeTruth
	life      *fakeLife
	log       *logbook
	gates     *service.Gates
	mu        sync.Mutex
	reports   int
	errReport error
}

func newControlling() *controlling {
	c := &controlling{truth: newFakeTruth(), life: &fakeLife{}, log: &logbook{}}
	c.life.drift(0)
	catalog := service.NewCatalog(c.truth, time.Now)
	c.gates = service.NewGates(c.truth, c.life, catalog, slog.New(slog.DiscardHandler))
	c.Controller = &Controller{
		Catalog: catalog, Gates: c.gates, Changed: make(chan struct{}, 1), Log: slog.New(c.log),
		Report: func(context.Context) error {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.reports++
			return c.errReport
		},
	}
	return c
}

// TestControllerRefreshes this instance's memory each period, and at once when another instance announces a change.
func TestControllerRefreshes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newControlling()
		changed := make(chan struct{}, 1)
		c.Changed = changed
		available := func() int64 {
			list, _ := c.Catalog.Live()
			return list[0].Stock.Available
		}
		during(t, c.Run, func() {
			if got := available(); got != 10 {
				t.Errorf("at first %d", got)
			}
			c.truth.change(func(f *fakeTruth) { f.offer.Stock.Available = 9 })
			pass(refreshPeriod - time.Millisecond)
			if got := available(); got != 10 {
				t.Errorf("before its time %d", got)
			}
			pass(time.Millisecond)
			if got := available(); got != 9 {
				t.Errorf("after a period %d", got)
			}
			c.truth.change(func(f *fakeTruth) { f.offer.Stock.Available = 8 })
			changed <- struct{}{}
			synctest.Wait()
			if got := available(); got != 8 {
				t.Errorf("after an announcement %d", got)
			}
		})
	})
}

// TestControllerInstallsGates: what is needed at once, what is missing or to be replaced within a second.
func TestControllerInstallsGates(t *testing.T) {
	tests := map[string]struct {
		ask   func(c *controlling)
		after time.Duration
		want  int
	}{
		"nothing is wrong":         {func(*controlling) {}, 3 * ensurePeriod, 0},
		"one is needed and there":  {func(c *controlling) { c.gates.NeedGate(saleA, "test") }, 0, 0},
		"one is needed and absent": {func(c *controlling) { c.life.lose(); c.gates.NeedGate(saleA, "test") }, 0, 1},
		"asked for a thousand times": {func(c *controlling) {
			c.life.lose()
			for range 1000 {
				c.gates.NeedGate(saleA, "test")
			}
		}, 0, 1},
		"to be replaced":          {func(c *controlling) { c.gates.ReplaceGate(saleA, 1, "test") }, ensurePeriod, 1},
		"to be replaced, not yet": {func(c *controlling) { c.gates.ReplaceGate(saleA, 1, "test") }, ensurePeriod - time.Millisecond, 0},
		"absent and unasked":      {func(c *controlling) { c.life.lose() }, ensurePeriod, 1},
		"absent, not yet":         {func(c *controlling) { c.life.lose() }, ensurePeriod - time.Millisecond, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newControlling()
				during(t, c.Run, func() {
					tc.ask(c)
					synctest.Wait()
					if tc.after > 0 {
						pass(tc.after)
					}
					epochs := 0
					c.truth.change(func(f *fakeTruth) { epochs = f.epochs })
					if n := c.life.count(); n != tc.want || epochs != tc.want {
						t.Errorf("%d installed under %d epochs, want %d", n, epochs, tc.want)
					}
				})
			})
		})
	}
}

func (f *fakeLife) lose() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state = model.GateState{}
}

// TestReplacementAskedTooSoon, right after another one, is no rebuild too many; but it must not be forgotten, since
// what it was asked for came after that one. One that asks again for what was replaced already does nothing.
func TestReplacementAskedTooSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newControlling()
		during(t, c.Run, func() {
			c.gates.ReplaceGate(saleA, 1, "first")
			pass(ensurePeriod)
			c.gates.ReplaceGate(saleA, 2, "second")
			pass(ensurePeriod / 2)
			if n := c.life.count(); n != 1 {
				t.Errorf("%d gates in half a second", n)
			}
			pass(ensurePeriod)
			if n := c.life.count(); n != 2 {
				t.Errorf("%d gates for two requests", n)
			}
			c.gates.ReplaceGate(saleA, 2, "late")
			pass(3 * ensurePeriod)
			if n := c.life.count(); n != 2 {
				t.Errorf("%d gates after a request for one that is gone", n)
			}
		})
	})
}

// TestControllerReports this instance's figures each second, and logs a trouble once.
func TestControllerReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newControlling()
		during(t, c.Run, func() {
			pass(3 * ensurePeriod)
			c.mu.Lock()
			if c.reports != 3 {
				t.Errorf("%d reports in three seconds", c.reports)
			}
			c.errReport = errors.New("nobody takes it")
			c.mu.Unlock()
			pass(4 * ensurePeriod)
			if n := c.log.count("gates can't be looked after"); n != 1 {
				t.Errorf("%d lines about it: %q", n, c.log.lines)
			}
		})
	})
}

// TestControllerOutlivesItsStores: neither loop ends, and both go on.
func TestControllerOutlivesItsStores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newControlling()
		during(t, c.Run, func() {
			c.truth.change(func(f *fakeTruth) { f.errNow = errAway })
			c.life.fail(errAway)
			c.life.lose()
			pass(3 * ensurePeriod)
			if c.log.count("refresh of the catalog fails") != 1 || c.log.count("gates can't be looked after") != 1 {
				t.Errorf("logged %q", c.log.lines)
			}
			c.truth.change(func(f *fakeTruth) { f.errNow = nil; f.offer.Stock.Available = 5 })
			c.life.fail(nil)
			pass(ensurePeriod)
			if list, _ := c.Catalog.Live(); list[0].Stock.Available != 5 || c.life.count() != 1 {
				t.Errorf("the catalog has %d, %d gates installed", list[0].Stock.Available, c.life.count())
			}
		})
	})
}
