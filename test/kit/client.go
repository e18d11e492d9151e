package kit

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"flashsale/test/kit/check"
)

// RedisClient returns a client of a single Redis for the test. It tries as often as an instance does, but waits much longer: a
// call that is repeated, because the machine stood still, would have another answer.
func RedisClient(t testing.TB, url string) *redis.Client {
	t.Helper()
	opts, err := redis.ParseURL(url)
	check.NoError(t, err)
	opts.DialTimeout, opts.ReadTimeout, opts.WriteTimeout = check.Patience, check.Patience, check.Patience
	opts.MaxRetries, opts.DialerRetries, opts.PoolSize, opts.ContextTimeoutEnabled = 1, 1, 64, true
	client := redis.NewClient(opts)
	t.Cleanup(func() { _ = client.Close() })
	return client
}
