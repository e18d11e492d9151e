package model

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Excerpt returns a text from outside, such as an answer or an error, in valid UTF-8 without control characters: these and
// invalid bytes become spaces. If the text is longer than "characters", which must be at least 1, it is cut to this length, and
// ends with ….
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
