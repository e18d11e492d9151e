package service

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
)

// A follower that is busy misses what came and went, and never the last.
func TestNewest(t *testing.T) {
	n := NewNewest(1)
	value, replaced := n.Get()
	if value != 1 || isClosed(replaced) {
		t.Errorf("%d at first, replaced %t", value, isClosed(replaced))
	}
	for _, next := range []int{2, 3} {
		n.Set(next)
	}
	if !isClosed(replaced) {
		t.Error("nobody was told of a newer value")
	}
	if value, replaced = n.Get(); value != 3 || isClosed(replaced) {
		t.Errorf("%d at last, replaced %t", value, isClosed(replaced))
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// However many follow and whoever sets, each sees the last value, and none an older one after a newer.
func TestNewestAtOnce(t *testing.T) {
	const followers, last = 50, 1000
	n := NewNewest(0)
	var all sync.WaitGroup
	for range followers {
		all.Go(func() {
			for seen := 0; seen < last; {
				value, replaced := n.Get()
				if value < seen {
					t.Errorf("%d after %d", value, seen)
				}
				if seen = value; seen < last {
					<-replaced
				}
			}
		})
	}
	for i := range last {
		n.Set(i + 1)
	}
	all.Wait()
}

// A key has one source while it is followed, from the first to the last; other keys have their own.
func TestWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		running, started := map[string]int{}, map[string]int{}
		begin := make(chan struct{})
		w := NewWatches(func(ctx context.Context, key string, to *Newest[string]) {
			<-begin
			running[key]++
			started[key]++
			to.Set("of " + key)
			<-ctx.Done()
			running[key]--
		})
		expect := func(what string, key string, wantRunning, wantStarted int) {
			t.Helper()
			synctest.Wait()
			if running[key] != wantRunning || started[key] != wantStarted {
				t.Errorf("%s: of %s %d run, %d were started; want %d and %d", what, key, running[key], started[key], wantRunning, wantStarted)
			}
		}
		one, leaveOne := w.Follow("a")
		if value, _ := one.Get(); value != "" {
			t.Errorf("%q before the source has said anything", value)
		}
		close(begin)
		expect("the first", "a", 1, 1)
		two, leaveTwo := w.Follow("a")
		expect("another", "a", 1, 1)
		other, leaveOther := w.Follow("b")
		expect("another key", "b", 1, 1)
		for name, n := range map[string]*Newest[string]{"of a": one, "of b": other} {
			if value, _ := n.Get(); value != name {
				t.Errorf("%q, want %q", value, name)
			}
		}
		if one != two {
			t.Error("two followers of a key see two values")
		}
		leaveOne()
		expect("one of two has left", "a", 1, 1)
		leaveTwo()
		if running["a"] != 0 { // leave has waited
			t.Error("the last has left, and the source runs")
		}
		_, leaveAgain := w.Follow("a")
		expect("somebody comes again", "a", 1, 2)
		leaveAgain()
		leaveOther()
		if running["a"]+running["b"] != 0 || len(w.running) != 0 {
			t.Errorf("nobody follows: %v run, %d are kept", running, len(w.running))
		}
	})
}

// A source that has ended by itself is no trouble for those who leave later.
func TestWatchesSourceThatEnds(t *testing.T) {
	w := NewWatches(func(_ context.Context, _ string, to *Newest[bool]) { to.Set(true) })
	n, leave := w.Follow("a")
	over, replaced := n.Get()
	for ; !over; over, replaced = n.Get() {
		<-replaced
	}
	leave()
}

// Followers that come and go at the same time leave nothing behind.
func TestWatchesAtOnce(t *testing.T) {
	w := NewWatches(func(ctx context.Context, _ string, to *Newest[int]) {
		to.Set(1)
		<-ctx.Done()
	})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				n, leave := w.Follow("a")
				if value, replaced := n.Get(); value == 0 {
					<-replaced
				}
				leave()
			}
		})
	}
	all.Wait()
	if len(w.running) != 0 {
		t.Errorf("%d are kept", len(w.running))
	}
}
