package main_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// holes is how many there are. Their numbers rise; some are missing.
const holes = 46 + 14

// listedTest is how a document names a test.
var listedTest = regexp.MustCompile("`([a-z0-9_/]+_test\\.go): (Test[A-Za-z0-9_]+)`")

// Every hole has a test that exists, and every test that is named after a hole stands in its row.
func TestHolesHaveTests(t *testing.T) {
	row := regexp.MustCompile(`(?m)^\| (\d+) \| ([^|]+) \| (.*) \| ([0-9, ]*) ?\|$`)
	tests := testFunctions(t)
	drilled := drillRows(t)
	listed := map[string]string{}
	last, count := 0, 0
	for _, cells := range row.FindAllStringSubmatch(read(t, "docs/holes.md"), -1) {
		number, err := strconv.Atoi(cells[1])
		if err != nil || number <= last {
			t.Fatalf("row %s of docs/holes.md comes after row %d", cells[1], last)
		}
		last = number
		count++
		entries := listedTest.FindAllStringSubmatch(cells[3], -1)
		if len(entries) == 0 || len(entries) != strings.Count(cells[3], "`")/2 {
			t.Errorf("hole %s: no test can be read from %q", cells[1], cells[3])
		}
		for _, e := range entries {
			if !slices.Contains(tests[e[1]], e[2]) {
				t.Errorf("hole %s: there is no %s in %s", cells[1], e[2], e[1])
			}
			listed[e[1]+" "+e[2]] = cells[1]
		}
		for _, number := range found(cells[4], regexp.MustCompile(`\d+`)) {
			if !slices.Contains(drilled, number) {
				t.Errorf("hole %s: the drill has no row %s", cells[1], number)
			}
		}
	}
	if count != holes {
		t.Errorf("docs/holes.md has %d rows, want %d", count, holes)
	}
	named := regexp.MustCompile(`^TestHole0*(\d+)_`)
	for file, names := range tests {
		for _, name := range names {
			number := named.FindStringSubmatch(name)
			if number != nil && listed[file+" "+name] != number[1] {
				t.Errorf("%s in %s is not in row %s of docs/holes.md", name, file, number[1])
			}
		}
	}
}

// features is how many rows there are: 27 of the articles, and nine beyond them.
const features = 27 + 9

// Every feature is made in files that exist, and shown by tests that exist.
func TestFeaturesHaveTests(t *testing.T) {
	row := regexp.MustCompile(`(?m)^\| ([MN]\d+) \| [^|]+ \| ([^|]+) \| ([^|]+) \|$`)
	made := regexp.MustCompile("`([^`]+)`")
	tests := testFunctions(t)
	rows := row.FindAllStringSubmatch(read(t, "docs/features.md"), -1)
	if len(rows) != features {
		t.Errorf("docs/features.md has %d rows, want %d", len(rows), features)
	}
	for _, cells := range rows {
		files, entries := found(cells[2], made), listedTest.FindAllStringSubmatch(cells[3], -1)
		if len(files) == 0 || len(entries) == 0 || len(entries) != strings.Count(cells[3], "`")/2 {
			t.Errorf("feature %s: not a file and a test in %q and %q", cells[1], cells[2], cells[3])
		}
		for _, file := range files {
			if _, err := os.Stat(file); err != nil {
				t.Errorf("feature %s: %v", cells[1], err)
			}
		}
		for _, e := range entries {
			if !slices.Contains(tests[e[1]], e[2]) {
				t.Errorf("feature %s: there is no %s in %s", cells[1], e[2], e[1])
			}
		}
	}
}

// testFunctions are the tests of the tree, other modules' included, by file.
func testFunctions(t *testing.T) map[string][]string {
	t.Helper()
	tests := map[string][]string{}
	err := fs.WalkDir(os.DirFS("."), ".", func(name string, entry fs.DirEntry, err error) error {
		base := path.Base(name)
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && (strings.HasPrefix(base, ".") || base == "data" || base == "build" || base == "testdata"):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, "_test.go"):
			return nil
		}
		tree, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, declared := range tree.Decls {
			if f, ok := declared.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				tests[name] = append(tests[name], f.Name.Name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tests
}

// drillRows are the numbers of the drill's rows.
func drillRows(t *testing.T) []string {
	t.Helper()
	list, err := fs.Glob(os.DirFS("."), "test/fault/*_test.go")
	if err != nil || len(list) == 0 {
		t.Fatalf("the drill's files: %v, %v", list, err)
	}
	var numbers []string
	for _, file := range list {
		numbers = append(numbers, found(read(t, file), regexp.MustCompile(`(?m)(?:^\t+|\brow)\{(\d+), `))...)
	}
	return numbers
}
