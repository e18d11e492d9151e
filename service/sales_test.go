package service

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// shop adds to a gatehouse what operators change.
type shop struct {
	*gatehouse
	quota      int64
	errCreate  error
	configured []model.Sale
	errTold    error // of Configure and Announce
	announced  []string
	logged     []model.SaleChange
}

func (s *shop) CreateSale(_ context.Context, sale model.Sale, quota int64, _ string) error {
	if s.errCreate != nil {
		return s.errCreate
	}
	s.quota = quota
	s.add(model.Offer{Sale: sale, Stock: model.Stock{SaleID: sale.ID, Quota: quota, Available: quota, Version: 1}})
	return nil
}

func (s *shop) ChangeSale(_ context.Context, c model.SaleChange) (offer model.Offer, verdict model.Verdict, err error) {
	s.logged = append(s.logged, c)
	verdict = model.NotFound
	s.change(func(f *fakeStores) {
		for i, o := range f.offers {
			if o.ID != c.SaleID {
				continue
			}
			if verdict = c.Edit(&o.Sale); verdict != model.Accepted {
				return
			}
			o.Revision++
			o.Stock.Quota, o.Stock.Available, o.Stock.Version = o.Stock.Quota+c.AddQuota, o.Stock.Available+c.AddQuota, o.Stock.Version+1
			if c.AddQuota > 0 {
				s.changes[o.ID] = append(s.changes[o.ID], model.GateChange{Version: o.Stock.Version, Units: c.AddQuota})
			}
			f.offers[i], offer = o, o
		}
	})
	return offer, verdict, s.errCreate
}

func (s *shop) SaleByCode(_ context.Context, code string) (string, error) {
	for _, o := range s.offers {
		if o.Code == code {
			return o.ID, nil
		}
	}
	return "", nil
}

func (s *shop) Configure(_ context.Context, sale model.Sale) error {
	s.configured = append(s.configured, sale)
	return s.errTold
}

func (s *shop) Announce(_ context.Context, id string) error {
	s.announced = append(s.announced, id)
	return s.errTold
}

func newShop(t *testing.T, offers ...model.Offer) (*Sales, *shop) {
	t.Helper()
	s := &shop{gatehouse: newGatehouse(offers...)}
	catalog := refreshed(t, s)
	return &Sales{Store: s, Gate: s, Gates: NewGates(s, s, catalog, false, discard), Catalog: catalog, Takes: model.TakesAll, Log: discard}, s
}

// draft returns a sale as an operator describes it.
func draft() model.Sale {
	o := openOffer()
	o.ID, o.Code, o.Status, o.Revision = "", "", "", 0
	return o.Sale
}

func TestCreate(t *testing.T) {
	check.Each(t, map[string]bool{"with Redis": false, "without Redis": true}, func(t *testing.T, away bool) {
		sales, s := newShop(t)
		if away {
			s.errTold, s.failing = errAway, "peek"
		}
		got, invalid, err := sales.Create(t.Context(), draft(), 50, "operator")
		if err != nil || invalid != nil {
			t.Fatal(invalid, err)
		}
		if len(got.ID) != model.IDLength || len(got.Code) != codeLength {
			t.Errorf("the id is %q, the code %q", got.ID, got.Code)
		}
		want := draft()
		want.ID, want.Code, want.StartsAt, want.EndsAt = got.ID, got.Code, got.StartsAt, got.EndsAt
		want.Status, want.Revision = model.SaleLive, 1
		check.Same(t, "sale", got.Sale, want)
		check.Same(t, "quota and available", []int64{s.quota, got.Stock.Available}, []int64{50, 50})
		check.Same(t, "open gate", s.states[got.ID].Open, !away)
		check.Same(t, "announced", s.announced, []string{got.ID})
		check.Same(t, "live", sales.Catalog.LiveIDs(), []string{got.ID})
		check.Same(t, "id by the code", check.Must(sales.ByCode(t.Context(), got.Code)), got.ID)
		check.Same(t, "id by an unknown code", check.Must(sales.ByCode(t.Context(), "NOCODE22")), "")
	})
	sales, s := newShop(t)
	s.errCreate = errAway
	_, _, err := sales.Create(t.Context(), draft(), 50, "operator")
	check.Error(t, "without a database", err, errAway)
	check.Same(t, "announced", len(s.announced), 0)
}

// Create names the first invalid field of a new sale.
func TestWrongFields(t *testing.T) {
	year := func(year int) time.Time { return time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC) }
	type sale = model.Sale
	for want, changes := range map[Invalid]map[string]func(s *model.Sale, quota *int64){
		{Field: "quota", Reason: OutOfRange, Min: 1, Max: maxQuota}: {
			"zero":     func(_ *sale, q *int64) { *q = 0 },
			"negative": func(_ *sale, q *int64) { *q = -1 },
			"too many": func(_ *sale, q *int64) { *q = maxQuota + 1 },
		},
		{Field: "title", Reason: BadText, Min: 1, Max: maxTitle}: {
			"a space without a width": func(s *sale, _ *int64) { s.Title = "\u200b" },
			"a letter without a mark": func(s *sale, _ *int64) { s.Title = "\u3164 \u115f" },
			"accents of no letter":    func(s *sale, _ *int64) { s.Title = "\u0301\ufe0f" },
			"empty":                   func(s *sale, _ *int64) { s.Title = "" },
			"spaces":                  func(s *sale, _ *int64) { s.Title = "   " },
			"too long":                func(s *sale, _ *int64) { s.Title = strings.Repeat("字", maxTitle+1) },
			"with a control":          func(s *sale, _ *int64) { s.Title = "a\aa" },
			"not UTF-8":               func(s *sale, _ *int64) { s.Title = "a\xff" },
		},
		{Field: "description", Reason: BadText, Max: maxDescription}: {
			"too long":   func(s *sale, _ *int64) { s.Description = strings.Repeat("字", maxDescription+1) },
			"many lines": func(s *sale, _ *int64) { s.Description = strings.Repeat("字\n", maxDescription/2) + "字" },
			"with a NUL": func(s *sale, _ *int64) { s.Description = "a\x00" },
		},
		{Field: "image_url", Reason: BadLink, Max: maxImageURL}: {
			"a script":       func(s *sale, _ *int64) { s.ImageURL = "javascript:alert(1)" },
			"another scheme": func(s *sale, _ *int64) { s.ImageURL = "ftp://example.com/x" },
			"no scheme":      func(s *sale, _ *int64) { s.ImageURL = "//example.com/x" },
			"too long":       func(s *sale, _ *int64) { s.ImageURL = "/" + strings.Repeat("x", maxImageURL) },
		},
		{Field: "price_cents", Reason: OutOfRange, Max: maxPriceCents}: {
			"negative": func(s *sale, _ *int64) { s.PriceCents = -1 },
			"too high": func(s *sale, _ *int64) { s.PriceCents = maxPriceCents + 1 },
		},
		{Field: "original_price_cents", Reason: OutOfRange, Max: maxPriceCents}: {
			"negative": func(s *sale, _ *int64) { s.OriginalPriceCents = -1 },
		},
		{Field: "currency", Reason: BadCurrency, Value: "yuan"}: {"a word": func(s *sale, _ *int64) { s.Currency = "yuan" }},
		{Field: "currency", Reason: BadCurrency, Value: "DEM"}:  {"an old currency": func(s *sale, _ *int64) { s.Currency = "DEM" }},
		{Field: "limit_per_user", Reason: OutOfRange, Min: 1, Max: maxLimit}: {
			"zero":     func(s *sale, _ *int64) { s.LimitPerUser = 0 },
			"too high": func(s *sale, _ *int64) { s.LimitPerUser = maxLimit + 1 },
		},
		{Field: "pay_timeout_seconds", Reason: OutOfRange, Min: 1, Max: maxPaySeconds}: {
			"zero":     func(s *sale, _ *int64) { s.PayTimeoutSeconds = 0 },
			"too long": func(s *sale, _ *int64) { s.PayTimeoutSeconds = maxPaySeconds + 1 },
		},
		{Field: "starts_at", Reason: BadYear, Min: 2000, Max: 2200}: {
			"too early": func(s *sale, _ *int64) { s.StartsAt = year(1999) },
		},
		{Field: "ends_at", Reason: BadYear, Min: 2000, Max: 2200}: {
			"too late": func(s *sale, _ *int64) { s.EndsAt = year(2201) },
		},
		{Field: "ends_at", Reason: InThePast}: {
			"a minute ago": func(s *sale, _ *int64) { s.EndsAt = time.Now().Add(-time.Minute) },
		},
		{Field: "ends_at", Reason: NotAfterStart}: {
			"with the start": func(s *sale, _ *int64) { s.StartsAt = s.EndsAt },
			"a microsecond after the start": func(s *sale, _ *int64) {
				s.StartsAt = s.EndsAt.Truncate(time.Millisecond)
				s.EndsAt = s.StartsAt.Add(time.Microsecond)
			},
		},
	} {
		for name, change := range changes {
			t.Run(want.Field+" "+name, func(t *testing.T) {
				sales, s := newShop(t)
				sale, quota := draft(), int64(10)
				change(&sale, &quota)
				_, invalid, err := sales.Create(t.Context(), sale, quota, "operator")
				check.Error(t, "create", err, nil)
				check.Same(t, "invalid", invalid, &want)
				check.Same(t, "sales", len(s.offers), 0)
			})
		}
	}
	check.Each(t, map[string]func(s *model.Sale){
		"a free gift":                func(s *model.Sale) { s.PriceCents = 0 },
		"an image on this server":    func(s *model.Sale) { s.ImageURL = "/images/phone.png" },
		"an image elsewhere":         func(s *model.Sale) { s.ImageURL = "https://example.com/x?a=b" },
		"a description of two lines": func(s *model.Sale) { s.Description = "one\n\ttwo" },
		"a title of emoji":           func(s *model.Sale) { s.Title = strings.Repeat("🎧", maxTitle) },
	}, func(t *testing.T, change func(*model.Sale)) {
		sale := draft()
		change(&sale)
		check.Same(t, "invalid", validate(sale), nil)
	})
}

// Patch changes fields and adds quota, and the gate gets both.
func TestPatch(t *testing.T) {
	o := openOffer()
	title, limit, wrong, end := "another title", 5, 0, o.EndsAt.Add(time.Hour)
	badQuota := &Invalid{Field: "add_quota", Reason: OutOfRange, Max: maxQuota}
	badLimit := &Invalid{Field: "limit_per_user", Reason: OutOfRange, Min: 1, Max: maxLimit}
	several := SalePatch{CampaignPatch: CampaignPatch{Title: &title, LimitPerUser: &limit, EndsAt: &end}}
	retitled, extended := o.Sale, o.Sale
	retitled.Title = title
	extended.Title, extended.LimitPerUser, extended.EndsAt = title, limit, end
	type test struct {
		id      string
		patch   SalePatch
		errTold error
		verdict model.Verdict
		invalid *Invalid
		want    model.Sale // after an accepted patch
	}
	check.Each(t, map[string]test{
		"several fields":       {o.ID, several, nil, model.Accepted, nil, extended},
		"more units":           {o.ID, SalePatch{AddQuota: 7}, nil, model.Accepted, nil, o.Sale},
		"the gate is not told": {o.ID, SalePatch{CampaignPatch: CampaignPatch{Title: &title}, AddQuota: 7}, errAway, model.Accepted, nil, retitled},
		"fewer units":          {o.ID, SalePatch{AddQuota: -1}, nil, model.BadRequest, badQuota, model.Sale{}},
		"too many units":       {o.ID, SalePatch{AddQuota: maxQuota + 1}, nil, model.BadRequest, badQuota, model.Sale{}},
		"two kinds of quota":   {o.ID, SalePatch{Quota: new(int64(5)), AddQuota: 1}, nil, model.BadRequest, &Invalid{Field: "add_quota", Reason: OutOfRange}, model.Sale{}},
		"no units":             {o.ID, SalePatch{Quota: new(int64)}, nil, model.BadRequest, &Invalid{Field: "quota", Reason: OutOfRange, Min: 1, Max: maxQuota}, model.Sale{}},
		"no such currency": {
			o.ID,
			SalePatch{CampaignPatch: CampaignPatch{Currency: new("ABC")}},
			nil, model.BadRequest,
			&Invalid{Field: "currency", Reason: BadCurrency, Value: "ABC"},
			model.Sale{},
		},
		"no such stock": {
			o.ID,
			SalePatch{CampaignPatch: CampaignPatch{StockShown: new(model.StockShown("many"))}},
			nil, model.BadRequest,
			&Invalid{Field: "stock_shown", Reason: BadStockShown},
			model.Sale{},
		},
		"a wrong field":   {o.ID, SalePatch{CampaignPatch: CampaignPatch{LimitPerUser: &wrong}}, nil, model.BadRequest, badLimit, model.Sale{}},
		"an unknown sale": {"NONE", SalePatch{CampaignPatch: CampaignPatch{Title: &title}}, nil, model.NotFound, nil, model.Sale{}},
	}, func(t *testing.T, tc test) {
		sales, s := newShop(t, o)
		s.errTold = tc.errTold
		s.states[o.ID] = model.GateState{Exists: true, Open: true, Version: 1}
		sales.Catalog.Latch(o.ID)
		got, verdict, invalid, err := sales.Patch(t.Context(), tc.id, tc.patch, "operator")
		check.Error(t, "patch", err, nil)
		check.Same(t, "verdict", verdict, tc.verdict)
		check.Same(t, "invalid", invalid, tc.invalid)
		if verdict != model.Accepted {
			check.Same(t, "units, configurations and announcements", s.states[o.ID].Left+int64(len(s.configured)+len(s.announced)), 0)
			return
		}
		tc.want.Revision = 2
		check.Same(t, "sale", got.Sale, tc.want)
		check.Same(t, "configured", s.configured, []model.Sale{tc.want})
		check.Same(t, "announced", s.announced, []string{o.ID})
		check.Same(t, "units added to the gate", s.states[o.ID].Left, tc.patch.AddQuota)
		list := sales.Catalog.Live()
		check.Same(t, "sale in the catalog", list[0].Sale, tc.want)
		check.Same(t, "quota in the catalog", list[0].Stock.Quota, 10+tc.patch.AddQuota)
		check.Same(t, "latched", sales.Catalog.Latched(o.ID), false)
	})
}

// A patch of a sale with several fields that are the campaign's is always refused for the first of them.
func TestPatchOfACampaignsSale(t *testing.T) {
	title, list, seconds, at := "another title", true, 60, time.Now()
	times := CampaignPatch{StartsAt: &at, EndsAt: &at}
	titled, described := times, times
	titled.Title, described.Description = &title, &title
	for field, patch := range map[string]SalePatch{
		"title":        {CampaignPatch: titled, EntriesAt: &at, CallSeconds: &seconds, WaitingList: &list},
		"starts_at":    {CampaignPatch: described, EntriesAt: &at, CallSeconds: &seconds, WaitingList: &list},
		"entries_at":   {CampaignPatch: CampaignPatch{LimitPerUser: &seconds}, EntriesAt: &at, CallSeconds: &seconds, WaitingList: &list},
		"call_seconds": {CallSeconds: &seconds, WaitingList: &list},
	} {
		o := openOffer()
		o.Campaign.ID = "CAMPAIGN"
		sales, _ := newShop(t, o)
		for range 20 {
			_, verdict, invalid, err := sales.Patch(t.Context(), o.ID, patch, "operator")
			check.Error(t, "patch", err, nil)
			check.Same(t, "verdict", verdict, model.BadRequest)
			check.Same(t, "invalid", invalid, &Invalid{Field: field, Reason: OfCampaign})
		}
	}
}

// Every field of the table is refused in the sales in which it does not act, and taken in the others.
func TestFieldsOfModes(t *testing.T) {
	edits := map[string]func(s *model.Sale){
		"waiting_list": func(s *model.Sale) { s.WaitingList = !s.WaitingList },
		"stock_shown":  func(s *model.Sale) { s.StockShown = model.StockFew },
		"beacon":       func(s *model.Sale) { s.Beacon = true },
		"entries_at":   func(s *model.Sale) { s.EntriesAt = time.Now() },
		"entry_work":   func(s *model.Sale) { s.EntryWork = 1 },
		"call_seconds": func(s *model.Sale) { s.CallSeconds = 1 },
	}
	for name, tc := range map[string]struct {
		sale model.Sale
		acts []string
	}{
		"rush":             {model.Sale{Mode: model.ModeRush}, []string{"waiting_list", "stock_shown"}},
		"rush with list":   {model.Sale{Mode: model.ModeRush, WaitingList: true}, []string{"waiting_list", "stock_shown", "entry_work", "call_seconds"}},
		"line":             {model.Sale{Mode: model.ModeLine}, []string{"stock_shown", "beacon", "entries_at", "entry_work", "call_seconds"}},
		"draw":             {model.Sale{Mode: model.ModeDraw}, []string{"waiting_list", "beacon", "entries_at", "entry_work"}},
		"draw with list":   {model.Sale{Mode: model.ModeDraw, WaitingList: true}, []string{"waiting_list", "beacon", "entries_at", "entry_work", "call_seconds"}},
		"draw of campaign": {model.Sale{Mode: model.ModeDraw, Campaign: model.Campaign{ID: "C"}}, []string{"waiting_list", "beacon", "entries_at", "entry_work", "call_seconds"}},
	} {
		var acts []string
		for _, field := range model.ModeFields {
			given := tc.sale
			if edit := edits[field.Name]; edit == nil {
				t.Errorf("no value of %s", field.Name)
			} else {
				edit(&given)
			}
			switch invalid := outOfMode(tc.sale, given); {
			case invalid == nil:
				acts = append(acts, field.Name)
			case invalid.Field != field.Name || invalid.Value != string(tc.sale.Mode):
				t.Errorf("%s: %+v", name, invalid)
			}
		}
		check.Same(t, name, acts, tc.acts)
	}

	o := openOffer() // a rush
	sales, _ := newShop(t, o)
	seconds, list := 60, true
	for _, patch := range []SalePatch{{EntriesAt: &o.StartsAt}, {CallSeconds: &seconds}} {
		_, verdict, invalid, err := sales.Patch(t.Context(), o.ID, patch, "operator")
		check.Same(t, "a change", []any{verdict, invalid.Value, err}, []any{model.BadRequest, "rush", nil})
	}
	_, verdict, invalid, err := sales.Patch(t.Context(), o.ID, SalePatch{CallSeconds: &seconds, WaitingList: &list}, "operator")
	check.Same(t, "with the list", []any{verdict, invalid, err}, []any{model.Accepted, (*Invalid)(nil), nil})
}

func TestSetStatus(t *testing.T) {
	type test struct {
		from, to model.SaleStatus
		verdict  model.Verdict
	}
	check.Each(t, map[string]test{
		"pause":               {model.SaleLive, model.SalePaused, model.Accepted},
		"resume":              {model.SalePaused, model.SaleLive, model.Accepted},
		"pause twice":         {model.SalePaused, model.SalePaused, model.Accepted},
		"close":               {model.SaleLive, model.SaleClosed, model.Accepted},
		"close a paused sale": {model.SalePaused, model.SaleClosed, model.Accepted},
		"close twice":         {model.SaleClosed, model.SaleClosed, model.Accepted},
		"open a closed sale":  {model.SaleClosed, model.SaleLive, model.Ended},
		"pause a closed sale": {model.SaleClosed, model.SalePaused, model.Ended},
		"open a shadow sale":  {model.SaleShadow, model.SaleLive, model.Ended}, // it would be shown
		"pause a shadow sale": {model.SaleShadow, model.SalePaused, model.Ended},
		"close a shadow sale": {model.SaleShadow, model.SaleClosed, model.Accepted},
	}, func(t *testing.T, tc test) {
		o := openOffer()
		o.Status = tc.from
		sales, s := newShop(t, o)
		got, verdict, err := sales.SetStatus(t.Context(), o.ID, tc.to, "an action", "operator")
		check.Error(t, "change", err, nil)
		check.Same(t, "verdict", verdict, tc.verdict)
		check.Same(t, "action and actor", []string{s.logged[0].Action, s.logged[0].Actor}, []string{"an action", "operator"})
		var want []model.Sale
		if verdict == model.Accepted {
			check.Same(t, "status", got.Status, tc.to)
			want = []model.Sale{got.Sale}
		}
		check.Same(t, "configured", s.configured, want)
	})
}

// A shadow sale sells and has a gate like any other, but buyers do not see it.
func TestShadow(t *testing.T) {
	sales, s := newShop(t, openOffer())
	shown := sales.Catalog.Live()
	hidden := draft()
	hidden.ID, hidden.Status = model.NewShadowID(), model.SaleShadow
	made, invalid, err := sales.Create(t.Context(), hidden, 5, "preflight")
	if err != nil || invalid != nil || made.Status != model.SaleShadow {
		t.Fatalf("%+v, %+v, %v", made, invalid, err)
	}
	list := sales.Catalog.Live()
	check.Same(t, "sales for buyers", list, shown)
	check.Same(t, "it is watched", slices.Contains(sales.Catalog.LiveIDs(), made.ID), true)
	check.Same(t, "it sells", sales.Catalog.Judge(made.ID), model.Accepted)
	s.states[made.ID] = model.GateState{}
	check.Done(sales.Gates.Ensure(t.Context()))
	check.Same(t, "a lost gate is open again", s.states[made.ID].Open, true)
}
