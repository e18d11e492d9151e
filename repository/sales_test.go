package repository

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit/check"
)

func TestCreateSale(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 42, limit(3))
		sale.Status, sale.Revision = model.SaleLive, 1
		stock := model.Stock{SaleID: sale.ID, Quota: 42, Available: 42, Version: 1, Epoch: 1}
		check.Same(t, "the offer", d.offer(t, sale.ID), model.Offer{Sale: sale, Stock: stock})
		for code, want := range map[string]string{sale.Code: sale.ID, "nothing": "", "": ""} {
			check.Same(t, "the sale of the code "+code, check.Must(d.SaleByCode(t.Context(), code)), want)
		}
		if got, ok, err := d.Offer(t.Context(), model.NewSaleID()); ok || err != nil || got != (model.Offer{}) {
			t.Errorf("an unknown sale has the offer %+v, %v", got, err)
		}
		detail := `title "猫咪 mug"; quota 42; price_cents 1990; currency CNY; limit_per_user 3; pay_timeout_seconds 900; starts_at ` +
			instant(sale.StartsAt) + "; ends_at " + instant(sale.EndsAt)
		check.Same(t, "rows in the log", d.logged(t, "op", "create", sale.ID, detail), 1)
	})
}

// logged counts the rows of an operation in the log.
func (d *testDB) logged(t *testing.T, actor, action, subject, detail string) int64 {
	t.Helper()
	return d.count(t, "SELECT COUNT(*) FROM audit_log WHERE actor = ? AND action = ? AND subject = ? AND detail = ?",
		actor, action, subject, detail)
}

// A sale that the schema refuses leaves no row.
func TestCreateSaleRefusesAndLeavesNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		taken := d.newSale(t, 1)
		for name, tc := range map[string]struct {
			edit  func(*model.Sale)
			quota int64
		}{
			"a code that is taken":    {func(s *model.Sale) { s.Code = taken.Code }, 1},
			"an id that is taken":     {func(s *model.Sale) { s.ID = taken.ID }, 1},
			"an end before its start": {func(s *model.Sale) { s.EndsAt = s.StartsAt }, 1},
			"a limit of 0":            {limit(0), 1},
			"no time to pay":          {func(s *model.Sale) { s.PayTimeoutSeconds = 0 }, 1},
			"a negative price":        {func(s *model.Sale) { s.PriceCents = -1 }, 1},
			"a negative old price":    {func(s *model.Sale) { s.OriginalPriceCents = -1 }, 1},
			"a negative quota":        {func(*model.Sale) {}, -1},
			"an id that has a row of stock": {func(s *model.Sale) {
				d.exec(t, `INSERT INTO stock (sale_id, quota, available, held, paid, version, epoch, epoch_at_ms)
					VALUES (?, 1, 1, 0, 0, 1, 0, 0)`, s.ID)
			}, 1},
		} {
			sale := taken
			sale.ID = model.NewSaleID()
			sale.Code = sale.ID[:8]
			tc.edit(&sale)
			if err := d.CreateSale(t.Context(), sale, tc.quota, "op"); err == nil {
				t.Errorf("a sale with %s was created", name)
			}
			check.Same(t, "rows of sales", d.count(t, "SELECT COUNT(*) FROM sales"), 1)
			check.Same(t, "rows in the log", d.count(t, "SELECT COUNT(*) FROM audit_log"), 1)
		}
	})
}

// A sale keeps the number of shards of its gate, which the database limits.
func TestSaleInParts(t *testing.T) {
	inShards := func(n int) func(*model.Sale) { return func(s *model.Sale) { s.Shards = n } }
	onBoth(t, func(t *testing.T, d *testDB) {
		for shards, want := range map[int]int{0: 1, 1: 1, 2: 2, model.MaxShards: model.MaxShards} {
			sale := d.newSale(t, 3, inShards(shards))
			check.Same(t, "shards", d.offer(t, sale.ID).Shards, want)
			d.change(t, sale.ID, 0, inShards(9))
			check.Same(t, "shards after a change", d.offer(t, sale.ID).Shards, want)
		}
		sale := d.newSale(t, 1)
		for _, shards := range []int{-1, 0, model.MaxShards + 1} {
			if err := d.write.WithContext(t.Context()).Exec("UPDATE sales SET shards = ? WHERE id = ?", shards, sale.ID).Error; err == nil {
				t.Errorf("the database accepts %d shards", shards)
			}
		}
	})
}

func TestLiveOffers(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		at := func(start, end time.Duration) string {
			now := d.now(t)
			return d.newSale(t, 1, func(s *model.Sale) { s.StartsAt, s.EndsAt = now.Add(start), now.Add(end) }).ID
		}
		upcoming, running := at(time.Hour, 2*time.Hour), at(-time.Hour, time.Minute)
		justOver, longOver := at(-3*time.Hour, -time.Minute), at(-9*time.Hour, -8*time.Hour)
		d.change(t, running, 0, status(model.SaleClosed))
		for linger, want := range map[time.Duration][]string{
			0:                {running, upcoming},
			10 * time.Minute: {justOver, running, upcoming},
			24 * time.Hour:   {longOver, justOver, running, upcoming},
		} {
			list, err := d.LiveOffers(t.Context(), linger)
			check.NoError(t, err)
			var got []string
			for _, o := range list {
				got = append(got, o.ID)
				check.Same(t, "the offer", o, d.offer(t, o.ID))
			}
			check.Same(t, fmt.Sprintf("sales that linger for %s", linger), got, want)
		}
	})
}

// Whatever an operator, a buyer, a rebuild or time changes, LiveSales returns the same as a full read.
func TestLiveSales(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		first, second := d.newSale(t, 5, limit(2)), d.newSale(t, 7)
		live := NewLiveSales(d.Store)
		for _, step := range []struct {
			name   string
			do     func()
			linger time.Duration
			size   int
		}{
			{"at first", func() {}, 0, 2},
			{"after a purchase", func() { d.buy(t, first.ID, "me", 2) }, 0, 2},
			{"after a change", func() {
				d.change(t, second.ID, 3, status(model.SalePaused), func(s *model.Sale) { s.Title = "another title" })
			}, 0, 2},
			{"in another order", func() { d.change(t, second.ID, 0, shift(-time.Minute)) }, 0, 2},
			{"after a new epoch", func() { d.nextEpoch(t, first.ID, 1) }, 0, 2},
			{"after a new sale", func() { d.newSale(t, 9) }, 0, 3},
			{"beside a sale that is over", func() { d.newSale(t, 9, shift(-2*time.Hour)) }, 0, 3},
			{"with sales that linger", func() {}, 24 * time.Hour, 4},
			{"without sales that linger", func() {}, 0, 3},
		} {
			step.do()
			want, err := d.LiveOffers(t.Context(), step.linger)
			check.NoError(t, err)
			for range 2 { // by a full read, and from the cache
				got, err := live.LiveOffers(t.Context(), step.linger)
				check.NoError(t, err)
				check.Same(t, step.name, got, want)
			}
			check.Same(t, "number of sales "+step.name, len(want), step.size)
		}
	})
}

// The columns that operators write are read again only after a change by an operator.
func TestLiveSalesReadOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 5)
		live := NewLiveSales(d.Store)
		wantTitle := func(want string) {
			t.Helper()
			list, err := live.LiveOffers(t.Context(), 0)
			if err != nil || len(list) != 1 || list[0].Title != want {
				t.Fatalf("got %+v, %v, want %q", list, err, want)
			}
		}
		wantTitle(sale.Title)
		d.exec(t, "UPDATE sales SET title = 'changed past the engine' WHERE id = ?", sale.ID)
		wantTitle(sale.Title)
		d.change(t, sale.ID, 0, limit(2))
		wantTitle("changed past the engine")
	})
}

func TestSaleCodes(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		old, young := d.newSale(t, 1), d.newSale(t, 1)
		d.exec(t, "UPDATE sales SET created_at_ms = ? WHERE id = ?", 5000, old.ID)
		d.exec(t, "UPDATE sales SET created_at_ms = ? WHERE id = ?", 7000, young.ID)
		for since, want := range map[int64]map[string]string{
			0:    {old.ID: old.Code, young.ID: young.Code},
			5000: {old.ID: old.Code, young.ID: young.Code},
			5001: {young.ID: young.Code},
			7001: {},
		} {
			before := d.now(t)
			codes, asked, err := d.SaleCodes(t.Context(), fromMillis(since))
			if err != nil || !maps.Equal(codes, want) || asked.Before(before) || asked.After(d.now(t)) {
				t.Errorf("since %d: %v at %s, %v, want %v", since, codes, asked, err, want)
			}
		}
	})
}

func TestChangeSale(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 10)
		d.buy(t, sale.ID, "me", 1)
		before := d.offer(t, sale.ID)
		edit := func(s *model.Sale) {
			s.Title, s.Description, s.ImageURL = "狗 bowl", "A bowl", "/bowl.webp"
			s.LimitPerUser, s.Status = 4, model.SalePaused
			s.StartsAt, s.EndsAt = s.StartsAt.Add(time.Minute), s.EndsAt.Add(time.Hour)
		}
		want := before
		edit(&want.Sale)
		want.Revision, want.Started = want.Revision+1, true
		want.Stock.Quota, want.Stock.Available, want.Stock.Version = 15, 14, before.Stock.Version+1
		want.Stock.GateVersion = want.Stock.Version
		changed := d.change(t, sale.ID, 5, edit)
		if want.Stock.Terms = changed.Stock.Terms; want.Stock.Terms == before.Stock.Terms {
			t.Error("the terms have the same number")
		}
		check.Same(t, "the returned offer", changed, want)
		check.Same(t, "the stored offer", d.offer(t, sale.ID), want)
		detail := "status: live -> paused; quota: 10 -> 15; limit_per_user: 1 -> 4; " +
			"starts_at: " + instant(before.StartsAt) + " -> " + instant(want.StartsAt) +
			"; ends_at: " + instant(before.EndsAt) + " -> " + instant(want.EndsAt) +
			`; title: "猫咪 mug" -> "狗 bowl"; image_url: "/mug.webp" -> "/bowl.webp"; description: "A mug" -> "A bowl"`
		check.Same(t, "rows in the log", d.logged(t, "op", "patch", sale.ID, detail), 1)
	})
}

// The log describes what differs, and shortens long texts.
func TestChanges(t *testing.T) {
	long := strings.Repeat("长", 200)
	for name, tc := range map[string]struct {
		edit func(*model.Offer)
		want string
	}{
		"nothing": {func(*model.Offer) {}, "nothing changed"},
		"units":   {func(o *model.Offer) { o.Stock.Quota += 5 }, "quota: 10 -> 15"},
		"an end": {func(o *model.Offer) {
			o.EndsAt = time.UnixMilli(1_800_000_000_123)
		}, "ends_at: none -> 2027-01-15T08:00:00.123Z"},
		"a long text": {func(o *model.Offer) { o.Title = long }, `title: "tea" -> "` + long[:3*excerptLength] + `…"`},
		"two lines":   {func(o *model.Offer) { o.Description = "a\nb" }, `description: "" -> "a\nb"`},
		"the end of a long text": {func(o *model.Offer) {
			o.ImageURL = "/" + long + "x"
		}, `image_url: "" -> "/` + long[:3*(excerptLength-1)] + `…"`},
		"fields that no operator writes": {func(o *model.Offer) {
			o.Stock.Available, o.Stock.Held, o.Revision = 1, 9, 7
		}, "nothing changed"},
	} {
		before := model.Offer{Sale: model.Sale{Title: "tea", LimitPerUser: 1}, Stock: model.Stock{Quota: 10}}
		after := before
		tc.edit(&after)
		check.Same(t, name, changes(before, after), tc.want)
	}
}

// The pages show all sales, the newest first, also sales of the same millisecond and sales that ended long ago.
func TestSalesPages(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		var want []string
		for i := range 7 {
			sale := d.newSale(t, 1, shift(-99*time.Hour))
			d.exec(t, "UPDATE sales SET created_at_ms = ? WHERE id = ?", 1000+i/3, sale.ID)
			want = append(want, sale.ID)
		}
		slices.Sort(want[:3])
		slices.Sort(want[3:6])
		slices.Reverse(want)
		for _, size := range []int{0, 1, 2, 3, 6, 7, 8} {
			wantPages(t, max(1, size), func(cursor string) ([]model.Offer, string, error) {
				return d.Sales(t.Context(), cursor, size)
			}, func(o model.Offer) string {
				check.Same(t, "the offer", o, d.offer(t, o.ID))
				return o.ID
			}, want)
		}
		for _, cursor := range []string{"!", cursorOf(1, "short"), "MQ", cursorOf(1, strings.Repeat("A", model.OrderIDLength))} {
			if list, next, err := d.Sales(t.Context(), cursor, 5); !errors.Is(err, model.ErrBadCursor) || list != nil || next != "" {
				t.Errorf("after %q: %v, %q, %v", cursor, list, next, err)
			}
		}
	})
}

// A change that is refused is taken back, with its units.
func TestChangeSaleTakenBack(t *testing.T) {
	accept := func(*model.Sale) model.Verdict { return model.Accepted }
	const fails = model.Verdict("an error")
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 3)
		d.buy(t, sale.ID, "me", 1)
		before, three, two := d.offer(t, sale.ID), int64(3), int64(2)
		type row struct {
			change model.SaleChange
			want   model.Verdict
		}
		check.Each(t, map[string]row{
			"refused by the edit": {model.SaleChange{AddQuota: 5, Edit: func(s *model.Sale) model.Verdict {
				s.Title = "no"
				return model.BadRequest
			}}, model.BadRequest},
			"closed for good":    {model.SaleChange{Edit: func(*model.Sale) model.Verdict { return model.Ended }}, model.Ended},
			"an unknown sale":    {model.SaleChange{SaleID: model.NewSaleID(), AddQuota: 5, Edit: accept}, model.NotFound},
			"more than the most": {model.SaleChange{AddQuota: 5, MostQuota: 7, Edit: accept}, model.BadRequest},
			"of another quota":   {model.SaleChange{AddQuota: 5, IfQuota: &two, Edit: accept}, model.QuotaChanged},
			"refused by an edit of the same quota": {model.SaleChange{AddQuota: 5, IfQuota: &three, Edit: func(*model.Sale) model.Verdict {
				return model.Ended
			}}, model.Ended},
			"refused by the schema": {model.SaleChange{AddQuota: 5, Edit: func(s *model.Sale) model.Verdict {
				s.EndsAt = s.StartsAt
				return model.Accepted
			}}, fails},
			"more units taken than are available": {model.SaleChange{AddQuota: -3, Edit: accept}, model.Started},
		}, func(t *testing.T, tc row) {
			tc.change.SaleID, tc.change.Actor, tc.change.Action = cmp.Or(tc.change.SaleID, sale.ID), "mallory", "patch"
			_, verdict, err := d.ChangeSale(t.Context(), tc.change)
			if err != nil {
				verdict = fails
			}
			check.Same(t, "the verdict", verdict, tc.want)
			check.Same(t, "the offer", d.offer(t, sale.ID), before)
		})
		check.Same(t, "rows in the log", d.count(t, "SELECT COUNT(*) FROM audit_log WHERE actor = 'mallory'"), 0)
	})
}

// Units that are added during a rush are all sold.
func TestChangeSaleInMidRush(t *testing.T) {
	const added, crowd = 8, 20
	onBoth(t, func(t *testing.T, d *testDB) {
		sale, operator := d.newSale(t, 5), d.pair(t)[1]
		buy := func(i int) model.Outcome {
			return d.retry(t, deducting, attempt(sale.ID, fmt.Sprint("u", i), "k", 1))[0]
		}
		outcomes := make([]model.Outcome, crowd)
		check.Together(crowd+added, func(i int) {
			if i < crowd {
				outcomes[i] = buy(i)
				return
			}
			operator.change(t, sale.ID, 1, func(s *model.Sale) { s.Description += "." })
		})
		for i := range crowd { // users who came before the units ask again
			if outcomes[i].Verdict == model.SoldOut {
				outcomes[i] = buy(i)
			}
		}
		check.Same(t, "outcomes", tally(outcomes), map[model.Verdict]int{model.Accepted: 5 + added, model.SoldOut: crowd - 5 - added})
		d.wantUnits(t, sale.ID, units{held: 5 + added})
		offer := d.offer(t, sale.ID)
		if offer.Revision != 1+added || offer.Stock.Quota != 5+added || offer.Description != "A mug"+strings.Repeat(".", added) {
			t.Errorf("the offer is %+v", offer)
		}
	})
}
