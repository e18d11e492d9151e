// Package drill breaks the engine's parts under load, as a bad day does, and holds what the clients were told against
// the books. Each row of the table is one fault or attack. `make drill` runs all of them in full and writes
// docs/drill.md; `make test` runs a short form of each. It is a module of its own, so that what it needs stays out of
// the product's.
package drill

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"flashsale/testkit/shop"
)

// full is set by `make drill`: larger crowds, longer faults, and the rows that need rights of their own.
var full = os.Getenv("DRILL") == "full"

// repeats is how often each row is run. With more than one, a row's short form has to repair what a death left within
// the time that is promised, and the times are written to the document.
var repeats = max(1, number(os.Getenv("REPEAT")))

func number(text string) int {
	n, _ := strconv.Atoi(text) // what is no number counts as nothing
	return n
}

// row is one fault or attack, what is expected of it, and what does it.
type row struct {
	number   int
	fault    string
	expected string
	run      func(d *drill)
}

func (r row) name() string { return fmt.Sprintf("%02d %s", r.number, r.fault) }

// alone are the numbers of the rows that judge latencies, or count what a shared server was asked: nothing runs beside them.
var alone = []int{23, 26, 27, 28}

// timed says that the rows' times count, so that they run one after the other.
var timed = full || repeats > 1

// recoveryTime is the longest that anything may stay wrong after a fault, and repairTime the gate after a death, where the
// rows' times count. Else the machine may be busy with something else, and no time can be promised.
var recoveryTime, repairTime = func() (time.Duration, time.Duration) {
	if timed {
		return shop.Recovery, 5 * time.Second
	}
	return time.Minute, time.Minute
}()

// together lets a test run beside others, as most of them wait most of the time.
func together(t *testing.T) {
	if !timed {
		t.Parallel()
	}
}

// rows are all of them, in the order of their numbers; one number may stand for several rows.
func rows() []row {
	list := slices.Concat(redisRows, databaseRows, crashRows, moneyRows, limitRows, attackRows, doorRows, linearRows, marathonRows, neighbourRows, failoverRows, endRows, sizeRows)
	slices.SortStableFunc(list, func(a, b row) int { return a.number - b.number })
	return list
}

func TestMain(m *testing.M) { shop.Main(m) }

func TestDrill(t *testing.T) {
	start := time.Now()
	all := rows()
	var results []result
	for _, r := range slices.Repeat(all, repeats) {
		t.Run(r.name(), func(t *testing.T) {
			if !slices.Contains(alone, r.number) {
				together(t)
			}
			d := &drill{T: t, result: result{Number: r.number, Fault: r.fault, Expected: r.expected}}
			path := artifact(t, r.name(), ".jsonl")
			t.Cleanup(func() { d.record.write(t, path) }) // after the cleanups of the row, which end its load
			start := time.Now()
			defer func() {
				d.result.Took, d.result.Passed = time.Since(start), !t.Failed()
				t.Log(d.result.line(), d.result.Happened)
				progress(d.result.line())
				if timed {
					results = append(results, d.result)
				}
			}()
			r.run(d)
		})
	}
	var bites []bite
	t.Run("teeth", func(t *testing.T) { bites = teeth(t) })
	switch {
	case repeats > 1:
		reportRepairs(t, results)
	case !full:
	case len(results) < len(all) || len(bites) < len(mutations)+len(blindings):
		progress("not all rows were run: " + reportPath + " stays as it is")
	default:
		report(t, results, bites, time.Since(start))
	}
}

// progress is for whoever waits for the full form, also without -v.
func progress(line string) {
	if timed {
		fmt.Fprintln(os.Stdout, line)
	}
}

// drill is one row under way.
type drill struct {
	*testing.T
	result result
	record record
}

// size picks the short form's number, or the full one.
func size(short, whole int) int {
	if full {
		return whole
	}
	return short
}

// span picks the short form's time, or the full one.
func span(short, whole time.Duration) time.Duration {
	if full {
		return whole
	}
	return short
}
