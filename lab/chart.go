package lab

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
)

// Horizontal positions are in percent, so that a narrow screen narrows the bars. Heights and the text's size are in pixels.
const (
	chartRight    = 78.0 // percent, leaves room for the figure right of the longest bar
	lineHeight    = 18   // pixels, of a line of text
	textBase      = 13   // pixels from the top of a line to the baseline of its text
	barHeight     = 14
	barGap        = 3
	rowGap        = 16
	axisHeight    = 26
	hillHeight    = 56   // pixels, of a latency distribution
	labelRoom     = 9.0  // percent on either side of the latency axis, for a label beside a mark
	thinnest      = 0.4  // percent, least width of a bar whose value is not 0
	hairline      = 0.15 // percent, gap between the bars of a distribution
	linearTicks   = 5    // at most, besides the tick at 0, so that labels do not overlap on a narrow screen
	logFromRatio  = 50   // a BarChart is logarithmic if its largest value is more than this many times its smallest
	stockRight    = 96.0 // percent, for a chart without figures right of its bars
	percentDigits = 100  // rounds percentages to two decimals
)

// chart is the data that the template draws. X and Width are in percent; Y, Height, From and To are in pixels.
type chart struct {
	Label  string // describes the chart to screen readers
	Height int
	Bars   []bar
	Lines  []line
	Texts  []text
}

type bar struct {
	X, Width  float64
	Y, Height int
	Class     string
	Title     string // the tooltip
}

type line struct {
	X        float64
	From, To int
	Class    string
}

type text struct {
	X     float64
	DX    int // pixels, added to X
	Y     int
	Class string // text-anchor is "start" unless the class contains "end" or "middle"
	Words string
}

// axis maps a value to its position across the chart.
type axis struct {
	low, high   float64 // values at the ends
	left, right float64 // percent
	log         bool
}

func (a axis) at(value float64) float64 {
	part := (value - a.low) / (a.high - a.low)
	if a.log {
		part = math.Log(value/a.low) / math.Log(a.high/a.low)
	}
	return toPercent(a.left + min(max(part, 0), 1)*(a.right-a.left))
}

func toPercent(x float64) float64 { return math.Round(x*percentDigits) / percentDigits }

// ticks returns round values on the axis. An axis that is not logarithmic must begin at 0.
func (a axis) ticks() (list []float64) {
	if a.log {
		for exponent := math.Ceil(math.Log10(a.low)); math.Pow(10, exponent) <= a.high; exponent++ {
			list = append(list, math.Pow(10, exponent))
		}
		return list
	}
	step := math.Pow(10, math.Floor(math.Log10(a.high)))
	for _, part := range []float64{0.2, 0.5, 1, 2} {
		if a.high/(step*part) <= linearTicks {
			step *= part
			break
		}
	}
	for n := 0.0; n*step <= a.high; n++ {
		list = append(list, n*step)
	}
	return list
}

// draw adds the axis below the height "bottom": a grid line and a label for each tick, and the unit. It sets the chart's height.
func (a axis) draw(c *chart, bottom int, unit string) {
	for _, value := range a.ticks() {
		x, class := a.at(value), "tick middle"
		if x < labelRoom/2 {
			class = "tick"
		}
		c.Lines = append(c.Lines, line{X: x, To: bottom, Class: "grid"})
		c.Texts = append(c.Texts, text{X: x, Y: bottom + textBase, Class: class, Words: tickLabel(value)})
	}
	c.Texts = append(c.Texts, text{X: a.left, Y: bottom + textBase + lineHeight, Class: "tick", Words: unit})
	c.Height = bottom + axisHeight + lineHeight
}

// bar adds a bar between two values and returns its width. If the bar would be empty, it adds none and returns 0.
func (c *chart) bar(a axis, from, to float64, y int, class, title string) (width float64) {
	if to > from {
		width = toPercent(max(a.at(to)-a.at(from), thinnest))
		c.Bars = append(c.Bars, bar{X: a.at(from), Width: width, Y: y, Height: barHeight, Class: class, Title: title})
	}
	return width
}

func tickLabel(value float64) string {
	if value >= 1000 {
		return strconv.FormatFloat(value/1000, 'g', 3, 64) + "k"
	}
	return strconv.FormatFloat(value, 'g', 3, 64)
}

// BarChart shows numbers as bars: a row for each name, and in the row a bar for each kind.
type BarChart struct {
	Label string // describes the chart to screen readers
	Unit  string
	Kinds []string // what the bars of a row show; one or two
	Rows  []BarRow
}

// BarRow is a row of a chart, with a number for each kind. A number of 0 has no bar.
type BarRow struct {
	Name   string
	Values []float64
}

func (b BarChart) draw() chart {
	c, classes := chart{Label: b.Label}, [...]string{"first", "second"}
	low, high := math.Inf(1), 0.0
	for _, r := range b.Rows {
		for _, value := range r.Values {
			if value > 0 {
				low, high = min(low, value), max(high, value)
			}
		}
	}
	if high == 0 {
		high = 1 // no value is above 0, and an axis needs a length
	}
	a, unit := axis{high: high, right: chartRight}, b.Unit
	if high/low > logFromRatio {
		// The axis begins at the power of ten below the least value, so that the bar of that value has a length.
		a.low, a.log, unit = math.Pow(10, math.Ceil(math.Log10(low))-1), true, unit+", on a logarithmic scale"
	}
	y := 0
	for _, r := range b.Rows {
		c.Texts = append(c.Texts, text{Y: y + textBase, Class: "name", Words: r.Name})
		y += lineHeight
		for i, value := range r.Values {
			width := c.bar(a, a.low, value, y, classes[i], fmt.Sprintf("%s: %s %s", r.Name, Figure(value), b.Kinds[i]))
			c.Texts = append(c.Texts, text{X: width, DX: 6, Y: y + barHeight - barGap, Class: "value", Words: Figure(value)})
			y += barHeight + barGap
		}
		y += rowGap - barGap
	}
	a.draw(&c, y-rowGap/2, unit)
	return c
}

// SVG returns the chart as a file of its own, for light and dark pages.
func (b BarChart) SVG() (template.HTML, error) {
	var out strings.Builder
	if err := page.ExecuteTemplate(&out, "file", b.draw()); err != nil {
		return "", fmt.Errorf("draw %s: %w", b.Label, err)
	}
	return template.HTML(out.String()), nil //nolint:gosec // the template escapes its texts
}

// throughputChart shows requests and orders a second as two bars for each strategy.
func throughputChart(results []*Result) chart {
	b := BarChart{
		Label: "Requests per second and persisted orders per second of each strategy; the table has the figures",
		Unit:  "per second", Kinds: []string{"requests/s", "persisted orders/s"},
	}
	for _, r := range results {
		b.Rows = append(b.Rows, BarRow{r.Strategy, []float64{r.RequestsPerSecond, r.PersistedPerSecond}})
	}
	return b.draw()
}

// latencyChart shows how long the attempts of each strategy took. The peaks of all distributions are equally high.
func latencyChart(results []*Result) chart {
	c := chart{Label: "Distribution of the latency of each strategy, with its median and 99th percentile; the table has the figures"}
	width := math.Pow(10, 1.0/bucketsPerDecade)
	low, high := math.Inf(1), 0.0
	for _, r := range results {
		for _, b := range r.Histogram {
			low, high = min(low, b.UpToMS/width), max(high, b.UpToMS)
		}
	}
	if high == 0 {
		low, high = 1, 10 // nothing was measured, and an axis needs a length
	}
	a := axis{low: low, high: high, left: labelRoom, right: 100 - labelRoom, log: true}
	y := 0
	for _, r := range results {
		c.Texts = append(c.Texts,
			text{Y: y + textBase, Class: "name", Words: r.Strategy},
			text{X: 100, Y: y + textBase, Class: "value end", Words: fmt.Sprintf("p50 %s ms, p99 %s ms", Figure(r.P50MS), Figure(r.P99MS))})
		y += lineHeight + barGap
		c.hill(a, y+lineHeight, width, r)
		y += lineHeight + hillHeight + rowGap
	}
	a.draw(&c, y-rowGap, "milliseconds, on a logarithmic scale")
	return c
}

// hill draws one distribution below the height "top". "width" is the ratio of the upper to the lower bound of a bucket.
func (c *chart) hill(a axis, top int, width float64, r *Result) {
	var tallest int64
	for _, b := range r.Histogram {
		tallest = max(tallest, b.Count)
	}
	for _, b := range r.Histogram {
		x, height := a.at(b.UpToMS/width), max(1, int(math.Round(hillHeight*float64(b.Count)/float64(tallest))))
		c.Bars = append(c.Bars, bar{
			X: x, Width: toPercent(max(a.at(b.UpToMS)-x-hairline, thinnest)), Y: top + hillHeight - height, Height: height, Class: "first",
			Title: fmt.Sprintf("%s: %s up to %s ms", r.Strategy, count(b.Count, "attempt"), Figure(b.UpToMS)),
		})
	}
	if tallest == 0 {
		return
	}
	// Since p50 is at most p99, a label left of p50 and a label right of p99 don't overlap.
	for _, m := range []struct {
		ms           float64
		dx           int
		class, words string
	}{{r.P50MS, -4, "tick end", "p50"}, {r.P99MS, 4, "tick", "p99"}} {
		x := a.at(m.ms)
		c.Lines = append(c.Lines, line{X: x, From: top - lineHeight + barGap, To: top + hillHeight, Class: "mark"})
		c.Texts = append(c.Texts, text{X: x, DX: m.dx, Y: top - barGap, Class: m.class, Words: m.words})
	}
}

// stockChart compares the units that were sold with the stock.
func stockChart(results []*Result, stock int) chart {
	c := chart{Label: fmt.Sprintf("Units sold by each strategy against the stock of %s; the table has the figures", grouped(stock))}
	most := int64(stock)
	for _, r := range results {
		most = max(most, r.Sold)
	}
	a := axis{high: float64(most), right: stockRight}
	limit := a.at(float64(stock))
	y := lineHeight
	for _, r := range results {
		words := grouped(r.Sold) + " sold"
		switch {
		case r.Oversold > 0:
			words += ", " + grouped(r.Oversold) + " too many"
		case r.Undersold > 0:
			words += ", " + grouped(r.Undersold) + " held back"
		}
		c.Texts = append(c.Texts,
			text{Y: y + textBase, Class: "name", Words: r.Strategy},
			text{X: stockRight, Y: y + textBase, Class: "value end", Words: words})
		y += lineHeight
		c.bar(a, 0, float64(min(r.Sold, int64(stock))), y, "first", r.Strategy+": "+words)
		c.bar(a, float64(stock), float64(r.Sold), y, "over", r.Strategy+": "+words)
		y += barHeight + rowGap
	}
	bottom := y - rowGap/2
	class := "value"
	if limit > chartRight/2 {
		class = "value end"
	}
	c.Texts = append(c.Texts, text{X: limit, Y: textBase - 2, Class: class, Words: "stock " + grouped(stock)})
	c.Lines = append(c.Lines, line{X: limit, From: lineHeight - barGap, To: bottom, Class: "limit"})
	a.draw(&c, bottom, "units")
	return c
}
