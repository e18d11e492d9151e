package repository

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit/check"
)

func summaryID(s model.Summary) string { return s.ID }

// summarized returns the ids in the list that a filter gives.
func (d *testDB) summarized(t *testing.T, f model.SummaryFilter) (ids []string) {
	t.Helper()
	f.Limit = 100
	list, next, err := d.Summaries(t.Context(), f)
	check.NoError(t, err)
	check.Same(t, "next page", next, "")
	return each(list, summaryID)
}

// A sale has the state in the list that it has elsewhere, except that a paused sale is paused before its start too.
func TestSummaryStates(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		want := map[model.SaleState][]string{}
		for _, status := range []model.SaleStatus{model.SaleLive, model.SalePaused, model.SaleClosed} {
			for _, by := range []time.Duration{-3 * time.Hour, 0, 3 * time.Hour} {
				for _, sold := range []bool{false, true} {
					sale := d.newSale(t, 1)
					if sold {
						d.buy(t, sale.ID, "me", 1)
					}
					d.exec(t, "UPDATE sales SET status = ?, starts_at_ms = starts_at_ms + ?, ends_at_ms = ends_at_ms + ? WHERE id = ?",
						string(status), by.Milliseconds(), by.Milliseconds(), sale.ID)
					offer := d.offer(t, sale.ID)
					state := offer.State(d.now(t), offer.Stock.Free())
					if state == model.StateUpcoming && status == model.SalePaused {
						state = model.StatePaused
					}
					want[state] = append(want[state], sale.ID)
				}
			}
		}
		check.Same(t, "states", len(want), len(model.States))
		for _, state := range model.States {
			list, _, err := d.Summaries(t.Context(), model.SummaryFilter{State: state, Limit: 100})
			check.NoError(t, err)
			slices.Sort(want[state])
			check.Same(t, string(state), slices.Sorted(slices.Values(each(list, summaryID))), want[state])
			for _, s := range list {
				check.Same(t, "state", s.State, state)
			}
		}
	})
}

// A campaign is one entry with the sums of its sales, and has the first state that one of these has.
func TestSummaryOfACampaign(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		for _, mode := range model.Modes {
			campaign, sales := d.campaignIn(t, mode, 3, 2, 4, 5)
			if mode == model.ModeRush {
				d.payFor(t, d.buy(t, sales[0], "me", 1))
				d.buy(t, sales[1], "me", 1)
				d.exec(t, "UPDATE sales SET status = 'paused', price_cents = 5 WHERE id = ?", sales[0])
			}
			list, _, err := d.Summaries(t.Context(), model.SummaryFilter{Words: campaign.ID, Limit: 2})
			check.NoError(t, err)
			check.Same(t, "entries", len(list), 1)
			got, first := list[0], d.offer(t, sales[1])
			want := model.Summary{
				ID: campaign.ID, Title: campaign.Title, Campaign: true, Mode: mode, State: first.State(d.now(t), first.Stock.Free()),
				StartsAt: first.StartsAt, EndsAt: first.EndsAt, Sales: 2, LowCents: first.PriceCents, HighCents: first.PriceCents, Currency: first.Currency,
				LimitPerUser: 3, Quota: 9, Available: 9,
			}
			if mode == model.ModeRush {
				want.LowCents, want.Available, want.Held, want.Paid = 5, 7, 1, 1
			}
			check.Same(t, string(mode), got, want)
		}
		check.Same(t, "of the mode line", len(d.summarized(t, model.SummaryFilter{Mode: model.ModeLine})), 1)
	})
}

// Words are looked for in titles, and as the beginning of ids and codes. Characters of patterns mean themselves.
func TestSummaryWords(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		titled := func(title string) model.Sale {
			return d.newSale(t, 1, func(s *model.Sale) { s.Title, s.Code = title, "C"+s.ID[:7] })
		}
		pot, cat := titled("Teapot, 50% off"), titled("猫咪 mug_1!")
		campaign, _ := d.newCampaign(t, 1, 1, 1)
		for words, want := range map[string][]string{
			"teapot": {pot.ID}, "50%": {pot.ID}, "mug_1!": {cat.ID}, "猫": {cat.ID}, "g_1": {cat.ID}, "t_a": nil, "5%f": nil, "'": nil, "\\": nil,
			pot.ID: {pot.ID}, strings.ToLower(pot.ID[:9]): {pot.ID}, pot.Code: {pot.ID}, pot.ID[1:]: nil, campaign.ID[:10]: {campaign.ID},
		} {
			check.Same(t, words, d.summarized(t, model.SummaryFilter{Words: words}), append([]string{}, want...))
		}
		check.Same(t, "all", len(d.summarized(t, model.SummaryFilter{})), 3)
	})
}

// Each sort has its own pages, in which entries of equal rank keep an order.
func TestSummaryPages(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		var sales []model.Sale
		for i := range 7 {
			sale := d.newSale(t, 9, limit(9))
			if i%3 > 0 {
				d.buy(t, sale.ID, "me", i%3)
			}
			d.exec(t, "UPDATE sales SET created_at_ms = ?, starts_at_ms = ? WHERE id = ?", 1000+i/3, 1000-i/2, sale.ID)
			sales = append(sales, sale)
		}
		for i, place := range map[int]func(i int) int{0: func(i int) int { return i / 3 }, 1: func(i int) int { return -(i / 2) }, 2: func(i int) int { return i % 3 }} {
			order := []int{0, 1, 2, 3, 4, 5, 6}
			slices.SortFunc(order, func(a, b int) int {
				if place(a) != place(b) {
					return place(b) - place(a)
				}
				return strings.Compare(sales[b].ID, sales[a].ID)
			})
			want := each(order, func(i int) string { return sales[i].ID })
			for _, size := range []int{1, 3, 7} {
				wantPages(t, size, func(cursor string) ([]model.Summary, string, error) {
					return d.Summaries(t.Context(), model.SummaryFilter{Sort: model.SummarySorts[i], Cursor: cursor, Limit: size})
				}, summaryID, want)
			}
		}
		for _, cursor := range []string{"!", "MQ", cursorOf(1, "short")} {
			_, _, err := d.Summaries(t.Context(), model.SummaryFilter{Cursor: cursor, Limit: 1})
			check.Same(t, fmt.Sprintf("%q is refused", cursor), errors.Is(err, model.ErrBadCursor), true)
		}
	})
}
