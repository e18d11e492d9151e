package kit

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// RedisCluster is a Redis Cluster. If it has replicas, its nodes detect a dead node within some seconds. If a node is gone
// for good, the slots of the other nodes are still served.
type RedisCluster struct {
	Nodes []*RedisServer // masters first; their roles at the start

	t     testing.TB
	addrs []string
}

// Cluster starts a cluster for this test, which takes some seconds, and ends it with the test.
func Cluster(t testing.TB, masters, replicasEach int) *RedisCluster {
	t.Helper()
	c := &RedisCluster{t: t}
	for range masters * (1 + replicasEach) {
		bus, err := FreePort() // an outgoing connection may have the default bus port, the node's port + 10000
		must(t, "choose a bus port", err)
		node := Redis(t, "--cluster-enabled", "yes", "--cluster-port", fmt.Sprint(bus), "--cluster-node-timeout", "1500",
			"--cluster-require-full-coverage", "no", "--repl-diskless-sync-delay", "0")
		c.Nodes, c.addrs = append(c.Nodes, node), append(c.addrs, node.Addr())
	}
	program := find(t, "redis-cli", "redis-tools")
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	args := append([]string{"--cluster", "create"}, c.addrs...)
	args = append(args, "--cluster-replicas", fmt.Sprint(replicasEach), "--cluster-yes")
	if out, err := exec.CommandContext(ctx, program, args...).CombinedOutput(); err != nil {
		t.Fatalf("make a cluster: %v: %s", err, out)
	}
	for i, node := range c.Nodes {
		client := redis.NewClient(&redis.Options{Addr: node.Addr()})
		await(t, "the cluster is whole", func(ctx context.Context) error {
			known := fmt.Sprintf("cluster_known_nodes:%d", len(c.Nodes))
			info, err := client.ClusterInfo(ctx).Result()
			if err == nil && (!strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, known)) {
				err = errors.New(info)
			}
			if err != nil || i < masters {
				return err
			}
			return follows(ctx, client)
		})
		if replicasEach == 0 {
			// Nobody takes the place of a dead node, and nodes that have all stood still would suspect each other. A node that
			// restarts has the short time again, after which it is soon back.
			must(t, "let the node be patient", client.ConfigSet(ctx, "cluster-node-timeout", "60000").Err())
		}
		_ = client.Close()
	}
	return c
}

// URL returns the addresses of all nodes in the form of the settings.
func (c *RedisCluster) URL() string { return "redis://" + strings.Join(c.addrs, ",redis://") }

// Of returns the node that serves a key.
func (c *RedisCluster) Of(key string) *RedisServer {
	c.t.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.addrs})
	defer func() { _ = client.Close() }()
	master, err := client.MasterForKey(context.Background(), key)
	must(c.t, "find the node of "+key, err)
	for _, node := range c.Nodes {
		if node.Addr() == master.Options().Addr {
			return node
		}
	}
	c.t.Fatalf("%s is not a node of this cluster", master.Options().Addr)
	return nil
}
