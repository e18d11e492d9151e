package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"flashsale/model"
)

// Connections is how many connections the pool of one instance and its Listen open to one Redis at most.
const Connections = poolSize + 1

// Sizes in bytes in the memory of a 64-bit Redis 7.0. They are one to two times the sizes that TestRoomIsEnough measures for user
// ids of 36 characters and idempotency keys of 32.
const (
	// bytesHeld is for an admitted attempt: its user and its known id.
	bytesHeld = 300
	// bytesKnown is for an order that has ended without being paid: its id stays known.
	bytesKnown = 200
	// bytesQueued is for an admitted attempt that is not settled yet: its entry in the stream.
	bytesQueued = 240
	// bytesCounted is for a user's request counter, which ends with its window.
	bytesCounted = 140
)

// Room estimates the bytes that a sale's gate needs at most. It assumes that every unit is in an order of its own, that no order
// is settled yet, and that the gate is being rebuilt, so that old and staged contents exist at the same time; that every buyer
// makes a request within one request window; and that as many orders have expired before as the sale's duration and buyers allow.
func Room(o model.Offer, buyers int64) int64 {
	turns := int64(o.EndsAt.Sub(o.StartsAt) / (time.Duration(o.PayTimeoutSeconds) * time.Second))
	expired := min(turns*o.Stock.Quota, buyers)
	return o.Stock.Quota*(2*bytesHeld+bytesQueued) + expired*2*bytesKnown + buyers*bytesCounted
}

// Server is the state and the configuration of one Redis server.
type Server struct {
	Addr      string
	RoundTrip time.Duration     // the fastest of lookTrips round trips: the time of the network, without the machine's load
	Clock     time.Time         // the server's time at At
	At        time.Time         // the time of the caller's clock in the middle of the last round trip
	Info      map[string]string // the fields of INFO, and of a Cluster's node also its cluster_state
	Config    map[string]string // the parameters in configs; nil if the server refuses CONFIG GET
}

// Setting returns a parameter by its name in Config, or, if Config lacks it, the field of INFO with underscores for hyphens.
func (s Server) Setting(name string) string {
	return cmp.Or(s.Config[name], s.Info[strings.ReplaceAll(name, "-", "_")])
}

// lookTrips is how many round trips are measured: so many that the fastest was hardly delayed by the machine's load.
const lookTrips = 5

// configs are the parameters that are read by CONFIG GET. INFO shows only a few of them.
var configs = []string{"maxmemory-policy", "appendonly", "appendfsync", "save", "maxclients", "min-replicas-to-write"}

// Servers returns the state of every Redis server that may hold a gate (no replicas), in the order of their addresses, and
// changes nothing there. "now" is the caller's clock. After an error, the states of some servers are missing or incomplete.
func (g *Gate) Servers(ctx context.Context, now func() time.Time) (list []Server, err error) {
	var mu sync.Mutex
	ask := func(ctx context.Context, client *redis.Client) error {
		s, err := g.askServer(ctx, client, now)
		mu.Lock()
		defer mu.Unlock()
		list = append(list, s)
		return wrap("look at Redis "+s.Addr, err)
	}
	switch client := g.client.(type) {
	case *redis.Client:
		err = ask(ctx, client)
	case *redis.ClusterClient:
		err = client.ForEachMaster(ctx, ask)
	default:
		err = fmt.Errorf("look at Redis: no way to ask a %T", client)
	}
	slices.SortFunc(list, func(a, b Server) int { return strings.Compare(a.Addr, b.Addr) })
	return list, err
}

// askServer returns the state of a server; after an error, what it has learned before.
func (g *Gate) askServer(ctx context.Context, client *redis.Client, now func() time.Time) (s Server, err error) {
	s.Addr = client.Options().Addr
	if s.Addr == "FailoverClient" { // go-redis's placeholder if sentinels give the address
		s.Addr = "the sentinels' primary"
	}
	if err := client.Ping(ctx).Err(); err != nil { // opens the connection, so that no measured trip includes it
		return s, err
	}
	trips := make([]time.Duration, lookTrips)
	for i := range trips {
		asked := now()
		if s.Clock, err = client.Time(ctx).Result(); err != nil {
			return s, err
		}
		trips[i] = now().Sub(asked)
		s.At = asked.Add(trips[i] / 2)
	}
	s.RoundTrip = slices.Min(trips)
	info, err := client.Info(ctx).Result()
	if err != nil {
		return s, err
	}
	s.Info = infoFields(info)
	if s.Config, err = configOf(ctx, client); err != nil || !g.isCluster() {
		return s, err
	}
	cluster, err := client.ClusterInfo(ctx).Result()
	s.Info["cluster_state"] = infoFields(cluster)["cluster_state"]
	return s, err
}

// configOf returns the parameters in configs, or nil if the server refuses CONFIG GET, as many hosted Redis services do.
func configOf(ctx context.Context, client *redis.Client) (map[string]string, error) {
	values := map[string]string{}
	for _, name := range configs {
		got, err := client.ConfigGet(ctx, name).Result()
		var refusal redis.Error
		if errors.As(err, &refusal) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		values[name] = got[name]
	}
	return values, nil
}
