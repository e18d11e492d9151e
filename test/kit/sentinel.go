package kit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

const (
	// primaryName is the name of the primary in the sentinels' configuration.
	primaryName = "shop"
	// sentinels is the smallest number that outvotes one wrong sentinel.
	sentinels = 3
)

// RedisBehindSentinels is a primary with a replica and three sentinels. The sentinels promote the replica when the
// primary has been gone for half a second and they have agreed on it.
type RedisBehindSentinels struct {
	Primary, Replica *RedisServer // their roles at the start

	t         testing.TB
	sentinels []*RedisServer
}

// SentinelRedis starts the servers for this test, which takes some seconds, and ends them with the test.
func SentinelRedis(t testing.TB) *RedisBehindSentinels {
	t.Helper()
	s := &RedisBehindSentinels{t: t, Primary: Redis(t, "--repl-diskless-sync-delay", "0")}
	s.Replica = ReplicaOf(t, s.Primary)
	for range sentinels {
		s.sentinels = append(s.sentinels, sentinelOf(t, s.Primary))
	}
	s.each("the sentinels know each other and the replica", func(ctx context.Context, c *redis.SentinelClient) error {
		master, err := c.Master(ctx, primaryName).Result()
		if err == nil && (master["num-other-sentinels"] != fmt.Sprint(sentinels-1) ||
			master["num-slaves"] != "1" || master["flags"] != "master") {
			err = fmt.Errorf("%v", master)
		}
		return err
	})
	return s
}

// sentinelOf starts a sentinel, which stores its state in its configuration file.
func sentinelOf(t testing.TB, primary *RedisServer) *RedisServer {
	t.Helper()
	s := newRedis(t)
	settings := filepath.Join(s.dir, "sentinel.conf")
	text := fmt.Sprintf(`dir %[1]s
sentinel monitor %[2]s 127.0.0.1 %[3]d 2
sentinel down-after-milliseconds %[2]s 500
sentinel failover-timeout %[2]s 3000
`, s.dir, primaryName, primary.Port())
	must(t, "configure a sentinel", os.WriteFile(settings, []byte(text), 0o600))
	s.args = []string{settings, "--sentinel", "--bind", "127.0.0.1"}
	s.startFor(t)
	return s
}

// each waits until a check of every sentinel returns nil.
func (s *RedisBehindSentinels) each(what string, check func(ctx context.Context, c *redis.SentinelClient) error) {
	s.t.Helper()
	for _, one := range s.sentinels {
		client := redis.NewSentinelClient(&redis.Options{Addr: one.Addr()})
		await(s.t, what, func(ctx context.Context) error { return check(ctx, client) })
		_ = client.Close()
	}
}

// URL returns the sentinels' addresses and the primary's name, in the form of the settings.
func (s *RedisBehindSentinels) URL() string {
	hosts := make([]string, len(s.sentinels))
	for i, one := range s.sentinels {
		hosts[i] = one.Addr()
	}
	return "redis+sentinel://" + strings.Join(hosts, ",") + "/" + primaryName + "/0"
}

// AwaitPromotion returns when every sentinel reports the replica as the primary.
func (s *RedisBehindSentinels) AwaitPromotion() {
	s.t.Helper()
	s.each("the replica is promoted", func(ctx context.Context, c *redis.SentinelClient) error {
		addr, err := c.GetMasterAddrByName(ctx, primaryName).Result()
		if err == nil && net.JoinHostPort(addr[0], addr[1]) != s.Replica.Addr() {
			err = fmt.Errorf("the primary is still %v", addr)
		}
		return err
	})
}

// ReplicaOf starts a replica of a server and returns when the replica has copied the server's data.
func ReplicaOf(t testing.TB, primary *RedisServer, args ...string) *RedisServer {
	t.Helper()
	replica := Redis(t, append([]string{"--replicaof", "127.0.0.1", fmt.Sprint(primary.Port())}, args...)...)
	client := redis.NewClient(&redis.Options{Addr: replica.Addr()})
	defer func() { _ = client.Close() }()
	await(t, "the replica follows", func(ctx context.Context) error { return follows(ctx, client) })
	return replica
}

// follows returns an error unless a replica has a link to its primary.
func follows(ctx context.Context, replica *redis.Client) error {
	info, err := replica.Info(ctx, "replication").Result()
	if err == nil && !strings.Contains(info, "master_link_status:up") {
		err = errors.New(info)
	}
	return err
}
