package service

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"flashsale/model"
)

// shop is the database of an operator's sales and the gate that hears of them.
type shop struct {
	*gatehouse
	quota      int64
	errCreate  error
	configured []model.Sale
	errGate    error
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
	s.change(func(f *fakeSales) {
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
	return s.errGate
}

func (s *shop) Announce(_ context.Context, id string) error {
	s.announced = append(s.announced, id)
	return s.errGate
}

func newShop(t *testing.T, offers ...model.Offer) (*Sales, *shop) {
	t.Helper()
	s := &shop{gatehouse: newGatehouse(offers...)}
	catalog := refreshed(t, s)
	return &Sales{Store: s, Gate: s, Gates: NewGates(s, s, catalog, discard), Catalog: catalog, Log: discard}, s
}

func draft() model.Sale {
	o := openOffer()
	o.ID, o.Code, o.Status, o.Revision = "", "", "", 0
	return o.Sale
}

func TestCreate(t *testing.T) {
	for name, failing := range map[string]bool{"all hear of it": false, "Redis is away": true} {
		t.Run(name, func(t *testing.T) {
			sales, s := newShop(t)
			if failing {
				s.errGate, s.failing = errAway, "peek"
			}
			got, invalid, err := sales.Create(t.Context(), draft(), 50, "operator")
			if err != nil || invalid != nil {
				t.Fatal(invalid, err)
			}
			if len(got.ID) != model.IDLength || len(got.Code) != codeLength || got.Status != model.SaleLive || got.Revision != 1 || got.Stock.Available != 50 || s.quota != 50 {
				t.Errorf("made %+v", got)
			}
			if s.states[got.ID].Open == failing || !slices.Equal(s.announced, []string{got.ID}) {
				t.Errorf("the gate is %+v, announced %v", s.states[got.ID], s.announced)
			}
			if live := sales.Catalog.LiveIDs(); !slices.Equal(live, []string{got.ID}) {
				t.Errorf("live are %v", live)
			}
			if id, err := sales.ByCode(t.Context(), got.Code); id != got.ID || err != nil {
				t.Errorf("by its code %q, %v", id, err)
			}
			if id, err := sales.ByCode(t.Context(), "NOCODE22"); id != "" || err != nil {
				t.Errorf("by a code of none %q, %v", id, err)
			}
		})
	}
	sales, s := newShop(t)
	s.errCreate = errAway
	if _, _, err := sales.Create(t.Context(), draft(), 50, "operator"); !errors.Is(err, errAway) {
		t.Errorf("no database: %v", err)
	}
	if len(s.announced) != 0 {
		t.Error("announced what is not there")
	}
}

// TestWrongFields of a new sale, each named in the answer.
func TestWrongFields(t *testing.T) {
	tests := map[string]struct {
		change func(s *model.Sale, quota *int64)
		want   Invalid
	}{
		"no quota":                {func(_ *model.Sale, q *int64) { *q = 0 }, Invalid{Field: "quota", Reason: OutOfRange, Min: 1, Max: maxQuota}},
		"negative quota":          {func(_ *model.Sale, q *int64) { *q = -1 }, Invalid{Field: "quota", Reason: OutOfRange, Min: 1, Max: maxQuota}},
		"quota past any count":    {func(_ *model.Sale, q *int64) { *q = maxQuota + 1 }, Invalid{Field: "quota", Reason: OutOfRange, Min: 1, Max: maxQuota}},
		"over before it began":    {func(s *model.Sale, _ *int64) { s.EndsAt = time.Now().Add(-time.Minute) }, Invalid{Field: "ends_at", Reason: InThePast}},
		"no title":                {func(s *model.Sale, _ *int64) { s.Title = "" }, Invalid{Field: "title", Reason: BadText, Min: 1, Max: maxTitle}},
		"title of spaces":         {func(s *model.Sale, _ *int64) { s.Title = "   " }, Invalid{Field: "title", Reason: BadText, Min: 1, Max: maxTitle}},
		"title too long":          {func(s *model.Sale, _ *int64) { s.Title = strings.Repeat("字", maxTitle+1) }, Invalid{Field: "title", Reason: BadText, Min: 1, Max: maxTitle}},
		"title with a bell":       {func(s *model.Sale, _ *int64) { s.Title = "a\aa" }, Invalid{Field: "title", Reason: BadText, Min: 1, Max: maxTitle}},
		"title not UTF-8":         {func(s *model.Sale, _ *int64) { s.Title = "a\xff" }, Invalid{Field: "title", Reason: BadText, Min: 1, Max: maxTitle}},
		"description too long":    {func(s *model.Sale, _ *int64) { s.Description = strings.Repeat("字", maxDescription+1) }, Invalid{Field: "description", Reason: BadText, Max: maxDescription}},
		"description with a NUL":  {func(s *model.Sale, _ *int64) { s.Description = "a\x00" }, Invalid{Field: "description", Reason: BadText, Max: maxDescription}},
		"image of a script":       {func(s *model.Sale, _ *int64) { s.ImageURL = "javascript:alert(1)" }, Invalid{Field: "image_url", Reason: BadLink, Max: maxImageURL}},
		"image of another scheme": {func(s *model.Sale, _ *int64) { s.ImageURL = "ftp://example.com/x" }, Invalid{Field: "image_url", Reason: BadLink, Max: maxImageURL}},
		"image without a host":    {func(s *model.Sale, _ *int64) { s.ImageURL = "//example.com/x" }, Invalid{Field: "image_url", Reason: BadLink, Max: maxImageURL}},
		"image too long":          {func(s *model.Sale, _ *int64) { s.ImageURL = "/" + strings.Repeat("x", maxImageURL) }, Invalid{Field: "image_url", Reason: BadLink, Max: maxImageURL}},
		"negative price":          {func(s *model.Sale, _ *int64) { s.PriceCents = -1 }, Invalid{Field: "price_cents", Reason: OutOfRange, Max: maxPriceCents}},
		"price past any":          {func(s *model.Sale, _ *int64) { s.PriceCents = maxPriceCents + 1 }, Invalid{Field: "price_cents", Reason: OutOfRange, Max: maxPriceCents}},
		"negative original price": {func(s *model.Sale, _ *int64) { s.OriginalPriceCents = -1 }, Invalid{Field: "original_price_cents", Reason: OutOfRange, Max: maxPriceCents}},
		"currency in words":       {func(s *model.Sale, _ *int64) { s.Currency = "yuan" }, Invalid{Field: "currency", Reason: BadCurrency}},
		"limit zero":              {func(s *model.Sale, _ *int64) { s.LimitPerUser = 0 }, Invalid{Field: "limit_per_user", Reason: OutOfRange, Min: 1, Max: maxLimit}},
		"limit past any":          {func(s *model.Sale, _ *int64) { s.LimitPerUser = maxLimit + 1 }, Invalid{Field: "limit_per_user", Reason: OutOfRange, Min: 1, Max: maxLimit}},
		"no time to pay":          {func(s *model.Sale, _ *int64) { s.PayTimeoutSeconds = 0 }, Invalid{Field: "pay_timeout_seconds", Reason: OutOfRange, Min: 1, Max: maxPaySeconds}},
		"for ever to pay":         {func(s *model.Sale, _ *int64) { s.PayTimeoutSeconds = maxPaySeconds + 1 }, Invalid{Field: "pay_timeout_seconds", Reason: OutOfRange, Min: 1, Max: maxPaySeconds}},
		"before computers":        {func(s *model.Sale, _ *int64) { s.StartsAt = time.Time{} }, Invalid{Field: "starts_at", Reason: BadYear, Min: 2000, Max: 2200}},
		"after us all":            {func(s *model.Sale, _ *int64) { s.EndsAt = time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC) }, Invalid{Field: "ends_at", Reason: BadYear, Min: 2000, Max: 2200}},
		"end with the start":      {func(s *model.Sale, _ *int64) { s.StartsAt = s.EndsAt }, Invalid{Field: "ends_at", Reason: NotAfterStart}},
		"a microsecond long": {func(s *model.Sale, _ *int64) {
			s.StartsAt = s.EndsAt.Truncate(time.Millisecond)
			s.EndsAt = s.StartsAt.Add(time.Microsecond)
		}, Invalid{Field: "ends_at", Reason: NotAfterStart}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			sales, s := newShop(t)
			sale, quota := draft(), int64(10)
			tc.change(&sale, &quota)
			_, invalid, err := sales.Create(t.Context(), sale, quota, "operator")
			if err != nil || invalid == nil || *invalid != tc.want {
				t.Errorf("%+v, %v; want %+v", invalid, err, tc.want)
			}
			if len(s.offers) != 0 {
				t.Error("made nevertheless")
			}
		})
	}
	fine := map[string]func(s *model.Sale){
		"a free gift":                func(s *model.Sale) { s.PriceCents = 0 },
		"an image on this server":    func(s *model.Sale) { s.ImageURL = "/images/phone.png" },
		"an image elsewhere":         func(s *model.Sale) { s.ImageURL = "https://example.com/x?a=b" },
		"a description of two lines": func(s *model.Sale) { s.Description = "one\n\ttwo" },
		"a title of emoji":           func(s *model.Sale) { s.Title = strings.Repeat("🎧", maxTitle) },
	}
	for name, change := range fine {
		sale := draft()
		change(&sale)
		if invalid := validate(sale); invalid != nil {
			t.Errorf("%s: %+v", name, invalid)
		}
	}
}

// TestPatch changes what it is told to, adds quota, and brings both to the gate.
func TestPatch(t *testing.T) {
	o := openOffer()
	title, limit, wrong := "another title", 5, 0
	end := o.EndsAt.Add(time.Hour)
	tests := map[string]struct {
		id      string
		patch   SalePatch
		errGate error
		verdict model.Verdict
		invalid *Invalid
		left    int64 // units that the gate has more
	}{
		"texts and limits":         {id: o.ID, patch: SalePatch{Title: &title, LimitPerUser: &limit, EndsAt: &end}, verdict: model.Accepted},
		"more units":               {id: o.ID, patch: SalePatch{AddQuota: 7}, verdict: model.Accepted, left: 7},
		"the gate doesn't hear":    {id: o.ID, patch: SalePatch{Title: &title, AddQuota: 7}, errGate: errAway, verdict: model.Accepted, left: 7},
		"fewer units":              {id: o.ID, patch: SalePatch{AddQuota: -1}, verdict: model.BadRequest, invalid: &Invalid{Field: "add_quota", Reason: OutOfRange, Max: maxQuota}},
		"units past any count":     {id: o.ID, patch: SalePatch{AddQuota: maxQuota + 1}, verdict: model.BadRequest, invalid: &Invalid{Field: "add_quota", Reason: OutOfRange, Max: maxQuota}},
		"a wrong field":            {id: o.ID, patch: SalePatch{LimitPerUser: &wrong}, verdict: model.BadRequest, invalid: &Invalid{Field: "limit_per_user", Reason: OutOfRange, Min: 1, Max: maxLimit}},
		"a sale that there is not": {id: "NONE", patch: SalePatch{Title: &title}, verdict: model.NotFound},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			sales, s := newShop(t, o)
			s.errGate = tc.errGate
			s.states[o.ID] = model.GateState{Exists: true, Open: true, Version: 1}
			sales.Catalog.Latch(o.ID)
			got, verdict, invalid, err := sales.Patch(t.Context(), tc.id, tc.patch, "operator")
			if err != nil || verdict != tc.verdict || !reflect.DeepEqual(invalid, tc.invalid) {
				t.Fatalf("%+v, %s, %+v, %v", got, verdict, invalid, err)
			}
			if left := s.states[o.ID].Left; left != tc.left {
				t.Errorf("the gate has %d units more, want %d", left, tc.left)
			}
			if verdict != model.Accepted {
				if len(s.configured)+len(s.announced) != 0 {
					t.Errorf("configured %v, announced %v", s.configured, s.announced)
				}
				return
			}
			if len(s.configured) != 1 || s.configured[0].Revision != 2 || !slices.Equal(s.announced, []string{o.ID}) {
				t.Errorf("configured %+v, announced %v", s.configured, s.announced)
			}
			if tc.patch.Title != nil && (got.Title != title || got.PriceCents != o.PriceCents) {
				t.Errorf("changed to %+v", got.Sale)
			}
			if list, _ := sales.Catalog.Live(); list[0].Revision != 2 || list[0].Stock.Quota != 10+tc.patch.AddQuota {
				t.Errorf("the catalog has %+v", list[0])
			}
			if sales.Catalog.Latched(o.ID) {
				t.Error("still noted as sold out")
			}
		})
	}
}

func TestSetStatus(t *testing.T) {
	tests := map[string]struct {
		from, to model.SaleStatus
		verdict  model.Verdict
	}{
		"pause":             {model.SaleLive, model.SalePaused, model.Accepted},
		"resume":            {model.SalePaused, model.SaleLive, model.Accepted},
		"pause twice":       {model.SalePaused, model.SalePaused, model.Accepted},
		"close":             {model.SaleLive, model.SaleClosed, model.Accepted},
		"close a paused":    {model.SalePaused, model.SaleClosed, model.Accepted},
		"close twice":       {model.SaleClosed, model.SaleClosed, model.Accepted},
		"open a closed one": {model.SaleClosed, model.SaleLive, model.Ended},
		"pause a closed":    {model.SaleClosed, model.SalePaused, model.Ended},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			o := openOffer()
			o.Status = tc.from
			sales, s := newShop(t, o)
			got, verdict, err := sales.SetStatus(t.Context(), o.ID, tc.to, "an action", "operator")
			if err != nil || verdict != tc.verdict {
				t.Fatalf("%s, %v", verdict, err)
			}
			if c := s.logged[0]; c.Action != "an action" || c.Actor != "operator" {
				t.Errorf("logged as %+v", c)
			}
			if heard := len(s.configured) == 1 && s.configured[0].Status == tc.to; heard != (verdict == model.Accepted) {
				t.Errorf("the gate heard %v", s.configured)
			}
			if verdict == model.Accepted && got.Status != tc.to {
				t.Errorf("it is %s", got.Status)
			}
		})
	}
}
