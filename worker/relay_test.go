package worker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// fakeDelayer is a queue that can wake an instance.
type fakeDelayer struct{ *fakeQueue }

func (d fakeDelayer) Delay(_ context.Context, wait time.Duration) (err error) {
	with(func() {
		if err = d.err; err == nil {
			d.delays = append(d.delays, wait)
		}
	})
	return err
}

func (fakeDelayer) Wakes() <-chan struct{} { return nil }

// wantSettled fails the test unless exactly so many entries are accepted, nothing is left in the stream or at the
// broker, and so many entries bypassed the queue.
func (s *settling) wantSettled(t *testing.T, accepted int, bypassed int64) {
	t.Helper()
	numbers := make([]int, accepted)
	for i := range numbers {
		numbers[i] = i
	}
	check.Same(t, "settled", s.stream.settled, verdicts(model.Accepted, numbers...))
	check.Same(t, "left in the stream", len(s.stream.held[saleA]), 0)
	check.Same(t, "left at the broker", len(s.queue.waiting), 0)
	check.Same(t, "the entries that bypassed the queue", s.Bypassed(), bypassed)
}

// total is how many entries the ledger has been given.
func (s *settling) total() (n int) {
	for _, size := range s.ledger.batches[saleA] {
		n += size
	}
	return n
}

// Admitted entries go to the broker, and from the broker to the ledger. A message that is delivered twice is settled
// once.
func TestRelay(t *testing.T) {
	testRelay(t, func(t *testing.T, s *settling) {
		s.queue.set(func(q *fakeQueue) { q.deaf = true })
		here, there := entry(saleA, 0, "here"), entry(saleA, 1, "there")
		s.admit(here, there)
		check.Same(t, "at the broker", s.queue.waiting, []model.Entry{here, there})
		check.Same(t, "in the ledger before the delivery", s.total(), 0)
		s.queue.set(func(q *fakeQueue) { q.deaf = false })
		synctest.Wait()
		s.wantSettled(t, 2, 0)
		check.Same(t, "woken here", s.woken, verdicts(model.Accepted, 0))
		check.Same(t, "woken there", s.stream.woken["there"], verdicts(model.Accepted, 1))
		s.queue.set(func(q *fakeQueue) { q.waiting = []model.Entry{here} })
		synctest.Wait()
		s.wantSettled(t, 2, 0)
		check.Same(t, "in the ledger", s.total(), 2)
	})
}

// A consumer may settle an entry as soon as it is published, so its buyer is kept apart before that.
func TestBuyersBeforeThePublish(t *testing.T) {
	testRelay(t, func(t *testing.T, s *settling) {
		published := -1
		s.Apart = func(entries []model.Entry) {
			with(func() {
				if len(entries) > 0 && published < 0 {
					published = s.queue.publishes
				}
			})
		}
		s.admit(entry(saleA, 0, "here"))
		s.wantSettled(t, 1, 0)
		check.Same(t, "the published batches when the buyer is kept apart", published, 0)
	})
}

// Delivered entries are settled in batches that a transaction may have.
func TestDeliveriesAreSettledInBatches(t *testing.T) {
	testRelay(t, func(t *testing.T, s *settling) {
		s.Batch = 4
		s.queue.set(func(q *fakeQueue) { q.deaf = true })
		s.admit(entries(10)...)
		s.queue.set(func(q *fakeQueue) { q.deaf = false })
		synctest.Wait()
		check.Same(t, "the batches", s.ledger.batches[saleA], []int{4, 4, 2})
	})
}

// Entries whose messages are lost are settled without the broker after leftAfter.
func TestLostMessages(t *testing.T) {
	testRelay(t, func(t *testing.T, s *settling) {
		const n = 2*settleBatch + 10
		s.queue.set(func(q *fakeQueue) { q.loses = true })
		s.admit(entries(n)...)
		pass(leftAfter - time.Millisecond)
		check.Same(t, "in the ledger too soon", s.total(), 0)
		pass(sweepPeriod) // is enough for all of them
		s.wantSettled(t, n, n)
		check.Same(t, "in the ledger", s.total(), n)
	})
}

// While the broker fails, entries are settled at once. After relayTrips failures the broker is asked only once in each
// relayRest. The log tells when the failure begins and ends.
func TestBrokerAway(t *testing.T) {
	testRelay(t, func(t *testing.T, s *settling) {
		s.queue.fail(errAway)
		admitted := 0
		admit := func() {
			s.admit(entry(saleA, admitted, "here"))
			admitted++
		}
		for range 10 {
			admit()
		}
		s.wantSettled(t, 10, 10)
		check.Same(t, "how often the broker is asked", s.queue.publishes, relayTrips)
		check.Same(t, "why it is not healthy", s.QueueHealthy(t.Context()), errResting)
		pass(relayRest + time.Millisecond)
		admit()
		check.Same(t, "how often the broker is asked after a rest", s.queue.publishes, relayTrips+1)
		s.queue.fail(nil)
		pass(relayRest + consumePause)
		admit()
		s.wantSettled(t, 12, 11) // the last entry goes through the queue
		check.Same(t, "in the ledger", s.total(), 12)
		check.Same(t, "how often the broker is asked in the end", s.queue.publishes, relayTrips+2)
		check.Same(t, "healthy in the end", s.QueueHealthy(t.Context()), nil)
		check.Same(t, "the lines about the failure", s.log.Count("queue fails"), 1)
		check.Same(t, "the lines about its end", s.log.Count("the queue works again"), 1)
	})
}

// A broker that hangs delays a batch by publishTimeout and no longer.
func TestBrokerHangs(t *testing.T) {
	testRelay(t, func(t *testing.T, s *settling) {
		s.queue.set(func(q *fakeQueue) { q.hangs = true })
		s.admit(entry(saleA, 0, "here"))
		pass(publishTimeout - time.Millisecond)
		check.Same(t, "settled while the broker may still answer", len(s.stream.settled), 0)
		pass(time.Millisecond)
		s.wantSettled(t, 1, 1)
	})
}

// Without failures of its own calls, QueueHealthy asks the broker.
func TestHealthy(t *testing.T) {
	q := newFakeQueue()
	s := newSettling(q)
	check.Same(t, "healthy", s.QueueHealthy(t.Context()), nil)
	q.err = errAway
	check.Same(t, "why it is not healthy", s.QueueHealthy(t.Context()), errAway)
}

// A consumer that fails is started again after a pause, and nothing is lost meanwhile.
func TestConsumerLost(t *testing.T) {
	testRelay(t, func(t *testing.T, s *settling) {
		s.queue.fail(errAway)
		synctest.Wait()
		pass(10 * consumePause)
		if n := s.queue.consumes; n < settleWriters*9 || n > settleWriters*12 {
			t.Errorf("tried %d times in ten pauses", n)
		}
		s.queue.fail(nil)
		s.admit(entry(saleA, 0, "here"))
		pass(consumePause)
		s.wantSettled(t, 1, 0)
		check.Same(t, "the lines about the failure", s.log.Count("queue fails"), 1)
		check.Same(t, "the lines about its end", s.log.Count("the queue works again"), 1)
	})
}

// A message whose delivery finds Redis away stays at the broker: the stream must show whether it still counts.
func TestRedisAwayAtTheDelivery(t *testing.T) {
	testRelay(t, func(t *testing.T, s *settling) {
		s.queue.set(func(q *fakeQueue) { q.deaf = true })
		s.admit(entry(saleA, 0, "here"))
		s.stream.fail(errAway)
		s.queue.set(func(q *fakeQueue) { q.deaf = false })
		pass(3 * consumePause)
		check.Same(t, "in the ledger", s.total(), 0)
		check.Same(t, "at the broker", len(s.queue.waiting), 1)
		s.stream.fail(nil)
		pass(leftAfter + sweepPeriod)
		s.wantSettled(t, 1, s.Bypassed()) // the broker delivers it again, and a sweep may find it as well
	})
}

// One entry that the database can't take delays no other and is not delivered for ever: a sweep finds it in the stream,
// and it is refused for good in the end.
func TestBrokenEntryByTheQueue(t *testing.T) {
	testRelay(t, func(t *testing.T, s *settling) {
		s.ledger.before = func(_ string, entries []model.Entry) error {
			if slices.ContainsFunc(entries, func(e model.Entry) bool { return e.ID == "order-2" }) {
				return fmt.Errorf("wrapped: %w", model.ErrBroken)
			}
			return nil
		}
		s.admit(entries(3)...)
		check.Same(t, "settled at once", s.stream.settled, verdicts(model.Accepted, 0, 1))
		check.Same(t, "at the broker", len(s.queue.waiting), 0)
		check.Same(t, "left in the stream", len(s.stream.held[saleA]), 1)
		pass(leftAfter + brokenTries*sweepPeriod)
		check.Same(t, "refused", s.ledger.refused, verdicts(model.ReasonFailed, 2))
		check.Same(t, "left in the stream after the refusal", len(s.stream.held[saleA]), 0)
		check.Same(t, "the entries that bypassed the queue", s.Bypassed(), 1)
	})
}

// A drain waits until the consumers have finished their batches. All other entries are settled without the broker, also
// those that come later.
func TestDrainByTheQueue(t *testing.T) {
	testRelay(t, func(t *testing.T, s *settling) {
		inside, release := make(chan struct{}), make(chan struct{})
		once := sync.OnceFunc(func() { close(inside); <-release })
		s.ledger.before = func(string, []model.Entry) error { once(); return nil }
		s.admit(entry(saleA, 0, "here"))
		<-inside // the batch of a consumer is under way
		s.queue.set(func(q *fakeQueue) { q.deaf = true })
		s.admit(entry(saleA, 1, "here")) // stays at the broker
		drained := make(chan error, 1)
		go func() { drained <- s.Drain(t.Context()) }()
		synctest.Wait()
		check.Same(t, "the batches before the consumer ends", s.ledger.batches[saleA], []int{1})
		close(release)
		check.Same(t, "drained", <-drained, nil)
		s.admit(entry(saleA, 2, "here"))
		check.Same(t, "settled", s.stream.settled, verdicts(model.Accepted, 0, 1, 2))
		check.Same(t, "the published batches", s.queue.publishes, 2)
		check.Same(t, "the entries that bypassed the queue", s.Bypassed(), 2)
	})
}

// A drain waits for a consumer that can't finish no longer than its context lasts.
func TestDrainByTheQueueIsBounded(t *testing.T) {
	testRelay(t, func(t *testing.T, s *settling) {
		release := make(chan struct{})
		defer close(release)
		s.ledger.before = func(string, []model.Entry) error { <-release; return nil }
		s.admit(entry(saleA, 0, "here"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		check.Error(t, "the drain", s.Drain(ctx), context.DeadlineExceeded)
	})
}

// testDelays runs a test beside a settler whose queue can wake an instance.
func testDelays(t *testing.T, outcome func(e model.Entry) model.Outcome, test func(s *settling)) (delays []time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue()
		s := newSettling(fakeDelayer{q})
		s.ledger.outcome = outcome
		during(t, s.Run, func() { test(s) })
		delays = q.delays
	})
	return delays
}

// A batch with new orders has the expirer woken when their time to pay and the grace are over.
func TestWakeLater(t *testing.T) {
	made := time.UnixMilli(1_700_000_000_000)
	order := &model.Order{CreatedAt: made, ExpiresAt: made.Add(30 * time.Minute)}
	accepted := model.Outcome{Verdict: model.Accepted, Order: order}
	known := model.Outcome{Verdict: model.Accepted, Order: order, Repeated: true}
	refused := model.Outcome{Verdict: model.LimitReached}
	once := []time.Duration{31 * time.Minute}
	type row struct {
		outcomes [2]model.Outcome
		want     []time.Duration
	}
	check.Each(t, map[string]row{
		"two orders":                   {[2]model.Outcome{accepted, accepted}, once},
		"a refusal, then an order":     {[2]model.Outcome{refused, accepted}, once},
		"no new order":                 {[2]model.Outcome{known, refused}, nil},
		"a known order, then an order": {[2]model.Outcome{known, accepted}, once},
	}, func(t *testing.T, tc row) {
		outcome := func(e model.Entry) model.Outcome { return tc.outcomes[int(e.StreamID[0]-'0')] }
		check.Same(t, "delays", testDelays(t, outcome, func(s *settling) { s.admit(entries(2)...) }), tc.want)
	})
}

// Wake-ups are at least wakeEvery apart: the broker keeps each message for as long as buyers have to pay.
func TestWakesAreFew(t *testing.T) {
	accept := func(model.Entry) model.Outcome { return model.Outcome{Verdict: model.Accepted, Order: &model.Order{}} }
	delays := testDelays(t, accept, func(s *settling) {
		for _, e := range entries(100) {
			s.admit(e)
			pass(10 * time.Millisecond)
		}
	})
	check.Same(t, "wake-ups in a second", len(delays), 10)
}
