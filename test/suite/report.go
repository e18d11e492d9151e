package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"flashsale/test/kit/pace"
)

// quiet is after how long without a line the report says that tests are still running.
const quiet = 30 * time.Second

// event is a line of `go test -json`; see `go doc test2json` and `go help buildjson`.
type event struct {
	Action      string
	Package     string
	Test        string
	Elapsed     float64 // in seconds
	Output      string
	ImportPath  string // of what is built
	FailedBuild string
}

// report prints the results of all parts as they come.
type report struct {
	out  io.Writer
	race bool

	mu             sync.Mutex
	began, printed time.Time
	running        []string // parts
	passed, failed int
	failures       []string // the parts that failed
	late           []part   // each with one test, for which the machine was too slow
}

func newReport(out io.Writer, race bool) *report {
	now := time.Now()
	return &report{out: out, race: race, began: now, printed: now}
}

func (r *report) printf(format string, args ...any) {
	fmt.Fprintf(r.out, format, args...)
	r.printed = time.Now()
}

// test runs a part and reports its events.
func test(ctx context.Context, p part, race bool, r *report) error {
	r.mu.Lock()
	r.running = append(r.running, p.name)
	r.mu.Unlock()
	args := goTest(p, race)
	if p.choose == nil {
		args = append(args, "./...")
	} else {
		list := exec.CommandContext(ctx, "go", "list", "./...")
		list.Dir = p.folder
		names, err := list.Output()
		if err != nil {
			return fmt.Errorf("list the packages: %w", err)
		}
		packages := slices.DeleteFunc(strings.Fields(string(names)), not(p.choose))
		args = append(args, inOrder(packages)...)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env, cmd.Stderr = p.folder, environment(), os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	view := newView(p, r)
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			view.line(line)
		}
		if err != nil {
			break
		}
	}
	err = cmd.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = slices.DeleteFunc(r.running, func(name string) bool { return name == p.name })
	if err != nil && len(view.late) == 0 && !slices.Contains(r.failures, p.name) { // no test told why
		return err
	}
	return nil
}

// broke reports a part that could not be run.
func (r *report) broke(p part, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail(p)
	r.printf("FAIL  %s: %v\n", p.name, err)
}

func (r *report) fail(p part) {
	if !slices.Contains(r.failures, p.name) {
		r.failures = append(r.failures, p.name)
	}
}

// still says what is running, if nothing was printed for some time.
func (r *report) still() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.printed) >= quiet {
		r.printf("...   %s: %s; %d tests have passed so far\n", time.Since(r.began).Round(time.Second), strings.Join(r.running, " and "), r.passed)
	}
}

// end prints the last line and reports whether all tests passed.
func (r *report) end() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.printf("in %s\n", time.Since(r.began).Round(time.Second))
	if len(r.failures) > 0 {
		r.printf("%d passed, %d failed: look for FAIL in %s\n", r.passed, r.failed, strings.Join(r.failures, ", "))
		return false
	}
	r.printf("%d passed, 0 failed\n", r.passed)
	return r.passed > 0
}

// view turns the events of one part into lines.
type view struct {
	part   part
	report *report
	output map[string][]string // by package and test, of those that have not ended; build output by import path
	tests  map[string]int      // that passed, by package
	failed map[string]bool     // packages and tests that were shown as failed
	late   map[string]bool     // packages and tests that run again
}

func newView(p part, r *report) *view {
	return &view{part: p, report: r, output: map[string][]string{}, tests: map[string]int{}, failed: map[string]bool{}, late: map[string]bool{}}
}

// row matches the rows of the drill, which are shown one by one, since they take minutes together.
var row = regexp.MustCompile(`^TestDrill/(\d[^/]*)$`)

// line takes a line that `go test -json` printed. A line that is no event is shown as it is.
func (v *view) line(line []byte) {
	v.report.mu.Lock()
	defer v.report.mu.Unlock()
	var e event
	if err := json.Unmarshal(line, &e); err != nil {
		v.report.printf("%s", line)
		return
	}
	key := e.Package + " " + e.Test
	switch e.Action {
	case "output":
		v.output[key] = append(v.output[key], e.Output)
	case "build-output":
		v.output[e.ImportPath] = append(v.output[e.ImportPath], e.Output)
	case "pass":
		delete(v.output, key)
		v.pass(e)
	case "fail":
		v.fail(e, key)
		delete(v.output, key)
	case "skip":
		if e.Test != "" { // a package without tests is skipped, too
			v.fail(e, key)
		}
	}
}

func (v *view) pass(e event) {
	name := strings.TrimPrefix(e.Package, "flashsale/")
	found := row.FindStringSubmatch(e.Test)
	switch {
	case e.Test == "":
		v.report.printf("ok    %-26s %6.1f s  %4d tests\n", name, e.Elapsed, v.tests[e.Package])
		return
	case found != nil:
		v.report.printf("ok    %-26s %6.1f s  row %s\n", name, e.Elapsed, strings.ReplaceAll(found[1], "_", " "))
	}
	v.tests[e.Package]++
	v.report.passed++
}

// fail shows what a failed test or package printed, and the command that repeats it. A test or package that failed by what
// it contains is only counted.
func (v *view) fail(e event, key string) {
	inside := key
	if e.Test != "" {
		inside += "/"
	}
	holds := func(tests map[string]bool) bool {
		for test := range tests {
			if strings.HasPrefix(test, inside) {
				return true
			}
		}
		return false
	}
	known := holds(v.failed)
	if !known && v.postpone(e, key, holds(v.late)) {
		return
	}
	v.report.fail(v.part)
	if e.Test != "" {
		v.report.failed++
	}
	v.failed[key] = true
	if known {
		return
	}
	if e.Test == "" {
		v.report.failed++
	}
	v.report.printf("FAIL  %-26s %6.1f s  %s\n", strings.TrimPrefix(e.Package, "flashsale/"), e.Elapsed, e.Test)
	for _, text := range slices.Concat(v.output[e.FailedBuild], v.output[key]) {
		v.report.printf("      %s", text)
	}
	v.report.printf("      again: %s\n", again(v.part, v.report.race, e.Package, e.Test))
}

// postpone has a test run again, alone, if it failed because the machine was late, and reports whether it did. What holds
// such a test, and has nothing to say itself, has not failed either.
func (v *view) postpone(e event, key string, holdsLate bool) bool {
	says := func(line string) bool { return !frame.MatchString(line) }
	switch own := v.output[key]; {
	case v.part.alone:
		return false
	case holdsLate:
		return !slices.ContainsFunc(own, says)
	case !slices.ContainsFunc(own, func(line string) bool { return strings.Contains(line, pace.Late) }):
		return false
	}
	v.late[key] = true
	p := v.part
	p.alone, p.choose = true, func(pkg string) bool { return pkg == e.Package }
	p.args = append(slices.Clip(p.args), "-run="+only(e.Test))
	v.report.late = append(v.report.late, p)
	v.report.printf("late  %-26s %6.1f s  %s: runs again at the end, alone\n", strings.TrimPrefix(e.Package, "flashsale/"), e.Elapsed, e.Test)
	return true
}

// frame matches what `go test` itself prints of each test and package that fails.
var frame = regexp.MustCompile(`^\s*(=== |--- )|^FAIL\s|^exit status 1\n`)

// escape makes a pattern of -run from a test's name. The name is in quotes of the shell.
func escape(name string) string {
	return strings.ReplaceAll(regexp.QuoteMeta(name), "'", ".")
}
