package gate

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"flashsale/internal/embedded"
	"flashsale/model"
	"flashsale/test/kit"
)

// benchmarkBatch entries are settled or released in one call: about what gathers under load.
const benchmarkBatch = 100

// BenchmarkScripts runs each script by itself, one call after the other, so that what it costs shows rather than what
// a crowd can get through.
func BenchmarkScripts(b *testing.B) {
	run := func(b *testing.B, url string) {
		opts, err := Options(url)
		if err != nil {
			b.Fatal(err)
		}
		client := redis.NewClient(opts)
		b.Cleanup(func() { _ = client.Close() })
		s := benchmarked{b, New(client, "here")}
		b.Run("admit", s.admit)
		b.Run("admit-sold-out", s.admitSoldOut)
		b.Run("count", s.count)
		b.Run("settled", s.settled)
		b.Run("whole-way", s.wholeWay)
		b.Run("release", s.release)
		b.Run("configure", s.configure)
		b.Run("close-and-install", s.install)
	}
	b.Run("redis=embedded", func(b *testing.B) {
		server, err := embedded.StartRedis()
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(server.Close)
		run(b, server.URL())
	})
	b.Run("redis=server", func(b *testing.B) { run(b, kit.Redis(b).URL()) })
}

// BenchmarkParts is a hot sale on a Cluster of three nodes: each line has two calls of a batch under way, as the strategies
// have. With its gate in one part one node does it all. All of it shares the machine: the nodes are worth no more than the
// cores that the callers leave them.
func BenchmarkParts(b *testing.B) {
	c := kit.Cluster(b, 3, 0)
	client, err := Connect(c.URL())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = client.Close() })
	for _, parts := range []int{1, 6} {
		b.Run(fmt.Sprintf("parts=%d", parts), func(b *testing.B) {
			s, o := benchmarked{b, New(client, "here", partsOf)}, offerIn(parts)
			o.Stock.Quota, o.Stock.Available = 1<<40, 1<<40
			if err := install(s.gate, 1, contents(o)); err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = s.gate.Erase(b.Context(), o.ID) })
			const calls = 2
			lines := make([][]model.Attempt, parts) // of each line the attempts of all its calls, ever new users
			each := b.N/(calls*parts) + 1           // batches of one call
			for i := 0; slices.ContainsFunc(lines, func(l []model.Attempt) bool { return len(l) < each*calls*benchmarkBatch }); i++ {
				a := numbered(o, i)
				home := homeOf(a.UserID, parts)
				lines[home] = append(lines[home], a)
			}
			b.ResetTimer()
			var calling sync.WaitGroup
			for _, attempts := range lines {
				for call := range calls {
					calling.Go(func() {
						for i := range each {
							from := (call*each + i) * benchmarkBatch
							if _, err := s.gate.Admit(b.Context(), o.ID, attempts[from:from+benchmarkBatch], 1); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
			}
			calling.Wait()
			b.ReportMetric(float64(parts*calls*each*benchmarkBatch)/b.Elapsed().Seconds(), "admits/s")
		})
	}
}

type benchmarked struct {
	*testing.B
	gate *Gate
}

// open installs the gate of a sale that never ends within a benchmark.
func (s benchmarked) open(b *testing.B, units int64) model.Offer {
	b.Helper()
	o := offer()
	o.Stock.Quota, o.Stock.Available = units, units
	if err := install(s.gate, 1, contents(o)); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.gate.Erase(b.Context(), o.ID) })
	return o
}

func numbered(o model.Offer, i int) model.Attempt {
	user := "u-" + strconv.Itoa(i)
	a := attemptUnder(o, user, 1, "key")
	a.Frequency = model.Frequency{Limit: 10, Window: time.Second}
	return a
}

func (s benchmarked) admit(b *testing.B) {
	o := s.open(b, 1<<40)
	for i := 0; b.Loop(); i++ {
		if got, err := admitOne(b.Context(), s.gate, numbered(o, i), 1); err != nil || got.Verdict != model.Accepted {
			b.Fatal(got, err)
		}
	}
}

func (s benchmarked) admitSoldOut(b *testing.B) {
	o := s.open(b, 0)
	for i := 0; b.Loop(); i++ {
		if got, err := admitOne(b.Context(), s.gate, numbered(o, i), 1); err != nil || got.Verdict != model.SoldOut {
			b.Fatal(got, err)
		}
	}
}

func (s benchmarked) count(b *testing.B) {
	o := s.open(b, 0)
	for i := 0; b.Loop(); i++ {
		f := model.Frequency{Limit: 10, Window: time.Second}
		if _, ok, err := s.gate.Count(b.Context(), o.ID, "u-"+strconv.Itoa(i), f); err != nil || !ok {
			b.Fatal(ok, err)
		}
	}
}

// settled acknowledges a batch; admitting and reading it is not timed.
func (s benchmarked) settled(b *testing.B) {
	o := s.open(b, 1<<40)
	outcomes := make([]model.Outcome, benchmarkBatch)
	for i := range outcomes {
		outcomes[i] = model.Outcome{Verdict: model.Accepted, Order: &model.Order{Status: model.OrderPending}}
	}
	n := 0
	for b.Loop() {
		b.StopTimer()
		for range benchmarkBatch {
			if _, err := admitOne(b.Context(), s.gate, numbered(o, n), 1); err != nil {
				b.Fatal(err)
			}
			n++
		}
		entries, _, err := s.gate.Read(b.Context(), o.ID, benchmarkBatch)
		if err != nil || len(entries) != benchmarkBatch {
			b.Fatal(len(entries), err)
		}
		b.StartTimer()
		if err := s.gate.Settled(b.Context(), o.ID, entries, outcomes); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(benchmarkBatch, "entries/op")
}

// wholeWay admits a batch of ever new users in one call, reads it and acknowledges it.
func (s benchmarked) wholeWay(b *testing.B) {
	o := s.open(b, 1<<40)
	batch, outcomes := make([]model.Attempt, benchmarkBatch), make([]model.Outcome, benchmarkBatch)
	for i := range outcomes {
		outcomes[i] = model.Outcome{Verdict: model.Accepted, Order: &model.Order{Status: model.OrderPending}}
	}
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		for i := range batch {
			batch[i] = numbered(o, n)
			n++
		}
		if _, err := s.gate.Admit(b.Context(), o.ID, batch, 1); err != nil {
			b.Fatal(err)
		}
		entries, _, err := s.gate.Read(b.Context(), o.ID, benchmarkBatch)
		if err != nil || len(entries) != benchmarkBatch {
			b.Fatal(len(entries), err)
		}
		if err := s.gate.Settled(b.Context(), o.ID, entries, outcomes); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*benchmarkBatch), "µs/entry")
}

func (s benchmarked) release(b *testing.B) {
	o := s.open(b, 0)
	version := o.Stock.Version
	for b.Loop() {
		releases, after := make([]model.GateChange, benchmarkBatch), version
		for i := range releases {
			version++
			releases[i] = model.GateChange{Version: version, OrderID: fmt.Sprint("o-", version), UserID: fmt.Sprint("u-", i), Units: 1}
		}
		if err := s.gate.CatchUp(b.Context(), o.ID, after, version, releases); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(benchmarkBatch, "entries/op")
}

func (s benchmarked) configure(b *testing.B) {
	sale := s.open(b, 10).Sale
	for b.Loop() {
		sale.Revision++
		if err := s.gate.Configure(b.Context(), sale); err != nil {
			b.Fatal(err)
		}
	}
}

// install closes a gate and opens the next one, with a thousand buyers.
func (s benchmarked) install(b *testing.B) {
	o := s.open(b, 10)
	for epoch := int64(2); b.Loop(); epoch++ {
		c := contents(o)
		for i := range 1000 {
			c.Units["u-"+strconv.Itoa(i)] = 1
		}
		if ok, err := s.gate.Close(b.Context(), o.ID, epoch); err != nil || !ok {
			b.Fatal(ok, err)
		}
		if err := install(s.gate, epoch, c); err != nil {
			b.Fatal(err)
		}
	}
}
