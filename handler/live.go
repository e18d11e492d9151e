package handler

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/model"
	"flashsale/service"
)

// Live shows the figures of sales, and those of the instances.
type Live struct {
	*Offers
	Service  *service.Live
	Consoles *Consoles
	// Instances returns the reports of the running instances by their ids.
	Instances func(ctx context.Context) map[string]model.Instance
}

// figures streams the figures of each of the route's sales.
func (l *Live) figures(c *gin.Context) {
	sales, _, ok := l.sales(c)
	if !ok {
		return
	}
	followed := make([]*service.Newest[*service.SaleFigures], len(sales))
	for i, offer := range sales {
		newest, leave := l.Service.Follow(offer.ID)
		defer leave()
		followed[i] = newest
	}
	l.Consoles.stream(c, func() (frames []byte, changed <-chan struct{}) {
		for _, newest := range followed { // all have the same period, so the changes of the last one set the pace
			var figures *service.SaleFigures
			if figures, changed = newest.Get(); figures != nil { // nil until the first reading
				frames = appendEvent(frames, "figures", viewFigures(figures))
			}
		}
		return frames, changed
	})
}

// figuresView holds the figures of a sale for the console.
type figuresView struct {
	SaleID    string                      `json:"sale_id"`
	Now       stamp                       `json:"now"`
	State     model.SaleState             `json:"state"`
	Status    model.SaleStatus            `json:"status"` // as the operator set it
	Revision  int64                       `json:"revision"`
	Quota     int64                       `json:"quota"`
	Available int64                       `json:"available"`
	Held      int64                       `json:"held"`
	Paid      int64                       `json:"paid"`
	Line      *lineFiguresView            `json:"line,omitempty"` // of a sale that is in line
	Requests  int64                       `json:"requests"`       // purchase requests that the instances have counted
	Purchases map[model.Verdict]int64     `json:"purchases"`      // those requests by verdict
	Orders    map[model.OrderStatus]int64 `json:"orders"`
	Units     map[model.OrderStatus]int64 `json:"units"`
	BooksAt   *stamp                      `json:"books_at"` // when orders, units and ok were read; null: not yet
	OK        bool                        `json:"ok"`       // the books balanced at that time
	Database  gin.H                       `json:"database"`
	Gate      gateView                    `json:"gate"`
	Drift     int64                       `json:"drift"`
	DriftAt   *stamp                      `json:"drift_at"` // when drift was measured; null: not yet
	Stages    map[string]latencyView      `json:"stages"`
	Instances []instanceView              `json:"instances"`
}

// lineFiguresView holds the figures of a sale that is in line. Calls are counted for the whole line, also in a campaign.
type lineFiguresView struct {
	Phase       model.Phase `json:"phase"`
	Entries     int64       `json:"entries"`
	Waiting     int64       `json:"waiting"` // an upper bound: some may have left
	Serving     int64       `json:"serving"`
	Reserved    int64       `json:"reserved"` // units of the sale in no call; in a campaign also those behind calls, which are for no single sale
	Called      int64       `json:"called"`   // units behind calls
	Spent       int64       `json:"spent"`    // calls that became orders
	Lapsed      int64       `json:"lapsed"`   // calls that ended by time, without an order
	CallSeconds int         `json:"call_seconds"`
}

type gateView struct {
	Reachable bool  `json:"reachable"`
	Epoch     int64 `json:"epoch"`
	Open      bool  `json:"open"`
	Left      int64 `json:"left"`
	Inflight  int64 `json:"inflight"`
	Stream    int64 `json:"stream"`
}

type latencyView struct {
	Count uint64  `json:"count"`
	P50Ms float64 `json:"p50_ms"`
	P99Ms float64 `json:"p99_ms"`
}

type instanceView struct {
	ID            string `json:"id"`
	URL           string `json:"url"`
	Strategy      string `json:"strategy"`
	GateReachable bool   `json:"gate_reachable"`
	Requests      int64  `json:"requests"` // to this sale
	ReportedAt    stamp  `json:"reported_at"`
}

func viewFigures(f *service.SaleFigures) figuresView {
	stock := f.Offer.Stock
	v := figuresView{
		SaleID: f.Offer.ID, Now: stamp(f.Now), State: f.Offer.State(f.Now, stock.Free()), Status: f.Offer.Status, Revision: f.Offer.Revision,
		Quota: stock.Quota, Available: stock.Free(), Held: stock.Held, Paid: stock.Paid,
		Purchases: map[model.Verdict]int64{},
		Orders:    f.Books.Orders, Units: f.Books.Units, BooksAt: optional(f.BooksAt),
		OK:       !f.BooksAt.IsZero() && len(f.Books.Violations()) == 0,
		Database: gin.H{"reachable": f.Database},
		Gate: gateView{
			Reachable: f.Reachable, Epoch: f.Gate.Epoch, Open: f.Gate.Open, Left: f.Gate.Left, Inflight: f.Gate.Inflight, Stream: f.Gate.Stream,
		},
		Drift: f.Drift, DriftAt: optional(f.DriftAt),
		Stages: map[string]latencyView{}, Instances: []instanceView{},
	}
	if line := f.Offer.Line; stock.Lined == model.InLine {
		v.Line = &lineFiguresView{
			Phase: line.Phase, Entries: line.Entries, Waiting: line.Entries - line.Serving, Serving: line.Serving,
			Reserved: stock.Reserved, Called: f.Line.Called, Spent: f.Line.SpentCalls, Lapsed: f.Line.LapsedCalls, CallSeconds: f.Offer.CallSeconds,
		}
	}
	for name, l := range f.Stages {
		v.Stages[name] = latencyView{l.Count, milliseconds(l.P50), milliseconds(l.P99)}
	}
	for _, id := range slices.Sorted(maps.Keys(f.Instances)) {
		i := f.Instances[id]
		at := stamp(time.UnixMilli(i.ReportedAtMs))
		view := instanceView{ID: id, URL: i.URL, Strategy: i.Strategy, GateReachable: i.GateReachable, ReportedAt: at}
		for verdict, n := range i.Sales[f.Offer.ID] {
			v.Purchases[verdict] += n
			view.Requests += n
		}
		v.Requests += view.Requests
		v.Instances = append(v.Instances, view)
	}
	return v
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// stats answers with the running instances and a part of what they report.
func (l *Live) stats(c *gin.Context) {
	views := map[string]gin.H{}
	for id, i := range l.Instances(c.Request.Context()) {
		views[id] = gin.H{
			"url": i.URL, "strategy": i.Strategy, "gate_reachable": i.GateReachable, "purchases": i.Purchases, "reported_at_ms": i.ReportedAtMs,
		}
	}
	c.JSON(http.StatusOK, gin.H{"instances": views})
}
