// Package gate stores the gates of sales in Redis. A gate admits attempts for about as many units as the sale has. Redis may
// lose its data, return to older data or be out of reach at any moment, so the database makes the final decision.
package gate

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"flashsale/internal/observe"
	"flashsale/model"
)

//go:embed lua
var sources embed.FS

var (
	admitScript       = script("each_gate", "campaigns", "frequency", "requests", "run_id", "window", "admit")
	countScript       = script("frequency", "count")
	orderedScript     = script("each_gate", "ordered")
	settledScript     = script("each_gate", "settled")
	leftoversScript   = script("leftovers")
	presentScript     = script("present")
	catchUpScript     = script("catchup")
	closeScript       = script("close")
	installScript     = script("run_id", "install")
	openScript        = script("open")
	transferOutScript = script("run_id", "transfer_out")
	transferInScript  = script("transfer_in")
	configureScript   = script("configure")
)

// script makes a script of files in the folder lua: first those with functions, last the one that uses them.
func script(files ...string) *redis.Script {
	var text strings.Builder
	for _, file := range files {
		source, err := sources.ReadFile("lua/" + file + ".lua")
		if err != nil {
			panic(err) // a wrong name: the program does not start
		}
		text.Write(source)
	}
	return redis.NewScript(text.String())
}

// Gate gives one instance access to the gates in Redis. Its methods are safe for concurrent use.
type Gate struct {
	// TransferTime is about the longest wait of an attempt for units from other shards. Set it before the first call.
	TransferTime time.Duration

	looker
	instance string
	// lanes are locks, each a channel of capacity 1. The transfers of units on sales that share a lane run one after the other.
	lanes   [transferLanes]chan struct{}
	moves   atomic.Int64 // the number of this instance's last transfer
	observe observe.All
}

// New makes the Gate of one instance. The caller must close the client.
func New(client redis.UniversalClient, instance string, observers ...observe.Observer) *Gate {
	g := &Gate{TransferTime: transferTime, looker: looker{client: client}, instance: instance, observe: observers}
	for i := range g.lanes {
		g.lanes[i] = make(chan struct{}, 1)
	}
	return g
}

// scripts runs a script n times, in a pipeline if n is above 1. call(i) returns the keys and arguments of run i; it is called
// again if a node does not have the script yet. Each reply has an error of its own.
func (g *Gate) scripts(ctx context.Context, script *redis.Script, n int, call func(i int) (keys []string, args []any)) []*redis.Cmd {
	replies := make([]*redis.Cmd, n)
	if n == 1 {
		keys, args := call(0)
		replies[0] = script.Run(ctx, g.client, keys, args...)
		return replies
	}
	for _, eval := range []func(context.Context, redis.Scripter, []string, ...any) *redis.Cmd{script.EvalSha, script.Eval} {
		_, _ = g.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, reply := range replies {
				if reply == nil || redis.HasErrorPrefix(reply.Err(), "NOSCRIPT") {
					keys, args := call(i)
					replies[i] = eval(ctx, p, keys, args...)
				}
			}
			return nil // a pipeline without a command makes no round trip
		})
	}
	return replies
}

// gatesInARun is how many gates a run of a script serves at most. Redis serves no other client meanwhile, and each gate
// takes some 20 µs. With a run of its own for each gate, Redis would need twice as long for all of them.
const gatesInARun = 64

type gateReply struct {
	value any
	err   error
}

// scriptOnGates runs a script for n gates, and returns the replies in the order of the gates. common(from, to) returns the keys
// and arguments that come first in the run for the gates [from, to), and call(i) those of gate i. A run serves up to gatesInARun
// gates, but on a Cluster one, since it may use the keys of one slot only.
func (g *Gate) scriptOnGates(
	ctx context.Context, script *redis.Script, n int,
	common func(from, to int) (keys []string, args []any), call func(i int) (keys []string, args []any),
) []gateReply {
	most := gatesInARun
	if g.isCluster() {
		most = 1
	}
	runs := g.scripts(ctx, script, (n+most-1)/most, func(run int) (keys []string, args []any) {
		from, to := run*most, min(n, (run+1)*most)
		keys, args = common(from, to)
		for i := from; i < to; i++ {
			ofGate, values := call(i)
			keys, args = append(keys, ofGate...), append(args, values...)
		}
		return keys, args
	})
	replies := make([]gateReply, n)
	for i := range replies {
		values, err := runs[i/most].Slice()
		if err == nil && i%most >= len(values) {
			err = fmt.Errorf("%d replies, too few", len(values))
		}
		if err != nil {
			replies[i].err = err
			continue
		}
		replies[i].value = values[i%most]
		if text, failed := values[i%most].(string); failed {
			replies[i].err = errors.New(text)
		}
	}
	return replies
}

// wrap adds the name of the failed operation to an error. It returns nil for nil.
func wrap(operation string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", operation, err)
}

func (g *Gate) isCluster() bool {
	_, many := g.client.(*redis.ClusterClient)
	return many
}

// Ping returns an error if Redis does not answer.
func (g *Gate) Ping(ctx context.Context) error { return g.client.Ping(ctx).Err() }

// Version returns the version of the Redis server. With the embedded Redis, it returns an error.
func (g *Gate) Version(ctx context.Context) (string, error) {
	info, err := g.client.Info(ctx, "server").Result()
	return infoFields(info)["redis_version"], wrap("ask Redis for its version", err)
}

// Count counts one request of a user to a sale. If the user has made more requests in the present window than f allows, ok is
// false, and the window ends after retryAfter. ok is also false after an error.
func (g *Gate) Count(ctx context.Context, gate model.GateRef, userID string, f model.Frequency) (retryAfter time.Duration, ok bool, err error) {
	keys := []string{countersKey(homeTag(gate, userID), g.isCluster())}
	ms, err := countScript.Run(ctx, g.client, keys, gate.SaleID+" "+userID, f.Limit, f.Window.Milliseconds()).Int64()
	return time.Duration(ms) * time.Millisecond, err == nil && ms == 0, wrap("count a request", err)
}

// Knows returns the quantity that the gate has under an order's id. known is false if the gate does not have the id, or if there
// is no gate.
func (g *Gate) Knows(ctx context.Context, gate model.GateRef, userID, orderID string) (quantity int, known bool, err error) {
	quantity, err = g.client.HGet(ctx, unitsKey(homeTag(gate, userID)), idField(orderID)).Int()
	if errors.Is(err, redis.Nil) {
		return 0, false, nil
	}
	return quantity, err == nil, wrap("ask for an id", err)
}

// CatchUp applies changes of the stock to a gate: all those of the versions above "after", up to "upTo". Changes that a shard
// has already are skipped. A shard that is missing, or whose version is older than "after", stays as it is, without an error.
func (g *Gate) CatchUp(ctx context.Context, gate model.GateRef, after, upTo int64, changes []model.GateChange) (err error) {
	ctx, end := g.observe.Begin(ctx, observe.Step{Name: observe.TellGate, Items: len(changes)})
	defer func() { end(err) }()
	return eachShard(gate, "tell the gate of changes", func(shard int, tag string) error {
		args := make([]any, 2, 2+5*len(changes))
		args[0], args[1] = after, upTo
		for _, c := range changes {
			if homeOf(c.UserID, gate.Shards) != shard {
				continue
			}
			quantity := int64(0)
			if c.Sold {
				quantity = -c.Units
			}
			args = append(args, c.Version, idField(c.OrderID), c.UserID, c.Units, quantity)
		}
		return catchUpScript.Run(ctx, g.client, []string{gateKey(tag), unitsKey(tag)}, args...).Err()
	})
}
