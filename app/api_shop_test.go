package app_test

import (
	"strings"
	"testing"

	"flashsale/internal/config"
	"flashsale/model"
)

const adminShop = "/api/v1/admin/shop"

// What operators set of the shop is on the pages of all instances soon, in the audit log, and replaced as a whole.
func TestShopsFace(t *testing.T) {
	t.Parallel()
	settings := settingsOf(t)
	s := start(t, func(c *config.Settings) { *c = settings })
	other := start(t, func(c *config.Settings) { c.Database = settings.Database })
	sale := s.createSale(nil)
	pages := []string{"/", "/sales/" + sale.ID, "/orders", "/nothing"}
	home := func(s *server, path string) string {
		return string(s.anyone().call("GET", path, nil, "Accept", "text/html").body)
	}
	for _, path := range pages {
		for _, s := range []*server{s, other} {
			if body := home(s, path); !strings.Contains(body, "<span>Flashsale</span>") || !strings.Contains(body, "For the operator") {
				t.Errorf("%s of a shop without a name: %s", path, body)
			}
		}
	}
	var got struct {
		Shop   model.Shop
		Colors struct{ Light, Dark string }
	}
	s.operator().call("PUT", adminShop, fields{"name": "Tea & Co", "color": "#FFCC00", "terms_url": "https://tea.example/terms"}).want(200).read(&got)
	want := model.Shop{Name: "Tea & Co", Color: "#ffcc00", TermsURL: "https://tea.example/terms"}
	if got.Shop != want || got.Colors.Dark != "#ffcc00" || got.Colors.Light == "#ffcc00" || got.Colors.Light == "" {
		t.Errorf("the shop is %+v", got)
	}
	for _, path := range pages {
		if body := home(s, path); !strings.Contains(body, "<span>Tea &amp; Co</span>") || strings.Contains(body, "For the operator") {
			t.Errorf("%s of the shop: %s", path, body)
		}
		other.eventually("the other instance has the shop's name on "+path, func() bool {
			return strings.Contains(home(other, path), "<span>Tea &amp; Co</span>")
		})
	}
	style := home(other, "/")
	_, style, _ = strings.Cut(style, `href="/assets/shop-`)
	style, _, _ = strings.Cut(style, `"`)
	s.anyone().get("/assets/shop-" + style).want(200).contains("--accent: " + got.Colors.Light)

	s.operator().call("PUT", adminShop, fields{"name": "Tea"}).want(200)
	other.operator().get(adminShop).want(200).read(&got)
	if got.Shop != (model.Shop{Name: "Tea"}) {
		t.Errorf("replaced by a name alone, the shop is %+v", got.Shop)
	}
	s.operator().get("/api/v1/admin/shop-operations").want(200).contains(`name: \"Tea \u0026 Co\" -\u003e \"Tea\"`, `"actor":"admin"`, `terms_url: \"\" -\u003e`)
}

func TestWrongShop(t *testing.T) {
	t.Parallel()
	s := start(t)
	for field, value := range map[string]string{"name": "\u0000", "color": "red", "logo_url": "javascript:alert(1)", "small_print": strings.Repeat("a", 501)} {
		p := s.operator().call("PUT", adminShop, fields{field: value}).refused(400, "bad_request")
		if p.Field != field {
			t.Errorf("%s %q: refused for the field %q: %+v", field, value, p.Field, p)
		}
	}
	s.operator().call("PUT", adminShop, fields{"colour": "#ffcc00"}).refused(400, "bad_request")
	s.holding(s.hire("vera", "key", model.RoleSupport).Secret).call("PUT", adminShop, fields{}).refused(403, "forbidden")
	s.anyone().call("GET", adminShop, nil).refused(401, "unauthenticated")
}
