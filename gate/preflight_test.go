package gate

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit"
)

// usedMemory is what Redis holds in all.
func (b *bench) usedMemory() int64 {
	b.Helper()
	info, err := b.client.Info(b.Context(), "memory").Result()
	if err != nil {
		b.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^used_memory:(\d+)`).FindStringSubmatch(info)
	if found == nil {
		b.Fatalf("no used_memory in %s", info)
	}
	n, err := strconv.ParseInt(found[1], 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// What the estimate says of each part holds, and is not far above what the part takes.
func TestRoomIsEnough(t *testing.T) {
	const units, perCall = 20_000, 250
	b := newBench(t, kit.Redis(t).URL())
	o := offer()
	o.Stock.Quota, o.Stock.Available = units, units
	b.open(o)
	attempts := make([]model.Attempt, units)
	for i := range attempts {
		attempts[i] = attemptUnder(o, fmt.Sprintf("%036d", i), 1, fmt.Sprintf("%032d", i))
	}
	admit := func() {
		for from := 0; from < units; from += perCall {
			if _, err := b.gate.Admit(t.Context(), o.ID, attempts[from:from+perCall], 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	sizeOf := func(keys ...string) (sum int64) {
		for _, key := range keys {
			n, err := b.client.MemoryUsage(t.Context(), key, 0).Result()
			if err != nil {
				t.Fatal(err)
			}
			sum += n
		}
		return sum
	}
	holds := func(part string, bytes, measured int64) {
		t.Helper()
		t.Logf("%s: %d bytes, the estimate says %d", part, measured/units, bytes)
		if measured > bytes*units || bytes*units > 2*measured {
			t.Errorf("%s takes %d bytes of each, and %d were thought of", part, measured/units, bytes)
		}
	}

	admit()
	holds("an attempt that is held", bytesHeld, sizeOf(unitsKey(o.ID), idsKey(o.ID)))
	holds("one that is queued", bytesQueued, sizeOf(streamKey(o.ID)))
	holds("a known id", bytesKnown, sizeOf(idsKey(o.ID)))
	for i := range attempts {
		attempts[i].Frequency = model.Frequency{Limit: 10, Window: time.Hour}
	}
	before := b.usedMemory()
	admit() // known ids: nothing but the counters is new
	holds("a request counter", bytesCounted, b.usedMemory()-before)
}

func TestServers(t *testing.T) {
	server := kit.Redis(t, "--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru", "--appendonly", "yes")
	b := newBench(t, server.URL())
	list, err := b.gate.Servers(t.Context(), time.Now)
	if err != nil || len(list) != 1 {
		t.Fatalf("%d servers, %v", len(list), err)
	}
	s := list[0]
	if s.Addr != server.Addr() || s.RoundTrip <= 0 || s.Clock.Sub(s.At).Abs() > time.Second {
		t.Errorf("%s, %s, %s at %s", s.Addr, s.RoundTrip, s.Clock, s.At)
	}
	for field, want := range map[string]string{"role": "master", "maxmemory": "67108864", "aof_enabled": "1"} {
		if s.Info[field] != want {
			t.Errorf("%s: %q, want %q", field, s.Info[field], want)
		}
	}
	for name, want := range map[string]string{"maxmemory-policy": "allkeys-lru", "appendfsync": "everysec"} {
		if s.Config[name] != want {
			t.Errorf("%s: %q, want %q", name, s.Config[name], want)
		}
	}
}

// Who rents a Redis out often keeps its settings for himself.
func TestServersWithoutConfig(t *testing.T) {
	b := newBench(t, kit.Redis(t, "--rename-command", "CONFIG", "").URL())
	list, err := b.gate.Servers(t.Context(), time.Now)
	if err != nil || len(list) != 1 || list[0].Config != nil || list[0].Info["role"] != "master" {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestServersAway(t *testing.T) {
	server := kit.Redis(t)
	b := newBench(t, server.URL())
	server.Kill()
	_, err := b.gate.Servers(t.Context(), time.Now)
	if _, network := errors.AsType[net.Error](err); !network {
		t.Errorf("%v", err)
	}
}

// To look at the instances must not take those off the list that have stopped reporting.
func TestRunningForgetsNobody(t *testing.T) {
	eachRedis(t, func(b *bench) {
		now := time.Now()
		for name, age := range map[string]time.Duration{"here": 0, "gone": time.Minute} {
			if err := b.instance(name).Report(b.Context(), model.Instance{URL: name, ReportedAtMs: now.Add(-age).UnixMilli()}); err != nil {
				b.Fatal(err)
			}
		}
		running, err := b.gate.Running(b.Context(), now)
		if err != nil || len(running) != 1 || running["here"].URL != "here" {
			b.Errorf("%v, %v", running, err)
		}
		if n := b.client.HLen(b.Context(), instancesKey).Val(); n != 2 {
			b.Errorf("%d are on the list, want 2", n)
		}
	})
}

// Each master of a Cluster is asked, and behind sentinels the primary that they name.
func TestServersOfMany(t *testing.T) {
	ask := func(t *testing.T, address string) []Server {
		t.Helper()
		client, err := Connect(address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		list, err := New(client, "here").Servers(t.Context(), time.Now)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	t.Run("a Cluster", func(t *testing.T) {
		list := ask(t, kit.Cluster(t, 3, 0).URL())
		if len(list) != 3 || list[0].Addr >= list[1].Addr || list[1].Addr >= list[2].Addr {
			t.Fatalf("%+v", list)
		}
		for _, s := range list {
			if s.Info["role"] != "master" || s.Info["cluster_enabled"] != "1" || s.Info["cluster_state"] != "ok" {
				t.Errorf("%s: %v", s.Addr, s.Info)
			}
		}
	})
	t.Run("sentinels", func(t *testing.T) {
		list := ask(t, kit.SentinelRedis(t).URL())
		if len(list) != 1 || list[0].Info["role"] != "master" || list[0].Info["connected_slaves"] != "1" || list[0].Addr != "the sentinels' primary" {
			t.Errorf("%+v", list)
		}
	})
}
