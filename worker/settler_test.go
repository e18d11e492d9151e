package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// The entries that arrive during a transaction are the next batch.
func TestNaturalBatches(t *testing.T) {
	testSettler(t, func(t *testing.T, s *settling) {
		release := make(chan struct{})
		s.ledger.before = func(string, []model.Entry) error { <-release; return nil }
		for _, e := range entries(6) {
			s.admit(e)
		}
		check.Same(t, "the first batches", s.ledger.batches[saleA], []int{1})
		close(release)
		synctest.Wait()
		check.Same(t, "all batches", s.ledger.batches[saleA], []int{1, 5})
		want := verdicts(model.Accepted, 0, 1, 2, 3, 4, 5)
		check.Same(t, "settled", s.stream.settled, want)
		check.Same(t, "woken", s.woken, want)
	})
}

// A settle counts as under way until its batch ends or is late: what waits at the gate then need not wait for it.
func TestBusy(t *testing.T) {
	for _, long := range []time.Duration{writerPatience / 10, 2 * writerPatience} {
		testSettler(t, func(t *testing.T, s *settling) {
			s.ledger.before = func(string, []model.Entry) error { time.Sleep(long); return nil } // of the bubble's clock
			check.Same(t, "busy without entries", s.Busy(), false)
			s.admit(entry(saleA, 1, "here"))
			pass(min(long, writerPatience) - time.Millisecond)
			check.Same(t, "busy while a batch is under way", s.Busy(), true)
			pass(time.Millisecond)
			check.Same(t, "busy after that", s.Busy(), false)
		})
	}
}

func TestBatchesAreBounded(t *testing.T) {
	testSettler(t, func(t *testing.T, s *settling) {
		s.admit(entries(2*settleBatch + 10)...)
		// There are two writers, and the last batch may end before the batch that was read before it.
		sizes := slices.Sorted(slices.Values(s.ledger.batches[saleA]))
		check.Same(t, "the batches", sizes, []int{10, settleBatch, settleBatch})
	})
}

// While a backlog waits, as many transactions run at once as there are writers, and no more, whether of one sale or of many.
func TestWriters(t *testing.T) {
	for _, sales := range [][]string{{saleA}, {saleA, saleB, saleC}} {
		t.Run(fmt.Sprint("sales: ", len(sales)), func(t *testing.T) {
			testSettler(t, func(t *testing.T, s *settling) {
				s.ledger.before = func(string, []model.Entry) error { time.Sleep(10 * time.Millisecond); return nil } // of the bubble's clock
				s.Batch = 3
				for i := range 300 {
					s.admit(entry(sales[i%len(sales)], i, "here"))
					pass(time.Millisecond)
				}
				pass(sweepPeriod)
				check.Same(t, "the most transactions at once", s.ledger.most[anySale], settleWriters)
				check.Same(t, "the settled entries", len(s.stream.settled), 300)
			})
		})
	}
}

// As many sales as there are writers always have new entries. The buyers of another sale must not wait until they end.
func TestHotSalesLeaveRoom(t *testing.T) {
	testSettler(t, func(t *testing.T, s *settling) {
		var next atomic.Int64
		s.ledger.before = func(sale string, _ []model.Entry) error {
			time.Sleep(10 * time.Millisecond) // of the bubble's clock
			if sale != saleC {
				e := entry(sale, 1000+int(next.Add(1)), "here")
				s.stream.add(e)
				s.Add([]model.Entry{e})
			}
			return nil
		}
		s.admit(entry(saleA, 1, "here"), entry(saleB, 2, "here"))
		pass(100 * time.Millisecond)
		s.admit(entry(saleC, 3, "here"))
		pass(2 * sweepPeriod)
		with(func() { // the writers go on
			check.Same(t, "the verdict of the other sale's buyer", s.stream.settled["order-3"], model.Accepted)
		})
	})
}

// A sale whose transactions wait for a lock, or fail, has no more batches under way than there are writers, and other
// sales are settled as before.
func TestHole49_LockedSaleLeavesRoom(t *testing.T) {
	for name, locked := range map[string]func() error{
		"its transactions wait for a lock": func() error { time.Sleep(settleTimeout); return errAway }, // of the bubble's clock
		"its transactions fail at once":    func() error { return errAway },
	} {
		test := func(t *testing.T, s *settling) {
			var free atomic.Bool
			s.ledger.before = func(sale string, _ []model.Entry) (err error) {
				if sale == saleA && !free.Load() {
					err = locked()
				}
				return err
			}
			for i := range 10 { // after the first round, the first two batches are known to be late
				s.admit(entry(saleA, 2*i, "here"), entry(saleB, 2*i+1, "here"))
				pass(consumerPatience)
				check.Same(t, "the orders of the other sale", len(s.stream.settled), i+1)
			}
			free.Store(true)
			pass(settleTimeout + retryMost + leftAfter + sweepPeriod)
			check.Same(t, "the entries left when the sale is free", len(s.stream.held[saleA]), 0)
			if n := s.ledger.most[saleA]; n > settleWriters {
				t.Errorf("%d batches of the locked sale at once", n)
			}
		}
		t.Run(name, func(t *testing.T) { testSettler(t, test) })
		t.Run(name+", with a queue", func(t *testing.T) { testRelay(t, test) })
	}
}

// Entries that another instance has settled between two tries, or that were lost, are not tried again.
func TestRetryAsksTheStream(t *testing.T) {
	testSettler(t, func(t *testing.T, s *settling) {
		s.ledger.fail(errAway)
		two := entries(2)
		s.admit(two...)
		_, err := s.stream.Settled(t.Context(), two[:1], make([]model.Outcome, 1))
		check.NoError(t, err)
		s.ledger.fail(nil)
		pass(retryPause)
		check.Same(t, "the batches", s.ledger.batches[saleA], []int{2, 1})
		check.Same(t, "the entries left", len(s.stream.held[saleA]), 0)
	})
}

// told returns what the buyer of an entry was told: nothing yet, or a verdict.
func told(e model.Entry) model.Verdict {
	if !e.Waiter.Answered() {
		return ""
	}
	outcome, _ := e.Waiter.Told()
	return outcome.Verdict
}

// The buyer of an entry that another instance has settled looks in the database. The buyer of one that can't be settled yet waits
// for the sweep that finds it, which knows only the order's id.
func TestBuyersOfEntriesThatAreLeft(t *testing.T) {
	testSettler(t, func(t *testing.T, s *settling) {
		list := entries(3)
		s.stream.add(list...)
		for i := range list {
			list[i].Waiter = model.NewWaiter(nil)
		}
		s.ledger.fail(errAway)
		s.Add(list[:2])
		synctest.Wait()
		_, err := s.stream.Settled(t.Context(), list[:1], make([]model.Outcome, 1))
		check.NoError(t, err)
		s.ledger.fail(nil)
		pass(retryPause)
		check.Same(t, "the buyer of an entry that another instance has settled", told(list[0]), model.Queued)
		check.Same(t, "the buyer of an entry that is settled here", told(list[1]), model.Accepted)

		s.ledger.fail(model.ErrBroken)
		s.Add(list[2:])
		synctest.Wait()
		check.Same(t, "a buyer who waits for a sweep", told(list[2]), "")
		check.Same(t, "kept apart", slices.Contains(s.apart, list[2].ID), true)
		s.ledger.fail(nil)
		pass(leftAfter + sweepPeriod)
		check.Same(t, "woken by its order's id", s.woken, verdicts(model.Accepted, 2))
	})
}

// The sweep finds the entries of instances that have died, and those of this instance whose admission it did not hear of,
// when they are leftAfter old. The entries of a running instance stay with that instance.
func TestSweep(t *testing.T) {
	testSettler(t, func(t *testing.T, s *settling) {
		two := []string{"there"} // beside this one
		dead := entry(saleA, 2, "dead")
		for i := 0; s.heir(dead, two) == "here"; i++ {
			dead.SaleID = fmt.Sprintf("SALE%012d", i)
		}
		with(func() { s.live = append(s.live, dead.SaleID) })
		s.stream.add(entry(saleA, 1, "there"), dead, entry(saleA, 3, "here"))
		pass(leftAfter - time.Millisecond)
		check.Same(t, "settled too soon", s.stream.settled, verdicts(""))
		with(func() { s.running = two })
		pass(sweepPeriod)
		check.Same(t, "settled while the other instance runs", s.stream.settled, verdicts(model.Accepted, 3))
		with(func() { s.running = nil })
		pass(sweepPeriod)
		check.Same(t, "settled", s.stream.settled, verdicts(model.Accepted, 1, 2, 3))
		with(func() { s.live = nil })
		s.stream.fail(errAway)
		pass(sweepPeriod)
		check.Same(t, "failures without live sales", s.log.Count("settler fails"), 0)
	})
}

// All instances agree which of them settles the entries that a dead one has left. Over many sales each has its share.
func TestHeir(t *testing.T) {
	running := []string{"here", "there", "elsewhere"}
	shares := map[string]int{}
	for i := range 300 {
		e := entry(fmt.Sprintf("SALE%012d", i), 1, "dead")
		heirs := map[string]bool{}
		for _, name := range running {
			s := &Settler{SettlerNeeds: SettlerNeeds{Instance: name}}
			heirs[s.heir(e, running)] = true
			e := e
			e.Instance = "there"
			check.Same(t, "who settles the entry of a running instance", s.heir(e, running), "there")
		}
		check.Same(t, "the number of heirs of "+e.SaleID, len(heirs), 1)
		for name := range heirs {
			shares[name]++
		}
	}
	for _, name := range running {
		if shares[name] < 50 {
			t.Errorf("%s has the entries of %d sales of 300", name, shares[name])
		}
	}
}

// A batch is tried until the database answers. Before that nothing is acknowledged and no buyer is woken. One line is
// logged.
func TestDatabaseAway(t *testing.T) {
	testSettler(t, func(t *testing.T, s *settling) {
		s.ledger.fail(errAway)
		s.admit(entry(saleA, 1, "here"), entry(saleA, 2, "there"))
		pass(10 * retryMost)
		if n := len(s.ledger.batches[saleA]); n < 10 || n > 24 {
			t.Errorf("tried %d times in ten of the longest pauses", n)
		}
		check.Same(t, "acknowledged and woken", len(s.stream.settled)+len(s.woken)+len(s.stream.woken), 0)
		s.ledger.fail(nil)
		pass(retryMost)
		check.Same(t, "settled", s.stream.settled, verdicts(model.Accepted, 1, 2))
		check.Same(t, "the lines about it", s.log.Count("it is tried again"), 1)
	})
}

// A settler that is stopped while the database is away leaves the entries in the stream.
func TestStopWhileTheDatabaseIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSettling(nil)
		s.ledger.fail(errAway)
		during(t, s.Run, func() { s.admit(entry(saleA, 1, "here")) })
		check.Same(t, "acknowledged and woken", len(s.stream.settled)+len(s.woken), 0)
		check.Same(t, "the entries left", len(s.stream.held[saleA]), 1)
	})
}

// A stop waits for the batch under way, which may be committed already, and begins no other batch.
func TestStopFinishesTheBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, release := newSettling(nil), make(chan struct{})
		s.ledger.before = func(string, []model.Entry) error { <-release; return nil }
		ctx, cancel := context.WithCancel(t.Context())
		var ended atomic.Bool
		go func() { s.Run(ctx); ended.Store(true) }()
		s.admit(entry(saleA, 1, "here"))
		s.stream.add(entry(saleA, 2, "here"))
		cancel()
		synctest.Wait()
		check.Same(t, "stopped within the batch", ended.Load(), false)
		close(release)
		synctest.Wait()
		check.Same(t, "stopped after the batch", ended.Load(), true)
		check.Same(t, "settled", s.stream.settled, verdicts(model.Accepted, 1))
		check.Same(t, "the batches", s.ledger.batches[saleA], []int{1})
	})
}

// One entry that the database can't take delays no other. A sweep tries it again, and at the last try it is refused for
// good.
func TestBrokenEntry(t *testing.T) {
	testSettler(t, func(t *testing.T, s *settling) {
		s.ledger.before = func(_ string, entries []model.Entry) error {
			if slices.ContainsFunc(entries, func(e model.Entry) bool { return e.ID == "order-2" }) {
				return fmt.Errorf("wrapped: %w", model.ErrBroken)
			}
			return nil
		}
		s.admit(entry(saleA, 1, "here"), entry(saleA, 2, "here"), entry(saleA, 3, "there"))
		check.Same(t, "the batches", s.ledger.batches[saleA], []int{3, 1, 1, 1})
		check.Same(t, "settled at once", s.stream.settled, verdicts(model.Accepted, 1, 3))
		check.Same(t, "woken here", s.woken, verdicts(model.Accepted, 1))
		check.Same(t, "woken there", s.stream.woken["there"], verdicts(model.Accepted, 3))
		pass(leftAfter + (brokenTries-3)*sweepPeriod)
		check.Same(t, "refused before the last try", s.ledger.refused, verdicts(""))
		check.Same(t, "the entries left before the last try", len(s.stream.held[saleA]), 1)
		pass(sweepPeriod)
		check.Same(t, "refused", s.ledger.refused, verdicts(model.ReasonFailed, 2))
		check.Same(t, "the broken entry in the stream", s.stream.settled["order-2"], model.ReasonFailed)
		check.Same(t, "what the buyer is told", s.woken["order-2"], model.ReasonFailed)
		check.Same(t, "the counted tries", len(s.broken), 0)
		check.Same(t, "the entries left after the refusal", len(s.stream.held[saleA]), 0)
		check.Same(t, "the lines about it", s.log.Count("refused an attempt"), 1)
	})
}

// A broken entry whose refusal fails stays in the stream: a buyer must not be told what the database does not have.
func TestBrokenEntryThatCantBeRefused(t *testing.T) {
	testSettler(t, func(t *testing.T, s *settling) {
		with(func() { s.ledger.err, s.ledger.errRefuse = model.ErrBroken, errAway })
		s.broken["order-1"] = brokenTries - 1
		s.admit(entry(saleA, 1, "here"))
		check.Same(t, "acknowledged and woken", len(s.stream.settled)+len(s.woken), 0)
		with(func() { s.ledger.errRefuse = nil })
		pass(leftAfter + sweepPeriod)
		check.Same(t, "settled", s.stream.settled, verdicts(model.ReasonFailed, 1))
	})
}

// Entries that nobody can read are logged, and written to the database's log, with or without readable entries. They
// are not sent to a queue.
func TestBadEntriesAreLogged(t *testing.T) {
	for _, good := range []int{0, 2} {
		test := func(t *testing.T, s *settling) {
			with(func() { s.stream.bad[saleA] = []string{"1-1 nonsense", "1-2 more of it"} })
			s.stream.add(entries(good)...)
			pass(leftAfter + sweepPeriod)
			check.Same(t, "in the database's log", s.ledger.logged, []string{
				"engine delete_entry " + saleA + " 1-1 nonsense", "engine delete_entry " + saleA + " 1-2 more of it",
			})
			check.Same(t, "logged", s.log.Count("deleted from the stream"), 2)
			check.Same(t, "the settled entries", len(s.stream.settled), good)
		}
		t.Run(fmt.Sprint("beside good entries: ", good), func(t *testing.T) { testSettler(t, test) })
		t.Run(fmt.Sprint("with a queue, beside good entries: ", good), func(t *testing.T) { testRelay(t, test) })
	}
}

// Each buyer is woken on the buyer's own instance. A wake-up that fails does not prevent the acknowledgement.
func TestBuyersAreWoken(t *testing.T) {
	check.Each(t, map[string]error{"Redis answers": nil, "Redis does not answer": errAway}, func(t *testing.T, err error) {
		testSettler(t, func(t *testing.T, s *settling) {
			with(func() { s.stream.errWake = err })
			s.ledger.outcome = func(e model.Entry) model.Outcome { return model.Outcome{Verdict: model.Verdict("of " + e.ID)} }
			s.admit(entry(saleA, 1, "here"), entry(saleA, 2, "there"), entry(saleA, 3, "elsewhere"), entry(saleA, 4, "there"))
			check.Same(t, "woken here", s.woken, map[string]model.Verdict{"order-1": "of order-1"})
			others := map[string]map[string]model.Verdict{
				"there": {"order-2": "of order-2", "order-4": "of order-4"}, "elsewhere": {"order-3": "of order-3"},
			}
			if err != nil {
				clear(others)
			}
			check.Same(t, "woken on other instances", s.stream.woken, others)
			check.Same(t, "the entries that are not acknowledged", len(s.stream.held[saleA]), 0)
		})
	})
}

// Redis goes away between the commit and the acknowledgement. The entry is delivered again when Redis is back.
func TestAcknowledgementLost(t *testing.T) {
	testSettler(t, func(t *testing.T, s *settling) {
		lose := sync.OnceFunc(func() { s.stream.fail(errAway) })
		s.ledger.before = func(string, []model.Entry) error { lose(); return nil }
		s.admit(entry(saleA, 1, "here"))
		pass(2 * sweepPeriod)
		check.Same(t, "acknowledged without Redis", s.stream.settled, verdicts(""))
		check.Same(t, "the lines about the sweep", s.log.Count("settler fails"), 1)
		s.stream.fail(nil)
		pass(leftAfter + sweepPeriod)
		check.Same(t, "settled", s.stream.settled, verdicts(model.Accepted, 1))
		check.Same(t, "the lines about the return", s.log.Count("settler works again"), 1)
	})
}

// Drain settles all that is left, and returns an error if a store is away.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSettling(nil)
		for i := range 300 {
			s.stream.add(entry([]string{saleA, saleB}[i%2], i, "here"))
		}
		check.Same(t, "drained", s.Drain(t.Context()), nil)
		check.Same(t, "the settled entries", len(s.stream.settled), 300)

		s.stream.add(entry(saleA, 1, "here"))
		s.ledger.fail(errAway)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := s.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, errAway) {
			t.Errorf("without the database: %v", err)
		}
		s.stream.fail(errAway)
		check.Error(t, "without Redis", s.Drain(t.Context()), errAway)
	})
}

// In a batch, all entries of a sale stand together, in the order in which they were added. The sales are served in turn. A
// late sale is left out. An entry that is held is not added again.
func TestPending(t *testing.T) {
	p := newPending()
	take := func(count int, want string) {
		t.Helper()
		var got []string
		for _, b := range p.take(count) {
			for _, e := range b.entries {
				check.Same(t, "the sale of "+e.ID, e.SaleID, b.gate.SaleID)
				got = append(got, strings.TrimPrefix(e.ID, "order-"))
			}
		}
		check.Same(t, "taken", strings.Join(got, " "), want)
	}
	take(10, "")
	first := []model.Entry{entry(saleA, 1, "here"), entry(saleA, 2, "here"), entry(saleB, 3, "here"), entry(saleA, 4, "here")}
	check.Same(t, "added", p.add(first), 4)
	check.Same(t, "added again", p.add(first), 0)
	p.late.add(refs(saleA)[0], 1)
	take(10, "3")
	take(10, "")
	p.late.add(refs(saleA)[0], -1)
	take(2, "1 2")
	check.Same(t, "added while they are being settled", p.add(first), 0)
	p.add([]model.Entry{entry(saleB, 5, "here"), entry(saleA, 6, "here"), entry(saleB, 7, "here")})
	take(3, "4 6 5")
	take(3, "7")
	p.done(first)
	check.Same(t, "added when they are done", p.add(first[:1]), 1)
	many := make([]model.Entry, mostHeld)
	for i := range many {
		many[i] = entry(saleC, 10+i, "here")
	}
	check.Same(t, "added up to the bound, beside the four that are held", p.add(many), mostHeld-4)
}

// Entries that are settled while the settler waits are deleted from their streams together, and are not settled again
// meanwhile, however old they are.
func TestDeletionsWaitForEachOther(t *testing.T) {
	testSettler(t, func(t *testing.T, s *settling) {
		s.AckPause = 2 * leftAfter
		for i := range 4 {
			s.admit(entry(saleA, i, "here"))
		}
		check.Same(t, "deleted at first", s.stream.settled, verdicts(model.Accepted, 0))
		pass(s.AckPause - time.Millisecond)
		check.Same(t, "deleted during the pause", len(s.stream.settled), 1)
		pass(time.Millisecond)
		check.Same(t, "deleted in the end", s.stream.settled, verdicts(model.Accepted, 0, 1, 2, 3))
		check.Same(t, "the transactions", s.ledger.batches[saleA], []int{1, 1, 1, 1})
	})
}

// The first entry of a batch waits for others.
func TestBatchesLinger(t *testing.T) {
	testSettler(t, func(t *testing.T, s *settling) {
		s.Linger = time.Second
		for i := range 3 {
			s.admit(entry(saleA, i, "here"))
			pass(s.Linger/3 - time.Millisecond)
		}
		check.Same(t, "the transactions before the end", len(s.ledger.batches[saleA]), 0)
		pass(10 * time.Millisecond)
		check.Same(t, "the transactions", s.ledger.batches[saleA], []int{3})
	})
}

// Memory has no room for some of the entries. They are settled as soon as there is room, and not only in the next sweeps.
func TestMoreEntriesThanMemoryHolds(t *testing.T) {
	testSettler(t, func(t *testing.T, s *settling) {
		gone := make(chan struct{})
		s.ledger.before = func(string, []model.Entry) error { <-gone; return nil }
		s.pending.most = 100
		all := entries(2*sweepMost + 10)
		s.admit(all...)
		if !slices.Contains(s.apart, all[len(all)-1].ID) {
			t.Error("the buyer of an entry without room can't be woken")
		}
		pass(leftAfter)
		close(gone)
		pass(sweepPeriod)
		check.Same(t, "the settled entries", len(s.stream.settled), len(all))
	})
}
