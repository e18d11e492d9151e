package web

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// readable is the least contrast of text of any size with what is behind it (WCAG 2.2, 1.4.3), visible that of the
// edges of fields and of the bar (1.4.11).
const (
	readable = 4.5
	visible  = 3
)

// Every pair of colours that stands together can be told apart, in light and in dark.
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
		for _, pair := range []struct {
			front, back string
			least       float64
		}{
			{"ink", "ground", readable},
			{"ink", "paper", readable},
			{"quiet", "ground", readable},
			{"quiet", "paper", readable},
			{"quiet", "track", readable},
			{"accent", "ground", readable},
			{"accent", "paper", readable},
			{"accent", "accent-soft", readable},
			{"accent", "warn-soft", readable},
			{"on-accent", "accent", readable},
			{"on-accent", "accent-press", readable},
			{"on-rest", "rest", readable},
			{"ink", "accent-soft", readable},
			{"ink", "warn-soft", readable},
			{"warn", "warn-soft", readable},
			{"warn", "paper", readable},
			{"stop", "paper", readable},
			{"stop", "accent-soft", readable},
			{"accent", "track", visible},
			{"stop", "stop-soft", readable},
			{"quiet", "paper", visible},
			{"series-1", "paper", visible},
			{"series-2", "paper", visible},
			{"series-3", "paper", visible},
		} {
			front, back := colours[pair.front], colours[pair.back]
			if front == "" || back == "" {
				t.Fatalf("%s: %s is %q, %s is %q", scheme, pair.front, front, pair.back, back)
			}
			if got := contrast(t, front, back); got < pair.least {
				t.Errorf("%s: %s on %s has a contrast of %.2f, want %.1f", scheme, pair.front, pair.back, got, pair.least)
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

// luminance is that of WCAG.
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
