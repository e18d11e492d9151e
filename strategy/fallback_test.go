package strategy

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

// fakeDatabase accepts every attempt, and notes the batches that it gets.
type fakeDatabase struct {
	before func(ctx context.Context, saleID string, attempts []model.Attempt) error // may block, may fail

	mu      sync.Mutex
	batches map[string][][]string // by sale: the attempts' request keys
	inside  map[string]int        // calls under way by sale
	overlap bool                  // two calls of one sale were under way at once
	most    int                   // calls that were under way at once
}

func newFakeDatabase() *fakeDatabase {
	return &fakeDatabase{batches: map[string][][]string{}, inside: map[string]int{}}
}

func (d *fakeDatabase) Deduct(ctx context.Context, saleID string, attempts []model.Attempt) ([]model.Outcome, error) {
	d.enter(saleID, attempts)
	defer d.leave(saleID)
	if d.before != nil {
		if err := d.before(ctx, saleID, attempts); err != nil {
			return nil, err
		}
	}
	outcomes := make([]model.Outcome, len(attempts))
	for i, a := range attempts {
		outcomes[i] = model.Outcome{Verdict: model.Accepted, Order: &model.Order{ID: a.ID, UserID: a.UserID, Status: model.OrderPending}}
	}
	return outcomes, nil
}

// DeductLocked, Look and Overwrite are for the strategies that have tests of their own.
func (*fakeDatabase) DeductLocked(context.Context, model.Attempt) (model.Outcome, error) {
	panic("the fallback locks no rows")
}

func (*fakeDatabase) Look(context.Context, model.Attempt) (model.Look, error) {
	panic("the fallback never looks first")
}

func (*fakeDatabase) Overwrite(context.Context, model.Attempt, model.Look) (model.Outcome, error) {
	panic("the fallback never overwrites")
}

func (d *fakeDatabase) enter(saleID string, attempts []model.Attempt) {
	d.mu.Lock()
	defer d.mu.Unlock()
	keys := make([]string, len(attempts))
	for i, a := range attempts {
		keys[i] = a.RequestKey
	}
	d.batches[saleID] = append(d.batches[saleID], keys)
	d.inside[saleID]++
	d.overlap = d.overlap || d.inside[saleID] > 1
	all := 0
	for _, n := range d.inside {
		all += n
	}
	d.most = max(d.most, all)
}

func (d *fakeDatabase) leave(saleID string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inside[saleID]--
}

func (d *fakeDatabase) of(saleID string) [][]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.batches[saleID])
}

// fakeGate answers what it is told to.
type fakeGate func(a model.Attempt, epoch int64) (model.Outcome, error)

func (g fakeGate) Admit(_ context.Context, _ string, attempts []model.Attempt, epoch int64) ([]model.Outcome, error) {
	outcomes := make([]model.Outcome, len(attempts))
	for i, a := range attempts {
		var err error
		if outcomes[i], err = g(a, epoch); err != nil {
			return nil, err
		}
	}
	return outcomes, nil
}

// Peek finds an open gate with units.
func (fakeGate) Peek(_ context.Context, saleIDs ...string) ([]model.GateState, error) {
	return slices.Repeat([]model.GateState{{Exists: true, Open: true, Left: 100}}, len(saleIDs)), nil
}

// Line is the sale.
func (fakeGate) Line(_ context.Context, saleID, _ string) (string, error) { return saleID, nil }

// Node is the only one.
func (fakeGate) Node(context.Context, string) string { return "" }

// noGate is a Redis that has no gate of any sale.
func noGate(model.Attempt, int64) (model.Outcome, error) {
	return model.Outcome{Verdict: model.NoGate}, nil
}

// fakeControl notes what is asked of it.
type fakeControl struct {
	mu   sync.Mutex
	need []string
}

func (*fakeControl) Epoch(string) int64 { return 7 }

func (*fakeControl) Judge(string) model.Verdict { return model.Accepted }

func (c *fakeControl) NeedGate(saleID, _ string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.need = append(c.need, saleID)
}

func fakeNeeds(gate fakeGate, db Database) (n Needs, control *fakeControl, races *int) {
	control, races = &fakeControl{}, new(int)
	return Needs{Gate: gate, Database: db, Control: control, Log: discard, Retried: func() { *races++ }}, control, races
}

func fakeAttempt(sale, user, key string) model.Attempt {
	o := model.Offer{Sale: model.Sale{ID: sale}}
	return attempt(o, user, 1, key)
}

// outcomeOf is what a caller got.
type outcomeOf struct {
	got model.Outcome
	err error
}

// call runs Deduct beside the test.
func call(ctx context.Context, s Strategy, a model.Attempt) <-chan outcomeOf {
	done := make(chan outcomeOf, 1)
	go func() {
		got, err := s.Deduct(ctx, a)
		done <- outcomeOf{got, err}
	}()
	return done
}

func wantOrder(t *testing.T, who string, r outcomeOf) {
	t.Helper()
	if r.err != nil || r.got.Verdict != model.Accepted || r.got.Order == nil || r.got.Order.UserID != who {
		t.Errorf("%s got %+v, %v", who, r.got, r.err)
	}
}

// TestFallbackGathers: what comes while one transaction runs is the next one, in the order of arrival.
func TestFallbackGathers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sale, release := model.NewSaleID(), make(chan struct{})
		db := newFakeDatabase()
		db.before = func(context.Context, string, []model.Attempt) error { <-release; return nil }
		n, _, _ := fakeNeeds(noGate, db)
		h := NewHybrid(n)
		var calls []<-chan outcomeOf
		var keys []string
		for i := range fallbackLimits.Batch + 3 {
			key := fmt.Sprint("key-", i)
			calls, keys = append(calls, call(t.Context(), h, fakeAttempt(sale, key, key))), append(keys, key)
			synctest.Wait()
		}
		close(release)
		for i, c := range calls {
			wantOrder(t, keys[i], <-c)
		}
		want := [][]string{keys[:1], keys[1 : fallbackLimits.Batch+1], keys[fallbackLimits.Batch+1:]}
		if got := db.of(sale); !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("the batches are %v, want %v", got, want)
		}
		h.Close()
	})
}

// TestFallbackIsBounded fills the queue behind a database that stands still: the next attempt is told so at once,
// and one of another sale isn't.
func TestFallbackIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full, other, release := model.NewSaleID(), model.NewSaleID(), make(chan struct{})
		db := newFakeDatabase()
		db.before = func(context.Context, string, []model.Attempt) error { <-release; return nil }
		n, _, _ := fakeNeeds(noGate, db)
		h := NewHybrid(n)
		var calls []<-chan outcomeOf
		for i := range 1 + fallbackLimits.Queue { // one is in the database, the others wait
			calls = append(calls, call(t.Context(), h, fakeAttempt(full, "u", fmt.Sprint(i))))
			if i == 0 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		got, err := h.Deduct(t.Context(), fakeAttempt(full, "u", "one too many"))
		if !errors.Is(err, model.ErrUnavailable) {
			t.Errorf("beyond the queue: %+v, %v, want ErrUnavailable", got, err)
		}
		calls = append(calls, call(t.Context(), h, fakeAttempt(other, "u", "elsewhere")))
		synctest.Wait()
		if len(db.of(other)) != 1 {
			t.Error("an attempt on another sale has to wait")
		}
		close(release)
		for _, c := range calls {
			wantOrder(t, "u", <-c)
		}
		if again := <-call(t.Context(), h, fakeAttempt(full, "u", "again")); again.err != nil {
			t.Errorf("with room again: %v", again.err)
		}
		h.Close()
		for i, batch := range db.of(full) {
			if len(batch) > fallbackLimits.Batch {
				t.Errorf("batch %d has %d attempts", i, len(batch))
			}
		}
	})
}

// TestOneWriterASale: transactions of one sale never overlap, those of two sales do.
func TestOneWriterASale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFakeDatabase()
		db.before = func(context.Context, string, []model.Attempt) error { time.Sleep(time.Millisecond); return nil } // of the bubble's clock
		n, _, _ := fakeNeeds(noGate, db)
		h := NewHybrid(n)
		sales := []string{model.NewSaleID(), model.NewSaleID()}
		crowd(200, func(i int) {
			for j := range 5 {
				a := fakeAttempt(sales[i%2], "u", fmt.Sprint(i, "-", j))
				if got, err := h.Deduct(t.Context(), a); err != nil || got.Order.ID != a.ID {
					t.Errorf("%+v, %v", got, err)
				}
			}
		})
		h.Close()
		if db.overlap {
			t.Error("two transactions of one sale were under way at once")
		}
		if db.most != 2 {
			t.Errorf("%d transactions at once over two sales, want 2", db.most)
		}
		for _, sale := range sales {
			keys := slices.Concat(db.of(sale)...)
			slices.Sort(keys)
			if n := len(slices.Compact(keys)); n != 500 || len(keys) != 500 {
				t.Errorf("%d attempts of 500 were decided, %d of them different", len(keys), n)
			}
		}
	})
}

// TestCallersWhoLeave: their attempts are decided all the same, and nobody else's suffers.
func TestCallersWhoLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sale, release := model.NewSaleID(), make(chan struct{})
		db := newFakeDatabase()
		db.before = func(ctx context.Context, _ string, _ []model.Attempt) error {
			<-release
			return ctx.Err()
		}
		n, _, _ := fakeNeeds(noGate, db)
		h := NewHybrid(n)
		ctx, leave := context.WithCancel(t.Context())
		first := call(ctx, h, fakeAttempt(sale, "leaves-1", "1"))
		synctest.Wait()
		second := call(ctx, h, fakeAttempt(sale, "leaves-2", "2"))
		synctest.Wait()
		third := call(t.Context(), h, fakeAttempt(sale, "stays", "3"))
		synctest.Wait()
		leave()
		for _, c := range []<-chan outcomeOf{first, second} {
			if r := <-c; !errors.Is(r.err, context.Canceled) {
				t.Errorf("who left got %+v, %v", r.got, r.err)
			}
		}
		close(release)
		wantOrder(t, "stays", <-third)
		h.Close()
		if got := slices.Concat(db.of(sale)...); !slices.Equal(got, []string{"1", "2", "3"}) {
			t.Errorf("decided %v", got)
		}
	})
}

// TestCloseWaits until what is queued is decided, and takes nothing more.
func TestCloseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sale, release := model.NewSaleID(), make(chan struct{})
		db := newFakeDatabase()
		db.before = func(context.Context, string, []model.Attempt) error { <-release; return nil }
		n, _, _ := fakeNeeds(noGate, db)
		h := NewHybrid(n)
		first := call(t.Context(), h, fakeAttempt(sale, "u-1", "1"))
		synctest.Wait()
		second := call(t.Context(), h, fakeAttempt(sale, "u-2", "2"))
		synctest.Wait()
		closed := make(chan struct{})
		go func() { defer close(closed); h.Close() }()
		synctest.Wait()
		select {
		case <-closed:
			t.Fatal("closed while attempts are under way")
		default:
		}
		if got, err := h.Deduct(t.Context(), fakeAttempt(sale, "u-3", "3")); !errors.Is(err, model.ErrUnavailable) {
			t.Errorf("after the close: %+v, %v", got, err)
		}
		close(release)
		<-closed
		wantOrder(t, "u-1", <-first)
		wantOrder(t, "u-2", <-second)
		h.Close() // and twice is once
	})
}

// TestCloseCutsOff what the database does not finish in time: a stop must end.
func TestCloseCutsOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sale := model.NewSaleID()
		db := newFakeDatabase()
		db.before = func(ctx context.Context, _ string, _ []model.Attempt) error { <-ctx.Done(); return ctx.Err() }
		n, _, _ := fakeNeeds(noGate, db)
		h := NewHybrid(n)
		var calls []<-chan outcomeOf
		for i := range 3 {
			calls = append(calls, call(t.Context(), h, fakeAttempt(sale, "u", fmt.Sprint(i))))
			synctest.Wait()
		}
		start := time.Now()
		h.Close()
		if waited := time.Since(start); waited != closeGrace {
			t.Errorf("it took %s, want %s", waited, closeGrace)
		}
		for _, c := range calls {
			if r := <-c; !errors.Is(r.err, model.ErrUnavailable) {
				t.Errorf("a caller got %+v, %v", r.got, r.err)
			}
		}
	})
}

// TestFallbackErrors: what the database can't take is unavailable for all of the batch, and the next one is tried.
func TestFallbackErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sale := model.NewSaleID()
		failing := true
		db := newFakeDatabase()
		db.before = func(context.Context, string, []model.Attempt) error {
			if failing {
				return errors.New("the disk is full")
			}
			return nil
		}
		n, _, races := fakeNeeds(noGate, db)
		h := NewHybrid(n)
		if got, err := h.Deduct(t.Context(), fakeAttempt(sale, "u", "1")); !errors.Is(err, model.ErrUnavailable) {
			t.Errorf("%+v, %v, want ErrUnavailable", got, err)
		}
		if len(db.of(sale)) != 1 || *races != 0 {
			t.Errorf("%d tries, %d lost races", len(db.of(sale)), *races)
		}
		failing = false
		wantOrder(t, "u", <-call(t.Context(), h, fakeAttempt(sale, "u", "2")))
		h.Close()
	})
}

// TestFallbackTimesOut: a database that never answers holds nobody longer than its time.
func TestFallbackTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sale := model.NewSaleID()
		db := newFakeDatabase()
		db.before = func(ctx context.Context, _ string, _ []model.Attempt) error { <-ctx.Done(); return ctx.Err() }
		n, _, _ := fakeNeeds(noGate, db)
		h := NewHybrid(n)
		start := time.Now()
		if got, err := h.Deduct(t.Context(), fakeAttempt(sale, "u", "1")); !errors.Is(err, model.ErrUnavailable) {
			t.Errorf("%+v, %v, want ErrUnavailable", got, err)
		}
		if waited := time.Since(start); waited != fallbackLimits.Time {
			t.Errorf("waited %s, want %s", waited, fallbackLimits.Time)
		}
		h.Close()
	})
}

// TestLostRaces are run again, the whole batch, a bounded number of times.
func TestLostRaces(t *testing.T) {
	tests := map[string]struct {
		strategy func(Needs) Strategy
		losses   int
		tries    int
		wins     bool
	}{
		"fallback wins at last":   {func(n Needs) Strategy { return NewHybrid(n) }, batchTries - 1, batchTries, true},
		"fallback gives up":       {func(n Needs) Strategy { return NewHybrid(n) }, batchTries, batchTries, false},
		"optimistic at once":      {func(n Needs) Strategy { return NewOptimistic(n) }, 0, 1, true},
		"optimistic wins at last": {func(n Needs) Strategy { return NewOptimistic(n) }, optimisticTries - 1, optimisticTries, true},
		"optimistic gives up":     {func(n Needs) Strategy { return NewOptimistic(n) }, optimisticTries, optimisticTries, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sale := model.NewSaleID()
				db := newFakeDatabase()
				lost := 0
				db.before = func(context.Context, string, []model.Attempt) error {
					if lost < tc.losses {
						lost++
						return fmt.Errorf("wrapped: %w", model.ErrLostRace)
					}
					return nil
				}
				n, _, races := fakeNeeds(noGate, db)
				s := tc.strategy(n)
				start := time.Now()
				got, err := s.Deduct(t.Context(), fakeAttempt(sale, "u", "1"))
				if tc.wins {
					wantOrder(t, "u", outcomeOf{got, err})
				} else if !errors.Is(err, model.ErrUnavailable) {
					t.Errorf("%+v, %v, want ErrUnavailable", got, err)
				}
				if tries := len(db.of(sale)); tries != tc.tries || *races != tc.losses {
					t.Errorf("%d tries, %d lost races; want %d, %d", tries, *races, tc.tries, tc.losses)
				}
				if waited, most := time.Since(start), time.Duration(tc.tries)*2*optimisticMaxPause; waited > most {
					t.Errorf("it took %s, at most %s is bearable", waited, most)
				}
				s.Close()
			})
		})
	}
}

// TestRaceEndsWithItsCaller: one who leaves in mid-race is let go.
func TestRaceEndsWithItsCaller(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	db := newFakeDatabase()
	db.before = func(context.Context, string, []model.Attempt) error {
		leave()
		return model.ErrLostRace
	}
	n, _, _ := fakeNeeds(noGate, db)
	sale := model.NewSaleID()
	if got, err := NewOptimistic(n).Deduct(ctx, fakeAttempt(sale, "u", "1")); !errors.Is(err, context.Canceled) {
		t.Errorf("%+v, %v", got, err)
	}
	if tries := len(db.of(sale)); tries != 1 {
		t.Errorf("%d tries", tries)
	}
}
