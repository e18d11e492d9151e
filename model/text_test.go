package model

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestExcerpt(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "plain": "plain", "a\x00b\tc\r\nd\x7f\u0085": "a b c  d  ", "half of a \xe5\x94": "half of a   ", "\ufffd": " ",
		"茶☕🍵": "茶☕🍵", strings.Repeat("🍵", 20): strings.Repeat("🍵", 20), strings.Repeat("🍵", 21): strings.Repeat("🍵", 19) + "…",
	} {
		if got := Excerpt(text, 20); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

func FuzzExcerpt(f *testing.F) {
	f.Add("half \xe5", 4)
	f.Fuzz(func(t *testing.T, text string, characters int) {
		characters = 1 + max(characters%1000, 0)
		got := Excerpt(text, characters)
		if !utf8.ValidString(got) || utf8.RuneCountInString(got) > characters || Excerpt(got, characters) != got {
			t.Errorf("%q became %q", text, got)
		}
	})
}
