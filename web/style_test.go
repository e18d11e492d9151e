package web

import (
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"flashsale/test/kit/check"
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
		light, dark, ok := strings.Cut(string(check.Must(assetFiles.ReadFile(name))), "@media (prefers-color-scheme: dark)")
		if !ok {
			t.Fatalf("%s has no dark scheme", name)
		}
		dark, _, _ = strings.Cut(dark, "\n}\n")
		blocks["light"] += light
		blocks["dark"] += dark
	}
	canBeRead(t, blocks)
	of, parts := map[string]string{}, []string{"00", "33", "66", "99", "cc", "ff"}
	for _, red := range parts {
		for _, green := range parts {
			for _, blue := range parts {
				of["a shop's #"+red+green+blue] = "#" + red + green + blue
			}
		}
	}
	check.Each(t, of, func(t *testing.T, color string) {
		served, _ := shopStyle(color)
		style := ask(t, check.Must(NewAssets()), assetsPath+served)
		wantHeader(t, style, http.StatusOK, map[string]string{"Content-Type": "text/css; charset=utf-8", "Cache-Control": forever})
		light, dark, _ := strings.Cut(style.Body.String(), "@media (prefers-color-scheme: dark)")
		canBeRead(t, map[string]string{"light": blocks["light"] + light, "dark": blocks["dark"] + dark})
	})
}

// canBeRead checks the contrasts of the colours in each scheme, of which a later one replaces an earlier one of the same name.
func canBeRead(t *testing.T, blocks map[string]string) {
	t.Helper()
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
			if got := contrast(front, back); got < least {
				t.Errorf("%s: %s has a contrast of %.2f, want %.1f", scheme, pair, got, least)
			}
		}
	}
}

func contrast(a, b string) float64 {
	high, low := luminance(a), luminance(b)
	return (max(high, low) + 0.05) / (min(high, low) + 0.05)
}

// luminance returns the relative luminance, as defined by WCAG.
func luminance(colour string) float64 {
	sum := 0.0
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		c := float64(check.Must(strconv.ParseUint(colour[1+2*i:3+2*i], 16, 8))) / 255
		if c <= 0.04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		sum += weight * c
	}
	return sum
}
