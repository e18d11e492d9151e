// Package bench measures the engine against a bare Gin server, on one machine and in turns (`make bench`). The files
// without a build tag judge and write; the tests with the tag bench start servers and load them.
package bench

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"flashsale/lab"
)

// mostGrowth is how far the cost may rise above the first value if a curve is to count as flat: 0.1 is 10%.
const mostGrowth = 0.1

// hotSales is what rows with buyers for many sales are called, and hotGrowth is how far the cost may rise in them: each
// point is at least 0.85 of one sale.
const (
	hotSales  = "live sales all hot"
	hotGrowth = 1/0.85 - 1
)

// Sample is a load tool's result for one round.
type Sample struct {
	RequestsPerSecond float64 `json:"requests_per_second"`
	P50MS             float64 `json:"p50_ms"`
	P99MS             float64 `json:"p99_ms"`
	Requests          int64   `json:"requests"`
	Refused           int64   `json:"refused"`             // answers that are neither 2xx nor 3xx
	Errors            int64   `json:"errors"`              // connections that failed, and time-outs
	BytesRead         int64   `json:"bytes_read"`          // 0: not counted
	EngineMicros      float64 `json:"engine_us,omitempty"` // of the engine's CPU for a request; 0: not measured
}

func rate(s Sample) float64 { return s.RequestsPerSecond }
func p50(s Sample) float64  { return s.P50MS }
func p99(s Sample) float64  { return s.P99MS }
func work(s Sample) float64 { return s.EngineMicros }

// collect returns one figure of each sample.
func collect(samples []Sample, figure func(Sample) float64) (list []float64) {
	for _, s := range samples {
		list = append(list, figure(s))
	}
	return list
}

// spread summarizes the values of several rounds. The zero value means that there are none.
type spread struct{ median, least, most float64 }

func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{}
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return spread{(sorted[(n-1)/2] + sorted[n/2]) / 2, sorted[0], sorted[n-1]}
}

func (s spread) String() string {
	if s == (spread{}) {
		return "-"
	}
	return fmt.Sprintf("%s (%s to %s)", lab.Figure(s.median), lab.Figure(s.least), lab.Figure(s.most))
}

// ratios divides round by round, so that a machine that gets slower between rounds slows both sides of a ratio. It
// omits rounds that only one side has, and rounds whose divisor is 0.
func ratios(path, control []float64) (list []float64) {
	for i := range min(len(path), len(control)) {
		if control[i] > 0 {
			list = append(list, path[i]/control[i])
		}
	}
	return list
}

// Result is a row of the report, or one size of a row.
type Result struct {
	Name     string `json:"name"`
	Size     int    `json:"size,omitempty"`
	Goal     string `json:"goal"` // empty: none
	Measured string `json:"measured"`
	Met      bool   `json:"met"`
	// Void is the reason why the figures don't count: the books were wrong, or answers had an unexpected status.
	Void    string   `json:"void,omitempty"`
	Control []Sample `json:"control,omitempty"`
	Path    []Sample `json:"path,omitempty"`
	// Values are the results of the rounds, in Unit, if the row doesn't measure requests.
	Values []float64 `json:"values,omitempty"`
	Unit   string    `json:"unit,omitempty"`
	Points []*Result `json:"points,omitempty"` // the sizes of a growing row
	Run    string    `json:"run,omitempty"`    // when and how the row was measured, if not by the report's run
	Notes  []string  `json:"notes,omitempty"`  // costs, books and circumstances, which the document leaves out
}

// void marks the result as void and keeps the first reason.
func (r *Result) void(format string, args ...any) {
	if r.Void == "" {
		r.Void = fmt.Sprintf(format, args...)
	}
}

func (r *Result) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// ratio returns the median of the ratios of path and control.
func (r *Result) ratio() float64 {
	return spreadOf(ratios(collect(r.Path, rate), collect(r.Control, rate))).median
}

// least and most compare a figure with its bound; 0: no bound. A goal of several figures is met if all are.
func (r *Result) least(measured, bound float64, unit string) {
	r.judge(measured >= bound, measured, ">=", bound, unit)
}

func (r *Result) most(measured, bound float64, unit string) {
	if bound > 0 {
		r.judge(measured <= bound, measured, "<=", bound, unit)
	}
}

func (r *Result) judge(within bool, measured float64, sign string, bound float64, unit string) {
	add := func(list *string, text string) { *list = strings.TrimPrefix(*list+", "+strings.TrimSpace(text), ", ") }
	add(&r.Measured, lab.Figure(measured)+" "+unit)
	if bound > 0 {
		r.Met = within && (r.Goal == "" || r.Met)
		add(&r.Goal, sign+" "+lab.Figure(bound)+" "+unit)
	}
}

// betweenPoints stands between the figures of a growing row, which has one for each point.
const betweenPoints = " / "

// judgeGrowth compares the cost of a request at each point with the cost at the first point. A cost is divided by the
// control's cost at the same point, so what the load tool and the kernel need for more buyers or connections is left
// out. If the control of each point is an engine like that of the first point, the first point is not measured, and base is
// its ratio, 1. Otherwise base is 0.
func (r *Result) judgeGrowth(mostRise, base float64) {
	worst, costs := 0.0, make([]string, len(r.Points))
	for i, p := range r.Points {
		cost := cmp.Or(base, r.Points[0].ratio()) / p.ratio()
		if !(cost > 0) || math.IsInf(cost, 1) { // a point without a rate
			worst, costs[i] = math.Inf(1), "-"
			continue
		}
		worst, costs[i] = max(worst, cost), lab.Figure(cost)
		p.Values, p.Unit = []float64{cost}, "x the first point's cost"
	}
	r.Measured = "x " + strings.Join(costs, betweenPoints)
	r.Goal, r.Met = fmt.Sprintf("cost rises <= %.0f%%", mostRise*100), worst <= 1+mostRise
}

func (r *Result) verdict() string {
	switch {
	case r.Void != "":
		return "VOID: " + r.Void
	case r.Goal == "":
		return "no goal"
	case r.Met:
		return "met"
	}
	return "not met"
}

const dateAndTime = "2 January 2006, 15:04 UTC"

// Report is a whole run.
type Report struct {
	StartedAt   time.Time         `json:"started_at"`
	TookSeconds int               `json:"took_seconds"`
	Machine     lab.Machine       `json:"machine"`
	Settings    map[string]string `json:"settings"` // versions and commands, too
	Results     []*Result         `json:"results"`
}

var (
	columns       = []string{"row", "goal", "measured", "control/s", "path/s", "p50 / p99 ms", "verdict"}
	growthColumns = []string{"row", "goal", "at", "cost", "of the control", "path/s", "p99 ms", "verdict"}
)

// cells returns the result's line of the table, in the order of the columns.
func (r *Result) cells() []string {
	latency, path := "-", spreadOf(collect(r.Path, rate)).String()
	if len(r.Path) > 0 {
		latency = lab.Figure(spreadOf(collect(r.Path, p50)).median) + " / " + lab.Figure(spreadOf(collect(r.Path, p99)).median)
	} else if len(r.Values) > 0 {
		path = spreadOf(r.Values).String() + " " + r.Unit
	}
	return []string{r.Name, r.Goal, r.Measured, spreadOf(collect(r.Control, rate)).String(), path, latency, r.verdict()}
}

// growthCells returns a growing row's line of the table, in the order of the columns.
func (r *Result) growthCells() []string {
	points := func(text func(p *Result) string) string {
		list := make([]string, len(r.Points))
		for i, p := range r.Points {
			list[i] = text(p)
		}
		return strings.Join(list, betweenPoints)
	}
	median := func(of func(Sample) float64) string {
		return points(func(p *Result) string { return lab.Figure(spreadOf(collect(p.Path, of)).median) })
	}
	sizes := points(func(p *Result) string { return strings.TrimPrefix(p.Name, r.Name+", at ") })
	ratios := points(func(p *Result) string { return lab.Figure(p.ratio()) })
	return []string{r.Name, r.Goal, sizes, r.Measured, ratios, median(rate), median(p99), r.verdict()}
}

// replace puts the results of a later run in place of those of the same rows, and says when and how they were measured.
func (r *Report) replace(later *Report) {
	for _, result := range later.Results {
		result.Run = fmt.Sprintf("%s, on %s, with %s; %s",
			later.StartedAt.UTC().Format(dateAndTime), later.Machine, later.Settings["Rounds"], later.Settings["Versions"])
		at := slices.IndexFunc(r.Results, func(old *Result) bool { return old.Name == result.Name })
		if at < 0 {
			r.Results = append(r.Results, result)
			continue
		}
		r.Results[at] = result
	}
}

// notes returns the notes of all rows and their points, which a run prints.
func (r *Report) notes() string {
	var b strings.Builder
	for _, result := range r.Results {
		for _, line := range append([]*Result{result}, result.Points...) {
			for _, note := range line.Notes {
				fmt.Fprintf(&b, "%s: %s\n", line.Name, note)
			}
		}
	}
	return b.String()
}

// markdown returns the measured part of docs/performance.md, with the charts by file name.
func (r *Report) markdown(charts map[string]lab.BarChart) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Measured by `make bench` on %s, in %d minutes. Raw rounds and notes: [performance.json](performance.json).\n\n",
		r.StartedAt.UTC().Format(dateAndTime), (r.TookSeconds+59)/60)
	fmt.Fprintf(&b, "- Machine: %s; load, control, engine and stores share it.\n", r.Machine)
	for _, name := range slices.Sorted(maps.Keys(r.Settings)) {
		fmt.Fprintf(&b, "- %s: %s\n", name, r.Settings[name])
	}
	lines, growing, runs := [][]string{columns}, [][]string{growthColumns}, map[string][]string{}
	for _, result := range r.Results {
		if len(result.Points) > 0 {
			growing = append(growing, result.growthCells())
		} else {
			lines = append(lines, result.cells())
		}
		if result.Run != "" {
			runs[result.Run] = append(runs[result.Run], result.Name)
		}
	}
	b.WriteString("\nRates are the median of the rounds, with the least and the most; a ratio is that of the rounds' ratios.\n\n")
	writeTable(&b, lines)
	b.WriteString("\nA growing row has one figure for each size. Its cost is the control's rate divided by the row's, compared with the first\n" +
		"size, or with one sale if the control is an engine with one sale.\n\n")
	writeTable(&b, growing)
	for i, run := range slices.Sorted(maps.Keys(runs)) {
		if i == 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "- Measured by a run of their own on %s: %s.\n", run, strings.Join(runs[run], "; "))
	}
	for _, name := range slices.Sorted(maps.Keys(charts)) {
		fmt.Fprintf(&b, "\n![%s](%s)\n", charts[name].Label, name)
	}
	return b.String()
}

// writeTable writes a table; its first line is the head.
func writeTable(b *strings.Builder, lines [][]string) {
	for i, cells := range lines {
		fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
		if i == 0 {
			fmt.Fprintf(b, "|%s\n", strings.Repeat("---|", len(cells)))
		}
	}
}

// charts returns the charts of the growing rows, by file name.
func (r *Report) charts() map[string]lab.BarChart {
	both := []string{"path", "control"}
	rates := lab.BarChart{Label: "Throughput against connections: path, then control", Unit: "requests per second", Kinds: both}
	latencies := lab.BarChart{Label: "99th percentile against connections: path, then control", Unit: "ms", Kinds: both}
	sales := lab.BarChart{
		Label: "Throughput of many hot sales, then of one in turns with them", Unit: "requests per second", Kinds: []string{"many", "one"},
	}
	costs := lab.BarChart{Label: "Cost of an attempt against the first point", Unit: "times", Kinds: []string{"times"}}
	for _, result := range r.Results {
		for _, p := range result.Points {
			median := func(of func(Sample) float64) []float64 {
				return []float64{spreadOf(collect(p.Path, of)).median, spreadOf(collect(p.Control, of)).median}
			}
			switch {
			case strings.HasPrefix(p.Name, "growth: connections"):
				rates.Rows = append(rates.Rows, lab.BarRow{Name: p.Name, Values: median(rate)})
				latencies.Rows = append(latencies.Rows, lab.BarRow{Name: p.Name, Values: median(p99)})
			case strings.HasPrefix(p.Name, "growth: "+hotSales):
				sales.Rows = append(sales.Rows, lab.BarRow{Name: p.Name, Values: median(rate)})
			default:
				costs.Rows = append(costs.Rows, lab.BarRow{Name: p.Name, Values: p.Values})
			}
		}
	}
	return map[string]lab.BarChart{
		"performance-connections.svg": rates, "performance-latency.svg": latencies, "performance-growth.svg": costs,
		"performance-sales.svg": sales,
	}
}

const beginMark, endMark = "<!-- bench:begin -->\n", "<!-- bench:end -->\n"

// write writes the report to a folder: raw figures, charts, and the part of the document between the marks.
func (r *Report) write(folder string) error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	document, err := fs.ReadFile(os.DirFS(folder), "performance.md")
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	before, rest, begins := strings.Cut(string(document), beginMark)
	_, after, ends := strings.Cut(rest, endMark)
	if !begins || !ends {
		return fmt.Errorf("performance.md: want %q and below it %q", beginMark, endMark)
	}
	charts := r.charts()
	files := map[string]string{
		"performance.json": string(raw) + "\n",
		"performance.md":   before + beginMark + "\n" + r.markdown(charts) + "\n" + endMark + after,
	}
	for name, chart := range charts {
		svg, err := chart.SVG()
		if err != nil {
			return err
		}
		files[name] = string(svg)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
	}
	return nil
}
