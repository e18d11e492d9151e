package service

import (
	"context"
	"errors"
	"strings"
	"testing"

	"flashsale/model"
	"flashsale/test/kit/check"
)

type fakeShop struct {
	shop model.Shop
	err  error
}

func (f *fakeShop) Shop(context.Context) (model.Shop, error) { return f.shop, f.err }

func (f *fakeShop) SetShop(_ context.Context, shop model.Shop, _ string) error {
	f.shop = shop
	return f.err
}

// A change is shown at once, and a change by another instance after a refresh. The pointer changes only with the shop.
func TestShopIsShown(t *testing.T) {
	store := &fakeShop{}
	s := NewShop(store)
	first := s.Shown()
	check.NoError(t, s.Refresh(t.Context()))
	check.Same(t, "nothing has changed", s.Shown() == first, true)
	_, verdict, _, err := s.Set(t.Context(), model.Shop{Name: "Tea", Color: "#FFCC00"}, "olga")
	check.NoError(t, err)
	check.Same(t, "verdict", verdict, model.Accepted)
	check.Same(t, "shown", *s.Shown(), model.Shop{Name: "Tea", Color: "#ffcc00"})
	shown := s.Shown()
	check.NoError(t, s.Refresh(t.Context()))
	check.Same(t, "nothing has changed again", s.Shown() == shown, true)
	store.shop.Name = "Coffee"
	check.NoError(t, s.Refresh(t.Context()))
	check.Same(t, "name after a refresh", s.Shown().Name, "Coffee")
	store.err = errors.New("away")
	check.Same(t, "a refresh that fails", s.Refresh(t.Context()), store.err)
	check.Same(t, "name after it", s.Shown().Name, "Coffee")
}

func TestShopRefuses(t *testing.T) {
	type test struct {
		change func(*model.Shop)
		field  string
		reason Reason
	}
	check.Each(t, map[string]test{
		"nothing set":          {func(s *model.Shop) { *s = model.Shop{} }, "", ""},
		"all":                  {func(*model.Shop) {}, "", ""},
		"a long name":          {func(s *model.Shop) { s.Name = strings.Repeat("茶", 61) }, "name", BadText},
		"an invisible name":    {func(s *model.Shop) { s.Name = "\u200b" }, "name", BadText},
		"two lines":            {func(s *model.Shop) { s.SmallPrint = "a\nb" }, "small_print", BadText},
		"a long small print":   {func(s *model.Shop) { s.SmallPrint = strings.Repeat("a", 501) }, "small_print", BadText},
		"a script as logo":     {func(s *model.Shop) { s.LogoURL = "javascript:alert(1)" }, "logo_url", BadLink},
		"a script as home":     {func(s *model.Shop) { s.HomeURL = "javascript:alert(1)" }, "home_url", BadLink},
		"terms without a host": {func(s *model.Shop) { s.TermsURL = "https:///terms" }, "terms_url", BadLink},
		"a relative link":      {func(s *model.Shop) { s.PrivacyURL = "privacy" }, "privacy_url", BadLink},
		"a long link":          {func(s *model.Shop) { s.ImprintURL = "/" + strings.Repeat("a", 500) }, "imprint_url", BadLink},
		"a colour by name":     {func(s *model.Shop) { s.Color = "red" }, "color", BadColor},
		"a short colour":       {func(s *model.Shop) { s.Color = "#fc0" }, "color", BadColor},
		"a style as colour":    {func(s *model.Shop) { s.Color = "#ffcc00;}" }, "color", BadColor},
	}, func(t *testing.T, tc test) {
		store := &fakeShop{}
		shop := model.Shop{
			Name: "Tea", LogoURL: "/logo.svg", Color: "#ffcc00", HomeURL: "https://tea.example", TermsURL: "https://tea.example/t", PrivacyURL: "/p",
			ImprintURL: "http://tea.example/i", SmallPrint: "VAT",
		}
		tc.change(&shop)
		_, verdict, invalid, err := NewShop(store).Set(t.Context(), shop, "olga")
		check.NoError(t, err)
		if tc.field == "" {
			check.Same(t, "verdict", verdict, model.Accepted)
			check.Same(t, "stored", store.shop, shop)
			return
		}
		if verdict != model.BadRequest || invalid == nil || invalid.Field != tc.field || invalid.Reason != tc.reason {
			t.Errorf("refused with %+v", invalid)
		}
		check.Same(t, "stored", store.shop, model.Shop{})
	})
}
