package service

import (
	"context"
	"testing"
	"testing/synctest"

	"flashsale/test/kit/check"
)

// A busy follower misses values that were replaced meanwhile, but never the last one.
func TestNewest(t *testing.T) {
	n := NewNewest(1)
	holds := func(want int) (replaced <-chan struct{}) {
		t.Helper()
		value, replaced := n.Get()
		check.Same(t, "value", value, want)
		check.Same(t, "the value is replaced", isClosed(replaced), false)
		return replaced
	}
	replaced := holds(1)
	n.Set(2)
	n.Set(3)
	check.Same(t, "the first value is replaced", isClosed(replaced), true)
	holds(3)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Every follower sees the last value, and no follower an older value after a newer one.
func TestNewestAtOnce(t *testing.T) {
	const followers, last = 50, 1000
	n := NewNewest(0)
	check.Together(1+followers, func(i int) {
		if i == 0 {
			for value := range last {
				n.Set(value + 1)
			}
			return
		}
		for seen := 0; seen < last; {
			value, replaced := n.Get()
			if value < seen {
				t.Errorf("value %d after %d", value, seen)
			}
			if seen = value; seen < last {
				<-replaced
			}
		}
	})
}

// A key has one source from its first follower to its last, and other keys have their own.
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
		expect := func(what, key string, wantRunning, wantStarted int) {
			t.Helper()
			synctest.Wait()
			check.Same(t, what+": running and started sources", [2]int{running[key], started[key]}, [2]int{wantRunning, wantStarted})
		}
		valueOf := func(n *Newest[string]) string {
			value, _ := n.Get()
			return value
		}
		one, leaveOne := w.Follow("a")
		check.Same(t, "value before the source sets one", valueOf(one), "")
		close(begin)
		expect("first follower", "a", 1, 1)
		two, leaveTwo := w.Follow("a")
		expect("second follower", "a", 1, 1)
		other, leaveOther := w.Follow("b")
		expect("follower of another key", "b", 1, 1)
		check.Same(t, "value of a", valueOf(one), "of a")
		check.Same(t, "value of b", valueOf(other), "of b")
		check.Same(t, "both followers have one value", two == one, true)
		leaveOne()
		expect("one of two has left", "a", 1, 1)
		leaveTwo()
		check.Same(t, "sources when leave returns", running["a"], 0)
		_, leaveAgain := w.Follow("a")
		expect("a follower comes again", "a", 1, 2)
		leaveAgain()
		leaveOther()
		check.Same(t, "sources without followers", running["a"]+running["b"]+len(w.running), 0)
	})
}

// A follower may leave after its source has ended by itself.
func TestWatchesSourceThatEnds(t *testing.T) {
	w := NewWatches(func(_ context.Context, _ string, to *Newest[bool]) { to.Set(true) })
	n, leave := w.Follow("a")
	over, replaced := n.Get()
	for ; !over; over, replaced = n.Get() {
		<-replaced
	}
	leave()
}

func TestWatchesAtOnce(t *testing.T) {
	w := NewWatches(func(ctx context.Context, _ string, to *Newest[int]) {
		to.Set(1)
		<-ctx.Done()
	})
	check.Together(8, func(int) {
		for range 200 {
			n, leave := w.Follow("a")
			if value, replaced := n.Get(); value == 0 {
				<-replaced
			}
			leave()
		}
	})
	check.Same(t, "sources without followers", len(w.running), 0)
}
