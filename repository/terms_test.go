package repository

import (
	"fmt"
	"testing"

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
