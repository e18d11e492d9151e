package repository

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// Instances add up their counts, and the last stock of a bucket stays. The series of a sale are erased with it.
func TestSeries(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		one, other, hidden := d.newSale(t, 5), d.newSale(t, 7), d.newSale(t, 3, shadow)
		point := func(sale model.Sale, second int, figure string, n int64) model.Point {
			return model.Point{SaleID: sale.ID, At: one.StartsAt.Add(time.Duration(second) * time.Second), Figure: figure, Value: n}
		}
		pair := d.pair(t)
		check.Together(2, func(i int) {
			for range 10 {
				check.NoError(t, pair[i].AddPoints(t.Context(), []model.Point{
					point(one, 0, "accepted", 1), point(one, 0, "available", 1), point(one, 0, "held", 3), point(one, 0, "sold_out", 100),
					point(one, 60, "sold_out", 1), point(other, 0, "sold_out", 7),
				}))
			}
		})
		var many []model.Point
		for i := range 1000 {
			many = append(many, point(hidden, i, "sold_out", 1))
		}
		check.NoError(t, d.AddPoints(t.Context(), many))
		check.NoError(t, d.AddPoints(t.Context(), []model.Point{point(one, 0, "available", 0), point(other, -60, "available", 7)}))
		check.NoError(t, d.AddPoints(t.Context(), nil))
		series := func(ids ...string) (list []string) {
			sales, points, err := d.Series(t.Context(), ids)
			check.NoError(t, err)
			for _, p := range points {
				list = append(list, fmt.Sprint(p.At.Sub(one.StartsAt), " ", p.Figure, " ", p.Value))
			}
			slices.Sort(list)
			for _, offer := range sales {
				list = append(list, fmt.Sprint("quota ", offer.Stock.Quota))
			}
			return list
		}
		check.Same(t, "of one sale", series(one.ID), []string{"0s accepted 20", "0s available 0", "0s held 3", "0s sold_out 2000", "1m0s sold_out 20", "quota 5"})
		check.Same(t, "of both", len(series(one.ID, other.ID)), 5+2+2)
		check.Same(t, "of no sale", series("nothing"), nil)
		check.NoError(t, d.EraseSale(t.Context(), hidden.ID))
		check.Same(t, "of an erased sale", series(hidden.ID), nil)
		check.Same(t, "left", d.count(t, "SELECT COUNT(*) FROM series"), 7)
	})
}

// The sums of orders are those of all sales together, also over several pages.
func TestOrderSums(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		one, other := d.newSale(t, 50, limit(3)), d.newSale(t, 50)
		for i := range 5 {
			d.payFor(t, d.buy(t, one.ID, fmt.Sprint("u", i), 2))
		}
		d.refund(t, d.payFor(t, d.buy(t, one.ID, "r", 3)))
		d.buy(t, one.ID, "p", 1)
		d.cancel(t, d.buy(t, other.ID, "c", 1))
		d.payFor(t, d.buy(t, other.ID, "q", 1))
		sums := func(ids ...string) map[model.OrderStatus]model.OrderSums {
			all, err := d.OrderSums(t.Context(), ids)
			check.NoError(t, err)
			return all
		}
		price := one.PriceCents
		check.Same(t, "of one sale", sums(one.ID), map[model.OrderStatus]model.OrderSums{
			model.OrderPaid: {Orders: 5, Units: 10, AmountCents: 10 * price}, model.OrderRefunded: {Orders: 1, Units: 3, AmountCents: 3 * price},
			model.OrderPending: {Orders: 1, Units: 1, AmountCents: price}, model.OrderCancelled: {}, model.OrderExpired: {},
		})
		ids := []string{one.ID, other.ID}
		for len(ids) < model.MaxVariants {
			ids = append(ids, model.NewSaleID())
		}
		check.Same(t, "of a campaign", sums(ids...)[model.OrderPaid], model.OrderSums{Orders: 6, Units: 11, AmountCents: 11 * price})
		check.Same(t, "of no orders", sums("nothing")[model.OrderPaid], model.OrderSums{})
	})
}
