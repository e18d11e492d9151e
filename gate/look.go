package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"flashsale/model"
)

// replicaSilence is how many seconds a replica may not have heard of its primary, which speaks every ten at least.
const replicaSilence = 15

// errBehind: a replica has lost its primary, or has not heard of it for long.
var errBehind = errors.New("the replica is behind")

// part is one part of a sale's gate as a look finds it.
type part struct {
	model.GateState
	lent, borrowed int64 // units that it has ever given to other parts, and got from them
}

// looker reads gates, where they are or in replicas.
type looker struct {
	client   redis.UniversalClient
	replicas bool
}

// look reads the gates of tags, those of one node in one round trip and each gate at one instant. The streams' lengths
// are of instants of their own. A gate whose node does not answer is Away, and the error says why.
func (l looker) look(ctx context.Context, tags []string) ([]part, error) {
	parts := make([]part, len(tags))
	for i := range parts {
		parts[i].Away = true
	}
	nodes, err := l.nodes(ctx, tags)
	if err != nil {
		return parts, err
	}
	return parts, each(len(nodes), func(i int) error { return l.lookAt(ctx, nodes[i], tags, parts) })
}

// peek looks at gates, each of which has the tags of its parts, and puts the parts together.
func (l looker) peek(ctx context.Context, gates [][]string) ([]model.GateState, error) {
	parts, err := l.look(ctx, slices.Concat(gates...))
	states, start := make([]model.GateState, len(gates)), 0
	for i, tags := range gates {
		states[i] = together(parts[start : start+len(tags)])
		start += len(tags)
	}
	if err != nil && !slices.ContainsFunc(states, func(s model.GateState) bool { return !s.Away }) {
		return nil, fmt.Errorf("look at the gates: %w", err)
	}
	return states, nil
}

// together is the state of a gate in parts: open if all of it is, with one epoch, and knows what each
// of them knows.
func together(parts []part) model.GateState {
	whole := parts[0].GateState
	for _, p := range parts[1:] {
		whole.Away = whole.Away || p.Away
		whole.Exists = whole.Exists || p.Exists
		whole.Open = whole.Open && p.Open && p.Epoch == whole.Epoch
		whole.Epoch, whole.Revision, whole.Version = max(whole.Epoch, p.Epoch), min(whole.Revision, p.Revision), min(whole.Version, p.Version)
		whole.Left, whole.Inflight, whole.Stream = whole.Left+p.Left, whole.Inflight+p.Inflight, whole.Stream+p.Stream
	}
	return whole
}

// Units gives the live units that a sale's gate counts for each of these users.
func (g *Gate) Units(ctx context.Context, saleID string, users []string) ([]int, error) {
	tags, err := g.parts.tags(ctx, saleID)
	if err != nil {
		return nil, fmt.Errorf("read the units of users at the gate: %w", err)
	}
	units := make([]int, len(users))
	return units, atHome(len(tags), len(users), func(i int) string { return users[i] }, func(home int, places []int) error {
		fields := make([]string, len(places))
		for at, place := range places {
			fields[at] = users[place]
		}
		values, err := g.client.HMGet(ctx, unitsKey(tags[home]), fields...).Result()
		if err != nil {
			return fmt.Errorf("read the units of users at the gate: %w", err)
		}
		for at, place := range places {
			units[place] = int(number(values[at]))
		}
		return nil
	})
}

// Buyers counts the users for whom a sale's gate has live units.
func (g *Gate) Buyers(ctx context.Context, saleID string) (int64, error) {
	tags, err := g.parts.tags(ctx, saleID)
	if err != nil {
		return 0, fmt.Errorf("count the buyers at the gate: %w", err)
	}
	var buyers atomic.Int64
	err = each(len(tags), func(i int) error {
		fields, err := g.client.HLen(ctx, unitsKey(tags[i])).Result()
		if err != nil {
			return fmt.Errorf("count the buyers at the gate: %w", err)
		}
		buyers.Add(max(0, fields-1)) // without the field nobody
		return nil
	})
	return buyers.Load(), err
}

// node is a Redis, and the places of the tags that it has.
type node struct {
	client redis.UniversalClient
	places []int
}

func (l looker) nodes(ctx context.Context, tags []string) ([]*node, error) {
	cluster, many := l.client.(*redis.ClusterClient)
	if !many {
		one := &node{client: l.client, places: make([]int, len(tags))}
		for i := range tags {
			one.places[i] = i
		}
		return []*node{one}, nil
	}
	find := cluster.MasterForKey
	if l.replicas {
		find = cluster.SlaveForKey
	}
	var nodes []*node
	known := map[*redis.Client]*node{}
	for i, tag := range tags {
		client, err := find(ctx, gateKey(tag))
		if err != nil {
			return nil, fmt.Errorf("find the node of a gate: %w", err)
		}
		n := known[client]
		if n == nil {
			n = &node{client: client}
			known[client], nodes = n, append(nodes, n)
		}
		n.places = append(n.places, i)
	}
	return nodes, nil
}

// lookAt reads the gates of one node into their places.
func (l looker) lookAt(ctx context.Context, n *node, tags []string, into []part) error {
	section := "server"
	if l.replicas {
		section = "replication"
	}
	var info *redis.StringCmd
	hashes, lengths := make([]*redis.SliceCmd, len(n.places)), make([]*redis.IntCmd, len(n.places))
	// Each command has its own error: INFO's says nothing against the others.
	_, _ = n.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		info = p.Info(ctx, section)
		for i, place := range n.places {
			hashes[i] = p.HMGet(ctx, gateKey(tags[place]), "epoch", "open", "left", "inflight", "revision", "server", "lent", "borrowed", "version")
			lengths[i] = p.XLen(ctx, streamKey(tags[place]))
		}
		return nil
	})
	var failed, behind error
	if l.replicas {
		behind = isBehind(info)
	}
	here := infoField(info.Val(), "run_id") // empty if Redis doesn't tell, as in a gate that was installed there
	for i, place := range n.places {
		if err := cmp.Or(behind, hashes[i].Err(), lengths[i].Err()); err != nil {
			failed = err
			continue
		}
		v := hashes[i].Val()
		into[place] = part{
			GateState: model.GateState{
				Exists: v[0] != nil, Open: v[1] == "1" && (l.replicas || v[5] == here),
				Epoch: number(v[0]), Left: number(v[2]), Inflight: number(v[3]), Revision: number(v[4]), Version: number(v[8]), Stream: lengths[i].Val(),
			},
			lent: number(v[6]), borrowed: number(v[7]),
		}
	}
	if failed != nil {
		if cluster, many := l.client.(*redis.ClusterClient); many {
			cluster.ReloadState(ctx) // a dead node doesn't tell of the replica that has its slots now
		}
	}
	return failed
}

// isBehind is nil if what a replica says is what its primary said a moment ago.
func isBehind(info *redis.StringCmd) error {
	if info.Err() != nil {
		return info.Err()
	}
	silence, _ := strconv.Atoi(infoField(info.Val(), "master_last_io_seconds_ago"))
	if infoField(info.Val(), "role") == "slave" && (infoField(info.Val(), "master_link_status") != "up" || silence > replicaSilence) {
		return errBehind
	}
	return nil
}

// infoField finds a field in what INFO says; empty if it isn't there.
func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func number(v any) int64 {
	s, _ := v.(string)
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}
