//go:build bench && linux

package bench

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"flashsale/lab"
)

const (
	wrkThreads, wrkConnections = 2, 100
	// wrkSlack is how long wrk may take beyond its time, to read the requests and to end. It is also the limit for ab
	// and the builds.
	wrkSlack = 2 * time.Minute
	// warmUpSeconds is the length of a turn before the first round, which fills caches and pools and does not count.
	warmUpSeconds = 1
	// otherFiles is how many files a process has open besides its clients' connections.
	otherFiles = 1_000
	// buyers is how many buyers a row has unless it says otherwise. Each of them buys a few times a round.
	buyers = 20_000
)

//go:embed load.lua
var loadScript string

// run holds what all rows share.
type run struct {
	rounds, seconds       int
	mostBuyers, backlog   int
	binary, control, load string
	wallet                wallet
	tmp                   string
}

// row is a line of the table.
type row struct {
	name    string
	measure func(*testing.T, *run, *Result)
}

// TestBench measures every row whose name matches BENCH_ROWS (a regular expression; default: all), in BENCH_ROUNDS (5)
// rounds of BENCH_SECONDS (5) seconds each. BENCH_BUYERS (1000000) is the largest number of buyers in a row.
// BENCH_BACKLOG (100000) is the least number of queued attempts that the row "settling" settles at once. A missed goal
// does not fail the test; wrong books do. A run of all rows writes the report to docs.
func TestBench(t *testing.T) {
	selected, err := regexp.Compile(os.Getenv("BENCH_ROWS"))
	if err != nil {
		t.Fatalf("BENCH_ROWS: %v", err)
	}
	b := &run{
		rounds: number(t, "BENCH_ROUNDS", 5), seconds: number(t, "BENCH_SECONDS", 5),
		mostBuyers: number(t, "BENCH_BUYERS", 1_000_000), backlog: number(t, "BENCH_BACKLOG", 100_000),
		tmp: t.TempDir(),
	}
	raiseOpenFiles(t)
	b.build(t)
	report := &Report{StartedAt: time.Now(), Machine: lab.ThisMachine()}
	list := slices.DeleteFunc(rows(), func(r row) bool { return !selected.MatchString(r.name) })
	if len(list) == 0 {
		t.Fatalf("BENCH_ROWS: no row is named like %q", selected)
	}
	all := len(list) == len(rows())
	if all {
		b.describe(t, report) // before the rows, which take an hour
	}
	for _, row := range list {
		t.Run(row.name, func(t *testing.T) {
			r := &Result{Name: row.name}
			report.Results = append(report.Results, r)
			defer func() { // also after a Fatal: the report marks a row that broke off
				if t.Failed() {
					r.void("it broke off, see the test's output")
				}
				if r.Void != "" {
					t.Errorf("%s is void: %s", r.Name, r.Void)
				}
				t.Logf("%s: %s", strings.Join(r.cells(), " | "), strings.Join(r.Notes, "; "))
			}()
			row.measure(t, b, r)
		})
	}
	report.TookSeconds = int(time.Since(report.StartedAt).Seconds())
	if err := writeTable(os.Stdout, report.Results); err != nil {
		t.Fatal(err)
	}
	if !all {
		return
	}
	if err := write("../../docs", report); err != nil {
		t.Fatal(err)
	}
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

// raiseOpenFiles lets this process and its children have as many connections as the machine allows.
func raiseOpenFiles(t *testing.T) {
	t.Helper()
	var limit syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
	if err == nil {
		limit.Cur = limit.Max
		err = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
	}
	if err != nil {
		t.Fatalf("raise the number of open files: %v", err)
	}
	if limit.Max < openConnections+otherFiles {
		t.Errorf("%d open files are allowed, and rows with %d connections need %d: raise the hard limit (ulimit -Hn)",
			limit.Max, openConnections, openConnections+otherFiles)
	}
}

func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s: want a number from 1, not %q", name, text)
	}
	return n
}

// build checks that the load tools are installed, before anything takes time, and makes the engine, the control and the
// load script.
func (b *run) build(t *testing.T) {
	t.Helper()
	for tool, debian := range map[string]string{"wrk": "wrk", "ab": "apache2-utils"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("%s not found: install the Debian package %s", tool, debian)
		}
	}
	b.binary, b.control, b.load = filepath.Join(b.tmp, "flashsale"), filepath.Join(b.tmp, "control"), filepath.Join(b.tmp, "load.lua")
	output(t, wrkSlack, "go", "build", "-o", b.binary, "flashsale")
	output(t, wrkSlack, "go", "build", "-o", b.control, "flashsale/test/bench/control")
	if err := os.WriteFile(b.load, []byte(loadScript), 0o600); err != nil {
		t.Fatal(err)
	}
}

// describe adds what a reader must know about the machine and the settings.
func (b *run) describe(t *testing.T, report *Report) {
	t.Helper()
	s := newStores(t, false)
	variables := s.variables("SHOW GLOBAL VARIABLES WHERE variable_name IN ('version', 'innodb_flush_log_at_trx_commit'," +
		"'innodb_buffer_pool_size', 'innodb_log_file_size', 'innodb_flush_method', 'log_bin')")
	config := s.reader.ConfigGet(t.Context(), "*").Val()
	info := s.reader.Info(t.Context(), "server").Val()
	version := func(text, pattern string) string {
		match := regexp.MustCompile(pattern).FindStringSubmatch(text)
		if match == nil {
			return "unknown"
		}
		return match[1]
	}
	wrk, _ := exec.CommandContext(t.Context(), "wrk", "-v").CombinedOutput() // it prints its version and exits with 1
	kernel := output(t, time.Minute, "uname", "-sr")
	commit, err := exec.CommandContext(t.Context(), "git", "describe", "--always", "--dirty").Output()
	if err != nil {
		commit = []byte("unknown")
	}
	var disk syscall.Statfs_t
	if err := syscall.Statfs(b.tmp, &disk); err != nil {
		t.Fatal(err)
	}
	durable := fmt.Sprintf("file system type 0x%x", disk.Type)
	if disk.Type == 0x01021994 { // TMPFS_MAGIC
		durable = "tmpfs, where a flush costs nothing: confirmed rates don't count"
	}
	report.Versions = map[string]string{
		"Versions": fmt.Sprintf("flashsale %s, MariaDB %s, Redis %s, wrk %s, ab %s, %s", strings.TrimSpace(string(commit)), variables["version"],
			version(info, `redis_version:(\S+)`), version(string(wrk), `wrk (\S+)`), version(output(t, time.Minute, "ab", "-V"), `Version (\S+)`),
			strings.TrimSpace(kernel)),
	}
	delete(variables, "version")
	report.Settings = map[string]string{
		"MariaDB":       fmt.Sprintf("%s; on %s", pairs(variables), durable),
		"Redis":         fmt.Sprintf("appendonly=%s save=%q", config["appendonly"], config["save"]),
		"SQLite":        "journal_mode=WAL synchronous=FULL",
		"Engine":        "`flashsale " + strings.Join(engineArgs, " ") + "`, log at info to a file that is emptied between rounds",
		"Control":       "bare Gin in release mode, one route, reads the body and the Authorization header, gives the engine's own answer with its headers",
		"Load":          fmt.Sprintf("wrk, %d threads, %d connections, keep-alive, %d buyers unless the row says otherwise", wrkThreads, wrkConnections, buyers),
		"Rounds":        fmt.Sprintf("%d of %d s each, control and path in turns, after %d s that don't count", b.rounds, b.seconds, warmUpSeconds),
		"Most buyers":   strconv.Itoa(b.mostBuyers),
		"Least backlog": strconv.Itoa(b.backlog),
	}
}

func pairs(m map[string]string) string {
	var list []string
	for _, name := range []string{"innodb_flush_log_at_trx_commit", "innodb_flush_method", "innodb_buffer_pool_size", "innodb_log_file_size", "log_bin"} {
		list = append(list, strings.ToLower(name+"="+m[name]))
	}
	return strings.Join(list, " ")
}

// target describes a load of wrk.
type target struct {
	url         string
	file        string // of complete requests, all of the same length
	bytes       int    // of each request
	connections int
	once        bool // each request once, on one thread
}

// at returns the same load for another server.
func (t target) at(url string) target {
	t.url = url
	return t
}

// save writes content to a file that is removed with the test, and returns the file's name.
func (b *run) save(t *testing.T, content []byte) string {
	t.Helper()
	file, err := os.CreateTemp(b.tmp, "file-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(file.Name()) })
	_, err = file.Write(content)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	return file.Name()
}

// fire runs wrk for some seconds. from, 0 to 1, is the position in the file of requests at which wrk starts.
func (b *run) fire(t *testing.T, r *Result, to target, seconds int, from float64) Sample {
	t.Helper()
	threads, once := wrkThreads, ""
	if to.once {
		threads, once = 1, "once"
	}
	args := []string{
		"-t", strconv.Itoa(threads), "-c", strconv.Itoa(to.connections), "-d", fmt.Sprintf("%ds", seconds), "-T", "10s", "-L",
		"-s", b.load, to.url, "--", to.file, strconv.Itoa(to.bytes), strconv.Itoa(threads), strconv.FormatFloat(from, 'f', 3, 64), once,
	}
	r.command("wrk", args)
	s, err := parseWrk(output(t, time.Duration(seconds)*time.Second+wrkSlack, "wrk", args...))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// mirror starts a control that gives an answer of the engine, and returns the control's URL.
func (b *run) mirror(t *testing.T, r *Result, method, pattern string, answer reply) (url string) {
	t.Helper()
	raw, err := json.Marshal(answer)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-method", method, "-route", pattern, "-answer", b.save(t, raw)}
	r.command("control", args)
	return start(t, b.control, args...).says(" is at ")
}

// turns holds the results of control and path, which run in turns.
type turns struct {
	control, path []Sample
	// These count the path's requests, the warm-up turn included:
	answers, refused int64
	unheard          int64 // upper bound on the requests in flight when their clients left
}

// compare loads control and path in turns. After each turn of the path it calls calm, which waits until the engine is
// idle.
func (b *run) compare(t *testing.T, r *Result, control, path target, calm func()) (done turns) {
	t.Helper()
	turn := func(seconds int, from float64) (c, p Sample) {
		c, p = b.fire(t, r, control, seconds, from), b.fire(t, r, path, seconds, from)
		done.answers += p.Requests
		done.refused += p.Refused
		done.unheard += int64(path.connections)
		if c.Errors+p.Errors > 0 {
			r.void("%d connections of the control and %d of the path failed or timed out", c.Errors, p.Errors)
		}
		calm()
		return c, p
	}
	turn(warmUpSeconds, 0)
	for round := range b.rounds {
		c, p := turn(b.seconds, float64(round)/float64(b.rounds))
		done.control, done.path = append(done.control, c), append(done.path, p)
	}
	return done
}

// accepted returns how many of the answers were orders. All answers have to be orders, or none; otherwise r is void.
func (d *turns) accepted(r *Result, all bool) int64 {
	switch {
	case all && d.refused > 0:
		r.void("%d of %d attempts were refused", d.refused, d.answers)
	case !all && d.refused < d.answers:
		r.void("%d of %d attempts were not refused", d.answers-d.refused, d.answers)
	}
	return d.answers - d.refused
}
