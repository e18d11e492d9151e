package bench

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// rounds returns samples with these rates and a p99 of 10 ms.
func rounds(rates ...float64) (list []Sample) {
	for _, rate := range rates {
		list = append(list, Sample{RequestsPerSecond: rate, P50MS: 1, P99MS: 10, Requests: 1})
	}
	return list
}

func TestJudgements(t *testing.T) {
	tests := map[string]struct {
		result   Result
		judge    func(*Result)
		measured string
		verdict  string
	}{
		"ratio met":             {Result{Control: rounds(100, 200), Path: rounds(50, 110)}, func(r *Result) { r.judgeRatio(0.5, 0) }, "0.53", "met"},
		"ratio not met":         {Result{Control: rounds(100), Path: rounds(49)}, func(r *Result) { r.judgeRatio(0.5, 0) }, "0.49", "not met"},
		"too late":              {Result{Control: rounds(100), Path: rounds(60)}, func(r *Result) { r.judgeRatio(0.5, 9) }, "0.60", "not met"},
		"in time":               {Result{Control: rounds(100), Path: rounds(60)}, func(r *Result) { r.judgeRatio(0.5, 25) }, "0.60", "met"},
		"nothing measured":      {Result{}, func(r *Result) { r.judgeRatio(0.5, 0) }, "0.00", "not met"},
		"void whatever it says": {Result{Control: rounds(100), Path: rounds(60), Void: "lost"}, func(r *Result) { r.judgeRatio(0.5, 0) }, "0.60", "VOID"},
		"enough":                {Result{Values: []float64{1, 60_000, 70_000}, Unit: "orders/s"}, func(r *Result) { r.judgeLeast(50_000) }, "60,000 orders/s", "met"},
		"too much":              {Result{Values: []float64{151}, Unit: "MiB"}, func(r *Result) { r.judgeMost(150) }, "151 MiB", "not met"},
		"flat": {
			Result{Points: []Point{{1, rounds(100), rounds(50)}, {10, rounds(50), rounds(24)}}},
			func(r *Result) { r.judgeGrowth() }, "x 1.00, 1.04", "met",
		},
		"growing": {
			Result{Points: []Point{{1, rounds(100), rounds(50)}, {10, rounds(100), rounds(40)}}},
			func(r *Result) { r.judgeGrowth() }, "x 1.00, 1.25", "not met",
		},
		"a point without a rate": {
			Result{Points: []Point{{1, rounds(100), rounds(50)}, {10, rounds(100), rounds(0)}}},
			func(r *Result) { r.judgeGrowth() }, "x 1.00, 0.00", "not met",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := tc.result
			tc.judge(&r)
			if r.Measured != tc.measured || r.verdict() != tc.verdict {
				t.Errorf("%q, %s; want %q, %s", r.Measured, r.verdict(), tc.measured, tc.verdict)
			}
		})
	}
}

func TestFigure(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.0123: "0.012", 0.5: "0.500", 9.876: "9.88", 25: "25.0", 824.4: "824", 72867.22: "72,867", 1234567: "1,234,567"} {
		if got := figure(v); got != want {
			t.Errorf("%v is written %q, want %q", v, got, want)
		}
	}
}

func TestReplaceMarked(t *testing.T) {
	tests := map[string]struct {
		document, want string
	}{
		"empty":     {emptyDocument, "# Performance\n\n" + beginMark + "\n\nnew\n\n" + endMark + "\n"},
		"kept":      {"a\n" + beginMark + "\nold\n" + endMark + "\nb | c\n", "a\n" + beginMark + "\n\nnew\n\n" + endMark + "\nb | c\n"},
		"no mark":   {"a\n", ""},
		"no end":    {"a\n" + beginMark + "\nold\n", ""},
		"backwards": {endMark + "\n" + beginMark + "\n", ""},
		"twice":     {beginMark + "\n" + endMark + "\n" + beginMark + "\n" + endMark + "\n", ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := replaceMarked(tc.document, "new\n")
			if got != tc.want || (err != nil) != (tc.want == "") {
				t.Errorf("got %q, %v", got, err)
			}
			if tc.want == "" {
				return
			}
			if again, err := replaceMarked(got, "new"); err != nil || again != got {
				t.Errorf("the second time it became %q, %v", again, err)
			}
		})
	}
}

func TestCommandHidesWhatPasses(t *testing.T) {
	var r Result
	r.command("flashsale", []string{"serve", "--database", "mysql://u:p@127.0.0.1:1/d", "--redis", "redis://127.0.0.1:2/0"})
	r.command("flashsale", []string{"again"})
	r.command("ab", []string{"-H", "Authorization: Bearer a.b-c.d_e", "-p", "/tmp/TestBench1/001/requests-7", `{"quantity":1}`, "", "http://127.0.0.1:3/api"})
	want := `flashsale serve --database "$DATABASE" --redis "$REDIS"` + "\n" +
		`ab -H "Authorization: Bearer $TOKEN" -p "$TMP/requests-7" '{"quantity":1}' '' "$URL/api"`
	if got := strings.Join(r.Commands, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// sample returns a report with every kind of row.
func sample() *Report {
	points := []Point{{100, rounds(100, 110), rounds(90, 80)}, {5_000, rounds(70), rounds(60)}}
	list := []*Result{
		{Name: "sold out", Control: rounds(100, 120), Path: rounds(97, 110), Notes: []string{"quiet"}},
		{Name: "start", Values: []float64{80, 90}, Unit: "ms"},
		{Name: "growth: connections, sold out", Points: points},
		{Name: "growth: connections, a < b & c", Points: points},
		{Name: "growth: buyers, sold out", Points: points, Void: "one order over"},
	}
	list[0].judgeRatio(0.95, 0)
	return &Report{TookSeconds: 61, Versions: map[string]string{"Versions": "all"}, Settings: map[string]string{"Rounds": "2"}, Results: list}
}

func TestTableHasEveryRowAndReason(t *testing.T) {
	var b strings.Builder
	if err := writeTable(&b, sample().Results); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"sold out", "0.94", "not met", "85.0 (80.0 to 90.0) ms", "growth: connections, sold out, at 5,000", "is VOID: one order over", "sold out: quiet",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in\n%s", want, &b)
		}
	}
}

func TestWriteKeepsTheRestOfTheDocument(t *testing.T) {
	folder := t.TempDir()
	name := filepath.Join(folder, "performance.md")
	for _, rest := range []string{"", "by hand\n"} {
		if rest != "" {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, append(text, rest...), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := write(folder, sample()); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(text), "# Performance\n") || !strings.HasSuffix(string(text), endMark+"\n"+rest) {
			t.Errorf("the document became\n%s", text)
		}
		drawings, _ := charts(sample().Results)
		for drawing := range drawings {
			if !strings.Contains(string(text), "]("+drawing+")") {
				t.Errorf("the document doesn't show %s", drawing)
			}
			if _, err := os.Stat(filepath.Join(folder, drawing)); err != nil {
				t.Error(err)
			}
		}
	}
	raw, err := os.ReadFile(filepath.Join(folder, "performance.json"))
	if err != nil {
		t.Fatal(err)
	}
	var read Report
	if err := json.Unmarshal(raw, &read); err != nil || len(read.Results) != len(sample().Results) {
		t.Errorf("read %d results, %v", len(read.Results), err)
	}
}

func TestChartsAreWellFormed(t *testing.T) {
	all := sample().Results
	tests := map[string]struct {
		results []*Result
		files   int
	}{
		"every kind":    {all, 3},
		"no curve":      {all[:2], 0},
		"one point":     {[]*Result{{Name: "growth: buyers, x", Points: all[2].Points[:1]}}, 1},
		"nothing there": {[]*Result{{Name: "growth: connections, x", Points: []Point{{Size: 100}}}}, 2},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			drawings, titles := charts(tc.results)
			if len(drawings) != tc.files || len(titles) != tc.files {
				t.Fatalf("%d drawings, %d titles, want %d", len(drawings), len(titles), tc.files)
			}
			for file, drawing := range drawings {
				for decoder := xml.NewDecoder(strings.NewReader(drawing)); ; {
					if _, err := decoder.Token(); errors.Is(err, io.EOF) {
						break
					} else if err != nil {
						t.Fatalf("%s: %v\n%s", file, err, drawing)
					}
				}
				if strings.Contains(drawing, "NaN") || strings.Contains(drawing, "Inf") || !strings.Contains(drawing, "prefers-color-scheme: dark") {
					t.Errorf("%s:\n%s", file, drawing)
				}
			}
		})
	}
}
