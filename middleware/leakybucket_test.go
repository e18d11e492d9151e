package middleware

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"
)

// TestBucketsShape shows what becomes of eight who come at once after a lull: the leaky bucket lets them through one
// by one, the token bucket hands on as many as its burst.
func TestBucketsShape(t *testing.T) {
	const rate, size, wait = 10, 8, time.Minute
	const gap = time.Second / rate
	tests := map[string]struct {
		stage gin.HandlerFunc
		want  []time.Duration // after they came
	}{
		"leaky": {LeakyBucket(rate, size, wait), []time.Duration{0, gap, 2 * gap, 3 * gap, 4 * gap, 5 * gap, 6 * gap, 7 * gap}},
		"token": {TokenBucket(rate, size, wait), make([]time.Duration, size)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				engine := newEngine(t, tc.stage)
				for _, lull := range []time.Duration{0, time.Minute} { // at the start, and when it has been used
					<-time.After(lull)
					if got := arrive(t, engine, len(tc.want)).passed; !slices.Equal(got, tc.want) {
						t.Errorf("after a lull of %s they passed after %v, want %v", lull, got, tc.want)
					}
				}
			})
		})
	}
}

// arrivals are how requests that came at once ended.
type arrivals struct {
	passed  []time.Duration // in order
	refused map[string]int  // by what they were told; all at once
}

// arrive sends n requests at one instant, one after the other.
func arrive(t *testing.T, engine *gin.Engine, n int) arrivals {
	t.Helper()
	type answer struct {
		body  string
		after time.Duration
	}
	answers := make(chan answer, n)
	start := time.Now()
	for range n {
		go func() {
			body := serve(engine, newRequest(t)).Body.String()
			answers <- answer{body, time.Since(start)}
		}()
		synctest.Wait() // until it waits or has its answer
	}
	all := arrivals{refused: map[string]int{}}
	for range n {
		switch a := <-answers; {
		case a.body == "ok":
			all.passed = append(all.passed, a.after)
		case a.after != 0:
			t.Errorf("%q only after %s", a.body, a.after)
		default:
			all.refused[a.body]++
		}
	}
	return all
}

func TestLeakyBucketTriesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := newEngine(t, LeakyBucket(2, 3, 0))
		steps := []struct {
			name  string
			pause time.Duration
			want  string
		}{
			{"the first", 0, "ok"},
			{"at once behind it", 0, "rate_limited after 500ms"},
			{"a refusal takes no turn", 0, "rate_limited after 500ms"},
			{"too early", 250 * time.Millisecond, "rate_limited after 250ms"},
			{"just too early", 249 * time.Millisecond, "rate_limited after 1ms"},
			{"in time", time.Millisecond, "ok"},
			{"and no more", 0, "rate_limited after 500ms"},
			{"after a lull", time.Minute, "ok"},
			{"a lull saves nothing up", 0, "rate_limited after 500ms"},
		}
		for _, step := range steps {
			<-time.After(step.pause)
			if got := serve(engine, newRequest(t)).Body.String(); got != step.want {
				t.Errorf("%s: %q, want %q", step.name, got, step.want)
			}
		}
	})
}

// TestLeakyBucketIsBounded by how many wait, and by how long each of them does.
func TestLeakyBucketIsBounded(t *testing.T) {
	const rate, gap = 10, 100 * time.Millisecond
	tests := map[string]struct {
		capacity int
		wait     time.Duration
		passed   []time.Duration
		refused  string // what the others are told, all at once
	}{
		"room for three":         {3, time.Minute, []time.Duration{0, gap, 2 * gap, 3 * gap}, "rate_limited after 400ms"},
		"room for one":           {1, time.Minute, []time.Duration{0, gap}, "rate_limited after 200ms"},
		"time for three":         {100, 350 * time.Millisecond, []time.Duration{0, gap, 2 * gap, 3 * gap}, "rate_limited after 400ms"},
		"time for two and room":  {4, 200 * time.Millisecond, []time.Duration{0, gap, 2 * gap}, "rate_limited after 300ms"},
		"time for five, no room": {2, 500 * time.Millisecond, []time.Duration{0, gap, 2 * gap}, "rate_limited after 300ms"},
		"no time":                {100, 0, []time.Duration{0}, "rate_limited after 100ms"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const all = 20
				engine := newEngine(t, LeakyBucket(rate, tc.capacity, tc.wait))
				got := arrive(t, engine, all)
				if !slices.Equal(got.passed, tc.passed) {
					t.Errorf("passed after %v, want %v", got.passed, tc.passed)
				}
				if got.refused[tc.refused] != all-len(tc.passed) {
					t.Errorf("refused were %v, want %q alone", got.refused, tc.refused)
				}
				<-time.After(gap)
				if again := arrive(t, engine, all); !slices.Equal(again.passed, tc.passed) {
					t.Errorf("when all have left, passed after %v, want %v", again.passed, tc.passed)
				}
			})
		})
	}
}

// TestLeakyBucketClientLeaves: its place in the bucket and its turn go to the next.
func TestLeakyBucketClientLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := newEngine(t, LeakyBucket(1, 1, 10*time.Second))
		start := time.Now()
		serve(engine, newRequest(t))

		ctx, leave := context.WithCancel(t.Context())
		leaver := newRequest(t).WithContext(ctx)
		left := make(chan string)
		go func() { left <- serve(engine, leaver).Body.String() }()
		synctest.Wait()
		if got, want := serve(engine, newRequest(t)).Body.String(), "rate_limited after 2s"; got != want {
			t.Errorf("while the bucket is full: %q, want %q", got, want)
		}
		leave()
		if got, want := <-left, "failed: context canceled"; got != want {
			t.Errorf("%q, want %q", got, want)
		}

		if got := serve(engine, newRequest(t)).Body.String(); got != "ok" {
			t.Errorf("the next one: %q", got)
		}
		if waited := time.Since(start); waited != time.Second {
			t.Errorf("the next one waited for %s; the turn of the one who left was not given back", waited)
		}
	})
}
