package repository

import (
	"fmt"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// A store settles by the terms that it remembers, but notices what another store has changed: a sale's limit, a campaign's
// limit, the first refusal.
func TestTermsThatAnotherStoreChanges(t *testing.T) {
	settles := func(t *testing.T, d *testDB, want model.Verdict, a model.Attempt) {
		t.Helper()
		wantVerdicts(t, d.settle(t, a), want)
		more := attempts(a.SaleID, "other"+a.IdempotencyKey, 1)
		wantVerdicts(t, d.settle(t, more...), model.Accepted) // this store knows the terms afterwards
	}
	for name, test := range map[string]func(t *testing.T, here, there *testDB){
		"limit of a sale": func(t *testing.T, here, there *testDB) {
			sale := here.newSale(t, 20, limit(2))
			settles(t, here, model.Accepted, attempt(sale.ID, "a", "1", 2))
			there.change(t, sale.ID, 0, limit(1))
			settles(t, here, model.LimitReached, attempt(sale.ID, "b", "2", 2))
			there.change(t, sale.ID, 0, limit(3))
			settles(t, here, model.Accepted, attempt(sale.ID, "c", "3", 3))
		},
		"limit of a campaign": func(t *testing.T, here, there *testDB) {
			campaign, ids := here.newCampaign(t, 2, 2, 20, 20)
			settles(t, here, model.Accepted, attempt(ids[0], "a", "1", 2))
			for _, most := range []int{1, 2} {
				want := map[int]model.Verdict{1: model.LimitReached, 2: model.Accepted}[most]
				verdict, err := there.ChangeCampaign(t.Context(), model.CampaignChange{
					CampaignID: campaign.ID, Actor: "me", Action: "update",
					Edit:     func(c *model.Campaign) model.Verdict { c.LimitPerUser = most; return model.Accepted },
					EditSale: func(*model.Sale) model.Verdict { return model.Accepted },
				})
				accepted(t, verdict, err)
				settles(t, here, want, attempt(ids[0], fmt.Sprint("b", most), fmt.Sprint("2", most), 2))
			}
		},
		"refusals": func(t *testing.T, here, there *testDB) {
			sale := here.newSale(t, 20)
			settles(t, here, model.Accepted, attempt(sale.ID, "a", "1", 1))
			for _, user := range []string{"b", "c"} { // the first refusal of the sale, and another one
				refused := attempt(sale.ID, user, "2"+user, 1)
				check.Same(t, "the verdict of the other store", there.refuse(t, refused, model.ReasonFailed).Verdict, model.ReasonFailed)
				settles(t, here, model.ReasonFailed, refused)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, d *testDB) {
				stores := d.pair(t)
				test(t, stores[0], stores[1])
			})
		})
	}
}

// Sales of one batch may have different versions of their terms, and a batch fails as a whole if one of them is old.
func TestTermsOfSeveralSales(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		var sales []model.Sale
		stores := d.pair(t)
		for i := range 5 {
			sales = append(sales, d.newSale(t, 10))
			if i%2 == 0 {
				d.change(t, sales[i].ID, 0, limit(i+2))
			}
		}
		batch := func(key string) (list []model.Entry) {
			for i, sale := range sales {
				list = append(list, entries(attempt(sale.ID, fmt.Sprint("u-", key, i), key, 1))...)
			}
			return list
		}
		for _, key := range []string{"unknown", "known"} {
			_, err := stores[0].SettleSales(t.Context(), batch(key))
			check.NoError(t, err)
		}
		stores[1].change(t, sales[3].ID, 0, limit(1))
		before := d.stock(t, sales[0].ID)
		_, err := stores[0].SettleSales(t.Context(), batch("changed"))
		check.Error(t, "settle with old terms of one sale", err, model.ErrApart)
		check.Same(t, "the stock of another sale", d.stock(t, sales[0].ID), before)
		_, err = stores[0].SettleSales(t.Context(), batch("again"))
		check.NoError(t, err)
	})
}

// Until the start, an operator changes terms and lowers the quota, also in another store than the one that sells. Then, and while
// somebody has entered, the terms are fixed.
func TestTermsUntilTheStart(t *testing.T) {
	edit := func(s *model.Sale) {
		s.PriceCents, s.OriginalPriceCents, s.Currency, s.PayTimeoutSeconds, s.StockShown = 900, 1000, "EUR", 60, model.StockFew
	}
	quota := func(t *testing.T, d *testDB, saleID string, quota int64) model.Verdict {
		t.Helper()
		_, verdict, err := d.ChangeSale(t.Context(), model.SaleChange{
			SaleID: saleID, Actor: "op", Action: "patch", Quota: quota, Edit: func(*model.Sale) model.Verdict { return model.Accepted },
		})
		check.NoError(t, err)
		return verdict
	}
	refuses := func(t *testing.T, d *testDB, saleID string, want model.Verdict) {
		t.Helper()
		before := d.offer(t, saleID)
		for name, edit := range map[string]func(*model.Sale){
			"price":          func(s *model.Sale) { s.PriceCents++ },
			"original price": func(s *model.Sale) { s.OriginalPriceCents++ },
			"currency":       func(s *model.Sale) { s.Currency = "USD" },
			"time to pay":    func(s *model.Sale) { s.PayTimeoutSeconds++ },
		} {
			_, verdict := d.tryChange(t, saleID, 0, edit)
			check.Same(t, "another "+name, verdict, want)
		}
		check.Same(t, "a lower quota", quota(t, d, saleID, 1), want)
		check.Same(t, "the sale afterwards", d.offer(t, saleID), before)
	}
	in := func(by time.Duration) func(*model.Sale) { return shift(time.Hour + by) }
	onBoth(t, func(t *testing.T, d *testDB) {
		stores := d.pair(t)
		here, there := stores[0], stores[1]
		sale := here.newSale(t, 10, in(time.Hour))
		changed := there.change(t, sale.ID, 0, edit)
		check.Same(t, "what orders depend on", []any{changed.PriceCents, changed.Currency, changed.PayTimeoutSeconds}, []any{int64(900), "EUR", 60})
		check.Same(t, "the sale that is kept", here.offer(t, sale.ID).Sale, changed.Sale)
		check.Same(t, "a lower quota", quota(t, there, sale.ID, 4), model.Accepted)
		check.Same(t, "the same quota", quota(t, there, sale.ID, 4), model.Accepted)
		check.Same(t, "units", []int64{here.stock(t, sale.ID).Quota, here.stock(t, sale.ID).Available}, []int64{4, 4})
		check.Same(t, "units that the gate is told to give up", here.told(t, sale.ID, 0)[0].Units, -6)
		check.Same(t, "rows in the log", here.count(t, "SELECT COUNT(*) FROM audit_log WHERE detail LIKE '%price_cents: 1990 -> 900%'"), 1)

		_, verdict := there.tryChange(t, sale.ID, 0, shift(-3*time.Hour/2))
		check.Same(t, "a start soon after new terms", verdict, model.Started)
		here.exec(t, "UPDATE sales SET terms_at_ms = terms_at_ms - 30000") // as if they were older
		there.change(t, sale.ID, 0, shift(-3*time.Hour/2))
		outcomes := here.settle(t, attempt(sale.ID, "a", "1", 1))
		wantVerdicts(t, outcomes, model.Accepted)
		check.Same(t, "the order", []any{outcomes[0].Order.AmountCents, outcomes[0].Order.Currency}, []any{int64(900), "EUR"})
		refuses(t, there, sale.ID, model.Started)
		check.Same(t, "a higher quota", quota(t, there, sale.ID, 5), model.Accepted)
		there.change(t, sale.ID, 0, shift(2*time.Hour))
		refuses(t, there, sale.ID, model.Started) // it has orders, though its start is to come again

		soon := here.newSale(t, 10, in(noticeTime/2))
		refuses(t, here, soon.ID, model.Started)
		later := here.newSale(t, 10, in(time.Hour))
		_, verdict = here.tryChange(t, later.ID, 0, edit, func(s *model.Sale) { s.StartsAt = here.now(t) })
		check.Same(t, "another price with a start at once", verdict, model.Started)

		lined := here.line(t, 10, model.ModeLine)
		here.change(t, lined.ID, 0, edit, func(s *model.Sale) { s.Beacon, s.EntryWork = true, 100 })
		check.Same(t, "its line", []any{here.offer(t, lined.ID).Beacon, here.offer(t, lined.ID).EntryWork}, []any{true, int64(100)})
		check.Same(t, "a lower quota of a line", quota(t, here, lined.ID, 7), model.Accepted)
		check.Same(t, "reserved", here.stock(t, lined.ID).Reserved, 7)
		here.enters(t, lined.ID, "ann")
		refuses(t, here, lined.ID, model.Entered)
		_, verdict = here.tryChange(t, lined.ID, 0, func(s *model.Sale) { s.EntryWork = 0 })
		check.Same(t, "other work after an entry", verdict, model.Entered)
		here.balanced(t)
	})
}

// A campaign's terms change in all its sales or in none.
func TestTermsOfACampaign(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		campaign, ids := d.newCampaign(t, 2, 2, 20, 20)
		inEuro := func() model.Verdict {
			t.Helper()
			verdict, err := d.ChangeCampaign(t.Context(), model.CampaignChange{
				CampaignID: campaign.ID, Actor: "me", Action: "patch", Edit: func(*model.Campaign) model.Verdict { return model.Accepted },
				EditSale: func(s *model.Sale) model.Verdict { s.Currency = "EUR"; return model.Accepted },
			})
			check.NoError(t, err)
			return verdict
		}
		currencies := func() (list []string) {
			for _, id := range ids {
				list = append(list, d.offer(t, id).Currency)
			}
			return list
		}
		check.Same(t, "after the start", inEuro(), model.Started)
		check.Same(t, "currencies", currencies(), []string{"CNY", "CNY"})
		d.exec(t, "UPDATE sales SET starts_at_ms = ends_at_ms - 1 WHERE campaign_id = ?", campaign.ID)
		check.Same(t, "before the start", inEuro(), model.Accepted)
		check.Same(t, "currencies", currencies(), []string{"EUR", "EUR"})

		campaign, ids = d.campaignIn(t, model.ModeLine, 2, 2, 20, 20)
		d.exec(t, "UPDATE sales SET starts_at_ms = ends_at_ms - 1 WHERE campaign_id = ?", campaign.ID)
		_, verdict, err := d.ChangeSale(t.Context(), model.SaleChange{
			SaleID: ids[0], Actor: "me", Action: "patch", Quota: 15, Edit: func(*model.Sale) model.Verdict { return model.Accepted },
		})
		accepted(t, verdict, err)
		line := d.stock(t, campaign.ID)
		check.Same(t, "units of the line", []int64{line.Quota, line.Reserved}, []int64{35, 35})
		d.enters(t, campaign.ID, "ann")
		check.Same(t, "after an entry", inEuro(), model.Entered)
		d.balanced(t)
	})
}
