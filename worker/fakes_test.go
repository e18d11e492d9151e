package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/internal/observe"
	"flashsale/model"
	"flashsale/test/kit/check"
)

const (
	saleA = "SALEAAAAAAAAAAAA"
	saleB = "SALEBBBBBBBBBBBB"
	saleC = "SALECCCCCCCCCCCC"
)

// refs names the gates of sales, each in one shard.
func refs(sales ...string) []model.GateRef {
	gates := make([]model.GateRef, len(sales))
	for i, id := range sales {
		gates[i] = model.GateRef{SaleID: id, Shards: 1}
	}
	return gates
}

var errAway = errors.New("the store is away")

// mutex guards the fields of all fakes. A test may read them without it after synctest.Wait: pass and every change of a
// fake take the mutex, so that the race detector sees the read before the next write.
var mutex sync.Mutex

// locked locks all fakes until the returned function is called.
func locked() (unlock func()) {
	mutex.Lock()
	return mutex.Unlock
}

// with changes fakes.
func with(change func()) {
	defer locked()()
	change()
}

// noted is an Observer that calls a function for each event of a name.
type noted struct {
	name string
	do   func(e observe.Event)
}

func (noted) Begin(ctx context.Context, _ observe.Step) (context.Context, func(error)) {
	return ctx, nil
}

func (n noted) Note(e observe.Event) {
	if e.Name == n.name {
		n.do(e)
	}
}

// during starts run in the bubble, calls test, and then ends run.
func during(t *testing.T, run func(context.Context), test func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); run(ctx) }()
	synctest.Wait()
	test()
	cancel()
	<-done
}

// pass advances the clock of the bubble.
func pass(d time.Duration) {
	with(func() {})
	time.Sleep(d)
	synctest.Wait()
}

// settling is a settler over fakes.
type settling struct {
	*Settler
	stream  *fakeStream
	ledger  *fakeLedger
	queue   *fakeQueue
	log     *check.Log
	live    []string                 // sales
	running []string                 // instances
	woken   map[string]model.Verdict // the buyers of this instance, by order
	apart   []string                 // orders whose buyers are kept apart
}

func newSettling(queue Queue) *settling {
	s := &settling{stream: newFakeStream(), ledger: newFakeLedger(), log: &check.Log{}, woken: map[string]model.Verdict{}}
	s.live, s.running = []string{saleA, saleB, saleC}, []string{"here", "there", "elsewhere"}
	s.Settler = NewSettler(SettlerNeeds{
		Stream: s.stream, Ledger: s.ledger, Instance: "here", Queue: queue, Grace: time.Minute,
		Running: func(context.Context, time.Duration) []string { defer locked()(); return slices.Clone(s.running) },
		Live:    func() []model.GateRef { defer locked()(); return refs(s.live...) },
		Apart: func(entries []model.Entry) {
			defer locked()()
			for _, e := range entries {
				s.apart = append(s.apart, e.ID)
			}
		},
		Wake: func(outcomes map[string]model.Outcome) { with(func() { addVerdicts(s.woken, outcomes) }) },
		Now:  time.Now, Log: slog.New(s.log),
	})
	return s
}

func addVerdicts(to map[string]model.Verdict, outcomes map[string]model.Outcome) {
	for id, o := range outcomes {
		to[id] = o.Verdict
	}
}

// testSettler runs a test beside a settler without a queue.
func testSettler(t *testing.T, test func(t *testing.T, s *settling)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newSettling(nil)
		during(t, s.Run, func() { test(t, s) })
	})
}

// testRelay runs a test beside a settler with a queue.
func testRelay(t *testing.T, test func(t *testing.T, s *settling)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue()
		s := newSettling(q)
		s.queue = q
		during(t, s.Run, func() { test(t, s) })
	})
}

// admit adds entries to their streams, hands them over to the settler, and waits until everything is blocked.
func (s *settling) admit(entries ...model.Entry) {
	s.stream.add(entries...)
	s.Add(entries)
	synctest.Wait()
}

// entry is an admitted attempt of a sale, whose buyer waits on an instance.
func entry(sale string, n int, instance string) model.Entry {
	return model.Entry{
		Attempt:  model.Attempt{ID: fmt.Sprint("order-", n), SaleID: sale, UserID: fmt.Sprint("u-", n), Quantity: 1},
		StreamID: fmt.Sprint(n, "-0"), Epoch: 1, Instance: instance,
	}
}

// entries are so many entries of sale A, numbered from 0, whose buyers wait here.
func entries(n int) []model.Entry {
	list := make([]model.Entry, n)
	for i := range list {
		list[i] = entry(saleA, i, "here")
	}
	return list
}

// verdicts maps the orders of these entries to one verdict.
func verdicts(v model.Verdict, numbers ...int) map[string]model.Verdict {
	m := map[string]model.Verdict{}
	for _, n := range numbers {
		m[fmt.Sprint("order-", n)] = v
	}
	return m
}

// fakeStream holds entries as the gate does, until they are settled.
type fakeStream struct {
	held    map[string][]heldEntry
	bad     map[string][]string
	settled map[string]model.Verdict            // by order
	woken   map[string]map[string]model.Verdict // by instance and order
	err     error                               // of every method but Wake
	errWake error
}

type heldEntry struct {
	model.Entry
	at time.Time // of the admission
}

func newFakeStream() *fakeStream {
	return &fakeStream{
		held: map[string][]heldEntry{}, bad: map[string][]string{}, settled: map[string]model.Verdict{},
		woken: map[string]map[string]model.Verdict{},
	}
}

func (s *fakeStream) fail(err error) { with(func() { s.err = err }) }

func (s *fakeStream) add(entries ...model.Entry) {
	defer locked()()
	for _, e := range entries {
		s.held[e.SaleID] = append(s.held[e.SaleID], heldEntry{e, time.Now()})
	}
}

func (s *fakeStream) Leftovers(
	_ context.Context, gates []model.GateRef, idle time.Duration, count int,
) (entries []model.Entry, bad map[string][]string, err error) {
	defer locked()()
	if s.err != nil && len(gates) > 0 {
		return nil, nil, s.err
	}
	for _, gate := range gates {
		list := s.held[gate.SaleID]
		for _, e := range list[:min(len(list), count)] {
			if time.Since(e.at) >= idle {
				entries = append(entries, e.Entry)
			}
		}
	}
	bad, s.bad = s.bad, map[string][]string{}
	return entries, bad, nil
}

func (s *fakeStream) Settled(_ context.Context, entries []model.Entry, outcomes []model.Outcome) ([]model.GateRef, error) {
	defer locked()()
	for i, e := range entries {
		if s.err == nil {
			s.settled[e.ID] = outcomes[i].Verdict
			s.held[e.SaleID] = slices.DeleteFunc(s.held[e.SaleID], func(x heldEntry) bool { return x.StreamID == e.StreamID })
		}
	}
	return nil, s.err
}

func (s *fakeStream) Unsettled(_ context.Context, entries []model.Entry) (rest []model.Entry, err error) {
	defer locked()()
	for _, e := range entries {
		if slices.ContainsFunc(s.held[e.SaleID], func(x heldEntry) bool { return x.StreamID == e.StreamID }) && !slices.Contains(rest, e) {
			rest = append(rest, e)
		}
	}
	return rest, s.err
}

func (s *fakeStream) Wake(_ context.Context, instance string, outcomes map[string]model.Outcome) error {
	defer locked()()
	if s.errWake == nil {
		if s.woken[instance] == nil {
			s.woken[instance] = map[string]model.Verdict{}
		}
		addVerdicts(s.woken[instance], outcomes)
	}
	return s.errWake
}

// anySale is the key of what fakeLedger counts over all sales.
const anySale = ""

// fakeLedger makes an order of every entry, and counts the batches.
type fakeLedger struct {
	before  func(saleID string, entries []model.Entry) error // may block, may fail
	outcome func(e model.Entry) model.Outcome                // nil: an order

	err       error // of Settle
	errRefuse error
	batches   map[string][]int // by sale, the sizes of the batches
	mixed     []int            // the sizes of the batches of several sales
	inside    map[string]int   // batches under way
	most      map[string]int   // the most batches that were under way at once
	refused   map[string]model.Verdict
	logged    []string
}

func newFakeLedger() *fakeLedger {
	return &fakeLedger{
		batches: map[string][]int{}, inside: map[string]int{}, most: map[string]int{}, refused: map[string]model.Verdict{},
	}
}

func (l *fakeLedger) fail(err error) { with(func() { l.err = err }) }

func (l *fakeLedger) Settle(ctx context.Context, saleID string, entries []model.Entry) (outcomes []model.Outcome, err error) {
	with(func() {
		l.batches[saleID] = append(l.batches[saleID], len(entries))
		for _, id := range []string{saleID, anySale} {
			l.inside[id]++
			l.most[id] = max(l.most[id], l.inside[id])
		}
		err = l.err
	})
	defer with(func() {
		l.inside[saleID]--
		l.inside[anySale]--
	})
	if err == nil && l.before != nil {
		done := make(chan error, 1)
		go func() { done <- l.before(saleID, entries) }()
		select {
		case err = <-done:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		o := model.Outcome{Verdict: model.Accepted, Order: &model.Order{ID: e.ID, Status: model.OrderPending}}
		if l.outcome != nil {
			o = l.outcome(e)
		}
		outcomes = append(outcomes, o)
	}
	return outcomes, nil
}

// SettleSales settles each sale by itself, and fails if one of them does.
func (l *fakeLedger) SettleSales(ctx context.Context, entries []model.Entry) (outcomes []model.Outcome, err error) {
	with(func() { l.mixed = append(l.mixed, len(entries)) })
	for from := 0; from < len(entries) && err == nil; {
		to := from
		for to < len(entries) && entries[to].SaleID == entries[from].SaleID {
			to++
		}
		var some []model.Outcome
		some, err = l.Settle(ctx, entries[from].SaleID, entries[from:to])
		outcomes, from = append(outcomes, some...), to
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return outcomes, err
}

func (l *fakeLedger) Refuse(_ context.Context, e model.Entry, reason model.Verdict) (model.Outcome, error) {
	defer locked()()
	if l.errRefuse == nil {
		l.refused[e.ID] = reason
	}
	return model.Outcome{Verdict: reason}, l.errRefuse
}

func (l *fakeLedger) Log(_ context.Context, actor, action, subject, detail string) error {
	defer locked()()
	l.logged = append(l.logged, strings.Join([]string{actor, action, subject, detail}, " "))
	return nil
}

// fakeQueue holds entries as a broker does: until they are acknowledged.
type fakeQueue struct {
	waiting   []model.Entry
	err       error // of every method
	hangs     bool
	loses     bool // what is published
	deaf      bool // nothing is delivered
	publishes int
	consumes  int
	delays    []time.Duration
	came      chan struct{}
}

func newFakeQueue() *fakeQueue { return &fakeQueue{came: make(chan struct{}, 1)} }

// set changes the queue, and has a consumer look again.
func (q *fakeQueue) set(edit func(*fakeQueue)) {
	with(func() { edit(q) })
	select {
	case q.came <- struct{}{}:
	default:
	}
}

// fail makes every method return err, and wakes the consumers so that they call a method.
func (q *fakeQueue) fail(err error) {
	for range settleWriters {
		q.set(func(q *fakeQueue) { q.err = err })
	}
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

func (q *fakeQueue) Consume(ctx context.Context, settle func(context.Context, string, []model.Entry) error) (err error) {
	q.set(func(q *fakeQueue) { q.consumes++ })
	for {
		var batch []model.Entry
		with(func() {
			if err = q.err; err == nil && !q.deaf && len(q.waiting) > 0 {
				first := q.waiting[0].SaleID
				batch = slices.DeleteFunc(slices.Clone(q.waiting), func(e model.Entry) bool { return e.SaleID != first })
				q.waiting = slices.DeleteFunc(q.waiting, func(e model.Entry) bool { return e.SaleID == first })
			}
		})
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
	defer locked()()
	return q.err
}

func (*fakeQueue) Close() error { return nil }
