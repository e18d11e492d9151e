package main

import (
	"bytes"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"flashsale/test/kit/pace"
)

// module has a package of each kind: what `go test` prints of it goes through the report.
var module = map[string]string{
	"go.mod":            "module flashsale/sample\n\ngo 1.26\n",
	"good/good_test.go": "package good\n\nimport \"testing\"\n\nfunc TestDrill(t *testing.T) {\n\tt.Run(\"14 a row\", func(*testing.T) {})\n}\n",
	"bad/bad_test.go": "package bad\n\nimport \"testing\"\n\nfunc TestA(t *testing.T) {\n\tt.Log(\"not shown\")\n}\n\n" +
		"func TestB(t *testing.T) {\n\tt.Run(\"it's (b)\", func(t *testing.T) { t.Error(\"lost\") })\n}\n",
	"broken/broken_test.go": "package broken\n\nfunc f() { undefined() }\n",
	"dies/dies_test.go":     "package dies\n\nimport \"testing\"\n\nfunc TestDies(*testing.T) { panic(\"died\") }\n",
	"leaves/leaves_test.go": "package leaves\n\nimport (\"os\"; \"testing\")\n\nfunc TestMain(m *testing.M) { m.Run(); println(\"left\"); os.Exit(3) }\n\nfunc TestIt(*testing.T) {}\n",
	"skips/skips_test.go":   "package skips\n\nimport \"testing\"\n\nfunc TestSkips(t *testing.T) { t.Skip(\"no server\") }\n",
	"late/late_test.go": "package late\n\nimport (\"os\"; \"testing\")\n\nfunc TestLate(t *testing.T) {\n\tt.Run(\"a row\", func(t *testing.T) {\n" +
		"\t\tif os.Mkdir(\"seen\", 0o700) == nil {\n\t\t\tt.Error(\"" + pace.Late + "\")\n\t\t}\n\t})\n}\n",
	"slow/slow_test.go": "package slow\n\nimport \"testing\"\n\nfunc TestSlow(t *testing.T) {\n\tt.Run(\"a\", func(t *testing.T) { t.Error(\"" + pace.Late + "\") })\n}\n",
	"none/none.go":      "package none\n",
}

func TestReport(t *testing.T) {
	folder := t.TempDir()
	for name, text := range module {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	good := func(pkg string) bool { return slices.Contains([]string{"good", "late", "none"}, path.Base(pkg)) }
	rest := part{name: "rest", folder: folder, choose: not(good)}
	fine := part{name: "fine", folder: folder, choose: good}
	if run(t.Context(), &out, []part{rest, fine}, false) {
		t.Error("the report says that all tests passed")
	}
	text := out.String()
	for _, want := range []string{
		`(?m)^ok    sample/good +\d+\.\d s  row 14 a row$`,
		`(?m)^ok    sample/good +\d+\.\d s     2 tests$`,
		`(?m)^FAIL  sample/bad +\d+\.\d s  TestB/it's_\(b\)\n(      .*\n)*      +bad_test.go:10: lost$`,
		`(?m)^      again: cd \S+ && go test -count=1 -run '\^TestB\$/\^it\.s_\\\(b\\\)\$' flashsale/sample/bad$`,
		`(?m)^FAIL  sample/broken(.*\n)+.*undefined: undefined`,
		`(?m)^FAIL  sample/dies(.*\n)+.*panic: died`,
		`(?m)^FAIL  sample/leaves(.*\n)+.*left`,
		`(?m)^FAIL  sample/skips +\d+\.\d s  TestSkips\n(.*\n)*.*no server`,
		`(?m)^late  sample/slow +\d+\.\d s  TestSlow/a: runs again at the end, alone\n(.*\n)*FAIL  sample/slow +\d+\.\d s  TestSlow/a$`,
		`\n\d+ passed, \d+ failed: look for FAIL in rest\n$`,
	} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("the report has no %s", want)
		}
	}
	if strings.Contains(text, "not shown") || strings.Count(text, "lost") != 1 {
		t.Error("the report shows more than the output of failed tests, or shows it twice")
	}
	if t.Failed() {
		t.Log(text)
	}
	out.Reset()
	if err := os.Remove(filepath.Join(folder, "late", "seen")); err != nil {
		t.Fatal(err)
	}
	const wanted = `(?m)^late  sample/late(.*\n)*ok    sample/late +\d+\.\d s     2 tests\n(.*\n)*4 passed, 0 failed\n$`
	if !run(t.Context(), &out, []part{fine}, false) || !regexp.MustCompile(wanted).MatchString(out.String()) {
		t.Errorf("a good part: %s", &out)
	}
}

// The command of a failure repeats just that failure.
func TestAgain(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":    "module flashsale\n\ngo 1.26\n",
		"b_test.go": module["bad/bad_test.go"],
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command := again(part{folder: "."}, false, "flashsale", "TestB/it's_(b)")
	cmd := exec.CommandContext(t.Context(), "sh", "-c", command+" -v")
	cmd.Dir = folder
	text, err := cmd.CombinedOutput()
	if err == nil || strings.Count(string(text), "=== RUN") != 2 || !strings.Contains(string(text), "lost") {
		t.Errorf("%s: %v, %s", command, err, text)
	}
}

// Each module with tests is a part, or several, so that no test is forgotten.
func TestEveryModuleIsTested(t *testing.T) {
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.IsDir() && entry.Name() == "build" {
			return filepath.SkipDir // of fetched and built tools
		}
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		module := filepath.Dir(path)
		for ; ; module = filepath.Dir(module) {
			if _, err := os.Stat(filepath.Join(module, "go.mod")); err == nil {
				break
			}
		}
		folder, err := filepath.Rel(root, module)
		if !slices.ContainsFunc(parts, func(p part) bool { return p.folder == folder }) {
			t.Errorf("%s is in no part", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
