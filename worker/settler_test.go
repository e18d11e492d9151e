package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/model"
)

// The entries that arrive while every writer is in a transaction are the next batch.
func TestNaturalBatches(t *testing.T) {
	testSettler(t, func(t *testing.T, s *settling) {
		release := make(chan struct{})
		s.ledger.before = func(string, []model.Entry) error { <-release; return nil }
		for _, e := range entries(6) {
			s.admit(e)
		}
		same(t, "the first batches", s.ledger.batches[saleA], []int{1, 1})
		close(release)
		synctest.Wait()
		same(t, "all batches", s.ledger.batches[saleA], []int{1, 1, 4})
		want := verdicts(model.Accepted, 0, 1, 2, 3, 4, 5)
		same(t, "settled", s.stream.settled, want)
		same(t, "woken", s.woken, want)
	})
}

func TestBatchesAreBounded(t *testing.T) {
	testSettler(t, func(t *testing.T, s *settling) {
		s.admit(entries(2*settleBatch + 10)...)
		// There are two writers, and the last batch may end before the batch that was read before it.
		sizes := slices.Sorted(slices.Values(s.ledger.batches[saleA]))
		same(t, "the batches", sizes, []int{10, settleBatch, settleBatch})
	})
}

// As many transactions run at once as there are writers, and no more, whether of one sale or of many.
func TestWriters(t *testing.T) {
	for _, sales := range [][]string{{saleA}, {saleA, saleB, saleC}} {
		t.Run(fmt.Sprint("sales: ", len(sales)), func(t *testing.T) {
			testSettler(t, func(t *testing.T, s *settling) {
				s.ledger.before = func(string, []model.Entry) error { time.Sleep(10 * time.Millisecond); return nil } // of the bubble's clock
				for i := range 300 {
					s.admit(entry(sales[i%len(sales)], i, "here"))
					pass(time.Millisecond)
				}
				pass(sweepPeriod)
				same(t, "the most transactions at once", s.ledger.most[anySale], settleWriters)
				same(t, "the settled entries", len(s.stream.settled), 300)
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
				s.stream.add(entry(sale, 1000+int(next.Add(1)), "here"))
			}
			return nil
		}
		s.admit(entry(saleA, 1, "here"), entry(saleB, 2, "here"))
		pass(100 * time.Millisecond)
		s.admit(entry(saleC, 3, "here"))
		pass(2 * sweepPeriod)
		s.stream.with(func() { // the writers go on
			same(t, "the verdict of the other sale's buyer", s.stream.settled["order-3"], model.Accepted)
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
				same(t, "the orders of the other sale", len(s.stream.settled), i+1)
			}
			free.Store(true)
			pass(settleTimeout + retryMost + claimIdle + sweepPeriod)
			same(t, "the entries left when the sale is free", s.stream.left(saleA), 0)
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
		if err := s.stream.Settled(t.Context(), refs(saleA)[0], two[:1], make([]model.Outcome, 1)); err != nil {
			t.Fatal(err)
		}
		s.ledger.fail(nil)
		pass(retryPause)
		same(t, "the batches", s.ledger.batches[saleA], []int{2, 1})
		same(t, "the entries left", s.stream.left(saleA), 0)
	})
}

// The sweep finds entries that nobody has notified this instance of, such as those of an instance that has died.
func TestSweep(t *testing.T) {
	testSettler(t, func(t *testing.T, s *settling) {
		s.stream.add(entry(saleA, 1, "there"))
		synctest.Wait()
		same(t, "the entries left without a notice", s.stream.left(saleA), 1)
		pass(sweepPeriod)
		same(t, "the batches of all sales", s.ledger.batches, map[string][]int{saleA: {1}})
		s.with(func() { s.live = nil })
		s.stream.fail(errAway)
		pass(sweepPeriod)
		same(t, "failures without live sales", s.log.count("settler fails"), 0)
	})
}

// The entries of a dead consumer are claimed after claimIdle, and not before.
func TestDeadConsumersEntriesAreClaimed(t *testing.T) {
	testSettler(t, func(t *testing.T, s *settling) {
		s.stream.add(entry(saleA, 1, "there"))
		if _, _, err := s.stream.Read(t.Context(), refs(saleA)[0], 10); err != nil { // by a consumer that then dies
			t.Fatal(err)
		}
		pass(claimIdle - time.Millisecond)
		same(t, "settled while the consumer may live", s.stream.settled, verdicts(""))
		pass(sweepPeriod)
		same(t, "settled", s.stream.settled, verdicts(model.Accepted, 1))
	})
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
		same(t, "acknowledged and woken", len(s.stream.settled)+len(s.woken)+len(s.stream.woken), 0)
		s.ledger.fail(nil)
		pass(retryMost)
		same(t, "settled", s.stream.settled, verdicts(model.Accepted, 1, 2))
		same(t, "the lines about it", s.log.count("trying again"), 1)
	})
}

// A settler that is stopped while the database is away leaves the entries in the stream.
func TestStopWhileTheDatabaseIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSettling(nil)
		s.ledger.fail(errAway)
		during(t, s.Run, func() { s.admit(entry(saleA, 1, "here")) })
		same(t, "acknowledged and woken", len(s.stream.settled)+len(s.woken), 0)
		same(t, "the entries left", s.stream.left(saleA), 1)
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
		same(t, "stopped within the batch", ended.Load(), false)
		close(release)
		synctest.Wait()
		same(t, "stopped after the batch", ended.Load(), true)
		same(t, "settled", s.stream.settled, verdicts(model.Accepted, 1))
		same(t, "the batches", s.ledger.batches[saleA], []int{1})
	})
}

// One entry that the database can't take delays no other. It is delivered again, and at its last delivery it is refused
// for good.
func TestBrokenEntry(t *testing.T) {
	testSettler(t, func(t *testing.T, s *settling) {
		var deliveries []int64
		s.ledger.before = func(_ string, entries []model.Entry) error {
			at := slices.IndexFunc(entries, func(e model.Entry) bool { return e.ID == "order-2" })
			if at < 0 {
				return nil
			}
			deliveries = append(deliveries, entries[at].Deliveries)
			return fmt.Errorf("wrapped: %w", model.ErrBroken)
		}
		s.admit(entry(saleA, 1, "here"), entry(saleA, 2, "here"), entry(saleA, 3, "there"))
		same(t, "the batches", s.ledger.batches[saleA], []int{3, 1, 1, 1})
		same(t, "settled at once", s.stream.settled, verdicts(model.Accepted, 1, 3))
		same(t, "woken here", s.woken, verdicts(model.Accepted, 1))
		same(t, "woken there", s.stream.woken["there"], verdicts(model.Accepted, 3))
		for range maxDeliveries - 2 {
			pass(claimIdle)
		}
		same(t, "refused before the last delivery", s.ledger.refused, verdicts(""))
		same(t, "the entries left before the last delivery", s.stream.left(saleA), 1)
		pass(claimIdle)
		same(t, "refused", s.ledger.refused, verdicts(model.ReasonFailed, 2))
		same(t, "the broken entry in the stream", s.stream.settled["order-2"], model.ReasonFailed)
		same(t, "what the buyer is told", s.woken["order-2"], model.ReasonFailed)
		same(t, "the deliveries", slices.Compact(deliveries), []int64{1, 2, 3, 4, maxDeliveries})
		same(t, "the entries left after the refusal", s.stream.left(saleA), 0)
		same(t, "the lines about it", s.log.count("can't be settled"), 1)
	})
}

// A broken entry whose refusal fails stays in the stream: a buyer must not be told what the database does not have.
func TestBrokenEntryThatCantBeRefused(t *testing.T) {
	testSettler(t, func(t *testing.T, s *settling) {
		s.ledger.with(func() { s.ledger.err, s.ledger.errRefuse = model.ErrBroken, errAway })
		e := entry(saleA, 1, "here")
		e.Deliveries = maxDeliveries
		s.admit(e)
		same(t, "acknowledged and woken", len(s.stream.settled)+len(s.woken), 0)
		s.ledger.with(func() { s.ledger.errRefuse = nil })
		pass(claimIdle + sweepPeriod)
		same(t, "settled", s.stream.settled, verdicts(model.ReasonFailed, 1))
	})
}

// Entries that nobody can read are logged, and written to the database's log, with or without readable entries. They
// are not sent to a queue.
func TestBadEntriesAreLogged(t *testing.T) {
	for _, good := range []int{0, 2} {
		test := func(t *testing.T, s *settling) {
			s.stream.with(func() { s.stream.bad[saleA] = []string{"1-1 nonsense", "1-2 more of it"} })
			s.stream.add(entries(good)...)
			s.Notify(refs(saleA)[0])
			synctest.Wait()
			same(t, "in the database's log", s.ledger.logged, []string{
				"engine delete_entry " + saleA + " 1-1 nonsense", "engine delete_entry " + saleA + " 1-2 more of it",
			})
			same(t, "logged", s.log.count("deleted from the stream"), 2)
			same(t, "the settled entries", len(s.stream.settled), good)
		}
		t.Run(fmt.Sprint("beside good entries: ", good), func(t *testing.T) { testSettler(t, test) })
		t.Run(fmt.Sprint("with a queue, beside good entries: ", good), func(t *testing.T) { testRelay(t, test) })
	}
}

// Each buyer is woken on the buyer's own instance. A wake-up that fails does not prevent the acknowledgement.
func TestBuyersAreWoken(t *testing.T) {
	for name, err := range map[string]error{"Redis answers": nil, "Redis does not answer": errAway} {
		t.Run(name, func(t *testing.T) {
			testSettler(t, func(t *testing.T, s *settling) {
				s.stream.with(func() { s.stream.errWake = err })
				s.ledger.outcome = func(e model.Entry) model.Outcome { return model.Outcome{Verdict: model.Verdict("of " + e.ID)} }
				s.admit(entry(saleA, 1, "here"), entry(saleA, 2, "there"), entry(saleA, 3, "elsewhere"), entry(saleA, 4, "there"))
				same(t, "woken here", s.woken, map[string]model.Verdict{"order-1": "of order-1"})
				others := map[string]map[string]model.Verdict{
					"there": {"order-2": "of order-2", "order-4": "of order-4"}, "elsewhere": {"order-3": "of order-3"},
				}
				if err != nil {
					clear(others)
				}
				same(t, "woken on other instances", s.stream.woken, others)
				same(t, "the entries that are not acknowledged", s.stream.left(saleA), 0)
			})
		})
	}
}

// Redis goes away between the commit and the acknowledgement. The entry is delivered again when Redis is back.
func TestAcknowledgementLost(t *testing.T) {
	testSettler(t, func(t *testing.T, s *settling) {
		lose := sync.OnceFunc(func() { s.stream.fail(errAway) })
		s.ledger.before = func(string, []model.Entry) error { lose(); return nil }
		s.admit(entry(saleA, 1, "here"))
		pass(2 * sweepPeriod)
		same(t, "acknowledged without Redis", s.stream.settled, verdicts(""))
		same(t, "the lines about the sweep", s.log.count("settler fails"), 1)
		s.stream.fail(nil)
		pass(claimIdle + sweepPeriod)
		same(t, "settled", s.stream.settled, verdicts(model.Accepted, 1))
		same(t, "the lines about the return", s.log.count("settler works again"), 1)
	})
}

// Drain settles all that is left, and returns an error if a store is away.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSettling(nil)
		for i := range 300 {
			s.stream.add(entry([]string{saleA, saleB}[i%2], i, "here"))
		}
		same(t, "drained", s.Drain(t.Context()), nil)
		same(t, "the settled entries", len(s.stream.settled), 300)

		s.stream.add(entry(saleA, 1, "here"))
		s.ledger.fail(errAway)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := s.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, errAway) {
			t.Errorf("without the database: %v", err)
		}
		s.stream.fail(errAway)
		if err := s.Drain(t.Context()); !errors.Is(err, errAway) {
			t.Errorf("without Redis: %v", err)
		}
	})
}

// dueSales returns each due sale once, in the order in which they became due.
func TestDueSales(t *testing.T) {
	type taken struct {
		gate      model.GateRef
		claim, ok bool
	}
	all := refs(saleA, saleB, saleC)
	a, b, c := all[0], all[1], all[2]
	d := newDueSales()
	take := func(want taken) {
		t.Helper()
		gate, claim, ok := d.take()
		same(t, "taken", taken{gate, claim, ok}, want)
	}
	take(taken{})
	d.add(a, true)
	d.add(a, false) // a notice does not undo the claim of the sweep
	take(taken{a, true, true})
	for _, gate := range []model.GateRef{b, c, a, b} {
		d.add(gate, false)
	}
	take(taken{b, false, true})
	d.add(b, false) // due again, behind the others
	take(taken{c, false, true})
	take(taken{a, false, true})
	take(taken{b, false, true})
	take(taken{})
	for range 10 {
		d.add(a, false) // never blocks, however many signals wait
	}
}
