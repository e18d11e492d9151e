// Package fault injects faults and attacks under load, and compares what the clients were told with the books. Each row
// of the table is one fault or attack. `make drill` runs all rows in full and writes docs/drill.md; `make test` runs a
// short form of each. The package is a module of its own, so that its dependencies stay out of the product's.
package fault

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"flashsale/test/kit/pace"
	"flashsale/test/kit/shop"
)

// full is set by `make drill`: larger crowds, longer faults, and forms of rows that need additional rights.
var full = os.Getenv("DRILL") == "full"

// repeats is how often each row runs. If it is more than one, the short form of a row has to repair what a killed
// instance left within the documented time, and the times are written to the document.
var repeats = max(1, number(os.Getenv("REPEAT")))

// timed is set if the rows' times count; the rows then run one after the other.
var timed = full || repeats > 1

// recoveryTime is the longest that anything may stay wrong after a fault, and repairTime the longest that a gate may
// stay wrong after a death. If the rows' times don't count, the machine may be busy with other work, and both are a
// minute.
var recoveryTime, repairTime = func() (time.Duration, time.Duration) {
	if timed {
		return shop.Recovery, 5 * time.Second
	}
	return time.Minute, time.Minute
}()

func number(text string) int {
	n, _ := strconv.Atoi(text) // 0 if text is not a number
	return n
}

// size returns what the short form or the full form of a row takes.
func size[T any](short, whole T) T {
	if full {
		return whole
	}
	return short
}

// row is one fault or attack, the expected outcome, and the function that runs it.
type row struct {
	number   int
	fault    string
	expected string
	run      func(d *drill)
}

func (r row) name() string { return fmt.Sprintf("%02d %s", r.number, r.fault) }

// rows returns all rows in the order of their numbers. Several rows may share a number.
func rows() []row {
	list := slices.Concat(redisRows, databaseRows, crashRows, moneyRows, limitRows, attackRows, doorRows, linearRows,
		marathonRows, neighbourRows, failoverRows, endRows, sizeRows, repeatRows, marketRows, outsideRows, providerRows, lineRows, clusterRows, campaignRows, refundRows, asleepRows, lockedRows, gatherRows)
	slices.SortStableFunc(list, func(a, b row) int { return a.number - b.number })
	return list
}

// alone lists the rows that run alone, by number: they judge latencies, or count the requests to a shared server.
var alone = []int{23, 26, 27, 28}

// together lets a test run beside others, because most tests wait most of the time. Where the whole process stands still
// for a row, the rows run one after the other.
func together(t *testing.T) {
	if !timed && standstill == 0 {
		t.Parallel()
	}
}

func TestMain(m *testing.M) {
	_ = mysql.SetLogger(&mysql.NopLogger{}) // connection errors are expected, since a row may kill the database
	shop.Main(m)
}

func TestDrill(t *testing.T) {
	start := time.Now()
	all := rows()
	var results []result
	for _, r := range slices.Repeat(all, repeats) {
		t.Run(r.name(), func(t *testing.T) {
			if !slices.Contains(alone, r.number) {
				together(t)
			}
			path := artifact(t, r.name(), ".jsonl")
			var last result
			pace.Try(t, func(t *pace.Trial) {
				d := &drill{TB: t, limit: 1, result: result{Number: r.number, Fault: r.fault, Expected: r.expected}}
				t.Cleanup(func() { d.record.write(t, path) }) // runs after the row's own cleanups, which end its load
				start := time.Now()
				defer func() {
					d.result.Took, d.result.Passed = time.Since(start), !t.Failed()
					d.result.Happened = strings.TrimPrefix(t.Before+"; "+d.result.Happened, "; ")
					t.Log(d.result.line(), d.result.Happened)
					progress(d.result.line())
					last = d.result
				}()
				r.run(d)
			})
			if timed {
				results = append(results, last)
			}
		})
	}
	var runs []mutation
	t.Run("mutations", func(t *testing.T) { runs = mutate(t) })
	switch {
	case repeats > 1:
		reportRepairs(t, results)
	case !full:
	case len(results) < len(all) || len(runs) < len(mutations):
		progress("not all rows were run: " + reportPath + " stays as it is")
	default:
		report(t, results, runs, time.Since(start))
	}
}

// progress prints a line to stdout in a timed run, also without -v.
func progress(line string) {
	if timed {
		fmt.Fprintln(os.Stdout, line)
	}
}
