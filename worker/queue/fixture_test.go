package queue

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
	"flashsale/test/kit/instance"
	"flashsale/worker"
)

// plenty is the quota of a sale whose attempts go on until an event.
const plenty = 1_000_000

// watched is a queue that counts, by order, what has become of its entries.
type watched struct {
	worker.Queue
	mu   sync.Mutex
	ways map[string]way
}

// way is how often the entry of an order was published, delivered, and settled then.
type way struct{ published, delivered, settled int }

func (q *watched) note(entries []model.Entry, step func(w *way)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range entries {
		w := q.ways[e.ID]
		step(&w)
		q.ways[e.ID] = w
	}
}

func (q *watched) Publish(ctx context.Context, saleID string, entries []model.Entry) error {
	err := q.Queue.Publish(ctx, saleID, entries)
	if err == nil {
		q.note(entries, func(w *way) { w.published++ })
	}
	return err
}

func (q *watched) Consume(ctx context.Context, settle settleFunc) error {
	return q.Queue.Consume(ctx, func(ctx context.Context, saleID string, entries []model.Entry) error {
		q.note(entries, func(w *way) { w.delivered++ })
		err := settle(ctx, saleID, entries)
		if err == nil {
			q.note(entries, func(w *way) { w.settled++ })
		}
		return err
	})
}

// seen returns the ways by order.
func (q *watched) seen() map[string]way {
	q.mu.Lock()
	defer q.mu.Unlock()
	return maps.Clone(q.ways)
}

// settled returns how many messages of the queue were settled, and of how many orders.
func (q *watched) settled() (orders, messages int) {
	for _, w := range q.seen() {
		orders += min(w.settled, 1)
		messages += w.settled
	}
	return orders, messages
}

// engine is an instance with a settler and a queue.
type engine struct {
	*instance.Instance
	settler *worker.Settler
	queue   *watched
	log     *check.Log
}

// newEngine is an instance on a SQLite file.
func newEngine(t testing.TB, b *broker) *engine {
	t.Helper()
	return with(instance.Open(t, kit.SQLite(t), kit.Redis(t).URL()), "here", b)
}

// with gives an instance a settler and a queue.
func with(i *instance.Instance, name string, b *broker) *engine {
	i.Helper()
	e := &engine{Instance: i, log: &check.Log{}}
	e.queue = &watched{Queue: openAt(i.TB, b.kind, b.address, name, slog.New(e.log)), ways: map[string]way{}}
	e.settler = worker.NewSettler(worker.SettlerNeeds{
		Stream: e.Gate, Ledger: e.DB, Live: e.Catalog.LiveGates, Instance: name, Queue: e.queue,
		Running: func(context.Context, time.Duration) []string { return nil },
		Apart:   func([]model.Entry) {}, Wake: func(map[string]model.Outcome) {}, Lost: func(model.GateRef) {}, Now: time.Now, Log: slog.New(e.log),
	})
	return e
}

func attempt(o model.Offer, user string) model.Attempt { return entry(o.ID, user, "key", 0).Attempt }

// admit sends an attempt through the gate, which must admit it, and hands its entry over to the settler.
func (e *engine) admit(a model.Attempt) {
	e.Helper()
	e.settler.Add([]model.Entry{e.admitted(a)})
}

// admitted sends an attempt through the gate, which must admit it.
func (e *engine) admitted(a model.Attempt) model.Entry {
	e.Helper()
	var got model.Admission
	check.Eventually(e, "the gate answers; its Redis may be slow on a busy machine", func() (ok bool) {
		got = e.Gate.Admit(e.Context(), []model.Attempt{a})[0]
		return got.Err == nil
	})
	check.Same(e, "the verdict of the gate", got.Verdict, model.Accepted)
	if got.Entry == nil {
		e.Fatalf("%s was admitted before", a.UserID)
	}
	return *got.Entry
}

// unsettled returns entries of n buyers that no settler has.
func (e *engine) unsettled(o model.Offer, n int) (entries []model.Entry) {
	e.Helper()
	for i := range n {
		entries = append(entries, e.admitted(attempt(o, fmt.Sprint("u-", i))))
	}
	return entries
}

// publish sends entries one by one.
func (e *engine) publish(o model.Offer, entries ...model.Entry) {
	e.Helper()
	for _, entry := range entries {
		publish(e, e.queue.Queue, o.ID, entry)
	}
}

// healthy asks as /readyz does, and waits no longer.
func (e *engine) healthy() error {
	ctx, cancel := context.WithTimeout(e.Context(), time.Second)
	defer cancel()
	return e.settler.QueueHealthy(ctx)
}

// recovers admits one attempt after the other, until one comes by the queue. It returns how many it has admitted.
func (e *engine) recovers(o model.Offer, users string) (admitted int64) {
	e.Helper()
	check.Eventually(e, "an attempt comes by the queue", func() bool {
		a := attempt(o, fmt.Sprint(users, "-", admitted))
		admitted++
		e.admit(a)
		check.Eventually(e, "the attempt is settled", func() bool {
			_, ok, err := e.DB.Order(e.Context(), a.ID)
			return err == nil && ok
		})
		return e.queue.seen()[a.ID].delivered > 0
	})
	check.Eventually(e, "the stream is empty", func() bool { return e.Peek(o).Stream == 0 })
	return admitted
}

// nothingLeft checks, while nobody consumes, that no message of a sale is left: one more message is published, and must
// be the only one that is delivered. A broker that has missed an acknowledgement may deliver settled messages again, but
// not those that are acknowledged here.
func (b *broker) nothingLeft(t *testing.T, o model.Offer) {
	t.Helper()
	q := b.open(t, "last")
	got := b.upTo(t, q, entry(o.ID, "last", "key", 0))
	for try := 1; len(got) > 1 && try < 3; try++ {
		got = b.upTo(t, q, entry(o.ID, "last", "key", try))
	}
	check.Same(t, "messages after the last acknowledgement", len(got), 1)
}

// upTo publishes one more message and consumes until it is delivered.
func (b *broker) upTo(t *testing.T, q worker.Queue, last model.Entry) (got []model.Entry) {
	t.Helper()
	publish(t, q, last.SaleID, last)
	consumeUntil(t, q, func(_ string, entries []model.Entry) bool {
		got = append(got, entries...)
		return slices.Contains(entries, last)
	})
	return got
}
