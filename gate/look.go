package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"flashsale/model"
)

// ReplicaSilence is how many seconds a replica may hear nothing from its primary, which by default pings it every ten.
const ReplicaSilence = 15

// errBehind means that a replica has lost its primary, or has received nothing from it for more than ReplicaSilence.
var errBehind = errors.New("the replica is behind")

// shard is the state of one shard of a gate, or of all its shards together.
type shard struct {
	model.GateState
	sent, received int64 // units given to other shards, and received from them, since the gate was installed
}

// looker reads the state of gates from primaries, or from replicas.
type looker struct {
	client   redis.UniversalClient
	replicas bool
}

// Replicas reads the state of gates from replicas, which may lag behind their primaries. It is for display only.
type Replicas struct{ looker }

// NewReplicas makes a Replicas with a client of ConnectReplicas. The caller must close the client.
func NewReplicas(client redis.UniversalClient) *Replicas {
	return &Replicas{looker{client: client, replicas: true}}
}

// look reads the shards with these tags. A shard is Away if it can't be read, or only from a replica that may be behind; then
// look also returns an error. If the node of a tag is not known, all shards are Away.
func (l looker) look(ctx context.Context, tags []string) ([]shard, error) {
	shards := slices.Repeat([]shard{{GateState: model.GateState{Away: true}}}, len(tags))
	nodes := map[redis.UniversalClient][]int{} // by node, the places of its tags
	for i, tag := range tags {
		node, err := l.nodeOf(ctx, tag)
		if err != nil {
			return shards, wrap("find the node of a gate", err)
		}
		nodes[node] = append(nodes[node], i)
	}
	clients := slices.Collect(maps.Keys(nodes))
	return shards, each(len(clients), func(i int) error {
		return l.lookAt(ctx, clients[i], nodes[clients[i]], tags, shards)
	})
}

// nodeOf returns the client of a node from which the shard with a tag can be read.
func (l looker) nodeOf(ctx context.Context, tag string) (redis.UniversalClient, error) {
	cluster, many := l.client.(*redis.ClusterClient)
	switch {
	case !many:
		return l.client, nil
	case l.replicas:
		return cluster.SlaveForKey(ctx, gateKey(tag))
	}
	return cluster.MasterForKey(ctx, gateKey(tag))
}

// Peek reads the states of gates, and returns them in the order of the gates. A gate is Away if one of its shards can't be read,
// or only from a replica that may be behind. Peek returns an error only if all gates are Away. The length of a stream is read
// slightly later than the other fields. A gate that was installed on another Redis process counts as not open; Replicas do not
// check this.
func (l looker) Peek(ctx context.Context, gates ...model.GateRef) ([]model.GateState, error) {
	shards, err := l.look(ctx, tagsOf(gates...))
	states, start := make([]model.GateState, len(gates)), 0
	for i, gate := range gates {
		states[i] = together(shards[start : start+gate.Shards]).GateState
		start += gate.Shards
	}
	if err != nil && !slices.ContainsFunc(states, func(s model.GateState) bool { return !s.Away }) {
		return nil, fmt.Errorf("look at the gates: %w", err)
	}
	return states, nil
}

// together combines the states of a gate's shards. The gate is open if all shards are open with the same epoch. Its revision and
// version are the lowest of its shards, since the gate has the changes that every shard has.
func together(shards []shard) shard {
	whole := shards[0]
	for _, p := range shards[1:] {
		whole.Away = whole.Away || p.Away
		whole.Exists = whole.Exists || p.Exists
		whole.Open = whole.Open && p.Open && p.Epoch == whole.Epoch
		whole.Epoch, whole.Revision, whole.Version = max(whole.Epoch, p.Epoch), min(whole.Revision, p.Revision), min(whole.Version, p.Version)
		whole.Left, whole.Inflight, whole.Stream = whole.Left+p.Left, whole.Inflight+p.Inflight, whole.Stream+p.Stream
		whole.sent, whole.received = whole.sent+p.sent, whole.received+p.received
	}
	return whole
}

// Units returns how many units a gate counts for each of these users, in their order.
func (g *Gate) Units(ctx context.Context, gate model.GateRef, users []string) ([]int, error) {
	units := make([]int, len(users))
	return units, eachShard(gate, "read the units of users at the gate", func(shard int, tag string) error {
		var fields []string
		var places []int
		for place, user := range users {
			if homeOf(user, gate.Shards) == shard {
				fields, places = append(fields, user), append(places, place)
			}
		}
		if len(fields) == 0 {
			return nil
		}
		values, err := g.client.HMGet(ctx, unitsKey(tag), fields...).Result()
		for at, value := range values {
			units[places[at]] = int(number(value))
		}
		return err
	})
}

// Buyers returns the number of users for whom a gate counts units. It reads pages, so a user may be counted twice.
func (g *Gate) Buyers(ctx context.Context, gate model.GateRef) (int64, error) {
	var buyers atomic.Int64
	err := eachShard(gate, "count the buyers at the gate", func(_ int, tag string) error {
		fields := g.client.HScan(ctx, unitsKey(tag), 0, userFields, page).Iterator()
		for fields.Next(ctx) {
			fields.Next(ctx) // skips the field's value
			buyers.Add(1)
		}
		return fields.Err()
	})
	return buyers.Load(), err
}

// lookAt stores the states of the shards at these places, all on one node, in "into". Shards that fail stay Away.
func (l looker) lookAt(ctx context.Context, node redis.UniversalClient, places []int, tags []string, into []shard) error {
	section := "server"
	if l.replicas {
		section = "replication"
	}
	var info *redis.StringCmd
	hashes, lengths := make([]*redis.SliceCmd, len(places)), make([]*redis.IntCmd, len(places))
	// If INFO fails at a primary, the other replies are used, but a gate that has a run id counts as not open.
	_, _ = node.Pipelined(ctx, func(p redis.Pipeliner) error {
		info = p.Info(ctx, section)
		for i, place := range places {
			hashes[i] = p.HMGet(ctx, gateKey(tags[place]), "epoch", "open", "left", "extra", "revision", "run_id", "sent", "received", "version")
			lengths[i] = p.XLen(ctx, streamKey(tags[place]))
		}
		return nil
	})
	var failed, behind error
	if l.replicas {
		behind = isBehind(info)
	}
	// If Redis does not report its run id, the id is empty here and in the gates that were installed there.
	here := infoFields(info.Val())["run_id"]
	for i, place := range places {
		if err := cmp.Or(behind, hashes[i].Err(), lengths[i].Err()); err != nil {
			failed = err
			continue
		}
		v := hashes[i].Val()
		into[place] = shard{
			GateState: model.GateState{
				Exists: v[0] != nil, Open: v[1] == "1" && (l.replicas || v[5] == here),
				Epoch: number(v[0]), Left: number(v[2]), Inflight: lengths[i].Val() + number(v[3]), Revision: number(v[4]), Version: number(v[8]), Stream: lengths[i].Val(),
			},
			sent: number(v[6]), received: number(v[7]),
		}
	}
	if failed != nil {
		if cluster, many := l.client.(*redis.ClusterClient); many {
			cluster.ReloadState(ctx) // a dead node sends no redirect to the node that has replaced it
		}
	}
	return failed
}

// isBehind returns errBehind if the node is a replica whose data may be old, or the error of INFO.
func isBehind(info *redis.StringCmd) error {
	if info.Err() != nil {
		return info.Err()
	}
	field := infoFields(info.Val())
	silence, _ := strconv.Atoi(field["master_last_io_seconds_ago"])
	if field["role"] == "slave" && (field["master_link_status"] != "up" || silence > ReplicaSilence) {
		return errBehind
	}
	return nil
}

func infoFields(info string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

func number(v any) int64 {
	s, _ := v.(string)
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}
