package batch

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var limits = Limits{Batch: 3, Queue: 5, Calls: 1, Time: time.Second}

// desk does batches at the test's bidding, and notes them.
type desk struct {
	mu      sync.Mutex
	batches map[string][][]int
	inside  int
	most    int
	turn    chan struct{} // a batch waits for its turn; nil: it doesn't
}

func (d *desk) do(ctx context.Context, key string, items []int) ([]string, error) {
	d.mu.Lock()
	if d.batches == nil {
		d.batches = map[string][][]int{}
	}
	d.batches[key] = append(d.batches[key], items)
	d.inside++
	d.most = max(d.most, d.inside)
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		d.inside--
		d.mu.Unlock()
	}()
	if d.turn != nil {
		select {
		case <-d.turn:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if slices.Contains(items, 13) {
		return nil, errors.New("unlucky")
	}
	values := make([]string, len(items))
	for i, n := range items {
		values[i] = string(rune('a' + n))
	}
	return values, nil
}

type answer struct {
	value string
	err   error
}

// ask puts an item in beside the test, after those before it are in their places.
func ask(ctx context.Context, g *Batcher[int, string], key string, item int) <-chan answer {
	answers := make(chan answer, 1)
	go func() {
		value, err := g.Do(ctx, key, item)
		answers <- answer{value, err}
	}()
	synctest.Wait()
	return answers
}

func TestWhatComesMeanwhileIsTheNextBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{turn: make(chan struct{})}
		g := New(limits, d.do)
		defer g.Close(time.Second)
		answers := make([]<-chan answer, 6)
		for i := range answers {
			answers[i] = ask(t.Context(), g, "k", i)
		}
		for range 3 {
			d.turn <- struct{}{}
		}
		for i, c := range answers {
			if got, want := <-c, string(rune('a'+i)); got.err != nil || got.value != want {
				t.Errorf("item %d got %q, %v, want %q", i, got.value, got.err, want)
			}
		}
		want := [][]int{{0}, {1, 2, 3}, {4, 5}}
		if got := d.batches["k"]; !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("the batches are %v, want %v", got, want)
		}
		if d.most != 1 {
			t.Errorf("%d batches of one key were under way at once", d.most)
		}
		synctest.Wait()
		if len(g.queues) != 0 {
			t.Errorf("%d queues stay behind", len(g.queues))
		}
	})
}

func TestBounds(t *testing.T) {
	for _, calls := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			d := &desk{turn: make(chan struct{})}
			bounds := limits
			bounds.Calls = calls
			g := New(bounds, d.do)
			inside := calls + bounds.Queue
			answers := make([]<-chan answer, inside)
			for i := range answers {
				answers[i] = ask(t.Context(), g, "k", i)
			}
			if d.most != calls {
				t.Errorf("%d batches under way, want %d", d.most, calls)
			}
			if got := <-ask(t.Context(), g, "k", 9); !errors.Is(got.err, ErrFull) {
				t.Errorf("one too many: %+v", got)
			}
			other := ask(t.Context(), g, "another key", 9)
			close(d.turn)
			if got := <-other; got.err != nil {
				t.Errorf("another key: %v", got.err)
			}
			for i, c := range answers {
				if got := <-c; got.err != nil {
					t.Errorf("item %d: %v", i, got.err)
				}
			}
			g.Close(time.Second)
			if _, err := g.Do(t.Context(), "k", 1); !errors.Is(err, ErrClosed) {
				t.Errorf("after the end: %v", err)
			}
		})
	}
}

// A caller who leaves harms nobody: the others get their results, and its item is done.
func TestCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{turn: make(chan struct{})}
		g := New(limits, d.do)
		defer g.Close(time.Second)
		ctx, leave := context.WithCancel(t.Context())
		leaver := ask(ctx, g, "k", 1)
		waiter, stayer := ask(ctx, g, "k", 2), ask(t.Context(), g, "k", 3)
		leave()
		for _, c := range []<-chan answer{leaver, waiter} {
			if got := <-c; !errors.Is(got.err, context.Canceled) {
				t.Errorf("one who left got %+v", got)
			}
		}
		close(d.turn)
		if got := <-stayer; got.err != nil || got.value != "d" {
			t.Errorf("one who stayed got %+v", got)
		}
		if got := d.batches["k"]; !slices.EqualFunc(got, [][]int{{1}, {2, 3}}, slices.Equal) {
			t.Errorf("the batches are %v", got)
		}
		if _, err := g.Do(ctx, "k", 4); !errors.Is(err, context.Canceled) {
			t.Errorf("one who has left before got %v", err)
		}
		if got := d.batches["k"]; len(got) != 2 {
			t.Errorf("the batches are %v", got)
		}
	})
}

func TestErrorIsEveryones(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{turn: make(chan struct{})}
		g := New(limits, d.do)
		defer g.Close(time.Second)
		alone, unlucky, beside := ask(t.Context(), g, "k", 1), ask(t.Context(), g, "k", 13), ask(t.Context(), g, "k", 2)
		close(d.turn)
		if got := <-alone; got.err != nil {
			t.Errorf("the batch before: %v", got.err)
		}
		for _, c := range []<-chan answer{unlucky, beside} {
			if got := <-c; got.err == nil || got.err.Error() != "unlucky" {
				t.Errorf("one of the batch that failed got %+v", got)
			}
		}
	})
}

func TestTimeOfABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{turn: make(chan struct{})}
		g := New(limits, d.do)
		defer g.Close(time.Second)
		start := time.Now()
		if _, err := g.Do(t.Context(), "k", 1); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != limits.Time {
			t.Errorf("%v after %s", err, time.Since(start))
		}
	})
}

func TestCloseWaitsAndCuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{turn: make(chan struct{})}
		g := New(limits, d.do)
		first, second := ask(t.Context(), g, "k", 1), ask(t.Context(), g, "k", 2)
		closed := make(chan time.Duration)
		go func() {
			start := time.Now()
			g.Close(time.Second / 2)
			closed <- time.Since(start)
		}()
		synctest.Wait()
		d.turn <- struct{}{}
		if got := <-first; got.err != nil {
			t.Errorf("a batch under way: %v", got.err)
		}
		if got := <-second; !errors.Is(got.err, context.Canceled) {
			t.Errorf("a batch that never ends: %+v", got)
		}
		if took := <-closed; took != time.Second/2 {
			t.Errorf("closed after %s", took)
		}
	})
}
