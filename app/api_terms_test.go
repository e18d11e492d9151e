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
				s.buyer(strings.ReplaceAll("ann "+name+" "+shown, " ", "-")).buy(saleID, sold)
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
				s.operator().call("PATCH", desk, fields{"stock_shown": shown}).want(http.StatusOK) // the list has this sale in the next case, too
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

// Until the start an operator changes all terms of a sale, and buyers pay what they were shown then.
func TestTermsUntilTheStart(t *testing.T) {
	t.Parallel()
	s := usual(t)
	saleID := s.createSale(fields{"starts_at": time.Now().Add(time.Hour / 2)}).ID
	terms := fields{"price_cents": 1250, "original_price_cents": 0, "currency": "JPY", "pay_timeout_seconds": 60, "quota": 4}
	changed := s.patchSale(saleID, terms)
	check.Same(t, "the terms", []any{changed.PriceCents, changed.OriginalPriceCents, changed.Currency, changed.PayTimeoutSeconds, changed.Quota, changed.Available},
		[]any{int64(1250), int64(0), "JPY", 60, int64(4), int64(4)})
	if books := s.balanced(saleID); books.Gate.Left != 4 {
		t.Errorf("the gate has %d units", books.Gate.Left)
	}
	s.patch(saleID, fields{"quota": 5, "add_quota": 1}).refused(http.StatusBadRequest, "bad_request")
	s.patch(saleID, fields{"currency": "ABC"}).refused(http.StatusBadRequest, "bad_request")
	s.patch(saleID, fields{"beacon": true}).refused(http.StatusBadRequest, "bad_request")
	s.patch(saleID, fields{"starts_at": time.Now()}).refused(http.StatusConflict, "started") // pages may still show the old price
	s.exec("UPDATE sales SET terms_at_ms = terms_at_ms - 30000")
	s.patch(saleID, fields{"stock_shown": ""}).refused(http.StatusBadRequest, "bad_request")
	s.patchSale(saleID, fields{"starts_at": time.Now()})
	order := s.buyer("ann").buy(saleID, 2)
	check.Same(t, "the order", []any{order.AmountCents, order.Currency}, []any{int64(2500), "JPY"})
	for name, value := range terms.changed(fields{"price_cents": 1, "original_price_cents": 9, "currency": "EUR", "pay_timeout_seconds": 61, "quota": 3}) {
		s.patch(saleID, fields{name: value}).refused(http.StatusConflict, "started")
	}
	s.patchSale(saleID, fields{"quota": 6})
	s.wantStock(saleID, stock{available: 4, held: 2})

	campaign := s.createCampaign(2, fields{"starts_at": time.Now().Add(time.Hour / 2)})
	url, size := adminCampaigns+"/"+campaign.ID, campaign.Sales[0].ID
	s.operator().call("PATCH", url, fields{"currency": "EUR", "pay_timeout_seconds": 61}).want(http.StatusOK)
	s.patchSale(size, fields{"price_cents": 5, "quota": 1})
	for _, sale := range s.campaign(campaign.ID).Sales {
		check.Same(t, "a sale of the campaign", []any{sale.Currency, sale.PayTimeoutSeconds, sale.Quota == 1}, []any{"EUR", 61, sale.ID == size})
	}
	for _, name := range []string{"currency", "pay_timeout_seconds", "stock_shown"} {
		value := map[string]any{"currency": "CNY", "pay_timeout_seconds": 60, "stock_shown": "few"}[name]
		s.patch(size, fields{name: value}).refused(http.StatusBadRequest, "bad_request")
	}
	s.operator().call("PATCH", url, fields{"starts_at": time.Now()}).refused(http.StatusConflict, "started")
	s.exec("UPDATE sales SET terms_at_ms = terms_at_ms - 30000")
	s.operator().call("PATCH", url, fields{"stock_shown": ""}).refused(http.StatusBadRequest, "bad_request")
	s.operator().call("PATCH", url, fields{"starts_at": time.Now()}).want(http.StatusOK)
	s.operator().call("PATCH", url, fields{"currency": "CNY"}).refused(http.StatusConflict, "started")
}
