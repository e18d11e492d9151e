package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/model"
)

const (
	saleA = "SALEAAAAAAAAAAAA"
	saleB = "SALEBBBBBBBBBBBB"
	saleC = "SALECCCCCCCCCCCC"
)

var errAway = errors.New("the store is away")

// settling is a settler over fakes.
type settling struct {
	*Settler
	stream *fakeStream
	ledger *fakeLedger
	log    *logbook

	mu    sync.Mutex
	woken map[string]model.Outcome
}

func (s *settling) note(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn()
}

// wokenHere are the buyers of this instance who were woken, by order.
func (s *settling) wokenHere() map[string]model.Outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.woken)
}

func newSettling(live ...string) *settling { return newSettlingBy(nil, live...) }

// newSettlingBy is newSettling with a queue.
func newSettlingBy(queue Queue, live ...string) *settling {
	s := &settling{stream: newFakeStream(), ledger: newFakeLedger(), log: &logbook{}, woken: map[string]model.Outcome{}}
	s.Settler = NewSettler(SettlerNeeds{
		Stream: s.stream, Ledger: s.ledger, Peek: s.stream.peek, LiveIDs: func() []string { return live }, Instance: "here",
		Queue: queue, Outbox: s.stream, Grace: time.Minute,
		Wake:    func(outcomes map[string]model.Outcome) { s.note(func() { maps.Copy(s.woken, outcomes) }) },
		Observe: func(int, time.Duration) {}, Now: time.Now, Log: slog.New(s.log),
	})
	return s
}

// TestNaturalBatches: what gathers while every writer is in a transaction is the next batch.
func TestNaturalBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, release := newSettling(), make(chan struct{})
		s.ledger.before = func(string, []model.Entry) error { <-release; return nil }
		during(t, s.Run, func() {
			for i := range 6 {
				s.stream.add(entry(saleA, i, "here"))
				s.Notify(saleA)
				synctest.Wait()
			}
			if got := s.ledger.of(saleA); !slices.Equal(got, []int{1, 1}) {
				t.Errorf("the first batches are of %v", got)
			}
			close(release)
			synctest.Wait()
			if got := s.ledger.of(saleA); !slices.Equal(got, []int{1, 1, 4}) {
				t.Errorf("the batches are of %v", got)
			}
			for i := range 6 {
				if o, ok := s.stream.outcome(i); !ok || o.Verdict != model.Accepted || s.wokenHere()[fmt.Sprint("order-", i)].Verdict != model.Accepted {
					t.Errorf("entry %d: %+v, %t, %+v", i, o, ok, s.wokenHere())
				}
			}
		})
	})
}

func TestBatchesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSettling()
		for i := range 2*settleBatch + 10 {
			s.stream.add(entry(saleA, i, "here"))
		}
		during(t, s.Run, func() {
			s.Notify(saleA)
			synctest.Wait()
			// Two writers are at it, and the last batch may be done before the one that was read before it.
			if got := slices.Sorted(slices.Values(s.ledger.of(saleA))); !slices.Equal(got, []int{10, settleBatch, settleBatch}) {
				t.Errorf("the batches are of %v", got)
			}
		})
	})
}

// TestWriters: as many transactions run at once as there are writers, no more, whether of one sale or of many.
func TestWriters(t *testing.T) {
	for _, sales := range [][]string{{saleA}, {saleA, saleB, saleC}} {
		t.Run(fmt.Sprint("sales: ", len(sales)), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSettling(sales...)
				s.ledger.before = func(string, []model.Entry) error { time.Sleep(10 * time.Millisecond); return nil } // of the bubble's clock
				during(t, s.Run, func() {
					for i := range 300 {
						sale := sales[i%len(sales)]
						s.stream.add(entry(sale, i, "here"))
						s.Notify(sale)
						time.Sleep(time.Millisecond)
					}
					pass(sweepPeriod)
					for _, sale := range sales {
						if n := s.stream.left(sale); n != 0 {
							t.Errorf("%d entries are left", n)
						}
					}
				})
				if s.ledger.most != settleWriters {
					t.Errorf("at most %d at once, want %d", s.ledger.most, settleWriters)
				}
			})
		})
	}
}

// TestHotSalesLeaveRoom: as many sales as there are writers never rest. The buyers of another one must not wait
// until they do.
func TestHotSalesLeaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSettling(saleA, saleB, saleC)
		next := 1000
		s.ledger.before = func(sale string, _ []model.Entry) error {
			time.Sleep(10 * time.Millisecond) // of the bubble's clock
			if sale != saleC {
				s.note(func() {
					next++
					s.stream.add(entry(sale, next, "here"))
				})
			}
			return nil
		}
		s.stream.add(entry(saleA, 1, "here"), entry(saleB, 2, "here"))
		during(t, s.Run, func() {
			s.Notify(saleA)
			s.Notify(saleB)
			pass(100 * time.Millisecond)
			s.stream.add(entry(saleC, 3, "here"))
			s.Notify(saleC)
			pass(2 * sweepPeriod)
			if _, ok := s.stream.outcome(3); !ok {
				t.Error("the sale that is not hot is not settled")
			}
		})
	})
}

// TestHole49_LockedSaleLeavesRoom: a sale whose transactions wait for a lock, or fail, has no more batches under way
// than there are writers, and other sales are settled as before.
func TestHole49_LockedSaleLeavesRoom(t *testing.T) {
	for name, locked := range map[string]func() error{
		"its transactions wait for a lock": func() error { time.Sleep(settleTimeout); return errAway }, // of the bubble's clock
		"its transactions fail at once":    func() error { return errAway },
	} {
		for _, queued := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", with a queue: ", queued), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var queue Queue
					if queued {
						queue = newFakeQueue()
					}
					s, free := newSettlingBy(queue, saleA, saleB), &atomic.Bool{}
					s.ledger.before = func(sale string, _ []model.Entry) (err error) {
						if sale == saleA && !free.Load() {
							err = locked()
						}
						return err
					}
					during(t, s.Run, func() {
						for i := range 10 { // what the first two batches cost is over after the first round
							s.stream.add(entry(saleA, 2*i, "here"), entry(saleB, 2*i+1, "here"))
							s.Notify(saleA)
							s.Notify(saleB)
							pass(consumerPatience)
							if _, ok := s.stream.outcome(2*i + 1); !ok {
								t.Errorf("the order %d of the other sale waits", i)
							}
						}
						free.Store(true)
						pass(settleTimeout + retryMost + claimIdle + sweepPeriod)
						if n := s.stream.left(saleA); n != 0 {
							t.Errorf("%d entries of the sale wait although it is free", n)
						}
					})
					if s.ledger.mostOf[saleA] > settleWriters {
						t.Errorf("%d batches of the locked sale at once", s.ledger.mostOf[saleA])
					}
				})
			})
		}
	}
}

// TestRetryAsksTheStream: what was settled elsewhere, or lost, between two tries is not tried again.
func TestRetryAsksTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSettling(saleA)
		s.ledger.fail(errAway)
		s.stream.add(entry(saleA, 1, "here"), entry(saleA, 2, "here"))
		during(t, s.Run, func() {
			s.Notify(saleA)
			synctest.Wait()
			if err := s.stream.Settled(t.Context(), saleA, []model.Entry{entry(saleA, 1, "here")}, make([]model.Outcome, 1)); err != nil {
				t.Fatal(err)
			}
			s.ledger.fail(nil)
			pass(retryPause)
			if got := s.ledger.of(saleA); !slices.Equal(got, []int{2, 1}) || s.stream.left(saleA) != 0 {
				t.Errorf("the batches are of %v", got)
			}
		})
	})
}

// TestSweepFindsWhatNobodyToldOf, as entries that another instance admitted and left.
func TestSweepFindsWhatNobodyToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSettling(saleA, saleB)
		during(t, s.Run, func() {
			s.stream.add(entry(saleA, 1, "there"))
			synctest.Wait()
			if s.stream.left(saleA) != 1 {
				t.Fatal("settled before anybody could know")
			}
			pass(sweepPeriod)
			if s.stream.left(saleA) != 0 {
				t.Error("not found by the sweep")
			}
			if got := s.ledger.of(saleB); len(got) != 0 {
				t.Errorf("an empty stream was settled: %v", got)
			}
		})
	})
}

// TestDeadConsumersEntriesAreClaimed when they have been left long enough, not before.
func TestDeadConsumersEntriesAreClaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSettling(saleA)
		s.stream.add(entry(saleA, 1, "there"))
		if _, _, err := s.stream.Read(t.Context(), saleA, 10); err != nil { // by one that dies now
			t.Fatal(err)
		}
		during(t, s.Run, func() {
			pass(claimIdle - time.Millisecond)
			if s.stream.left(saleA) != 1 {
				t.Error("taken from a consumer that may live")
			}
			pass(sweepPeriod)
			if o, ok := s.stream.outcome(1); !ok || o.Verdict != model.Accepted {
				t.Errorf("%+v, %t", o, ok)
			}
		})
	})
}

// TestDatabaseAway: the batch is tried until the database answers; nothing is acknowledged before, no buyer
// hears anything, and one line is logged.
func TestDatabaseAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSettling(saleA)
		s.ledger.fail(errAway)
		s.stream.add(entry(saleA, 1, "here"), entry(saleA, 2, "there"))
		during(t, s.Run, func() {
			s.Notify(saleA)
			pass(10 * retryMost)
			if n := len(s.ledger.of(saleA)); n < 10 || n > 24 {
				t.Errorf("tried %d times in ten of the longest pauses", n)
			}
			if _, ok := s.stream.outcome(1); ok || len(s.wokenHere())+len(s.stream.wokenAt("there")) != 0 {
				t.Errorf("acknowledged %t, woken %v %v", ok, s.wokenHere(), s.stream.wokenAt("there"))
			}
			s.ledger.fail(nil)
			pass(retryMost)
			for i := 1; i <= 2; i++ {
				if _, ok := s.stream.outcome(i); !ok {
					t.Errorf("entry %d is not settled", i)
				}
			}
			if n := s.log.count("trying again"); n != 1 {
				t.Errorf("%d lines about it: %v", n, s.log.lines)
			}
		})
	})
}

// TestStopWhileTheDatabaseIsAway: the settler gives up, and leaves the entries to whoever comes next.
func TestStopWhileTheDatabaseIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSettling(saleA)
		s.ledger.fail(errAway)
		s.stream.add(entry(saleA, 1, "here"))
		during(t, s.Run, func() { s.Notify(saleA); synctest.Wait() })
		if _, ok := s.stream.outcome(1); ok || s.stream.left(saleA) != 1 || len(s.wokenHere()) != 0 {
			t.Error("an entry that is not in the database was acknowledged")
		}
	})
}

// TestStopFinishesTheBatch that is under way: it may have committed already.
func TestStopFinishesTheBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, release := newSettling(saleA), make(chan struct{})
		s.ledger.before = func(string, []model.Entry) error { <-release; return nil }
		s.stream.add(entry(saleA, 1, "here"))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); s.Run(ctx) }()
		s.Notify(saleA)
		synctest.Wait()
		s.stream.add(entry(saleA, 2, "here"))
		cancel()
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("it stopped in the middle of a batch")
		default:
		}
		close(release)
		<-done
		if _, ok := s.stream.outcome(1); !ok {
			t.Error("the batch under way was not acknowledged")
		}
		if got := s.ledger.of(saleA); !slices.Equal(got, []int{1}) {
			t.Errorf("after the stop it went on: %v", got)
		}
	})
}

// TestBrokenEntry: one entry that the database can't take holds up no other. It is delivered again, and refused
// for good when that has happened often enough.
func TestBrokenEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSettling(saleA)
		deliveries := map[int64]bool{}
		s.ledger.before = func(_ string, entries []model.Entry) error {
			for _, e := range entries {
				if e.ID == "order-2" {
					deliveries[e.Deliveries] = true
					return fmt.Errorf("wrapped: %w", model.ErrBroken)
				}
			}
			return nil
		}
		s.stream.add(entry(saleA, 1, "here"), entry(saleA, 2, "here"), entry(saleA, 3, "there"))
		during(t, s.Run, func() {
			s.Notify(saleA)
			synctest.Wait()
			for _, i := range []int{1, 3} {
				if o, ok := s.stream.outcome(i); !ok || o.Verdict != model.Accepted {
					t.Errorf("entry %d: %+v, %t", i, o, ok)
				}
			}
			if got := s.ledger.of(saleA); !slices.Equal(got, []int{3, 1, 1, 1}) {
				t.Errorf("the batches are of %v", got)
			}
			if _, ok := s.stream.outcome(2); ok || s.stream.left(saleA) != 1 {
				t.Error("the broken entry is gone after its first delivery")
			}
			if _, woken := s.wokenHere()["order-2"]; woken || s.stream.wokenAt("there")["order-3"].Verdict != model.Accepted {
				t.Errorf("woken here %v, there %v", s.wokenHere(), s.stream.wokenAt("there"))
			}
			for range maxDeliveries - 2 {
				pass(claimIdle)
			}
			if _, refused := s.ledger.refusal("order-2"); refused {
				t.Errorf("refused after %d deliveries", len(deliveries))
			}
			pass(claimIdle)
			reason, refused := s.ledger.refusal("order-2")
			if o, ok := s.stream.outcome(2); !ok || o.Verdict != model.ReasonFailed || !refused || reason != model.ReasonFailed {
				t.Errorf("the broken entry: %+v, %t; refused as %q", o, ok, reason)
			}
			if s.wokenHere()["order-2"].Verdict != model.ReasonFailed || len(deliveries) != maxDeliveries {
				t.Errorf("woken %v after %d deliveries", s.wokenHere(), len(deliveries))
			}
			if s.stream.left(saleA) != 0 {
				t.Error("it is in the stream still")
			}
		})
	})
}

// TestBrokenEntryThatCantBeRefused stays where it is: a buyer must not be told what the database doesn't know.
func TestBrokenEntryThatCantBeRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSettling(saleA)
		s.ledger.fail(model.ErrBroken)
		s.ledger.failRefuse(errAway)
		e := entry(saleA, 1, "here")
		e.Deliveries = maxDeliveries
		s.stream.add(e)
		during(t, s.Run, func() {
			s.Notify(saleA)
			synctest.Wait()
			if _, ok := s.stream.outcome(1); ok || len(s.wokenHere()) != 0 {
				t.Errorf("acknowledged %t, woken %v", ok, s.wokenHere())
			}
			s.ledger.failRefuse(nil)
			pass(claimIdle + sweepPeriod)
			if o, ok := s.stream.outcome(1); !ok || o.Verdict != model.ReasonFailed {
				t.Errorf("%+v, %t", o, ok)
			}
		})
	})
}

// TestBadEntriesAreLogged, in the log and in the database, whether or not good ones came along.
func TestBadEntriesAreLogged(t *testing.T) {
	for name, good := range map[string]int{"alone": 0, "among others": 2} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSettling(saleA)
				s.stream.bad[saleA] = []string{"1-1 nonsense", "1-2 more of it"}
				for i := range good {
					s.stream.add(entry(saleA, i, "here"))
				}
				during(t, s.Run, func() {
					s.Notify(saleA)
					synctest.Wait()
				})
				want := []string{"engine delete_entry " + saleA + " 1-1 nonsense", "engine delete_entry " + saleA + " 1-2 more of it"}
				if !slices.Equal(s.ledger.logged, want) || s.log.count("deleted from the stream") != 2 {
					t.Errorf("logged %q and %q", s.ledger.logged, s.log.lines)
				}
				if n := s.stream.left(saleA); n != 0 {
					t.Errorf("%d good entries are left", n)
				}
			})
		})
	}
}

// TestBuyersAreWoken each on the instance where they wait; a wake-up that fails costs no acknowledgement.
func TestBuyersAreWoken(t *testing.T) {
	for name, err := range map[string]error{"all hear": nil, "Redis does not take the word": errAway} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSettling(saleA)
				s.stream.errWake = err
				s.ledger.outcome = func(e model.Entry) model.Outcome { return model.Outcome{Verdict: model.Verdict("of " + e.ID)} }
				s.stream.add(entry(saleA, 1, "here"), entry(saleA, 2, "there"), entry(saleA, 3, "elsewhere"), entry(saleA, 4, "there"))
				during(t, s.Run, func() { s.Notify(saleA); synctest.Wait() })
				if here := s.wokenHere(); len(here) != 1 || here["order-1"].Verdict != "of order-1" {
					t.Errorf("woken here: %v", here)
				}
				there, elsewhere := s.stream.wokenAt("there"), s.stream.wokenAt("elsewhere")
				if err == nil && (len(there) != 2 || there["order-4"].Verdict != "of order-4" || len(elsewhere) != 1) {
					t.Errorf("woken there %v, elsewhere %v", there, elsewhere)
				}
				if n := s.stream.left(saleA); n != 0 {
					t.Errorf("%d entries are not acknowledged", n)
				}
			})
		})
	}
}

// TestAcknowledgementLost: Redis went away between the commit and the acknowledgement. The entries come again,
// and the database says what they got.
func TestAcknowledgementLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSettling(saleA)
		lose := sync.OnceFunc(func() { s.stream.fail(errAway) })
		s.ledger.before = func(string, []model.Entry) error { lose(); return nil }
		s.stream.add(entry(saleA, 1, "here"))
		during(t, s.Run, func() {
			s.Notify(saleA)
			pass(2 * sweepPeriod)
			if _, ok := s.stream.outcome(1); ok || s.stream.left(saleA) != 1 {
				t.Fatal("acknowledged without Redis")
			}
			if n := s.log.count("settler fails"); n != 1 {
				t.Errorf("%d lines about the sweep: %v", n, s.log.lines)
			}
			s.stream.fail(nil)
			pass(claimIdle + sweepPeriod)
			if _, ok := s.stream.outcome(1); !ok {
				t.Error("not settled after Redis came back")
			}
			if n := s.log.count("settler works again"); n != 1 {
				t.Errorf("%d lines about its return: %v", n, s.log.lines)
			}
		})
	})
}

// TestDrain is the last act before the stores go.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSettling(saleA, saleB)
		for i := range 300 {
			s.stream.add(entry([]string{saleA, saleB}[i%2], i, "here"))
		}
		if err := s.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s.stream.left(saleA)+s.stream.left(saleB) != 0 {
			t.Error("entries are left")
		}

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

// TestDueSales pins the small set that the writers take their work from.
func TestDueSales(t *testing.T) {
	d := newDueSales()
	take := func(sale string, claim, ok bool) {
		t.Helper()
		gotSale, gotClaim, gotOK := d.take()
		if gotSale != sale || gotClaim != claim || gotOK != ok {
			t.Errorf("took %q %t %t, want %q %t %t", gotSale, gotClaim, gotOK, sale, claim, ok)
		}
	}
	take("", false, false)
	d.add(saleA, true)
	d.add(saleA, false) // a plain notice doesn't undo the sweep's
	take(saleA, true, true)
	for _, sale := range []string{saleB, saleC, saleA, saleB} { // the order in which they are taken
		d.add(sale, false)
	}
	take(saleB, false, true)
	d.add(saleB, false) // again, behind the others
	take(saleC, false, true)
	take(saleA, false, true)
	take(saleB, false, true)
	take("", false, false)
	for range 10 {
		d.add(saleA, false) // never blocks, however many signals wait
	}
}
