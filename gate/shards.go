package gate

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"flashsale/model"
)

// tagsOf returns the tags of all shards of gates, in the order of the gates.
func tagsOf(gates ...model.GateRef) (tags []string) {
	for _, gate := range gates {
		tags = slices.Grow(tags, gate.Shards)
		for shard := range gate.Shards {
			tags = append(tags, tagOf(gate, shard))
		}
	}
	return tags
}

// homeTag returns the tag of the shard that has a user's data.
func homeTag(gate model.GateRef, userID string) string {
	return tagOf(gate, homeOf(userID, gate.Shards))
}

// Batch returns the key under which an attempt is batched: its Node, or its shard if the gate has several. Attempts at such a
// shard may wait for units from other shards, and should not delay other sales.
func (g *Gate) Batch(ctx context.Context, a model.Attempt) string {
	if gate := a.GateRef(); gate.Shards > 1 {
		return homeTag(gate, a.UserID)
	}
	return g.Node(ctx, a)
}

// Node returns the address of the Cluster node that judges an attempt, or "" without a Cluster or if the node is not known.
func (g *Gate) Node(ctx context.Context, a model.Attempt) string {
	cluster, many := g.client.(*redis.ClusterClient)
	if !many {
		return ""
	}
	node, err := cluster.MasterForKey(ctx, gateKey(homeTag(a.GateRef(), a.UserID)))
	if err != nil {
		return "" // the slots of the Cluster can't be read
	}
	return node.Options().Addr
}

// each runs fn for 0 to n-1 concurrently, waits for all, and joins the errors.
func each(n int, fn func(i int) error) error {
	if n == 1 {
		return fn(0)
	}
	errs := make([]error, n)
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() { errs[i] = fn(i) })
	}
	running.Wait()
	return errors.Join(errs...)
}

// eachShard runs fn for each shard of a gate as each does. The errors begin with "doing".
func eachShard(gate model.GateRef, doing string, fn func(shard int, tag string) error) error {
	tags := tagsOf(gate)
	return each(len(tags), func(shard int) error {
		return wrap(doing, fn(shard, tags[shard]))
	})
}
