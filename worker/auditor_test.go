package worker

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/internal/observe"
	"flashsale/model"
	"flashsale/service"
	"flashsale/test/kit/check"
)

// testAuditor runs a test beside an auditor.
func testAuditor(t *testing.T, prepare func(f *fakeStores), test func(t *testing.T, f *fakeStores)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeStores()
		check.NoError(t, f.catalog.Refresh(t.Context()))
		auditor := &Auditor{
			Audits: &service.Auditor{Store: f, Gate: fakeGate{f}}, Lease: f.lease, AuditLog: f, Catalog: f.catalog,
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
		testAuditor(t, func(*fakeStores) {}, func(t *testing.T, a *fakeStores) {
			for _, units := range tc.drifts {
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
				for round := 1; !booksDue(saleA, round, 1); round++ {
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

// With very many sales rounds are longer. The lease still outlasts a round, and the books of each sale are read as often.
func TestAuditorOfManySales(t *testing.T) {
	const sales, long = paceMost * paceSales, paceMost * auditPeriod
	many := func(a *fakeStores) {
		a.others = sales - 1
		check.NoError(t, a.catalog.Refresh(t.Context()))
	}
	testAuditor(t, many, func(t *testing.T, a *fakeStores) {
		pass((booksEvery - 1) * long)
		check.Same(t, "how often the books were read in two minutes", a.booksRead, sales)
		if a.leaseTTL <= long {
			t.Errorf("the lease of %s ends between two rounds", a.leaseTTL)
		}
	})
}

// An auditor without a store logs this once, and goes on when the store is back.
func TestAuditorWithoutItsStores(t *testing.T) {
	type failure struct {
		fail  func(a *fakeStores, err error)
		found int // in two rounds after its end; the first one after a start only reads the sales
	}
	check.Each(t, map[string]failure{
		"no database": {func(a *fakeStores, err error) { with(func() { a.errAway = err }) }, 1},
		"no Redis":    {func(a *fakeStores, err error) { with(func() { a.errGate = err }) }, 2},
	}, func(t *testing.T, tc failure) {
		testAuditor(t, func(a *fakeStores) { tc.fail(a, errAway) }, func(t *testing.T, a *fakeStores) {
			pass(3 * auditPeriod)
			check.Same(t, "the drifts found", len(a.found), 0)
			check.Same(t, "the lines about the failure", a.log.Count("auditor fails"), 1)
			tc.fail(a, nil)
			pass(2 * auditPeriod)
			check.Same(t, "the drifts found afterwards", len(a.found), tc.found)
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

// The auditor remembers the seal of a line, and reports that it has changed.
func TestAuditorWatchesTheSeal(t *testing.T) {
	prepare := func(f *fakeStores) { f.offer.Line = model.Line{Phase: model.PhaseCalling, Root: "root"} }
	testAuditor(t, prepare, func(t *testing.T, a *fakeStores) {
		pass((booksEvery - 1) * auditPeriod)
		check.Same(t, "violations at first", a.violated, 0)
		with(func() { a.offer.Line.Root = "other" })
		pass(booksEvery * auditPeriod)
		check.Same(t, "violations of another seal", a.violated, 1)
	})
}

// The books of each sale are checked in one of booksEvery rounds, or of more if there are many sales, and no round has most
// of the work.
func TestBooksAreSpread(t *testing.T) {
	for sales, every := range map[int]int{200: booksEvery, 1500: 8 * booksEvery} {
		perRound := map[int]int{}
		for range sales {
			id := model.NewSaleID()
			var due []int
			for round := range 2 * every {
				if booksDue(id, round, sales) {
					due = append(due, round)
					perRound[round]++
				}
			}
			if len(due) != 2 || due[1] != due[0]+every {
				t.Errorf("of %d sales, %s is checked in the rounds %v", sales, id, due)
			}
		}
		for round, n := range perRound {
			if n > 3*booksMost {
				t.Errorf("round %d checks %d of %d sales", round, n, sales)
			}
		}
	}
}
