package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"flashsale/lab"
)

const (
	percent = 100
	// figureDigits is the number of digits shown of a figure: further digits are noise.
	figureDigits = 3

	beginMark = "<!-- bench:begin -->"
	endMark   = "<!-- bench:end -->"
)

// Report is a whole run.
type Report struct {
	StartedAt   time.Time         `json:"started_at"`
	TookSeconds int               `json:"took_seconds"`
	Machine     lab.Machine       `json:"machine"`
	Versions    map[string]string `json:"versions"`
	Settings    map[string]string `json:"settings"`
	Results     []*Result         `json:"results"`
}

// figure formats a value with at most three decimals and about three digits. It rounds larger values to integers with
// separated thousands.
func figure(v float64) string {
	if v == 0 {
		return "0"
	}
	if magnitude := math.Floor(math.Log10(math.Abs(v))); magnitude < figureDigits-1 {
		return strconv.FormatFloat(v, 'f', min(figureDigits-1-int(magnitude), figureDigits), 64)
	}
	return grouped(strconv.FormatFloat(math.Round(v), 'f', 0, 64))
}

func grouped(digits string) string {
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func (s Spread) String() string {
	if s == (Spread{}) {
		return "-"
	}
	return fmt.Sprintf("%s (%s to %s)", figure(s.Median), figure(s.Min), figure(s.Max))
}

var columns = []string{"row", "goal", "measured", "control/s", "path/s", "p50 / p99 ms", "verdict"}

// cells returns the result's line of the table, in the order of the columns.
func (r *Result) cells() []string {
	latency, path := "-", spread(rates(r.Path)).String()
	if len(r.Path) > 0 {
		latency = figure(spread(p50s(r.Path)).Median) + " / " + figure(spread(p99s(r.Path)).Median)
	} else if len(r.Values) > 0 {
		path = spread(r.Values).String() + " " + r.Unit
	}
	return []string{r.Name, r.Goal, r.Measured, spread(rates(r.Control)).String(), path, latency, r.verdict()}
}

// pointCells returns the line for one point of a growth row, in the same columns.
func (p Point) pointCells(name string) []string {
	return []string{
		fmt.Sprintf("%s, at %s", name, grouped(strconv.Itoa(p.Size))), "", fmt.Sprintf("%.2f of the control", ratio(p.Path, p.Control)),
		spread(rates(p.Control)).String(), spread(rates(p.Path)).String(),
		figure(spread(p50s(p.Path)).Median) + " / " + figure(spread(p99s(p.Path)).Median), "",
	}
}

func table(results []*Result) (rows [][]string) {
	for _, r := range results {
		rows = append(rows, r.cells())
		for _, p := range r.Points {
			rows = append(rows, p.pointCells(r.Name))
		}
	}
	return rows
}

// writeTable prints the results for a terminal, with the notes below them.
func writeTable(w io.Writer, results []*Result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range slices.Concat([][]string{columns}, table(results)) {
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	err := t.Flush()
	for _, r := range results {
		if r.Void != "" {
			fmt.Fprintf(w, "%s is VOID: %s\n", r.Name, r.Void)
		}
		for _, note := range r.Notes {
			fmt.Fprintf(w, "%s: %s\n", r.Name, note)
		}
	}
	return err
}

// markdown returns the measured part of docs/performance.md.
func (r *Report) markdown(charts map[string]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Measured by `make bench` on %s, in %d minutes. Raw rounds: [performance.json](performance.json).\n\n",
		r.StartedAt.UTC().Format("2 January 2006, 15:04 UTC"), int(math.Ceil(float64(r.TookSeconds)/60)))
	fmt.Fprintf(&b, "- Machine: %s; load, control, engine and stores share it.\n", r.Machine)
	for _, part := range []map[string]string{r.Versions, r.Settings} {
		for _, name := range slices.Sorted(maps.Keys(part)) {
			fmt.Fprintf(&b, "- %s: %s\n", name, part[name])
		}
	}
	b.WriteString("\nRates are the median of the rounds, with the least and the most; a ratio is the median of the rounds' own ratios.\n\n")
	fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	for _, row := range table(r.Results) {
		for i := range row {
			row[i] = strings.ReplaceAll(row[i], "|", "\\|")
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
	}
	for _, name := range slices.Sorted(maps.Keys(charts)) {
		fmt.Fprintf(&b, "\n![%s](%s)\n", charts[name], name)
	}
	b.WriteString("\n### What was noticed\n\n")
	for _, result := range r.Results {
		if result.Void != "" {
			fmt.Fprintf(&b, "- **%s is void**: %s\n", result.Name, result.Void)
		}
		for _, note := range result.Notes {
			fmt.Fprintf(&b, "- %s: %s\n", result.Name, note)
		}
	}
	b.WriteString("\n### Commands\n\nEach program as a row first called it; of wrk that is the turn that warms up. `$TMP` is a fresh folder.\n\n```sh\n")
	for _, result := range r.Results {
		fmt.Fprintf(&b, "# %s\n%s\n", result.Name, strings.Join(result.Commands, "\n"))
	}
	b.WriteString("```\n")
	return b.String()
}

// emptyDocument is the document before the first run.
const emptyDocument = "# Performance\n\n" + beginMark + "\n" + endMark + "\n"

var errMarks = errors.New("want one line " + beginMark + " and one line " + endMark + " below it")

// replaceMarked replaces the text between the two marks and keeps the rest.
func replaceMarked(document, text string) (string, error) {
	before, rest, ok := strings.Cut(document, beginMark+"\n")
	if !ok {
		return "", errMarks
	}
	_, after, ok := strings.Cut(rest, endMark)
	if !ok || strings.Contains(after, beginMark) || strings.Contains(before, endMark) {
		return "", errMarks
	}
	return before + beginMark + "\n\n" + strings.TrimSpace(text) + "\n\n" + endMark + after, nil
}

// write writes the report to a folder: raw figures, charts, and the measured part of the document.
func write(folder string, report *Report) (err error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	raw, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	document, err := root.ReadFile("performance.md")
	if errors.Is(err, fs.ErrNotExist) {
		document, err = []byte(emptyDocument), nil
	}
	if err != nil {
		return fmt.Errorf("read the document: %w", err)
	}
	files, titles := charts(report.Results)
	text, err := replaceMarked(string(document), report.markdown(titles))
	if err != nil {
		return fmt.Errorf("performance.md: %w", err)
	}
	files["performance.md"], files["performance.json"] = text, string(raw)+"\n"
	for name, text := range files {
		if err := root.WriteFile(name, []byte(text), 0o644); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
	}
	return nil
}

// passing matches those parts of a command line that differ from run to run: addresses with passwords, tokens, folders.
var passing = []struct {
	what *regexp.Regexp
	name string
}{
	{regexp.MustCompile(`mysql://\S+`), "$$DATABASE"},
	{regexp.MustCompile(`redis://\S+`), "$$REDIS"},
	{regexp.MustCompile(`http://[\d.:]+`), "$$URL"},
	{regexp.MustCompile(`Bearer [\w.-]+`), "Bearer $$TOKEN"},
	{regexp.MustCompile(`/\S*TestBench\S*/`), "$$TMP/"},
}

// command records the first call of each program, quoted for a shell.
func (r *Result) command(program string, args []string) {
	for _, known := range r.Commands {
		if strings.HasPrefix(known, program+" ") {
			return
		}
	}
	quoted := make([]string, len(args))
	for i, arg := range args {
		for _, p := range passing {
			arg = p.what.ReplaceAllString(arg, p.name)
		}
		switch {
		case strings.Contains(arg, "$"):
			arg = `"` + arg + `"`
		case arg == "" || strings.ContainsAny(arg, `{" `):
			arg = "'" + arg + "'"
		}
		quoted[i] = arg
	}
	r.Commands = append(r.Commands, program+" "+strings.Join(quoted, " "))
}
