package fault

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"flashsale/test/kit/pace"
	"flashsale/test/kit/shop"
)

// These tests check that the drill finds faults. Runs that the engine passes are repeated on engines without one of
// their safeguards, and must fail. The constraints of the schema would hide two of the changes, so these two also change
// the schema: the subject is what the drill finds.

// edit replaces a text that occurs exactly once in a file of the engine.
type edit struct{ file, before, after string }

// mutation is a change that a run must find.
type mutation struct {
	change   string
	expected string
	edits    []edit
	row      string // begins the name of the row that runs, in its full form; empty: asIs runs
	says     string // a regular expression that the output of the run must match
	passed   bool
}

// asIs is the name of the run of bothWays.
const asIs = "the engine as it is"

const schema = "migrations/mysql/00001_engine.sql"

var mutations = []mutation{
	{
		change: "no constraint on the stock", expected: "over: more sold than the quota",
		edits: []edit{
			{schema, "  CONSTRAINT stock_not_negative CHECK (available >= 0 AND reserved >= 0 AND called >= 0 AND held >= 0 AND paid >= 0),\n", ""},
		},
		says: `over .*\d+ sold of \d+.*negative stock`,
	},
	{
		change: "no id check", expected: "doubled: two orders of one idempotency key",
		edits: []edit{
			{
				"repository/sell.go",
				"\tknown, err := s.knownOutcomes(tx, attempts)\n\tif err != nil {\n\t\treturn nil, err\n\t}\n\treturn newBatch(attempts, known), nil\n",
				"\treturn newBatch(attempts, nil), nil\n",
			},
			{"repository/deduct.go", "\tknown, err := s.knownOutcomes(db, attempts)\n", "\tknown, err := map[string]model.Outcome(nil), error(nil)\n"},
			{schema, "  UNIQUE KEY orders_id (", "  KEY orders_id ("},
		},
		says: `doubled [1-9]`,
	},
	{
		change: "no limit check", expected: "over: a user above the limit",
		edits: []edit{
			{
				"repository/sell.go",
				"return u.n > limits[u.sale] })", "return u.n > limits[u.sale]+1000 })",
			},
			{"repository/sell.go", "\t\tif !allNew {\n", "\t\tif !allNew && false {\n"},
			{"repository/attempts.go", "\t\tcase slices.ContainsFunc(limits, func(l userLimit) bool { return l.units[a.UserID]+a.Quantity > l.limit }):\n", "\t\tcase false:\n"},
		},
		says: fmt.Sprintf(`holds \d+ of %d"`, mutationLimit),
	},
	{
		change: "no common limit in the database", expected: "over: a user above the limit of the campaign",
		edits: []edit{{"repository/units.go", "\tif len(campaigns) == 0 {\n", "\tif len(campaigns) >= 0 {\n"}},
		row:   "81", says: `u-\d+ has \d+ of 3`,
	},
	{
		change: "201 before the commit", expected: "lost: confirmed orders that are not there",
		edits: []edit{
			{"service/purchase.go", "Quantity: a.Quantity, Status: model.OrderQueued,", "Quantity: a.Quantity, Status: model.OrderPending,"},
			{"service/purchase.go", "Verdict: model.Queued, Repeated: repeated", "Verdict: model.Accepted, Repeated: repeated"},
			{"service/purchase.go", "\treturn p.AckWait\n", "\treturn 0\n"},
		},
		says: `lost [1-9]`,
	},
	{
		change: "lost is told, and not written", expected: "a final answer that changes",
		edits: []edit{{
			"service/orders.go", "\te := model.Entry{Attempt: model.Attempt{ID: id, SaleID: model.SaleOf(id), UserID: userID}}\n",
			"\te := model.Entry{Attempt: model.Attempt{ID: id, SaleID: model.SaleOf(id), UserID: userID}}\n" +
				"\tif e.ID != \"\" {\n\t\treturn model.Order{ID: id, SaleID: e.SaleID, UserID: userID, Status: model.OrderRejected, Reason: model.ReasonLost}, nil\n\t}\n",
		}},
		row: "47", says: `was told to be rejected, and is`,
	},
	{
		change: "writers wait for a locked sale", expected: "another sale that is not confirmed",
		edits: []edit{{"worker/settler.go", "writerPatience = 100 * time.Millisecond", "writerPatience = time.Hour"}},
		row:   "49", says: `202|the slowest in a hundred waited`,
	},
	{
		change: "connections to a read-only server stay", expected: "no sales after the move",
		edits: []edit{
			{"repository/mysql.go", "cfg.RejectReadOnly = true ", "cfg.RejectReadOnly = false "},
			{"repository/db.go", "\t\ts.renew()\n\t\treturn errReadOnly\n", "\t\treturn errReadOnly\n"},
		},
		row: "51", says: `FAIL`,
	},
	{
		change: "a rebuild in one page", expected: "too much memory, or too long a pause",
		edits: []edit{{"repository/rows.go", "pageRows = 1000", "pageRows = 10_000_000"}},
		row:   "53", says: `MiB more, a command of Redis took|the gate is replaced: not within`,
	},
	{
		change: "the caller calls without units", expected: "L1: more called than there is",
		edits: []edit{
			{"repository/lines.go", "\t\t\tif !found || units == stock.Reserved {\n", "\t\t\tif !found {\n"},
			{"repository/lines.go", "\t\t\tn := min(int64(e.Quantity), stock.LimitPerUser, stock.Reserved-units)\n", "\t\t\tn := int64(e.Quantity)\n"},
			{schema, "(available >= 0 AND reserved >= 0 AND called >= 0 AND held >= 0 AND paid >= 0)", "(available >= 0)"},
		},
		row: "71", says: `L1: negative stock`,
	},
	{
		change: "who is called gets a size without units", expected: "L1: a size below zero",
		edits: []edit{
			{"repository/entries.go", "\t\tcase int64(a.Quantity) > left:\n", "\t\tcase false:\n"},
			{schema, "(available >= 0 AND reserved >= 0 AND called >= 0 AND held >= 0 AND paid >= 0)", "(available >= 0)"},
		},
		row: "82", says: `L1: a size: negative stock`,
	},
	{
		change: "an entrant enters again", expected: "L2: a user with two entries",
		edits: []edit{
			{"repository/entries.go", "\t\t\te, has := known[wish.UserID]\n", "\t\t\te, has := model.LineEntry{}, false\n"},
			{schema, "  UNIQUE KEY entries_user (", "  KEY entries_user ("},
		},
		row: "67", says: `L2: \S+ has two entries`,
	},
	{
		change: "the seal moves on with late entries", expected: "L4: another number of sealed entries",
		edits: []edit{{
			"repository/lines.go", "offer.Judge(now), line.Phase, line.Sealed\n",
			"offer.Judge(now), line.Phase, line.Entries\n",
		}},
		row: "67", says: `L4: (the seal was|\d+ were sealed)`,
	},
	{
		change: "calls go by arrival", expected: "L3: a rank that was passed over",
		edits: []edit{{"service/caller.go", "append(numbers, order.Number(rank))", "append(numbers, order.Number(rank)-order.Number(rank)+rank)"}},
		row:   "71", says: `L3: rank \d+ (was passed over|had its turn before its time)`,
	},
	{
		change: "units that come back are open to all", expected: "L5: an order of a user without an entry, while others wait",
		edits: []edit{
			{"repository/release.go", "\tcase stock.Lined == model.InLine:\n", "\tcase false:\n"},
			{"repository/release.go", "\tcase stock.Lined == model.LinedAtSoldOut && stock.Available == 0:", "\tcase false:"},
			{"service/purchase.go", "\tif inLine {\n", "\tif false {\n"},
			{schema, "CHECK (lined < 2 OR available = 0)", "CHECK (lined < 4)"},
		},
		row: "73", says: `L5: kept-\d+ never entered`,
	},
}

// found repeats the run on the changed engine until it fails as it has to, and reports whether it did. Some changes do
// harm only if both instances sell the last units at the same moment, which a run may miss.
func (m mutation) found(t *testing.T) bool {
	t.Helper()
	pattern := "^TestDrill$/^mutations$/^" + asIs + "$"
	if m.row != "" {
		pattern = "^TestDrill$/^" + m.row + " "
	}
	replaced := "GOFLAGS=-overlay=" + overlay(t, m.edits)
	var out []byte
	for range mutationRuns {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.count=1", "-test.timeout=20m", "-test.run="+pattern)
		cmd.Env = append(os.Environ(), replaced)
		var err error
		out, err = cmd.CombinedOutput()
		if _, failed := errors.AsType[*exec.ExitError](err); failed && regexp.MustCompile(m.says).Match(out) {
			return true
		}
	}
	t.Errorf("not found in %d runs (%s): %s", mutationRuns, m.expected, out)
	return false
}

// compile builds the packages that a mutation changes. A change that does not compile would not be found by any run.
func (m mutation) compile(t *testing.T) {
	t.Helper()
	args := []string{"build", "-overlay=" + overlay(t, m.edits)}
	for _, e := range m.edits {
		if strings.HasSuffix(e.file, ".go") {
			args = append(args, "./"+filepath.Dir(e.file))
		}
	}
	if len(args) == 2 {
		return
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = shop.Root()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("mutation %q: %v: %s", m.change, err, out)
	}
}

// mutate runs the engine as it is, which must pass, and with each of the changes, which must not. The short form only
// looks whether the changes can still be made: the checkers have tests of their own, and the simulation has mutations.
func mutate(t *testing.T) (runs []mutation) {
	for _, m := range mutations {
		m.compile(t)
	}
	if !full {
		return nil
	}
	t.Run(asIs, func(t *testing.T) {
		pace.Try(t, func(t *pace.Trial) {
			f, err := (&drill{TB: t}).bothWays()
			if !f.sound() {
				t.Fatalf("%s: %v", f, err)
			}
			if err != nil {
				t.FatalSlowf("%s: %v", f, err)
			}
		})
	})
	for _, m := range mutations {
		t.Run(m.change, func(t *testing.T) {
			m.passed = m.found(t)
			progress("mutation: " + m.change + ": " + verdict(m.passed))
			runs = append(runs, m)
		})
	}
	return runs
}

// overlay writes changed copies of the engine's files, and returns the overlay file for `go build`.
func overlay(t *testing.T, edits []edit) string {
	t.Helper()
	texts := map[string]string{}
	for _, e := range edits {
		path := filepath.Join(shop.Root(), e.file)
		if _, again := texts[path]; !again {
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			texts[path] = string(raw)
		}
		if n := strings.Count(texts[path], e.before); n != 1 {
			t.Fatalf("the engine has changed, and this mutation must follow it: %s has %q %d times, not once", e.file, e.before, n)
		}
		texts[path] = strings.Replace(texts[path], e.before, e.after, 1)
	}
	folder, replace := t.TempDir(), map[string]string{}
	for path, text := range texts {
		replace[path] = filepath.Join(folder, strings.ReplaceAll(path, "/", "-"))
		if err := os.WriteFile(replace[path], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := json.Marshal(map[string]any{"Replace": replace})
	path := filepath.Join(folder, "overlay.json")
	if err := errors.Join(err, os.WriteFile(path, raw, 0o600)); err != nil {
		t.Fatal(err)
	}
	return path
}

// mutationRuns bounds the runs on each changed engine.
const mutationRuns = 4

// mutationLimit is how many units a user may have in the run below: enough that a second order under the same key does not
// fail at the limit.
const mutationLimit = 2

// bothWays sells on two instances, through Redis on one and from the database alone on the other, which has no Redis,
// until more is asked for than is left. Meanwhile Redis is wiped twice. Some users ask on both instances under the same
// key, and some ask for more than they may have.
func (d *drill) bothWays() (findings, error) {
	d.Helper()
	d.stores()
	gated, alone := d.gatedAndAlone()
	d.urls = []string{gated.URL, alone.URL}
	groups := size(40, 400) // groups of buyers for each wipe
	d.quota = 25 * groups   // the wiped groups buy less than half of it; the last ones ask for more than the rest
	d.sale = d.SaleWith(gated.URL, shop.Document{"quota": d.quota, "limit_per_user": mutationLimit})
	client := d.client(d.Redis)
	for wipe := range 2 {
		d.send(groupsOf(groups, fmt.Sprint("wiped", wipe), gated.URL, alone.URL), func() {
			if err := client.FlushAll(d.Context()).Err(); err != nil {
				d.Error(err)
			}
		})
		d.gateThere(d.sale, gated.URL)
	}
	d.send(groupsOf(4*groups, "last", gated.URL, alone.URL), func() {})
	return d.sellRest(d.sale, d.quota, mutationLimit, recoveryTime, d.attempts)
}

// groupsOf returns n groups of four buyers: one asks on both instances under one key; one asks for more than a user may
// have, also on both; and one on each instance asks once. A group may have five units.
func groupsOf(n int, prefix, gated, alone string) (list []shop.Attempt) {
	for i := range n {
		for _, asks := range []struct {
			kind string
			key  int
			url  string
		}{
			{"twice", 1, gated},
			{"twice", 1, alone},
			{"greedy", 1, gated},
			{"greedy", 2, alone},
			{"greedy", 3, gated},
			{"modest", 1, gated},
			{"frugal", 1, alone},
		} {
			user := fmt.Sprintf("%s-%s%d", prefix, asks.kind, i)
			list = append(list, shop.Attempt{User: user, Key: fmt.Sprintf("%s-%d", user, asks.key), URL: asks.url})
		}
	}
	return list
}

// send lets buyers buy in the given order, a crowd at once, and calls half when half of them have their answers.
func (d *drill) send(attempts []shop.Attempt, half func()) {
	var answered atomic.Int64
	inParallel(crowd, len(attempts), func(i int) {
		d.Buy(&attempts[i], d.sale)
		if answered.Add(1) == int64(len(attempts)/2) {
			half()
		}
	})
	d.attempts = append(d.attempts, attempts...)
}
