package service

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// archive is a database with the series and the orders of sales.
type archive struct {
	sales  []model.Offer
	points []model.Point
	takes  time.Duration // that OrderSums takes
	reads  int           // calls of OrderSums
}

func (r *archive) Series(context.Context, []string) ([]model.Offer, []model.Point, error) {
	return r.sales, r.points, nil
}

func (r *archive) OrderSums(ctx context.Context, _ []string) (map[model.OrderStatus]model.OrderSums, error) {
	r.reads++
	select {
	case <-time.After(r.takes):
		return map[model.OrderStatus]model.OrderSums{model.OrderPaid: {Orders: int64(r.reads)}}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// testReports runs a test on a sale whose stock the database has at version 1.
func testReports(t *testing.T, test func(t *testing.T, r *archive, report func() *Report)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		sale := openOffer()
		r := &archive{sales: []model.Offer{sale}, takes: time.Second}
		reports := NewReports(r, refreshed(t, newFakeStores(sale)))
		test(t, r, func() *Report {
			return check.Must(reports.Report(t.Context(), sale.ID, []model.Offer{sale}))
		})
	})
}

// The orders are summed anew when the stock has changed, but not too often.
func TestReportSumsOrders(t *testing.T) {
	testReports(t, func(t *testing.T, r *archive, report func() *Report) {
		want := func(when string, reads int64) {
			t.Helper()
			check.Same(t, "the reading that the report shows "+when, report().Orders[model.OrderPaid].Orders, reads)
		}
		want("at first", 1)
		time.Sleep(time.Hour)
		want("while nothing changes", 1)
		r.sales[0].Stock.Version++
		want("after a change", 2)
		r.sales[0].Stock.Version++
		want("soon after", 2)
		time.Sleep(booksPause * time.Second)
		want("some time after", 3)
	})
}

// A report does not wait longer than sumsLimit for the sums of the orders. It has those from before, or says that it has none.
func TestReportWithoutSums(t *testing.T) {
	testReports(t, func(t *testing.T, r *archive, report func() *Report) {
		r.takes = time.Hour
		began := time.Now()
		if got := report(); !got.OrdersAt.IsZero() || len(got.Orders) > 0 || time.Since(began) != sumsLimit {
			t.Errorf("after %v: %+v", time.Since(began), got)
		}
		r.takes = time.Second
		summed := report()
		r.takes, r.sales[0].Stock.Version = time.Hour, 9
		time.Sleep(time.Hour)
		if got := report(); !got.OrdersAt.Equal(summed.OrdersAt) || got.Orders[model.OrderPaid].Orders != 2 {
			t.Errorf("the sums from before: %+v, not %+v", got, summed)
		}
	})
}

// One viewer at a time has orders summed; the others get the same sums.
func TestReportsShareTheSums(t *testing.T) {
	testReports(t, func(t *testing.T, r *archive, report func() *Report) {
		check.Together(5, func(int) {
			check.Same(t, "the reading", report().Orders[model.OrderPaid].Orders, 1)
		})
		check.Same(t, "readings", r.reads, 1)
	})
}

// The stock of a campaign is that of its sales together. It is sold out when the last of them is. Before the start nothing is.
func TestReportOfACampaign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		line, one, other := openOffer(), openOffer(), openOffer()
		for _, o := range []*model.Offer{&line, &one, &other} {
			o.Campaign.ID, o.Mode = line.ID, model.ModeLine
		}
		line.Stock.LapsedCalls, line.Line.Entries = 3, 8
		r := &archive{sales: []model.Offer{line, one, other}}
		point := func(sale model.Offer, second int, figure string, n int64) {
			at := one.StartsAt.Add(time.Duration(second) * time.Second)
			r.points = append(r.points, model.Point{SaleID: sale.ID, At: at, Figure: figure, Value: n})
		}
		point(one, -9, "available", 0)
		point(one, -6, "available", 2)
		point(other, -6, "available", 3)
		point(one, 0, "accepted", 2)
		point(other, 0, "accepted", 3)
		point(one, 2, "available", 0)
		point(one, 2, "held", 2)
		point(one, 2, "sold_out", 7)
		point(other, 2, "available", 1)
		point(other, 5, "available", 0)
		point(other, 5, "held", 3)
		point(other, 700, "available", 1)
		point(other, 700, "sold_out", 1)
		report := check.Must(NewReports(r, refreshed(t, newFakeStores(line, one, other))).Report(t.Context(), line.ID, []model.Offer{one, other}))
		check.Same(t, "stock", report.Stock, [][4]int64{{-9, 0, 0, 0}, {-6, 5, 0, 0}, {2, 1, 2, 0}, {5, 0, 5, 0}, {700, 1, 5, 0}})
		check.Same(t, "sold out after", *report.SoldOut, 5)
		check.Same(t, "series", report.Series, map[model.Verdict][][3]int64{model.Accepted: {{0, 1, 5}}, model.SoldOut: {{2, 1, 7}, {700, 60, 1}}})
		check.Same(t, "requests", report.Purchases, map[model.Verdict]int64{model.Accepted: 5, model.SoldOut: 8})
		check.Same(t, "all requests and the quota", []int64{report.Requests, report.Quota}, []int64{13, 20})
		check.Same(t, "entries, calls and no-shows", report.Line, map[string]int64{"entries": 8, "spent": 0, "lapsed": 3})
	})
}
