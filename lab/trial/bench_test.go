package trial

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"

	"flashsale/internal/config"
	"flashsale/model"
	"flashsale/strategy"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
)

func TestMain(m *testing.M) { kit.Main(m) }

// A failure after an interrupt is not taken for the interrupt.
func TestFailureAfterAnInterrupt(t *testing.T) {
	broken := errors.New("the sale stays")
	for _, tc := range []struct {
		err, end, is, not error
	}{
		{context.Canceled, nil, context.Canceled, broken},
		{context.Canceled, broken, broken, context.Canceled},
		{nil, broken, broken, context.Canceled},
	} {
		if err := andThen(tc.err, tc.end); !errors.Is(err, tc.is) || errors.Is(err, tc.not) {
			t.Errorf("%v, then %v: %v", tc.err, tc.end, err)
		}
	}
	check.NoError(t, andThen(nil, nil))
}

const (
	// benchmarkCrowd attempts are under way at once for each processor: about a hundred on a small machine.
	benchmarkCrowd = 50
	// benchmarkStock is the largest that a sale may have: no benchmark sells out by accident.
	benchmarkStock = 100_000_000
)

// BenchmarkStrategies runs each strategy as the lab does, without HTTP and until the order is committed: with stock for every
// buyer, and with no stock.
func BenchmarkStrategies(b *testing.B) {
	run := func(b *testing.B, settings config.Settings) {
		bench, err := Open(b.Context(), settings)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			if err := bench.Close(); err != nil {
				b.Error(err)
			}
		})
		for _, name := range strategy.Names() {
			b.Run("strategy="+name+"/accepted", func(b *testing.B) { bench.measure(b, name, benchmarkStock, model.Accepted) })
			b.Run("strategy="+name+"/sold-out", func(b *testing.B) { bench.measure(b, name, 1, model.SoldOut) })
		}
	}
	settings := config.Settings{Redis: config.EmbeddedRedis, DBMaxConns: 32, LocalShare: 0.5, LocalBuffer: 64}
	b.Run("stores=embedded", func(b *testing.B) {
		settings.Database = kit.SQLite(b)
		run(b, settings)
	})
	b.Run("stores=servers", func(b *testing.B) {
		settings.Database, settings.Redis = kit.SharedMariaDB(b).NewDatabase(b), kit.Redis(b).URL()
		run(b, settings)
	})
}

func (b *Bench) measure(t *testing.B, name string, stock int, want model.Verdict) {
	round, err := b.Start(t.Context(), name, model.LabPlan{Stock: stock, Instances: 1, Concurrency: benchmarkCrowd})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := round.Buy(t.Context(), 0, "first"); err != nil || got != model.Accepted {
		t.Fatal(got, err)
	}
	var buyers atomic.Int64
	t.SetParallelism(benchmarkCrowd)
	t.ReportAllocs()
	t.ResetTimer()
	t.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			buyer := "b" + strconv.FormatInt(buyers.Add(1), 10)
			got, err := round.Buy(t.Context(), 0, buyer)
			for errors.Is(err, model.ErrUnavailable) { // a buyer who lost every race comes again
				got, err = round.Buy(t.Context(), 0, buyer)
			}
			if err != nil || got != want {
				t.Error(got, err)
				return
			}
		}
	})
	t.StopTimer()
	tally, err := round.Finish(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wantSold := int64(1)
	if want == model.Accepted {
		wantSold += buyers.Load()
	}
	if tally.Sold != wantSold {
		t.Errorf("%d sold, want %d", tally.Sold, wantSold)
	}
}
