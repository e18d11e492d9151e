package gate

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"flashsale/model"
	"flashsale/test/kit"
)

// ear hears what a gate listens to.
type ear struct {
	changed chan string
	woken   chan []string
}

// listen has a gate listen until the test ends, and returns when Redis has taken its subscription.
func (b *bench) listen(g *Gate) ear {
	b.Helper()
	e := ear{changed: make(chan string, 10), woken: make(chan []string, 10)}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.Listen(ctx, func(id string) { e.changed <- id }, func(ids []string) { e.woken <- ids })
	}()
	b.Cleanup(func() { cancel(); <-done })
	b.subscribed(wakeChannel(g.instance))
	return e
}

func (b *bench) subscribed(channel string) {
	b.Helper()
	eventually(b.T, "the subscription", func() bool {
		counts, err := b.client.PubSubNumSub(b.Context(), channel).Result()
		return err == nil && counts[channel] == 1
	})
}

func hear[T any](b *bench, from <-chan T) (heard T) {
	b.Helper()
	select {
	case heard = <-from:
	case <-time.After(patience):
		b.Fatal("nothing was heard")
	}
	return heard
}

func TestInstancesHearEachOther(t *testing.T) {
	eachRedis(t, func(b *bench) {
		here, there := b.listen(b.gate), b.listen(b.instance("there"))
		outcomes := map[string]model.Outcome{
			"order-1": {Verdict: model.Accepted, Order: &model.Order{ID: "order-1"}},
			"order-2": {Verdict: model.SoldOut}, "order-3": {Verdict: model.LimitReached, Repeated: true},
		}
		if err := b.gate.Wake(b.Context(), "there", outcomes); err != nil {
			b.Fatal(err)
		}
		if got := slices.Sorted(slices.Values(hear(b, there.woken))); !slices.Equal(got, []string{"order-1", "order-2", "order-3"}) {
			b.Errorf("woken with %v", got)
		}
		// What is said last is heard last, so whoever hears this has heard all that was for it.
		if err := b.gate.Announce(b.Context(), "sale-1"); err != nil {
			b.Fatal(err)
		}
		for name, e := range map[string]ear{"here": here, "there": there} {
			if got := hear(b, e.changed); got != "sale-1" {
				b.Errorf("%s heard of %q", name, got)
			}
			if len(e.woken) != 0 {
				b.Errorf("%s was woken with what is another's", name)
			}
		}
	})
}

// TestListenOutlivesNonsense: what nobody of ours says must not end the listening.
func TestListenOutlivesNonsense(t *testing.T) {
	eachRedis(t, func(b *bench) {
		here := b.listen(b.gate)
		for _, payload := range []string{"", "{", "{}", `{"order-2": {"Verdict": "accepted"}}`, "[1]", "[]", "null"} {
			if err := b.client.Publish(b.Context(), wakeChannel("here"), payload).Err(); err != nil {
				b.Fatal(err)
			}
		}
		if err := b.gate.Wake(b.Context(), "here", map[string]model.Outcome{"order-1": {Verdict: model.Paused}}); err != nil {
			b.Fatal(err)
		}
		for {
			got := hear(b, here.woken)
			if len(got) == 0 {
				continue // null is an empty list
			}
			if !slices.Equal(got, []string{"order-1"}) {
				b.Errorf("woken with %v", got)
			}
			return
		}
	})
}

func TestListenOutlivesARestartOfRedis(t *testing.T) {
	server := kit.Redis(t)
	b := newBench(t, server.URL())
	here := b.listen(b.gate)
	server.Restart()
	b.subscribed(controlChannel)
	if err := b.gate.Announce(t.Context(), "sale-1"); err != nil {
		t.Fatal(err)
	}
	if got := hear(b, here.changed); got != "sale-1" {
		t.Errorf("heard of %q", got)
	}
}

func TestListenEndsWithItsContext(t *testing.T) {
	eachRedis(t, func(b *bench) {
		leaks := goleak.IgnoreCurrent()
		ctx, cancel := context.WithCancel(b.Context())
		g := b.instance("short")
		done := make(chan struct{})
		go func() {
			defer close(done)
			g.Listen(ctx, func(string) {}, func([]string) {})
		}()
		b.subscribed(wakeChannel("short"))
		cancel()
		hear(b, done)
		_ = g.client.Close()
		eventually(b.T, "the end of the subscription", func() bool {
			counts, err := b.client.PubSubNumSub(b.Context(), wakeChannel("short")).Result()
			return err == nil && counts[wakeChannel("short")] == 0
		})
		// The embedded server has its own for each connection of the test's client.
		const server = "github.com/alicebob/miniredis/v2/server.(*Server).servePeer"
		goleak.VerifyNone(b.T, leaks, goleak.IgnoreAnyFunction(server), goleak.IgnoreAnyFunction(server+".func2"))
	})
}

func TestInstancesReport(t *testing.T) {
	eachRedis(t, func(b *bench) {
		ctx := b.Context()
		there := b.instance("there")
		now := time.UnixMilli(1_800_000_000_000)
		figures := func(at time.Time, purchases int64) model.Instance {
			return model.Instance{
				URL: "http://10.0.0.1:8080", Strategy: "hybrid", GateReachable: true, ReportedAtMs: at.UnixMilli(),
				Purchases: map[model.Verdict]int64{model.SoldOut: purchases},
				Sales:     map[string]map[model.Verdict]int64{"sale": {model.SoldOut: purchases, model.RateLimited: 1 << 60}},
				Stages:    map[string][]uint64{"deduct": {0, 1, 1 << 60}},
			}
		}
		report := func(g *Gate, at time.Time, purchases int64) {
			b.Helper()
			if err := g.Report(ctx, figures(at, purchases)); err != nil {
				b.Fatal(err)
			}
		}
		want := func(what string, at time.Time, want ...string) map[string]model.Instance {
			b.Helper()
			all, err := b.gate.Instances(ctx, at)
			if err != nil {
				b.Fatal(err)
			}
			if got := slices.Sorted(maps.Keys(all)); !slices.Equal(got, want) {
				b.Errorf("%s: %v run, want %v", what, got, want)
			}
			return all
		}
		want("before any report", now)
		report(b.gate, now, 1)
		report(there, now.Add(instanceTTL), 2)
		all := want("both report", now.Add(instanceTTL), "here", "there")
		if !reflect.DeepEqual(all["here"], figures(now, 1)) || !reflect.DeepEqual(all["there"], figures(now.Add(instanceTTL), 2)) {
			b.Errorf("the figures are %v", all)
		}
		want("one has fallen silent", now.Add(instanceTTL+time.Millisecond), "there")
		want("it is forgotten, not hidden", now, "there")
		report(b.gate, now, 3)
		if all := want("it is back", now, "here", "there"); all["here"].Purchases[model.SoldOut] != 3 {
			b.Errorf("the figures are %v", all)
		}
		if err := there.Leave(ctx); err != nil {
			b.Fatal(err)
		}
		want("the other left", now, "here")
		must(b, b.client.HSet(ctx, instancesKey, "broken", "{"))
		want("a report that nobody can read", now, "here")
	})
}
