//go:build bench && linux

package bench

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"flashsale/lab"
	"flashsale/test/kit"
	"flashsale/test/kit/check"
	"flashsale/test/kit/shop"
)

const (
	wrkConnections = 100
	// toolTimeout is the limit for a tool, far above the longest turn.
	toolTimeout = 5 * time.Minute
	// warmUpSeconds is the length of a turn before the first round, which fills caches and pools and does not count.
	warmUpSeconds = 1
)

func TestMain(m *testing.M) { shop.Main(m) }

// run holds what all rows share.
type run struct {
	rounds, seconds int
	control         string // program
	beside          string // program that runs as the control of each load, on stores of its own; empty: none
}

// TestBench measures every row whose name matches BENCH_ROWS (a regular expression; default: all), in BENCH_ROUNDS (5)
// rounds of BENCH_SECONDS (5) seconds each. A missed goal does not fail the test; wrong books do. A run of all rows
// writes the report to docs, and a run of some rows puts them in place of the old ones there if BENCH_KEEP is set. A run
// of no row (BENCH_ROWS='^$') then writes the same figures anew. If BENCH_BESIDE names a program of another revision, that
// is the control of each load, and nothing is written.
func TestBench(t *testing.T) {
	selected := regexp.MustCompile(os.Getenv("BENCH_ROWS"))
	b := &run{setting(t, "BENCH_ROUNDS", 5), setting(t, "BENCH_SECONDS", 5), filepath.Join(t.TempDir(), "control"), os.Getenv("BENCH_BESIDE")}
	output(t, "go", "build", "-o", b.control, "./control")
	report := &Report{StartedAt: time.Now(), Machine: lab.ThisMachine(), Settings: b.settings(t)}
	for _, row := range rows() {
		if !selected.MatchString(row.name) {
			continue
		}
		r := &Result{Name: row.name}
		report.Results = append(report.Results, r)
		if !t.Run(row.name, func(t *testing.T) { row.measure(t, b, r) }) {
			r.void("it broke off, see the test's output")
		}
		if r.Void != "" {
			t.Errorf("%s is void: %s", r.Name, r.Void)
		}
	}
	report.TookSeconds = int(time.Since(report.StartedAt).Seconds())
	t.Log(report.markdown(nil) + report.notes())
	const folder = "../../docs"
	switch {
	case b.beside != "":
	case len(report.Results) == len(rows()):
		check.NoError(t, report.write(folder))
	case os.Getenv("BENCH_KEEP") != "":
		var whole Report
		raw, err := os.ReadFile(filepath.Join(folder, "performance.json"))
		check.NoError(t, err, json.Unmarshal(raw, &whole))
		whole.replace(report)
		check.NoError(t, whole.write(folder))
	}
}

func setting(t *testing.T, name string, otherwise int) int {
	t.Helper()
	n, err := strconv.Atoi(cmp.Or(os.Getenv(name), strconv.Itoa(otherwise)))
	if err != nil || n < 1 {
		t.Fatalf("%s: want a number from 1, not %q", name, os.Getenv(name))
	}
	return n
}

// settings returns what a reader must know about versions, settings and commands.
func (b *run) settings(t *testing.T) map[string]string {
	t.Helper()
	var mariadb string
	err := kit.MariaDB(t, redoLog).Root(t).QueryRowContext(t.Context(), `SELECT CONCAT(VERSION(),
		', innodb_flush_log_at_trx_commit=', @@innodb_flush_log_at_trx_commit, ' innodb_flush_method=', @@innodb_flush_method,
		' innodb_buffer_pool_size=', @@innodb_buffer_pool_size, ' innodb_log_file_size=', @@innodb_log_file_size,
		' log_bin=', @@log_bin)`).Scan(&mariadb)
	check.NoError(t, err)
	versions := output(t, "sh", "-c", `git describe --always --dirty; redis-server --version; wrk -v | head -1
		ab -V | head -1; uname -sr; stat -f -c 'file system %T' "$0"`, t.TempDir())
	return map[string]string{
		"Versions": strings.ReplaceAll(strings.TrimSpace(versions), "\n", "; "),
		"MariaDB":  mariadb + "; on tmpfs a flush costs nothing, so confirmed rates don't count there",
		"Redis":    "appendonly=no save=''",
		"SQLite":   "journal_mode=WAL synchronous=FULL",
		"Engine":   "`flashsale serve --database=$DATABASE --redis=$REDIS " + strings.Join(engineArgs, " ") + "`",
		"Control":  "bare Gin in release mode, one route, reads the body and the Authorization header, gives the engine's own answer",
		"Load":     "`wrk -t 2 -c 100 -T 10s -s load.lua`, keep-alive, 20,000 buyers unless the row says otherwise",
		"Rounds":   fmt.Sprintf("%d of %d s, control and path in turns, after %d s to warm up", b.rounds, b.seconds, warmUpSeconds),
	}
}

// output runs a tool to its end and returns what it printed.
func output(t *testing.T, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), toolTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", program, err, out)
	}
	return string(out)
}

// turn loads a server for some seconds. from, 0 to 1, is the position in the requests at which it starts.
type turn func(seconds int, from float64) Sample

// wrk writes n requests of the same length to a file, and returns turns in which wrk sends them to a server, over and
// over or each once.
func wrk(t *testing.T, n, connections int, once bool, request func(i int) string) (at func(url string) turn) {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "requests"))
	check.NoError(t, err)
	length := len(request(0))
	out := bufio.NewWriter(file)
	for i := range n {
		text := request(i)
		if len(text) != length {
			t.Fatalf("a request has %d bytes, others have %d", len(text), length)
		}
		_, _ = out.WriteString(text) // Flush returns the error
	}
	check.NoError(t, out.Flush(), file.Close())
	threads, times := strconv.Itoa(min(connections, 2)), ""
	if once {
		threads, times = "1", "once"
	}
	return func(url string) turn {
		return func(seconds int, from float64) (s Sample) {
			t.Helper()
			// wrk needs an open file for each connection.
			out := output(t, "sh", "-c", `ulimit -n "$(ulimit -H -n)" && exec wrk "$@"`, "wrk", "-t", threads,
				"-c", strconv.Itoa(connections), "-d", strconv.Itoa(seconds), "-T", "10s", "-s", "load.lua",
				url, "--", file.Name(), strconv.Itoa(length), threads, fmt.Sprint(from), times)
			_, figures, _ := strings.Cut(out, "{")
			if err := json.Unmarshal([]byte("{"+figures), &s); err != nil {
				t.Fatalf("wrk printed no figures: %v\n%s", err, out)
			}
			return s
		}
	}
}

// compare loads control and path in turns.
func (b *run) compare(r *Result, control, path turn) {
	_, _ = control(warmUpSeconds, 0), path(warmUpSeconds, 0)
	for round := range b.rounds {
		from := float64(round) / float64(b.rounds)
		r.Control = append(r.Control, control(b.seconds, from))
		r.Path = append(r.Path, path(b.seconds, from))
		if n := r.Control[round].Errors; n > 0 {
			r.void("%d connections of the control's turn failed or timed out", n)
		}
	}
}
