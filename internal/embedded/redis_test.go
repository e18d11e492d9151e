package embedded

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"flashsale/test/kit/check"
	"flashsale/test/kit/pace"
)

// slack is how much longer each wait may take on a busy machine.
const slack = 5 * time.Second

func start(t testing.TB) *redis.Client {
	t.Helper()
	server := check.Must(StartRedis())
	t.Cleanup(server.Close)
	opts := check.Must(redis.ParseURL(server.URL()))
	opts.ReadTimeout = check.Patience // a command that is repeated would have another answer
	client := redis.NewClient(opts)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// A key expires after its time to live, up to two steps of the clock earlier: the windows of requests depend on this.
func TestKeysEnd(t *testing.T) {
	pace.Try(t, func(t *pace.Trial) {
		const window = 300 * time.Millisecond
		client := start(t)
		for range 3 {
			begun := time.Now()
			check.Same(t, "the key is new", check.Must(client.SetNX(t.Context(), "counter", 1, window).Result()), true)
			for {
				n := check.Must(client.Exists(t.Context(), "counter").Result())
				lasted := time.Since(begun)
				if n == 0 && lasted < window-2*clockStep || n > 0 && lasted > window+slack { // the ticker may be late by a step
					t.FatalSlowf("after %s there are %d keys", lasted, n)
				}
				if n == 0 {
					break
				}
			}
		}
	})
}

// An expiry that was set as a point in time is returned as this point, while the clock moves.
func TestEndsAreExact(t *testing.T) {
	client := start(t)
	ctx := t.Context()
	end := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	check.Done(errors.Join(client.Set(ctx, "gate", 1, 0).Err(), client.PExpireAt(ctx, "gate", end).Err()))
	for begun := time.Now(); time.Since(begun) < 4*clockStep; {
		got, err := client.PExpireTime(ctx, "gate").Result()
		if off := got.Milliseconds() - end.UnixMilli(); err != nil || off < -1 || off > 1 {
			t.Fatalf("the expiry is %d ms off, %v", off, err)
		}
	}
}

// TIME is exact for clients and in scripts: sales start and end by it.
func TestTimeIsExact(t *testing.T) {
	client := start(t)
	for name, ask := range map[string]func() (time.Time, error){
		"a client": func() (time.Time, error) { return client.Time(t.Context()).Result() },
		"a script": func() (time.Time, error) {
			parts := check.Must(client.Eval(t.Context(), "return redis.call('TIME')", nil).Int64Slice())
			return time.Unix(parts[0], 1000*parts[1]), nil
		},
	} {
		for begun := time.Now(); time.Since(begun) < 4*clockStep; {
			before := time.Now().Truncate(time.Microsecond)
			if got, err := ask(); err != nil || got.Before(before) || got.After(time.Now()) {
				t.Fatalf("%s reads %s at %s, %v", name, got, before, err)
			}
		}
	}
}

func TestNothingRunsAfterClose(t *testing.T) {
	defer goleak.VerifyNone(t)
	server := check.Must(StartRedis())
	server.Close()
	server.Close() // harmless
}
