package repository

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit"
)

func TestCreateSale(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 42, limit(3))
		sale.Status, sale.Revision = model.SaleLive, 1
		want := model.Offer{Sale: sale, Stock: model.Stock{SaleID: sale.ID, Quota: 42, Available: 42, Version: 1, Epoch: 1}}
		got, ok, err := d.Offer(t.Context(), sale.ID)
		if err != nil || !ok || got != want {
			t.Errorf("the offer is\n%+v, %v, want\n%+v", got, err, want)
		}
		for code, want := range map[string]string{sale.Code: sale.ID, "nothing": "", "": ""} {
			if id, err := d.SaleByCode(t.Context(), code); id != want || err != nil {
				t.Errorf("behind %q is %q, %v, want %q", code, id, err, want)
			}
		}
		if got, ok, err := d.Offer(t.Context(), model.NewSaleID()); ok || err != nil || got != (model.Offer{}) {
			t.Errorf("an unknown sale is offered: %+v, %v", got, err)
		}
		if n := d.count(t, "SELECT COUNT(*) FROM operations WHERE actor = 'op' AND action = 'create' AND subject = ? AND detail = ?", sale.ID,
			`title "猫咪 mug"; quota 42; price_cents 1990; currency CNY; limit_per_user 3; pay_timeout_seconds 900; starts_at `+
				instant(sale.StartsAt)+"; ends_at "+instant(sale.EndsAt)); n != 1 {
			t.Errorf("%d rows in the log", n)
		}
	})
}

// A sale that the schema refuses leaves no half of itself.
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
			"a limit of nothing":      {limit(0), 1},
			"no time to pay":          {func(s *model.Sale) { s.PayTimeoutSeconds = 0 }, 1},
			"a price below zero":      {func(s *model.Sale) { s.PriceCents = -1 }, 1},
			"an old price below zero": {func(s *model.Sale) { s.OriginalPriceCents = -1 }, 1},
			"a quota below zero":      {func(*model.Sale) {}, -1},
			"stock of a lost other one": {func(s *model.Sale) {
				d.exec(t, "INSERT INTO stock (sale_id, quota, available, held, paid, version, epoch, epoch_at_ms) VALUES (?, 1, 1, 0, 0, 1, 0, 0)", s.ID)
			}, 1},
		} {
			t.Run(name, func(t *testing.T) {
				sale := taken
				sale.ID = model.NewSaleID()
				sale.Code = sale.ID[:8]
				tc.edit(&sale)
				if err := d.CreateSale(t.Context(), sale, tc.quota, "op"); err == nil {
					t.Error("it was created")
				}
				if n := d.count(t, "SELECT COUNT(*) FROM sales") + d.count(t, "SELECT COUNT(*) FROM operations"); n != 2 {
					t.Errorf("%d rows of sales and the log, want those of the first sale", n)
				}
			})
		}
	})
}

func TestLiveOffers(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		at := func(start, end time.Duration) func(*model.Sale) {
			now := d.now(t)
			return func(s *model.Sale) { s.StartsAt, s.EndsAt = now.Add(start), now.Add(end) }
		}
		upcoming := d.newSale(t, 1, at(time.Hour, 2*time.Hour))
		running := d.newSale(t, 1, at(-time.Hour, time.Minute))
		justOver := d.newSale(t, 1, at(-3*time.Hour, -time.Minute))
		longOver := d.newSale(t, 1, at(-9*time.Hour, -8*time.Hour))
		d.change(t, running.ID, 0, func(s *model.Sale) { s.Status = model.SaleClosed })
		for linger, want := range map[time.Duration][]string{
			0:                {running.ID, upcoming.ID},
			10 * time.Minute: {justOver.ID, running.ID, upcoming.ID},
			24 * time.Hour:   {longOver.ID, justOver.ID, running.ID, upcoming.ID},
		} {
			list, err := d.LiveOffers(t.Context(), linger)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, o := range list {
				got = append(got, o.ID)
				if o.Stock.SaleID != o.ID || o.Stock.Quota != 1 {
					t.Errorf("sale %s has the stock %+v", o.ID, o.Stock)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("lingering for %s: %v, want %v", linger, got, want)
			}
		}
	})
}

// TestLiveSales: whatever changes, by an operator, a buyer, a rebuild or time, they are what a whole read gives.
func TestLiveSales(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		first, second := d.newSale(t, 5, limit(2)), d.newSale(t, 7)
		live := NewLiveSales(d.Store)
		agrees := func(stage string, linger time.Duration, size int) {
			t.Helper()
			want, err := d.LiveOffers(t.Context(), linger)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // whole and by memory
				if got, err := live.LiveOffers(t.Context(), linger); err != nil || len(got) != size || !slices.Equal(got, want) {
					t.Errorf("%s: %+v, %v; want %d: %+v", stage, got, err, size, want)
				}
			}
		}
		agrees("at first", 0, 2)
		d.buy(t, first.ID, "me", 2)
		agrees("after a purchase", 0, 2)
		d.change(t, second.ID, 3, func(s *model.Sale) { s.Title, s.Status = "another title", model.SalePaused })
		agrees("after a change", 0, 2)
		d.change(t, second.ID, 0, func(s *model.Sale) { s.StartsAt = first.StartsAt.Add(-time.Minute) })
		agrees("in another order", 0, 2)
		if _, won, err := d.NextEpoch(t.Context(), first.ID, 1, 1, 0); err != nil || !won {
			t.Fatal(won, err)
		}
		agrees("after a new epoch", 0, 2)
		d.newSale(t, 9)
		agrees("after a new sale", 0, 3)
		d.newSale(t, 9, func(s *model.Sale) { s.StartsAt, s.EndsAt = s.StartsAt.Add(-time.Hour), s.StartsAt })
		agrees("beside one that is over", 0, 3)
		agrees("lingering", 24*time.Hour, 4)
		agrees("not lingering", 0, 3)
	})
}

// TestLiveSalesReadOnce: what operators write is not read again while it stays as it is.
func TestLiveSalesReadOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 5)
		live := NewLiveSales(d.Store)
		title := func() string {
			t.Helper()
			list, err := live.LiveOffers(t.Context(), 0)
			if err != nil || len(list) != 1 {
				t.Fatal(list, err)
			}
			return list[0].Title
		}
		before := title()
		d.exec(t, "UPDATE sales SET title = 'changed past the engine' WHERE id = ?", sale.ID)
		if got := title(); got != before {
			t.Errorf("it was read again: %q", got)
		}
		d.change(t, sale.ID, 0, func(s *model.Sale) { s.LimitPerUser++ })
		if got := title(); got != "changed past the engine" {
			t.Errorf("a change by an operator left %q", got)
		}
	})
}

// TestLiveSalesInAnOutage are unavailable, not gone, and there again when the database is.
func TestLiveSalesInAnOutage(t *testing.T) {
	t.Parallel()
	server := kit.MariaDB(t)
	d := openDB(t, server.NewDatabase(t))
	d.newSale(t, 5)
	live := NewLiveSales(d.Store)
	read := func() (int, error) {
		list, err := live.LiveOffers(t.Context(), 0)
		return len(list), err
	}
	if n, err := read(); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	server.Kill()
	if n, err := read(); !errors.Is(err, model.ErrUnavailable) {
		t.Errorf("while it is away: %d, %v", n, err)
	}
	server.Restart()
	if n, err := read(); n != 1 || err != nil {
		t.Errorf("when it is back: %d, %v", n, err)
	}
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
		before, _, err := d.Offer(t.Context(), sale.ID)
		if err != nil {
			t.Fatal(err)
		}
		got := d.change(t, sale.ID, 5, func(s *model.Sale) {
			s.Title, s.Description, s.ImageURL = "狗 bowl", "A bowl", "/bowl.webp"
			s.LimitPerUser, s.Status = 4, model.SalePaused
			s.StartsAt, s.EndsAt = s.StartsAt.Add(time.Minute), s.EndsAt.Add(time.Hour)
		})
		want := before
		want.Title, want.Description, want.ImageURL = "狗 bowl", "A bowl", "/bowl.webp"
		want.LimitPerUser, want.Status = 4, model.SalePaused
		want.StartsAt, want.EndsAt = sale.StartsAt.Add(time.Minute), sale.EndsAt.Add(time.Hour)
		want.Revision++
		want.Stock.Quota, want.Stock.Available, want.Stock.Version = 15, 14, before.Stock.Version+1
		want.Stock.GateVersion = want.Stock.Version
		if got != want {
			t.Errorf("changed to\n%+v, want\n%+v", got, want)
		}
		if stored, _, err := d.Offer(t.Context(), sale.ID); err != nil || stored != want {
			t.Errorf("stored is\n%+v, %v, want\n%+v", stored, err, want)
		}
		if n := d.count(t, "SELECT COUNT(*) FROM operations WHERE actor = 'op' AND action = 'patch' AND subject = ? AND detail = ?", sale.ID,
			"status: live -> paused; quota: 10 -> 15; limit_per_user: 1 -> 4; starts_at: "+instant(before.StartsAt)+" -> "+instant(want.StartsAt)+
				"; ends_at: "+instant(before.EndsAt)+" -> "+instant(want.EndsAt)+`; title: "猫咪 mug" -> "狗 bowl"; image_url: "/mug.webp" -> "/bowl.webp"; description: "A mug" -> "A bowl"`); n != 1 {
			t.Errorf("%d rows in the log", n)
		}
	})
}

// The log says what is another now, and of long texts no more than fits.
func TestChanges(t *testing.T) {
	long := strings.Repeat("长", 200)
	for name, tc := range map[string]struct {
		edit func(*model.Offer)
		want string
	}{
		"nothing":                {func(*model.Offer) {}, "nothing changed"},
		"units":                  {func(o *model.Offer) { o.Stock.Quota += 5 }, "quota: 10 -> 15"},
		"an end":                 {func(o *model.Offer) { o.EndsAt = time.UnixMilli(1_800_000_000_123) }, "ends_at: 0001-01-01T00:00:00.000Z -> 2027-01-15T08:00:00.123Z"},
		"a long text":            {func(o *model.Offer) { o.Title = long }, `title: "tea" -> "` + long[:3*excerptLength] + `…"`},
		"two lines":              {func(o *model.Offer) { o.Description = "a\nb" }, `description: "" -> "a\nb"`},
		"the end of a long text": {func(o *model.Offer) { o.ImageURL = "/" + long + "x" }, `image_url: "" -> "/` + long[:3*(excerptLength-1)] + `…"`},
		"what no operator wrote": {func(o *model.Offer) { o.Stock.Available, o.Stock.Held, o.Revision = 1, 9, 7 }, "nothing changed"},
	} {
		t.Run(name, func(t *testing.T) {
			before := model.Offer{Sale: model.Sale{Title: "tea", LimitPerUser: 1}, Stock: model.Stock{Quota: 10}}
			after := before
			tc.edit(&after)
			if got := changes(before, after); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

// All sales in pages, the newest first, also those that were made in one millisecond and those that are long over.
func TestSalesPages(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		var want []string
		for i := range 7 {
			sale := d.newSale(t, 1, func(s *model.Sale) { s.StartsAt, s.EndsAt = s.StartsAt.Add(-99*time.Hour), s.EndsAt.Add(-98*time.Hour) })
			d.exec(t, "UPDATE sales SET created_at_ms = ? WHERE id = ?", 1000+i/3, sale.ID)
			want = append(want, sale.ID)
		}
		slices.SortFunc(want[:3], descending)
		slices.SortFunc(want[3:6], descending)
		want = []string{want[6], want[3], want[4], want[5], want[0], want[1], want[2]}
		for _, size := range []int{0, 1, 2, 3, 6, 7, 8} {
			var got []string
			for cursor := ""; len(got) <= len(want); {
				list, next, err := d.Sales(t.Context(), cursor, size)
				if err != nil || len(list) > max(1, size) {
					t.Fatalf("%d on a page of %d: %v", len(list), size, err)
				}
				for _, o := range list {
					got = append(got, o.ID)
					if o.Stock.SaleID != o.ID || o.Stock.Quota != 1 || o.Title == "" {
						t.Errorf("read %+v", o)
					}
				}
				if cursor = next; cursor == "" {
					break
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("pages of %d: %v, want %v", size, got, want)
			}
		}
		for _, cursor := range []string{"!", cursorOf(1, "short"), cursorOf(1, strings.Repeat("A", model.OrderIDLength))} {
			if list, next, err := d.Sales(t.Context(), cursor, 5); !errors.Is(err, model.ErrBadCursor) || list != nil || next != "" {
				t.Errorf("behind %q: %v, %q, %v", cursor, list, next, err)
			}
		}
	})
}

func descending(a, b string) int { return strings.Compare(b, a) }

// A change that is refused or can't be is taken back as a whole, its units included.
func TestChangeSaleTakenBack(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		sale := d.newSale(t, 3)
		d.buy(t, sale.ID, "me", 1)
		before, _, err := d.Offer(t.Context(), sale.ID)
		if err != nil {
			t.Fatal(err)
		}
		for name, tc := range map[string]struct {
			saleID   string
			addQuota int64
			edit     func(*model.Sale) model.Verdict
			want     model.Verdict
			fails    bool
		}{
			"refused by the edit": {sale.ID, 5, func(s *model.Sale) model.Verdict { s.Title = "no"; return model.BadRequest }, model.BadRequest, false},
			"closed for good":     {sale.ID, 0, func(*model.Sale) model.Verdict { return model.Ended }, model.Ended, false},
			"an unknown sale":     {model.NewSaleID(), 5, func(*model.Sale) model.Verdict { return model.Accepted }, model.NotFound, false},
			"refused by the schema": {sale.ID, 5, func(s *model.Sale) model.Verdict {
				s.EndsAt = s.StartsAt
				return model.Accepted
			}, "", true},
			"more units taken than are free": {sale.ID, -3, func(*model.Sale) model.Verdict { return model.Accepted }, "", true},
		} {
			t.Run(name, func(t *testing.T) {
				_, verdict, err := d.ChangeSale(t.Context(), model.SaleChange{SaleID: tc.saleID, Actor: "mallory", Action: "patch", Edit: tc.edit, AddQuota: tc.addQuota})
				if (err != nil) != tc.fails || !tc.fails && verdict != tc.want {
					t.Errorf("got %s, %v, want %s", verdict, err, tc.want)
				}
				if after, _, err := d.Offer(t.Context(), sale.ID); err != nil || after != before {
					t.Errorf("the offer was\n%+v and is\n%+v, %v", before, after, err)
				}
			})
		}
		if n := d.count(t, "SELECT COUNT(*) FROM operations WHERE actor = 'mallory'"); n != 0 {
			t.Errorf("%d rows in the log", n)
		}
	})
}

// Units that are added while others sell are all there, and all are sold.
func TestChangeSaleInMidRush(t *testing.T) {
	const added, crowd = 8, 20
	onBoth(t, func(t *testing.T, d *testDB) {
		sale, operator := d.newSale(t, 5), d.peer(t)
		outcomes := make([]model.Outcome, crowd)
		together(crowd+added, func(i int) {
			if i >= crowd {
				operator.change(t, sale.ID, 1, func(s *model.Sale) { s.Description += "." })
				return
			}
			outcomes[i] = d.race(t, sale.ID, attempt(sale.ID, fmt.Sprint("u", i), "k", 1))[0]
		})
		for i := range crowd { // who came before the units asks again
			if outcomes[i].Verdict == model.SoldOut {
				outcomes[i] = d.race(t, sale.ID, attempt(sale.ID, fmt.Sprint("u", i), "k", 1))[0]
			}
		}
		want := map[model.Verdict]int{model.Accepted: 5 + added, model.SoldOut: crowd - 5 - added}
		if got := tally(outcomes); !maps.Equal(got, want) {
			t.Errorf("sold %v, want %v", got, want)
		}
		d.wantUnits(t, sale.ID, units{held: 5 + added})
		offer, _, err := d.Offer(t.Context(), sale.ID)
		if err != nil || offer.Revision != 1+added || offer.Stock.Quota != 5+added || len(offer.Description) != len("A mug")+added {
			t.Errorf("the offer is %+v, %v", offer, err)
		}
	})
}
