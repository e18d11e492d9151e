package repository

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// Each column that takes any text takes the most hostile one. Those of sales and campaigns hold what the service has checked, of
// which the longest fits; the others hold texts from outside, which may be cut anywhere.
func TestTextsFit(t *testing.T) {
	hostile := strings.Repeat("☕", 1000) + "\x00\r\n\x7f🍵\xf0\x9f\x8d" + strings.Repeat("🍵", 1000) + "\xe5\x94"
	longest := func(characters int) string { return strings.Repeat("🍵", characters) }
	sale := func(edit func(s *model.Sale)) func(t *testing.T, d *testDB) {
		return func(t *testing.T, d *testDB) { d.newSale(t, 1, edit) }
	}
	campaign := func(edit func(c *model.Campaign)) func(t *testing.T, d *testDB) {
		return func(t *testing.T, d *testDB) {
			c := model.Campaign{ID: model.NewSaleID(), Title: "shoe", LimitPerUser: 1}
			edit(&c)
			now := d.now(t)
			of := model.Sale{
				ID: model.NewSaleID(), Title: "shoe 42", Currency: "CNY", LimitPerUser: 1, PayTimeoutSeconds: 60, StartsAt: now, EndsAt: now.Add(time.Hour),
				Mode: model.ModeRush, Campaign: c, Variant: "42",
			}
			of.Code = of.ID[:8]
			check.NoError(t, d.CreateCampaign(t.Context(), c, []model.NewSale{{Sale: of, Quota: 1}}, "op"))
		}
	}
	delivers := func(d model.Delivery, reason string) func(t *testing.T, db *testDB) {
		return func(t *testing.T, db *testDB) {
			d.EndpointID, d.First, d.Last, d.At = model.NewSaleID(), 1, 1, time.Now()
			_, ok, err := db.CreateEndpoint(t.Context(), model.Endpoint{ID: d.EndpointID, URL: "https://shop.example/", Rate: 5, Secret: "s"}, 100, "op")
			check.NoError(t, err)
			check.Same(t, "made", ok, true)
			check.NoError(t, db.FinishDelivery(t.Context(), d, 0, model.EndpointOff, reason))
		}
	}
	shop := func(edit func(s *model.Shop)) func(t *testing.T, d *testDB) {
		return func(t *testing.T, d *testDB) {
			var s model.Shop
			edit(&s)
			check.NoError(t, d.SetShop(t.Context(), s, "op"))
		}
	}
	columns := map[string]func(t *testing.T, d *testDB){
		"sales.title":           sale(func(s *model.Sale) { s.Title = longest(200) }),
		"sales.description":     sale(func(s *model.Sale) { s.Description = longest(2000) }),
		"sales.image_url":       sale(func(s *model.Sale) { s.ImageURL = longest(500) }),
		"sales.variant":         sale(func(s *model.Sale) { s.Variant = longest(60) }),
		"campaigns.title":       campaign(func(c *model.Campaign) { c.Title = longest(130) }),
		"campaigns.description": campaign(func(c *model.Campaign) { c.Description = longest(2000) }),
		"campaigns.image_url":   campaign(func(c *model.Campaign) { c.ImageURL = longest(500) }),
		"shop.name":             shop(func(s *model.Shop) { s.Name = longest(60) }),
		"shop.logo_url":         shop(func(s *model.Shop) { s.LogoURL = longest(500) }),
		"shop.home_url":         shop(func(s *model.Shop) { s.HomeURL = longest(500) }),
		"shop.terms_url":        shop(func(s *model.Shop) { s.TermsURL = longest(500) }),
		"shop.privacy_url":      shop(func(s *model.Shop) { s.PrivacyURL = longest(500) }),
		"shop.imprint_url":      shop(func(s *model.Shop) { s.ImprintURL = longest(500) }),
		"shop.small_print":      shop(func(s *model.Shop) { s.SmallPrint = longest(500) }),
		"audit_log.detail":      func(t *testing.T, d *testDB) { check.NoError(t, d.Log(t.Context(), "op", "act", "it", hostile)) },
		"endpoints.reason":      delivers(model.Delivery{Status: 500}, hostile),
		"deliveries.answer":     delivers(model.Delivery{Status: 500, Answer: hostile}, ""),
	}
	onBoth(t, func(t *testing.T, d *testDB) {
		for column, write := range columns {
			table, name, _ := strings.Cut(column, ".")
			write(t, d)
			var found []string
			check.NoError(t, d.read.Raw("SELECT "+name+" FROM "+table+" ORDER BY LENGTH("+name+") DESC LIMIT 1").Scan(&found).Error)
			if text := found[0]; !utf8.ValidString(text) || !strings.HasPrefix(text, "☕☕☕") && !strings.HasPrefix(text, "🍵🍵🍵") {
				t.Errorf("%s has %q", column, text)
			}
		}
		if d.sqlite {
			return
		}
		var there []string
		check.NoError(t, d.read.Raw(`SELECT CONCAT(table_name, '.', column_name) FROM information_schema.columns
			WHERE table_schema = DATABASE() AND character_maximum_length IS NOT NULL AND character_set_name <> 'ascii'`).Scan(&there).Error)
		for _, column := range there {
			if columns[column] == nil && column != "rehearsals.report" && !strings.HasPrefix(column, "schema_") {
				t.Errorf("%s takes any text, and this test does not write it", column)
			}
		}
	})
}
