package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/model"
)

// Unsettled is that of the gate.
func (s *fakeStream) Unsettled(_ context.Context, saleID string, entries []model.Entry) (rest []model.Entry, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	for _, e := range entries {
		for i := range s.taken[saleID] {
			if s.taken[saleID][i].StreamID == e.StreamID {
				s.taken[saleID][i].at = time.Now()
				rest = append(rest, e)
			}
		}
	}
	return rest, nil
}

// Own is that of the gate, as if this instance had taken all that is taken.
func (s *fakeStream) Own(_ context.Context, saleID string, count int) (entries []model.Entry, _ []string, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.taken[saleID][:min(count, len(s.taken[saleID]))] {
		entries = append(entries, e.Entry)
	}
	return entries, nil, s.err
}

// fakeQueue holds entries as a broker does: until they are acknowledged.
type fakeQueue struct {
	mu        sync.Mutex
	waiting   []model.Entry
	err       error // of everything
	hangs     bool
	loses     bool // what is published
	deaf      bool // nothing is delivered
	publishes int
	consumes  int
	delays    []time.Duration
	came      chan struct{}
}

func newFakeQueue() *fakeQueue { return &fakeQueue{came: make(chan struct{}, 1)} }

func (q *fakeQueue) set(edit func(*fakeQueue)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	edit(q)
	select {
	case q.came <- struct{}{}:
	default:
	}
}

func (q *fakeQueue) left() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

func (q *fakeQueue) Publish(ctx context.Context, _ string, entries []model.Entry) (err error) {
	hangs := false
	q.set(func(q *fakeQueue) {
		q.publishes++
		err, hangs = q.err, q.hangs
		if err == nil && !hangs && !q.loses {
			q.waiting = append(q.waiting, entries...)
		}
	})
	if hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

func (q *fakeQueue) Consume(ctx context.Context, settle func(context.Context, string, []model.Entry) error) error {
	q.set(func(q *fakeQueue) { q.consumes++ })
	for {
		var batch []model.Entry
		q.mu.Lock()
		err := q.err
		if err == nil && !q.deaf && len(q.waiting) > 0 {
			first := q.waiting[0].SaleID
			for _, e := range q.waiting {
				if e.SaleID == first {
					batch = append(batch, e)
				}
			}
			q.waiting = slices.DeleteFunc(q.waiting, func(e model.Entry) bool { return e.SaleID == first })
		}
		q.mu.Unlock()
		if err != nil {
			return err
		}
		if len(batch) > 0 {
			if err := settle(ctx, batch[0].SaleID, batch); err != nil {
				q.set(func(q *fakeQueue) { q.waiting = append(batch, q.waiting...) })
				return err
			}
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-q.came:
		}
	}
}

func (q *fakeQueue) Ping(context.Context) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.err
}

func (*fakeQueue) Close() error { return nil }

// fakeDelayer is a queue that can wake.
type fakeDelayer struct{ *fakeQueue }

func (d fakeDelayer) Delay(_ context.Context, wait time.Duration) (err error) {
	d.set(func(q *fakeQueue) {
		if err = q.err; err == nil {
			q.delays = append(q.delays, wait)
		}
	})
	return err
}

func (fakeDelayer) Wakes() <-chan struct{} { return nil }

// relaying is a test of a settler with a queue.
func relaying(t *testing.T, test func(t *testing.T, s *settling, q *fakeQueue)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue()
		test(t, newSettlingBy(q, saleA), q)
	})
}

// wantSettled: these entries, and no more, are in the ledger once each, and nothing is left anywhere.
func (s *settling) wantSettled(t *testing.T, q *fakeQueue, entries ...int) {
	t.Helper()
	if total := s.wantDone(t, q, entries...); total != len(entries) {
		t.Errorf("%d entries in the ledger, want %d", total, len(entries))
	}
}

// wantDone fails the test unless each entry is settled, at least once, and nothing is left to do. It returns how many
// entries the ledger has been given.
func (s *settling) wantDone(t *testing.T, q *fakeQueue, entries ...int) (total int) {
	t.Helper()
	for _, i := range entries {
		if o, ok := s.stream.outcome(i); !ok || o.Verdict != model.Accepted {
			t.Errorf("entry %d: %+v, %t", i, o, ok)
		}
	}
	for _, n := range s.ledger.of(saleA) {
		total += n
	}
	if s.stream.left(saleA) != 0 || q.left() != 0 {
		t.Errorf("%d entries in the stream, %d at the broker", s.stream.left(saleA), q.left())
	}
	return total
}

// wantBypassed: so many entries were settled although the queue had not brought them.
func (s *settling) wantBypassed(t *testing.T, want int64) {
	t.Helper()
	if got := s.Bypassed(); got != want {
		t.Errorf("%d entries bypassed the queue, want %d", got, want)
	}
}

// TestRelay: what is admitted goes to the broker and from there to the ledger.
func TestRelay(t *testing.T) {
	relaying(t, func(t *testing.T, s *settling, q *fakeQueue) {
		during(t, s.Run, func() {
			q.set(func(q *fakeQueue) { q.deaf = true })
			s.stream.add(entry(saleA, 1, "here"), entry(saleA, 2, "there"))
			s.Notify(saleA)
			synctest.Wait()
			if q.left() != 2 || len(s.ledger.of(saleA)) != 0 {
				t.Errorf("%d at the broker, in the ledger %v", q.left(), s.ledger.of(saleA))
			}
			q.set(func(q *fakeQueue) { q.deaf = false })
			synctest.Wait()
			s.wantSettled(t, q, 1, 2)
			s.wantBypassed(t, 0)
			if s.wokenHere()["order-1"].Verdict != model.Accepted || s.stream.wokenAt("there")["order-2"].Verdict != model.Accepted {
				t.Error("a buyer was not woken")
			}
		})
	})
}

// TestDeliveredTwice: the second time the stream has it no more, and the database isn't asked.
func TestDeliveredTwice(t *testing.T) {
	relaying(t, func(t *testing.T, s *settling, q *fakeQueue) {
		one := entry(saleA, 1, "here")
		s.stream.add(one)
		during(t, s.Run, func() {
			s.Notify(saleA)
			synctest.Wait()
			q.set(func(q *fakeQueue) { q.waiting = []model.Entry{one} })
			synctest.Wait()
			s.wantSettled(t, q, 1)
		})
	})
}

// TestDeliveriesAreSettledInBatches of the size that a transaction may have.
func TestDeliveriesAreSettledInBatches(t *testing.T) {
	relaying(t, func(t *testing.T, s *settling, q *fakeQueue) {
		s.Batch = 4
		q.deaf = true
		for i := range 10 {
			s.stream.add(entry(saleA, i, "here"))
		}
		during(t, s.Run, func() {
			s.Notify(saleA)
			synctest.Wait()
			q.set(func(q *fakeQueue) { q.deaf = false })
			synctest.Wait()
			if got := s.ledger.of(saleA); !slices.Equal(got, []int{4, 4, 2}) {
				t.Errorf("the batches are of %v", got)
			}
		})
	})
}

// TestLostMessages are settled without the broker when their time is over.
func TestLostMessages(t *testing.T) {
	relaying(t, func(t *testing.T, s *settling, q *fakeQueue) {
		q.loses = true
		const n = 2*settleBatch + 10
		var all []int
		for i := range n {
			s.stream.add(entry(saleA, i, "here"))
			all = append(all, i)
		}
		during(t, s.Run, func() {
			s.Notify(saleA)
			pass(claimIdle - time.Millisecond)
			if got := s.ledger.of(saleA); len(got) != 0 {
				t.Errorf("settled before their time: %v", got)
			}
			pass(sweepPeriod) // which is enough for all of them
			s.wantSettled(t, q, all...)
			s.wantBypassed(t, n)
		})
	})
}

// TestBrokerAway: what it doesn't take is settled at once. After some failures it is left alone but for a try now and
// then. The log tells of the beginning and of the end.
func TestBrokerAway(t *testing.T) {
	relaying(t, func(t *testing.T, s *settling, q *fakeQueue) {
		q.err = errAway
		during(t, s.Run, func() {
			for i := range 10 {
				s.stream.add(entry(saleA, i, "here"))
				s.Notify(saleA)
				synctest.Wait()
			}
			s.wantSettled(t, q, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
			if q.publishes != relayTrips {
				t.Errorf("asked %d times", q.publishes)
			}
			if err := s.QueueHealthy(t.Context()); !errors.Is(err, errResting) {
				t.Errorf("healthy: %v", err)
			}
			pass(relayRest + time.Millisecond)
			s.stream.add(entry(saleA, 10, "here"))
			s.Notify(saleA)
			synctest.Wait()
			if q.publishes != relayTrips+1 {
				t.Errorf("asked %d times", q.publishes)
			}
			q.set(func(q *fakeQueue) { q.err = nil })
			pass(relayRest + consumePause)
			s.stream.add(entry(saleA, 11, "here"))
			s.Notify(saleA)
			synctest.Wait()
			s.wantSettled(t, q, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
			s.wantBypassed(t, 11) // all but the last
			if q.publishes != relayTrips+2 {
				t.Errorf("asked %d times", q.publishes)
			}
			if err := s.QueueHealthy(t.Context()); err != nil {
				t.Errorf("healthy: %v", err)
			}
			if s.log.count("queue fails") != 1 || s.log.count("queue works again") != 1 {
				t.Errorf("logged %q", s.log.lines)
			}
		})
	})
}

// TestBrokerHangs: it holds a batch up for its time and no longer, the next ones less and less often.
func TestBrokerHangs(t *testing.T) {
	relaying(t, func(t *testing.T, s *settling, q *fakeQueue) {
		q.hangs = true
		s.stream.add(entry(saleA, 1, "here"))
		during(t, s.Run, func() {
			s.Notify(saleA)
			pass(publishTimeout - time.Millisecond)
			if _, ok := s.stream.outcome(1); ok {
				t.Error("settled while the broker may still take it")
			}
			pass(time.Millisecond)
			s.wantSettled(t, q, 1)
			s.wantBypassed(t, 1)
		})
	})
}

// TestHealthy asks the broker while it is trusted.
func TestHealthy(t *testing.T) {
	relaying(t, func(t *testing.T, s *settling, q *fakeQueue) {
		if err := s.QueueHealthy(t.Context()); err != nil {
			t.Error(err)
		}
		q.err = errAway
		if err := s.QueueHealthy(t.Context()); !errors.Is(err, errAway) {
			t.Errorf("%v", err)
		}
	})
}

// TestConsumerLost: it is made again after a pause, and nothing is lost meanwhile.
func TestConsumerLost(t *testing.T) {
	relaying(t, func(t *testing.T, s *settling, q *fakeQueue) {
		during(t, s.Run, func() {
			q.set(func(q *fakeQueue) { q.err = errAway })
			q.set(func(*fakeQueue) {}) // for the other consumer
			synctest.Wait()
			pass(10 * consumePause)
			if n := q.consumes; n < settleWriters*9 || n > settleWriters*12 {
				t.Errorf("tried %d times in ten pauses", n)
			}
			q.set(func(q *fakeQueue) { q.err = nil })
			s.stream.add(entry(saleA, 1, "here"))
			s.Notify(saleA)
			pass(consumePause)
			s.wantSettled(t, q, 1)
			if s.log.count("queue fails") != 1 || s.log.count("queue works again") != 1 {
				t.Errorf("logged %q", s.log.lines)
			}
		})
	})
}

// TestRedisAwayAtTheDelivery: nobody can say whether the message still counts, so it stays at the broker.
func TestRedisAwayAtTheDelivery(t *testing.T) {
	relaying(t, func(t *testing.T, s *settling, q *fakeQueue) {
		q.deaf = true
		s.stream.add(entry(saleA, 1, "here"))
		during(t, s.Run, func() {
			s.Notify(saleA)
			synctest.Wait()
			s.stream.fail(errAway)
			q.set(func(q *fakeQueue) { q.deaf = false })
			pass(3 * consumePause)
			if n := len(s.ledger.of(saleA)); n != 0 || q.left() != 1 {
				t.Errorf("%d batches in the ledger, %d at the broker", n, q.left())
			}
			s.stream.fail(nil)
			pass(claimIdle + sweepPeriod)
			s.wantDone(t, q, 1) // the broker brings it again, and a sweep may find it as well
		})
	})
}

// TestBrokenEntryByTheQueue: one entry that the database can't take holds up no other, and isn't delivered for ever: the
// stream brings it again, and in the end it is refused for good.
func TestBrokenEntryByTheQueue(t *testing.T) {
	relaying(t, func(t *testing.T, s *settling, q *fakeQueue) {
		s.ledger.before = func(_ string, entries []model.Entry) error {
			if slices.ContainsFunc(entries, func(e model.Entry) bool { return e.ID == "order-2" }) {
				return fmt.Errorf("wrapped: %w", model.ErrBroken)
			}
			return nil
		}
		s.stream.add(entry(saleA, 1, "here"), entry(saleA, 2, "here"), entry(saleA, 3, "here"))
		during(t, s.Run, func() {
			s.Notify(saleA)
			synctest.Wait()
			for _, i := range []int{1, 3} {
				if o, ok := s.stream.outcome(i); !ok || o.Verdict != model.Accepted {
					t.Errorf("entry %d: %+v, %t", i, o, ok)
				}
			}
			if q.left() != 0 || s.stream.left(saleA) != 1 {
				t.Errorf("%d at the broker, %d in the stream", q.left(), s.stream.left(saleA))
			}
			pass(maxDeliveries * (claimIdle + sweepPeriod))
			if reason, refused := s.ledger.refusal("order-2"); !refused || reason != model.ReasonFailed || s.stream.left(saleA) != 0 {
				t.Errorf("refused %t as %q, %d are left", refused, reason, s.stream.left(saleA))
			}
			s.wantBypassed(t, 1)
		})
	})
}

// TestBadEntriesDontReachTheBroker: they are logged as without one.
func TestBadEntriesDontReachTheBroker(t *testing.T) {
	relaying(t, func(t *testing.T, s *settling, q *fakeQueue) {
		s.stream.bad[saleA] = []string{"1-1 nonsense"}
		s.stream.add(entry(saleA, 1, "here"))
		during(t, s.Run, func() {
			s.Notify(saleA)
			synctest.Wait()
			s.wantSettled(t, q, 1)
			if want := []string{"engine delete_entry " + saleA + " 1-1 nonsense"}; !slices.Equal(s.ledger.logged, want) {
				t.Errorf("logged %q", s.ledger.logged)
			}
		})
	})
}

// TestDrainByTheQueue: the consumers end and finish what they have; the rest is settled without the broker, also what
// comes now.
func TestDrainByTheQueue(t *testing.T) {
	relaying(t, func(t *testing.T, s *settling, q *fakeQueue) {
		inside, release := make(chan struct{}), make(chan struct{})
		once := sync.OnceFunc(func() { close(inside); <-release })
		s.ledger.before = func(string, []model.Entry) error { once(); return nil }
		s.stream.add(entry(saleA, 1, "here"))
		during(t, s.Run, func() {
			s.Notify(saleA)
			<-inside // a consumer's batch is under way
			q.set(func(q *fakeQueue) { q.deaf = true })
			s.stream.add(entry(saleA, 2, "here"))
			s.Notify(saleA)
			synctest.Wait() // at the broker
			drained := make(chan error)
			go func() { drained <- s.Drain(t.Context()) }()
			synctest.Wait()
			if got := s.ledger.of(saleA); !slices.Equal(got, []int{1}) {
				t.Errorf("it did not wait for the consumer: %v", got)
			}
			close(release)
			if err := <-drained; err != nil {
				t.Fatal(err)
			}
			s.stream.add(entry(saleA, 3, "here"))
			s.Notify(saleA)
			synctest.Wait()
			for i := 1; i <= 3; i++ {
				if _, ok := s.stream.outcome(i); !ok {
					t.Errorf("entry %d is not settled", i)
				}
			}
			if q.publishes != 2 {
				t.Errorf("published %d times", q.publishes)
			}
			s.wantBypassed(t, 2) // what the stop took from the deaf consumer, and what came after it
		})
	})
}

// TestDrainByTheQueueIsBounded: a consumer whose database is away is not waited for longer than there is time.
func TestDrainByTheQueueIsBounded(t *testing.T) {
	relaying(t, func(t *testing.T, s *settling, q *fakeQueue) {
		release := make(chan struct{})
		s.ledger.before = func(string, []model.Entry) error { <-release; return nil }
		s.stream.add(entry(saleA, 1, "here"))
		during(t, s.Run, func() {
			defer close(release)
			s.Notify(saleA)
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := s.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("it ended with %v", err)
			}
		})
	})
}

// TestWakeLater: a batch with new orders has the expirer woken when they end.
func TestWakeLater(t *testing.T) {
	made := time.UnixMilli(1_700_000_000_000)
	order := &model.Order{CreatedAt: made, ExpiresAt: made.Add(30 * time.Minute)}
	accepted := model.Outcome{Verdict: model.Accepted, Order: order}
	known := model.Outcome{Verdict: model.Accepted, Order: order, Repeated: true}
	refused := model.Outcome{Verdict: model.LimitReached}
	for name, tc := range map[string]struct {
		outcomes [2]model.Outcome
		want     []time.Duration
	}{
		"two orders":           {[2]model.Outcome{accepted, accepted}, []time.Duration{31 * time.Minute}},
		"one order":            {[2]model.Outcome{refused, accepted}, []time.Duration{31 * time.Minute}},
		"none that is new":     {[2]model.Outcome{known, refused}, nil},
		"the second one alone": {[2]model.Outcome{known, accepted}, []time.Duration{31 * time.Minute}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newFakeQueue()
				s := newSettlingBy(fakeDelayer{q}, saleA)
				s.ledger.outcome = func(e model.Entry) model.Outcome { return tc.outcomes[int(e.StreamID[0]-'0')] }
				s.stream.add(entry(saleA, 0, "here"), entry(saleA, 1, "here"))
				during(t, s.Run, func() { s.Notify(saleA); synctest.Wait() })
				if !slices.Equal(q.delays, tc.want) {
					t.Errorf("woken after %v, want %v", q.delays, tc.want)
				}
			})
		})
	}
}

// TestWakesAreFew: each is a message that the broker keeps for a long time.
func TestWakesAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue()
		s := newSettlingBy(fakeDelayer{q}, saleA)
		s.ledger.outcome = func(model.Entry) model.Outcome {
			return model.Outcome{Verdict: model.Accepted, Order: &model.Order{}}
		}
		during(t, s.Run, func() {
			for i := range 100 {
				s.stream.add(entry(saleA, i, "here"))
				s.Notify(saleA)
				pass(10 * time.Millisecond)
			}
		})
		if n := len(q.delays); n != 10 {
			t.Errorf("asked to be woken %d times in a second", n)
		}
	})
}

// TestExpirerIsWoken between its periods.
func TestExpirerIsWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, wake := newExpiring(&fakeExpiry{due: map[string]int{}}, ""), make(chan struct{})
		e.Wake = wake
		during(t, e.Run, func() {
			pass(expirePeriod / 2)
			e.store.due[saleA] = 1
			wake <- struct{}{}
			synctest.Wait()
			if e.of(saleA) != 1 {
				t.Error("it was not woken")
			}
		})
	})
}
