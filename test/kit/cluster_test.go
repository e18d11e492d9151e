package kit

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// Each of three masters serves some keys. When a master is killed, its replica takes its place.
func TestClusterFailsOver(t *testing.T) {
	t.Parallel()
	logging.Disable() // connection errors to the killed server are expected
	c := Cluster(t, 3, 1)
	served := map[*RedisServer]bool{}
	for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		served[c.Of(key)] = true
	}
	if len(served) != 3 {
		t.Errorf("%d nodes serve keys", len(served))
	}
	dead := c.Of("a")
	dead.Kill()
	client := redis.NewClient(&redis.Options{Addr: c.Nodes[len(c.Nodes)-1].Addr()})
	t.Cleanup(func() { _ = client.Close() })
	await(t, "another node serves the key", func(ctx context.Context) error {
		cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{client.Options().Addr}})
		defer func() { _ = cluster.Close() }()
		return cluster.Set(ctx, "a", "1", 0).Err()
	})
}

// When the primary is killed, the sentinels promote the replica.
func TestSentinelsPromote(t *testing.T) {
	t.Parallel()
	logging.Disable() // connection errors to the killed server are expected
	s := SentinelRedis(t)
	s.Primary.Kill()
	s.AwaitPromotion()
	client := redis.NewClient(&redis.Options{Addr: s.Replica.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	if err := client.Set(t.Context(), "key", "value", 0).Err(); err != nil {
		t.Error(err)
	}
}
