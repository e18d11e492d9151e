package app_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"flashsale/test/kit/check"
)

// Nothing that a buyer gets has a number of units of a sale that hides its stock. Operators see the numbers, and can change at any
// time what buyers see.
func TestHiddenStock(t *testing.T) {
	t.Parallel()
	s := usual(t)
	const quota, sold = 7306, 2
	numbers := []string{"7306", "7,306", "7304", "7,304"}
	size := fields{"variant": "40", "quota": quota, "price_cents": 900, "limit_per_user": 2}
	for name, tc := range map[string]struct {
		make func(shown string) (saleID, public, desk, page string)
	}{
		"a sale": {func(shown string) (string, string, string, string) {
			id := s.createSale(fields{"quota": quota, "stock_shown": shown}).ID
			return id, "/api/v1/sales/" + id, adminSales + "/" + id, "/sales/" + id
		}},
		"a campaign": {func(shown string) (string, string, string, string) {
			made := s.createCampaign(1, fields{"sales": []fields{size}, "stock_shown": shown})
			return made.Sales[0].ID, "/api/v1/campaigns/" + made.ID, adminCampaigns + "/" + made.ID, "/campaigns/" + made.ID
		}},
	} {
		for shown, want := range map[string]string{"few": `"stock":"plenty"`, "none": `"state":"open"`} {
			t.Run(name+" that shows "+shown, func(t *testing.T) {
				s := s.in(t)
				saleID, public, desk, page := tc.make(shown)
				s.buyer("ann-"+name+shown).buy(saleID, sold)
				stream := s.anyone().listen(public + "/events")
				first := stream.next()
				answers := map[string]string{"event": first.data + first.id}
				for _, path := range []string{public, "/api/v1/sales/" + saleID, "/api/v1/sales", page, "/"} {
					answers[path] = string(s.anyone().get(path).body)
				}
				for what, body := range answers {
					for _, number := range numbers {
						if strings.Contains(body, number) {
							t.Errorf("%s has %s: %s", what, number, body)
						}
					}
				}
				for _, what := range []string{public, "event"} {
					check.Same(t, what+" has "+want, strings.Contains(answers[what], want), true)
					check.Same(t, what+" says plenty", strings.Contains(answers[what], "plenty"), shown == "few")
				}
				s.operator().get(desk).contains(fmt.Sprintf(`"quota":%d`, quota)).contains(`"stock_shown":"` + shown + `"`)
				s.operator().call("PATCH", desk, fields{"stock_shown": "exact"}).want(http.StatusOK)
				s.anyone().get(public).contains(fmt.Sprintf(`"available":%d,"quota":%d`, quota-sold, quota))
			})
		}
	}
	few := s.createSale(fields{"quota": 11, "limit_per_user": 9, "stock_shown": "few"}).ID
	says := func(stock string) {
		t.Helper()
		s.eventually("the stock is "+stock, func() bool {
			return strings.Contains(string(s.anyone().get("/api/v1/sales/"+few).body), stock)
		})
	}
	says(`"stock":"plenty"`)
	s.buyer("ann").buy(few, 8)
	says(`"stock":"plenty"`) // 3 of 11
	s.buyer("ann").buy(few, 1)
	says(`"stock":"few"`)
	s.buyer("ben").buy(few, 2)
	says(`"state":"sold_out"`)
	check.Same(t, "a sale that is sold out has stock", strings.Contains(string(s.anyone().get("/api/v1/sales/"+few).body), `"stock"`), false)

	line := s.createSale(fields{"quota": quota, "mode": "line", "stock_shown": "none", "starts_at": time.Now().Add(time.Minute)}).ID
	check.Same(t, "the line has units", strings.Contains(string(s.anyone().get("/api/v1/sales/"+line+"/line").body), `"left"`), false)
	draw := fields{"title": "Draw", "quota": 3, "mode": "draw", "stock_shown": "none"}
	s.operator().call("POST", adminSales, newSale(draw)).refused(http.StatusBadRequest, "bad_request")
}
