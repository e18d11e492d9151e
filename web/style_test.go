package web

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// readable is the least contrast of text of any size with its background (WCAG 2.2, 1.4.3), visible that of the edges of
// fields and of the bar (1.4.11).
const (
	readable = 4.5
	visible  = 3
)

// Each text colour has enough contrast with its background, in the light and the dark scheme.
func TestColoursCanBeRead(t *testing.T) {
	blocks := map[string]string{}
	for _, name := range []string{"assets/base.css", "assets/console.css"} {
		raw, err := assetFiles.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		light, dark, ok := strings.Cut(string(raw), "@media (prefers-color-scheme: dark)")
		if !ok {
			t.Fatalf("%s has no dark scheme", name)
		}
		dark, _, _ = strings.Cut(dark, "\n}\n")
		blocks["light"] += light
		blocks["dark"] += dark
	}
	for scheme, block := range blocks {
		colours := map[string]string{}
		for _, match := range regexp.MustCompile(`--([a-z0-9-]+): (#[0-9a-f]{6});`).FindAllStringSubmatch(block, -1) {
			colours[match[1]] = match[2]
		}
		for pair, least := range map[string]float64{
			"ink on ground": readable, "ink on paper": readable, "ink on accent-soft": readable, "ink on warn-soft": readable,
			"quiet on ground": readable, "quiet on paper": readable, "quiet on track": readable,
			"accent on ground": readable, "accent on paper": readable, "accent on accent-soft": readable, "accent on warn-soft": readable,
			"on-accent on accent": readable, "on-accent on accent-press": readable, "on-rest on rest": readable,
			"warn on warn-soft": readable, "warn on paper": readable,
			"stop on paper": readable, "stop on accent-soft": readable, "stop on stop-soft": readable,
			"accent on track": visible, "series-1 on paper": visible, "series-2 on paper": visible, "series-3 on paper": visible,
		} {
			frontName, backName, _ := strings.Cut(pair, " on ")
			front, back := colours[frontName], colours[backName]
			if front == "" || back == "" {
				t.Fatalf("%s: %s: the colours are %q and %q", scheme, pair, front, back)
			}
			if got := contrast(t, front, back); got < least {
				t.Errorf("%s: %s has a contrast of %.2f, want %.1f", scheme, pair, got, least)
			}
		}
	}
}

func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	high, low := luminance(t, a), luminance(t, b)
	if high < low {
		high, low = low, high
	}
	return (high + 0.05) / (low + 0.05)
}

// luminance returns the relative luminance, as defined by WCAG.
func luminance(t *testing.T, colour string) float64 {
	t.Helper()
	sum := 0.0
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		n, err := strconv.ParseUint(colour[1+2*i:3+2*i], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		c := float64(n) / 255
		if c <= 0.04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		sum += weight * c
	}
	return sum
}
