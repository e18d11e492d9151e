package batch

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/test/kit/check"
)

var limits = Limits{Batch: 3, Queue: 5, Calls: 1, Time: time.Second}

// desk runs batches, each when the test sends a turn, and records them by key.
type desk struct {
	mu      sync.Mutex
	batches map[string][][]int
	inside  int
	most    int // batches at once
	turn    chan struct{}
}

func (d *desk) do(ctx context.Context, key string, items []int) ([]string, error) {
	d.mu.Lock()
	d.batches[key] = append(d.batches[key], items)
	d.inside++
	d.most = max(d.most, d.inside)
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		d.inside--
		d.mu.Unlock()
	}()
	select {
	case <-d.turn:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if slices.Contains(items, 13) {
		return nil, errUnlucky
	}
	values := make([]string, len(items))
	for i, n := range items {
		values[i] = string(rune('a' + n))
	}
	return values, nil
}

var errUnlucky = errors.New("unlucky")

// testBatcher runs a test of a batcher in a bubble.
func testBatcher(t *testing.T, bounds Limits, test func(t *testing.T, d *desk, g *Batcher[int, string])) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := &desk{batches: map[string][][]int{}, turn: make(chan struct{})}
		g := New(bounds, d.do)
		test(t, d, g)
		g.Close(time.Second)
	})
}

type answer struct {
	value string
	err   error
}

// ask adds an item beside the test, after the items before it are in their places.
func ask(ctx context.Context, g *Batcher[int, string], key string, item int) <-chan answer {
	answers := make(chan answer, 1)
	go func() {
		value, err := g.Do(ctx, key, item)
		answers <- answer{value, err}
	}()
	synctest.Wait()
	return answers
}

// want receives an answer and compares it. An error is compared by errors.Is.
func want(t *testing.T, whose string, answers <-chan answer, value string, err error) {
	t.Helper()
	if got := <-answers; got.value != value || !errors.Is(got.err, err) {
		t.Errorf("%s: %q, %v; want %q, %v", whose, got.value, got.err, value, err)
	}
}

// The items that come while a batch runs are the next batch.
func TestNextBatch(t *testing.T) {
	testBatcher(t, limits, func(t *testing.T, d *desk, g *Batcher[int, string]) {
		answers := make([]<-chan answer, 6)
		for i := range answers {
			answers[i] = ask(t.Context(), g, "k", i)
		}
		for range 3 {
			d.turn <- struct{}{}
		}
		for i, c := range answers {
			want(t, "the answer in turn", c, string(rune('a'+i)), nil)
		}
		check.Same(t, "batches", d.batches["k"], [][]int{{0}, {1, 2, 3}, {4, 5}})
		check.Same(t, "batches of one key at once", d.most, 1)
		synctest.Wait()
		check.Same(t, "queues left", len(g.queues), 0)
	})
}

// A batch that is not full waits for more items, for the time that its first item asks for.
func TestGather(t *testing.T) {
	gather := func(first int) time.Duration { return time.Duration(first) * time.Millisecond }
	for _, tc := range []struct {
		items   []int
		batches [][]int
		waits   time.Duration
	}{
		{[]int{1}, [][]int{{1}}, time.Millisecond},
		{[]int{2, 0}, [][]int{{2, 0}}, 2 * time.Millisecond},
		{[]int{0, 5}, [][]int{{0}, {5}}, 5 * time.Millisecond},
		{[]int{0, 5, 6, 7, 3, 1}, [][]int{{0}, {5, 6, 7}, {3, 1}}, 3 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := &desk{batches: map[string][][]int{}, turn: make(chan struct{})}
			g, began := New(limits, d.do), time.Now()
			g.Gather = gather
			answers := make([]<-chan answer, len(tc.items))
			for i, item := range tc.items {
				answers[i] = ask(t.Context(), g, "k", item)
			}
			close(d.turn)
			for i, c := range answers {
				want(t, "the answer in turn", c, string(rune('a'+tc.items[i])), nil)
			}
			check.Same(t, "batches", d.batches["k"], tc.batches)
			check.Same(t, "the wait", time.Since(began), tc.waits)
			g.Close(time.Second)
		})
	}
}

func TestBounds(t *testing.T) {
	for _, calls := range []int{1, 2} {
		bounds := limits
		bounds.Calls = calls
		testBatcher(t, bounds, func(t *testing.T, d *desk, g *Batcher[int, string]) {
			answers := make([]<-chan answer, calls+bounds.Queue)
			for i := range answers {
				answers[i] = ask(t.Context(), g, "k", i)
			}
			check.Same(t, "batches under way", d.most, calls)
			want(t, "one too many", ask(t.Context(), g, "k", 9), "", ErrFull)
			other := ask(t.Context(), g, "another key", 9)
			close(d.turn)
			want(t, "another key", other, "j", nil)
			for i, c := range answers {
				want(t, "the answer in turn", c, string(rune('a'+i)), nil)
			}
			g.Close(time.Second)
			want(t, "after the end", ask(t.Context(), g, "k", 1), "", ErrClosed)
		})
	}
}

// A caller who leaves does not affect the others: they get their results, and the caller's item is done.
func TestCallerLeaves(t *testing.T) {
	testBatcher(t, limits, func(t *testing.T, d *desk, g *Batcher[int, string]) {
		ctx, leave := context.WithCancel(t.Context())
		leaver := ask(ctx, g, "k", 1)
		waiter, stayer := ask(ctx, g, "k", 2), ask(t.Context(), g, "k", 3)
		leave()
		want(t, "a caller who leaves a batch", leaver, "", context.Canceled)
		want(t, "a caller who leaves the queue", waiter, "", context.Canceled)
		close(d.turn)
		want(t, "a caller who stays", stayer, "d", nil)
		want(t, "a caller who has left before", ask(ctx, g, "k", 4), "", context.Canceled)
		check.Same(t, "batches", d.batches["k"], [][]int{{1}, {2, 3}})
	})
}

// An error of a batch is returned to all its callers, and to no others.
func TestErrorOfABatch(t *testing.T) {
	testBatcher(t, limits, func(t *testing.T, d *desk, g *Batcher[int, string]) {
		alone, unlucky, beside := ask(t.Context(), g, "k", 1), ask(t.Context(), g, "k", 13), ask(t.Context(), g, "k", 2)
		close(d.turn)
		want(t, "the batch before", alone, "b", nil)
		want(t, "the unlucky caller", unlucky, "", errUnlucky)
		want(t, "the other caller of the batch", beside, "", errUnlucky)
	})
}

func TestTimeOfABatch(t *testing.T) {
	testBatcher(t, limits, func(t *testing.T, _ *desk, g *Batcher[int, string]) {
		start := time.Now()
		want(t, "a batch that never ends", ask(t.Context(), g, "k", 1), "", context.DeadlineExceeded)
		check.Same(t, "duration", time.Since(start), limits.Time)
	})
}

// Close waits for the batches under way, and cancels them when its time is over.
func TestClose(t *testing.T) {
	testBatcher(t, limits, func(t *testing.T, d *desk, g *Batcher[int, string]) {
		first, second := ask(t.Context(), g, "k", 1), ask(t.Context(), g, "k", 2)
		closed := make(chan time.Duration)
		go func() {
			start := time.Now()
			g.Close(time.Second / 2)
			closed <- time.Since(start)
		}()
		synctest.Wait()
		d.turn <- struct{}{}
		want(t, "a batch under way", first, "b", nil)
		want(t, "a batch that never ends", second, "", context.Canceled)
		check.Same(t, "duration of the close", <-closed, time.Second/2)
	})
}
