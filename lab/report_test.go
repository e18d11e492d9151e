package lab

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// sample returns a report of a strategy that oversells and an exact one.
func sample(t *testing.T) *Report {
	t.Helper()
	p := model.LabPlan{Strategies: []string{"naive", "redis"}, Buyers: 20, Stock: 10, Concurrency: 20, Instances: 2}
	s := Setting{
		Machine: Machine{OS: "linux", Arch: "amd64", CPU: "Some CPU", Cores: 2, MemoryBytes: 3 << 29, Go: "go1.26"},
		Stores:  Stores{Database: "SQLite 3", Redis: "in this process"},
		Lessons: map[string]model.Lesson{"naive": {How: "reads and writes", Breaks: "as soon as two come at once."}},
		Command: "flashsale lab", Version: "v1", Options: map[string]string{"--db-max-conns": "32"},
	}
	return check.Must(Run(t.Context(), fakeBench{"naive": naively(10, 20), "redis": exactly(10)}, p, s, time.Now, silent))
}

func written(write func(io.Writer) error) string {
	var b strings.Builder
	check.Done(write(&b))
	return b.String()
}

func asJSON(r *Report) string { return written(func(w io.Writer) error { return WriteJSON(w, r) }) }

// names collects the names of a JSON object with those of the objects in it, joined by points. It looks into the first
// element of a list, and not into the values of options and refused, which have arbitrary names.
func names(t *testing.T, prefix string, object any, to map[string]bool) {
	t.Helper()
	if list, ok := object.([]any); ok && len(list) > 0 {
		object = list[0]
	}
	fields, _ := object.(map[string]any)
	for name, value := range fields {
		if value == nil {
			t.Errorf("%s%s is null", prefix, name)
		}
		to[prefix+name] = true
		if name != "options" && name != "refused" {
			names(t, prefix+name+".", value, to)
		}
	}
}

func TestJSONHasTheNamesOfTheContract(t *testing.T) {
	var all map[string]any
	check.Done(json.Unmarshal([]byte(asJSON(sample(t))), &all))
	got, want := map[string]bool{}, map[string]bool{}
	names(t, "", all, got)
	for _, part := range []string{
		"machine stores buyers stock concurrency started_at strategies instances killed seed command version options",
		"interrupted machine.os machine.arch machine.cpu machine.cores machine.memory_bytes machine.go stores.database stores.redis",
		"strategies.strategy strategies.requests strategies.requests_per_second strategies.p50_ms strategies.p99_ms strategies.sold",
		"strategies.oversold strategies.undersold strategies.persisted_per_second strategies.retries strategies.errors strategies.lost",
		"strategies.left strategies.seconds strategies.accepted strategies.refused strategies.error_samples strategies.histogram",
		"strategies.killed strategies.verdict strategies.explanation strategies.lesson",
		"strategies.lesson.how strategies.lesson.right strategies.lesson.breaks strategies.lesson.costs",
		"strategies.histogram.up_to_ms strategies.histogram.count",
	} {
		for _, name := range strings.Fields(part) {
			want[name] = true
		}
	}
	check.Same(t, "names", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	if at, _ := all["started_at"].(string); !strings.HasSuffix(at, "Z") {
		t.Errorf("started_at is %q, want UTC", at)
	}
}

func TestTable(t *testing.T) {
	report := sample(t)
	text := written(report.WriteTable)
	lines := strings.Split(strings.TrimSpace(text), "\n")
	check.Same(t, "first line", lines[0],
		"stock 10, 20 buyers, 20 at once, 2 instances; SQLite 3; in this process")
	check.Same(t, "columns", strings.Join(strings.Fields(lines[2]), " "),
		"strategy requests/s p50 ms p99 ms sold oversold undersold persisted/s retries errors verdict")
	for i, want := range map[int][2]string{3: {"naive", "oversold"}, 4: {"redis", "exact"}} {
		fields := strings.Fields(lines[i])
		if len(fields) != 11 || fields[0] != want[0] || fields[10] != want[1] || len(lines[i]) != len(lines[2]) {
			t.Errorf("row %q, want 11 aligned columns from %s to %s", lines[i], want[0], want[1])
		}
	}
	check.Same(t, "last line", lines[len(lines)-1], "naive: 20 units sold, 10 more than there were. "+
		"The stock row still offers 9 units, not 0. When it breaks: as soon as two come at once.")
	check.Same(t, "a complete report says that it was interrupted", strings.Contains(text, "interrupted"), false)
	report.Interrupted, report.Killed = true, true
	for _, want := range []string{"interrupted: this report is partial", "the last of which dies"} {
		if text := written(report.WriteTable); !strings.Contains(text, want) {
			t.Errorf("the table does not say %q: %s", want, text)
		}
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errBroken }

func TestWritersReturnErrors(t *testing.T) {
	report := sample(t)
	asJSON := func(w io.Writer) error { return WriteJSON(w, report) }
	for name, write := range map[string]func(io.Writer) error{"table": report.WriteTable, "JSON": asJSON, "HTML": report.WriteHTML} {
		check.Error(t, name, write(fullDisk{}), errBroken)
	}
}

// element is an element of a page, with its attributes.
type element struct {
	name  string
	attrs map[string]string
}

// parsed parses a page, whose elements must all be closed, and returns the elements and all text.
func parsed(t *testing.T, page string) (elements []element, words string) {
	t.Helper()
	decoder := xml.NewDecoder(strings.NewReader(page))
	decoder.Strict, decoder.AutoClose, decoder.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	depth := 0
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			check.Same(t, "elements that are not closed", depth, 0)
			return elements, words
		}
		check.Done(err)
		switch token := token.(type) {
		case xml.StartElement:
			depth++
			e := element{name: token.Name.Local, attrs: map[string]string{}}
			for _, a := range token.Attr {
				e.attrs[a.Name.Local] = a.Value
			}
			elements = append(elements, e)
		case xml.EndElement:
			depth--
		case xml.CharData:
			words += string(token)
		}
	}
}

func TestPage(t *testing.T) {
	report := sample(t)
	elements, words := parsed(t, written(report.WriteHTML))
	seen := map[string]int{}
	for _, e := range elements {
		seen[e.name]++
		for name, value := range e.attrs {
			if slices.Contains([]string{"src", "href", "srcset", "data", "action", "style"}, name) || strings.HasPrefix(name, "on") {
				t.Errorf("<%s> has %s=%q; the page may load nothing", e.name, name, value)
			}
		}
		switch {
		case e.name == "svg" && (e.attrs["role"] != "img" || e.attrs["aria-label"] == ""):
			t.Errorf("a chart has no accessible name: %v", e.attrs)
		case e.name == "html" && e.attrs["lang"] != "en":
			t.Errorf("lang is %q, want en", e.attrs["lang"])
		}
	}
	for name, want := range map[string]int{
		"svg": 3, "article": 2, "h1": 1, "script": 0, "link": 0, "img": 0, "iframe": 0, "object": 0, "form": 0, "base": 0,
	} {
		check.Same(t, name, seen[name], want)
	}
	check.Same(t, "references to the outside", regexp.MustCompile(`url\(|@import|://`).FindString(words), "")
	for _, want := range []string{
		"1 of 2 strategies sold exactly; naive oversold by 10.", "prefers-color-scheme: dark", "reads and writes",
		"Some CPU", "1.5 GiB", "--db-max-conns", "10 too many", "stock 10", "per second", "sold_out",
	} {
		if !strings.Contains(words, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	report.Interrupted = true
	partial := strings.Contains(written(report.WriteHTML), "this report is partial")
	check.Same(t, "the page of an interrupted run says so", partial, true)
}

func TestPageEscapesTexts(t *testing.T) {
	report := sample(t)
	const hostile = `</title></svg><script>alert("1")</script>`
	r := report.Strategies[0]
	r.Strategy, r.Explanation, r.Verdict = hostile, hostile, hostile
	r.Lesson = model.Lesson{How: hostile, Right: hostile, Breaks: hostile, Costs: hostile}
	r.ErrorSamples, r.Refused = []ErrorSample{{Text: hostile, Count: 1}}, map[model.Verdict]int{hostile: 1}
	report.Command, report.Version, report.Options = hostile, hostile, map[string]string{hostile: hostile}
	report.Stores, report.Machine.CPU = Stores{Database: hostile, Redis: hostile}, hostile
	elements, words := parsed(t, written(report.WriteHTML))
	isScript := func(e element) bool { return e.name == "script" }
	check.Same(t, "a text became a script", slices.ContainsFunc(elements, isScript), false)
	check.Same(t, "the text is shown as it is", strings.Contains(words, hostile), true)
}

func TestPageWithoutAStrategy(t *testing.T) {
	report := &Report{Stock: 10}
	_, words := parsed(t, written(report.WriteHTML))
	check.Same(t, "the page says that it is empty", strings.Contains(words, "No strategy had its turn."), true)
}

func TestChartsStayWithinTheirFrame(t *testing.T) {
	result := func(rate, persisted float64, sold, over int64, buckets ...Bucket) *Result {
		return &Result{Strategy: "s", RequestsPerSecond: rate, PersistedPerSecond: persisted, Sold: sold, Oversold: over, Histogram: buckets, P50MS: 1, P99MS: 1000}
	}
	type test struct {
		results []*Result
		unit    string
	}
	check.Each(t, map[string]test{
		"nothing measured": {[]*Result{result(0, 0, 0, 0)}, "per second"},
		"one rate":         {[]*Result{result(7, 7, 1, 0, Bucket{1, 1})}, "per second"},
		"close rates":      {[]*Result{result(100, 50, 10, 0, Bucket{1, 5}), result(90, 2, 10, 0, Bucket{1, 3})}, "per second"},
		"far rates": {
			[]*Result{result(1e6, 1, 900, 890, Bucket{0.001, 5}, Bucket{600000, 1}), result(10, 0, 0, 0)},
			"per second, on a logarithmic scale",
		},
	}, func(t *testing.T, tc test) {
		for name, c := range map[string]chart{
			"throughput": throughputChart(tc.results), "latency": latencyChart(tc.results), "stock": stockChart(tc.results, 10),
		} {
			within := func(x float64, y int) bool { return x >= 0 && x <= 100 && y >= 0 && y <= c.Height }
			for _, b := range c.Bars {
				inside := within(b.X, b.Y) && within(b.X+b.Width, b.Y+b.Height) && b.Width > 0 && b.Height > 0
				check.Same(t, fmt.Sprintf("%s: %+v is within the frame", name, b), inside, true)
			}
			for _, l := range c.Lines {
				inside := within(l.X, l.From) && within(l.X, l.To) && l.From < l.To
				check.Same(t, fmt.Sprintf("%s: %+v is within the frame", name, l), inside, true)
			}
			for _, words := range c.Texts {
				check.Same(t, fmt.Sprintf("%s: %+v is within the frame", name, words), within(words.X, words.Y), true)
			}
			check.Same(t, name+" has a label", c.Label != "", true)
		}
		texts := throughputChart(tc.results).Texts
		check.Same(t, "unit of the axis", texts[len(texts)-1].Words, tc.unit)
	})
}

// Labels of more ticks would overlap on a telephone.
func TestTicksAreFew(t *testing.T) {
	for _, high := range []float64{0.07, 1, 1.1, 4.9, 9.9, 10, 900, 12345} {
		if n := len(axis{high: high}.ticks()); n < 2 || n > linearTicks+1 {
			t.Errorf("an axis to %v has %d ticks", high, n)
		}
	}
}

func TestFigures(t *testing.T) {
	for x, want := range map[float64]string{
		0: "0", 0.000123456: "0.000123", 0.0123: "0.0123", 1: "1.00", 9.876: "9.88", 12.34: "12.3", 99.94: "99.9",
		99.96: "100", 123.4: "123", 1234.5: "1,235", 1234567: "1,234,567",
	} {
		check.Same(t, fmt.Sprint(x), Figure(x), want)
	}
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1: "-1"} {
		check.Same(t, fmt.Sprint(n), grouped(n), want)
	}
}
