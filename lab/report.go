package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is the result of a run, with the strategies in the order in which they ran.
type Report struct {
	Setting
	Buyers      int       `json:"buyers"`
	Stock       int       `json:"stock"`
	Concurrency int       `json:"concurrency"`
	StartedAt   time.Time `json:"started_at"`
	Strategies  []*Result `json:"strategies"`
	Instances   int       `json:"instances"`
	Killed      bool      `json:"killed"` // the plan was to kill an instance
	Seed        uint64    `json:"seed"`
	Interrupted bool      `json:"interrupted"`
}

// WriteJSON writes a report as indented JSON.
func WriteJSON(w io.Writer, report any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(report)
}

// WriteFiles writes report.html, by the function "page", and report.json to a folder. It returns the two paths.
func WriteFiles(folder string, page func(io.Writer) error, report any) (html, figures string, err error) {
	html, figures = filepath.Join(folder, "report.html"), filepath.Join(folder, "report.json")
	for path, write := range map[string]func(io.Writer) error{
		html: page, figures: func(w io.Writer) error { return WriteJSON(w, report) },
	} {
		file, err := os.Create(path) //nolint:gosec // the user names the folder
		if err != nil {
			return "", "", fmt.Errorf("--out: %w", err)
		}
		if err := errors.Join(write(file), file.Close()); err != nil {
			return "", "", fmt.Errorf("write %s: %w", path, err)
		}
	}
	return html, figures, nil
}

// WriteTable writes the figures for a terminal. Tabs in the template separate the columns.
func (r *Report) WriteTable(w io.Writer) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	if err := table.Execute(out, r); err != nil {
		return err
	}
	return out.Flush()
}

// load describes the load in words.
func (r *Report) load() string {
	text := fmt.Sprintf("stock %s, %s, %s at once, %s", grouped(r.Stock), count(r.Buyers, "buyer"), grouped(r.Concurrency),
		count(r.Instances, "instance"))
	if r.Killed {
		text += ", the last of which dies when half of the stock is sold"
	}
	return text
}

// grouped formats a number that is not negative, with commas between the thousands.
func grouped[N int | int64](n N) string {
	digits := strconv.FormatInt(int64(n), 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// count formats a number with its noun, which the caller gives in the singular: "1 strategy", "2 strategies".
func count[N int | int64](n N, noun string) string {
	switch stem, y := strings.CutSuffix(noun, "y"); {
	case n != 1 && y:
		noun = stem + "ies"
	case n != 1:
		noun += "s"
	}
	return grouped(n) + " " + noun
}

// Figure formats a number that is not negative: below 100 with about three significant digits, else as a whole number.
func Figure(x float64) string {
	if x == 0 || x >= 99.95 {
		return grouped(int64(math.Round(x)))
	}
	return strconv.FormatFloat(x, 'f', 2-int(math.Floor(math.Log10(x))), 64)
}
