package gate

import (
	"fmt"
	"testing"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// campaignOf makes a campaign with a limit for each user, opens the gates of its sales, and returns both.
func (b *bench) campaignOf(sales, limit int) (offers []model.Offer, common *model.CommonLimit) {
	b.Helper()
	campaign := model.Campaign{ID: model.NewSaleID(), LimitPerUser: limit}
	common = &model.CommonLimit{Units: limit}
	for range sales {
		o := b.offer()
		o.Campaign = campaign
		offers, common.SaleIDs = append(offers, b.open(o)), append(common.SaleIDs, o.ID)
	}
	return offers, common
}

// attemptIn returns an attempt on one unit of a campaign's sale, which knows the common limit.
func attemptIn(o model.Offer, common *model.CommonLimit, user, key string) model.Attempt {
	a := attemptUnder(o, user, 1, key)
	a.CampaignID, a.Common = o.Campaign.ID, common
	return a
}

// TestCommonLimit: what a user has in one sale of a campaign counts in the others, in one batch and in several calls, beside
// other users and sales, and no longer once it was given back. Without the common limit, each sale judges for itself.
func TestCommonLimit(t *testing.T) {
	eachGate(t, func(b *bench) {
		sales, common := b.campaignOf(3, 2)
		other, otherCommon := b.campaignOf(2, 1)
		alone := b.sale()
		batch := []model.Attempt{
			attemptIn(sales[0], common, "u-1", "1"), attemptIn(sales[1], common, "u-1", "1"), attemptIn(sales[2], common, "u-1", "1"),
			attemptIn(sales[2], common, "u-2", "1"), attemptIn(sales[0], common, "u-1", "1"), attemptIn(sales[0], common, "u-1", "2"),
			attemptIn(other[1], otherCommon, "u-1", "1"), attemptIn(other[0], otherCommon, "u-1", "1"), attempt(alone, "u-1", 2),
		}
		// Attempts of one sale are judged together, so those on the first sale come before the second one.
		want := []model.Outcome{accepted, limitReached, limitReached, accepted, repeated, accepted, accepted, limitReached, accepted}
		check.Same(b, "in one batch", b.judgeAll(batch), want)
		for i, o := range sales {
			check.Same(b, fmt.Sprint("later, in sale ", i), b.judge(attemptIn(o, common, "u-1", "3"), 1), limitReached)
		}
		check.Same(b, "without the common limit", b.judge(attemptIn(sales[1], nil, "u-1", "4"), 1), accepted)

		refused := b.read(sales[0], all)
		check.Same(b, "entries of the first sale", len(refused), 2)
		b.settle(refused, limitReached, limitReached)
		check.Same(b, "after units came back", b.judge(attemptIn(sales[2], common, "u-1", "5"), 1), accepted)
		check.Same(b, "at the limit again", b.judge(attemptIn(sales[0], common, "u-1", "6"), 1), limitReached)
	})
}

// TestCommonLimitBesideADamagedSale: the units in a damaged key are not counted, and the other sales go on.
func TestCommonLimitBesideADamagedSale(t *testing.T) {
	eachRedis(t, func(b *bench) {
		sales, common := b.campaignOf(2, 1)
		must(b, b.client.Set(b.Context(), unitsKey(tag(sales[0])), "damaged", 0))
		check.Same(b, "the other sale", b.judge(attemptIn(sales[1], common, "u-1", "1"), 1), accepted)
		check.Same(b, "the other sale, again", b.judge(attemptIn(sales[1], common, "u-1", "2"), 1), limitReached)
	})
}
