package bench

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"flashsale/test/kit/check"
)

// rounds returns samples with these rates and a p99 of 10 ms.
func rounds(rates ...float64) (list []Sample) {
	for _, rate := range rates {
		list = append(list, Sample{RequestsPerSecond: rate, P50MS: 1, P99MS: 10, Requests: 1})
	}
	return list
}

func TestVerdicts(t *testing.T) {
	ratio := func(r *Result) { r.least(r.ratio(), 0.5, "") }
	inTime := func(r *Result) { ratio(r); r.most(p99(r.Path[0]), 10, "ms") }
	grows := func(r *Result) { r.judgeGrowth(mostGrowth, 0) }
	besideOne := func(r *Result) { r.judgeGrowth(mostGrowth, 1) }
	late := func(r *Result) { ratio(r); r.most(p99(r.Path[0]), 9, "ms") }
	points := func(control, path float64) Result {
		return Result{Points: []*Result{{Control: rounds(100), Path: rounds(50)}, {Control: rounds(control), Path: rounds(path)}}}
	}
	type test struct {
		result            Result
		judge             func(*Result)
		measured, verdict string
	}
	check.Each(t, map[string]test{
		"ratio of the same round": {Result{Control: rounds(100, 20, 0), Path: rounds(50, 10, 7, 8)}, ratio, "0.500", "met"},
		"median ratio":            {Result{Control: rounds(100, 100, 100), Path: rounds(90, 49, 10)}, ratio, "0.490", "not met"},
		"ratio of even rounds":    {Result{Control: rounds(100, 200), Path: rounds(50, 110)}, ratio, "0.525", "met"},
		"nothing measured":        {Result{}, ratio, "0", "not met"},
		"in time":                 {Result{Control: rounds(100), Path: rounds(60)}, inTime, "0.600, 10.0 ms", "met"},
		"too late":                {Result{Control: rounds(100), Path: rounds(60)}, late, "0.600, 10.0 ms", "not met"},
		"too slow, in time":       {Result{Control: rounds(100), Path: rounds(40)}, inTime, "0.400, 10.0 ms", "not met"},
		"void":                    {Result{Control: rounds(100), Path: rounds(60), Void: "lost"}, ratio, "0.600", "VOID: lost"},
		"no goal":                 {Result{}, func(*Result) {}, "", "no goal"},
		"cheaper":                 {points(10, 6), grows, "x 1.00 / 0.833", "met"},
		"flat":                    {points(50, 23), grows, "x 1.00 / 1.09", "met"},
		"growing":                 {points(100, 45), grows, "x 1.00 / 1.11", "not met"},
		"beside one":              {points(100, 45), besideOne, "x 2.00 / 2.22", "not met"},
		"point without a rate":    {points(100, 0), grows, "x 1.00 / -", "not met"},
	}, func(t *testing.T, tc test) {
		tc.judge(&tc.result)
		check.Same(t, "measured, verdict", []string{tc.result.Measured, tc.result.verdict()}, []string{tc.measured, tc.verdict})
	})
}

func TestReport(t *testing.T) {
	folder := t.TempDir()
	write := func(document string) {
		check.Done(os.WriteFile(filepath.Join(folder, "performance.md"), []byte(document), 0o600))
	}
	read := func(name string) string { return string(check.Must(os.ReadFile(filepath.Join(folder, name)))) }
	write("before\n" + beginMark + "old\n" + endMark + "after\n")
	growth := func(name string) *Result {
		r := &Result{Name: name, Points: []*Result{
			{Name: name + ", at 100", Size: 100, Control: rounds(100), Path: rounds(50), Notes: []string{"quiet"}},
			{Name: name + ", at 5,000", Size: 5000, Control: rounds(90), Path: rounds(0)},
		}}
		r.judgeGrowth(mostGrowth, 0)
		return r
	}
	lost := &Result{Name: "lost", Values: []float64{80, 85, 90}, Unit: "ms"}
	lost.note("loud")
	lost.void("%d orders over", 1)
	lost.void("another reason")
	report := &Report{
		TookSeconds: 61, Settings: map[string]string{"Redis": "7.0"},
		Results: []*Result{lost, growth("growth: connections, <sold out>"), growth("growth: buyers, sold out")},
	}
	for range 2 { // the second time over the first
		check.Done(report.write(folder))
	}
	text := read("performance.md")
	for _, want := range []string{
		"before\n" + beginMark, "in 2 minutes", "- Redis: 7.0\n", "\n" + endMark + "after\n",
		"| lost |  |  | - | 85.0 (80.0 to 90.0) ms | - | VOID: 1 orders over |\n",
		"| growth: buyers, sold out | cost rises <= 10% | 100 / 5,000 | x 1.00 / - | 0.500 / 0 | 50.0 / 0 | 10.0 / 10.0 | not met |\n",
	} {
		if strings.Count(text, want) != 1 {
			t.Errorf("%q is not once in\n%s", want, text)
		}
	}
	if strings.Contains(text, "loud") || strings.Contains(text, "quiet") {
		t.Errorf("notes are in\n%s", text)
	}
	check.Same(t, "notes", report.notes(), "lost: loud\n"+
		"growth: connections, <sold out>, at 100: quiet\ngrowth: buyers, sold out, at 100: quiet\n")
	for name := range report.charts() {
		if err := xml.Unmarshal([]byte(read(name)), new(struct{})); err != nil || !strings.Contains(text, "]("+name+")") {
			t.Errorf("%s: %v, shown in\n%s", name, err, text)
		}
	}
	var again Report
	err := json.Unmarshal([]byte(read("performance.json")), &again)
	if err != nil || len(again.Results) != 3 || again.Results[2].Points[1].Size != 5000 {
		t.Errorf("read %+v, %v", again, err)
	}
	again.replace(&Report{Settings: map[string]string{"Rounds": "9 of 1 s"}, Results: []*Result{{Name: "lost"}, {Name: "new"}}})
	names := []string{}
	for _, r := range again.Results {
		names = append(names, r.Name)
	}
	check.Same(t, "rows", names, []string{"lost", "growth: connections, <sold out>", "growth: buyers, sold out", "new"})
	check.Same(t, "the replaced row is void", again.Results[0].Void, "")
	check.Done(again.write(folder))
	own := "\n- Measured by a run of their own on 1 January 0001, 00:00 UTC, on " + again.Machine.String() + ", with 9 of 1 s; : lost; new.\n"
	if text := read("performance.md"); !strings.Contains(text, own) {
		t.Errorf("%q is not in\n%s", own, text)
	}
	write("no marks\n")
	check.Same(t, "a document without marks is written", report.write(folder) == nil, false)
}

// The measured part of the document and the charts are what the generator makes of the raw figures.
func TestDocumentIsGenerated(t *testing.T) {
	const docs = "../../docs"
	folder := t.TempDir()
	read := func(folder, name string) []byte { return check.Must(os.ReadFile(filepath.Join(folder, name))) }
	check.Done(os.WriteFile(filepath.Join(folder, "performance.md"), read(docs, "performance.md"), 0o600))
	var report Report
	check.NoError(t, json.Unmarshal(read(docs, "performance.json"), &report), report.write(folder))
	for _, file := range check.Must(os.ReadDir(folder)) {
		if name := file.Name(); !bytes.Equal(read(docs, name), read(folder, name)) {
			t.Errorf("docs/%s: want what BENCH_KEEP=1 BENCH_ROWS='^$' make bench writes", name)
		}
	}
}
