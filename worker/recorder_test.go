package worker

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// recording is the series of a store, and the counts of an instance.
type recording struct {
	*fakeStores
	err    error
	counts map[string]map[model.Verdict]int64
	writes int
	series map[string]int64 // by sale, time after the start, and figure
}

func (r *recording) AddPoints(_ context.Context, points []model.Point) error {
	defer locked()()
	r.writes++
	if r.err != nil {
		return r.err
	}
	for _, p := range points {
		key := fmt.Sprint(p.SaleID, " ", p.At.Sub(r.offer.StartsAt), " ", p.Figure)
		if slices.Contains(model.UnitFigures[:], p.Figure) {
			r.series[key] = 0
		}
		r.series[key] += p.Value
	}
	return nil
}

func (r *recording) count(sale string, verdict model.Verdict, n int64) {
	with(func() {
		if r.counts[sale] == nil {
			r.counts[sale] = map[model.Verdict]int64{}
		}
		r.counts[sale][verdict] += n
	})
}

// testRecorder runs a test beside a recorder, on a sale that starts when the test does.
func testRecorder(t *testing.T, test func(r *recording), afterwards func(r *recording)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &recording{fakeStores: newFakeStores(), counts: map[string]map[model.Verdict]int64{}, series: map[string]int64{}}
		r.offer.StartsAt = time.Now().UTC()
		check.NoError(t, r.catalog.Refresh(t.Context()))
		recorder := &Recorder{Catalog: r.catalog, Store: r.AddPoints, Log: slog.New(r.log), Counts: func() map[string]map[model.Verdict]int64 {
			defer locked()()
			all := map[string]map[model.Verdict]int64{}
			for sale, counts := range r.counts {
				all[sale] = maps.Clone(counts)
			}
			return all
		}}
		during(t, recorder.Run, func() { test(r) })
		afterwards(r)
	})
}

// Requests are counted in the second of the sample that saw them, and each of them once. What is not written yet when the instance
// stops is written then. Sales that nobody watches have no series.
func TestRecorder(t *testing.T) {
	testRecorder(t, func(r *recording) {
		r.count(saleA, model.Accepted, 2)
		r.count(saleB, model.Accepted, 9)
		r.count(model.ShadowPrefix+"A", model.Accepted, 9)
		pass(samplePeriod)
		r.count(saleA, model.SoldOut, 5)
		r.count(saleA, model.Accepted, 1)
		with(func() { r.offer.Stock.Available, r.offer.Stock.Held, r.offer.Stock.Version = 0, 10, 2 })
		check.NoError(t, r.catalog.Refresh(t.Context()))
		pass(samplePeriod)
		check.Same(t, "writes after two seconds", r.writes, 0)
		pass(2 * samplePeriod)
		want := map[string]int64{"1s accepted": 2, "2s accepted": 1, "2s sold_out": 5}
		for second, units := range map[string][]int64{"0s": {10, 0, 0}, "2s": {0, 10, 0}} {
			for i, n := range units {
				want[second+" "+model.UnitFigures[i]] = n
			}
		}
		for key, n := range r.series {
			check.Same(t, key, n, want[strings.TrimPrefix(key, saleA+" ")])
		}
		check.Same(t, "points", len(r.series), len(want))
		writes := r.writes
		pass(time.Minute)
		check.Same(t, "writes without new counts", r.writes, writes)
		r.count(saleA, model.SoldOut, 4)
	}, func(r *recording) {
		check.Same(t, "the last requests", r.series[saleA+" 1m4s sold_out"], 4)
	})
}

// While the database is away, nothing is lost or counted twice, however long that takes; then the rows that wait are bounded.
func TestRecorderWithoutItsStore(t *testing.T) {
	testRecorder(t, func(r *recording) {
		with(func() { r.err = errAway })
		for second := range 60 {
			for verdict := range mostUnwritten / 50 {
				r.count(saleA, model.Verdict(fmt.Sprint(verdict)), int64(second))
			}
			pass(samplePeriod)
		}
		check.Same(t, "the lines of the log", r.log.Count("recorder fails"), 1)
		with(func() { r.err = nil })
		pass(2 * writeEvery * samplePeriod)
		all, buckets := int64(0), len(r.series)
		for key, n := range r.series {
			if !strings.Contains(key, "available") {
				all += n
			}
		}
		check.Same(t, "all requests", all, int64(mostUnwritten/50*59*60/2))
		if buckets > mostUnwritten+3*mostUnwritten/50 {
			t.Errorf("%d rows waited", buckets)
		}
	}, func(*recording) {})
}
