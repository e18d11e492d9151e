package main_test

import (
	"bytes"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"flashsale/internal/config"
	"flashsale/strategy"
)

// Each test compares two lists that are kept in different places of the repository. None of them may be empty, or the test
// would compare nothing.

func TestStrategiesAreTheSameEverywhere(t *testing.T) {
	field, ok := reflect.TypeFor[config.Settings]().FieldByName("Strategy")
	if !ok {
		t.Fatal("config.Settings has no Strategy")
	}
	want := sorted(strategy.Names())
	same(t, "the enum in internal/config/settings.go", sorted(strings.Split(field.Tag.Get("enum"), ",")), "strategy.Names()", want)
	rows := found(section(t, read(t, "README.md"), "## Strategies"), regexp.MustCompile("(?m)^\\| `([a-z]+)`"))
	same(t, "the table in README.md", rows, "strategy.Names()", want)
	enum := found(read(t, "web/openapi.yaml"), regexp.MustCompile(`\n    Strategy:\n      type: string\n      enum: \[(.+)\]`))
	same(t, "the enum in web/openapi.yaml", sorted(strings.Split(strings.Join(enum, ""), ", ")), "strategy.Names()", want)
	for _, name := range want {
		if lesson := "var " + name + "Lesson = model.Lesson{"; !strings.Contains(read(t, "strategy/"+name+".go"), lesson) {
			t.Errorf("strategy/%s.go has no %q", name, lesson)
		}
	}
}

// The two READMEs have the same headings, commands, links, names and figures.
func TestReadmesSayTheSame(t *testing.T) {
	english, chinese := read(t, "README.md"), read(t, "README.zh-CN.md")
	for what, pattern := range map[string]string{
		"headings' depths": `(?m)^#+ `,
		"commands":         "(?s)```[a-z]+\n.*?```",
		"links":            `\]\((?:docs|CON|CHANGE)[^)]*\)`,
		"names":            "`[^`\n]+`",
		"figures":          `\d+(?:[.,]\d+)*(?: ms)?`,
	} {
		of := regexp.MustCompile(pattern)
		a, b := of.FindAllString(english, -1), of.FindAllString(chinese, -1)
		if what == "names" || what == "figures" { // each language has its own order of words
			a, b = sorted(a), sorted(b)
		}
		same(t, what+" of README.md", a, "README.zh-CN.md", b)
	}
}

func TestScriptsSayWhatTheyTake(t *testing.T) {
	key := regexp.MustCompile(`KEYS\[\d+\]`)
	scripts := read(t, "gate/gate.go")
	for _, file := range files(t, "gate/lua", ".lua") {
		parts := regexp.MustCompile(`(?s)\A((?:--[^\n]*\n)+)(.*)`).FindStringSubmatch(read(t, file))
		if parts == nil {
			t.Fatalf("%s does not start with a header comment", file)
		}
		header, body := parts[1], parts[2]
		if !regexp.MustCompile(`(?m)^-- (Returns|Gives) `).MatchString(header) {
			t.Errorf("the header of %s does not say what it returns", file)
		}
		for _, k := range key.FindAllString(body, -1) {
			if !strings.Contains(header, k) {
				t.Errorf("the header of %s does not name %s", file, k)
			}
		}
		if !strings.Contains(scripts, `"`+strings.TrimSuffix(path.Base(file), ".lua")+`"`) {
			t.Errorf("no script of gate/gate.go has %s", file)
		}
	}
}

func TestMigrationsAreTwins(t *testing.T) {
	mysql, sqlite := files(t, "migrations/mysql", ".sql"), files(t, "migrations/sqlite", ".sql")
	same(t, "migrations/mysql", names(mysql), "migrations/sqlite", names(sqlite))
	for _, file := range slices.Concat(mysql, sqlite) {
		text := read(t, file)
		if !strings.Contains(text, "-- +goose Up\n") || !strings.Contains(text, "-- +goose Down\n") {
			t.Errorf("%s lacks a way up or a way down", file)
		}
	}
}

func TestLinksLeadSomewhere(t *testing.T) {
	links := 0
	for _, file := range documents(t) {
		for _, target := range found(read(t, file), regexp.MustCompile(`\]\(([^)\s]+)\)`)) {
			if strings.Contains(target, "://") {
				continue
			}
			links++
			to, heading, _ := strings.Cut(target, "#")
			if to == "" {
				to = file
			} else {
				to = filepath.Join(filepath.Dir(file), to)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s: the link to %s leads nowhere", file, target)
			} else if heading != "" && !slices.Contains(anchors(read(t, to)), heading) {
				t.Errorf("%s: the link to %s leads to no heading", file, target)
			}
		}
	}
	if links == 0 {
		t.Error("no document has a link")
	}
}

// The first picture of the architecture has the imports of each folder that it shows, and no others.
func TestTheHouseIsAsDrawn(t *testing.T) {
	_, picture, _ := strings.Cut(read(t, "docs/architecture.md"), "```mermaid\nflowchart TD\n")
	picture, _, _ = strings.Cut(picture, "```")
	frames, frame := map[string][]string{}, ""
	var arrows [][2][]string
	for line := range strings.Lines(picture) {
		line = regexp.MustCompile(`\[.*\]`).ReplaceAllString(strings.TrimSpace(line), "") // the label of a box
		if name, begins := strings.CutPrefix(line, "subgraph "); begins || line == "end" {
			frame = strings.TrimSpace(strings.TrimSuffix(name, "end"))
			continue
		}
		from, to, isArrow := strings.Cut(line, " --> ")
		sources, targets := strings.Split(from, " & "), strings.Split(to, " & ")
		if isArrow {
			arrows = append(arrows, [2][]string{sources, targets})
		} else {
			targets = nil
		}
		if frame != "" {
			frames[frame] = slices.Concat(frames[frame], sources, targets)
		}
	}
	inside := func(names []string) (folders []string) {
		for _, name := range names {
			if within, isFrame := frames[name]; isFrame {
				folders = append(folders, within...)
			} else {
				folders = append(folders, name)
			}
		}
		return folders
	}
	drawn := map[string][]string{}
	for _, arrow := range arrows {
		for _, folder := range inside(arrow[0]) {
			drawn[folder] = append(drawn[folder], inside(arrow[1])...)
		}
		for _, folder := range inside(arrow[1]) {
			drawn[folder] = append(drawn[folder], []string{}...) // also a folder without imports is checked
		}
	}
	if len(drawn) < 20 {
		t.Fatalf("only %d folders are drawn", len(drawn))
	}
	for name, want := range drawn {
		folder := name
		if name == "main" {
			folder = "."
		}
		var imported []string
		sources, err := filepath.Glob(path.Join(folder, "*.go"))
		noError(t, err)
		for _, file := range sources {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
			noError(t, err)
			for _, spec := range tree.Imports {
				if name, ours := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), "flashsale/"); ours {
					imported = append(imported, name)
				}
			}
		}
		if got := sorted(imported); len(sources) == 0 || !slices.Equal(sorted(want), got) {
			t.Errorf("%s is drawn with arrows to %q and imports %q", name, sorted(want), got)
		}
	}
}

func TestDecisionsAreListed(t *testing.T) {
	listed := found(read(t, "docs/adr/README.md"), regexp.MustCompile(`\((\d{4}-[a-z-]+\.md)\)`))
	decisions := names(files(t, "docs/adr", ".md"))
	decisions = slices.DeleteFunc(decisions, func(name string) bool { return name == "README.md" })
	same(t, "docs/adr/README.md", listed, "the files in docs/adr", decisions)
	for i, name := range decisions {
		text := read(t, "docs/adr/"+name)
		if want := fmt.Sprintf("# %d. ", i+1); !strings.HasPrefix(text, want) {
			t.Errorf("docs/adr/%s does not start with %q", name, want)
		}
		for _, part := range []string{"## Context", "## Decision", "## Consequences"} {
			section(t, text, part)
		}
	}
}

func TestSettingsInDocumentsExist(t *testing.T) {
	var help bytes.Buffer
	for _, args := range [][]string{{"--help"}, {"tokens", "--help"}, {"audit", "--help"}, {"preflight", "--help"}, {"rehearse", "--help"}, {"verify-draw", "--help"}, {"keys", "create", "--help"}, {
		"lab",
		"--help",
	}} {
		if _, err := config.Parse(args, func(string) string { return "" }, &help, &help); !errors.Is(err, config.ErrHelp) {
			t.Fatal(err)
		}
	}
	variables := found(help.String(), regexp.MustCompile(`\$(FLASHSALE_[A-Z_]+)\)`))
	flags := found(help.String(), regexp.MustCompile(`--([a-z][a-z-]+)`))
	flags = append(flags, "single-transaction")                                                                   // of mysqldump
	flags = append(flags, found(read(t, "web/assets/embed.js"), regexp.MustCompile(`--(flash-sale-[a-z-]+)`))...) // properties of its style
	simulation := read(t, "test/bench/scaling/main.go")
	flags = append(flags, found(simulation, regexp.MustCompile(`name:"([a-z-]+)"`))...)
	for _, field := range found(simulation, regexp.MustCompile("(?m)^\t([A-Z]\\w+) +\\w+ +`")) {
		flags = append(flags, strings.ToLower(regexp.MustCompile(`([a-z])([A-Z])`).ReplaceAllString(field, "$1-$2")))
	}

	flag := regexp.MustCompile("(?m)(?:^|[\\s`(])--([a-z][a-z-]+)")
	for _, file := range append(documents(t), "docker-compose.yml", "Dockerfile") {
		subset(t, file, found(read(t, file), regexp.MustCompile(`FLASHSALE_[A-Z_]*[A-Z]`)), "a setting", variables)
	}
	for _, file := range documents(t) {
		subset(t, file, found(read(t, file), flag), "a flag", flags)
	}
}

func TestMetricsInDocumentsExist(t *testing.T) {
	var made []string
	for _, file := range slices.Concat(files(t, "internal/metrics", ".go"), files(t, "app", ".go")) {
		made = append(made, found(read(t, file), regexp.MustCompile(`"(flashsale_[a-z_]+)"`))...)
	}
	described := found(read(t, "docs/oncall.md"), regexp.MustCompile(`\bflashsale_[a-z_]+`))
	same(t, "docs/oncall.md", described, "the collectors", sorted(made))
}

func TestAlertsHaveTheirRunbook(t *testing.T) {
	alerts := read(t, "deploy/prometheus/alerts.yml")
	names := found(alerts, regexp.MustCompile(`alert: (\w+)`))
	sections := found(section(t, read(t, "docs/oncall.md"), "## Alerts"), regexp.MustCompile(`(?m)^### (\w+)$`))
	same(t, "the sections in docs/oncall.md", sections, "the alerts", names)
	var anchors []string
	for _, name := range names {
		anchors = append(anchors, strings.ToLower(name))
	}
	links := found(alerts, regexp.MustCompile(`runbook_url: docs/oncall\.md#(\w+)`))
	same(t, "the links of alerts.yml", links, "the alerts", anchors)
	for _, part := range []string{"for: ", "severity: ", "summary: "} {
		if strings.Count(alerts, part) != len(names) {
			t.Errorf("not each alert has %q", part)
		}
	}
}

func TestTargetsInDocumentsExist(t *testing.T) {
	targets := found(read(t, "Makefile"), regexp.MustCompile(`(?m)^([a-z-]+):.* ## `))
	called := regexp.MustCompile("(?m)`make ([a-z-]+)`|^(?:\\$ )?make ([a-z-]+)$")
	for _, file := range documents(t) {
		subset(t, file, found(read(t, file), called), "a target of the Makefile", targets)
	}
}

// Wiring belongs into app.
func TestMainIsShort(t *testing.T) {
	if n := strings.Count(read(t, "main.go"), "\n"); n == 0 || n > 80 {
		t.Errorf("main.go has %d lines, want 1 to 80", n)
	}
}

// anchors returns the names that GitHub gives a document's headings.
func anchors(text string) (list []string) {
	for _, heading := range found(text, regexp.MustCompile("(?m)^#+ (.+)$")) {
		list = append(list, strings.ReplaceAll(regexp.MustCompile(`[^\w\s-]`).ReplaceAllString(strings.ToLower(heading), ""), " ", "-"))
	}
	return list
}

// documents returns the Markdown files of the repository.
func documents(t *testing.T) []string {
	t.Helper()
	list := files(t, ".", ".md")
	for _, must := range []string{"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/architecture.md", "docs/merchant.md", "docs/oncall.md", "docs/settings.md"} {
		if !slices.Contains(list, must) {
			t.Errorf("%s is missing", must)
		}
	}
	return list
}

// files lists the files below a folder that end in ext, without tests.
func files(t *testing.T, dir, ext string) []string {
	t.Helper()
	return slices.DeleteFunc(walk(t, dir, ext), func(name string) bool { return strings.HasSuffix(name, "_test.go") })
}

// walk lists the files below a folder that end in ext. It skips hidden folders, data and what tests and tools produce.
func walk(t *testing.T, dir, ext string) (list []string) {
	t.Helper()
	skipped := []string{"data", "build", "testdata"}
	noError(t, fs.WalkDir(os.DirFS("."), dir, func(name string, entry fs.DirEntry, err error) error {
		base := path.Base(name)
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && (strings.HasPrefix(base, ".") || slices.Contains(skipped, base)):
			return fs.SkipDir
		case !entry.IsDir() && strings.HasSuffix(name, ext):
			list = append(list, name)
		}
		return nil
	}))
	if len(list) == 0 {
		t.Fatalf("%s has no %s file", dir, ext)
	}
	return list
}

// noError ends the test if there is an error.
func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func names(files []string) []string {
	list := make([]string, len(files))
	for i, f := range files {
		list[i] = path.Base(f)
	}
	return list
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	noError(t, err)
	return string(text)
}

// section returns the text between a heading and the next heading of its level.
func section(t *testing.T, text, heading string) string {
	t.Helper()
	_, rest, ok := strings.Cut("\n"+text, "\n"+heading+"\n")
	if !ok {
		t.Fatalf("there is no heading %q", heading)
	}
	part, _, _ := strings.Cut(rest, "\n## ")
	return part
}

// found lists the matches of a pattern's groups, or of a pattern without groups: sorted, each once.
func found(text string, pattern *regexp.Regexp) []string {
	var list []string
	for _, match := range pattern.FindAllStringSubmatch(text, -1) {
		list = append(list, match[min(1, len(match)-1):]...)
	}
	return slices.DeleteFunc(sorted(list), func(s string) bool { return s == "" })
}

func sorted(list []string) []string { return slices.Compact(slices.Sorted(slices.Values(list))) }

func same(t *testing.T, whatA string, a []string, whatB string, b []string) {
	t.Helper()
	if len(a) == 0 || !slices.Equal(a, b) {
		t.Errorf("%s: %q; %s: %q", whatA, a, whatB, b)
	}
}

func subset(t *testing.T, file string, list []string, what string, of []string) {
	t.Helper()
	if len(of) == 0 {
		t.Fatalf("nothing is %s", what)
	}
	for _, s := range list {
		if !slices.Contains(of, s) {
			t.Errorf("%s: %s is not %s", file, s, what)
		}
	}
}
