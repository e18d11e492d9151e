package gate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"flashsale/model"
)

// Connections are the most that one instance opens to one Redis: its pool, and one to hear what others announce.
const Connections = poolSize + 1

// What a Redis 7.0 of 64 bits takes in memory, as TestRoomIsEnough measures it for users' ids of 36 characters and request
// keys of 32, and up to a half more.
const (
	// bytesHeld of an admitted attempt: its user and its known id.
	bytesHeld = 300
	// bytesKnown of an order that has ended without being paid: its id stays known.
	bytesKnown = 200
	// bytesQueued of one that waits for the database: its entry in the stream.
	bytesQueued = 240
	// bytesCounted of a user's request counter, which ends with its window.
	bytesCounted = 220
)

// Room is about how many bytes a sale's gate needs at its worst: every unit in an order of its own, none settled yet, and
// the gate being rebuilt, which gathers what it holds beside what is there; every buyer within one request window; and
// as many orders as there is time for, but one of each buyer, have expired before.
func Room(o model.Offer, buyers int64) int64 {
	turns := int64(o.EndsAt.Sub(o.StartsAt) / (time.Duration(o.PayTimeoutSeconds) * time.Second))
	expired := min(turns*o.Stock.Quota, buyers)
	return o.Stock.Quota*(2*bytesHeld+bytesQueued) + expired*2*bytesKnown + buyers*bytesCounted
}

// Server is what one Redis says of itself.
type Server struct {
	Addr      string
	RoundTrip time.Duration     // the median of a few
	Clock     time.Time         // its own, when At was here
	At        time.Time         // in the middle of the question
	Info      map[string]string // the fields of INFO
	Config    map[string]string // the parameters that matter here; nil if it doesn't tell
}

// Setting is a parameter by its name in the configuration, or in INFO if the configuration is not told.
func (s Server) Setting(name string) string {
	return cmp.Or(s.Config[name], s.Info[strings.ReplaceAll(name, "-", "_")])
}

// lookTrips are enough for a median that one late answer doesn't move.
const lookTrips = 5

// configs are the parameters that INFO doesn't show.
var configs = []string{"maxmemory-policy", "appendonly", "appendfsync", "save", "maxclients", "min-replicas-to-write"}

// Servers asks every Redis that may hold a gate, in the order of their addresses, and changes nothing. now is the
// caller's clock.
func (g *Gate) Servers(ctx context.Context, now func() time.Time) ([]Server, error) {
	look := func(ctx context.Context, client *redis.Client) (Server, error) {
		s, err := lookAt(ctx, client, now)
		if err != nil {
			return s, fmt.Errorf("look at Redis %s: %w", nameOf(client), err)
		}
		return s, nil
	}
	switch client := g.client.(type) {
	case *redis.Client:
		s, err := look(ctx, client)
		return []Server{s}, err
	case *redis.ClusterClient:
		var mu sync.Mutex
		var list []Server
		err := client.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			s, err := look(ctx, node)
			if err == nil {
				err = addClusterState(ctx, node, s.Info)
			}
			mu.Lock()
			defer mu.Unlock()
			list = append(list, s)
			return err
		})
		slices.SortFunc(list, func(a, b Server) int { return strings.Compare(a.Addr, b.Addr) })
		return list, err
	}
	return nil, fmt.Errorf("look at Redis: no way to ask a %T", g.client)
}

// nameOf is where a client connects to.
func nameOf(client *redis.Client) string {
	if addr := client.Options().Addr; addr != "FailoverClient" { // go-redis's word for what sentinels will say
		return addr
	}
	return "the sentinels' primary"
}

func lookAt(ctx context.Context, client *redis.Client, now func() time.Time) (s Server, err error) {
	s.Addr = nameOf(client)
	if err := client.Ping(ctx).Err(); err != nil { // makes the connection, which is not part of a round trip
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
	slices.Sort(trips)
	s.RoundTrip = trips[lookTrips/2]
	info, err := client.Info(ctx).Result()
	if err != nil {
		return s, err
	}
	s.Info = map[string]string{}
	for line := range strings.Lines(info) {
		if field, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			s.Info[field] = value
		}
	}
	s.Config, err = configOf(ctx, client)
	return s, err
}

// addClusterState puts what a node thinks of its Cluster beside the fields of INFO.
func addClusterState(ctx context.Context, node *redis.Client, info map[string]string) error {
	text, err := node.ClusterInfo(ctx).Result()
	for line := range strings.Lines(text) {
		if state, ok := strings.CutPrefix(strings.TrimSpace(line), "cluster_state:"); ok {
			info["cluster_state"] = state
		}
	}
	return err
}

// configOf gives nil where the command is switched off, as many who rent a Redis out do.
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

// Running reads the figures of the running instances as Instances does, and forgets none.
func (g *Gate) Running(ctx context.Context, now time.Time) (map[string]model.Instance, error) {
	all, err := g.client.HGetAll(ctx, instancesKey).Result()
	if err != nil {
		return nil, fmt.Errorf("read the instances: %w", err)
	}
	running := map[string]model.Instance{}
	for id, payload := range all {
		var figures model.Instance
		_ = json.Unmarshal([]byte(payload), &figures) // what can't be read has no time, and is over
		if now.Sub(time.UnixMilli(figures.ReportedAtMs)) <= instanceTTL {
			running[id] = figures
		}
	}
	return running, nil
}
