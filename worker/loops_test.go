package worker

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/internal/observe"
	"flashsale/model"
	"flashsale/service"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
)

// A loop steps at once, after each period, and when poked. The log tells when a failure begins and when it ends.
func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, poke := &check.Log{}, make(chan struct{}, 1)
		var at []time.Duration
		var failing atomic.Pointer[error]
		start := time.Now()
		step := func(context.Context) error {
			at = append(at, time.Since(start))
			return *failing.Load()
		}
		fail := func(err error) { failing.Store(&err) }
		fail(nil)
		during(t, func(ctx context.Context) { every(ctx, "it", time.Second, poke, slog.New(log), step) }, func() {
			pass(1300 * time.Millisecond)
			poke <- struct{}{}
			synctest.Wait()
			fail(errAway)
			pass(2 * time.Second)
			fail(nil)
			pass(2 * time.Second)
		})
		ms := time.Millisecond
		check.Same(t, "the steps", at, []time.Duration{0, 1000 * ms, 1300 * ms, 2000 * ms, 3000 * ms, 4000 * ms, 5000 * ms})
		check.Same(t, "the log", log.Lines(), []string{"ERROR it fails", "INFO it works again"})
	})
}

// A step that fails because its context ends is no failure.
func TestEveryEndsQuietly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &check.Log{}
		step := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		during(t, func(ctx context.Context) { every(ctx, "it", time.Second, nil, slog.New(log), step) }, func() {})
		check.Same(t, "the log", log.Lines(), nil)
	})
}

// errTaken means that another instance has locked the orders, which is no error of the store.
var errTaken = errors.New("taken")

// fakeExpiry is a database with overdue orders, and records what its expirer does.
type fakeExpiry struct {
	due      map[string]int            // by sale
	err      error                     // of each look
	before   func(saleID string) error // of an expiry: may block, may fail
	deaf     string                    // the sale whose gate does not answer
	ahead    time.Duration             // of the database's clock
	wake     chan struct{}
	looks    int
	tries    map[string]int
	grace    time.Duration
	step     model.ClockStep
	logged   []string
	released map[string]int // units by sale
	emptied  int
	violated int
}

func (f *fakeExpiry) Now(context.Context) (time.Time, error) {
	defer locked()()
	return time.Now().Add(f.ahead), f.err
}

func (f *fakeExpiry) Overdue(
	_ context.Context, grace time.Duration, step model.ClockStep, limit int, except []string,
) (map[string][]string, error) {
	defer locked()()
	f.looks++
	f.grace, f.step = grace, step
	bySale := map[string][]string{}
	for _, sale := range slices.Sorted(maps.Keys(f.due)) {
		if n := min(limit, f.due[sale]); n > 0 && !slices.Contains(except, sale) {
			bySale[sale] = make([]string, n)
			limit -= n
		}
	}
	return bySale, f.err
}

func (f *fakeExpiry) Expire(_ context.Context, saleID string, orderIDs []string) ([]model.Release, error) {
	with(func() { f.tries[saleID]++ })
	if f.before != nil {
		if err := f.before(saleID); errors.Is(err, errTaken) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
	}
	with(func() { f.due[saleID] -= len(orderIDs) })
	return make([]model.Release, len(orderIDs)), nil
}

func (f *fakeExpiry) Log(_ context.Context, actor, action, subject, _ string) error {
	defer locked()()
	f.logged = append(f.logged, actor+" "+action+" "+subject)
	return nil
}

func (f *fakeExpiry) hear(_ context.Context, saleID string, list []model.Release) error {
	defer locked()()
	if f.released[saleID] += len(list); saleID == f.deaf {
		return errAway
	}
	return nil
}

// testExpirer runs a test beside the expirer of a database.
func testExpirer(t *testing.T, f *fakeExpiry, test func(t *testing.T, log *check.Log)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		log := &check.Log{}
		f.tries, f.released, f.wake = map[string]int{}, map[string]int{}, make(chan struct{})
		e := &Expirer{
			Store: f, Grace: time.Minute, Wake: f.wake, Now: time.Now, Log: slog.New(log), Released: f.hear,
			Observe: observe.All{
				noted{observe.NothingOverdue, func(observe.Event) { with(func() { f.emptied++ }) }},
				noted{observe.Violated, func(observe.Event) { with(func() { f.violated++ }) }},
			},
		}
		during(t, e.Run, func() { test(t, log) })
	})
}

// The expirer looks again as long as it finds full batches, and also if a gate does not answer.
func TestExpirer(t *testing.T) {
	two := map[string]int{saleA: expireBatch, saleB: 1}
	three := map[string]int{saleA: 100, saleB: expireBatch - 100, saleC: 1}
	type row struct {
		due    map[string]int
		deaf   string
		looks  int
		failed int // lines about it
	}
	check.Each(t, map[string]row{
		"nothing due":                     {map[string]int{}, "", 1, 0},
		"some due":                        {map[string]int{saleA: 3}, "", 1, 0},
		"a full batch":                    {two, "", 2, 0},
		"a full batch of two sales":       {three, "", 2, 0},
		"the gate of the last sale fails": {three, saleC, 2, 1},
		"the gate of a full batch fails":  {two, saleA, 2, 1},
	}, func(t *testing.T, tc row) {
		f := &fakeExpiry{due: maps.Clone(tc.due), deaf: tc.deaf}
		testExpirer(t, f, func(t *testing.T, log *check.Log) {
			check.Same(t, "the released units", f.released, tc.due)
			check.Same(t, "the looks", f.looks, tc.looks)
			check.Same(t, "the grace", f.grace, time.Minute)
			check.Same(t, "how often no order was left", f.emptied, 1)
			check.Same(t, "the lines about a failure", log.Count("expirer fails"), tc.failed)
		})
	})
}

// The expirer goes on after a failure, and can be woken between its periods.
func TestExpirerIsWoken(t *testing.T) {
	f := &fakeExpiry{due: map[string]int{saleA: 2}, err: errAway}
	testExpirer(t, f, func(t *testing.T, log *check.Log) {
		pass(2 * expirePeriod)
		check.Same(t, "the lines about the failure", log.Count("expirer fails"), 1)
		check.Same(t, "how often no order was left", f.emptied, 0)
		with(func() { f.err = nil })
		pass(expirePeriod)
		check.Same(t, "the released units", f.released[saleA], 2)
		pass(expirePeriod / 2)
		with(func() { f.due[saleA] = 1 })
		f.wake <- struct{}{}
		synctest.Wait()
		check.Same(t, "the released units after the wake-up", f.released[saleA], 3)
	})
}

// Orders made before a step forward of the database's clock keep their time to pay. A step back only gives them more.
func TestHole52_ClockStepsForward(t *testing.T) {
	f := &fakeExpiry{}
	testExpirer(t, f, func(t *testing.T, _ *check.Log) {
		for _, tc := range []struct{ ahead, by time.Duration }{
			{0, 0},
			{clockStep, 0},
			{clockStep + time.Hour, time.Hour},
			{time.Minute, time.Hour},
			{2 * time.Minute, time.Hour + time.Minute},
		} {
			with(func() { f.ahead = tc.ahead })
			before := time.Now()
			pass(3 * expirePeriod)
			check.Same(t, fmt.Sprint("the step when the clock is ahead by ", tc.ahead), f.step.By, tc.by)
			if tc.ahead > time.Hour && (f.step.At.Before(before) || f.step.At.After(before.Add(tc.ahead))) {
				t.Errorf("orders until %s were made before the step at %s", f.step.At, before)
			}
		}
	})
}

// A sale whose orders can't expire, and has more of them than a batch, does not delay other sales. The failure is logged
// once, and the orders expire as soon as they can.
func TestHole50_SaleThatCantExpireLeavesRoom(t *testing.T) {
	tries := 0
	type row struct {
		fails    func() error
		logged   int
		violated int
	}
	check.Each(t, map[string]row{
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
	}, func(t *testing.T, tc row) {
		var free atomic.Bool
		f := &fakeExpiry{due: map[string]int{saleA: 2 * expireBatch}}
		f.before = func(saleID string) error {
			if saleID == saleA && !free.Load() {
				return tc.fails()
			}
			return nil
		}
		testExpirer(t, f, func(t *testing.T, log *check.Log) {
			for i := range 20 {
				with(func() { f.due[saleB]++ })
				pass(2 * expirePeriod)
				check.Same(t, "the released units of the other sale", f.released[saleB], i+1)
			}
			check.Same(t, "the lines about the failure", log.Count("the orders of a sale can't expire"), tc.logged)
			check.Same(t, "how often no order was left", f.emptied, 0)
			check.Same(t, "the violations", f.violated, tc.violated)
			check.Same(t, "the violations in the database's log", len(f.logged), tc.violated)
			if n := f.tries[saleA]; n < 3 || tc.logged > 0 && n > 8 {
				t.Errorf("tried %d times in 20 s", n)
			}
			free.Store(true)
			pass(expireTimeout + expireRestMost + expirePeriod)
			check.Same(t, "the released units of the sale", f.released[saleA], 2*expireBatch)
			check.Same(t, "the lines about the end of the failure", log.Count("expire again"), tc.logged)
			if f.emptied == 0 {
				t.Error("orders are left")
			}
		})
	})
}

// fakeRefunds is money that has to be sent back.
type fakeRefunds struct {
	due     []model.Payment
	errMark map[string]error // by payment
	errSend map[string]error // by transaction
	marked  []string
	sent    map[string]int // by transaction
}

func (f *fakeRefunds) RefundsDue(context.Context, int) ([]model.Payment, error) {
	defer locked()()
	return slices.Clone(f.due), nil
}

func (f *fakeRefunds) MarkRefunded(_ context.Context, id string) error {
	defer locked()()
	if f.errMark[id] == nil {
		f.marked = append(f.marked, id)
		f.due = slices.DeleteFunc(f.due, func(p model.Payment) bool { return p.ID == id })
	}
	return f.errMark[id]
}

func (f *fakeRefunds) send(_ context.Context, p model.Payment) error {
	defer locked()()
	f.sent[p.ProviderTxnID]++
	return f.errSend[p.ProviderTxnID]
}

// The refunder sends each due payment back once. It tries again what failed, which delays no other payment.
func TestRefunder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeRefunds{sent: map[string]int{}}
		f.errMark, f.errSend = map[string]error{"p-3": errAway}, map[string]error{"txn-1": errAway}
		for i := range 5 {
			f.due = append(f.due, model.Payment{ID: fmt.Sprint("p-", i), ProviderTxnID: fmt.Sprint("txn-", i)})
		}
		log := &check.Log{}
		during(t, (&Refunder{Store: f, Log: slog.New(log), Refund: f.send}).Run, func() {
			check.Same(t, "marked at first", f.marked, []string{"p-0", "p-2", "p-4"})
			check.Same(t, "the payments left at first", len(f.due), 2)
			check.Same(t, "the lines about refunds", log.Count("refunded"), 3)
			pass(refundPeriod)
			with(func() { clear(f.errSend); clear(f.errMark) })
			pass(4 * refundPeriod)
		})
		check.Same(t, "sent", f.sent, map[string]int{"txn-0": 1, "txn-1": 3, "txn-2": 1, "txn-3": 3, "txn-4": 1})
		check.Same(t, "marked", f.marked, []string{"p-0", "p-2", "p-4", "p-1", "p-3"})
		check.Same(t, "the lines about the failure", log.Count("refunder fails"), 1)
		check.Same(t, "the lines about its end", log.Count("refunder works again"), 1)
	})
}

// fakeStores are the database and the gate of one sale, for the auditor and the controller. The gate counts no units of
// users.
type fakeStores struct {
	offer     model.Offer
	units     map[string]int // by user
	holder    string         // of the lease
	errAway   error          // of Lease and LiveOffers
	errNow    error
	leaseTTL  time.Duration
	booksRead int
	logged    []string
	epochs    int
	rebuilt   time.Time

	gate     model.GateState
	errGate  error
	installs int

	log      *check.Log
	catalog  *service.Catalog
	found    []int64 // drifts
	replaced int
	violated int
}

func newFakeStores() *fakeStores {
	now := time.Now()
	f := &fakeStores{holder: "here", log: &check.Log{}, offer: model.Offer{
		Sale:  model.Sale{ID: saleA, Status: model.SaleLive, StartsAt: now.Add(-time.Hour), EndsAt: now.Add(time.Hour), LimitPerUser: 1},
		Stock: model.Stock{SaleID: saleA, Quota: 10, Available: 10, Version: 1, Epoch: 1},
	}}
	f.drift(0)
	f.catalog = service.NewCatalog(f, time.Now)
	return f
}

func (f *fakeStores) Lease(_ context.Context, name, holder string, ttl time.Duration) (bool, error) {
	defer locked()()
	f.leaseTTL = ttl
	return name == "auditor" && holder == f.holder, f.errAway
}

func (f *fakeStores) Log(_ context.Context, actor, action, subject, detail string) error {
	defer locked()()
	f.logged = append(f.logged, strings.Join([]string{actor, action, subject, detail}, " "))
	return nil
}

func (f *fakeStores) Books(context.Context, string) (model.Books, bool, error) {
	defer locked()()
	f.booksRead++
	return model.Books{Stock: f.offer.Stock, Units: map[model.OrderStatus]int64{}}, true, nil
}

func (f *fakeStores) LiveOffers(context.Context, time.Duration) ([]model.Offer, error) {
	defer locked()()
	return []model.Offer{f.offer}, f.errAway
}

func (f *fakeStores) Buyers(ctx context.Context, _ string) iter.Seq2[[]model.Buyer, error] {
	defer locked()()
	return kit.Contents{Units: maps.Clone(f.units)}.Buyers(ctx)
}

func (f *fakeStores) Offer(context.Context, string) (model.Offer, bool, error) {
	defer locked()()
	return f.offer, true, nil
}

func (*fakeStores) SaleCodes(context.Context, time.Time) (map[string]string, time.Time, error) {
	return map[string]string{saleA: "CODEAAAA"}, time.Now(), nil
}

func (f *fakeStores) Now(context.Context) (time.Time, error) {
	defer locked()()
	return time.Now(), f.errNow
}

func (f *fakeStores) NextEpoch(_ context.Context, _ string, seen, gates int64, pause time.Duration) (int64, bool, error) {
	defer locked()()
	if time.Since(f.rebuilt) < pause {
		return 0, false, nil
	}
	f.epochs++
	f.rebuilt, f.offer.Stock.Epoch = time.Now(), max(seen, gates)+1
	return f.offer.Stock.Epoch, true, nil
}

func (*fakeStores) RenewEpoch(context.Context, string, int64) error { return nil }

func (f *fakeStores) GateContents(context.Context, string) (model.GateContents, bool, error) {
	defer locked()()
	return kit.ContentsOf(f.offer), true, nil
}

func (*fakeStores) GateChanges(_ context.Context, _ string, after int64, _ int) ([]model.GateChange, int64, bool, error) {
	return nil, after, false, nil
}

func (*fakeStores) ForgetGateChanges(context.Context, string, int64) error { return nil }

// drift gives the gate so many units more than the stock has.
func (f *fakeStores) drift(units int64) {
	defer locked()()
	f.gate = model.GateState{Exists: true, Open: true, Epoch: max(f.gate.Epoch, 1), Left: 10 + units}
}

func (f *fakeStores) loseGate() { with(func() { f.gate = model.GateState{} }) }

// fakeGate has the methods of the gate, one of which the database has as well.
type fakeGate struct{ *fakeStores }

func (fakeGate) Units(_ context.Context, _ model.GateRef, users []string) ([]int, error) {
	return make([]int, len(users)), nil
}

func (fakeGate) Buyers(context.Context, model.GateRef) (int64, error) { return 0, nil }

func (f fakeGate) Peek(_ context.Context, gates ...model.GateRef) ([]model.GateState, error) {
	defer locked()()
	return slices.Repeat([]model.GateState{f.gate}, len(gates)), f.errGate
}

func (fakeGate) Close(context.Context, model.GateRef, int64) (bool, error) { return true, nil }

func (fakeGate) StreamLengths(context.Context, model.GateRef) ([]int64, error) {
	return []int64{0}, nil
}

func (f fakeGate) Install(_ context.Context, epoch int64, _ []int64, c model.GateContents) ([]string, error) {
	defer locked()()
	f.installs++
	f.gate = model.GateState{Exists: true, Open: true, Epoch: epoch, Left: c.Offer().Stock.Available}
	return nil, f.errGate
}

func (fakeGate) CatchUp(context.Context, model.GateRef, int64, int64, []model.GateChange) error {
	return nil
}

// testAuditor runs a test beside an auditor.
func testAuditor(t *testing.T, prepare func(f *fakeStores), test func(t *testing.T, f *fakeStores)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeStores()
		check.NoError(t, f.catalog.Refresh(t.Context()))
		auditor := &Auditor{
			Audits: &service.Auditor{Store: f, Gate: fakeGate{f}}, Leases: f, Catalog: f.catalog, Instance: "here",
			Replace: func(_ string, epoch int64, _ model.RebuildReason) {
				defer locked()()
				f.replaced++
				f.gate.Epoch = epoch + 1
			},
			Observe: observe.All{
				noted{observe.Drifted, func(e observe.Event) { with(func() { f.found = append(f.found, e.N) }) }},
				noted{observe.Violated, func(observe.Event) { with(func() { f.violated++ }) }},
			},
			Log: slog.New(f.log),
		}
		prepare(f)
		during(t, auditor.Run, func() { test(t, f) })
	})
}

// A gate is replaced when the same drift was seen three times in a row, and again after three more.
func TestAuditorReplacesAGateThatDrifts(t *testing.T) {
	type row struct {
		drifts   []int64 // round by round
		replaced int
	}
	check.Each(t, map[string]row{
		"none":                        {[]int64{0, 0, 0, 0, 0, 0}, 0},
		"seen three times":            {[]int64{3, 3, 3}, 1},
		"gone before the third time":  {[]int64{3, 3, 0, 3, 3, 0}, 0},
		"every other time":            {[]int64{3, 0, 3, 0, 3, 0}, 0},
		"another drift each time":     {[]int64{1, 2, 3, 4, 5, 6}, 0},
		"too few units":               {[]int64{-1, -1, -1}, 1},
		"another drift, then one":     {[]int64{1, 2, 2, 2}, 1},
		"the new gate drifts as well": {[]int64{3, 3, 3, 3, 3, 3}, 2},
		"five times, not yet twice":   {[]int64{3, 3, 3, 3, 3}, 1},
	}, func(t *testing.T, tc row) {
		testAuditor(t, func(a *fakeStores) { a.drift(tc.drifts[0]) }, func(t *testing.T, a *fakeStores) {
			for _, units := range tc.drifts[1:] {
				a.drift(units)
				pass(auditPeriod)
			}
			check.Same(t, "the drifts found", a.found, tc.drifts)
			check.Same(t, "how often the gate was replaced", a.replaced, tc.replaced)
		})
	})
}

// In the round of a sale the auditor sees that the gate does not know a buyer. It looks again in the following rounds,
// and requests another gate at the third sighting in a row.
func TestAuditorReplacesAGateThatMiscounts(t *testing.T) {
	for more, replaced := range map[int]int{0: 0, 1: 0, 2: 1} {
		t.Run(fmt.Sprintf("wrong for %d rounds more", more), func(t *testing.T) {
			wrong := func(a *fakeStores) { with(func() { a.units = map[string]int{"u": 1} }) }
			testAuditor(t, wrong, func(t *testing.T, a *fakeStores) {
				for round := 1; !booksDue(saleA, round); round++ {
					pass(auditPeriod)
				}
				pass(time.Duration(more) * auditPeriod)
				with(func() { a.units = nil })
				pass(booksEvery * auditPeriod)
				check.Same(t, "how often the gate was replaced", a.replaced, replaced)
			})
		})
	}
}

// An instance without the lease replaces gates as well, since the instance with the lease may be dead. Only the latter
// reads the books.
func TestAuditorNeedsNoLeaseToRepair(t *testing.T) {
	drifts := func(a *fakeStores) { a.holder = "there"; a.drift(3) }
	testAuditor(t, drifts, func(t *testing.T, a *fakeStores) {
		pass(2 * booksEvery * auditPeriod)
		if a.replaced == 0 || a.booksRead != 0 {
			t.Errorf("replaced %d times, read the books %d times", a.replaced, a.booksRead)
		}
		if a.leaseTTL <= auditPeriod {
			t.Errorf("the lease of %s ends between two rounds", a.leaseTTL)
		}
	})
}

// An auditor without a store logs this once, and goes on when the store is back.
func TestAuditorWithoutItsStores(t *testing.T) {
	type failure func(a *fakeStores, err error)
	check.Each(t, map[string]failure{
		"no database": func(a *fakeStores, err error) { with(func() { a.errAway = err }) },
		"no Redis":    func(a *fakeStores, err error) { with(func() { a.errGate = err }) },
	}, func(t *testing.T, fail failure) {
		testAuditor(t, func(a *fakeStores) { fail(a, errAway) }, func(t *testing.T, a *fakeStores) {
			pass(3 * auditPeriod)
			check.Same(t, "the drifts found", len(a.found), 0)
			check.Same(t, "the lines about the failure", a.log.Count("auditor fails"), 1)
			fail(a, nil)
			pass(auditPeriod)
			check.Same(t, "the drifts found afterwards", len(a.found), 1)
			check.Same(t, "the lines about its end", a.log.Count("auditor works again"), 1)
		})
	})
}

// The auditor checks the books of a sale once in booksEvery rounds, and reports a violation. It does not replace a gate
// that agrees with the stock.
func TestAuditorChecksTheBooks(t *testing.T) {
	testAuditor(t, func(*fakeStores) {}, func(t *testing.T, a *fakeStores) {
		pass((booksEvery - 1) * auditPeriod)
		check.Same(t, "how often the books were read", a.booksRead, 1)
		check.Same(t, "violations and log at first", a.violated+len(a.logged), 0)
		with(func() { a.offer.Stock.Held, a.offer.Stock.Available = 2, 8 })
		a.drift(-2)
		pass(booksEvery * auditPeriod)
		check.Same(t, "how often the books were read in the end", a.booksRead, 2)
		check.Same(t, "the violations", a.violated, 1)
		if logged := a.logged; len(logged) == 0 || !strings.HasPrefix(logged[0], "auditor violation "+saleA+" ") {
			t.Errorf("in the database's log: %q", logged)
		}
		check.Same(t, "how often the gate was replaced", a.replaced, 0)
	})
}

// The books of each sale are checked in one of booksEvery rounds, and no round has most of the work.
func TestBooksAreSpread(t *testing.T) {
	const sales = 1500
	perRound := map[int]int{}
	for range sales {
		id := model.NewSaleID()
		var due []int
		for round := range 2 * booksEvery {
			if booksDue(id, round) {
				due = append(due, round)
				perRound[round]++
			}
		}
		if len(due) != 2 || due[1] != due[0]+booksEvery {
			t.Errorf("sale %s is checked in the rounds %v", id, due)
		}
	}
	for round, n := range perRound {
		if n > 2*sales/booksEvery {
			t.Errorf("round %d checks %d of %d sales", round, n, sales)
		}
	}
}

// controlling is a controller over fakes.
type controlling struct {
	*fakeStores
	gates     *service.Gates
	changed   chan struct{}
	reports   int
	errReport error
}

// testController runs a test beside a controller.
func testController(t *testing.T, test func(t *testing.T, c *controlling)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &controlling{fakeStores: newFakeStores(), changed: make(chan struct{}, 1)}
		c.gates = service.NewGates(c, fakeGate{c.fakeStores}, c.catalog, slog.New(slog.DiscardHandler))
		controller := &Controller{
			Catalog: c.catalog, Gates: c.gates, Changed: c.changed, Log: slog.New(c.log),
			Report: func(context.Context) error {
				defer locked()()
				c.reports++
				return c.errReport
			},
		}
		during(t, controller.Run, func() { test(t, c) })
	})
}

// wantAvailable compares the units that the catalog shows.
func (c *controlling) wantAvailable(t *testing.T, when string, want int64) {
	t.Helper()
	list, _ := c.catalog.Live()
	check.Same(t, "the units in the catalog "+when, list[0].Stock.Available, want)
}

// The controller refreshes the catalog in each period, and at once when another instance announces a change.
func TestControllerRefreshes(t *testing.T) {
	testController(t, func(t *testing.T, c *controlling) {
		sell := func(available int64) { with(func() { c.offer.Stock.Available = available }) }
		c.wantAvailable(t, "at first", 10)
		sell(9)
		pass(refreshPeriod - time.Millisecond)
		c.wantAvailable(t, "before a period is over", 10)
		pass(time.Millisecond)
		c.wantAvailable(t, "after a period", 9)
		sell(8)
		c.changed <- struct{}{}
		synctest.Wait()
		c.wantAvailable(t, "after an announcement", 8)
	})
}

// A gate that is needed is installed at once; a gate that is missing or has to be replaced, within a second.
func TestControllerInstallsGates(t *testing.T) {
	need := func(c *controlling) { c.gates.NeedGate(saleA) }
	replace := func(c *controlling) { c.gates.ReplaceGate(saleA, 1, "test") }
	lose := func(c *controlling) { c.loseGate() }
	type row struct {
		ask   func(c *controlling)
		after time.Duration
		want  int
	}
	check.Each(t, map[string]row{
		"nothing is wrong":        {func(*controlling) {}, 3 * ensurePeriod, 0},
		"needed and there":        {need, 0, 0},
		"needed and absent":       {func(c *controlling) { lose(c); need(c) }, 0, 1},
		"to be replaced":          {replace, ensurePeriod, 1},
		"to be replaced, not yet": {replace, ensurePeriod - time.Millisecond, 0},
		"absent and unasked":      {lose, ensurePeriod, 1},
		"absent, not yet":         {lose, ensurePeriod - time.Millisecond, 0},
	}, func(t *testing.T, tc row) {
		testController(t, func(t *testing.T, c *controlling) {
			tc.ask(c)
			synctest.Wait()
			if tc.after > 0 {
				pass(tc.after)
			}
			check.Same(t, "the installed gates", c.installs, tc.want)
			check.Same(t, "the epochs", c.epochs, tc.want)
		})
	})
}

// A request that comes too soon after a rebuild is kept until another rebuild is allowed, since its reason is newer. A
// request to replace a gate that was replaced already does nothing.
func TestReplacementAskedTooSoon(t *testing.T) {
	testController(t, func(t *testing.T, c *controlling) {
		c.gates.ReplaceGate(saleA, 1, "first")
		pass(ensurePeriod)
		c.gates.ReplaceGate(saleA, 2, "second")
		pass(ensurePeriod / 2)
		check.Same(t, "the gates within half a second", c.installs, 1)
		pass(ensurePeriod)
		check.Same(t, "the gates for two requests", c.installs, 2)
		c.gates.ReplaceGate(saleA, 2, "late")
		pass(3 * ensurePeriod)
		check.Same(t, "the gates after a late request", c.installs, 2)
	})
}

// Both loops of the controller go on when the stores are back. The controller reports this instance's figures each second,
// and logs the first of several failures.
func TestControllerOutlivesItsStores(t *testing.T) {
	testController(t, func(t *testing.T, c *controlling) {
		with(func() { c.errNow = errAway })
		with(func() { c.errGate = errAway })
		c.loseGate()
		pass(3 * ensurePeriod)
		check.Same(t, "the lines about the catalog", c.log.Count("refresh of the catalog fails"), 1)
		check.Same(t, "the lines about the gates", c.log.Count("can't check the gates"), 1)
		check.Same(t, "the reports in three seconds", c.reports, 3)
		with(func() { c.errNow, c.offer.Stock.Available = nil, 5 })
		with(func() { c.errGate = nil })
		pass(ensurePeriod)
		c.wantAvailable(t, "afterwards", 5)
		check.Same(t, "the installed gates", c.installs, 1)
		with(func() { c.errReport = errAway })
		pass(3 * ensurePeriod)
		check.Same(t, "the lines about the gates and the reports", c.log.Count("can't check the gates"), 2)
	})
}
