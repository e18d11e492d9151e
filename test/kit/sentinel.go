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
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// primaryName is the name of the primary in the sentinels' configuration.
	primaryName = "shop"
	// sentinels is the smallest number that outvotes one wrong sentinel.
	sentinels = 3
	// togetherTimeout is far longer than the seconds that servers need to find each other.
	togetherTimeout = 30 * time.Second
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
		one, err := startSentinel(s.Primary)
		if err != nil {
			t.Fatal(err)
		}
		one.t = t
		t.Cleanup(func() {
			if err := one.end(); err != nil {
				t.Errorf("end a sentinel: %v", err)
			}
		})
		s.sentinels = append(s.sentinels, one)
	}
	for _, one := range s.sentinels {
		client := redis.NewSentinelClient(&redis.Options{Addr: one.Addr()})
		await(t, "the sentinels know each other and the replica", func(ctx context.Context) error {
			master, err := client.Master(ctx, primaryName).Result()
			if err == nil && (master["num-other-sentinels"] != fmt.Sprint(sentinels-1) || master["num-slaves"] != "1" || master["flags"] != "master") {
				err = fmt.Errorf("%v", master)
			}
			return err
		})
		_ = client.Close()
	}
	return s
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
	for _, one := range s.sentinels {
		client := redis.NewSentinelClient(&redis.Options{Addr: one.Addr()})
		await(s.t, "the replica is promoted", func(ctx context.Context) error {
			addr, err := client.GetMasterAddrByName(ctx, primaryName).Result()
			if err == nil && net.JoinHostPort(addr[0], addr[1]) != s.Replica.Addr() {
				err = fmt.Errorf("the primary is still %v", addr)
			}
			return err
		})
		_ = client.Close()
	}
}

// ReplicaOf starts a replica of a server and returns when the replica has copied the server's data.
func ReplicaOf(t testing.TB, primary *RedisServer, args ...string) *RedisServer {
	t.Helper()
	replica := Redis(t, append([]string{"--replicaof", "127.0.0.1", fmt.Sprint(primary.Port())}, args...)...)
	client := redis.NewClient(&redis.Options{Addr: replica.Addr()})
	defer func() { _ = client.Close() }()
	await(t, "the replica follows", func(ctx context.Context) error {
		info, err := client.Info(ctx, "replication").Result()
		if err == nil && !strings.Contains(info, "master_link_status:up") {
			err = errors.New(info)
		}
		return err
	})
	return replica
}

func startSentinel(primary *RedisServer) (*RedisServer, error) {
	program, err := find("redis-server", "redis-server")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "flashsale-sentinel-")
	if err != nil {
		return nil, fmt.Errorf("start a sentinel: %w", err)
	}
	settings := filepath.Join(dir, "sentinel.conf") // a sentinel stores its state in this file
	text := fmt.Sprintf("dir %[1]s\nsentinel monitor %[2]s 127.0.0.1 %[3]d 2\nsentinel down-after-milliseconds %[2]s 500\nsentinel failover-timeout %[2]s 3000\n",
		dir, primaryName, primary.Port())
	if err := os.WriteFile(settings, []byte(text), 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("start a sentinel: %w", err), os.RemoveAll(dir))
	}
	s := &RedisServer{&server{program: program, dir: dir, args: []string{settings, "--sentinel", "--bind", "127.0.0.1"}}}
	s.answers = s.answersInfo
	return s, s.start()
}

// answersInfo is ping for a sentinel, which does not support QUIT.
func (s *RedisServer) answersInfo(ctx context.Context) error {
	client := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1, DialerRetries: 1})
	defer func() { _ = client.Close() }()
	info, err := client.Info(ctx, "server").Result()
	if err == nil && !strings.Contains(info, fmt.Sprintf("process_id:%d\r\n", s.cmd.Process.Pid)) {
		err = fmt.Errorf("not our sentinel on %s", s.Addr())
	}
	return err
}

// await polls check until it returns nil, for states that servers reach among themselves and do not announce.
func await(t testing.TB, what string, check func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), togetherTimeout)
	defer cancel()
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		select {
		case <-time.After(pollEvery):
		case <-ctx.Done():
			t.Fatalf("%s: not within %s: %v", what, togetherTimeout, err)
		}
	}
}
