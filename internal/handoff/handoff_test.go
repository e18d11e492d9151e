package handoff

import (
	"strings"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// All instances have the same key, and another secret makes another one. The checkout's own query stays.
func TestKeys(t *testing.T) {
	made := func(secret string) *Provider {
		p, err := New("https://shop.example/pay?lang=en", []byte(secret), func() string { return "https://sale.example" }, time.Now)
		check.NoError(t, err)
		return p
	}
	one, same, other := made("a secret of at least 32 bytes...."), made("a secret of at least 32 bytes...."), made("another secret of 32 bytes......")
	check.Same(t, "keys", string(one.Keys()), string(same.Keys()))
	if string(one.Keys()) == string(other.Keys()) || strings.Contains(string(one.Keys()), `"d"`) {
		t.Errorf("keys %s", one.Keys())
	}
	page, _, err := one.Open(t.Context(), model.Payment{OrderID: "O", ExpiresAt: time.Now().Add(time.Minute)}, model.Sale{ID: "S"})
	if err != nil || !strings.HasPrefix(page, "https://shop.example/pay?hold=ey") || !strings.HasSuffix(page, "&lang=en") {
		t.Errorf("the page is %s, %v", page, err)
	}
}
