package worker

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/test/kit/check"
)

// A loop steps at once, after each period, and when poked. The log tells when a failure begins and when it ends.
func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, poke := &check.Log{}, make(chan struct{}, 1)
		var at []time.Duration
		var failing atomic.Pointer[error]
		start := time.Now()
		step := func(context.Context) error {
			at = append(at, time.Since(start))
			return *failing.Load()
		}
		fail := func(err error) { failing.Store(&err) }
		fail(nil)
		during(t, func(ctx context.Context) { every(ctx, "it", time.Second, poke, slog.New(log), step) }, func() {
			pass(1300 * time.Millisecond)
			poke <- struct{}{}
			synctest.Wait()
			fail(errAway)
			pass(2 * time.Second)
			fail(nil)
			pass(2 * time.Second)
		})
		ms := time.Millisecond
		check.Same(t, "the steps", at, []time.Duration{0, 1000 * ms, 1300 * ms, 2000 * ms, 3000 * ms, 4000 * ms, 5000 * ms})
		check.Same(t, "the log", log.Lines(), []string{"ERROR it fails", "INFO it works again"})
	})
}

// A loop that reads all live sales has longer periods while very many sales are live.
func TestEveryPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		var sales atomic.Int64
		start := time.Now()
		step := func(context.Context) error {
			at = append(at, time.Since(start)/time.Second)
			return nil
		}
		count := func() int { return int(sales.Load()) }
		during(t, func(ctx context.Context) {
			everyPaced(ctx, "it", time.Second, count, nil, slog.New(&check.Log{}), step)
		}, func() {
			for _, n := range []int64{2*paceSales - 1, 2 * paceSales, 100 * paceSales, 1} {
				sales.Store(n)
				pass(5 * time.Second)
			}
		})
		// Until 5 s each second, then each second one, then each fourth; a change counts after the step that follows it.
		check.Same(t, "the seconds of the steps", at, []time.Duration{0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 17, 18, 19, 20})
	})
}

// A step that fails because its context has ended is not logged as a failure.
func TestEveryEndsQuietly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &check.Log{}
		step := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		during(t, func(ctx context.Context) { every(ctx, "it", time.Second, nil, slog.New(log), step) }, func() {})
		check.Same(t, "the log", log.Lines(), nil)
	})
}
