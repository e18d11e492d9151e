package service

import (
	"context"
	"slices"
	"time"

	"github.com/maypok86/otter/v2"

	"flashsale/model"
)

// sumsLimit bounds one reading of the orders' sums, in a request. The next one comes booksPause times as long after it.
const sumsLimit = 8 * time.Second

// ReportStore reads from the database what a report consists of.
type ReportStore interface {
	Series(ctx context.Context, saleIDs []string) (sales []model.Offer, points []model.Point, err error)
	OrderSums(ctx context.Context, saleIDs []string) (map[model.OrderStatus]model.OrderSums, error)
}

// Reports tells what came of sales and campaigns.
type Reports struct {
	store   ReportStore
	catalog *Catalog
	kept    *otter.Cache[string, pastSums] // by the id of the sale or campaign
	reading chan struct{}                  // holds a value while sums are looked for: one reading at a time
}

// NewReports creates a Reports.
func NewReports(store ReportStore, catalog *Catalog) *Reports {
	return &Reports{store, catalog, otter.Must(&otter.Options[string, pastSums]{MaximumSize: pastSales}), make(chan struct{}, 1)}
}

// pastSums are sums that were read at a time, while the stocks had a version: their versions together.
type pastSums struct {
	orders  map[model.OrderStatus]model.OrderSums
	version int64
	at      time.Time
	took    time.Duration
}

// Report is what came of a sale, or of all sales of a campaign. The tags are the names in the API. Times in the series are in seconds
// after the start.
type Report struct {
	Now       time.Time                             `json:"-"`
	Quota     int64                                 `json:"quota"`
	SoldOut   *int64                                `json:"sold_out_after_seconds"` // the first bucket after the start without a unit; nil: none
	Requests  int64                                 `json:"requests"`
	Purchases map[model.Verdict]int64               `json:"purchases"` // those requests by verdict
	OrdersAt  time.Time                             `json:"-"`         // when Orders were read; zero: they could not be read in time
	Orders    map[model.OrderStatus]model.OrderSums `json:"orders"`
	Line      map[string]int64                      `json:"line,omitempty"` // nil: there is no line, or it is the campaign's
	Series    map[model.Verdict][][3]int64          `json:"series"`         // of each bucket with requests: begin, length, number
	Stock     [][4]int64                            `json:"stock"`          // of each bucket with a change: begin, available, held, paid
}

// Report makes the report of a sale or a campaign with these sales.
func (r *Reports) Report(ctx context.Context, id string, of []model.Offer) (*Report, error) {
	ids := []string{id} // of a campaign, the sale that has the line, which has no orders and no points
	for _, offer := range of {
		if offer.ID != id {
			ids = append(ids, offer.ID)
		}
	}
	found, points, err := r.store.Series(ctx, ids)
	if err != nil {
		return nil, err
	}
	report, version := &Report{Now: r.catalog.Now()}, int64(0)
	for _, offer := range found {
		if stock := offer.Stock; offer.ID == id && offer.HasLine() && offer.LineID() == id {
			report.Line = map[string]int64{"entries": offer.Line.Entries, "spent": stock.SpentCalls, "lapsed": stock.LapsedCalls}
		}
		if offer.ID != id || of[0].ID == id {
			report.Quota, version = report.Quota+offer.Stock.Quota, version+offer.Stock.Version
		}
	}
	report.add(of[0].StartsAt, points)
	sums, err := r.sums(ctx, id, ids, version)
	report.Orders, report.OrdersAt = sums.orders, sums.at
	return report, err
}

// add adds up the points of the sales, which are in the order of time. A sale keeps its units until its next point.
func (r *Report) add(starts time.Time, points []model.Point) {
	r.Purchases, r.Series, r.Stock = map[model.Verdict]int64{}, map[model.Verdict][][3]int64{}, [][4]int64{}
	last, units := map[model.Point]int64{}, [4]int64{} // last by points without a time and a value
	for i, p := range points {
		after, verdict := int64(p.At.Sub(starts)/time.Second), model.Verdict(p.Figure)
		if figure := slices.Index(model.UnitFigures[:], p.Figure); figure >= 0 {
			key := model.Point{SaleID: p.SaleID, Figure: p.Figure}
			units[0], units[1+figure], last[key] = after, units[1+figure]+p.Value-last[key], p.Value
			if n := len(r.Stock); n > 0 && r.Stock[n-1][0] == after {
				r.Stock = r.Stock[:n-1]
			}
			r.Stock = append(r.Stock, units)
		} else {
			_, length := model.Bucket(starts, p.At)
			r.Requests, r.Purchases[verdict] = r.Requests+p.Value, r.Purchases[verdict]+p.Value
			if list := r.Series[verdict]; len(list) > 0 && list[len(list)-1][0] == after {
				list[len(list)-1][2] += p.Value
			} else {
				r.Series[verdict] = append(list, [3]int64{after, int64(length / time.Second), p.Value})
			}
		}
		complete := i+1 == len(points) || !points[i+1].At.Equal(p.At) // of the bucket, these are all points
		if complete && r.SoldOut == nil && after >= 0 && len(r.Stock) > 0 && units[1] == 0 {
			r.SoldOut = &after
		}
	}
}

// sums returns the sums of the orders. It reads all orders, unless no stock has changed since the last reading, or that was not
// long ago. After sumsLimit it gives up and returns what was read before, or nothing.
func (r *Reports) sums(ctx context.Context, id string, saleIDs []string, version int64) (pastSums, error) {
	select {
	case r.reading <- struct{}{}:
		defer func() { <-r.reading }()
	case <-ctx.Done():
		return pastSums{}, ctx.Err()
	}
	last, ok := r.kept.GetIfPresent(id)
	began := r.catalog.Now()
	if ok && (last.version == version || began.Sub(last.at) < booksPause*last.took) {
		return last, nil
	}
	limited, cancel := context.WithTimeout(ctx, sumsLimit)
	defer cancel()
	orders, err := r.store.OrderSums(limited, saleIDs)
	if limited.Err() != nil && ctx.Err() == nil {
		return last, nil
	}
	if err == nil {
		last = pastSums{orders, version, began, r.catalog.Now().Sub(began)}
		r.kept.Set(id, last)
	}
	return last, err
}
