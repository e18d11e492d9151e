package model

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Scheme has the colours of links and buttons, of texts on buttons, of pressed buttons, and of soft backgrounds.
type Scheme struct{ Accent, OnAccent, Press, Soft string }

// Backgrounds of links in web/assets/base.css, --paper first, then --ground and --warn-soft.
var (
	lightGrounds = []rgb{{255, 255, 255}, {0xf6, 0xf5, 0xf1}, {0xfb, 0xf0, 0xda}}
	darkGrounds  = []rgb{{0x1b, 0x1e, 0x21}, {0x13, 0x15, 0x17}, {0x33, 0x29, 0x0f}}
)

// Schemes returns the colours of light and of dark pages for a shop's colour. The colour is darkened on
// light pages, and lightened on dark ones, as far as texts need it for a contrast of 4.5:1 (WCAG 2.2, level AA). ok is false if
// the colour is not # with six hexadecimal digits.
func Schemes(color string) (light, dark Scheme, ok bool) {
	digits, found := strings.CutPrefix(color, "#")
	n, err := strconv.ParseUint(digits, 16, 32)
	if err != nil || !found || len(digits) != 6 {
		return light, dark, false
	}
	of := rgb{float64(n >> 16), float64(n >> 8 & 255), float64(n & 255)}
	return of.scheme(rgb{}, lightGrounds[0], lightGrounds), of.scheme(rgb{255, 255, 255}, darkGrounds[1], darkGrounds), true
}

// rgb is a colour by its red, green and blue, whole numbers from 0 to 255.
type rgb [3]float64

// scheme mixes the colour with the colour "towards" until it can be read on the grounds. The colour "on", one of the grounds, can
// then be read on it.
func (c rgb) scheme(towards, on rgb, grounds []rgb) Scheme {
	for share := 0.0; ; share += 0.01 { // black and white can be read on all grounds, so this ends
		accent := c.mixed(towards, share)
		soft := grounds[0].mixed(accent, 0.1)
		if !slices.ContainsFunc(append(grounds[:len(grounds):len(grounds)], soft), func(g rgb) bool { return accent.contrast(g) < 4.5 }) {
			return Scheme{accent.String(), on.String(), accent.mixed(towards, 0.2).String(), soft.String()}
		}
	}
}

func (c rgb) mixed(with rgb, share float64) rgb {
	for i := range c {
		c[i] = math.Round(c[i] + (with[i]-c[i])*share)
	}
	return c
}

// contrast returns the contrast of two colours, from 1 to 21, as WCAG defines it.
func (c rgb) contrast(with rgb) float64 {
	a, b := c.luminance(), with.luminance()
	return (max(a, b) + 0.05) / (min(a, b) + 0.05)
}

func (c rgb) luminance() (sum float64) {
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		linear := math.Pow((c[i]/255+0.055)/1.055, 2.4)
		if c[i]/255 <= 0.04045 {
			linear = c[i] / 255 / 12.92
		}
		sum += weight * linear
	}
	return sum
}

// String returns the colour as CSS writes it.
func (c rgb) String() string { return fmt.Sprintf("#%02x%02x%02x", int(c[0]), int(c[1]), int(c[2])) }
