package bench

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// Chart is a line chart. Its horizontal axis is logarithmic, because the sizes grow by factors.
type Chart struct {
	Title, X, Y string
	// FromZero makes the vertical axis linear from 0; otherwise it is logarithmic.
	FromZero bool
	Series   []Series
}

// Series is one line.
type Series struct {
	Name   string
	Dashed bool // for controls
	Color  int  // index of the palette; a path and its control share one
	Points []XY
}

// XY is a point of a line; both coordinates are above 0.
type XY struct{ X, Y float64 }

// Positions in the drawing, in its own units.
const (
	chartWidth, chartHeight      = 830, 400
	plotLeft, plotRight          = 70, 560
	plotTop, plotBottom          = 44, 340
	labelGap                     = 16 // between the baselines of two labels
	tickGap, titleBase, axisBase = 18, 24, 384
	tickSteps                    = 5
)

// chartStyle is for light and dark pages. The colours also differ for readers who cannot tell red from green.
const chartStyle = `
text { font: 13px system-ui, sans-serif; fill: #1f2328; }
.title { font-weight: 600; font-size: 15px; }
.tick { fill: #59636e; font-size: 12px; }
.grid { stroke: #d1d9e0; stroke-width: 1; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.dashed { stroke-dasharray: 5 4; }
.background { fill: #ffffff; }
.c0 { stroke: #0969da; } .d0 { fill: #0969da; }
.c1 { stroke: #bc4c00; } .d1 { fill: #bc4c00; }
.c2 { stroke: #6639ba; } .d2 { fill: #6639ba; }
.c3 { stroke: #1b7c83; } .d3 { fill: #1b7c83; }
.c4 { stroke: #bf3989; } .d4 { fill: #bf3989; }
.c5 { stroke: #57606a; } .d5 { fill: #57606a; }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc; }
  .tick { fill: #9198a1; }
  .grid { stroke: #3d444d; }
  .background { fill: #0d1117; }
  .c0 { stroke: #4493f8; } .d0 { fill: #4493f8; }
  .c1 { stroke: #f0883e; } .d1 { fill: #f0883e; }
  .c2 { stroke: #ab7df8; } .d2 { fill: #ab7df8; }
  .c3 { stroke: #39c5cf; } .d3 { fill: #39c5cf; }
  .c4 { stroke: #f778ba; } .d4 { fill: #f778ba; }
  .c5 { stroke: #8b949e; } .d5 { fill: #8b949e; }
}
`

// palette is the number of colours.
const palette = 6

// scale maps a value to a coordinate in the drawing.
type scale struct {
	low, high, from, to float64
	log                 bool
}

func (s scale) at(v float64) float64 {
	part := (v - s.low) / (s.high - s.low)
	if s.log {
		part = math.Log(v/s.low) / math.Log(s.high/s.low)
	}
	return math.Round((s.from+part*(s.to-s.from))*10) / 10
}

// ticks returns round values on the scale. On a logarithmic scale they are powers of ten; otherwise they are multiples,
// from 0, of 1, 2 or 5 times a power of ten.
func (s scale) ticks() (list []float64) {
	if s.log {
		for v := math.Pow(10, math.Ceil(math.Log10(s.low)-1e-9)); v <= s.high*(1+1e-9); v *= 10 {
			list = append(list, v)
		}
		return list
	}
	step := math.Pow(10, math.Floor(math.Log10(s.high)))
	for _, part := range []float64{0.1, 0.2, 0.5} {
		if s.high/(step*part) <= tickSteps {
			step *= part
			break
		}
	}
	for v := 0.0; v <= s.high; v += step {
		list = append(list, v)
	}
	return list
}

// extent returns the smallest and the largest value of all lines. If both are the same value, it returns a range around
// it.
func (c *Chart) extent(of func(XY) float64) (low, high float64) {
	low, high = math.Inf(1), 0
	for _, s := range c.Series {
		for _, p := range s.Points {
			low, high = min(low, of(p)), max(high, of(p))
		}
	}
	switch {
	case high == 0:
		return 1, 10
	case low == high:
		return low / 2, high * 2
	}
	return low, high
}

// svg draws the chart.
func (c *Chart) svg() string {
	x := scale{from: plotLeft, to: plotRight, log: true}
	x.low, x.high = c.extent(func(p XY) float64 { return p.X })
	y := scale{from: plotBottom, to: plotTop, log: !c.FromZero}
	y.low, y.high = c.extent(func(p XY) float64 { return p.Y })
	if c.FromZero {
		y.low, y.high = 0, y.high*1.1
	} else {
		y.low, y.high = math.Pow(10, math.Floor(math.Log10(y.low))), math.Pow(10, math.Ceil(math.Log10(y.high)+1e-9))
	}

	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="%s">`+"\n<style>%s</style>\n",
		chartWidth, chartHeight, html.EscapeString(c.Title), chartStyle)
	fmt.Fprintf(&b, `<rect class="background" width="%d" height="%d"/>`+"\n", chartWidth, chartHeight)
	label(&b, "title", plotLeft, titleBase, "start", c.Title)
	for _, v := range y.ticks() {
		fmt.Fprintf(&b, `<line class="grid" x1="%d" x2="%d" y1="%g" y2="%g"/>`+"\n", plotLeft, plotRight, y.at(v), y.at(v))
		label(&b, "tick", plotLeft-8, y.at(v)+4, "end", axisLabel(v))
	}
	for _, v := range c.sizes() {
		label(&b, "tick", x.at(v), plotBottom+tickGap, "middle", axisLabel(v))
	}
	label(&b, "tick", (plotLeft+plotRight)/2, axisBase, "middle", c.X)
	fmt.Fprintf(&b, `<text class="tick" text-anchor="middle" transform="translate(16 %d) rotate(-90)">%s</text>`+"\n",
		(plotTop+plotBottom)/2, html.EscapeString(c.Y))

	for i, s := range c.Series {
		c.line(&b, s, x, y)
		label(&b, "", plotRight+34, plotTop+labelGap*float64(i)*1.4+4, "start", s.Name)
		fmt.Fprintf(&b, `<line class="%s" x1="%d" x2="%d" y1="%g" y2="%g"/>`+"\n", s.class(), plotRight+8, plotRight+28,
			plotTop+labelGap*float64(i)*1.4, plotTop+labelGap*float64(i)*1.4)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func (s Series) class() string {
	class := fmt.Sprintf("line c%d", s.Color%palette)
	if s.Dashed {
		class += " dashed"
	}
	return class
}

func (c *Chart) line(b *strings.Builder, s Series, x, y scale) {
	places := make([]string, len(s.Points))
	for i, p := range s.Points {
		places[i] = fmt.Sprintf("%g,%g", x.at(p.X), y.at(p.Y))
	}
	fmt.Fprintf(b, `<polyline class="%s" points="%s"/>`+"\n", s.class(), strings.Join(places, " "))
	for _, p := range s.Points {
		fmt.Fprintf(b, `<circle class="d%d" r="3.5" cx="%g" cy="%g"><title>%s</title></circle>`+"\n",
			s.Color%palette, x.at(p.X), y.at(p.Y), html.EscapeString(fmt.Sprintf("%s: %s at %s", s.Name, figure(p.Y), figure(p.X))))
	}
}

// sizes returns the X values of all points, each once.
func (c *Chart) sizes() (list []float64) {
	seen := map[float64]bool{}
	for _, s := range c.Series {
		for _, p := range s.Points {
			if !seen[p.X] {
				seen[p.X] = true
				list = append(list, p.X)
			}
		}
	}
	return list
}

func label(b *strings.Builder, class string, x, y float64, anchor, words string) {
	fmt.Fprintf(b, `<text class="%s" x="%g" y="%g" text-anchor="%s">%s</text>`+"\n", class, x, y, anchor, html.EscapeString(words))
}

func axisLabel(v float64) string {
	switch {
	case v >= 1e6:
		return figureShort(v/1e6) + "M"
	case v >= 1e3:
		return figureShort(v/1e3) + "k"
	}
	return figureShort(v)
}

func figureShort(v float64) string { return fmt.Sprintf("%.4g", v) }

// charts draws the curves of a run. It returns the drawings and their titles by file name.
func charts(results []*Result) (drawings map[string]string, titles map[string]string) {
	connections := Chart{Title: "Throughput against connections", X: "open connections", Y: "requests/s", FromZero: true}
	latency := Chart{Title: "99th percentile against connections", X: "open connections", Y: "ms"}
	growth := Chart{Title: "Cost of an attempt, against the first point", X: "buyers or live sales", Y: "cost / cost at the first point", FromZero: true}
	for _, r := range results {
		if len(r.Points) == 0 {
			continue
		}
		name := strings.TrimPrefix(r.Name, "growth: ")
		if what, ok := strings.CutPrefix(name, "connections, "); ok {
			color := len(connections.Series) / 2
			for _, side := range []struct {
				name    string
				dashed  bool
				samples func(Point) []Sample
			}{
				{what, false, func(p Point) []Sample { return p.Path }},
				{"control of it", true, func(p Point) []Sample { return p.Control }},
			} {
				rate, p99 := Series{Name: side.name, Dashed: side.dashed, Color: color}, Series{Name: side.name, Dashed: side.dashed, Color: color}
				for _, p := range r.Points {
					rate.add(p.Size, spread(rates(side.samples(p))).Median)
					p99.add(p.Size, spread(p99s(side.samples(p))).Median)
				}
				connections.Series, latency.Series = append(connections.Series, rate), append(latency.Series, p99)
			}
			continue
		}
		cost := Series{Name: name, Color: len(growth.Series)}
		first := ratio(r.Points[0].Path, r.Points[0].Control)
		for _, p := range r.Points {
			if share := ratio(p.Path, p.Control); share > 0 {
				cost.add(p.Size, first/share)
			}
		}
		growth.Series = append(growth.Series, cost)
	}
	drawings, titles = map[string]string{}, map[string]string{}
	for name, c := range map[string]*Chart{
		"performance-connections.svg": &connections, "performance-latency.svg": &latency, "performance-growth.svg": &growth,
	} {
		if len(c.Series) > 0 {
			drawings[name], titles[name] = c.svg(), c.Title
		}
	}
	return drawings, titles
}

// add omits a point with a value of 0: nothing was measured, and a logarithmic axis can't show it.
func (s *Series) add(x int, y float64) {
	if x > 0 && y > 0 {
		s.Points = append(s.Points, XY{float64(x), y})
	}
}
