package fault

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
)

// result is the outcome of a row.
type result struct {
	Number    int
	Fault     string
	Expected  string
	Happened  string // a summary with counts
	Confirmed int
	Lost      int
	Doubled   int
	Over      int
	Recovery  time.Duration // from the end of the fault until exactly the rest is sold; 0: there was nothing to recover
	Repair    time.Duration // from a death until the gate was right again, without traffic; 0: no gate was wrong
	Took      time.Duration
	Passed    bool
}

func verdict(passed bool) string {
	if passed {
		return "pass"
	}
	return "FAIL"
}

func (r result) line() string {
	return fmt.Sprintf("%2d %-60s confirmed %6d  lost %d  doubled %d  over %d  recovery %6s  took %6s  %s",
		r.Number, r.Fault, r.Confirmed, r.Lost, r.Doubled, r.Over, r.Recovery.Round(10*time.Millisecond), r.Took.Round(100*time.Millisecond), verdict(r.Passed))
}

// reportPath is relative to the folder of this package.
const reportPath = "../../docs/drill.md"

// report writes the tables to the document, between its marks.
func report(t *testing.T, results []result, runs []mutation, took time.Duration) {
	t.Helper()
	var b bytes.Buffer
	fmt.Fprintf(&b, "Run by `make drill` %s, in %s, %s.\n\n", here(), took.Round(time.Minute), versions(t))
	fmt.Fprint(&b, "| # | fault or attack | expected | what happened | confirmed | lost | doubled | over | recovery | verdict |\n")
	fmt.Fprint(&b, "|---:|---|---|---|---:|---:|---:|---:|---:|---|\n")
	for _, r := range results {
		recovery := "-"
		if r.Recovery > 0 {
			recovery = r.Recovery.Round(10 * time.Millisecond).String()
		}
		fmt.Fprintf(&b, "| %d | %s | %s | %s | %d | %d | %d | %d | %s | %s |\n", r.Number, cell(r.Fault), cell(r.Expected), cell(r.Happened),
			r.Confirmed, r.Lost, r.Doubled, r.Over, recovery, verdict(r.Passed))
	}
	fmt.Fprint(&b, "\n| change of the engine | what has to be found | verdict |\n|---|---|---|\n")
	for _, m := range runs {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", cell(m.change), cell(m.expected), verdict(m.passed))
	}
	enclose(t, "drill", b.String())
}

// here says when and where the rows ran.
func here() string {
	return fmt.Sprintf("on %s: %s/%s, %d cores, %s", time.Now().UTC().Format("2 January 2006, 15:04 UTC"),
		runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
}

// reportRepairs writes how long gates stayed wrong after each kind of death. It writes nothing if a row has failed, or
// if no gate was wrong.
func reportRepairs(t *testing.T, results []result) {
	t.Helper()
	var b bytes.Buffer
	fmt.Fprintf(&b, "Run by `make repairs REPEAT=%d` %s.\n\n", repeats, here())
	fmt.Fprint(&b, "| death | times | median | longest |\n|---|---:|---:|---:|\n")
	repairs := map[string][]time.Duration{}
	for _, r := range results {
		if !r.Passed {
			return
		}
		if r.Repair > 0 {
			repairs[r.Fault] = append(repairs[r.Fault], r.Repair)
		}
	}
	if len(repairs) == 0 {
		return
	}
	for _, r := range rows() {
		if list := repairs[r.fault]; len(list) > 0 {
			fmt.Fprintf(&b, "| %s | %d | %s | %s |\n", cell(r.fault), len(list),
				percentile(list, 50).Round(10*time.Millisecond), percentile(list, 100).Round(10*time.Millisecond))
		}
	}
	enclose(t, "repairs", b.String())
}

// enclose writes a text to the document, between the marks of a name.
func enclose(t *testing.T, name, text string) {
	t.Helper()
	page, err := os.ReadFile(reportPath)
	if err != nil {
		t.Fatal(err)
	}
	beginMark, endMark := "<!-- "+name+":begin -->\n", "<!-- "+name+":end -->"
	before, rest, begins := strings.Cut(string(page), beginMark)
	_, after, ends := strings.Cut(rest, endMark)
	if !begins || !ends {
		t.Fatalf("%s has no marks of %s", reportPath, name)
	}
	if err := os.WriteFile(reportPath, []byte(before+beginMark+"\n"+text+"\n"+endMark+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ").Replace(strings.TrimSpace(text))
}

func versions(t *testing.T) string {
	var list []string
	for _, program := range []string{"mariadbd", "redis-server"} {
		out, err := exec.CommandContext(t.Context(), program, "--version").Output()
		if err != nil {
			out = []byte(err.Error())
		}
		list = append(list, strings.TrimSpace(strings.SplitN(string(out), "\n", 2)[0]))
	}
	return strings.Join(list, ", ")
}
