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

// Connections is the size of the pool that an instance has for a Redis, and one connection more for Listen.
const Connections = poolSize + 1

// Sizes in bytes in the memory of a 64-bit Redis 7.0. They are one to two times the sizes that TestRoomIsEnough measures for user
// ids of 36 characters and idempotency keys of 32.
const (
	// bytesHeld is for an admitted attempt: its user and its known id.
	bytesHeld = 300
	// bytesKnown is for an order without live units: its id stays known.
	bytesKnown = 200
	// bytesQueued is for an admitted attempt that is not settled yet: its entry in the stream.
	bytesQueued = 240
	// bytesCounted is for a user's request counter, which ends with its window.
	bytesCounted = 140
)

// Room estimates the most bytes that a sale's gate needs. It assumes that every unit is in an order of its own, and that none of
// these is settled; that every buyer has a request counter; that as many orders have expired as the sale's duration and buyers
// allow; and that the gate is being rebuilt, so that its contents exist twice.
func Room(o model.Offer, buyers int64) int64 {
	turns := int64(o.EndsAt.Sub(o.StartsAt) / (time.Duration(o.PayTimeoutSeconds) * time.Second))
	expired := min(turns*o.Stock.Quota, buyers)
	return o.Stock.Quota*(2*bytesHeld+bytesQueued) + expired*2*bytesKnown + buyers*bytesCounted
}

// Server is the state and the configuration of one Redis server.
type Server struct {
	Addr      string
	RoundTrip time.Duration     // the fastest of lookTrips round trips
	Clock     time.Time         // the server's time at the time At
	At        time.Time         // by the caller's clock, in the middle of the last round trip
	Info      map[string]string // the fields of INFO, and on a Cluster cluster_state
	Config    map[string]string // the parameters in configs; nil if the server refuses CONFIG GET
}

// Setting returns a parameter by its name in Config, or else the field of INFO with underscores for hyphens.
func (s Server) Setting(name string) string {
	return cmp.Or(s.Config[name], s.Info[strings.ReplaceAll(name, "-", "_")])
}

// lookTrips is how many round trips are measured, so that the load of the machine hardly delays the fastest.
const lookTrips = 5

// configs are the parameters to read by CONFIG GET.
var configs = []string{"maxmemory-policy", "appendonly", "appendfsync", "save", "maxclients", "min-replicas-to-write"}

// Servers returns the state of every Redis server that may hold a gate, without replicas, in the order of their addresses. "now"
// is the caller's clock. After an error, states may be missing or incomplete.
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

// askServer returns the state of a server. After an error the state is incomplete.
func (g *Gate) askServer(ctx context.Context, client *redis.Client, now func() time.Time) (s Server, err error) {
	s.Addr = client.Options().Addr
	if s.Addr == "FailoverClient" { // go-redis's placeholder if sentinels give the address
		s.Addr = "the sentinels' primary"
	}
	if err := client.Ping(ctx).Err(); err != nil { // opens a connection for the trips that are measured
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

// configOf returns the parameters in configs, or nil if the server refuses CONFIG GET.
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
