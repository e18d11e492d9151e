package embedded

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

// slack is what a busy machine may add to each wait.
const slack = 5 * time.Second

func start(t *testing.T) (*Redis, *redis.Client) {
	t.Helper()
	server, err := StartRedis()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	opts, err := redis.ParseURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(opts)
	t.Cleanup(func() { _ = client.Close() })
	return server, client
}

// TestKeysEnd holds the windows of requests to their length, give or take a step of the clock.
func TestKeysEnd(t *testing.T) {
	const window = 300 * time.Millisecond
	_, client := start(t)
	for range 3 {
		begun := time.Now()
		if set, err := client.SetNX(t.Context(), "counter", 1, window).Result(); err != nil || !set {
			t.Fatal(set, err)
		}
		for {
			n, err := client.Exists(t.Context(), "counter").Result()
			if err != nil {
				t.Fatal(err)
			}
			lasted := time.Since(begun)
			if n == 0 && lasted < window-2*clockStep { // one step, and the ticker may be late by another
				t.Errorf("the key was gone after %s", lasted)
			}
			if lasted > window+slack {
				t.Fatal("the key is there still")
			}
			if n == 0 {
				break
			}
		}
	}
}

// TestEndsAreExact: an end that was set as a point in time is told as that point, however the clock moves meanwhile.
func TestEndsAreExact(t *testing.T) {
	_, client := start(t)
	ctx := t.Context()
	end := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	if err := client.Set(ctx, "gate", 1, 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.PExpireAt(ctx, "gate", end).Err(); err != nil {
		t.Fatal(err)
	}
	for begun := time.Now(); time.Since(begun) < 4*clockStep; {
		got, err := client.PExpireTime(ctx, "gate").Result()
		if off := got.Milliseconds() - end.UnixMilli(); err != nil || off < -1 || off > 1 {
			t.Fatalf("it ends %d ms off, %v", off, err)
		}
	}
}

// TestTimeIsExact: by it sales start and end, whoever asks: a client, or a script as the gate's.
func TestTimeIsExact(t *testing.T) {
	_, client := start(t)
	for begun := time.Now(); time.Since(begun) < 4*clockStep; {
		before := time.Now().Truncate(time.Microsecond)
		asked, err := client.Time(t.Context()).Result()
		if err != nil || asked.Before(before) || asked.After(time.Now()) {
			t.Fatalf("its clock says %s at %s, %v", asked, before, err)
		}
		before = time.Now().Truncate(time.Microsecond)
		parts, err := client.Eval(t.Context(), "return redis.call('TIME')", nil).Int64Slice()
		if err != nil || len(parts) != 2 {
			t.Fatal(parts, err)
		}
		if now := time.Unix(parts[0], 1000*parts[1]); now.Before(before) || now.After(time.Now()) {
			t.Fatalf("in a script its clock says %s at %s", now, before)
		}
	}
}

func TestNothingRunsAfterClose(t *testing.T) {
	defer goleak.VerifyNone(t)
	server, err := StartRedis()
	if err != nil {
		t.Fatal(err)
	}
	server.Close()
	server.Close() // harmless
}
