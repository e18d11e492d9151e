package model

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Excerpt returns a text from outside, such as an answer or an error, in a form that every store and log takes: valid UTF-8 on
// one line. A text with more characters than the number given is cut to that number, and then ends with …. Control characters and
// invalid bytes become spaces. The number must be at least 1.
func Excerpt(text string, characters int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == utf8.RuneError {
			return ' '
		}
		return r
	}, text)
	if utf8.RuneCountInString(text) <= characters {
		return text
	}
	return string([]rune(text)[:characters-1]) + "…"
}
