package app_test

import (
	"encoding/csv"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"flashsale/internal/config"
	"flashsale/model"
	"flashsale/test/kit/check"
)

type saleReport struct {
	ID           string                     `json:"id"`
	Now          time.Time                  `json:"now"`
	StartsAt     time.Time                  `json:"starts_at"`
	Mode         string                     `json:"mode"`
	Currency     string                     `json:"currency"`
	Quota        int64                      `json:"quota"`
	SoldOutAfter *int64                     `json:"sold_out_after_seconds"`
	Requests     int64                      `json:"requests"`
	Purchases    map[string]int64           `json:"purchases"`
	Orders       map[string]model.OrderSums `json:"orders"`
	OrdersAt     *time.Time                 `json:"orders_at"`
	Gross        int64                      `json:"gross_cents"`
	Refunds      int64                      `json:"refunds_cents"`
	Line         map[string]int64           `json:"line"`
	Series       map[string][][3]int64      `json:"series"`
	Stock        [][4]int64                 `json:"stock"`
}

func (c *client) report(path string) (r saleReport) {
	c.t.Helper()
	c.get(path + "/report").want(http.StatusOK).read(&r)
	return r
}

// A report has the money, the requests and their course, and survives a restart of the instance and the loss of Redis.
func TestReport(t *testing.T) {
	t.Parallel()
	s := start(t)
	sale := s.createSale(fields{"quota": 3, "limit_per_user": 2})
	ann := s.buyer("ann")
	paid := ann.buy(sale.ID, 2)
	ann.pay(paid.ID)
	s.buyer("ben").buy(sale.ID, 1)
	for range 4 {
		s.buyer("carol").purchase(sale.ID, 1).refused(409, "sold_out")
	}
	shadow := s.shadow()
	path := adminSales + "/" + sale.ID
	s.eventually("the counts are stored", func() bool {
		r := s.operator().report(path)
		return r.Requests == 6 && r.SoldOutAfter != nil && len(r.Stock) > 0 && r.Stock[len(r.Stock)-1][3] == 2
	})
	before := s.operator().report(path)
	check.Same(t, "purchases", before.Purchases, map[string]int64{"accepted": 2, "sold_out": 4})
	check.Same(t, "paid orders", before.Orders["paid"], model.OrderSums{Orders: 1, Units: 2, AmountCents: 2 * 990})
	check.Same(t, "pending orders, and the quota", []int64{before.Orders["pending"].Orders, before.Quota}, []int64{1, 3})
	check.Same(t, "money", []int64{before.Gross, before.Refunds}, []int64{2 * 990, 0})
	requests := int64(0)
	for _, buckets := range before.Series {
		for _, bucket := range buckets {
			requests += bucket[2]
		}
	}
	check.Same(t, "requests in the series", requests, 6)
	s.buyer("dan").purchase(sale.ID, 1).refused(409, "sold_out")
	database := s.app.Settings().Database
	s.stop() // which stores the last counts, and ends the Redis in the process
	s = start(t, func(c *config.Settings) { c.Database = database })
	s.operator().call("POST", "/api/v1/admin/orders/"+paid.ID+"/refund", nil).want(http.StatusOK)
	after := s.operator().report(path)
	check.Same(t, "requests after a restart", after.Requests, 7)
	check.Same(t, "money after a refund", []int64{after.Gross, after.Refunds, after.Orders["refunded"].Orders}, []int64{2 * 990, 2 * 990, 1})
	check.Same(t, "series of a shadow sale", len(s.operator().report(adminSales+"/"+shadow.ID).Stock), 0)
	s.operator().call("GET", adminSales+"/GUESS/report", nil).refused(404, "not_found")
	s.buyer("ann").call("GET", path+"/report", nil).refused(403, "forbidden")
}

// The report of a campaign is that of its sales together.
func TestReportOfCampaign(t *testing.T) {
	t.Parallel()
	s := start(t)
	made := s.createCampaign(2, nil)
	s.buyer("ann").buy(made.Sales[0].ID, 1)
	s.buyer("bob").buy(made.Sales[1].ID, 1)
	path := adminCampaigns + "/" + made.ID
	s.eventually("the counts are stored", func() bool { return s.operator().report(path).Requests == 2 })
	r := s.operator().report(path)
	check.Same(t, "id", r.ID, made.ID)
	check.Same(t, "orders", r.Orders["pending"].Orders, 2)
	check.Same(t, "quota", r.Quota, made.Sales[0].Quota+made.Sales[1].Quota)
}

// The orders of a range of time are a file, of a sale and of all sales, without those of shadow sales.
func TestExportRange(t *testing.T) {
	t.Parallel()
	s := start(t)
	one, other, hidden := s.createSale(nil), s.createSale(fields{"title": "Kettle"}), s.shadow()
	first, second := s.buyer("ann").buy(one.ID, 1), s.buyer("ann").buy(other.ID, 1)
	s.as("crowd-1", model.RoleCrowd).buy(hidden.ID, 1)
	day := time.Date(2027, 1, 5, 0, 0, 0, 0, time.UTC)
	for i, id := range []string{first.ID, second.ID} {
		s.exec("UPDATE orders SET created_at_ms = ? WHERE id = ?", day.AddDate(0, 0, i).UnixMilli(), id)
	}
	rows := func(path string, from, to time.Time) (ids []string) {
		query := url.Values{}
		for name, at := range map[string]time.Time{"from": from, "to": to} {
			if !at.IsZero() {
				query.Set(name, at.Format(time.RFC3339))
			}
		}
		sheet := s.operator().get(path + "/orders.csv?" + query.Encode()).want(http.StatusOK)
		for _, row := range check.Must(csv.NewReader(strings.NewReader(string(sheet.body))).ReadAll())[1:] {
			ids = append(ids, row[0]+" "+row[2])
		}
		return ids
	}
	teapot, kettle := first.ID+" Teapot", second.ID+" Kettle"
	never := time.Time{}
	const all = "/api/v1/admin"
	check.Same(t, "all", rows(all, never, never), []string{kettle, teapot})
	check.Same(t, "from the second day", rows(all, day.AddDate(0, 0, 1), never), []string{kettle})
	check.Same(t, "the first day", rows(all, day, day.AddDate(0, 0, 1)), []string{teapot})
	check.Same(t, "earlier", rows(all, never, day), nil)
	check.Same(t, "of a sale", rows(adminSales+"/"+one.ID, day.In(time.FixedZone("", 3600)), never), []string{teapot})
	check.Same(t, "of a sale on the second day", rows(adminSales+"/"+one.ID, day.AddDate(0, 0, 1), never), nil)
	name := s.operator().get(all + "/orders.csv").header.Get("Content-Disposition")
	check.Same(t, "name", name, `attachment; filename="orders-all.csv"`)
	for _, query := range []string{"?from=yesterday", "?to=2027-01-05"} {
		s.operator().call("GET", all+"/orders.csv"+query, nil).refused(400, "bad_request")
	}
	s.as("sue", model.RoleBuyer).call("GET", all+"/orders.csv", nil).refused(403, "forbidden")
}
