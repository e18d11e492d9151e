package gate

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"flashsale/model"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
)

// benchmarkBatch is how many entries are settled or released in one call: about as many as gather under load.
const benchmarkBatch = 100

// BenchmarkScripts runs one call after the other, so that the result is the cost of one call.
func BenchmarkScripts(b *testing.B) {
	run := func(b *testing.B, url string) {
		client := dial(b, Connect, url).(*redis.Client)
		for _, script := range []struct {
			name string
			run  func(b *testing.B, s *bench)
		}{
			{"admit", benchmarkAdmit(1<<40, model.Accepted)},
			{"admit-sold-out", benchmarkAdmit(0, model.SoldOut)},
			{"count", benchmarkCount},
			{"settled", benchmarkSettled},
			{"whole-way", benchmarkWholeWay(1)},
			{"whole-way-1000-sales", benchmarkWholeWay(1000)},
			{"release", benchmarkRelease},
			{"configure", benchmarkConfigure},
			{"close-and-install", benchmarkInstall},
		} {
			b.Run(script.name, func(b *testing.B) { script.run(b, (&bench{TB: b, shards: 1}).over(client)) })
		}
	}
	b.Run("redis=embedded", func(b *testing.B) { run(b, embeddedRedis(b)) })
	b.Run("redis=server", func(b *testing.B) { run(b, kit.Redis(b).URL()) })
}

// BenchmarkShards is a hot sale on a Cluster of three nodes, with its gate in one shard or in six. Each line has two calls
// under way, as the strategies have. The nodes share the machine with the callers.
func BenchmarkShards(b *testing.B) {
	client := dial(b, Connect, kit.Cluster(b, 3, 0).URL())
	for _, shards := range []int{1, 6} {
		b.Run(fmt.Sprintf("shards=%d", shards), func(b *testing.B) {
			s := (&bench{TB: b, shards: shards}).over(client)
			o := s.hotSale(1 << 40)
			const calls = 2
			lines := make([][]model.Attempt, shards) // the attempts of all calls of each line
			each := b.N/(calls*shards) + 1           // batches of one call
			for i := 0; slices.ContainsFunc(lines, func(l []model.Attempt) bool { return len(l) < each*calls*benchmarkBatch }); i++ {
				a := numbered(o, i)
				shard := homeOf(a.UserID, shards)
				lines[shard] = append(lines[shard], a)
			}
			b.ResetTimer()
			var calling sync.WaitGroup
			for _, attempts := range lines {
				for call := range calls {
					calling.Go(func() {
						for i := range each {
							from := (call*each + i) * benchmarkBatch
							for _, answer := range s.gate.Admit(b.Context(), attempts[from:from+benchmarkBatch]) {
								if answer.Err != nil {
									b.Error(answer.Err)
									return
								}
							}
						}
					})
				}
			}
			calling.Wait()
			b.ReportMetric(float64(shards*calls*each*benchmarkBatch)/b.Elapsed().Seconds(), "admits/s")
		})
	}
}

// hotSale installs the gate of a sale that does not end within a benchmark.
func (b *bench) hotSale(units int64) model.Offer {
	b.Helper()
	o := b.offer()
	o.Stock.Quota, o.Stock.Available = units, units
	b.open(o)
	b.Cleanup(func() { _ = b.gate.Erase(b.Context(), o.GateRef()) })
	return o
}

// numbered returns the attempt of the i-th user.
func numbered(o model.Offer, i int) model.Attempt {
	a := attemptUnder(o, "u-"+strconv.Itoa(i), 1, "key")
	a.Frequency = model.Frequency{Limit: 10, Window: time.Second}
	return a
}

// take admits a batch of new users and reads its entries.
func (b *bench) take(o model.Offer, from int) []model.Entry {
	b.Helper()
	batch := make([]model.Attempt, benchmarkBatch)
	for i := range batch {
		batch[i] = numbered(o, from+i)
	}
	b.admitAll(batch)
	entries := b.read(o, benchmarkBatch)
	if len(entries) != benchmarkBatch {
		b.Fatalf("%d entries", len(entries))
	}
	return entries
}

func benchmarkAdmit(units int64, want model.Verdict) func(b *testing.B, s *bench) {
	return func(b *testing.B, s *bench) {
		o := s.hotSale(units)
		for i := 0; b.Loop(); i++ {
			if got := s.judge(numbered(o, i), 1); got.Verdict != want {
				b.Fatal(got)
			}
		}
	}
}

func benchmarkCount(b *testing.B, s *bench) {
	o := s.hotSale(0)
	for i := 0; b.Loop(); i++ {
		s.count(o.GateRef(), "u-"+strconv.Itoa(i), model.Frequency{Limit: 10, Window: time.Second})
	}
}

// benchmarkSettled does not time how a batch is admitted and read.
func benchmarkSettled(b *testing.B, s *bench) {
	o := s.hotSale(1 << 40)
	for n := 0; b.Loop(); n += benchmarkBatch {
		b.StopTimer()
		entries := s.take(o, n)
		b.StartTimer()
		s.settle(entries, accepted)
	}
	b.ReportMetric(benchmarkBatch, "entries/op")
}

// benchmarkWholeWay admits a batch of new users of one or many sales in one call and settles it.
func benchmarkWholeWay(sales int) func(b *testing.B, s *bench) {
	return func(b *testing.B, s *bench) {
		offers := make([]model.Offer, sales)
		for i := range offers {
			offers[i] = s.hotSale(1 << 40)
		}
		batch, entries := make([]model.Attempt, benchmarkBatch), make([]model.Entry, benchmarkBatch)
		b.ReportAllocs()
		for n := 0; b.Loop(); n += benchmarkBatch {
			for i := range batch {
				batch[i] = numbered(offers[(n+i)%sales], n+i)
			}
			for i, answer := range s.gate.Admit(b.Context(), batch) {
				if answer.Entry == nil {
					b.Fatal(answer)
				}
				entries[i] = *answer.Entry
			}
			s.settle(entries, accepted)
		}
		b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*benchmarkBatch), "µs/entry")
	}
}

func benchmarkRelease(b *testing.B, s *bench) {
	o := s.hotSale(0)
	version := o.Stock.Version
	for b.Loop() {
		releases, after := make([]model.GateChange, benchmarkBatch), version
		for i := range releases {
			version++
			releases[i] = model.GateChange{Version: version, OrderID: fmt.Sprint("o-", version), UserID: fmt.Sprint("u-", i), Units: 1}
		}
		check.NoError(s, s.gate.CatchUp(b.Context(), o.GateRef(), after, version, releases))
	}
	b.ReportMetric(benchmarkBatch, "entries/op")
}

func benchmarkConfigure(b *testing.B, s *bench) {
	sale := s.hotSale(10).Sale
	for b.Loop() {
		sale.Revision++
		check.NoError(s, s.gate.Configure(s.Context(), sale))
	}
}

// benchmarkInstall closes a gate and opens the next one, with a thousand buyers.
func benchmarkInstall(b *testing.B, s *bench) {
	o := s.hotSale(10)
	for epoch := int64(2); b.Loop(); epoch++ {
		c := kit.ContentsOf(o)
		for i := range 1000 {
			c.Units["u-"+strconv.Itoa(i)] = 1
		}
		s.close(o, epoch)
		s.install(epoch, c)
	}
}
