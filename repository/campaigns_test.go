package repository

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// newCampaign creates a campaign of open sales, each with a quota and a limit for itself.
func (d *testDB) newCampaign(t *testing.T, common, own int, quotas ...int64) (model.Campaign, []string) {
	t.Helper()
	return d.campaignIn(t, model.ModeRush, common, own, quotas...)
}

func (d *testDB) campaignIn(t *testing.T, mode model.Mode, common, own int, quotas ...int64) (model.Campaign, []string) {
	t.Helper()
	now := d.now(t)
	campaign := model.Campaign{ID: model.NewSaleID(), Title: "跑鞋", Description: "Light", ImageURL: "/shoe.webp", LimitPerUser: common}
	sales, ids := make([]model.NewSale, len(quotas)), make([]string, len(quotas))
	for i, quota := range quotas {
		ids[i] = model.NewSaleID()
		sales[i] = model.NewSale{Quota: quota, Sale: model.Sale{
			ID: ids[i], Code: ids[i][:8], Title: fmt.Sprint("跑鞋 · ", 40+i), Currency: "CNY", PriceCents: 100, LimitPerUser: own, PayTimeoutSeconds: 900, Shards: 1,
			Mode: mode, CallSeconds: 60, Variant: fmt.Sprint(40 + i), StartsAt: now.Add(-time.Hour), EndsAt: now.Add(time.Hour),
		}}
	}
	check.NoError(t, d.CreateCampaign(t.Context(), campaign, sales, "op"))
	for _, id := range ids {
		d.exec(t, "UPDATE stock SET epoch = 1 WHERE sale_id = ?", id)
	}
	return campaign, ids
}

// A sale of a campaign is read with the campaign, and the sales of a campaign in their order.
func TestCampaignSales(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		campaign, ids := d.newCampaign(t, 3, 2, 5, 6, 7)
		list, err := d.CampaignSales(t.Context(), campaign.ID)
		check.NoError(t, err)
		var got []string
		for i, o := range list {
			got = append(got, o.ID)
			check.Same(t, "what it has from the campaign", []any{o.Campaign, o.Variant, o.Place, o.Stock.Quota}, []any{campaign, fmt.Sprint(40 + i), i, int64(5 + i)})
			check.Same(t, "read alone", d.offer(t, o.ID), o)
		}
		check.Same(t, "sales", got, ids)
		codes, _, err := d.SaleCodes(t.Context(), time.UnixMilli(0))
		check.NoError(t, err)
		check.Same(t, "the filter knows the campaign", codes[campaign.ID], campaign.ID)
	})
}

// What a user has in one sale counts in the others of the campaign, whatever way the units are taken, and until they are
// given back.
func TestCommonLimit(t *testing.T) {
	onEach(t, allWays, func(t *testing.T, d *testDB, by way) {
		_, ids := d.newCampaign(t, 3, 2, 10, 10, 10)
		buy := func(sale int, user, key string, quantity int) model.Outcome {
			return d.take(t, by, attempt(ids[sale], user, key, quantity))[0]
		}
		first := buy(0, "ann", "1", 2)
		wantVerdicts(t, []model.Outcome{
			first, buy(0, "ann", "2", 1), buy(1, "ann", "3", 2), buy(1, "ann", "4", 1), buy(2, "ann", "5", 1), buy(2, "bob", "6", 2),
		}, model.Accepted, model.LimitReached, model.LimitReached, model.Accepted, model.LimitReached, model.Accepted)
		_, verdict, err := d.Cancel(t.Context(), "ann", first.Order.ID)
		accepted(t, verdict, err)
		wantVerdicts(t, []model.Outcome{buy(1, "ann", "7", 1), buy(2, "ann", "8", 1), buy(2, "ann", "9", 1)},
			model.Accepted, model.Accepted, model.LimitReached)
	})
}

// A batch may have attempts of one user on several sales of a campaign. Only if all fit, they are settled together.
func TestCommonLimitInABatchOfSales(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		_, ids := d.newCampaign(t, 2, 2, 10, 10, 10)
		plain := d.newSale(t, 10)
		list := entries(attempt(ids[0], "ann", "1", 1), attempt(ids[1], "ann", "2", 1), attempt(ids[2], "bob", "3", 2), attempt(plain.ID, "ann", "4", 1))
		outcomes, err := d.SettleSales(t.Context(), list)
		check.NoError(t, err)
		wantVerdicts(t, outcomes, model.Accepted, model.Accepted, model.Accepted, model.Accepted)
		for _, more := range [][]model.Entry{ // over the limit by what the users have, and by the batch alone
			entries(attempt(ids[2], "ann", "5", 1), attempt(ids[0], "cat", "5", 1)),
			entries(attempt(ids[0], "dan", "5", 2), attempt(ids[1], "dan", "5", 1)),
		} {
			if _, err := d.SettleSales(t.Context(), more); !errors.Is(err, model.ErrApart) {
				t.Errorf("a batch over the common limit: %v", err)
			}
		}
	})
}

// Users buy all sales of a campaign at once, by every way and on two instances. No user gets more than the common limit, and
// nobody less.
func TestCommonLimitTogether(t *testing.T) {
	const sales, users, limit = 10, 6, 3
	onBoth(t, func(t *testing.T, d *testDB) {
		quotas := make([]int64, sales)
		for i := range quotas {
			quotas[i] = users * limit
		}
		_, ids := d.newCampaign(t, limit, limit, quotas...)
		stores := d.pair(t)
		var got [users]atomic.Int64
		check.Together(sales*users, func(i int) {
			by := []way{deducting, settling, locking}[i%3]
			user := i % users
			if stores[i/users%2].retry(t, by, attempt(ids[i/users], fmt.Sprint("u-", user), "k", 1))[0].Verdict == model.Accepted {
				got[user].Add(1)
			}
		})
		for user := range got {
			check.Same(t, fmt.Sprint("units of user ", user), got[user].Load(), limit)
		}
	})
}

// An expired order that is paid late takes its units again, unless the user has filled the common limit meanwhile.
func TestLatePaymentOverTheCommonLimit(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		_, ids := d.newCampaign(t, 1, 1, 5, 5)
		for user, want := range map[string]model.OrderStatus{"ann": model.OrderPaid, "bob": model.OrderExpired} {
			order := d.settle(t, attempt(ids[0], user, "k", 1))[0].Order
			payment := d.startPayment(t, *order)
			d.expire(t, *order)
			if user == "bob" {
				wantVerdicts(t, d.settle(t, attempt(ids[1], user, "k", 1)), model.Accepted)
			}
			d.pay(t, payment, "txn "+order.ID)
			check.Same(t, user, d.order(t, order.ID).Status, want)
		}
	})
}

// A change of a campaign changes all its sales, or none.
func TestChangeCampaign(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		campaign, ids := d.newCampaign(t, 1, 1, 5, 5)
		change := func(at func(sale string) model.Verdict) model.Verdict {
			verdict, err := d.ChangeCampaign(t.Context(), model.CampaignChange{
				CampaignID: campaign.ID, Actor: "op", Action: "patch",
				Edit: func(c *model.Campaign) model.Verdict { c.LimitPerUser++; return model.Accepted },
				EditSale: func(s *model.Sale) model.Verdict {
					s.Status = model.SalePaused
					return at(s.ID)
				},
			})
			check.NoError(t, err)
			return verdict
		}
		last := max(ids[0], ids[1])
		for _, verdict := range []model.Verdict{model.BadRequest, model.Accepted} {
			got := change(func(sale string) model.Verdict {
				if sale == last {
					return verdict
				}
				return model.Accepted
			})
			check.Same(t, "the verdict", got, verdict)
			for _, id := range ids {
				o := d.offer(t, id)
				changed := []any{o.Status == model.SalePaused, o.Campaign.LimitPerUser == 2, o.Revision == 2}
				done := verdict == model.Accepted
				check.Same(t, "changed", changed, []any{done, done, done})
			}
		}
		verdict, err := d.ChangeCampaign(t.Context(), model.CampaignChange{CampaignID: model.NewSaleID()})
		check.NoError(t, err)
		check.Same(t, "no such campaign", verdict, model.NotFound)
	})
}

// A campaign takes sales until it has as many as it may have. No two have the same variant.
func TestAddToCampaign(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		campaign, ids := d.newCampaign(t, 1, 1, 5)
		add := func(to model.Campaign, variant string) (model.Verdict, error) {
			return d.AddToCampaign(t.Context(), to.ID, "op", func([]model.Offer, time.Time) (model.NewSale, model.Verdict) {
				sale := d.offer(t, ids[0]).Sale
				sale.ID = model.NewSaleID()
				sale.Code, sale.Campaign, sale.Variant = sale.ID[:8], to, variant
				return model.NewSale{Sale: sale, Quota: 3}, model.Accepted
			})
		}
		if _, err := add(campaign, "40"); err == nil {
			t.Error("two sales have the same variant")
		}
		for i := 1; i < model.MaxVariants; i++ {
			verdict, err := add(campaign, fmt.Sprint("size ", i))
			accepted(t, verdict, err)
		}
		verdict, err := add(campaign, "one more")
		check.NoError(t, err)
		check.Same(t, "one more", verdict, model.TooMany)
		verdict, err = add(model.Campaign{ID: model.NewSaleID()}, "1")
		check.NoError(t, err)
		check.Same(t, "no such campaign", verdict, model.NotFound)
		list, err := d.CampaignSales(t.Context(), campaign.ID)
		check.NoError(t, err)
		check.Same(t, "the order", list[model.MaxVariants-1].Variant, fmt.Sprint("size ", model.MaxVariants-1))
	})
}

// Books show a user whose units in the campaign are not those in its sales, also if the sums agree.
func TestBooksOfACampaign(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		campaign, ids := d.newCampaign(t, 9, 9, 9, 9)
		wantVerdicts(t, d.settle(t, attempt(ids[0], "ann", "1", 2), attempt(ids[0], "bob", "1", 1)), model.Accepted, model.Accepted)
		move := func(user string, by int) {
			d.exec(t, "UPDATE buyers SET units = units + ? WHERE sale_id = ? AND user_id = ?", by, campaign.ID, user)
		}
		violations := func() []string {
			books, _, err := d.Books(t.Context(), ids[1])
			check.NoError(t, err)
			return books.Violations()
		}
		const users = "users whose units in the campaign differ from those in its sales: "
		move("ann", -1)
		check.Same(t, "one unit less", violations(), []string{"units of the campaign against those of its sales: 2, not 3", users + "1, not 0"})
		move("bob", 1)
		check.Same(t, "another user has it", violations(), []string{users + "2, not 0"})
		move("bob", -1)
		move("ann", 1)
	})
}
