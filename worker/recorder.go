package worker

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"flashsale/model"
	"flashsale/service"
)

const (
	// samplePeriod is how often the counts are read, as often as a bucket can begin; longer with many sales (pace).
	samplePeriod = time.Second
	// writeEvery is how many samples pass between two writes. The counts since the last write are lost if the instance dies.
	writeEvery = 5
	// mostUnwritten bounds the points that wait for a write. While there are more, no sample is taken; the next one has all counts.
	mostUnwritten = 5000
	// writeTimeout bounds one write. A stop waits for it, since nobody would know whether a write that is broken off counts.
	writeTimeout = 2 * time.Second
)

// Recorder stores over time what this instance counts of the live sales: the requests by verdict, and the stock. A write that
// fails is repeated. If it had been committed all the same, its requests are counted twice.
type Recorder struct {
	Counts  func() map[string]map[model.Verdict]int64 // since the start of this instance, by sale
	Catalog *service.Catalog
	Store   func(ctx context.Context, points []model.Point) error
	Log     *slog.Logger

	sampled map[string]map[model.Verdict]int64 // the counts of the last sample
	stocks  map[string]model.Stock             // of the last sample, by sale
	points  map[model.Point]int64              // the values that are not written yet, by points without a Value
	samples int
	failure error // of the last write
}

// Run records until ctx ends, and then once more.
func (r *Recorder) Run(ctx context.Context) {
	r.points = map[model.Point]int64{}
	everyPaced(ctx, "recorder", samplePeriod, r.Catalog.Watched, nil, r.Log, func(ctx context.Context) error {
		r.sample()
		if r.samples++; r.samples%writeEvery == 0 && len(r.points) > 0 {
			r.failure = r.write(ctx)
		}
		return r.failure
	})
	r.sample()
	if err := r.write(ctx); err != nil {
		r.Log.Error("the last counts of sales are lost", "error", err)
	}
}

// sample notes the changes since the last sample in the buckets of the present instant. Shadow sales have no series.
func (r *Recorder) sample() {
	if len(r.points) > mostUnwritten {
		return
	}
	now, counts, stocks := r.Catalog.Now(), r.Counts(), map[string]model.Stock{}
	for _, offer := range r.Catalog.Live() {
		at, _ := model.Bucket(offer.StartsAt, now)
		for verdict, n := range counts[offer.ID] {
			if n -= r.sampled[offer.ID][verdict]; n > 0 {
				r.points[model.Point{SaleID: offer.ID, At: at, Figure: string(verdict)}] += n
			}
		}
		stock := offer.Stock
		if stocks[offer.ID] = stock; r.stocks[offer.ID] != stock {
			for i, units := range []int64{stock.Free(), stock.Held, stock.Paid} {
				r.points[model.Point{SaleID: offer.ID, At: at, Figure: model.UnitFigures[i]}] = units
			}
		}
	}
	r.sampled, r.stocks = counts, stocks
}

// write stores the points, in the order of their keys, so that instances do not wait for each other in a circle.
func (r *Recorder) write(ctx context.Context) error {
	points := slices.SortedFunc(maps.Keys(r.points), func(a, b model.Point) int {
		return cmp.Or(cmp.Compare(a.SaleID, b.SaleID), a.At.Compare(b.At), cmp.Compare(a.Figure, b.Figure))
	})
	for i, p := range points {
		points[i].Value = r.points[p]
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	if err := r.Store(ctx, points); err != nil {
		return err
	}
	clear(r.points)
	return nil
}
