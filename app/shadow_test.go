package app_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/internal/config"
	"flashsale/model"
	"flashsale/test/kit/check"
)

// shadow makes a hidden sale, as a rehearsal does.
func (s *server) shadow() model.Offer {
	s.t.Helper()
	now := s.app.Catalog.Now()
	made, invalid, err := s.app.Sales.Create(s.t.Context(), model.Sale{
		ID: model.NewShadowID(), Status: model.SaleShadow, Title: "Rehearsal", PriceCents: 100, Currency: "CNY", LimitPerUser: 1, PayTimeoutSeconds: 60,
		StartsAt: now.Add(-time.Minute), EndsAt: now.Add(time.Hour), Shards: 1,
	}, 5, "rehearse")
	if err != nil || invalid != nil {
		s.t.Fatal(err, invalid)
	}
	return made
}

// differing is what two answers that say the same may differ in.
var differing = regexp.MustCompile(`"request_id":"[^"]*"|[A-Z2-7]{16,}`)

// Whoever is not of the crowd gets the same answers about a shadow sale and its orders as about one that does not exist, at each
// route that is not for the staff.
func TestShadowSalesAreUnknown(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *config.Settings) { c.AllowOrigins = []string{"https://shop.example"} })
	hidden := s.shadow()
	crowd := s.as("crowd-1", model.RoleCrowd)
	bought := crowd.buy(hidden.ID, 1)
	unknown, unknownOrder := model.NewSaleID(), s.app.IDs.Derive("another", model.NewSaleID(), "key")

	walked := 0
	for _, stranger := range []*client{s.anyone(), s.buyer("ann"), s.operator(), s.as("shop", model.RoleHolds)} {
		path := strings.Split(stranger.orderURL(hidden.ID), "/")[5] // a good one, which a stranger can't get
		about := func(route gin.RouteInfo, sale, path, order, code string) *answer {
			url := strings.NewReplacer(":sale", sale, ":campaign", sale, ":path", path, ":id", order, ":code", code).Replace(route.Path)
			var body any
			if route.Method == http.MethodPost {
				body = fields{"quantity": 1}
			}
			return stranger.call(route.Method, url, body)
		}
		for _, route := range s.app.Handler().(*gin.Engine).Routes() {
			if route.Method == http.MethodHead || strings.Contains(route.Path, "/admin/") || strings.HasPrefix(route.Path, "/console") || !regexp.MustCompile(`:(sale|campaign|id|code)\b`).MatchString(route.Path) {
				continue
			}
			walked++
			got := about(route, hidden.ID, path, bought.ID, hidden.Code)
			otherPath := strings.Split(stranger.orderURL(unknown), "/")[5]
			want := about(route, unknown, otherPath, unknownOrder, "AAAAAAAA")
			what := stranger.user + " " + route.Method + " " + route.Path
			check.Same(t, what+": status", got.status, want.status)
			check.Same(t, what, differing.ReplaceAllString(string(got.body), ""), differing.ReplaceAllString(string(want.body), ""))
			check.Same(t, what+": cached", got.header.Get("Cache-Control"), want.header.Get("Cache-Control"))
		}
	}
	if walked < 4*20 {
		t.Errorf("only %d routes", walked)
	}

	// The crowd sees the hidden sale, of which no cache tells a stranger, and no other.
	for _, path := range []string{"/sales/" + hidden.ID, "/api/v1/sales/" + hidden.ID} {
		a := crowd.get(path)
		a.contains(hidden.ID)
		if !strings.Contains(strings.Join(a.header.Values("Vary"), ","), "Authorization") {
			t.Errorf("%s: %v", path, a.header)
		}
	}
	crowd.get("/api/v1/orders/" + bought.ID)
	real := s.createSale(nil)
	crowd.call("POST", "/api/v1/sales/"+real.ID+"/path", nil).refused(404, "not_found")
	crowd.purchase(real.ID, 1).refused(404, "not_found")

	// An operator who closes it does not show it. Once it is erased, its orders are gone for good.
	s.operator().call("POST", adminSales+"/"+hidden.ID+"/close", nil).want(200)
	if list := s.anyone().get("/api/v1/sales"); strings.Contains(string(list.body), hidden.ID) {
		t.Errorf("a closed shadow sale is shown: %s", list.body)
	}
	check.NoError(t, s.app.Stores.Database.EraseSale(t.Context(), hidden.ID), s.app.Catalog.Refresh(t.Context()))
	crowd.call("GET", "/api/v1/orders/"+bought.ID, nil).refused(404, "not_found")
}

// A real sale opens in the middle of a rehearsal: every one of its orders has its events, and neither the feed nor an endpoint
// tells of the rehearsal.
func TestRehearsalBesideARealSale(t *testing.T) {
	t.Parallel()
	s, shop := start(t, limited, privately), newReceiver(t)
	s.tells(shop)
	ended := make(chan rehearsed, 1)
	go func() {
		ended <- rehearse(t.Context(), t, "arrivals: spike\nbuyers: 150\nunits: 60\nlasts: 3s\nhalf: 1s\npay: 0.5\nwalk: purchase\n", "--url="+s.url, "--database="+s.app.Settings().Database)
	}()
	s.eventually("the crowd has come", func() bool {
		var n int
		check.NoError(t, s.database().QueryRowContext(t.Context(), "SELECT COUNT(*) FROM orders").Scan(&n))
		return n > 0
	})
	saleID := s.createSale(fields{"quota": 40}).ID
	var buying sync.WaitGroup
	orders := make([]order, 40)
	for i := range orders {
		buying.Go(func() {
			a, err := s.buyer(fmt.Sprint("real-", i)).tryPurchase(saleID)
			if check.Error(t, "purchase", err, nil); err == nil {
				a.want(http.StatusCreated).read(&orders[i])
			}
		})
	}
	buying.Wait()
	r := <-ended
	r.right(t)
	s.eventually("the sale is sold out", func() bool { return len(about(s.feed(), saleID, "")) == 2 })
	list := s.feed()
	check.Same(t, "events", len(list), len(orders)+2)
	for _, o := range orders {
		check.Same(t, "events of "+o.ID, about(list, saleID, o.ID), []string{"order.confirmed pending"})
	}
	for i, e := range list {
		if e.SaleID != saleID {
			t.Errorf("event %d tells of the rehearsal: %v", i, e)
		}
	}
	s.eventually("the endpoint has all events", func() bool { events, _ := shop.heard(); return len(events) >= len(list) })
	events, _ := shop.heard()
	check.Same(t, "events at the endpoint", len(events), len(list))
}
