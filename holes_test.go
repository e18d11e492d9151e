package main_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	// holes is the number of rows in docs/holes.md. Their numbers rise; some are missing.
	holes = 46 + 33
	// world is the number of rows in its section about the world.
	world = 25
	// features is the number of rows in docs/features.md: 27 of the articles, and 19 beyond them.
	features = 27 + 19
)

// listedTest is how a document names a test.
var listedTest = regexp.MustCompile("`([a-z0-9_/]+_test\\.go): (Test[A-Za-z0-9_]+)`")

// listed returns the tests that a cell of a table names, each as file and name. All of them must exist.
func listed(t *testing.T, row, cell string, tests map[string][]string) (list []string) {
	t.Helper()
	entries := listedTest.FindAllStringSubmatch(cell, -1)
	if len(entries) == 0 || len(entries) != strings.Count(cell, "`")/2 {
		t.Errorf("%s: no test can be read from %q", row, cell)
	}
	for _, e := range entries {
		if !slices.Contains(tests[e[1]], e[2]) {
			t.Errorf("%s: %s has no %s", row, e[1], e[2])
		}
		list = append(list, e[1]+" "+e[2])
	}
	return list
}

// Each hole has a test that exists, and each test that is named after a hole is in the hole's row.
func TestHolesHaveTests(t *testing.T) {
	row := regexp.MustCompile(`(?m)^\| (\d+) \| ([^|]+) \| (.*) \| ([0-9, ]*) ?\|$`)
	tests, drilled := testFunctions(t), drillRows(t)
	holeOf := map[string]string{}
	last, count := 0, 0
	for _, cells := range row.FindAllStringSubmatch(read(t, "docs/holes.md"), -1) {
		number, err := strconv.Atoi(cells[1])
		if err != nil || number <= last {
			t.Fatalf("row %s of docs/holes.md comes after row %d", cells[1], last)
		}
		last = number
		count++
		for _, test := range listed(t, "hole "+cells[1], cells[3], tests) {
			holeOf[test] = cells[1]
		}
		subset(t, "hole "+cells[1], found(cells[4], regexp.MustCompile(`\d+`)), "a row of the drill", drilled)
	}
	if count != holes {
		t.Errorf("docs/holes.md has %d rows, want %d", count, holes)
	}
	outside := regexp.MustCompile(`(?m)^\| (W\d+) \| [^|]+ \| ([^|]+) \|$`).FindAllStringSubmatch(read(t, "docs/holes.md"), -1)
	for _, cells := range outside {
		listed(t, "hole "+cells[1], cells[2], tests)
	}
	if len(outside) != world {
		t.Errorf("docs/holes.md has %d rows from the world, want %d", len(outside), world)
	}
	named := regexp.MustCompile(`^TestHole0*(\d+)_`)
	for file, names := range tests {
		for _, name := range names {
			if number := named.FindStringSubmatch(name); number != nil && holeOf[file+" "+name] != number[1] {
				t.Errorf("%s in %s is not in row %s of docs/holes.md", name, file, number[1])
			}
		}
	}
}

// Each feature is made in files that exist, and shown by tests that exist.
func TestFeaturesHaveTests(t *testing.T) {
	row := regexp.MustCompile(`(?m)^\| ([MN]\d+) \| [^|]+ \| ([^|]+) \| ([^|]+) \|$`)
	tests := testFunctions(t)
	rows := row.FindAllStringSubmatch(read(t, "docs/features.md"), -1)
	if len(rows) != features {
		t.Errorf("docs/features.md has %d rows, want %d", len(rows), features)
	}
	for _, cells := range rows {
		listed(t, "feature "+cells[1], cells[3], tests)
		made := found(cells[2], regexp.MustCompile("`([^`]+)`"))
		if len(made) == 0 {
			t.Errorf("feature %s: no file in %q", cells[1], cells[2])
		}
		for _, file := range made {
			if _, err := os.Stat(file); err != nil {
				t.Errorf("feature %s: %v", cells[1], err)
			}
		}
	}
}

// testFunctions returns the tests of the tree by file, including those of other modules.
func testFunctions(t *testing.T) map[string][]string {
	t.Helper()
	tests := map[string][]string{}
	for _, name := range walk(t, ".", "_test.go") {
		tree, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		noError(t, err)
		for _, declared := range tree.Decls {
			if f, ok := declared.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				tests[name] = append(tests[name], f.Name.Name)
			}
		}
	}
	return tests
}

// drillRows returns the numbers of the drill's rows.
func drillRows(t *testing.T) (numbers []string) {
	t.Helper()
	for _, file := range walk(t, "test/fault", "_test.go") {
		numbers = append(numbers, found(read(t, file), regexp.MustCompile(`(?m)(?:^\t+|\brow)\{(\d+), `))...)
	}
	return numbers
}
