package worker

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/model"
)

// logbook keeps what was logged, a line each: level and message.
type logbook struct {
	mu    sync.Mutex
	lines []string
}

func (*logbook) Enabled(context.Context, slog.Level) bool { return true }
func (l *logbook) WithAttrs([]slog.Attr) slog.Handler     { return l }
func (l *logbook) WithGroup(string) slog.Handler          { return l }

func (l *logbook) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, r.Level.String()+" "+r.Message)
	return nil
}

// count tells how many lines contain a text.
func (l *logbook) count(text string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// during runs what has a Run beside a test in the bubble, and ends it after.
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

// pass lets the bubble's clock run on.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// entry is one admitted attempt of a sale, whose buyer waits on an instance.
func entry(sale string, n int, instance string) model.Entry {
	return model.Entry{
		Attempt:  model.Attempt{ID: fmt.Sprint("order-", n), SaleID: sale, UserID: fmt.Sprint("u-", n), Quantity: 1},
		StreamID: fmt.Sprint(n, "-0"), Epoch: 1, Instance: instance, Deliveries: 1,
	}
}

// fakeStream holds entries as the gate does: read once, then with their consumer until they are settled.
type fakeStream struct {
	mu      sync.Mutex
	fresh   map[string][]model.Entry
	taken   map[string][]takenEntry
	bad     map[string][]string
	settled map[string]model.Outcome // by order
	woken   map[string]map[string]model.Outcome
	err     error // of everything
	errWake error
}

type takenEntry struct {
	model.Entry
	at time.Time
}

func newFakeStream() *fakeStream {
	return &fakeStream{
		fresh: map[string][]model.Entry{}, taken: map[string][]takenEntry{}, bad: map[string][]string{},
		settled: map[string]model.Outcome{}, woken: map[string]map[string]model.Outcome{},
	}
}

func (s *fakeStream) add(entries ...model.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range entries {
		s.fresh[e.SaleID] = append(s.fresh[e.SaleID], e)
	}
}

func (s *fakeStream) Read(_ context.Context, saleID string, count int) ([]model.Entry, []string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, nil, s.err
	}
	n := min(count, len(s.fresh[saleID]))
	entries, bad := s.fresh[saleID][:n:n], s.bad[saleID]
	s.fresh[saleID] = s.fresh[saleID][n:]
	delete(s.bad, saleID)
	for _, e := range entries {
		s.taken[saleID] = append(s.taken[saleID], takenEntry{e, time.Now()})
	}
	return entries, bad, nil
}

func (s *fakeStream) Claim(_ context.Context, saleID string, idle time.Duration, count int) (entries []model.Entry, _ []string, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, nil, s.err
	}
	for i := range s.taken[saleID] {
		e := &s.taken[saleID][i]
		if len(entries) < count && time.Since(e.at) >= idle {
			e.Deliveries++
			e.at = time.Now()
			entries = append(entries, e.Entry)
		}
	}
	return entries, nil, nil
}

func (s *fakeStream) Settled(_ context.Context, saleID string, entries []model.Entry, outcomes []model.Outcome) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	for i, e := range entries {
		s.settled[e.ID] = outcomes[i]
		s.taken[saleID] = slices.DeleteFunc(s.taken[saleID], func(x takenEntry) bool { return x.StreamID == e.StreamID })
	}
	return nil
}

func (s *fakeStream) Wake(_ context.Context, instance string, outcomes map[string]model.Outcome) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.errWake != nil {
		return s.errWake
	}
	if s.woken[instance] == nil {
		s.woken[instance] = map[string]model.Outcome{}
	}
	maps.Copy(s.woken[instance], outcomes)
	return nil
}

// peek is how the sweep sees the streams.
func (s *fakeStream) peek(_ context.Context, saleIDs ...string) ([]model.GateState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	states := make([]model.GateState, len(saleIDs))
	for i, id := range saleIDs {
		states[i].Stream = int64(len(s.fresh[id]) + len(s.taken[id]) + len(s.bad[id]))
	}
	return states, s.err
}

func (s *fakeStream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *fakeStream) wokenAt(instance string) map[string]model.Outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.woken[instance])
}

func (s *fakeStream) outcome(n int) (model.Outcome, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.settled[fmt.Sprint("order-", n)]
	return o, ok
}

func (s *fakeStream) left(saleID string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.fresh[saleID]) + len(s.taken[saleID])
}

// fakeLedger makes an order of every entry, and notes the batches.
type fakeLedger struct {
	before  func(saleID string, entries []model.Entry) error // may block, may fail
	outcome func(e model.Entry) model.Outcome                // nil: an order

	mu        sync.Mutex
	err       error // of Settle
	errRefuse error
	batches   map[string][]int
	inside    map[string]int
	most      int
	mostOf    map[string]int
	refused   map[string]model.Verdict
	logged    []string
}

func newFakeLedger() *fakeLedger {
	return &fakeLedger{batches: map[string][]int{}, inside: map[string]int{}, mostOf: map[string]int{}, refused: map[string]model.Verdict{}}
}

func (l *fakeLedger) Settle(_ context.Context, saleID string, entries []model.Entry) ([]model.Outcome, error) {
	l.mu.Lock()
	l.batches[saleID] = append(l.batches[saleID], len(entries))
	l.inside[saleID]++
	all := 0
	for _, n := range l.inside {
		all += n
	}
	l.most, l.mostOf[saleID] = max(l.most, all), max(l.mostOf[saleID], l.inside[saleID])
	err := l.err
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.inside[saleID]--
		l.mu.Unlock()
	}()
	if err == nil && l.before != nil {
		err = l.before(saleID, entries)
	}
	if err != nil {
		return nil, err
	}
	outcomes := make([]model.Outcome, len(entries))
	for i, e := range entries {
		outcomes[i] = model.Outcome{Verdict: model.Accepted, Order: &model.Order{ID: e.ID, Status: model.OrderPending}}
		if l.outcome != nil {
			outcomes[i] = l.outcome(e)
		}
	}
	return outcomes, nil
}

func (l *fakeLedger) Refuse(_ context.Context, e model.Entry, reason model.Verdict) (model.Outcome, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.errRefuse != nil {
		return model.Outcome{}, l.errRefuse
	}
	l.refused[e.ID] = reason
	return model.Outcome{Verdict: reason}, nil
}

func (l *fakeLedger) Log(_ context.Context, actor, action, subject, detail string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.logged = append(l.logged, strings.Join([]string{actor, action, subject, detail}, " "))
	return nil
}

func (l *fakeLedger) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

func (l *fakeLedger) failRefuse(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errRefuse = err
}

func (l *fakeLedger) refusal(id string) (reason model.Verdict, refused bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	reason, refused = l.refused[id]
	return reason, refused
}

func (l *fakeLedger) of(saleID string) []int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.batches[saleID])
}
