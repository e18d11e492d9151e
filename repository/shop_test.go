package repository

import (
	"strings"
	"testing"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// The database keeps every field of the shop, also the longest texts, and the audit log says what has changed. What changes
// nothing is not logged.
func TestShop(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testDB) {
		check.Same(t, "the shop at first", check.Must(d.Shop(t.Context())), model.Shop{})
		whole := model.Shop{Name: strings.Repeat("茶", 60), Color: "#0f6b54", SmallPrint: strings.Repeat("税", 500)}
		for _, f := range whole.Fields() {
			if strings.HasSuffix(f.Name, "_url") {
				*f.Value = "https://茶.example/" + f.Name + strings.Repeat("x", 500-len(f.Name)-18)
			}
		}
		renamed := whole
		renamed.Name, renamed.TermsURL = "Tea", ""
		for _, shop := range []model.Shop{whole, whole, renamed} {
			check.NoError(t, d.SetShop(t.Context(), shop, "olga"))
			check.Same(t, "the shop", check.Must(d.Shop(t.Context())), shop)
		}
		log, _, err := d.Operations(t.Context(), model.ShopSubject, "", 10)
		check.NoError(t, err)
		check.Same(t, "entries in the audit log", len(log), 2)
		check.Same(t, "actor and action", log[0].Actor+" "+log[0].Action, "olga change")
		if detail := log[0].Detail; !strings.HasPrefix(detail, `name: "茶`) || !strings.Contains(detail, `-> "Tea"; terms_url: "https://茶.example/terms_url`) ||
			strings.Contains(detail, "color") {
			t.Errorf("the audit log says %s", detail)
		}
	})
}
