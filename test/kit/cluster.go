package kit

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// RedisCluster is a Redis Cluster whose nodes detect a dead node within some seconds. If a node is gone for good, the
// slots of the other nodes are still served.
type RedisCluster struct {
	Nodes []*RedisServer // masters first; their roles at the start

	t testing.TB
}

// Cluster starts a cluster for this test, which takes some seconds, and ends it with the test.
func Cluster(t testing.TB, masters, replicasEach int) *RedisCluster {
	t.Helper()
	c := &RedisCluster{t: t}
	var addrs []string
	for range masters * (1 + replicasEach) {
		bus, err := freePort() // an outgoing connection may have the default bus port, the node's port + 10000
		if err != nil {
			t.Fatal(err)
		}
		node := Redis(t, "--cluster-enabled", "yes", "--cluster-port", fmt.Sprint(bus), "--cluster-node-timeout", "1500",
			"--cluster-require-full-coverage", "no", "--repl-diskless-sync-delay", "0")
		c.Nodes, addrs = append(c.Nodes, node), append(addrs, node.Addr())
	}
	program, err := find("redis-cli", "redis-tools")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), togetherTimeout)
	defer cancel()
	args := append([]string{"--cluster", "create"}, addrs...)
	args = append(args, "--cluster-replicas", fmt.Sprint(replicasEach), "--cluster-yes")
	if out, err := exec.CommandContext(ctx, program, args...).CombinedOutput(); err != nil {
		t.Fatalf("make a cluster: %v: %s", err, out)
	}
	for i, node := range c.Nodes {
		c.awaitNode(node, i >= masters)
	}
	return c
}

func (c *RedisCluster) awaitNode(node *RedisServer, replica bool) {
	c.t.Helper()
	client := redis.NewClient(&redis.Options{Addr: node.Addr()})
	defer func() { _ = client.Close() }()
	await(c.t, "the cluster is whole", func(ctx context.Context) error {
		info, err := client.ClusterInfo(ctx).Result()
		if err == nil && (!strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d", len(c.Nodes)))) {
			err = fmt.Errorf("%s", info)
		}
		if err != nil || !replica {
			return err
		}
		if info, err = client.Info(ctx, "replication").Result(); err == nil && !strings.Contains(info, "master_link_status:up") {
			err = fmt.Errorf("%s", info)
		}
		return err
	})
}

// URL returns the addresses of all nodes in the form of the settings.
func (c *RedisCluster) URL() string {
	urls := make([]string, len(c.Nodes))
	for i, node := range c.Nodes {
		urls[i] = "redis://" + node.Addr()
	}
	return strings.Join(urls, ",")
}

// Of returns the node that serves a key.
func (c *RedisCluster) Of(key string) *RedisServer {
	c.t.Helper()
	ctx := context.Background()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: strings.Split(strings.ReplaceAll(c.URL(), "redis://", ""), ",")})
	defer func() { _ = client.Close() }()
	master, err := client.MasterForKey(ctx, key)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, node := range c.Nodes {
		if node.Addr() == master.Options().Addr {
			return node
		}
	}
	c.t.Fatalf("%s is none of ours", master.Options().Addr)
	return nil
}
