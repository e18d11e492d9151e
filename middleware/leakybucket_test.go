package middleware

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/test/kit/check"
)

// gap is the time between two requests at a rate of 10 per second.
const gap = 100 * time.Millisecond

// gaps are the times at which n requests pass one by one.
func gaps(n int) (passed []time.Duration) {
	for i := range n {
		passed = append(passed, time.Duration(i)*gap)
	}
	return passed
}

// arrive sends n requests at one instant. It returns after which time each passed, and the other answers, which come at once.
func arrive(t *testing.T, engine *gin.Engine, n int) (passed []time.Duration, refused map[string]int) {
	t.Helper()
	type reply struct {
		body  string
		after time.Duration
	}
	replies := make(chan reply, n)
	start := time.Now()
	for range n {
		go func() { replies <- reply{answer(t, engine), time.Since(start)} }()
		synctest.Wait() // until the request waits or is answered
	}
	refused = map[string]int{}
	for range n {
		r := <-replies
		if r.body == "ok" {
			passed = append(passed, r.after)
			continue
		}
		check.Same(t, r.body+": time until the answer", r.after, 0)
		refused[r.body]++
	}
	return passed, refused
}

func TestLeakyBucketTriesOnce(t *testing.T) {
	const ms = time.Millisecond
	inSteps(t, func() gin.HandlerFunc { return LeakyBucket(2, 3, 0) }, []step{
		{"first", 0, "ok", ""},
		{"at once", 0, "rate_limited after 500ms", ""},
		{"a refusal takes no turn", 0, "rate_limited after 500ms", ""},
		{"too early", 250 * ms, "rate_limited after 250ms", ""},
		{"just too early", 249 * ms, "rate_limited after 1ms", ""},
		{"in time", ms, "ok", ""},
		{"at once again", 0, "rate_limited after 500ms", ""},
		{"after a pause", time.Minute, "ok", ""},
		{"a pause saves no turns", 0, "rate_limited after 500ms", ""},
	})
}

// The leaky bucket bounds how many requests wait, and how long each waits.
func TestLeakyBucketIsBounded(t *testing.T) {
	type test struct {
		capacity int
		wait     time.Duration
		passed   int
		refused  string // the answer to the other requests
	}
	check.EachInBubble(t, map[string]test{
		"room for three":              {3, time.Minute, 4, "rate_limited after 400ms"},
		"room for one":                {1, time.Minute, 2, "rate_limited after 200ms"},
		"time for three":              {100, 350 * time.Millisecond, 4, "rate_limited after 400ms"},
		"room for four, time for two": {4, 200 * time.Millisecond, 3, "rate_limited after 300ms"},
		"room for two, time for five": {2, 500 * time.Millisecond, 3, "rate_limited after 300ms"},
		"no time":                     {100, 0, 1, "rate_limited after 100ms"},
	}, func(t *testing.T, tc test) {
		const all = 20
		engine := newEngine(LeakyBucket(10, tc.capacity, tc.wait))
		for range 2 { // again when all have left
			passed, refused := arrive(t, engine, all)
			check.Same(t, "passed", passed, gaps(tc.passed))
			check.Same(t, "refused", refused, map[string]int{tc.refused: all - tc.passed})
			time.Sleep(gap)
		}
	})
}

// A client that leaves while it waits gives its turn, and its place in the bucket, to the next request.
func TestBucketsClientLeaves(t *testing.T) {
	type test struct {
		bucket func(float64, int, time.Duration) gin.HandlerFunc
		full   string // the answer to another request meanwhile, if not empty
	}
	check.EachInBubble(t, map[string]test{
		"leaky": {LeakyBucket, "rate_limited after 2s"},
		"token": {TokenBucket, ""},
	}, func(t *testing.T, tc test) {
		engine := newEngine(tc.bucket(1, 1, 10*time.Second))
		start := time.Now()
		answer(t, engine)
		ctx, leave := context.WithCancel(t.Context())
		leaver := newRequest(t).WithContext(ctx)
		left := make(chan string)
		go func() { left <- serve(engine, leaver).Body.String() }()
		synctest.Wait()
		if tc.full != "" {
			check.Same(t, "while the bucket is full", answer(t, engine), tc.full)
		}
		leave()
		check.Same(t, "the client that left", <-left, "failed: context canceled")
		check.Same(t, "the next request", answer(t, engine), "ok")
		check.Same(t, "time until the next request passed", time.Since(start), time.Second)
	})
}
