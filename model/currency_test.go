package model

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestAmount(t *testing.T) {
	for want, of := range map[string]struct {
		smallest int64
		currency string
	}{
		"0": {0, "JPY"}, "1250": {1250, "JPY"}, "0.00": {0, "EUR"}, "0.05": {5, "EUR"}, "12.50": {1250, "EUR"}, "1.250": {1250, "KWD"}, "0.001": {1, "KWD"},
		"92233720368547758.07": {1<<63 - 1, "CNY"}, "9.90": {990, "not a code"},
	} {
		if got := Amount(of.smallest, of.currency); got != want {
			t.Errorf("%d of %s: %s, want %s", of.smallest, of.currency, got, want)
		}
	}
}

// Each code is one of three letters, and is in the table once.
func TestCurrencies(t *testing.T) {
	codes := strings.Fields(strings.Join(Currencies[:], " "))
	if slices.Sort(codes); len(slices.Compact(slices.Clone(codes))) != len(codes) {
		t.Errorf("a code is there twice: %v", codes)
	}
	for _, code := range codes {
		if !regexp.MustCompile(`^[A-Z]{3}$`).MatchString(code) {
			t.Errorf("%q is not a code", code)
		}
	}
}
