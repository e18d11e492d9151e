package gate

import (
	"context"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"flashsale/model"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
)

// ear has what Listen has received.
type ear struct {
	changed chan string
	woken   chan []string
}

// listen calls Listen until the test ends or stop is called, and returns when Redis has the subscription.
func (b *bench) listen() (e ear, stop func()) {
	b.Helper()
	e = ear{changed: make(chan string, 10), woken: make(chan []string, 10)}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.gate.Listen(ctx, func(id string) { e.changed <- id }, func(ids []string) { e.woken <- ids })
	}()
	stop = func() { cancel(); check.Receive(b, "the end of Listen", done) }
	b.Cleanup(stop)
	b.awaitSubscribers(wakeChannel(b.gate.instance), 1)
	return e, stop
}

func (b *bench) awaitSubscribers(channel string, want int64) {
	b.Helper()
	check.Eventually(b, "the subscription changes", func() bool {
		counts, err := b.client.PubSubNumSub(b.Context(), channel).Result()
		return err == nil && counts[channel] == want
	})
}

func TestInstancesHearEachOther(t *testing.T) {
	eachRedis(t, func(b *bench) {
		here, _ := b.listen()
		there, _ := b.as("there").listen()
		outcomes := map[string]model.Outcome{"order-1": {Verdict: model.Accepted, Order: &model.Order{}}, "order-2": soldOut}
		check.NoError(b, b.gate.Wake(b.Context(), "there", outcomes))
		woken := slices.Sorted(slices.Values(check.Receive(b, "a wake-up", there.woken)))
		check.Same(b, "the woken orders", woken, []string{"order-1", "order-2"})
		check.NoError(b, b.gate.Announce(b.Context(), "sale-1")) // after its arrival nothing else is on the way
		for name, e := range map[string]ear{"here": here, "there": there} {
			check.Same(b, "the change that is heard "+name, check.Receive(b, "a change", e.changed), "sale-1")
			check.Same(b, "wake-ups of another instance that are heard "+name, len(e.woken), 0)
		}
	})
}

// TestListenSkipsInvalidMessages: a message that Wake did not send does not end Listen.
func TestListenSkipsInvalidMessages(t *testing.T) {
	eachRedis(t, func(b *bench) {
		here, _ := b.listen()
		for _, payload := range []string{"", "{", "{}", `{"order-2": {"Verdict": "accepted"}}`, "[1]", "[]", "null"} {
			must(b, b.client.Publish(b.Context(), wakeChannel("here"), payload))
		}
		check.NoError(b, b.gate.Wake(b.Context(), "here", map[string]model.Outcome{"order-1": {Verdict: model.Paused}}))
		got := check.Receive(b, "a wake-up", here.woken)
		for len(got) == 0 { // from [] and null
			got = check.Receive(b, "a wake-up", here.woken)
		}
		check.Same(b, "the woken orders", got, []string{"order-1"})
	})
}

func TestListenOutlivesARestartOfRedis(t *testing.T) {
	server := kit.Redis(t)
	b := newBench(t, server.URL())
	here, _ := b.listen()
	server.Restart()
	b.awaitSubscribers(controlChannel, 1)
	check.NoError(b, b.gate.Announce(b.Context(), "sale-1"))
	check.Same(t, "the change", check.Receive(b, "a change", here.changed), "sale-1")
}

func TestListenEndsWithItsContext(t *testing.T) {
	eachRedis(t, func(b *bench) {
		leaks := goleak.IgnoreCurrent()
		short := b.as("short")
		_, stop := short.listen()
		stop()
		_ = short.client.Close()
		b.awaitSubscribers(wakeChannel("short"), 0)
		// The embedded server has goroutines of its own for each connection of the test's client.
		const server = "github.com/alicebob/miniredis/v2/server.(*Server).servePeer"
		goleak.VerifyNone(b, leaks, goleak.IgnoreAnyFunction(server), goleak.IgnoreAnyFunction(server+".func2"))
	})
}

func TestInstancesReport(t *testing.T) {
	eachRedis(t, func(b *bench) {
		ctx, there := b.Context(), b.as("there")
		now := time.UnixMilli(1_800_000_000_000)
		figures := func(at time.Time, purchases int64) model.Instance {
			return model.Instance{
				URL: "http://10.0.0.1:8080", Strategy: "hybrid", GateReachable: true, ReportedAtMs: at.UnixMilli(),
				Purchases: map[model.Verdict]int64{model.SoldOut: purchases},
				Sales:     map[string]map[model.Verdict]int64{"sale": {model.SoldOut: purchases, model.RateLimited: 1 << 60}},
				Stages:    map[string][]uint64{"deduct": {0, 1, 1 << 60}},
			}
		}
		report := func(b *bench, at time.Time, purchases int64) {
			b.Helper()
			check.NoError(b, b.gate.Report(ctx, figures(at, purchases)))
		}
		type figuresOf = map[string]model.Instance
		want := func(when string, read func(context.Context, time.Time) (figuresOf, error), at time.Time, want figuresOf) {
			b.Helper()
			got, err := read(ctx, at)
			check.NoError(b, err)
			check.Same(b, when+" the instances", got, want)
		}
		later := now.Add(instanceTTL)
		both := figuresOf{"here": figures(now, 1), "there": figures(later, 2)}
		oneIsSilent := figuresOf{"there": both["there"]}

		want("before any report", b.gate.Instances, now, figuresOf{})
		report(b, now, 1)
		report(there, later, 2)
		want("when both report", b.gate.Instances, later, both)
		want("when one is silent", b.gate.Running, later.Add(time.Millisecond), oneIsSilent)
		want("after Running, which deletes nothing,", b.gate.Running, later, both)
		want("when one is silent", b.gate.Instances, later.Add(time.Millisecond), oneIsSilent)
		want("after Instances, which deletes the silent one,", b.gate.Instances, now, oneIsSilent)
		report(b, now, 3)
		want("when the silent one reports again", b.gate.Instances, now, figuresOf{"here": figures(now, 3), "there": both["there"]})
		check.NoError(b, there.gate.Leave(ctx))
		must(b, b.client.HSet(ctx, instancesKey, "broken", "{"))
		want("when one has left and one report is broken", b.gate.Instances, now, figuresOf{"here": figures(now, 3)})
	})
}
