package gate

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
)

// TestRoomIsEnough: the sizes that Room assumes are those that a gate takes, plus a reserve of less than its double.
func TestRoomIsEnough(t *testing.T) {
	const units = 20_000
	b := newBench(t, kit.Redis(t).URL())
	o := offer()
	o.Stock.Quota, o.Stock.Available = units, units
	b.open(o)
	attempts := make([]model.Attempt, units)
	for i := range attempts {
		attempts[i] = attemptUnder(o, fmt.Sprintf("%036d", i), 1, fmt.Sprintf("%032d", i))
	}
	sizeOf := func(keys ...string) (sum int64) {
		for _, key := range keys {
			sum += must(b, b.client.MemoryUsage(t.Context(), key, 0))
		}
		return sum
	}
	usedMemory := func() int64 {
		n, err := strconv.ParseInt(infoFields(must(b, b.client.Info(t.Context(), "memory")))["used_memory"], 10, 64)
		check.NoError(b, err)
		return n
	}
	holds := func(what string, bytes, measured int64) {
		t.Helper()
		t.Logf("%s: %d bytes, the estimate says %d", what, measured/units, bytes)
		if measured > bytes*units || bytes*units > 2*measured {
			t.Errorf("%s takes %d bytes, and Room assumes %d", what, measured/units, bytes)
		}
	}

	b.admitAll(attempts)
	holds("a held attempt", bytesHeld, sizeOf(unitsKey(tag(o))))
	holds("a queued attempt", bytesQueued, sizeOf(streamKey(tag(o))))
	for i := range attempts {
		attempts[i].Frequency = model.Frequency{Limit: 10, Window: time.Hour}
	}
	before := usedMemory()
	b.admitAll(attempts) // the ids are known, so only the counters are new
	holds("a request counter", bytesCounted, usedMemory()-before)
	releases := make([]model.GateChange, units)
	for i, a := range attempts {
		releases[i] = model.GateChange{Version: o.Stock.Version + 1, OrderID: a.ID, UserID: a.UserID, Units: 1}
	}
	b.catchUp(o, releases...)
	holds("a known id", bytesKnown, sizeOf(unitsKey(tag(o))))
}

// TestServers looks at the servers of every kind of address.
func TestServers(t *testing.T) {
	single := kit.Redis(t, "--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru", "--appendonly", "yes")
	for name, tc := range map[string]struct {
		url          string
		addrs        []string // empty: any
		servers      int
		info, config map[string]string
	}{
		"one server": {
			single.URL(),
			[]string{single.Addr()},
			1,
			map[string]string{"role": "master", "maxmemory": "67108864", "aof_enabled": "1"},
			map[string]string{"maxmemory-policy": "allkeys-lru", "appendfsync": "everysec"},
		},
		"without CONFIG": {
			kit.Redis(t, "--rename-command", "CONFIG", "").URL(), nil, 1, map[string]string{"role": "master"}, nil,
		},
		"a Cluster": {
			kit.Cluster(t, 3, 0).URL(), nil, 3,
			map[string]string{"role": "master", "cluster_enabled": "1", "cluster_state": "ok"},
			map[string]string{"appendonly": "no"},
		},
		"sentinels": {
			kit.SentinelRedis(t).URL(),
			[]string{"the sentinels' primary"},
			1,
			map[string]string{"role": "master", "connected_slaves": "1"},
			map[string]string{"appendonly": "no"},
		},
	} {
		before := time.Now().Truncate(time.Microsecond) // test and servers run on this machine
		list, err := New(dial(t, Connect, tc.url), "here").Servers(t.Context(), time.Now)
		after := time.Now()
		if err != nil || len(list) != tc.servers {
			t.Fatalf("%s: %+v, %v", name, list, err)
		}
		var addrs []string
		for _, s := range list {
			addrs = append(addrs, s.Addr)
			if s.RoundTrip <= 0 || (s.Config == nil) != (tc.config == nil) ||
				s.Clock.Before(before) || s.Clock.After(after) || s.At.Before(before) || s.At.After(after) {
				t.Errorf("%s: round trip %s, clock %s at %s, from %s to %s, configuration %v", name, s.RoundTrip, s.Clock, s.At, before, after, s.Config)
			}
			for field, want := range tc.info {
				check.Same(t, fmt.Sprintf("%s: %s", name, field), s.Info[field], want)
			}
			for parameter, want := range tc.config {
				check.Same(t, name+": "+parameter, []string{s.Config[parameter], s.Setting(parameter)}, []string{want, want})
			}
		}
		if !slices.IsSorted(addrs) || tc.addrs != nil && !slices.Equal(addrs, tc.addrs) {
			t.Errorf("%s: the addresses are %q", name, addrs)
		}
	}
}

func TestServersThatAreAway(t *testing.T) {
	server := kit.Redis(t)
	b := newBench(t, server.URL())
	server.Kill()
	_, err := b.gate.Servers(t.Context(), time.Now)
	if _, network := errors.AsType[net.Error](err); !network {
		t.Errorf("%v, want an error of the network", err)
	}
}
